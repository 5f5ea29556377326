//! The quality of `identify` and `fit`: shares decided and wrong, and time lost compared with the
//! built-in profiles.

use std::error::Error;
use std::time::Instant;

use ferroce_adp::{AckTimeoutFloor, Demand, Policy, PolicyKind, QpTimeouts, builtin};
use ferroce_base::time::Span;
use ferroce_trial::fit::{Question, State};
use ferroce_trial::{Link, compare};
use serde::Serialize;

#[path = "../../crates/capture/tests/random/mod.rs"]
mod random;

use self::random::{Verdict, judge};

/// How many random policies were told apart.
#[derive(Debug, Default, Serialize)]
pub struct Identified {
    /// Policies of which a capture shows any wait.
    pub policies: u64,
    /// Those of which it shows at least four.
    pub of_four_waits: u64,
    /// Those of them that were decided.
    pub decided: u64,
    /// Those of all that were named wrongly.
    pub wrong: u64,
}

/// Identifies this number of random policies.
#[must_use]
pub fn identify(seed: u64, policies: u64) -> Identified {
    let mut found = Identified::default();
    for number in 0..policies {
        let number = seed.wrapping_mul(1 << 32).wrapping_add(number);
        let Some(Verdict {
            waits,
            is_decided,
            wrong,
        }) = judge(number, |packets, _| packets)
        else {
            continue;
        };
        found.policies += 1;
        found.wrong += u64::from(wrong.is_some());
        if waits >= 4 {
            found.of_four_waits += 1;
            found.decided += u64::from(is_decided);
        }
    }
    found
}

/// The distributions that the manual speaks of: outages, and the loss of the link, of 2^32.
const DISTRIBUTIONS: [(&str, &str, u32); 3] = [
    ("short flaps", "flaps:down=50ms,up=1s,count=5", 0),
    ("leaf reboots", "lognormal:median=20s,p99=40s", 0),
    (
        "mixed, 0.5 % loss",
        "lognormal:median=300ms,p99=20s",
        u32::MAX / 200,
    ),
];

/// Outages on which policies are compared after the search.
const EVIDENCE: u32 = 1_000;

/// What a search has found.
#[derive(Debug, Serialize)]
pub struct Fitted {
    /// The outages.
    pub outages: &'static str,
    /// The same as `--outages` has it.
    pub argument: &'static str,
    /// The mean time lost for each of other outages, ns, a death at five minutes: the fitted profile.
    pub cost_ns: u64,
    /// The same of plain InfiniBand and of the firmware.
    pub ib_ns: u64,
    /// The same.
    pub firmware_ns: u64,
    /// The best profile that Ferroce comes with.
    pub shipped: &'static str,
    /// The same of this one.
    pub shipped_ns: u64,
    /// How long the search took.
    pub seconds: f64,
}

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds.
    pub rounds: u32,
    /// Profiles of each.
    pub steps: u32,
    /// Outages that each is tried on.
    pub count: u32,
}

/// Fits a profile to each of the distributions, for QPs as NCCL's.
///
/// # Errors
/// Returns an error if a search fails.
pub fn fit(seed: u64, effort: Effort) -> Result<Vec<Fitted>, Box<dyn Error>> {
    let fitted = DISTRIBUTIONS.map(|it| fit_one(it, seed, effort));
    fitted.into_iter().collect()
}

fn fit_one(
    (outages, argument, loss): (&'static str, &'static str, u32),
    seed: u64,
    effort: Effort,
) -> Result<Fitted, Box<dyn Error>> {
    let question = Question {
        outages: argument.parse()?,
        link: Link {
            loss,
            ..Link::default()
        },
        qp: QpTimeouts {
            timeout: 20,
            retry_cnt: 7,
        },
        floor: AckTimeoutFloor::DEFAULT,
        demand: Demand {
            survive: Span::ZERO,
            detect_within: Span::from_secs(180),
        },
        spurious_below: 0.01,
        death: Span::from_secs(300),
        count: effort.count,
        rounds: effort.rounds,
        steps: effort.steps,
        seed,
    };
    let began = Instant::now();
    let mut state = State::new(&question);
    while let Some(number) = state.next(&question) {
        state.add(question.round(number, &|_| ())?);
    }
    let best = question.best(&state.rounds)?;
    let seconds = began.elapsed().as_secs_f64();
    let other = seed.wrapping_add(1);
    let trains = question.outages.trains(EVIDENCE, other);
    let cost = |kind| {
        let fared = compare(
            &Policy::new(kind),
            question.qp,
            &question.link,
            &trains,
            other,
        )?;
        Ok::<_, Box<dyn Error>>(fared.cost(question.death).as_nanos())
    };
    let mut shipped = Vec::new();
    for it in builtin::all() {
        shipped.push((cost(PolicyKind::Profile(it.profile))?, it.name));
    }
    let (shipped_ns, shipped) = shipped.into_iter().min().ok_or("no profile is built in")?;
    Ok(Fitted {
        outages,
        argument,
        cost_ns: cost(PolicyKind::Profile(best.profile))?,
        ib_ns: cost(PolicyKind::IB)?,
        firmware_ns: cost(PolicyKind::Firmware {
            quantiser: true,
            initial_exponent: None,
        })?,
        shipped,
        shipped_ns,
        seconds,
    })
}
