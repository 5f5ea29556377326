//! The plots of the report.

use std::collections::BTreeMap;

use ferroce_base::time::Time;
use ferroce_fabric::{Sample, Simulation};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{Fate, Flow, Results, Slowdown, line_name, slowdown as quantiles};

use crate::output::lines::short;
use crate::page::plot::{Axis, COLORS, Plot, bytes, plain, time_unit};

/// Points of a line; more would not be seen.
const POINTS: usize = 450;
/// Points of a line of averages.
const AVERAGES: f64 = 60.0;
/// Lines of a plot.
const LINES: usize = 6;

fn time_axis(simulation: &Simulation) -> (Axis, f64) {
    let end = simulation.now().as_nanos() as f64;
    let (scale, unit) = time_unit(end);
    (
        Axis::linear(0.0, end / scale, format!("time, {unit}")),
        scale,
    )
}

pub(super) fn timeline(scenario: &Scenario, simulation: &Simulation, results: &Results) -> String {
    let (x, scale) = time_axis(simulation);
    let end = simulation.now();
    let jobs = &results.summary.jobs;
    // Entries of the file, each with all its times.
    let mut faults: BTreeMap<usize, Vec<&ferroce_scenario::FaultSpan>> = BTreeMap::new();
    for fault in scenario.faults.iter().filter(|it| it.from < end) {
        faults.entry(fault.entry).or_default().push(fault);
    }
    let rows = jobs.len() + faults.len() + usize::from(!results.timeouts.is_empty());
    let y = Axis::linear(0.0, rows as f64, "");
    let mut plot = Plot::new(x, y, 60.0 + 30.0 * rows as f64);
    let mut names = Vec::new();
    let mut row = rows as f64;
    let at = |time: Time| time.min(end).as_nanos() as f64 / scale;
    for (outcome, job) in simulation.player.job_outcomes.iter().zip(jobs) {
        row -= 1.0;
        names.push((row + 0.5, shortened(&job.name)));
        let Some(began) = outcome.began else { continue };
        let ended = outcome
            .ended
            .or_else(|| outcome.died.map(|(at, _)| at))
            .unwrap_or(end);
        let (color, what) = match job.fate {
            Fate::Finished => ("#8fd0b8", "finished"),
            Fate::Aborted => ("#e8a37f", "aborted"),
            Fate::Unfinished => ("#ecd08a", "unfinished"),
        };
        let title = format!("{}: {what}", job.name);
        plot.area(
            (at(began), row + 0.15),
            (at(ended), row + 0.85),
            color,
            &title,
        );
    }
    for spans in faults.values() {
        row -= 1.0;
        names.push((row + 0.5, "fault".into()));
        for span in spans {
            let (from, to) = (at(span.from), at(span.to));
            plot.area((from, row + 0.15), (to, row + 0.85), "#b9c2cc", &span.what);
        }
        let middle = at(end) / 2.0;
        plot.text(middle, row + 0.5, "middle", &spans[0].what);
    }
    if !results.timeouts.is_empty() {
        names.push((0.5, "timeouts".into()));
        for it in thinned(&results.timeouts, 4 * POINTS) {
            let x = it.at_ns as f64 / scale;
            let (color, height) = if it.fatal {
                ("#b23c00", 0.4)
            } else {
                ("#0072b2", 0.25)
            };
            let wait = short(it.wait_ns as f64);
            let title = format!("h{} QP {:#x} after {wait}", it.host, it.qpn);
            plot.area((x, 0.5 - height), (x, 0.5 + height), color, &title);
        }
    }
    plot.finish(&names)
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(9) {
        Some((at, _)) if name.chars().count() > 10 => format!("{}\u{2026}", &name[..at]),
        _ => name.to_owned(),
    }
}

/// At most `most` of the items, evenly spaced.
fn thinned<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(most).max(1))
}

/// A line or host, and a queue pair.
type Of = (u32, u32);
/// What a line joins.
type Points = Vec<(f64, f64)>;

/// The series of what has the largest sums or peaks, each as points that are joined.
fn series(
    samples: &[Sample],
    simulation: &Simulation,
    rank: impl Fn(u64, u64) -> u64,
) -> Vec<(Of, Points)> {
    let mut all: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for it in samples {
        let so_far = all.entry((it.of, it.qpn)).or_default();
        *so_far = rank(*so_far, it.value);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(of, rank)| (std::cmp::Reverse(*rank), *of));
    let first = all.into_iter().take(LINES).map(|(of, _)| of);
    // The most of each piece of time; where nothing was sampled, nothing was there.
    series_of(first, samples, simulation, POINTS, u64::max)
}

/// The series of these, with one point for each piece of time.
fn series_of(
    all: impl Iterator<Item = Of>,
    samples: &[Sample],
    simulation: &Simulation,
    pieces: usize,
    unite: fn(u64, u64) -> u64,
) -> Vec<(Of, Points)> {
    let end = simulation.now().as_nanos().max(1);
    // After the last sample that was kept, nothing is known.
    let known = match simulation.samples.is_cut_short {
        true => samples.last().map_or(0, |it| it.at.as_nanos()),
        false => end,
    };
    let of = |of: Of| {
        let mut values = vec![0_u64; pieces];
        for it in samples.iter().filter(|it| (it.of, it.qpn) == of) {
            let piece = u128::from(it.at.as_nanos()) * pieces as u128 / u128::from(end + 1);
            let value = &mut values[(piece as usize).min(pieces - 1)];
            *value = unite(*value, it.value);
        }
        let x = |piece: usize| (piece as f64 + 0.5) / pieces as f64 * end as f64;
        let points = values
            .iter()
            .enumerate()
            .map(|(piece, value)| (x(piece), *value as f64));
        (of, points.filter(|(x, _)| *x <= known as f64).collect())
    };
    all.map(of).collect()
}

type Line = (String, Points);

/// Lines over time.
fn lines(
    simulation: &Simulation,
    lines: &[Line],
    label: &str,
    show: fn(f64) -> String,
) -> Option<String> {
    let (x, scale) = time_axis(simulation);
    let points = lines.iter().flat_map(|(_, points)| points);
    let most = points.map(|(_, y)| *y).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let mut y = Axis::linear(0.0, most * 1.05, label);
    y.show = show;
    let mut plot = Plot::new(x, y, 280.0);
    for ((name, points), color) in lines.iter().zip(COLORS) {
        let points: Vec<_> = points.iter().map(|(x, y)| (x / scale, *y)).collect();
        plot.line(&points, name, color);
    }
    Some(plot.finish(&[]))
}

fn named_line(scenario: &Scenario, of: u32) -> String {
    line_name(&scenario.topology, of as usize / 2, of as usize % 2)
}

fn named_qp(scenario: &Scenario, (host, qpn): Of) -> String {
    format!("{} QP {qpn:#x}", scenario.topology.names[host as usize])
}

/// Turns bytes carried in this many nanoseconds into Gb/s.
fn gbps(points: Points, nanos: f64) -> Points {
    let points = points.into_iter();
    points.map(|(x, y)| (x, y * 8.0 / nanos)).collect()
}

pub(super) fn goodput(
    scenario: &Scenario,
    simulation: &Simulation,
    results: &Results,
) -> Option<String> {
    let mut times = vec![(0, 0); results.qps.len()];
    for flow in &results.flows {
        let (took, ideal) = &mut times[flow.connection as usize];
        *took += flow.fct_ns.unwrap_or(0);
        *ideal += flow.ideal_ns;
    }
    let slowness = |at: &usize| times[*at].0 as f64 / times[*at].1.max(1) as f64;
    let mut all: Vec<usize> = (0..times.len()).collect();
    all.sort_by(|a, b| slowness(b).total_cmp(&slowness(a)));
    let of = |at: &usize| (results.qps[*at].host, results.qps[*at].qpn);
    let slowest = all.iter().take(LINES).map(of);
    // Messages come and go; what matters is how fast they are on average.
    let end = simulation.now().as_nanos() as f64;
    let every = scenario.recording.every.as_nanos().max(1) as f64;
    let pieces = (end / every).clamp(1.0, AVERAGES).floor();
    let samples = &simulation.samples.goodput;
    let found = series_of(slowest, samples, simulation, pieces as usize, |a, b| a + b);
    let found = found
        .into_iter()
        .map(|(of, points)| (named_qp(scenario, of), gbps(points, end / pieces)));
    lines(simulation, &found.collect::<Vec<_>>(), "Gb/s", plain)
}

pub(super) fn throughput(scenario: &Scenario, simulation: &Simulation) -> Option<String> {
    let every = scenario.recording.every.as_nanos().max(1) as f64;
    let found = series(&simulation.samples.links, simulation, |so_far, value| {
        so_far + value
    });
    let found = found
        .into_iter()
        .map(|((of, _), points)| (named_line(scenario, of), gbps(points, every)));
    lines(simulation, &found.collect::<Vec<_>>(), "Gb/s", plain)
}

pub(super) fn queues(scenario: &Scenario, simulation: &Simulation) -> Option<String> {
    let found = series(&simulation.samples.queues, simulation, u64::max);
    let found = found
        .into_iter()
        .map(|((of, _), points)| (named_line(scenario, of), points));
    lines(
        simulation,
        &found.collect::<Vec<_>>(),
        "bytes waiting",
        bytes,
    )
}

pub(super) fn rates(scenario: &Scenario, simulation: &Simulation) -> Option<String> {
    let found = series(&simulation.samples.rates, simulation, |so_far, value| {
        so_far + value
    });
    let found = found.into_iter().map(|(of, points)| {
        (
            named_qp(scenario, of),
            points.into_iter().map(|(x, y)| (x, y / 1e9)).collect(),
        )
    });
    lines(simulation, &found.collect::<Vec<_>>(), "Gb/s", plain)
}

/// Two size classes for each power of ten.
fn class(bytes: u32) -> u32 {
    (f64::from(bytes.max(1)).log10() * 2.0).floor() as u32
}

/// The name of a percentile, and where it stands.
type Percentile = (&'static str, fn(&Slowdown) -> f64);

pub(super) fn slowdown(results: &Results) -> Option<String> {
    let mut classes: BTreeMap<u32, Vec<Flow>> = BTreeMap::new();
    for flow in results.flows.iter().filter(|it| it.fct_ns.is_some()) {
        classes.entry(class(flow.bytes)).or_default().push(*flow);
    }
    let found: Vec<_> = classes
        .values()
        .filter_map(|flows| {
            let mean = flows.iter().map(|it| f64::from(it.bytes)).sum::<f64>() / flows.len() as f64;
            Some((mean, flows.len(), quantiles(flows)?))
        })
        .collect();
    let (first, last) = (found.first()?, found.last()?);
    let most = found.iter().map(|(_, _, it)| it.p99).fold(1.0, f64::max);
    let x = Axis::log(first.0, last.0 * 1.01, "size of the transfer", bytes);
    let y = Axis::log(1.0, most * 1.01, "times longer than ideal", plain);
    let mut plot = Plot::new(x, y, 280.0);
    let percentiles: [Percentile; 3] = [
        ("median", |it| it.p50),
        ("95 %", |it| it.p95),
        ("99 %", |it| it.p99),
    ];
    for ((name, of), color) in percentiles.into_iter().zip(COLORS) {
        let points: Vec<_> = found
            .iter()
            .map(|(bytes, _, it)| (*bytes, of(it)))
            .collect();
        plot.line(&points, name, color);
        for ((size, count, it), (x, y)) in found.iter().zip(points) {
            let title = format!(
                "{name} of {count} transfers of about {}: {:.2}",
                bytes(size.round()),
                of(it)
            );
            plot.dot(x, y, color, &title);
        }
    }
    Some(plot.finish(&[]))
}

pub(super) fn histogram(results: &Results) -> Option<String> {
    let bins = &results.summary.histogram;
    let most = bins
        .iter()
        .map(|bin| bin.count)
        .max()
        .filter(|count| *count > 0)?;
    let is_used = |at: &usize| bins[*at].count > 0;
    let (first, last) = (
        (0..bins.len()).find(is_used)?,
        (0..bins.len()).rev().find(is_used)?,
    );
    let used = &bins[first..=last];
    let low = short(bins[first].low_ns as f64);
    let label = match bins[last].high_ns {
        Some(high) => format!("wait, {low} to {}", short(high as f64)),
        None => format!("wait, {low} and more"),
    };
    let x = Axis {
        show: |_| String::new(),
        ..Axis::linear(0.0, used.len() as f64, label)
    };
    let mut plot = Plot::new(
        x,
        Axis::linear(0.0, most as f64 * 1.12, "retransmissions"),
        240.0,
    );
    for (at, bin) in used.iter().enumerate() {
        let at = at as f64;
        let edges = match bin.high_ns {
            Some(high) => format!("{} to {}", short(bin.low_ns as f64), short(high as f64)),
            None => format!("{} and more", short(bin.low_ns as f64)),
        };
        let title = format!("{edges}: {}", bin.count);
        plot.area(
            (at + 0.08, 0.0),
            (at + 0.92, bin.count as f64),
            COLORS[0],
            &title,
        );
        let above = bin.count as f64 + most as f64 * 0.05;
        plot.text(at + 0.5, above, "middle", &bin.count.to_string());
    }
    Some(plot.finish(&[]))
}
