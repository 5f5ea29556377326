//! The comparison as a page: tables, and plots with both runs in each.

use std::fmt::Write as _;

use ferroce_picture::escape;

use super::{Figure, Key, Side, outcomes};
use crate::output::Failure;
use crate::page::plot::{Axis, COLORS, Plot, bytes, plain, time_unit};
use crate::page::{document, figure};
use crate::sim::tables::parquet::Field;

/// Points of a line; more would not be seen.
const POINTS: usize = 300;

pub(super) fn page(sides: &[Side; 2], keys: &[Key], figures: &[Figure]) -> Result<String, Failure> {
    let mut html = String::new();
    for (name, side) in ["A", "B"].iter().zip(sides) {
        let _ = writeln!(
            html,
            "<p class=\"facts\">{name}: {}</p>",
            escape(&side.described())
        );
    }
    let mut plots = String::new();
    let mut section = |title: &str, caption: &str, plot: Option<String>| {
        plots += &plot.map_or_else(String::new, |plot| figure(title, &plot, caption));
    };
    section(
        "Completion times",
        "The share of transfers that took at most so many times longer than alone in the fabric, from posting \
         to acknowledgement.",
        completion(sides)?,
    );
    section(
        "Throughput",
        "Of all links together, averaged, headers included. A line that ends before its run has as many samples \
         as record.samples allows.",
        over_time(sides, "links", "Gb/s", Sum)?,
    );
    section(
        "Longest queue",
        "Bytes that wait at the port where most wait.",
        over_time(sides, "queues", "bytes waiting", Most)?,
    );
    let rows = keys.iter().map(|(path, values)| {
        let values = values
            .each_ref()
            .map(|it| it.as_deref().unwrap_or("\u{2013}"));
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(path),
            escape(values[0]),
            escape(values[1])
        )
    });
    if !keys.is_empty() {
        let head = "<h2>Scenario keys that differ</h2>\n<table>\n<tr><th>Key</th><th>A</th><th>B</th></tr>\n";
        html += &(head.to_owned() + &rows.collect::<String>() + "</table>\n");
    }
    html += "<h2>Results</h2>\n<table>\n<tr><th>Figure</th><th class=\"n\">A</th><th class=\"n\">B</th>\
             <th class=\"n\">B / A</th></tr>\n";
    let mut row = |name: &str, [a, b]: [String; 2], ratio: &str| {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{ratio}</td></tr>",
            escape(name),
            escape(&a),
            escape(&b)
        );
    };
    for (job, outcomes) in outcomes(sides) {
        let outcomes = outcomes.map(|it| it.unwrap_or_else(|| "\u{2013}".into()));
        row(&format!("{job}: outcome"), outcomes, "");
    }
    // What never happened in either run tells nothing.
    let told = figures
        .iter()
        .filter(|it| it.values.iter().any(|it| it.is_some_and(|it| it > 0.0)));
    for figure in told {
        let values = figure.values.map(|it| figure.shown(it));
        row(&figure.label(), values, &figure.ratio());
    }
    html += "</table>\n";
    Ok(document("Comparison of two runs", &(html + &plots)))
}

/// A line of a plot for each run.
fn lines(mut plot: Plot, of_both: &[Option<Vec<(f64, f64)>>; 2]) -> String {
    for ((name, points), color) in ["A", "B"].iter().zip(of_both).zip(COLORS) {
        if let Some(points) = points {
            plot.line(points, name, color);
        }
    }
    plot.finish(&[])
}

fn number(field: &Field) -> Option<f64> {
    match field {
        Field::Long(value) => Some(*value as f64),
        _ => None,
    }
}

/// Numbers of both sides' tables, without rows that lack one; `None` where there is no table.
fn numbers(
    sides: &[Side; 2],
    table: &str,
    columns: [&str; 2],
) -> Result<[Option<Vec<[f64; 2]>>; 2], Failure> {
    let of = |side: &Side| -> Result<Option<Vec<_>>, Failure> {
        let rows = side.table(table, &columns)?;
        let pair = |row: Vec<Field>| Some([number(&row[0])?, number(&row[1])?]);
        Ok(rows.map(|rows| rows.into_iter().filter_map(pair).collect()))
    };
    let [a, b] = sides;
    Ok([of(a)?, of(b)?])
}

/// Slowdowns of transfers, as cumulative shares.
fn completion(sides: &[Side; 2]) -> Result<Option<String>, Failure> {
    let both = numbers(sides, "flows", ["fct_ns", "ideal_ns"])?;
    let sorted = both.map(|rows| {
        let rows = rows.filter(|it| !it.is_empty())?;
        let mut all: Vec<_> = rows
            .iter()
            .map(|[fct, ideal]| fct / ideal.max(1.0))
            .collect();
        all.sort_by(f64::total_cmp);
        Some(all)
    });
    let most = sorted.iter().flatten().filter_map(|it| it.last());
    let Some(most) = most.copied().reduce(f64::max) else {
        return Ok(None);
    };
    let shares = sorted.map(|all| {
        let all = all?;
        let ranks = (0..=POINTS).map(|it| it * (all.len() - 1) / POINTS);
        Some(
            ranks
                .map(|rank| (all[rank], (rank + 1) as f64 / all.len() as f64 * 100.0))
                .collect(),
        )
    });
    let x = Axis::log(1.0, most * 1.01, "times longer than ideal", plain);
    let y = Axis::linear(0.0, 100.0, "transfers, %");
    Ok(Some(lines(Plot::new(x, y, 280.0), &shares)))
}

/// How samples of one moment become one value.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    /// Bytes that links carried, as Gb/s of all of them.
    Sum,
    /// The largest.
    Most,
}
use Over::{Most, Sum};

/// Samples of both over time.
fn over_time(
    sides: &[Side; 2],
    table: &str,
    label: &str,
    over: Over,
) -> Result<Option<String>, Failure> {
    let both = numbers(sides, table, ["at_ns", "bytes"])?;
    let both = both.map(|rows| rows.filter(|it| !it.is_empty()));
    let end = sides.each_ref().map(|it| it.summary.simulated_ns as f64);
    let end = end[0].max(end[1]).max(1.0);
    let is_cut_short = sides.each_ref().map(|it| it.summary.samples_cut_short);
    let [a, b] = both;
    let lines_of = [(a, is_cut_short[0]), (b, is_cut_short[1])].map(|(rows, is_cut_short)| {
        let rows = rows?;
        let mut points = thinned(&rows, end, over);
        let last = rows.last().map_or(end, |[at, _]| *at);
        points.retain(|(at, _)| !is_cut_short || *at <= last);
        Some(points)
    });
    let points = lines_of.iter().flatten().flatten();
    let Some(most) = points.map(|(_, y)| *y).reduce(f64::max) else {
        return Ok(None);
    };
    let (scale, unit) = time_unit(end);
    let lines_of = lines_of.map(|line| {
        let scaled = line?.into_iter().map(|(x, y)| (x / scale, y));
        Some(scaled.collect())
    });
    let x = Axis::linear(0.0, end / scale, format!("time, {unit}"));
    let mut y = Axis::linear(0.0, most * 1.05, label);
    y.show = if over == Most { bytes } else { plain };
    Ok(Some(lines(Plot::new(x, y, 280.0), &lines_of)))
}

/// One point for each piece of time, none of which is shorter than a sampling interval.
fn thinned(rows: &[[f64; 2]], end: f64, over: Over) -> Vec<(f64, f64)> {
    // Rows are in order of time.
    let steps = rows.windows(2).map(|it| it[1][0] - it[0][0]);
    let every = steps.filter(|it| *it > 0.0).fold(end, f64::min);
    let pieces = ((end / every).floor() as usize).clamp(1, POINTS);
    let length = end / pieces as f64;
    let mut values = vec![0.0_f64; pieces];
    for [at, value] in rows {
        // A sample is of the time before it.
        let piece = ((at - every / 2.0) / length).max(0.0) as usize;
        let piece = &mut values[piece.min(pieces - 1)];
        *piece = match over {
            Sum => *piece + value * 8.0 / length,
            Most => piece.max(*value),
        };
    }
    let middle = |piece: usize| (piece as f64 + 0.5) * length;
    values
        .into_iter()
        .enumerate()
        .map(|(piece, value)| (middle(piece), value))
        .collect()
}
