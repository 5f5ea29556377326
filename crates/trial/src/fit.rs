//! Searches for the profile with the lowest cost.
//!
//! A search consists of rounds, each of which anneals from its own start. The result of a round
//! depends only on the question and the round's number, so completed rounds can be kept and others
//! added later.

mod anneal;
mod candidates;
mod state;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use ferroce_adp::{
    AckTimeoutFloor, Demand, Endurance, Policy, PolicyKind, Profile, QpTimeouts, RawProfile,
};
use ferroce_base::random::mix;
use ferroce_base::time::Span;
use thiserror::Error;

use self::anneal::anneal;
use self::candidates::{simpler, starts, varied};
pub use self::state::{State, StateError};
use crate::figures::{Fared, jobs};
use crate::outages::{Outages, Train};
use crate::pair::{Link, TrialError};
use crate::random::Dice;

/// The requirements for a profile, and the parameters of the search.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The outages.
    pub outages: Outages,
    /// The link while it is up.
    pub link: Link,
    /// The queue pairs.
    pub qp: QpTimeouts,
    /// The smallest ACK timeout that the device enforces.
    pub floor: AckTimeoutFloor,
    /// Outages that must be survived, and how soon a dead peer must be detected.
    pub demand: Demand,
    /// The maximum share of packets that may be retransmitted spuriously.
    pub spurious_below: f64,
    /// The cost of the death of a job.
    pub death: Span,
    /// The number of outages that each profile is tested with.
    pub count: u32,
    /// Rounds of the search.
    pub rounds: u32,
    /// The number of profiles that a round tests.
    pub steps: u32,
    /// The seed of everything random.
    pub seed: u64,
}

/// No profile meets the requirements.
#[derive(Clone, PartialEq, Error, Debug)]
pub enum Impossible {
    /// The two requirements contradict each other.
    #[error(
        "nothing survives {} and detects in {}: choose one; a dead peer looks like an outage until the \
         outage is over",
        survive.about(), detect_within.about()
    )]
    Contradiction {
        /// The outage to survive.
        survive: Span,
        /// How soon a dead peer must be detected.
        detect_within: Span,
    },
    /// No total is between the two.
    #[error(
        "no profile survives {} and detects in {}: a total is 2^n us, or the QP's {}; allow \
         --detect-within {}s, or ask for --survive of less than {}",
        survive.about(), detect_within.about(), own.about(), above.as_nanos().div_ceil(1_000_000_000),
        below.about()
    )]
    NoTotal {
        /// The outage to survive.
        survive: Span,
        /// How soon a dead peer must be detected.
        detect_within: Span,
        /// The QP's own total.
        own: Span,
        /// The next shorter total.
        below: Span,
        /// The next longer total.
        above: Span,
    },
    /// All tested profiles violate the requirements or are suspicious.
    #[error(
        "no profile was found that `ferroce adp check` has nothing to say about and that keeps within \
         the constraints, with QPs of timeout {} and retry_cnt {}: allow a longer --detect-within or a \
         shorter --survive, or raise --timeout",
        qp.timeout, qp.retry_cnt
    )]
    Nothing {
        /// The queue pairs.
        qp: QpTimeouts,
    },
    /// All tested profiles have too many spurious retransmissions.
    #[error(
        "--spurious-below {}%: no profile that was tried has so few spurious retransmissions, the least is \
         {:.3}%; allow more, or raise --timeout, which caps every wait", limit * 100.0, least * 100.0
    )]
    Spurious {
        /// The allowed share.
        limit: f64,
        /// The smallest share among them.
        least: f64,
    },
}

/// The reason why a search failed.
#[derive(Clone, PartialEq, Error, Debug)]
pub enum FitError {
    /// No profile meets the requirements.
    #[error(transparent)]
    Impossible(#[from] Impossible),
    /// A trial could not be run.
    #[error(transparent)]
    Trial(#[from] TrialError),
}

/// The result of a round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Round {
    /// Its number.
    pub number: u32,
    /// The best profile.
    pub profile: Profile,
    /// Its mean cost per outage, including that of deaths.
    pub cost: Span,
    /// Its share of spurious retransmissions.
    pub spurious_share: f64,
}

impl Question {
    /// Checks whether a solution can exist.
    ///
    /// # Errors
    /// Returns the requirements that contradict each other.
    pub fn possible(&self) -> Result<(), Impossible> {
        let Demand {
            survive,
            detect_within,
        } = self.demand;
        if survive >= detect_within {
            return Err(Impossible::Contradiction {
                survive,
                detect_within,
            });
        }
        let policy = self.policy_of_kind(PolicyKind::IB);
        let ack = policy.ack_timeout(self.qp).unwrap_or(Span::ZERO);
        let own = ack * u64::from(self.qp.retry_cnt);
        let powers = (0..48).map(|n| Span::from_micros(1).doubled(n));
        let mut totals: Vec<Span> = powers.chain([own]).collect();
        totals.sort_unstable();
        let at = totals.partition_point(|total| *total <= survive);
        let above = totals.get(at).copied().unwrap_or(Span::NEVER);
        match above <= detect_within {
            true => Ok(()),
            false => Err(Impossible::NoTotal {
                survive,
                detect_within,
                own,
                below: totals[at.saturating_sub(1)],
                above,
            }),
        }
    }

    /// Runs a round. `on_step` is called for each tested profile, with the lowest cost so far.
    ///
    /// # Errors
    /// Returns an error if there is no profile to start with.
    pub fn round(&self, number: u32, on_step: &dyn Fn(Span)) -> Result<Round, FitError> {
        let dice = Dice::new(mix(mix(self.seed, 3), number.into()));
        let starts = starts(self, &dice);
        let search = Search {
            question: self,
            trains: self.outages.trains(self.count, self.seed),
            dice,
            known: RefCell::default(),
            least: Cell::new(Span::NEVER),
            on_step,
        };
        search.run(&starts, number)
    }

    /// Returns the best of these rounds.
    ///
    /// # Errors
    /// Returns an error if all of them exceed the allowed share of spurious retransmissions.
    pub fn best(&self, rounds: &[Round]) -> Result<Round, Impossible> {
        let kept = rounds.iter().filter(|it| self.allows(it.spurious_share));
        let best = kept.min_by_key(|it| (it.cost, it.number)).copied();
        best.ok_or_else(|| {
            let shares = rounds.iter().map(|it| it.spurious_share);
            Impossible::Spurious {
                limit: self.spurious_below,
                least: shares.fold(1.0, f64::min),
            }
        })
    }

    /// Returns whether a profile meets the requirements, and `adp check` has no warnings about it.
    #[must_use]
    pub fn admits(&self, profile: &Profile) -> bool {
        let is_silent = || {
            let report = profile.raw().check_for(self.qp, self.floor);
            report.warnings.is_empty()
        };
        self.meets(&self.policy(profile)) && is_silent()
    }

    /// Returns whether a policy meets the requirements.
    #[must_use]
    pub fn meets(&self, policy: &Policy) -> bool {
        let found = Endurance::within(policy, self.qp, self.demand.survive);
        found.is_some_and(|found| {
            found.outlives(self.demand.survive) && found.gives_up_last <= self.demand.detect_within
        })
    }

    /// Returns a profile's cost on these outages, and its share of spurious retransmissions.
    ///
    /// A job dies if an outage is longer than its policy survives. The share of such outages is
    /// computed from the distribution, because a hundred tested outages contain too few of that
    /// length.
    ///
    /// # Errors
    /// Returns an error if the profile retransmits more often than can be simulated.
    pub fn figures(&self, profile: &Profile, trains: &[Train]) -> Result<(Span, f64), TrialError> {
        let policy = self.policy(profile);
        let jobs = jobs(&policy, self.qp, &self.link, trains, self.seed)?;
        let fared = Fared::of(&jobs);
        let Outages::Lengths(lengths) = &self.outages else {
            return Ok((fared.cost(self.death), fared.spurious_share));
        };
        let endurance = Endurance::of(&policy, self.qp).ok_or(TrialError::NoTimer)?;
        let too_long = lengths.share_above(endurance.survives);
        // Deaths that loss has caused.
        let died = trains
            .iter()
            .zip(&jobs)
            .filter(|(train, job)| !job.fate.survived && train.down <= endurance.survives);
        let died = died.count() as f64 / jobs.len().max(1) as f64;
        let fared = Fared {
            survived: 1.0 - (too_long + died).min(1.0),
            ..fared
        };
        Ok((fared.cost(self.death), fared.spurious_share))
    }

    /// Returns whether this share of spurious retransmissions is allowed.
    #[must_use]
    pub fn allows(&self, spurious_share: f64) -> bool {
        spurious_share < self.spurious_below
    }

    /// Returns the policy with this profile.
    #[must_use]
    pub fn policy(&self, profile: &Profile) -> Policy {
        self.policy_of_kind(PolicyKind::Profile(*profile))
    }

    fn policy_of_kind(&self, kind: PolicyKind) -> Policy {
        let mut policy = Policy::new(kind);
        policy.floor = self.floor;
        policy
    }
}

/// One round under way.
struct Search<'a> {
    question: &'a Question,
    trains: Vec<Train>,
    dice: Dice,
    /// Profiles tested so far.
    known: RefCell<HashMap<Profile, (Span, f64)>>,
    least: Cell<Span>,
    on_step: &'a dyn Fn(Span),
}

impl Search<'_> {
    fn run(self, starts: &[Profile], number: u32) -> Result<Round, FitError> {
        /// A profile that costs a tenth more is taken every third time at first.
        const TEMPERATURE: f64 = 0.15;
        let start = self.start(starts)?;
        let best = anneal(
            start,
            self.question.steps,
            TEMPERATURE,
            &Dice::new(mix(mix(self.question.seed, 4), number.into())),
            |profile| self.neighbour(profile),
            |profile| self.cost(profile),
        )?;
        let (profile, (cost, spurious_share)) = self.simplest(best)?;
        Ok(Round {
            number,
            profile,
            cost,
            spurious_share,
        })
    }

    /// The cheapest of the first of these.
    fn start(&self, starts: &[Profile]) -> Result<Profile, FitError> {
        const LOOKED_AT: usize = 12;
        let mut best = None;
        for start in starts.iter().take(LOOKED_AT) {
            let (cost, spurious) = self.figures(start)?;
            let rank = (!self.question.allows(spurious), cost);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, *start));
            }
        }
        let qp = self.question.qp;
        best.map(|(_, start)| start)
            .ok_or_else(|| Impossible::Nothing { qp }.into())
    }

    /// The profile without what makes no difference.
    fn simplest(&self, profile: Profile) -> Result<(Profile, (Span, f64)), FitError> {
        let mut best = (profile, self.figures(&profile)?);
        loop {
            let candidates = simpler(best.0.raw());
            let candidates = candidates.filter_map(|raw| Profile::try_from(raw).ok());
            let mut found = None;
            for simpler in candidates.filter(|it| self.question.admits(it)) {
                let figures = self.figures(&simpler)?;
                if figures.0 <= best.1.0 && self.question.allows(figures.1) {
                    found = Some((simpler, figures));
                    break;
                }
            }
            match found {
                Some(simpler) => best = simpler,
                None => return Ok(best),
            }
        }
    }

    /// What a profile costs, and the share of packets that it sends again for nothing.
    fn figures(&self, profile: &Profile) -> Result<(Span, f64), TrialError> {
        if let Some(known) = self.known.borrow().get(profile) {
            return Ok(*known);
        }
        let figures = self.question.figures(profile, &self.trains)?;
        self.known.borrow_mut().insert(*profile, figures);
        Ok(figures)
    }

    /// The logarithm of the time lost, so that a temperature is a ratio; more for what may not be.
    fn cost(&self, profile: &Profile) -> Result<f64, TrialError> {
        let (cost, spurious) = self.figures(profile)?;
        let is_allowed = self.question.allows(spurious);
        if is_allowed {
            self.least.set(self.least.get().min(cost));
        }
        (self.on_step)(self.least.get());
        let beyond = match is_allowed {
            true => 0.0,
            false => 3.0 + spurious / self.question.spurious_below.max(1e-9),
        };
        Ok((cost.as_picos().max(1) as f64).ln() + beyond)
    }

    /// A neighbour that the question admits; the profile itself if none is found.
    fn neighbour(&self, profile: &Profile) -> Profile {
        const TRIES: u32 = 200;
        let neighbour = |_| {
            let raw: RawProfile = varied(profile.raw(), &self.dice);
            let neighbour = Profile::try_from(raw).ok();
            neighbour.filter(|it| it != profile && self.question.admits(it))
        };
        (0..TRIES).find_map(neighbour).unwrap_or(*profile)
    }
}
