//! The report of a run as text.

use std::cmp::Reverse;
use std::fmt::Write as _;

use ferroce_base::time::Span;
use ferroce_fabric::Topology;
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{Ended, Fate, Job, Slowdown, Storm, Summary, Totals};

use crate::output::lines::{grouped, lines, wrapped};
use crate::output::look::columns;
use crate::output::{Table, ms};

pub(super) fn text(scenario: &Scenario, summary: &Summary) -> String {
    let topology = &scenario.topology;
    let mut text = String::new();
    if !summary.title.is_empty() {
        text += &lines(&summary.title);
    }
    text += &lines(&format!(
        "{} hosts, {}; {}; scenario {}, seed {}",
        topology.hosts,
        switches(topology),
        scenario.device.policy_name,
        summary.scenario_hash,
        summary.seed
    ));
    let simulated = ms(Some(Span::from_nanos(summary.simulated_ns)));
    let _ = writeln!(
        text,
        "{} after {simulated} ms, {} events",
        ended(summary.ended),
        grouped(summary.events)
    );
    if let Some(it) = summary.fast_forward {
        let [left_out, error] =
            [it.left_out_ns, it.error_ns].map(|ns| ms(Some(Span::from_nanos(ns))));
        text += &lines(&match it.times {
            0 => "no time left out: messages did not go on evenly for long enough".to_owned(),
            _ => format!("{left_out} ms of them left out: times may be off by {error} ms"),
        });
    }
    text.push('\n');
    text += &jobs(summary);
    text += &totals(summary);
    text
}

/// How many switches there are.
pub(super) fn switches(topology: &Topology) -> String {
    match topology.switches() {
        1 => "1 switch".to_owned(),
        count => format!("{count} switches"),
    }
}

fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::JobsOver => "ended",
        Ended::TimeUp => "time up",
        Ended::Stuck => "stuck",
        Ended::Interrupted => "interrupted",
    }
}

/// How a job ended.
pub(super) fn outcome(job: &Job) -> String {
    match job.fate {
        Fate::Finished => "finished".to_owned(),
        Fate::Aborted => format!("aborted: {}", job.cause.as_deref().unwrap_or_default()),
        Fate::Unfinished => {
            let share = u64::from(job.delivered) * 100 / u64::from(job.transfers.max(1));
            format!("unfinished: {share} %")
        }
    }
}

fn jobs(summary: &Summary) -> String {
    let mut table = Table::new(&[
        "job",
        "outcome",
        ">time, ms",
        ">ideal, ms",
        ">lost, ms",
        ">timeouts",
        ">failed QPs",
    ])
    .in_parts(1);
    let span = |ns: Option<u64>| match ns {
        Some(ns) => ms(Some(Span::from_nanos(ns))),
        None => "-".to_owned(),
    };
    for job in &summary.jobs {
        table.row(vec![
            job.name.clone(),
            outcome(job),
            span(job.time_ns),
            span(Some(job.ideal_ns)),
            span(job.lost_ns),
            grouped(job.timeouts),
            grouped(job.failures.into()),
        ]);
    }
    table.to_string()
}

fn totals(summary: &Summary) -> String {
    let it = &summary.totals;
    let mut text = String::from("\n");
    let mut line = |name: &str, what: String| {
        let name = |at| if at == 0 { name } else { "" };
        for (at, row) in wrapped(&what, columns() - 16).iter().enumerate() {
            let _ = writeln!(text, "{:<16}{row}", name(at));
        }
    };
    if let Some(Slowdown { p50, p95, p99, max }) = summary.slowdown {
        line(
            "slowdown",
            format!("p50 {p50:.2}, p95 {p95:.2}, p99 {p99:.2}, max {max:.2}"),
        );
    }
    line(
        "timeouts",
        format!(
            "{}, of them {} adaptive, {} fatal",
            grouped(it.timeouts),
            grouped(it.adaptive_timeouts),
            grouped(it.fatal_timeouts)
        ),
    );
    line(
        "retransmitted",
        format!(
            "{} of {} packets, of them {} spurious",
            grouped(it.retransmitted),
            grouped(it.packets),
            grouped(it.spurious)
        ),
    );
    let losses = loss_names(it);
    line(
        "losses",
        if losses.is_empty() {
            "none".into()
        } else {
            losses.join(", ")
        },
    );
    line(
        "congestion",
        format!(
            "{} marks, {} CNPs, {} pauses",
            grouped(it.marked),
            grouped(it.cnps),
            grouped(it.pauses)
        ),
    );
    if let Some(worst) = &summary.worst_queue {
        line(
            "longest queue",
            format!("{} at {}", kilobytes(worst.bytes), worst.port),
        );
    }
    for job in &summary.jobs {
        if let Some(collisions) = collisions(job) {
            line("collisions", collisions);
        }
    }
    let busiest = busiest_links(summary);
    if !busiest.is_empty() {
        line("busiest links", busiest.join(", "));
    }
    for assumption in &summary.assumptions {
        line("assumption", assumption.clone());
    }
    if let Some(ports) = &summary.deadlock {
        let circle = ports.join(", ");
        line("deadlock", format!("{circle} pause each other in a circle"));
    }
    for (at, storms) in storms(&summary.storms).into_iter().enumerate() {
        line(if at == 0 { "PFC storms" } else { "" }, storms);
    }
    text
}

/// The queues that were in storms of pauses, those with the most drops first.
fn storms(all: &[Storm]) -> Vec<String> {
    /// As many as a reader looks at; `-j` has all.
    const SHOWN: usize = 8;
    let mut sorted: Vec<&Storm> = all.iter().collect();
    sorted.sort_by_key(|it| Reverse(it.dropped));
    let is_one_priority = all.iter().all(|it| it.priority == all[0].priority);
    let row = |it: &&Storm| {
        let priority = match is_one_priority {
            true => String::new(),
            false => format!(" priority {}", it.priority),
        };
        let [first, lasted] = [it.first_ns, it.lasted_ns].map(Span::from_nanos);
        format!(
            "{}{priority}: {} from {} ms on, {} ms, {} dropped",
            it.port,
            grouped(it.storms.into()),
            ms(Some(first)),
            ms(Some(lasted)),
            grouped(it.dropped)
        )
    };
    let mut rows: Vec<String> = sorted.iter().take(SHOWN).map(row).collect();
    if let Some(more) = all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        rows.push(format!("and {more} more queues"));
    }
    rows
}

/// What collisions cost a job, if they made it longer.
pub(super) fn collisions(job: &Job) -> Option<String> {
    let it = job.spread.as_ref().filter(|it| it.matters(job.ideal_ns))?;
    let span = |ns| ms(Some(Span::from_nanos(ns)));
    Some(format!(
        "{}: {} of its {} connections share {} and keep it busy for at least {} ms; spread evenly, they \
         would keep no link busy for more than {} ms",
        job.name,
        it.sharing,
        grouped(it.connections.into()),
        it.busiest,
        span(it.busy_ns),
        span(it.even_ns)
    ))
}

/// Links with little room, and others that were used half as much or more.
fn busiest_links(summary: &Summary) -> Vec<String> {
    let links = &summary.busiest_links;
    let most = links.first().map_or(1.0, |it| it.carried.utilisation);
    let links = links.iter().map(|it| (&it.link, it.carried));
    let used = links.filter(|(_, it)| it.utilisation >= 0.05_f64.max(most / 2.0));
    let named = used.map(|(link, it)| {
        let used = percent(it.utilisation);
        let peak = it.peak.map(percent).filter(|peak| *peak != used);
        let peak = peak.map_or_else(String::new, |peak| format!(" (peak {peak})"));
        format!("{link} {used}{peak}")
    });
    named.collect()
}

/// A share as a whole number of percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A length in thousands of bytes, as those of queues are given.
pub(super) fn kilobytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{} B", grouped(bytes)),
        _ => format!("{} KB", grouped((bytes + 500) / 1_000)),
    }
}

/// What was lost, and why.
pub(super) fn loss_names(it: &Totals) -> Vec<String> {
    let losses = [
        (it.dropped_full, "dropped by full queues"),
        (it.dropped_lossless, "dropped for want of headroom"),
        (it.dropped_storm, "dropped by the PFC watchdog"),
        (it.lost, "lost at random"),
        (it.lost_down, "lost on links that were down"),
        (it.corrupted, "corrupted"),
        (it.unreachable, "without a path"),
    ];
    let losses = losses.iter().filter(|(count, _)| *count > 0);
    let named = losses.map(|(count, why)| format!("{} {why}", grouped(*count)));
    named.collect()
}
