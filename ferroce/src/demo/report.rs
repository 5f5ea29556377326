//! The output of a demo: a table, a histogram, a verdict, or JSON.

use std::fmt::Write as _;

use super::figures::{Figures, Outcome};
use super::plan::{BINS, Kind, Plan, Start};
use super::rig::QPS;
use super::verdict::{ALIKE, TooBusy, too_busy};
use crate::bins;
use crate::json::demo as json;
use crate::json::shared::{Bin, hex};
use crate::output::Table;
use crate::output::lines::short;
use crate::output::lines::wrapped;

/// The whole report in words.
pub(crate) fn text(plan: &Plan, profile_name: &str, runs: &[Figures]) -> String {
    format!(
        "{}\n{}\n{}\n{}\n",
        settings(plan, profile_name),
        table(runs),
        histogram(runs),
        wrap(&conclusion(runs))
    )
}

/// What was done.
pub(crate) fn settings(plan: &Plan, profile_name: &str) -> String {
    let [client, server] = plan.addresses;
    let blackout = match plan.blackout {
        None => "no blackout".to_owned(),
        Some(blackout) => {
            let start = match blackout.start {
                Start::Time(ns) => format!("after {}", time(ns)),
                Start::Percent(percent) => format!("at {percent} % of the bytes"),
            };
            format!("blackout of {} {start}", time(blackout.length_ns))
        }
    };
    let settings = format!(
        "{} of WRITE, SEND and READ from {client} to {server} over {QPS} QPs; loss {} % each way, \
         {blackout}; QP timeout {}, retry_cnt {}; {profile_name}; seed {}",
        size(plan.bytes),
        rounded(plan.loss * 100.0),
        plan.qp.timeout,
        plan.qp.retry_cnt,
        plan.seed,
    );
    wrap(&settings) + "\n"
}

/// One row for each policy, and a line for each that did not do all of its work. 80 columns are enough.
fn table(runs: &[Figures]) -> String {
    let mut table = Table::new(&[
        "policy",
        ">Gb/s",
        ">time s",
        ">p50 ms",
        ">p99 ms",
        ">max ms",
        ">resent",
        ">timeouts",
        ">spurious",
    ]);
    let mut remarks = String::new();
    for run in runs {
        let latency = |quantile| digits(run.latency.value_at_quantile(quantile) as f64 / 1e6);
        table.row(vec![
            run.policy.to_string(),
            digits(run.goodput_gbps()),
            digits(run.elapsed_ns as f64 / 1e9),
            latency(0.5),
            latency(0.99),
            latency(1.0),
            run.retransmissions.to_string(),
            run.expiries.len().to_string(),
            run.spurious.to_string(),
        ]);
        if !run.verified {
            remarks += &format!("{}: WRONG BYTES\n", run.policy);
        } else if run.outcome != Outcome::Ok {
            remarks += &format!("{} failed with {}\n", run.policy, run.outcome.name());
        }
    }
    format!("{table}{remarks}")
}

/// The timeouts of all policies, side by side in the same bins, and below them the packets that were sent
/// again for nothing.
fn histogram(runs: &[Figures]) -> String {
    let name = |run: &Figures| (run.policy.to_string(), run.histogram());
    let columns: Vec<_> = runs.iter().map(name).collect();
    let spurious: Vec<u64> = runs.iter().map(|run| run.spurious).collect();
    let table = bins::table_and(&BINS, &columns, Some(("spurious", &spurious)));
    table.unwrap_or_else(|| "No timeouts.\n".to_owned())
}

/// Runs shorter than this differ by chance.
const SHORT_NS: u64 = 50_000_000;

/// What the figures mean, in a sentence.
fn conclusion(runs: &[Figures]) -> String {
    if let Some(run) = runs.iter().find(|run| !run.verified) {
        return format!(
            "Under {} bytes arrived that were never sent there.",
            subject(run.policy)
        );
    }
    if let Some(found) = too_busy(runs) {
        return format!("{} Every byte that arrived was right.", excuse(&found));
    }
    let (mut done, failed): (Vec<&Figures>, Vec<&Figures>) =
        runs.iter().partition(|run| run.outcome == Outcome::Ok);
    done.sort_by_key(|run| run.elapsed_ns);
    let given_up = failed
        .iter()
        .map(|run| {
            format!(
                "{} gave up after {}",
                subject(run.policy),
                time(run.elapsed_ns)
            )
        })
        .collect::<Vec<_>>();
    let Some((best, others)) = done.split_first() else {
        return format!(
            "Every policy gave up: {}; every byte that arrived was right.",
            list(&given_up)
        );
    };
    let mut text = match others.last() {
        None => format!("Only {} survived on this link", subject(best.policy)),
        Some(worst) if worst.expiries.is_empty() || worst.elapsed_ns < SHORT_NS => {
            return "Too few timers ran out to tell the policies apart; give them more to do with \
                    --bytes, --loss or --blackout. Every byte that arrived was right."
                .to_owned();
        }
        Some(worst) if ratio(worst, best) < ALIKE => {
            "The policies took about the same time".to_owned()
        }
        Some(_) => {
            let ratios = others
                .iter()
                .map(|run| {
                    format!(
                        "{} times as fast as {}",
                        digits(ratio(run, best)),
                        subject(run.policy)
                    )
                })
                .collect::<Vec<_>>();
            format!("{} was {}", capital(subject(best.policy)), list(&ratios))
        }
    };
    let typical = |of: &dyn Fn(&Figures) -> Option<u64>| {
        let known = done
            .iter()
            .filter_map(|run| Some(format!("{} under {}", time(of(run)?), run.policy)));
        let known: Vec<String> = known.collect();
        (known.len() > 1).then(|| list(&known))
    };
    if let Some(waits) = typical(&|run| median(run.expiries.iter().map(|expiry| expiry.wait_ns))) {
        let _ = write!(text, ": the median timeout was {waits}");
    }
    if let Some(recoveries) = typical(&|run| median(run.recoveries_ns.iter().copied())) {
        let _ = write!(
            text,
            ", and after the blackout the median QP recovered within {recoveries}"
        );
    }
    if !given_up.is_empty() {
        let _ = write!(text, "; {}", list(&given_up));
    }
    format!("{text}. Every byte that arrived was right.")
}

/// Explains how the machine distorted the comparison, and what to do.
fn excuse(found: &TooBusy) -> String {
    let percent = |share: f64| digits(share * 100.0);
    let what = match *found {
        TooBusy::Stalled { policy, share } => format!(
            "under {} the demo had no processor for {} % of the time",
            subject(policy),
            percent(share)
        ),
        TooBusy::Spurious {
            policy,
            spurious,
            timeouts,
        } => format!(
            "under {} there were {timeouts} timeouts, and {spurious} packets were sent again that had \
             arrived",
            subject(policy)
        ),
        TooBusy::Occupied { policy, share } => format!(
            "under {} the demo worked or waited for a processor for {} % of the time, so timers made \
             no difference",
            subject(policy),
            percent(share)
        ),
        TooBusy::Undecided { faster, slower } => format!(
            "{} was slower than {} only because it got less processor time",
            subject(slower),
            subject(faster)
        ),
    };
    format!(
        "The machine is too busy for a verdict: {what}. Stop other programs or allow this one more \
         processor time, and try again."
    )
}

/// How many times as long one run took as another.
fn ratio(slow: &Figures, fast: &Figures) -> f64 {
    slow.elapsed_ns as f64 / fast.elapsed_ns.max(1) as f64
}

/// The lower one of two.
fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn subject(policy: Kind) -> &'static str {
    match policy {
        Kind::Ib => "plain InfiniBand",
        Kind::Firmware => "the firmware's own ladder",
        Kind::Profile => "the profile",
    }
}

pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

/// `a`, `a and b`, `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// A duration with three digits.
fn time(ns: u64) -> String {
    short(ns as f64)
}

/// Three digits, and never more than four behind the point.
pub(super) fn digits(value: f64) -> String {
    let behind = match value {
        0.0 => 0,
        _ if value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ if value >= 0.9995 => 2,
        _ if value >= 0.09995 => 3,
        _ => 4,
    };
    format!("{value:.behind$}")
}

/// A number that a person wrote, without what binary fractions add to it.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// A number of bytes in the largest unit that divides it, or about.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units
        .iter()
        .find(|(shift, _)| bytes.trailing_zeros() >= *shift)
    {
        Some((shift, unit)) if bytes > 0 => format!("{} {unit}", bytes >> shift),
        _ => format!("{bytes} bytes"),
    }
}

/// Breaks a text into lines of a terminal's width.
pub(super) fn wrap(text: &str) -> String {
    wrap_to(80, text)
}

/// Breaks a text, which may have lines already, into two lines for a picture.
pub(super) fn wrap_for_picture(text: &str) -> String {
    wrap_to(100, text.replace('\n', " ").trim_end())
}

fn wrap_to(columns: usize, text: &str) -> String {
    wrapped(text, columns).join("\n")
}

/// The report for programs.
pub(super) fn document(plan: &Plan, profile_name: &str, runs: &[Figures]) -> json::Demo {
    json::Demo {
        configuration: configuration(plan, profile_name),
        too_busy: too_busy(runs).as_ref().map(excuse),
        runs: runs.iter().map(run_json).collect(),
    }
}

fn configuration(plan: &Plan, profile_name: &str) -> json::Configuration {
    let blackout = plan.blackout.map(|it| {
        let (start_ns, start_percent) = match it.start {
            Start::Time(ns) => (Some(ns), None),
            Start::Percent(percent) => (None, Some(percent)),
        };
        json::Blackout {
            length_ns: it.length_ns,
            start_ns,
            start_percent,
        }
    });
    json::Configuration {
        ferroce_version: env!("CARGO_PKG_VERSION"),
        addresses: plan.addresses,
        payload_bytes: plan.bytes,
        queue_pairs: QPS,
        loss: plan.loss,
        blackout,
        timeout: plan.qp.timeout,
        retry_cnt: plan.qp.retry_cnt,
        profile: profile_name.to_owned(),
        profile_payload: hex(&plan.profile.to_register()),
        seed: plan.seed,
    }
}

fn run_json(run: &Figures) -> json::Run {
    let latency = |quantile| run.latency.value_at_quantile(quantile) as f64 / 1e3;
    json::Run {
        policy: run.policy,
        outcome: run.outcome.name(),
        payload_bytes: run.bytes,
        verified: run.verified,
        elapsed_s: run.elapsed_ns as f64 / 1e9,
        goodput_gbps: run.goodput_gbps(),
        retransmissions: run.retransmissions,
        timeouts: run.expiries.len() as u64,
        spurious: run.spurious,
        stalled_s: run.spent.stalled.as_secs_f64(),
        latency_p50_us: latency(0.5),
        latency_p99_us: latency(0.99),
        latency_max_us: latency(1.0),
        histogram: Bin::all(&BINS, &run.histogram()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use ferroce_runtime::Spent;
    use hdrhistogram::Histogram;

    use super::*;
    use crate::demo::figures::Expiry;

    const MS: u64 = 1_000_000;

    /// A run of `elapsed_ms` milliseconds whose timers waited `waits_ms`.
    pub(in crate::demo) fn run(policy: Kind, elapsed_ms: u64, waits_ms: &[u64]) -> Figures {
        let expiry = |&wait_ms: &u64| Expiry {
            at_ns: 0,
            wait_ns: wait_ms * MS,
        };
        Figures {
            policy,
            outcome: Outcome::Ok,
            bytes: 1 << 20,
            verified: true,
            elapsed_ns: elapsed_ms * MS,
            retransmissions: 7,
            spurious: 0,
            spent: Spent {
                slept: Duration::from_millis(elapsed_ms),
                ..Spent::default()
            },
            expiries: waits_ms.iter().map(expiry).collect(),
            latency: Histogram::new(3).unwrap(),
            bytes_by_ms: Vec::new(),
            dark: None,
            recoveries_ns: Vec::new(),
        }
    }

    fn three() -> [Figures; 3] {
        [
            run(Kind::Ib, 8000, &[268; 30]),
            run(Kind::Firmware, 1600, &[4, 8, 8, 67]),
            run(Kind::Profile, 400, &[1, 1, 1]),
        ]
    }

    #[test]
    fn the_histogram_has_the_same_bins_for_all() {
        let expected = "\
timeouts after    ib                 firmware           profile
1 ms to 2 ms      ·                  ·                  █▌ 3
2 ms to 4 ms      ·                  ·                  ·
4 ms to 8 ms      ·                  ▌ 1                ·
8 ms to 16 ms     ·                  █ 2                ·
16 ms to 32 ms    ·                  ·                  ·
32 ms to 64 ms    ·                  ·                  ·
64 ms to 128 ms   ·                  ▌ 1                ·
128 ms to 256 ms  ·                  ·                  ·
256 ms to 512 ms  ██████████████ 30  ·                  ·
spurious          ·                  ·                  █ 2
";
        let mut runs = three();
        runs[2].spurious = 2;
        assert_eq!(histogram(&runs), expected);
        let quiet = [run(Kind::Ib, 10, &[])];
        assert_eq!(histogram(&quiet), "No timeouts.\n");
    }

    #[test]
    fn the_conclusion_follows_from_the_figures() {
        let mut runs = three();
        assert_eq!(
            conclusion(&runs),
            "The profile was 4.00 times as fast as the firmware's own ladder and 20.0 times as \
             fast as plain InfiniBand: the median timeout was 1 ms under profile, 8 ms under \
             firmware and 268 ms under ib. Every byte that arrived was right."
        );
        runs[1].outcome = Outcome::RetryExceeded;
        runs[0].recoveries_ns = vec![9 * MS, 237 * MS, 240 * MS];
        runs[2].recoveries_ns = vec![2 * MS];
        assert_eq!(
            conclusion(&runs),
            "The profile was 20.0 times as fast as plain InfiniBand: the median timeout was 1 ms \
             under profile and 268 ms under ib, and after the blackout the median QP \
             recovered within 2 ms under profile and 237 ms under ib; the firmware's own ladder gave up \
             after 1.6 s. Every byte that arrived was right."
        );
        runs[0].outcome = Outcome::RetryExceeded;
        assert!(conclusion(&runs).starts_with("Only the profile survived on this link; plain"));
        runs[2].outcome = Outcome::RetryExceeded;
        assert!(conclusion(&runs).starts_with("Every policy gave up: plain"));
        runs[2].verified = false;
        assert!(conclusion(&runs).starts_with("Under the profile bytes arrived that were never"));
    }

    #[test]
    fn chance_is_not_called_a_difference() {
        let quiet = Kind::ALL.map(|kind| run(kind, 9 + kind as u64 * 30, &[]));
        assert!(conclusion(&quiet).starts_with("Too few timers"));
        let alike = Kind::ALL.map(|kind| run(kind, 1000 + kind as u64, &[1]));
        assert!(
            conclusion(&alike).starts_with("The policies took about the same time: the median")
        );
    }

    #[test]
    fn a_busy_machine_gives_no_verdict() {
        let mut runs = three();
        runs[2].spent = Spent {
            stalled: Duration::from_millis(390),
            slept: Duration::from_millis(10),
            ..Spent::default()
        };
        assert_eq!(
            conclusion(&runs),
            "The machine is too busy for a verdict: under the profile the demo had no processor for \
             97.5 % of the time. Stop other programs or allow this one more processor time, and try \
             again. Every byte that arrived was right."
        );
        runs[1].verified = false;
        assert!(conclusion(&runs).contains("never sent"));
    }

    #[test]
    fn numbers_have_three_digits_and_sizes_their_unit() {
        let numbers = [123.4, 12.34, 1.234, 0.1234, 0.012_34, 0.0].map(digits);
        assert_eq!(numbers, ["123", "12.3", "1.23", "0.123", "0.0123", "0"]);
        let sizes = [3 << 30, 128 << 20, 1536, 1000].map(size);
        assert_eq!(sizes, ["3 GiB", "128 MiB", "1536 bytes", "1000 bytes"]);
        assert_eq!(wrap(&"word ".repeat(30)).lines().count(), 2);
    }
}
