//! The ladder of an active profile, completely: for all profiles of a grid, every timeout and every progress
//! in every state that a queue pair can come to, against the vendor's algorithm written once more.

mod common;

use std::collections::HashSet;

use common::{at, ns, qp};
use ferroce_adp::{
    AckTimeoutFloor, DecTrigger, Expiry, Policy, PolicyKind, Profile, QpTimeouts, RANGE_NUM_MAX,
    RawProfile, RawRange, RetryState,
};

/// What the exponents of all these profiles count in.
const BASE_NS: u64 = 4_000;

/// Where a queue pair stands, by the specification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    exponent: u16,
    /// None before the first timeout has expired.
    range: Option<usize>,
    /// How often this timeout has expired, as far as it matters.
    uses: u16,
    has_expired: bool,
    /// Since the last progress.
    silent_ns: u64,
}

/// The specification, with durations where the product counts in exponents, and lists where it computes.
struct Model {
    policy: Policy,
    raw: RawProfile,
    ack_ns: u64,
    total_ns: u64,
}

impl Model {
    fn new(policy: Policy, raw: RawProfile, qp: QpTimeouts) -> Self {
        let ack_ns = 4_096 << qp.timeout;
        let total_ns = match raw.qp_total_timeout {
            true => ack_ns * u64::from(qp.retry_cnt),
            false => BASE_NS << raw.retx_total_timeout,
        };
        Self {
            policy,
            raw,
            ack_ns,
            total_ns,
        }
    }

    fn first(&self) -> Place {
        Place {
            exponent: self.raw.timeout_init_low_bound.into(),
            range: None,
            uses: 0,
            has_expired: false,
            silent_ns: 0,
        }
    }

    /// The exponents of a range.
    //= D2
    fn exponents(&self, index: usize) -> Vec<u16> {
        let range = self.raw.timeout_range[index];
        let [low, size] = [range.range_low_bound, range.range_size].map(u16::from);
        let beyond = low + size + u16::from(!self.policy.range_bound_exclusive);
        (low..beyond.max(low + 1)).collect()
    }

    fn ranges(&self) -> std::ops::Range<usize> {
        0..self.raw.range_num.into()
    }

    //= D4, D5
    fn wait_ns(&self, place: &Place) -> u64 {
        let wait_ns = (BASE_NS << place.exponent).min(self.ack_ns);
        match self.total_ns {
            0 => wait_ns,
            total_ns => wait_ns.min(total_ns - place.silent_ns),
        }
    }

    /// None if the timeout is fatal.
    fn after_timeout(&self, place: &Place) -> Option<Place> {
        let silent_ns = place.silent_ns + self.wait_ns(place);
        if silent_ns >= self.total_ns {
            return None;
        }
        let next = Place {
            has_expired: true,
            silent_ns,
            ..*place
        };
        let Some(range) = place.range else {
            return Some(self.entered(&next));
        };
        let uses_max = self.raw.timeout_range[range].timeout_retry_num.max(1); //= D13
        let uses = (place.uses + 1).min(uses_max);
        let is_capped = BASE_NS << place.exponent >= self.ack_ns;
        let steps = (range..self.ranges().end)
            .flat_map(|i| self.exponents(i).into_iter().map(move |e| (i, e)));
        let mut longer = steps.filter(|(_, exponent)| *exponent > place.exponent);
        Some(match longer.next() {
            //= D15
            Some((range, exponent)) if uses == uses_max && !is_capped => Place {
                exponent,
                range: Some(range),
                uses: 0,
                ..next
            },
            //= D4, D16
            _ => Place { uses, ..next },
        })
    }

    //= D3
    fn entered(&self, place: &Place) -> Place {
        let mut around = self
            .ranges()
            .filter(|i| self.exponents(*i).contains(&place.exponent));
        let start = usize::from(self.raw.start_range_index);
        let (range, exponent) = match around.next() {
            Some(range) => (range, place.exponent),
            None => (start, self.exponents(start)[0]),
        };
        Place {
            exponent,
            range: Some(range),
            ..*place
        }
    }

    //= D17
    fn after_progress(&self, place: &Place) -> Place {
        let is_due = place.has_expired || self.policy.dec_trigger == DecTrigger::PerProgress;
        let lower = match place.range {
            Some(range) if is_due => self.lower(range, place.exponent),
            range => (range, place.exponent),
        };
        Place {
            range: lower.0,
            exponent: lower.1,
            uses: 0,
            has_expired: false,
            silent_ns: 0,
        }
    }

    //= D18, D10
    fn lower(&self, index: usize, exponent: u16) -> (Option<usize>, u16) {
        let (range, low) = (self.raw.timeout_range[index], self.exponents(index)[0]);
        if exponent == low && index > 0 {
            let previous = usize::from(range.prev_range_index);
            let below = self
                .exponents(previous)
                .into_iter()
                .rev()
                .find(|e| *e < exponent);
            return (Some(previous), below.unwrap());
        }
        let divisor = [4, 2, 1 << (exponent - low)][usize::from(range.dec_mode)];
        let duration = ((1_u64 << exponent) / divisor).max(1 << low);
        (Some(index), duration.ilog2() as u16)
    }
}

/// Visits every place from the first one on. Returns how many steps were taken.
fn explore(
    raw: RawProfile,
    timeouts: QpTimeouts,
    exclusive: bool,
    dec_trigger: DecTrigger,
) -> usize {
    let profile = Profile::try_from(raw).unwrap();
    let policy = Policy {
        floor: AckTimeoutFloor::Disabled,
        range_bound_exclusive: exclusive,
        dec_trigger,
        ..Policy::new(PolicyKind::Profile(profile))
    };
    let model = Model::new(policy, raw, timeouts);
    let first = (
        model.first(),
        RetryState::with_draw(&policy, timeouts, 0, 0),
    );
    // The state of the product belongs to it: nothing that it remembers beyond the specification may matter.
    let (mut pending, mut seen) = (vec![first], HashSet::from([first]));
    let mut steps = 0;
    while let Some((place, state)) = pending.pop() {
        // Its clock always begins at 0, so that the time is the silence.
        let wait_ns = ns(state.wait(&policy, at(place.silent_ns))).unwrap();
        assert_eq!(wait_ns, model.wait_ns(&place), "{raw:?} {place:?}");
        let mut after_timeout = state;
        let expiry = after_timeout.on_timeout(&policy, at(place.silent_ns + wait_ns));
        let expected = model.after_timeout(&place);
        assert_eq!(
            expiry == Expiry::Fatal,
            expected.is_none(),
            "{raw:?} {place:?}"
        );
        let mut after_progress = state;
        after_progress.on_progress(&policy, at(0));
        let progressed = (model.after_progress(&place), after_progress);
        let timed_out = expected.map(|place| (place, after_timeout));
        for (next, state) in timed_out.into_iter().chain([progressed]) {
            steps += 1;
            let stands = (state.exponent(), state.range().map(usize::from));
            assert_eq!(
                stands,
                (next.exponent, next.range),
                "{raw:?} {place:?} {next:?}"
            );
            if seen.insert((next, state)) {
                pending.push((next, state));
            }
        }
        check_steps(&model, &place, expected, progressed.0);
    }
    steps
}

/// What the specification promises of each step, whatever the algorithm: a longer wait after a loss, except
/// into the start range; a shorter one after progress; and always one of a range.
fn check_steps(model: &Model, place: &Place, timed_out: Option<Place>, progressed: Place) {
    for next in timed_out.into_iter().chain([progressed]) {
        let is_inside = |range: usize| model.exponents(range).contains(&next.exponent);
        assert!(next.range.is_none_or(is_inside), "{place:?} {next:?}");
        assert!(next.silent_ns < model.total_ns.max(1), "{next:?}");
    }
    let rises = timed_out.is_none_or(|next| next.exponent >= place.exponent);
    assert!(rises || place.range.is_none(), "{place:?}");
    assert!(progressed.exponent <= place.exponent, "{place:?}");
}

/// All lists with one item of each of these.
fn product<T: Copy>(choices: &[Vec<T>]) -> Vec<Vec<T>> {
    choices.iter().fold(vec![Vec::new()], |lists, choices| {
        let longer = |list: &Vec<T>| {
            let list = list.clone();
            choices
                .iter()
                .map(move |item| [&list[..], &[*item]].concat())
        };
        lists.iter().flat_map(longer).collect::<Vec<_>>()
    })
}

/// What each range of a grid may be.
struct Grid<'a> {
    sizes: &'a [u8],
    retries: &'a [u16],
    /// Of the initial timeout.
    inits: &'a [u8],
}

/// QPs, and with which total: the profile's exponent, or the QP's own.
const LIMITS: [(u8, u8, Option<u8>); 4] =
    [(2, 3, None), (1, 0, None), (5, 7, Some(6)), (2, 1, Some(3))];

/// Explores all profiles with ranges at these low bounds, with all ways down and all previous ranges.
fn explore_all(lows: &[u8], grid: &Grid<'_>, limits: &[(u8, u8, Option<u8>)]) -> usize {
    let range = |(index, low): (usize, &u8)| {
        let mut choices = Vec::new();
        for &range_size in grid.sizes {
            for &timeout_retry_num in grid.retries {
                for dec_mode in 0..3 {
                    choices.extend((0..index.max(1)).map(|previous| RawRange {
                        range_low_bound: *low,
                        range_size,
                        timeout_retry_num,
                        dec_mode,
                        prev_range_index: previous as u8,
                    }));
                }
            }
        }
        choices
    };
    let choices: Vec<_> = lows.iter().enumerate().map(range).collect();
    let mut steps = 0;
    for ranges in product(&choices) {
        let mut timeout_range = [RawRange::EMPTY; RANGE_NUM_MAX];
        timeout_range[..ranges.len()].copy_from_slice(&ranges);
        for &timeout_init_low_bound in grid.inits {
            for &(timeout, retry_cnt, total) in limits {
                for start_range_index in 0..ranges.len() as u8 {
                    let raw = RawProfile {
                        time_base: 4,
                        range_num: ranges.len() as u8,
                        start_range_index,
                        qp_total_timeout: total.is_none(),
                        retx_total_timeout: total.unwrap_or(0),
                        timeout_init_low_bound,
                        timeout_init_range_size: 1,
                        timeout_range,
                        ..RawProfile::EMPTY
                    };
                    for exclusive in [false, true] {
                        for trigger in [DecTrigger::PerProgress, DecTrigger::PerRecovery] {
                            steps += explore(raw, qp(timeout, retry_cnt), exclusive, trigger);
                        }
                    }
                }
            }
        }
    }
    steps
}

#[test]
fn one_range() {
    let grid = Grid {
        sizes: &[0, 1, 2, 4],
        retries: &[0, 1, 2, 3],
        inits: &[0, 1, 2, 3, 7],
    };
    let steps: usize = [0, 1, 3]
        .map(|low| explore_all(&[low], &grid, &LIMITS))
        .iter()
        .sum();
    println!("{steps} steps");
    assert!(steps > 100_000, "{steps}");
}

/// Apart from each other, next to each other, and overlapping.
#[test]
fn two_ranges() {
    let grid = Grid {
        sizes: &[0, 1, 3],
        retries: &[0, 2],
        inits: &[0, 2, 6],
    };
    let lows = [[0, 1], [0, 2], [2, 4]];
    let steps: usize = lows
        .map(|lows| explore_all(&lows, &grid, &LIMITS[1..]))
        .iter()
        .sum();
    println!("{steps} steps");
    assert!(steps > 1_000_000, "{steps}");
}

#[test]
fn three_ranges() {
    let grid = Grid {
        sizes: &[0, 2],
        retries: &[1, 2],
        inits: &[2],
    };
    let lows = [[0, 1, 2], [0, 2, 5]];
    let steps: usize = lows
        .map(|lows| explore_all(&lows, &grid, &LIMITS[2..3]))
        .iter()
        .sum();
    println!("{steps} steps");
    assert!(steps > 1_000_000, "{steps}");
}

/// With each way from a range to one before it.
#[test]
fn four_ranges() {
    let grid = Grid {
        sizes: &[0, 2],
        retries: &[2],
        inits: &[0],
    };
    let steps = explore_all(&[0, 1, 3, 4], &grid, &LIMITS[2..3]);
    println!("{steps} steps");
    assert!(steps > 1_000_000, "{steps}");
}
