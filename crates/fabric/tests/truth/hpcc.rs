//! Flow lists and long flows that HPCC's simulator has run: docs/validation.md says how, how it differs, and
//! what follows from that for the bands.

use ferroce_fabric::results::Flow;
use ferroce_fabric::{Rate, Span};

use crate::files::{file, publish, run, scenario};
use crate::long::observe;
use crate::net::{packets, ratio, serialization};

const MTU: u64 = 1_024;

/// Slowdowns, and the bytes of their flows.
struct Slowdowns(Vec<(u64, f64)>);

impl Slowdowns {
    /// p50, p95, p99.
    fn percentiles(&self) -> [f64; 3] {
        let mut all: Vec<f64> = self.0.iter().map(|(_, slowdown)| *slowdown).collect();
        all.sort_by(f64::total_cmp);
        [50, 95, 99].map(|percent| all[(all.len() * percent).div_ceil(100) - 1])
    }

    /// The mean of the flows of each decade of sizes; none of fewer than 100 flows.
    fn by_size(&self) -> [Option<f64>; 5] {
        let mean = |from: u64, to: u64| {
            let of_size = self
                .0
                .iter()
                .filter(|(bytes, _)| (from..to).contains(bytes));
            let (count, sum) =
                of_size.fold((0, 0.0), |(count, sum), (_, it)| (count + 1, sum + it));
            (count >= 100).then(|| sum / f64::from(count))
        };
        let kilobyte = 1_001;
        [
            mean(0, kilobyte),
            mean(kilobyte, 10_001),
            mean(10_001, 100_001),
            mean(100_001, 1_000_001),
            mean(1_000_001, u64::MAX),
        ]
    }
}

/// A way to run the lists.
#[derive(Clone, Copy)]
struct Variant {
    /// The column of the simulator's run in the file of a list.
    column: usize,
    /// What differs in the scenario.
    values: &'static [(&'static str, &'static str)],
}

/// Acknowledgements wait in the data's queues.
const SHARED: Variant = Variant {
    column: 0,
    values: &[],
};

/// Acknowledgements go before data.
const PRIORITISED: Variant = Variant {
    column: 1,
    values: &[("device.ack_dscp", "48"), ("device.dcqcn.cnp_dscp", "48")],
};

/// A queue pair has 52 packets in flight at most, of which a round trip at full rate takes as many.
const FIXED_WINDOW: Variant = Variant {
    column: 2,
    values: &[("device.window", "52KiB")],
};

/// And fewer in proportion to its rate.
const VARIABLE_WINDOW: Variant = Variant {
    column: 3,
    values: &[
        ("device.window", "52KiB"),
        ("device.paced_window", "4160ns"),
    ],
};

/// What the simulator made of a list: below the flows, the file has a line of completion times for each, in ns.
fn theirs(list: &str, column: usize) -> Slowdowns {
    let text = file(&format!("{list}.txt")).unwrap();
    let mut lines = text.lines();
    let count: usize = lines.next().unwrap().parse().unwrap();
    let flows: Vec<&str> = lines.by_ref().take(count).collect();
    let slowdown = |(flow, took): (&&str, &str)| {
        let number = |line: &str, place| -> u64 {
            let word = line.split(' ').nth(place);
            word.unwrap().parse().unwrap()
        };
        let bytes = number(flow, 4);
        let took = number(took, column);
        (bytes, ratio(Span::from_nanos(took), their_ideal(bytes)))
    };
    Slowdowns(flows.iter().zip(lines).map(slowdown).collect())
}

/// The simulator's ideal time: a round trip over two hops with a packet of 1,000 bytes, and then all bytes and
/// headers at the rate of the cable. It counts 48 bytes of headers where its packets have 38.
fn their_ideal(bytes: u64) -> Span {
    let rate = Rate::from_mbps(100_000);
    round_trip(rate) + serialization(bytes + 48 * bytes.div_ceil(1_000), rate)
}

/// The same for our packets, with ten more bytes each.
fn our_ideal(bytes: u64, rate: Rate) -> Span {
    let wire = packets(bytes, MTU);
    let all = wire.iter().sum::<u64>() + 10 * wire.len() as u64;
    round_trip(rate) + serialization(all, rate)
}

fn round_trip(rate: Rate) -> Span {
    Span::from_micros(4) + serialization(1_000, rate).times(2)
}

fn ours(list: &str, seed: usize, variant: Variant) -> Slowdowns {
    let (name, seed) = (format!("{list}.txt"), seed.to_string());
    let own = [("job.file", name.as_str()), ("seed", seed.as_str())];
    let values = [&own[..], variant.values].concat();
    let scenario = scenario("hpcc-flows", &values);
    let (rate, (_, results)) = (scenario.topology.cables[0].rate, run(&scenario));
    let slowdown = |it: &Flow| {
        let bytes = it.bytes.into();
        let took = Span::from_nanos(it.fct_ns.unwrap());
        (bytes, ratio(took, our_ideal(bytes, rate)))
    };
    Slowdowns(results.flows.iter().map(slowdown).collect())
}

/// The runs of one kind at one load, all flows of several lists or seeds together.
struct Compared {
    name: String,
    theirs: Slowdowns,
    ours: Slowdowns,
}

impl Compared {
    /// Compares the runs of lists with these seeds; another seed of the simulator is in another column.
    fn new(name: String, runs: &[(String, usize, Variant)]) -> Self {
        let mut it = Self {
            name,
            theirs: Slowdowns(Vec::new()),
            ours: Slowdowns(Vec::new()),
        };
        for (list, seed, variant) in runs {
            it.theirs.0.extend(theirs(list, variant.column).0);
            it.ours.0.extend(ours(list, *seed, *variant).0);
        }
        assert_eq!(it.theirs.0.len(), it.ours.0.len());
        it
    }

    /// Three lists, each run once.
    fn web_search(load: u32, variant: Variant) -> Self {
        let runs = [1, 2, 3].map(|list| (format!("websearch{load}_{list}"), 1, variant));
        Self::new(format!("WebSearch {load} %"), &runs)
    }

    /// One list, run with three seeds.
    fn hadoop(load: u32) -> Self {
        let runs = [0, 1, 2].map(|column| {
            let variant = Variant { column, ..SHARED };
            (format!("fbhdp{load}"), column + 1, variant)
        });
        Self::new(format!("Hadoop {load} %"), &runs)
    }

    /// The rows of the two tables.
    fn rows(&self) -> [String; 2] {
        let off = |ours: f64, theirs: f64| format!("{:+.1} %", (ours / theirs - 1.0) * 100.0);
        let (theirs, ours) = (self.theirs.percentiles(), self.ours.percentiles());
        let mut row = format!("| {} | {} |", self.name, self.ours.0.len());
        for (theirs, ours) in theirs.into_iter().zip(ours) {
            row += &format!(" {theirs:.2} | {ours:.2} ({}) |", off(ours, theirs));
        }
        let mut sizes = format!("| {} |", self.name);
        for (theirs, ours) in self.theirs.by_size().into_iter().zip(self.ours.by_size()) {
            sizes += &match theirs.zip(ours) {
                Some((theirs, ours)) => format!(" {} |", off(ours, theirs)),
                None => " |".to_owned(),
            };
        }
        [row + "\n", sizes + "\n"]
    }

    fn check(&self, [p50, p95, p99]: [f64; 3], by_size: f64) {
        let within = |what: &str, ours: f64, theirs: f64, band: f64| {
            let off = ours / theirs - 1.0;
            assert!(
                off.abs() <= band,
                "{}, {what}: {ours}, theirs {theirs}",
                self.name
            );
        };
        let (theirs, ours) = (self.theirs.percentiles(), self.ours.percentiles());
        let bands = [("p50", p50), ("p95", p95), ("p99", p99)];
        for ((what, band), (theirs, ours)) in bands.into_iter().zip(theirs.into_iter().zip(ours)) {
            within(what, ours, theirs, band);
        }
        for (theirs, ours) in self.theirs.by_size().into_iter().zip(self.ours.by_size()) {
            if let Some((theirs, ours)) = theirs.zip(ours) {
                within("a size", ours, theirs, by_size);
            }
        }
    }
}

const PERCENTILES: &str = "| list | flows | p50 | Ferroce | p95 | Ferroce | p99 | Ferroce |";

/// Acknowledgements wait in the data's queues, as in HPCC's simulator out of the box.
#[test]
fn slowdowns_match_at_all_loads() {
    let loads = [30, 50, 70];
    let web_search = loads.map(|load| Compared::web_search(load, SHARED));
    let all: Vec<_> = web_search
        .into_iter()
        .chain(loads.map(Compared::hadoop))
        .collect();
    let (percentiles, sizes): (Vec<_>, Vec<_>) = all
        .iter()
        .map(Compared::rows)
        .map(|[one, other]| (one, other))
        .unzip();
    println!("{PERCENTILES}");
    percentiles
        .iter()
        .chain(&sizes)
        .for_each(|row| print!("{row}"));
    for it in &all[..5] {
        it.check([0.05, 0.1, 0.1], 0.15);
    }
    // Longer queues than theirs fill in these 5 ms; see docs/validation.md.
    all[5].check([0.05, 0.2, 0.2], 0.15);
    publish(PERCENTILES, &percentiles);
    publish("| list | up to 1 KB |", &sizes);
}

#[test]
fn slowdowns_match_with_acknowledgements_first() {
    let all = [30, 50, 70].map(|load| Compared::web_search(load, PRIORITISED));
    let rows = all.each_ref().map(|it| it.rows()[0].clone());
    rows.iter().for_each(|row| print!("{row}"));
    for (it, p99) in all.iter().zip([0.15, 0.1, 0.1]) {
        it.check([0.07, 0.1, p99], 0.15);
    }
    let header = PERCENTILES.replacen("list", "acknowledgements first", 1);
    publish(&header, &rows);
}

/// The simulator's options HAS_WIN and VAR_WIN, for one list.
#[test]
fn slowdowns_match_with_windows() {
    let variants = [("fixed", FIXED_WINDOW), ("with the rate", VARIABLE_WINDOW)];
    let all = variants.map(|(name, variant)| {
        let runs = [1, 2, 3].map(|seed| ("websearch50_1".to_owned(), seed, variant));
        Compared::new(name.to_owned(), &runs)
    });
    let rows = all.each_ref().map(|it| it.rows()[0].clone());
    rows.iter().for_each(|row| print!("{row}"));
    for it in &all {
        it.check([0.05, 0.1, 0.1], 0.15);
    }
    publish(&PERCENTILES.replacen("list", "window", 1), &rows);
}

/// Mean queues of the simulator in the second half of 50 ms, KB: means of four runs.
const LONG: [(u32, f64); 5] = [(2, 185.3), (4, 218.6), (8, 257.1), (16, 328.8), (32, 500.8)];

#[test]
fn queues_of_long_flows_match() {
    let rows = LONG.map(|(flows, theirs)| {
        let hosts = format!("0-{flows}");
        let seen = observe("hpcc-long", &[("job.hosts", &hosts)], 25);
        let queue = seen.queue / 1e3;
        println!("{flows} flows: {seen:?}, theirs {theirs}");
        let off = queue / theirs;
        assert!(
            (1.0..1.25).contains(&off),
            "{flows} flows: {queue} KB, theirs {theirs}"
        );
        assert!(seen.utilisation > 0.98 && seen.jain > 0.97, "{seen:?}");
        format!(
            "| {flows} | {theirs:.0} | {queue:.0} ({off:.2}) | {:.3} | {:.3} |\n",
            seen.utilisation, seen.jain
        )
    });
    publish("| flows | HPCC, KB |", &rows);
}

/// Everything passes one port, so times are proportional to bytes on the wire, except for those of
/// the round trip.
#[test]
fn an_incast_takes_as_long_as_the_published_one() {
    let (simulation, results) = run(&scenario("hpcc-incast", &[]));
    let took = results
        .flows
        .iter()
        .map(|it| it.fct_ns.unwrap() as f64 / 1e3);
    let took: Vec<f64> = took.collect();
    let of = |pick: fn(f64, f64) -> f64| took.iter().copied().reduce(pick).unwrap();
    let (least, most) = (of(f64::min), of(f64::max));
    let mean = took.iter().sum::<f64>() / 16.0;
    let wire = packets(64_000, MTU);
    let scale = wire.iter().sum::<u64>() as f64 / (64.0 * 1_038.0);
    println!("incast: {least:.2} {mean:.2} {most:.2} us, scale {scale:.4}");
    for (ours, theirs) in [(least, 87.8), (mean, 88.5), (most, 89.1)] {
        let expected = 4.0 + (theirs - 4.0) * scale;
        let off = ours / expected - 1.0;
        assert!(off.abs() < 0.02, "{ours} us, not {expected} us");
    }
    assert_eq!(results.summary.totals.pauses, 0);
    // A buffer counts no preambles and gaps, 24 bytes for each packet.
    let frames = wire.iter().sum::<u64>() - 24 * wire.len() as u64;
    let expected = 986_000.0 * frames as f64 / (64.0 * 1_038.0);
    let (_, longest) = simulation.fabric.queue(0, 1);
    let off = longest as f64 / expected - 1.0;
    assert!(
        off.abs() < 0.05,
        "a queue of {longest} bytes, not {expected}"
    );
}
