//! What a run has shown.

use std::iter;

use super::plan::Rail;
use super::record::{Record, Sample};

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// All hosts send and receive.
    Survived,
    /// A call of the library failed.
    Failed {
        host: usize,
        call: String,
        code: i32,
        name: String,
    },
    /// Nothing failed, and nothing moves.
    Stuck,
    /// A host's process ended by itself.
    Died { host: usize, how: String },
}

/// What a run has shown. Times in seconds from the first outage.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Verdict {
    pub(super) end: End,
    /// When the library failed, or a process died.
    pub(super) ended_s: Option<f64>,
    /// The longest time for which a channel received nothing.
    pub(super) standstill_s: f64,
    /// When traffic went on without a rail that had carried some.
    pub(super) failed_over_s: Option<f64>,
    /// When all rails carried traffic again.
    pub(super) back_s: Option<f64>,
    /// How many rails carried traffic before the first outage, and at the end, of the host with the fewest.
    pub(super) rails: (usize, usize),
    /// How many queue pairs gave up.
    pub(super) failed_queue_pairs: u64,
    pub(super) wrong_words: u64,
    pub(super) bytes: u64,
}

/// How much of the samples is looked at together, and in how many parts.
const WINDOW_NS: u64 = 400_000_000;
const PARTS: u64 = 4;
/// In this number of parts a rail that carries traffic moves something.
const PARTS_MIN: usize = 3;
/// Less than this in a part is not traffic: probes and signs of life are less.
const BYTES_MIN: u64 = 50_000;
/// The same as a share of what the busiest rail of the host carries.
const SHARE: f64 = 0.05;

impl Verdict {
    /// What a record shows. Only where all rails carry each connection, traffic can move from one to
    /// another.
    pub(super) fn of(record: &Record, is_merged: bool) -> Self {
        let from = record.first_event_ns;
        let since = |at: u64| at.saturating_sub(from) as f64 / 1e9;
        let uses = uses(record);
        let before = uses.iter().filter(|it| it.to_ns <= from);
        let before = before.fold(Vec::new(), |most, it| it.most(most));
        // A window that has an event in it has traffic of before.
        let after = || uses.iter().filter(|it| it.from_ns >= from);
        let over = after().find(|it| is_merged && it.has_moved(&before, record));
        let is_back = |it: &&Use| {
            let is_later = over.is_some_and(|over| it.from_ns > over.from_ns);
            is_later && it.has_all(&before)
        };
        let back = after().find(is_back);
        let last = uses.last().map_or(&[][..], |it| &it.rails);
        let has_ended = matches!(record.end, End::Failed { .. } | End::Died { .. });
        Self {
            end: record.end.clone(),
            ended_s: has_ended.then(|| since(record.ended_ns)),
            standstill_s: record.standstill_ns as f64 / 1e9,
            failed_over_s: over.map(|it| since(it.from_ns)),
            back_s: back.map(|it| since(it.from_ns)),
            rails: (fewest(&before, record), fewest(last, record)),
            failed_queue_pairs: failures(record),
            wrong_words: record.wrong_words,
            bytes: record.bytes,
        }
    }
}

/// How many queue pairs gave up in the time of a record.
fn failures(record: &Record) -> u64 {
    let all = |sample: &Sample| sample.rails.iter().map(|it| it.failures).sum::<u64>();
    record.samples.last().map_or(0, all)
}

/// What a rail did in a window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Traffic {
    /// It carried none.
    Idle,
    /// It carried traffic for a part of the window.
    Some,
    /// It carried traffic all the time.
    Active,
}

/// What the rails did in a window.
struct Use {
    from_ns: u64,
    to_ns: u64,
    rails: Vec<Traffic>,
}

impl Use {
    /// The most that each rail did in this window and in others, whose most is given. A busy machine may
    /// pause in one of them.
    fn most(&self, others: Vec<Traffic>) -> Vec<Traffic> {
        let others = others.into_iter().chain(iter::repeat(Traffic::Idle));
        let pairs = self.rails.iter().zip(others);
        pairs.map(|(rail, other)| other.max(*rail)).collect()
    }

    /// Whether a host sends by some of its rails, and no more by another that carried traffic before.
    fn has_moved(&self, before: &[Traffic], record: &Record) -> bool {
        let rails = || record.rails.iter().zip(&self.rails);
        let mut pairs = rails().zip(before);
        pairs.any(|((rail, now), then)| {
            let is_active = |(other, traffic): (&Rail, &Traffic)| {
                other.host == rail.host && *traffic == Traffic::Active
            };
            *then == Traffic::Active && *now == Traffic::Idle && rails().any(is_active)
        })
    }

    /// Whether every rail carries traffic that did before.
    fn has_all(&self, before: &[Traffic]) -> bool {
        let mut pairs = self.rails.iter().zip(before);
        pairs.all(|(now, then)| *then != Traffic::Active || *now == Traffic::Active)
    }
}

/// How many rails the host uses that uses the fewest.
fn fewest(traffic: &[Traffic], record: &Record) -> usize {
    let used = |host: usize| {
        let pairs = record.rails.iter().zip(traffic);
        let used = pairs.filter(|(rail, traffic)| rail.host == host && **traffic != Traffic::Idle);
        used.count()
    };
    let hosts = record.rails.iter().map(|rail| rail.host);
    hosts.map(used).min().unwrap_or(0)
}

/// What the rails did in each window; windows overlap.
fn uses(record: &Record) -> Vec<Use> {
    let samples = &record.samples;
    let mut uses = Vec::new();
    for last in samples {
        let Some(from_ns) = last.at_ns.checked_sub(WINDOW_NS) else {
            continue;
        };
        // The last sample before each part.
        let at = |ns: u64| samples[..samples.partition_point(|it| it.at_ns <= ns)].last();
        let ends = (0..=PARTS).map(|part| at(from_ns + part * WINDOW_NS / PARTS));
        let Some(ends) = ends.collect::<Option<Vec<_>>>() else {
            continue;
        };
        let moved = |rail: usize| {
            ends.windows(2)
                .map(move |it| it[1].rails[rail].sent - it[0].rails[rail].sent)
        };
        let all: Vec<u64> = (0..record.rails.len())
            .map(|rail| moved(rail).sum())
            .collect();
        let traffic = |rail: usize| {
            let same_host = |other: &usize| record.rails[*other].host == record.rails[rail].host;
            let most = (0..all.len())
                .filter(same_host)
                .map(|other| all[other])
                .max();
            let least = ((most.unwrap_or(0) as f64 * SHARE) as u64).max(BYTES_MIN);
            let busy = moved(rail).filter(|bytes| *bytes >= BYTES_MIN).count();
            match all[rail] < least {
                true => Traffic::Idle,
                false if busy >= PARTS_MIN => Traffic::Active,
                false => Traffic::Some,
            }
        };
        uses.push(Use {
            from_ns,
            to_ns: last.at_ns,
            rails: (0..all.len()).map(traffic).collect(),
        });
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::super::record::Look;
    use super::*;

    /// A record of two rails that carry 10 MB every 20 ms, each except between these milliseconds.
    fn record(dark: [std::ops::Range<u64>; 2]) -> Record {
        let mut rails = [Look::default(); 2];
        let samples = (0..500).map(|step| {
            let ms = step * 20;
            for (rail, dark) in rails.iter_mut().zip(&dark) {
                rail.sent += if dark.contains(&ms) { 100 } else { 10_000_000 };
            }
            Sample {
                at_ns: ms * 1_000_000,
                rails: rails.to_vec(),
            }
        });
        Record {
            rails: (0..2).map(|rail| Rail { host: 0, rail }).collect(),
            samples: samples.collect(),
            first_event_ns: 1_000_000_000,
            ended_ns: 10_000_000_000,
            end: End::Survived,
            ..Record::default()
        }
    }

    #[test]
    fn a_rail_that_stops_carrying_is_a_failover() {
        let verdict = Verdict::of(&record([2000..6000, 2000..3000]), true);
        let over = verdict.failed_over_s.unwrap();
        assert!((1.5..2.1).contains(&over), "{over}");
        let back = verdict.back_s.unwrap();
        assert!((4.5..5.1).contains(&back), "{back}");
        assert_eq!(verdict.rails, (2, 2));
        let separate = Verdict::of(&record([2000..6000, 2000..3000]), false);
        assert_eq!(separate.failed_over_s, None);
    }

    #[test]
    fn a_pause_before_the_outage_is_none_of_it() {
        let verdict = Verdict::of(&record([600..20_000, 600..3000]), true);
        assert_eq!(verdict.rails, (2, 1));
        assert!(verdict.failed_over_s.is_some());
    }

    #[test]
    fn a_standstill_of_all_is_none() {
        let verdict = Verdict::of(&record([2000..3000, 2000..3000]), true);
        assert_eq!((verdict.failed_over_s, verdict.back_s), (None, None));
    }

    #[test]
    fn a_rail_may_stay_away() {
        let verdict = Verdict::of(&record([2000..20_000, 2000..3000]), true);
        assert_eq!(verdict.back_s, None);
        assert_eq!(verdict.rails, (2, 1));
    }
}
