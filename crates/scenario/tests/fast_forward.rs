//! Time that is left out because nothing changes in it: with it and without, the same happens at the same times.

use std::fmt::Write as _;

use ferroce_base::time::Span;
use ferroce_fabric::{Simulation, Standing};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::Results;
use ferroce_testing::{Dice, seeds};

/// A star of hosts under plain timeouts, which are not drawn.
const STAR: &str = "duration = '20s'
[topology]
kind = 'star'
hosts = 8
rate = '100Gbit'
[switch]
buffer = '32MiB'
ecn = { preset = 'hpcc' }
pfc = { priorities = [3], headroom = '64KiB' }
[device]
personality = 'ib'
";
const PERMUTATION: &str = "[[job]]
workload = 'permutation'
bytes = '256MiB'
timeout = 10
";
const INCAST: &str = "[[job]]
workload = 'incast'
receiver = 0
bytes = '256MiB'
timeout = 10
";

fn run(text: &str, tolerance: Option<&str>) -> (Simulation, Results) {
    let values = tolerance.map(|it| ("fast_forward".to_owned(), it.to_owned()));
    let values: Vec<_> = values.into_iter().collect();
    let files = &mut |name: &str| Err(format!("no file {name}"));
    let scenario = Scenario::parse_with(text, &values, files).unwrap();
    let mut simulation = scenario.simulation().unwrap();
    let standing = loop {
        match simulation.run(100_000).unwrap() {
            Standing::Running => {}
            standing => break standing,
        }
    };
    simulation.fabric.audit();
    let results = Results::new(&scenario, &simulation, standing);
    (simulation, results)
}

/// Runs a scenario with and without, and compares both. Returns the part of events that was left out.
fn compare(text: &str, tolerance: &str) -> f64 {
    let (_, whole) = run(text, None);
    let (simulation, part) = run(text, Some(tolerance));
    let left_out = part.summary.fast_forward.unwrap();
    let error = left_out.error_ns;
    assert_eq!(
        left_out.left_out_ns,
        simulation.left_out().unwrap().time.as_nanos()
    );
    if left_out.times == 0 {
        // To look changes nothing.
        assert!(
            whole.flows == part.flows && whole.timeouts == part.timeouts,
            "{text}"
        );
    }
    assert_eq!(whole.flows.len(), part.flows.len());
    let mut far = Vec::new();
    let mut near = |what: String, one: Option<u64>, other: Option<u64>| {
        if one.is_some() != other.is_some()
            || one
                .zip(other)
                .is_some_and(|(one, other)| one.abs_diff(other) > error)
        {
            far.push(format!("{what}: {one:?} and {other:?}"));
        }
    };
    for (one, other) in whole.flows.iter().zip(&part.flows) {
        let end = |it: &ferroce_scenario::results::Flow| it.fct_ns.map(|took| it.start_ns + took);
        near(
            format!("start of {}", one.transfer),
            Some(one.start_ns),
            Some(other.start_ns),
        );
        near(format!("end of {}", one.transfer), end(one), end(other));
    }
    assert_eq!(whole.timeouts.len(), part.timeouts.len(), "timeouts");
    for (one, other) in whole.timeouts.iter().zip(&part.timeouts) {
        near(
            format!("timeout of {}", one.qpn),
            Some(one.at_ns),
            Some(other.at_ns),
        );
        assert_eq!((one.wait_ns, one.fatal), (other.wait_ns, other.fatal));
    }
    assert!(far.is_empty(), "{text}\n{error} ns: {far:#?}");
    // A few acknowledgements; and after a timeout, a window may be sent once more, or not.
    let again = if whole.timeouts.is_empty() {
        16 << 10
    } else {
        8 << 20
    };
    for (one, other) in whole.links.iter().zip(&part.links) {
        let (one, other) = (one.carried.bytes, other.carried.bytes);
        let close = one.abs_diff(other) <= one / 20 + again;
        assert!(close, "{text}\n{one} and {other} bytes");
    }
    1.0 - part.summary.events as f64 / whole.summary.events as f64
}

#[test]
fn even_flows_are_left_out() {
    assert!(compare(&format!("{STAR}{PERMUTATION}"), "1%") > 0.9);
}

#[test]
fn timeouts_are_those_of_the_whole_run() {
    for fault in [
        "kind = 'link-down'\nlink = 'h3-switch0'\nat = '7ms'\nfor = '30ms'",
        "kind = 'rate'\nlink = 'h2-switch0'\nrate = '25Gbit'\nat = '5ms'\nfor = '20ms'",
        "kind = 'silent-host'\nhost = 'h1'\nat = '9ms'\nfor = '50ms'",
        "kind = 'slow-receiver'\nhost = 'h1'\nrate = '40Gbit'\nat = '9ms'\nfor = '5ms'",
    ] {
        let text = format!("{STAR}{PERMUTATION}[[fault]]\n{fault}\n");
        assert!(compare(&text, "1%") > 0.2, "{fault}");
    }
}

#[test]
fn senders_that_are_paused_are_left_out() {
    let text = format!("{STAR}dcqcn = {{ enabled = false }}\n{INCAST}");
    assert!(compare(&text, "1%") > 0.5);
}

#[test]
fn nothing_is_left_out_under_congestion_control() {
    for preset in ["hpcc", "firmware"] {
        let text = format!("{STAR}dcqcn = {{ preset = '{preset}' }}\n{INCAST}");
        assert_eq!(compare(&text, "5%"), 0.0);
    }
}

#[test]
fn nothing_is_left_out_on_cables_that_lose_packets() {
    let loss = "[[fault]]\nkind = 'loss'\nlink = 'h1-switch0'\nprobability = 0.00001\n";
    let text = format!("{STAR}{PERMUTATION}{loss}");
    assert_eq!(compare(&text, "5%"), 0.0);
}

/// Whatever gets slow, and whenever. There are no losses or pauses, and messages begin together: a moment's difference
/// decides which packet is lost, who is paused, and who comes first, and much may follow from that, as from another
/// seed.
#[test]
fn errors_are_as_small_as_stated() {
    let check = |seed| {
        let mut dice = Dice::new(seed);
        let topology = dice.pick(&[
            "kind = 'star'\nhosts = 8",
            "kind = 'leaf-spine'\nleaves = 2\nspines = 2\nhosts_per_leaf = 4",
            "kind = 'dumbbell'\nleft_hosts = 4\nright_hosts = 4",
        ]);
        let text = format!("seed = {seed}\n{STAR}dcqcn = {{ enabled = false }}\n");
        let text = text.replace("kind = 'star'\nhosts = 8", topology);
        let mut text = text.replace("32MiB", "1GiB");
        let workload = dice.pick(&["permutation", "incast"]);
        let (mib, at) = (dice.within(8..=64), dice.below(20));
        let _ = write!(
            text,
            "[[job]]\nworkload = '{workload}'\nbytes = '{mib}MiB'\nat = '{at}ms'\ntimeout = 12\n"
        );
        let (host, at, length) = (dice.below(8), dice.below(40), dice.within(1..=40));
        let kind = match dice.chance(50) {
            true => format!("kind = 'slow-receiver'\nhost = 'h{host}'\nrate = '40Gbit'"),
            false => format!("kind = 'rate'\nlink = 'h{host}'\nrate = '40Gbit'"),
        };
        let _ = write!(
            text,
            "[[fault]]\n{kind}\nat = '{at}ms'\nfor = '{length}ms'\n"
        );
        let tolerance = dice.pick(&["0.5%", "1%", "5%"]);
        compare(&text, tolerance);
    };
    // Each takes too long to be run as often as FERROCE_RUNS says.
    (1..=4).for_each(|seed| seeds::named(seed, check));
}

#[test]
fn samples_go_on_in_time_that_is_left_out() {
    let text = format!("{STAR}{PERMUTATION}[record]\nevery = '100us'\ngoodput = true\n");
    let (simulation, results) = run(&text, Some("1%"));
    let sent: u64 = simulation.samples.goodput.iter().map(|it| it.value).sum();
    let whole: u64 = results.summary.jobs.iter().map(|it| it.payload_bytes).sum();
    // What comes after the last sample is in none.
    assert!(whole - sent < 8 * (2 << 20), "{sent} of {whole} bytes");
    let mut last = None;
    for sample in &simulation.samples.goodput {
        assert!(last <= Some(sample.at), "in order");
        assert!(last.is_none_or(|last| sample.at.since(last) <= Span::from_micros(100)));
        last = Some(sample.at);
    }
}
