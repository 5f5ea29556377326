//! Programs' queue pairs, by state.

use std::time::{Duration, Instant};

use ferroce_registry::{
    Counts, Inquiry, Observer, Process, QpStates, Query, QueryError, ResourceRow,
};

/// How long a scrape waits for the processes of all devices to count their queue pairs.
const PATIENCE: Duration = Duration::from_millis(100);

/// The programs on a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Population {
    /// Their queue pairs.
    pub(super) states: QpStates,
    /// Processes that have it open.
    pub(super) processes: u64,
    /// Processes that did not report their queue pairs.
    pub(super) silent: u64,
}

/// Counts at each scrape; a process that has not answered an earlier one is not waited for.
#[derive(Debug, Default)]
pub(super) struct Census {
    inquiry: Inquiry,
}

impl Census {
    /// The programs on each of the devices, in their order; on one that is `None`, none.
    pub(super) fn take<'a>(
        &mut self,
        devices: impl ExactSizeIterator<Item = Option<&'a Observer>>,
    ) -> Vec<Population> {
        let mut populations = vec![Population::default(); devices.len()];
        let processes: Vec<_> = devices
            .enumerate()
            .filter_map(|(index, observer)| Some((index, observer?)))
            .flat_map(|(index, observer)| {
                let processes = observer.processes().unwrap_or_default();
                processes.into_iter().map(move |it| (index, observer, it))
            })
            .collect();
        let asked: Vec<(&Observer, &Process)> = processes
            .iter()
            .map(|(_, observer, it)| (*observer, it))
            .collect();
        let until = Instant::now() + PATIENCE;
        let answers = self.inquiry.ask(&asked, Query::Count, until);
        for ((index, ..), answer) in processes.iter().zip(answers) {
            let population = &mut populations[*index];
            match answer {
                Ok(rows) => {
                    population.processes += 1;
                    let counts = rows.iter().filter_map(Counts::of);
                    counts.for_each(|it| population.states.add(&it.qp_states));
                }
                // It has ended since.
                Err(QueryError::Gone { .. }) => {}
                Err(_) => {
                    population.processes += 1;
                    population.silent += 1;
                }
            }
        }
        populations
    }
}
