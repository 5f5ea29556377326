//! Decides whether the runs can be compared on this machine.
//!
//! One thread drives both ends, so if it does not get the CPU, everything is slower but nothing is
//! wrong. However, the difference between policies may vanish, or a run that waited less for the
//! CPU may look like one that waited less for its timers.

use super::figures::{Figures, Outcome};
use super::plan::Kind;

/// Runs whose times differ by less than this factor took about the same time.
pub(crate) const ALIKE: f64 = 1.15;
/// Share of a run's time that its thread had no processor. Above it, the run measures the machine.
const STALLED_MAX: f64 = 0.9;
/// Share of the timeouts that repeated packets which had arrived.
const SPURIOUS_MAX: f64 = 0.5;
/// With fewer spurious retransmissions than this, the share is not significant.
const SPURIOUS_MIN: u64 = 20;
/// Share of a run's time that its thread worked or wanted to. Above it, timers make no difference.
const OCCUPIED_MAX: f64 = 0.5;

/// How a busy machine made runs impossible to compare.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum TooBusy {
    /// A run in which the demo had no processor for this share of the time.
    Stalled { policy: Kind, share: f64 },
    /// A run whose timers measured the machine.
    Spurious {
        policy: Kind,
        spurious: u64,
        timeouts: usize,
    },
    /// The fastest run lacked a processor for so long that no timer made a difference: this share
    /// of the time it worked or wanted to.
    Occupied { policy: Kind, share: f64 },
    /// Which of two runs was faster depends on whether the time without a processor counts.
    Undecided { faster: Kind, slower: Kind },
}

/// Looks at runs whose bytes were right; `None` if they can be compared.
pub(crate) fn too_busy(runs: &[Figures]) -> Option<TooBusy> {
    let stalled = runs.iter().find_map(|run| {
        let (policy, share) = (run.policy, share(run, run.spent.stalled.as_nanos()));
        (share > STALLED_MAX).then_some(TooBusy::Stalled { policy, share })
    });
    let spurious = || {
        let run = runs.iter().find(|run| {
            run.spurious >= SPURIOUS_MIN
                && run.spurious as f64 > SPURIOUS_MAX * run.expiries.len() as f64
        })?;
        Some(TooBusy::Spurious {
            policy: run.policy,
            spurious: run.spurious,
            timeouts: run.expiries.len(),
        })
    };
    stalled.or_else(spurious).or_else(|| undecided(runs))
}

fn undecided(runs: &[Figures]) -> Option<TooBusy> {
    let mut done: Vec<&Figures> = runs
        .iter()
        .filter(|run| run.outcome == Outcome::Ok)
        .collect();
    done.sort_by_key(|run| run.elapsed_ns);
    let (best, others) = done.split_first()?;
    let worst = others.last()?;
    if worst.expiries.is_empty() {
        return None;
    }
    let occupied = best.spent.worked + best.spent.stalled;
    let (policy, share) = (best.policy, share(best, occupied.as_nanos()));
    if ratio(worst, best, elapsed) < ALIKE && share > OCCUPIED_MAX {
        return Some(TooBusy::Occupied { policy, share });
    }
    let contradicts = |other: &&&Figures| {
        ratio(other, best, elapsed) >= ALIKE && ratio(other, best, unstalled) <= 1.0
    };
    others
        .iter()
        .find(contradicts)
        .map(|other| TooBusy::Undecided {
            faster: best.policy,
            slower: other.policy,
        })
}

fn elapsed(run: &Figures) -> u64 {
    run.elapsed_ns
}

/// What is left of a run's time without that for which its thread wanted a processor.
fn unstalled(run: &Figures) -> u64 {
    let stalled_ns = u64::try_from(run.spent.stalled.as_nanos()).unwrap_or(u64::MAX);
    run.elapsed_ns.saturating_sub(stalled_ns)
}

fn ratio(slow: &Figures, fast: &Figures, time: fn(&Figures) -> u64) -> f64 {
    time(slow) as f64 / time(fast).max(1) as f64
}

fn share(run: &Figures, ns: u128) -> f64 {
    let all = run.spent.slept + run.spent.worked + run.spent.stalled;
    ns as f64 / all.as_nanos().max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferroce_runtime::Spent;

    use super::*;
    use crate::demo::report::tests::run;

    /// A run that took `slept`, `worked` and `stalled` milliseconds.
    fn spent(policy: Kind, [slept, worked, stalled]: [u64; 3]) -> Figures {
        let mut run = run(policy, slept + worked + stalled, &[1; 100]);
        let ms = Duration::from_millis;
        run.spent = Spent {
            slept: ms(slept),
            worked: ms(worked),
            stalled: ms(stalled),
        };
        run
    }

    fn three(times: [[u64; 3]; 3]) -> Vec<Figures> {
        let runs = Kind::ALL.into_iter().zip(times);
        runs.map(|(kind, times)| spent(kind, times)).collect()
    }

    #[test]
    fn a_quiet_machine_and_one_at_a_quarter_of_its_speed_can_tell() {
        let quiet = three([[7800, 300, 0], [1900, 300, 0], [200, 300, 0]]);
        assert_eq!(too_busy(&quiet), None);
        let quarter = three([[7000, 400, 1200], [1200, 400, 1200], [50, 400, 1200]]);
        assert_eq!(too_busy(&quarter), None);
        // A profile may be worse.
        let reversed = three([[7800, 300, 0], [1900, 300, 0], [4200, 300, 0]]);
        assert_eq!(too_busy(&reversed), None);
        assert_eq!(too_busy(&quiet[..1]), None);
    }

    #[test]
    fn without_a_processor_nobody_can_tell() {
        let runs = three([[100, 300, 4000], [50, 300, 4000], [1, 300, 4000]]);
        let found = too_busy(&runs).unwrap();
        assert!(matches!(found, TooBusy::Stalled { policy: Kind::Ib, share } if share > 0.9));
    }

    #[test]
    fn timers_that_measure_the_machine_tell_nothing() {
        let mut runs = three([[7800, 300, 0], [1900, 300, 0], [200, 300, 0]]);
        runs[2].spurious = 51;
        assert_eq!(
            too_busy(&runs),
            Some(TooBusy::Spurious {
                policy: Kind::Profile,
                spurious: 51,
                timeouts: 100
            })
        );
        runs[2].spurious = 50;
        assert_eq!(too_busy(&runs), None);
        // Two or three can happen where there is little else.
        runs[2].expiries.truncate(3);
        runs[2].spurious = 3;
        assert_eq!(too_busy(&runs), None);
    }

    #[test]
    fn a_machine_that_is_slower_than_the_timers_hides_them() {
        let slow = three([[100, 4000, 100], [50, 4000, 100], [0, 4000, 100]]);
        let found = too_busy(&slow).unwrap();
        assert!(matches!(found, TooBusy::Occupied { policy: Kind::Profile, share } if share > 0.9));
        // Alike because they wait alike is a verdict.
        let alike = three([[4000, 100, 0], [4050, 100, 0], [4100, 100, 0]]);
        assert_eq!(too_busy(&alike), None);
    }

    #[test]
    fn an_order_that_the_machine_has_made_is_none() {
        let runs = three([[7800, 300, 0], [1000, 300, 100], [200, 300, 1500]]);
        assert_eq!(
            too_busy(&runs),
            Some(TooBusy::Undecided {
                faster: Kind::Firmware,
                slower: Kind::Profile
            })
        );
    }
}
