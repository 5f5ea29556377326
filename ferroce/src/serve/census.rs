//! Which queue pairs are slowed down.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ferroce_hca::Counter;
use ferroce_udp::{Inquiry, Observer, Process, Query, QueryError, Resource};

/// How long a scrape waits for the processes of all devices to tell of their queue pairs.
const PATIENCE: Duration = Duration::from_millis(100);

/// The queue pairs of a device that are slowed down now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limited {
    pub(super) count: u64,
    /// The lowest of their rates, bits per second.
    pub(super) lowest_bps: Option<u64>,
    /// Processes that did not tell of theirs.
    pub(super) silent: u64,
}

impl Limited {
    fn add(&mut self, rate_bps: u64) {
        let lowest = self.lowest_bps.unwrap_or(u64::MAX);
        self.count += 1;
        self.lowest_bps = Some(lowest.min(rate_bps));
    }
}

/// Finds out who is slowed down. Only a CNP can begin that, so nobody is asked who has not got one
/// since there was last nothing to tell.
#[derive(Debug, Default)]
pub(super) struct Census {
    inquiry: Inquiry,
    /// Those who had nothing to tell.
    at_full_rate: HashMap<Place, Heard>,
}

/// A device's name and a slot.
type Place = (String, u8);

/// A process, and how many CNPs have been heeded in its slot.
type Heard = (u32, u64);

/// A process that may have something to tell.
struct Suspect<'a> {
    /// Of the device.
    index: usize,
    observer: &'a Observer,
    process: Process,
    cnps: u64,
}

impl Suspect<'_> {
    fn place(&self) -> Place {
        (self.observer.spec().name.clone(), self.process.slot)
    }

    fn heard(&self) -> Heard {
        (self.process.pid, self.cnps)
    }
}

impl Census {
    /// Who is slowed down on each of the devices, in their order; on one that is `None`, nobody.
    pub(super) fn take<'a>(
        &mut self,
        devices: impl ExactSizeIterator<Item = Option<&'a Observer>>,
    ) -> Vec<Limited> {
        let mut limited = vec![Limited::default(); devices.len()];
        let observed = devices
            .enumerate()
            .filter_map(|(index, it)| Some((index, it?)));
        let suspects: Vec<_> = observed
            .flat_map(|(index, it)| suspects(index, it))
            .collect();
        let before = std::mem::take(&mut self.at_full_rate);
        let is_known = |it: &Suspect<'_>| before.get(&it.place()) == Some(&it.heard());
        let (known, asked): (Vec<_>, Vec<_>) = suspects.into_iter().partition(is_known);
        let mut at_full_rate: HashMap<_, _> =
            known.iter().map(|it| (it.place(), it.heard())).collect();

        let processes: Vec<_> = asked.iter().map(|it| (it.observer, &it.process)).collect();
        let until = Instant::now() + PATIENCE;
        let answers = self.inquiry.ask(&processes, Query::Flow, until);
        for (suspect, answer) in asked.iter().zip(answers) {
            let limited = &mut limited[suspect.index];
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
                at_full_rate.insert(suspect.place(), suspect.heard());
            }
            rates.into_iter().for_each(|rate| limited.add(rate));
        }
        self.at_full_rate = at_full_rate;
        limited
    }
}

/// The processes in whose slots CNPs have been heeded, if only by earlier owners.
fn suspects(index: usize, observer: &Observer) -> impl Iterator<Item = Suspect<'_>> {
    let processes = observer.processes().unwrap_or_default().into_iter();
    let suspects = processes.map(move |process| Suspect {
        index,
        observer,
        cnps: observer
            .state()
            .counter_of(process.slot, Counter::RpCnpHandled),
        process,
    });
    suspects.filter(|it| it.cnps > 0)
}

/// The rate of a queue pair that is slowed down.
fn rate_bps(row: &Resource) -> Option<u64> {
    match row {
        Resource::Flow(flow) => flow.limit.as_ref().map(|limit| limit.rate_bps),
        _ => None,
    }
}
