//! The course in characters: each queue pair's throughput, the queue, and alpha.

use std::fmt::Write as _;

use super::course::{Course, Sample};
use crate::demo::report::digits;

/// Columns left of the time axis, for what the rows mean.
const LEFT: usize = 9;
/// A queue pair's sign, and what stands where two of them meet.
pub(super) const SIGNS: [char; 8] = ['●', '○', '▲', '△', '■', '□', '◆', '◇'];
const SEVERAL: char = '✱';
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The picture, in lines of `width` columns. `rate_bps` is what the bottleneck carries.
pub(super) fn draw(course: &Course, rate_bps: u64, width: usize) -> String {
    let length = width.saturating_sub(LEFT + 1).max(20);
    let columns = columns(course, length);
    let flows = course.phases.last().map_or(0, |phase| phase.flows.end);
    let rates = of_flows(&columns, flows, |sample, flow| sample.bps(flow) / 1e9);
    let alphas = of_flows(&columns, flows, |sample, flow| sample.flows[flow].alpha);
    let queue = columns.iter().map(|column| match &column.sample {
        Some(sample) => sample.queue_bytes as f64,
        None => 0.0,
    });
    let queue: Vec<f64> = queue.collect();

    let top = rate_bps as f64 / 1e9 * 1.2;
    let mut text = legend(flows, length);
    text += &panel(&scatter(10, top, &rates), top, &digits);
    let most = queue.iter().copied().fold(1.0, f64::max);
    let _ = writeln!(text, "\n{:LEFT$} queue, KB", "");
    text += &panel(&bars(4, most, &queue), most, &|bytes| digits(bytes / 1e3));
    let most = alphas
        .iter()
        .flatten()
        .flatten()
        .copied()
        .fold(0.01, f64::max);
    let _ = writeln!(text, "\n{:LEFT$} alpha", "");
    text += &panel(&scatter(5, most, &alphas), most, &digits);
    text += &time_axis(course, length);
    text
}

/// What the first panel shows, and whose signs are whose.
fn legend(flows: usize, length: usize) -> String {
    let mut lines = vec!["throughput, Gb/s".to_owned()];
    for (flow, sign) in SIGNS.iter().enumerate().take(flows) {
        let name = format!("  {sign} QP {}", flow + 1);
        match lines.last_mut() {
            Some(line) if line.chars().count() + name.chars().count() <= length => *line += &name,
            _ => lines.push(name),
        }
    }
    let line = |line: &String| format!("{:LEFT$} {line}\n", "");
    lines.iter().map(line).collect()
}

/// What is drawn in one column.
struct Column {
    /// `None` if no sample was taken in its time.
    sample: Option<Sample>,
    /// Whether each queue pair sends.
    sends: Vec<bool>,
}

fn columns(course: &Course, length: usize) -> Vec<Column> {
    let last = course.phases.last();
    let (end_ns, flows) = last.map_or((0, 0), |phase| (phase.span.end, phase.flows.end));
    let edge = |n: usize| n as u64 * end_ns / length as u64;
    let column = |n: usize| {
        let middle_ns = u64::midpoint(edge(n), edge(n + 1));
        Column {
            sample: Sample::merged(course.samples_in(&(edge(n)..edge(n + 1)))),
            sends: (0..flows)
                .map(|flow| course.sends(flow, middle_ns))
                .collect(),
        }
    };
    (0..length).map(column).collect()
}

/// A value of each queue pair for each column in which it sends.
fn of_flows(
    columns: &[Column],
    flows: usize,
    value: impl Fn(&Sample, usize) -> f64,
) -> Vec<Vec<Option<f64>>> {
    let of_flow = |flow: usize| {
        let values = columns.iter().map(|column| match &column.sample {
            Some(sample) if column.sends[flow] => Some(value(sample, flow)),
            _ => None,
        });
        values.collect()
    };
    (0..flows).map(of_flow).collect()
}

/// Rows from the top down, with a sign for each value.
fn scatter(rows: usize, top: f64, series: &[Vec<Option<f64>>]) -> Vec<String> {
    let columns = series.first().map_or(0, Vec::len);
    let mut cells = vec![vec![' '; columns]; rows];
    for (values, sign) in series.iter().zip(SIGNS) {
        for (column, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let share = (value / top).clamp(0.0, 1.0);
            let row = rows - 1 - (share * (rows - 1) as f64).round() as usize;
            let cell = &mut cells[row][column];
            *cell = if *cell == ' ' { sign } else { SEVERAL };
        }
    }
    cells.into_iter().map(String::from_iter).collect()
}

/// Rows from the top down, with a bar for each value.
fn bars(rows: usize, top: f64, values: &[f64]) -> Vec<String> {
    let eighths = |value: f64| ((value / top).clamp(0.0, 1.0) * (rows * 8) as f64).ceil() as usize;
    let cell = |row: usize, value: f64| {
        let below = (rows - 1 - row) * 8;
        EIGHTHS[eighths(value).saturating_sub(below).min(8)]
    };
    (0..rows)
        .map(|row| values.iter().map(|&value| cell(row, value)).collect())
        .collect()
}

/// Rows behind an axis that names the first and the last.
fn panel(rows: &[String], top: f64, name: &dyn Fn(f64) -> String) -> String {
    let mut text = String::new();
    for (n, row) in rows.iter().enumerate() {
        let (label, axis) = match n {
            0 => (name(top), '┤'),
            _ if n == rows.len() - 1 => ("0".to_owned(), '┤'),
            _ => (String::new(), '│'),
        };
        let _ = writeln!(text, "{}", format!("{label:>LEFT$}{axis}{row}").trim_end());
    }
    text
}

/// Where the phases meet.
fn time_axis(course: &Course, length: usize) -> String {
    let end_ns = course
        .phases
        .last()
        .map_or(1, |phase| phase.span.end.max(1));
    let column = |ns: u64| ((ns * length as u64 / end_ns) as usize).min(length - 1);
    let (mut axis, mut names) = (vec!['─'; length], vec![' '; length + 8]);
    let edges = course.phases.iter().map(|phase| phase.span.start);
    let mut free = 0;
    for ns in edges.chain([end_ns]) {
        let at = column(ns);
        axis[at] = '┴';
        let name: Vec<char> = format!("{} s", digits(ns as f64 / 1e9)).chars().collect();
        let from = at.saturating_sub(name.len() / 2);
        if from >= free {
            free = from + name.len() + 1;
            names.splice(from..free - 1, name);
        }
    }
    let (axis, names): (String, String) = (axis.into_iter().collect(), names.iter().collect());
    format!("{:LEFT$}└{axis}\n{:LEFT$} {}\n", "", "", names.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_keeps_to_the_width() {
        for (length, lines) in [(84, 1), (50, 2), (24, 4)] {
            let text = legend(8, length);
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(text.contains("● QP 1") && text.contains("◇ QP 8"), "{text}");
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(LEFT + 1 + length), "{text}");
        }
    }
}
