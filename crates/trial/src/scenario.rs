//! Policies on a whole fabric: the jobs of a scenario, with and without its faults.

use ferroce_adp::Policy;
use ferroce_base::time::Span;
use ferroce_device::{Counter, VerbsError};
use ferroce_fabric::{Simulation, Standing, Time, Timeout};
use ferroce_scenario::{FaultSpan, Scenario};

use crate::pair::Fate;

/// Events between two looks at how a run stands.
const SLICE: u64 = 1 << 20;

/// Runs the jobs of a scenario under a policy. They survive if all are done in time. Lost time is
/// relative to the same run without faults; the outages that count are those that cut off a host, a
/// cable or a switch.
///
/// # Errors
/// Returns an error if a device has no room for the objects that it needs.
pub fn fate(mut scenario: Scenario, name: &str, policy: &Policy) -> Result<Fate, VerbsError> {
    scenario.device.set_policy(name, *policy);
    // No code looks at samples.
    let recording = &mut scenario.recording;
    (recording.queues, recording.links, recording.rates) = (false, false, false);
    recording.every = scenario.duration;
    let run = run(&scenario)?;
    let mut calm = scenario.clone();
    calm.timeline.clear();
    let ideal = ended(&self::run(&calm)?);
    let ended = ended(&run);
    let lost = ended.zip(ideal).map(|(ended, ideal)| ended.since(ideal));
    let hosts = 0..run.fabric.topology().hosts;
    let count = |counter| -> u64 {
        let counted = |host| run.fabric.host(host).hca.counter(counter);
        hosts.clone().map(counted).sum()
    };
    Ok(Fate {
        survived: ended.is_some(),
        lost: lost.unwrap_or_default(),
        resumed_after: resumed_after(&scenario.faults, &run.player.timeouts),
        packets: count(Counter::RdmaTxPackets),
        retransmissions: count(Counter::RetransmittedPackets),
        spurious: run.fabric.spurious(),
    })
}

fn run(scenario: &Scenario) -> Result<Simulation, VerbsError> {
    let mut simulation = scenario.simulation()?;
    while simulation.run(SLICE)? == Standing::Running {}
    Ok(simulation)
}

/// When the last job was done, if all are.
fn ended(simulation: &Simulation) -> Option<Time> {
    let jobs = &simulation.player.job_outcomes;
    let ended = jobs.iter().map(|job| match job.died {
        Some(_) => None,
        None => job.ended,
    });
    ended.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// How long after the end of an outage the last queue pair sent again that a timer had waiting.
fn resumed_after(faults: &[FaultSpan], timeouts: &[Timeout]) -> Span {
    let outages = faults.iter().filter(|it| it.is_outage());
    let after = |fault: &FaultSpan| {
        let waited = timeouts.iter().filter(|it| {
            let armed = it.at.before(it.expiry.wait);
            !it.expiry.fatal && (fault.from..fault.to).contains(&armed) && it.at >= fault.to
        });
        waited.map(|it| it.at.since(fault.to)).max()
    };
    outages.filter_map(after).max().unwrap_or_default()
}
