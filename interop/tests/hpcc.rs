//! Flow lists that HPCC's simulator has run: docs/validation.md says how, how it differs, and what follows from
//! that for the bands. `UPDATE_DOCS=1` writes the tables of that page again.

mod reference;

use std::fs;
use std::path::Path;

use ferroce_fabric::{Rate, Span};
use ferroce_interop::lab::Lab;
use ferroce_testing::publish;
use ferroce_testing::wire::{packets, ratio, serialization};
use serde_json::Value;

const MTU: u64 = 1_024;

/// Of the star's cables, in the scenario's topology.
const RATE: Rate = Rate::from_mbps(107_000);

/// What is compared: percentiles and means of slowdowns.
struct Figures {
    /// p50, p95, p99.
    percentiles: [f64; 3],
    /// The mean of the flows of up to 1 KB, 10 KB, 100 KB, 1 MB, and above; none of fewer than 100 flows.
    by_size: [Option<f64>; 5],
}

/// Slowdowns, and the bytes of their flows.
struct Slowdowns(Vec<(u64, f64)>);

impl Slowdowns {
    fn figures(&self) -> Figures {
        Figures {
            percentiles: self.percentiles(),
            by_size: self.by_size(),
        }
    }

    fn percentiles(&self) -> [f64; 3] {
        let mut all: Vec<f64> = self.0.iter().map(|(_, slowdown)| *slowdown).collect();
        all.sort_by(f64::total_cmp);
        [50, 95, 99].map(|percent| all[(all.len() * percent).div_ceil(100) - 1])
    }

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

/// What differs in the scenario.
type Variant = &'static [(&'static str, &'static str)];

/// Acknowledgements wait in the data's queues.
const SHARED: Variant = &[];

/// Acknowledgements go before data.
const PRIORITISED: Variant = &[("device.ack_dscp", "48"), ("device.dcqcn.cnp_dscp", "48")];

/// A queue pair has 52 packets in flight at most, of which a round trip at full rate takes as many.
const FIXED_WINDOW: Variant = &[("device.window", "52KiB")];

/// And fewer in proportion to its rate.
const VARIABLE_WINDOW: Variant = &[
    ("device.window", "52KiB"),
    ("device.paced_window", "4160ns"),
];

/// The simulator's ideal time, for our packets: a round trip over two hops with a packet of 1,000 bytes, and then
/// all bytes and headers at the rate of the cable. It counts 48 bytes of headers where its packets have 38, and
/// so ten more bytes for each packet than these have.
fn ideal(bytes: u64) -> Span {
    let wire = packets(bytes, MTU);
    let all = wire.iter().sum::<u64>() + 10 * wire.len() as u64;
    let round_trip = Span::from_micros(4) + serialization(1_000, RATE).times(2);
    round_trip + serialization(all, RATE)
}

/// The slowdowns of a list's flows in one run, which loses nothing.
fn run_list(lab: &Lab, list: &str, seed: u32, variant: Variant) -> Vec<(u64, f64)> {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/scenario/tests/truth/scenarios/hpcc-flows.toml");
    let results = lab.path().join("state/results");
    let mut run = format!(
        "sim run {} --seed {seed} --threads 1 --tables csv --force -o {} --set job.file={list}.txt",
        scenario.display(),
        results.display()
    );
    for (path, value) in variant {
        run += &format!(" --set {path}={value}");
    }
    lab.ferroce(&run).success();
    let read = |file: &str| fs::read_to_string(results.join(file)).unwrap();
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(summary["totals"]["timeouts"], 0, "{summary}");
    slowdowns(&read("flows.csv"))
}

/// The bytes of each flow of a table, and its slowdown.
fn slowdowns(flows: &str) -> Vec<(u64, f64)> {
    let mut rows = flows.lines().map(|row| row.split(','));
    let columns: Vec<_> = rows.next().unwrap().collect();
    let place = |name| columns.iter().position(|column| *column == name).unwrap();
    let (bytes, took) = (place("bytes"), place("fct_ns"));
    let slowdown = |row: Vec<&str>| {
        let [bytes, took] = [bytes, took].map(|column| row[column].parse().unwrap());
        (bytes, ratio(Span::from_nanos(took), ideal(bytes)))
    };
    rows.map(|row| slowdown(row.collect())).collect()
}

/// The runs of one kind at one load, all flows of several lists or seeds together.
struct Compared {
    name: String,
    flows: usize,
    theirs: &'static Figures,
    ours: Figures,
}

impl Compared {
    /// Runs lists with these seeds.
    fn new(
        name: String,
        theirs: &'static Figures,
        runs: impl IntoIterator<Item = (String, u32)>,
        variant: Variant,
    ) -> Self {
        let lab = Lab::new("hpcc");
        let runs = runs.into_iter();
        let all = runs.flat_map(|(list, seed)| run_list(&lab, &list, seed, variant));
        let ours = Slowdowns(all.collect());
        Self {
            name,
            flows: ours.0.len(),
            theirs,
            ours: ours.figures(),
        }
    }

    /// Three lists, each run once.
    fn web_search(load: u32, theirs: &'static Figures, variant: Variant) -> Self {
        let runs = [1, 2, 3].map(|list| (format!("websearch{load}_{list}"), 1));
        Self::new(format!("WebSearch {load} %"), theirs, runs, variant)
    }

    /// One list, run with several seeds: three differ too much in p99.
    fn hadoop(load: u32, theirs: &'static Figures) -> Self {
        let runs = (1..=6).map(|seed| (format!("fbhdp{load}"), seed));
        Self::new(format!("Hadoop {load} %"), theirs, runs, SHARED)
    }

    /// The rows of the two tables.
    fn rows(&self) -> [String; 2] {
        let off = |ours: f64, theirs: f64| format!("{:+.1} %", (ours / theirs - 1.0) * 100.0);
        let (theirs, ours) = (self.theirs.percentiles, self.ours.percentiles);
        let mut row = format!("| {} | {} |", self.name, self.flows);
        for (theirs, ours) in theirs.into_iter().zip(ours) {
            row += &format!(" {theirs:.2} | {ours:.2} ({}) |", off(ours, theirs));
        }
        let mut sizes = format!("| {} |", self.name);
        for (theirs, ours) in self.theirs.by_size.into_iter().zip(self.ours.by_size) {
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
        let (theirs, ours) = (self.theirs.percentiles, self.ours.percentiles);
        let bands = [("p50", p50), ("p95", p95), ("p99", p99)];
        for ((what, band), (theirs, ours)) in bands.into_iter().zip(theirs.into_iter().zip(ours)) {
            within(what, ours, theirs, band);
        }
        for (theirs, ours) in self.theirs.by_size.into_iter().zip(self.ours.by_size) {
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
    let web_search = reference::WEB_SEARCH.iter();
    let web_search = web_search.map(|(load, it)| Compared::web_search(*load, it, SHARED));
    let hadoop = reference::HADOOP.iter();
    let hadoop = hadoop.map(|(load, it)| Compared::hadoop(*load, it));
    let all: Vec<_> = web_search.chain(hadoop).collect();
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
    for it in &all {
        it.check([0.05, 0.1, 0.1], 0.15);
    }
    publish(PERCENTILES, &percentiles);
    publish("| list | up to 1 KB |", &sizes);
}

#[test]
fn slowdowns_match_with_acknowledgements_first() {
    let theirs = reference::ACKNOWLEDGEMENTS_FIRST.each_ref();
    let all = theirs.map(|(load, it)| Compared::web_search(*load, it, PRIORITISED));
    let rows = all.each_ref().map(|it| it.rows()[0].clone());
    rows.iter().for_each(|row| print!("{row}"));
    for it in &all {
        it.check([0.05, 0.1, 0.1], 0.15);
    }
    let header = PERCENTILES.replacen("list", "acknowledgements first", 1);
    publish(&header, &rows);
}

/// The simulator's options HAS_WIN and VAR_WIN, for one list.
#[test]
fn slowdowns_match_with_windows() {
    let variants = [
        ("fixed", &reference::FIXED_WINDOW, FIXED_WINDOW),
        (
            "with the rate",
            &reference::VARIABLE_WINDOW,
            VARIABLE_WINDOW,
        ),
    ];
    let all = variants.map(|(name, theirs, variant)| {
        let runs = [1, 2, 3].map(|seed| ("websearch50_1".to_owned(), seed));
        Compared::new(name.to_owned(), theirs, runs, variant)
    });
    let rows = all.each_ref().map(|it| it.rows()[0].clone());
    rows.iter().for_each(|row| print!("{row}"));
    for it in &all {
        it.check([0.05, 0.1, 0.1], 0.15);
    }
    publish(&PERCENTILES.replacen("list", "window", 1), &rows);
}
