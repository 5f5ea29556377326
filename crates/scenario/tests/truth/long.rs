//! Long flows to one receiver, measured.

use ferroce_fabric::{Simulation, Standing, Time};

use crate::files::scenario;

/// Measurements of the second half of a run.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Mean length of the queue, bytes.
    pub(crate) queue: f64,
    /// Mean of the flows' alpha.
    pub(crate) alpha: f64,
    /// CNPs per second and flow.
    pub(crate) cnps: f64,
    /// Share of the port's rate in use.
    pub(crate) utilisation: f64,
    /// Jain's index of the flows' rates.
    pub(crate) jain: f64,
}

/// The mean of three runs, measured from this time on: in a single run, the queue deviates by a fifteenth.
pub(crate) fn observe(name: &str, values: &[(&str, &str)], from_ms: u64) -> Seen {
    let runs = ["1", "2", "3"].map(|seed| {
        let values = [values, &[("seed", seed)]].concat();
        observe_once(name, &values, from_ms)
    });
    let mean = |of: fn(&Seen) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Seen {
        queue: mean(|it| it.queue),
        alpha: mean(|it| it.alpha),
        cnps: mean(|it| it.cnps),
        utilisation: mean(|it| it.utilisation),
        jain: mean(|it| it.jain),
    }
}

/// Bytes that each sender's line has carried, and CNPs that it has handled.
fn carried(simulation: &Simulation, flows: u32) -> Vec<(u64, u32)> {
    let fabric = &simulation.fabric;
    let of = |host: u32| {
        let mut heeded = fabric.host(host).hca.look_at_flows(fabric.now());
        let cnps = heeded.next().map_or(0, |it| it.cnps);
        (fabric.line(host as usize, 0).bytes, cnps)
    };
    (1..=flows).map(of).collect()
}

fn observe_once(name: &str, values: &[(&str, &str)], from_ms: u64) -> Seen {
    let scenario = scenario(name, values);
    let flows = scenario.workload.transfers.len() as u32;
    let (begin, end) = (
        Time::from_nanos(from_ms * 1_000_000),
        Time::ZERO.after(scenario.duration),
    );
    let mut simulation = scenario.simulation().unwrap();
    let mut before = None;
    let (mut alphas, mut samples) = (0.0, 0);
    // These are a few microseconds.
    while simulation.run(100).unwrap() != Standing::TimeUp {
        let now = simulation.fabric.now();
        if now >= begin {
            before.get_or_insert_with(|| carried(&simulation, flows));
            for host in 1..=flows {
                let looks = simulation.fabric.host(host).hca.look_at_flows(now);
                alphas += looks
                    .filter_map(|it| it.limit)
                    .map(|it| it.alpha)
                    .sum::<f64>();
                samples += 1;
            }
        }
    }
    simulation.fabric.audit();
    assert_eq!(simulation.player.timeouts.len(), 0);
    let (before, after) = (before.unwrap(), carried(&simulation, flows));
    let each = |it: usize| (after[it].0 - before[it].0) as f64;
    let bytes: Vec<f64> = (0..flows as usize).map(each).collect();
    let cnps = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after.1 - before.1);
    let seconds = end.since(begin).as_picos() as f64 / 1e12;
    let sum: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|it| it * it).sum();
    let waited = simulation.samples.queues.iter();
    let waited = waited.filter(|it| it.of == 1 && it.at >= begin);
    let looks = seconds / (scenario.recording.every.as_picos() as f64 / 1e12);
    let rate = scenario.topology.cables[0].rate.bps() as f64;
    Seen {
        queue: waited.map(|it| it.value as f64).sum::<f64>() / looks,
        alpha: alphas / f64::from(samples),
        cnps: f64::from(cnps.sum::<u32>()) / seconds / f64::from(flows),
        utilisation: sum * 8.0 / seconds / rate,
        jain: sum * sum / (squares * f64::from(flows)),
    }
}
