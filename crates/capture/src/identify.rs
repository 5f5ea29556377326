//! Finds the retransmission policies that explain a queue pair's waits.
//!
//! Each kind of policy is fitted to the waits, once with exact timers and once with those of a
//! card, and gets a likelihood; more complicated ones get a penalty. The answer includes all kinds
//! that come close to the best one: nothing is guessed.

mod firmware;
mod likelihood;
mod plain;
mod profile;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ferroce_base::time::Span;

pub use plain::Reading;
pub use profile::Step;

use crate::ladder::{Ladder, Start};
use likelihood::Sender;

/// Fewer waits are not enough to exclude what is not known.
const WAITS_MIN: usize = 4;
/// A single wait says nothing at all.
const WAITS_TOLD: usize = 2;
/// By how much a kind of policy must be likelier than the next one, as natural logarithms.
const LIKELY: f64 = 5.0;
const CERTAIN: f64 = 15.0;
/// A policy explains waits if it fits them so well on average, and is certain only if it fits them
/// better: a few may be strays, but not a third.
const EXPLAINS: f64 = 1.0;
const EXPLAINS_WELL: f64 = 3.0;
/// Packets sent again sooner than this say nothing of timers: an answer may not have been captured, and
/// queues on the way may have drawn packets apart.
const SHORTEST: Span = Span::from_millis(1);

/// The policies that explain a queue pair's waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// How certain the answer is.
    pub sure: Sure,
    /// Policies that explain all waits, the most likely first.
    pub policies: Vec<Policy>,
    /// The number of waits.
    pub waits: usize,
}

/// How certain an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    /// No known policy explains the waits, or there are fewer than two.
    No,
    /// Several kinds of policy explain them.
    Undecided,
    /// One kind explains them much better than the others, or as well as others and far more simply.
    Likely,
    /// Only one kind explains them.
    Certain,
}

/// A policy that explains waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Plain InfiniBand: every wait is the queue pair's timeout, because adaptive retransmission is
    /// off.
    Plain {
        /// The possible meanings of the waits.
        readings: Vec<Reading>,
        /// The retry count.
        retry_cnt: RangeInclusive<u8>,
    },
    /// The firmware's own timeouts: adaptive retransmission without a profile.
    Firmware {
        /// The first wait is 4.096 us doubled this many times; `None` if it was not captured.
        first: Option<u8>,
        /// The longest adaptive wait is 4.096 us doubled this many times: the timeout with the
        /// enforced minimum. A range if the waits did not reach the maximum.
        top: RangeInclusive<u8>,
        /// Whether some waits are shortened to three quarters, as coarse timers do.
        coarse: bool,
        /// The retry count.
        retry_cnt: RangeInclusive<u8>,
    },
    /// An adaptive retransmission profile.
    Profile {
        /// The waits of the longest sequence, and how often each was used.
        steps: Vec<Step>,
        /// The queue pair's timeout, if it caps the profile's waits: 4.096 us doubled this many
        /// times.
        cap: Option<u8>,
    },
}

impl Answer {
    /// Returns the answer to waits of which some are missing: it is not certain.
    #[must_use]
    pub fn of_part(self) -> Self {
        Self {
            sure: self.sure.min(Sure::Likely),
            ..self
        }
    }
}

/// A policy, and how likely it makes the waits.
struct Explanation {
    /// How well it fits the waits.
    fit: f64,
    /// What it costs that the policy could have been another one of its kind.
    choices: f64,
    policy: Policy,
}

impl Explanation {
    fn score(&self) -> f64 {
        self.fit + self.choices
    }
}

type Explain = fn(&[&Ladder], Sender) -> Option<Explanation>;
/// The kinds of policies.
const KINDS: [Explain; 3] = [plain::explain, firmware::explain, profile::explain];

/// For each kind the best policy.
type ByKind = [Option<Explanation>; KINDS.len()];

/// Finds the policies that explain one queue pair's waits.
#[must_use]
pub fn identify(ladders: &[Ladder]) -> Answer {
    let evidence = Evidence::of(&[ladders]);
    evidence.answer(evidence.together(), &[])
}

/// Finds the policies that explain the waits of several queue pairs of one device. Returns `None` if
/// settings of their own explain them better.
#[must_use]
pub fn identify_together(queue_pairs: &[&[Ladder]]) -> Option<Answer> {
    let evidence = Evidence::of(queue_pairs);
    let together = evidence.together();
    let apart = evidence.apart();
    let score = |kind: &usize| {
        together[*kind]
            .as_ref()
            .map_or(f64::NEG_INFINITY, Explanation::score)
    };
    let best = (0..KINDS.len()).max_by(|one, other| score(one).total_cmp(&score(other)))?;
    let mut apart_scores = apart.iter().flatten().map(|apart| apart.score);
    let is_one = apart_scores.all(|apart| apart <= score(&best) + LIKELY);
    is_one.then(|| evidence.answer(together, &apart))
}

fn explanations(ladders: &[&Ladder]) -> ByKind {
    KINDS.map(|explain| {
        let of = |sender| explain(ladders, sender);
        let all = Sender::ALL.into_iter().filter_map(of);
        all.max_by(|one, other| one.score().total_cmp(&other.score()))
    })
}

/// How well policies explain waits, with and without what choosing them costs.
#[derive(Clone, Copy, Debug, Default)]
struct Fit {
    score: f64,
    fit: f64,
}

/// The waits that an answer rests on.
struct Evidence {
    /// Each with the number of its queue pair.
    ladders: Vec<(usize, Ladder)>,
    /// How many of them have a known length.
    waits: usize,
    /// Whether there are enough between retransmissions.
    is_firm: bool,
}

impl Evidence {
    fn of(queue_pairs: &[&[Ladder]]) -> Self {
        let numbered = queue_pairs.iter().enumerate();
        let all = numbered.flat_map(|(qp, ladders)| ladders.iter().map(move |it| (qp, it.clone())));
        let all = all.filter(|(_, ladder)| is_evidence(ladder));
        let (sequences, single): (Vec<_>, Vec<_>) = all.partition(|(_, it)| it.waits.len() > 1);
        // The first of them may lack retransmissions as well.
        let between: usize = sequences.iter().map(|(_, it)| it.waits.len() - 1).sum();
        let is_firm = between >= WAITS_MIN;
        let mut ladders = sequences;
        if is_firm {
            // They may be several waits in one, but no shorter than one.
            let begun = single
                .into_iter()
                .filter(|(_, it)| it.start == Start::Known);
            ladders.extend(begun.map(|(qp, ladder)| (qp, ladder.at_most())));
        } else {
            ladders.extend(single);
            // What looks like a single wait may be several, if retransmissions between them were lost
            // before the point of capture. They are not, time and again.
            if apart_in_time(&ladders) < WAITS_MIN {
                let single = ladders.iter_mut().filter(|(_, it)| it.waits.len() == 1);
                single.for_each(|(_, ladder)| ladder.is_midway = true);
            }
        }
        Self {
            waits: known(ladders.iter()),
            ladders,
            is_firm,
        }
    }

    /// What explains all waits by the same settings.
    fn together(&self) -> ByKind {
        let ladders = self.ladders.iter().map(|(_, ladder)| ladder);
        explanations(&ladders.collect::<Vec<_>>())
    }

    /// How well each kind of policy explains the waits if queue pairs have settings of their own.
    fn apart(&self) -> [Option<Fit>; KINDS.len()] {
        let mut own: BTreeMap<usize, Vec<&Ladder>> = BTreeMap::new();
        for (qp, ladder) in &self.ladders {
            own.entry(*qp).or_default().push(ladder);
        }
        let own: Vec<ByKind> = own.values().map(|ladders| explanations(ladders)).collect();
        [0, 1, 2].map(|kind| {
            let mut of_each = own.iter().map(|found| found[kind].as_ref());
            of_each.try_fold(Fit::default(), |all, found| Some(all.and(found?.into())))
        })
    }

    fn answer(&self, found: ByKind, apart: &[Option<Fit>]) -> Answer {
        let waits = waits_in(self.waits);
        let fits = found.iter().map(|found| found.as_ref().map(Fit::from));
        let fits: Vec<Option<Fit>> = fits.collect();
        let explains =
            |found: &Explanation| self.waits >= WAITS_TOLD && found.fit >= EXPLAINS * waits;
        let found = found.into_iter().enumerate();
        let mut found: Vec<(usize, Explanation)> = found
            .filter_map(|(kind, found)| Some((kind, found.filter(explains)?)))
            .collect();
        found.sort_by(|(_, one), (_, other)| other.score().total_cmp(&one.score()));
        let sure = match found.first() {
            None => Sure::No,
            Some((kind, best)) => {
                // Other kinds, and no policy at all.
                let others = fits.iter().enumerate().chain(apart.iter().enumerate());
                let others = others.filter(|(other, _)| other != kind);
                let others = others.filter_map(|(_, fit)| *fit).chain([Fit::default()]);
                self.sure(best, others)
            }
        };
        if let Some(best) = found.first().map(|(_, best)| Fit::from(best)) {
            // What explains them as well is named, however complicated.
            found.retain(|(_, found)| {
                let is_near = sure < Sure::Likely && best.score - found.score() < CERTAIN;
                is_near || best.fit - found.fit < LIKELY
            });
        }
        Answer {
            sure,
            policies: found.into_iter().map(|(_, found)| found.policy).collect(),
            waits: self.waits,
        }
    }

    /// How certain the best policy is, next to the others.
    fn sure(&self, best: &Explanation, others: impl Iterator<Item = Fit>) -> Sure {
        let lead = others.map(|other| Fit {
            score: best.score() - other.score,
            fit: best.fit - other.fit,
        });
        let lead: Vec<Fit> = lead.collect();
        let leads = |score, fit| {
            lead.iter()
                .all(|lead| lead.score >= score && lead.fit >= fit)
        };
        let fits_well = best.fit >= EXPLAINS_WELL * waits_in(self.waits);
        // What began before the capture may have begun in any way.
        let begun = self.ladders.iter().filter(|(_, ladder)| !ladder.is_midway);
        let is_firm = self.is_firm && known(begun) >= WAITS_MIN;
        match () {
            () if self.waits < WAITS_MIN => Sure::Undecided,
            () if is_firm && fits_well && leads(CERTAIN, LIKELY) => Sure::Certain,
            () if leads(LIKELY, f64::NEG_INFINITY) => Sure::Likely,
            () => Sure::Undecided,
        }
    }
}

fn known<'l>(ladders: impl Iterator<Item = &'l (usize, Ladder)>) -> usize {
    ladders.map(|(_, ladder)| ladder.known()).sum()
}

/// How many waits there are of which no two were at the same time.
fn apart_in_time(ladders: &[(usize, Ladder)]) -> usize {
    let mut apart: Vec<&(usize, Ladder)> = Vec::new();
    let mut ladders: Vec<&(usize, Ladder)> = ladders.iter().collect();
    ladders.sort_by_key(|(_, ladder)| std::cmp::Reverse(ladder.weight()));
    for next in ladders {
        let (since, end) = next.1.time();
        let is_apart =
            |(_, other): &&(usize, Ladder)| other.time().1 <= since || other.time().0 >= end;
        if apart.iter().all(is_apart) {
            apart.push(next);
        }
    }
    known(apart.into_iter())
}

impl Fit {
    fn and(self, other: Self) -> Self {
        Self {
            score: self.score + other.score,
            fit: self.fit + other.fit,
        }
    }
}

impl From<&Explanation> for Fit {
    fn from(found: &Explanation) -> Self {
        Self {
            score: found.score(),
            fit: found.fit,
        }
    }
}

#[expect(clippy::cast_precision_loss)]
fn waits_in(count: usize) -> f64 {
    count as f64
}

/// The best fit, and all options that come near it.
fn best<T>(scored: impl Iterator<Item = (f64, T)>) -> Option<(f64, Vec<T>)> {
    let scored: Vec<(f64, T)> = scored.collect();
    let best = scored
        .iter()
        .map(|(score, _)| *score)
        .max_by(f64::total_cmp)?;
    let near = scored
        .into_iter()
        .filter(|(score, _)| best - score < LIKELY);
    Some((best, near.map(|(_, option)| option).collect()))
}

/// Whether the queue pair went back because of timers, and how long at least one of them ran. A single
/// wait of which only a bound is known says nothing.
fn is_evidence(ladder: &Ladder) -> bool {
    let first = usize::from(ladder.start != Start::Known);
    let known = ladder.waits.get(first..).unwrap_or_default();
    known.iter().any(|wait| *wait >= SHORTEST)
}

/// The retry count that ladders have in common, each of which allows for a range. If they have none, the
/// queue pairs differ, or something else ended some of them: it is not known. `None` if no retry count at
/// all explains one of them.
fn common(mut ranges: impl Iterator<Item = RangeInclusive<u8>>) -> Option<RangeInclusive<u8>> {
    let all = ranges.try_fold(0..=7, |all, one| {
        (!one.is_empty()).then(|| both(&all, &one))
    })?;
    Some(if all.is_empty() { 0..=7 } else { all })
}

/// What is in both ranges.
fn both(one: &RangeInclusive<u8>, other: &RangeInclusive<u8>) -> RangeInclusive<u8> {
    *one.start().max(other.start())..=*one.end().min(other.end())
}

/// The smallest range that holds both.
fn either(one: &RangeInclusive<u8>, other: &RangeInclusive<u8>) -> RangeInclusive<u8> {
    *one.start().min(other.start())..=*one.end().max(other.end())
}
