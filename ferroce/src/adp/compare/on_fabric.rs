//! Policies on a whole fabric: repeated runs of a `ferroce sim` scenario.

use ferroce_adp::Policy;
use ferroce_base::units::TIME;
use ferroce_scenario::Scenario;
use ferroce_trial::figures::Job;
use ferroce_trial::{Train, scenario};
use rayon::prelude::*;

use crate::output::Failure;
use crate::sim::source::Source;

/// A scenario to compare on.
pub(super) struct OnFabric {
    source: Source,
    scenario: Scenario,
}

impl OnFabric {
    pub(super) fn open(name: &str) -> Result<Self, Failure> {
        let source = Source::open(name)?;
        let scenario = source.scenario(&[])?;
        Ok(Self { source, scenario })
    }

    pub(super) fn name(&self) -> &str {
        self.source.name.to_str().unwrap_or("the scenario")
    }

    pub(super) fn hash(&self) -> u64 {
        self.scenario.hash
    }

    /// `count` runs, each with its own seed and, where `lengths` are given, its own outages, and
    /// with these attributes of all queue pairs.
    pub(super) fn runs(
        &self,
        count: u32,
        seed: u64,
        lengths: Option<&[Train]>,
        attributes: [(&str, Option<u8>); 2],
    ) -> Result<Vec<Scenario>, Failure> {
        let outages = self.outages(lengths)?;
        let runs = (0..count).map(|run| {
            let seed = seed.wrapping_add(run.into()) & i64::MAX.unsigned_abs();
            let mut values = vec![("seed".to_owned(), seed.to_string())];
            for (name, value) in attributes {
                let value = value.map(|value| (format!("job.{name}"), value.to_string()));
                values.extend(value);
            }
            if let Some(train) = lengths.and_then(|lengths| lengths.get(run as usize)) {
                let length = format!("{:?}", TIME.write(train.down.as_nanos()));
                values.extend(
                    outages
                        .iter()
                        .map(|at| (format!("fault[{at}].for"), length.clone())),
                );
            }
            self.source.scenario(&values)
        });
        runs.collect()
    }

    /// The faults whose length is set, by their place in the file.
    fn outages(&self, lengths: Option<&[Train]>) -> Result<Vec<usize>, Failure> {
        let Some(lengths) = lengths else {
            return Ok(Vec::new());
        };
        if lengths.iter().any(|train| train.count > 1) {
            return Err(Failure::input(
                "--outages flaps: a scenario's outages have lengths only; write flaps into the \
                 scenario, or leave --scenario out",
            ));
        }
        let faults = self.scenario.faults.iter().filter(|it| it.is_outage());
        let mut outages: Vec<usize> = faults.map(|it| it.entry).collect();
        outages.dedup();
        match outages.is_empty() {
            true => Err(Failure::input(format_args!(
                "--outages: {} has no fault of kind link-down, silent-host or switch-reboot whose \
                 length could be set; add one, or leave --outages out",
                self.name()
            ))),
            false => Ok(outages),
        }
    }

    /// How the jobs of each run fare under a policy.
    pub(super) fn jobs(
        &self,
        name: &str,
        policy: &Policy,
        runs: &[Scenario],
    ) -> Result<Vec<Job>, Failure> {
        let job = |run: &Scenario| {
            let fate = scenario::fate(run.clone(), name, policy);
            fate.map(|fate| Job { fate, outages: 1 })
        };
        let jobs = runs.par_iter().map(job).collect::<Result<_, _>>();
        jobs.map_err(|error| Failure::broken(format_args!("the devices have no room: {error}")))
    }
}
