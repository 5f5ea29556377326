//! Queue pairs that are slowed down.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ferroce_device::Counter;
use ferroce_registry::{
    FlowRow, Inquiry, Observer, Process, Query, QueryError, Resource, ResourceRow,
};

/// How long a scrape waits for the processes of all devices to report their queue pairs.
const PATIENCE: Duration = Duration::from_millis(100);

/// The queue pairs of a device that are slowed down now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limited {
    pub(super) count: u64,
    /// The lowest of their rates, bits per second.
    pub(super) lowest_bps: Option<u64>,
    /// Processes that did not report their queue pairs.
    pub(super) silent: u64,
}

impl Limited {
    fn add(&mut self, rate_bps: u64) {
        let lowest = self.lowest_bps.unwrap_or(u64::MAX);
        self.count += 1;
        self.lowest_bps = Some(lowest.min(rate_bps));
    }
}

/// Finds the queue pairs that are slowed down. Only a CNP can slow a queue pair down, so a process
/// without limited queue pairs is asked again only when it has received another CNP.
#[derive(Debug, Default)]
pub(super) struct LimitedFlows {
    inquiry: Inquiry,
    /// Processes that had no limited queue pair.
    at_full_rate: HashMap<Place, CnpsSeen>,
}

/// A device's name and a slot.
type Place = (String, u8);

/// A process, and how many CNPs have been handled in its slot.
type CnpsSeen = (u32, u64);

/// A process that may have limited queue pairs.
struct Candidate<'a> {
    /// Of the device.
    index: usize,
    observer: &'a Observer,
    process: Process,
    cnps: u64,
}

impl Candidate<'_> {
    fn place(&self) -> Place {
        (self.observer.spec().name.clone(), self.process.slot)
    }

    fn cnps_seen(&self) -> CnpsSeen {
        (self.process.pid, self.cnps)
    }
}

impl LimitedFlows {
    /// The limited queue pairs of each device, in the order of the devices; none for a `None`.
    pub(super) fn take<'a>(
        &mut self,
        devices: impl ExactSizeIterator<Item = Option<&'a Observer>>,
    ) -> Vec<Limited> {
        let mut limited = vec![Limited::default(); devices.len()];
        let observed = devices
            .enumerate()
            .filter_map(|(index, it)| Some((index, it?)));
        let candidates: Vec<_> = observed
            .flat_map(|(index, it)| candidates(index, it))
            .collect();
        let before = std::mem::take(&mut self.at_full_rate);
        let is_known = |it: &Candidate<'_>| before.get(&it.place()) == Some(&it.cnps_seen());
        let (known, asked): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_known);
        let mut at_full_rate: HashMap<_, _> = known
            .iter()
            .map(|it| (it.place(), it.cnps_seen()))
            .collect();

        let processes: Vec<_> = asked.iter().map(|it| (it.observer, &it.process)).collect();
        let until = Instant::now() + PATIENCE;
        let answers = self.inquiry.ask(&processes, Query::Flow, until);
        for (candidate, answer) in asked.iter().zip(answers) {
            let limited = &mut limited[candidate.index];
            let rows = match answer {
                Ok(rows) => rows,
                // It has ended since, and its queue pairs with it.
                Err(QueryError::Gone { .. }) => continue,
                Err(_) => {
                    limited.silent += 1;
                    continue;
                }
            };
            let rates: Vec<_> = rows.iter().filter_map(rate_bps).collect();
            if rates.is_empty() {
                at_full_rate.insert(candidate.place(), candidate.cnps_seen());
            }
            rates.into_iter().for_each(|rate| limited.add(rate));
        }
        self.at_full_rate = at_full_rate;
        limited
    }
}

/// The processes in whose slots CNPs have been handled, perhaps by earlier owners.
fn candidates(index: usize, observer: &Observer) -> impl Iterator<Item = Candidate<'_>> {
    let processes = observer.processes().unwrap_or_default().into_iter();
    let candidates = processes.map(move |process| Candidate {
        index,
        observer,
        cnps: observer
            .state()
            .counter_of(process.slot, Counter::RpCnpHandled),
        process,
    });
    candidates.filter(|it| it.cnps > 0)
}

/// The rate of a queue pair that is slowed down.
fn rate_bps(row: &Resource) -> Option<u64> {
    let limit = FlowRow::of(row)?.limit.as_ref();
    limit.map(|limit| limit.rate_bps)
}
