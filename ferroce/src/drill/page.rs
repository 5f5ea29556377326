//! The page of a drill: what happened in each run, over time.

use std::fmt::Write as _;

use ferroce_picture::escape;

use crate::json::drill::{Drill, Note, Run, Timeline};
use crate::page::plot::{Axis, COLORS, Plot, plain};
use crate::page::{document, figure};

/// A port that is down.
const DOWN: &str = "#d9dee4";
const TIMEOUT: &str = "#e69f00";
const FAILURE: &str = "#d55e00";
const EVENT: &str = "#222b36";
const MESSAGE: &str = "#0072b2";
/// The most messages of a run in its list.
const MESSAGES_MAX: usize = 300;
/// Messages from this time on are listed; those before are about the start.
const FROM_S: f64 = -0.5;

/// The page.
pub(super) fn page(title: &str, drill: &Drill) -> String {
    let mut html = format!(
        "<p class=\"facts\">{} hosts with {} rails each send in a ring, {} channels from each to the next. \
         Times are seconds from the first outage.</p>\n",
        drill.hosts, drill.rails, drill.channels
    );
    for run in &drill.runs {
        html += &section(run);
    }
    document(title, &html)
}

fn section(run: &Run) -> String {
    let names = [&run.version, &run.setting, &run.policy, &run.plan];
    let names: Vec<_> = names.into_iter().filter(|it| !it.is_empty()).collect();
    let names = names
        .iter()
        .map(|it| it.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let mut html = format!("<h2>{}</h2>\n{}", escape(&names), facts(run));
    html += &figure(
        "Throughput",
        &throughput(run),
        "Payload that each rail sends. Grey: a port is down.",
    );
    html += &figure(
        "Events",
        &events(run),
        "Of each rail: grey while its port is down, a light dot where timers of queue pairs expired, a dark \
         one where queue pairs gave up. Then what the plan did, and the library's messages. Point at a dot \
         to read it.",
    );
    html += &messages(run);
    html
}

fn facts(run: &Run) -> String {
    let class = match run.outcome {
        "survived" => "finished",
        "stuck" => "unfinished",
        _ => "aborted",
    };
    let mut html = format!("<p><span class=\"{class}\">{}</span>", run.outcome);
    if let (Some(called), Some(at)) = (&run.failed_in, run.ended_s) {
        let _ = write!(html, " after {at:.2} s: {}", escape(called));
    }
    if let Some(code) = run.result {
        let _ = write!(html, " returned {code}");
    }
    let _ = write!(html, "; longest standstill {:.2} s", run.standstill_s);
    for (what, at) in [("over", run.failed_over_s), ("back", run.back_s)] {
        if let Some(at) = at {
            let _ = write!(html, "; {what} after {at:.1} s");
        }
    }
    let _ = writeln!(
        html,
        "; {} of {} rails in use at the end; {} bytes wrong.{}</p>",
        run.rails_after,
        run.rails_before,
        run.wrong_bytes,
        if run.as_expected {
            ""
        } else {
            " Not as expected."
        }
    );
    html
}

fn time_axis(run: &Run) -> Axis {
    let times = || run.rails.iter().flat_map(|it| &it.at_s);
    let from = times().copied().fold(0.0, f64::min);
    let to = times().copied().fold(0.0, f64::max);
    Axis::linear(from, to, "time, s")
}

fn throughput(run: &Run) -> String {
    let all = run.rails.iter().flat_map(|it| &it.gbps);
    let most = all.copied().fold(0.0, f64::max);
    let mut plot = Plot::new(
        time_axis(run),
        Axis::linear(0.0, most * 1.05, "Gb/s"),
        280.0,
    );
    for rail in &run.rails {
        for (from, to) in outages(run, rail) {
            let title = format!("{} is down", rail.rail);
            plot.area((from, 0.0), (to, most), DOWN, &title);
        }
    }
    for (rail, color) in run.rails.iter().zip(COLORS.iter().cycle()) {
        let points: Vec<_> = rail
            .at_s
            .iter()
            .copied()
            .zip(rail.gbps.iter().copied())
            .collect();
        plot.line(&points, &rail.rail, color);
    }
    plot.finish(&[])
}

/// When the port of a rail was down.
fn outages<'a>(run: &'a Run, rail: &'a Timeline) -> impl Iterator<Item = (f64, f64)> + 'a {
    let end = run.rails.iter().filter_map(|it| it.at_s.last());
    let end = end.copied().fold(0.0, f64::max);
    rail.port_changes_s
        .chunks(2)
        .map(move |it| (it[0], it.get(1).copied().unwrap_or(end)))
}

fn events(run: &Run) -> String {
    let rows = run.rails.len() + 2;
    let height = 60.0 + 24.0 * rows as f64;
    let mut plot = Plot::new(time_axis(run), Axis::linear(0.0, rows as f64, ""), height);
    let mut names = Vec::new();
    let mut row = rows as f64;
    for rail in &run.rails {
        row -= 1.0;
        names.push((row + 0.5, rail.rail.clone()));
        for (from, to) in outages(run, rail) {
            plot.area((from, row + 0.1), (to, row + 0.9), DOWN, "the port is down");
        }
        for (at, time) in rail.at_s.iter().enumerate() {
            let (timeouts, failures) = (rail.timeouts[at], rail.failed_queue_pairs[at]);
            let title = format!(
                "{} s: {timeouts} timeouts, {} packets sent again, {failures} queue pairs gave up",
                plain(*time),
                rail.retransmitted_packets[at]
            );
            match (timeouts, failures) {
                (0, 0) => {}
                (_, 0) => plot.dot(*time, row + 0.5, TIMEOUT, &title),
                _ => plot.dot(*time, row + 0.5, FAILURE, &title),
            }
        }
    }
    for (name, color, notes) in [
        ("plan", EVENT, &run.events),
        ("messages", MESSAGE, &run.messages),
    ] {
        row -= 1.0;
        names.push((row + 0.5, name.to_owned()));
        for note in notes.iter().filter(|it| it.at_s >= FROM_S) {
            let title = format!("{} s: {}", plain(note.at_s), said(note));
            plot.dot(note.at_s, row + 0.5, color, &title);
        }
    }
    plot.finish(&names)
}

fn messages(run: &Run) -> String {
    let mut notes: Vec<&Note> = run.events.iter().chain(&run.messages).collect();
    notes.retain(|it| it.at_s >= FROM_S);
    notes.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let mut html = String::from("<details><summary>Events and messages</summary>\n<table>\n");
    for note in notes.iter().take(MESSAGES_MAX) {
        let _ = writeln!(
            html,
            "<tr><td class=\"n\">{:.3}</td><td>{}</td></tr>",
            note.at_s,
            escape(&said(note))
        );
    }
    html += "</table>\n";
    if let Some(more @ 1..) = notes.len().checked_sub(MESSAGES_MAX) {
        let _ = writeln!(html, "<p>And {more} more; --json has all.</p>");
    }
    html + "</details>\n"
}

/// A message, and whose it is.
fn said(note: &Note) -> String {
    let times = match note.times {
        1 => String::new(),
        times => format!(" ({times} times)"),
    };
    match note.host {
        Some(host) => format!("h{host}: {}{times}", note.text),
        None => format!("{}{times}", note.text),
    }
}
