//! The report as one self-contained HTML file: text, tables, and plots as SVG.

mod plots;

use std::fmt::Write as _;

use ferroce_base::time::Span;
use ferroce_fabric::Simulation;
use ferroce_picture::escape;
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{Fate, Results};

use super::report::{collisions, kilobytes, loss_names, percent, switches};
use crate::output::lines::grouped;
use crate::output::ms;
use crate::page;

pub(super) fn page(scenario: &Scenario, simulation: &Simulation, results: &Results) -> String {
    let summary = &results.summary;
    let title = match summary.title.as_str() {
        "" => "Simulation",
        title => title,
    };
    let mut html = String::new();
    if !scenario.question.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escape(&scenario.question));
    }
    let topology = &scenario.topology;
    let _ = writeln!(
        html,
        "<p class=\"facts\">{} hosts, {}, {} links. {}. {} ms simulated in {} events. \
         Ferroce {}, scenario {}, seed {}.</p>",
        topology.hosts,
        switches(topology),
        topology.cables.len(),
        escape(&scenario.device.policy_name),
        ms(Some(Span::from_nanos(summary.simulated_ns))),
        grouped(summary.events),
        summary.ferroce_version,
        summary.scenario_hash,
        summary.seed
    );
    html += &jobs(results);
    html += &totals(results);
    html += &links(results);
    if summary.samples_cut_short {
        html += "<p class=\"facts\">Plots of samples end early, because there were more than record.samples: raise it, or \
                 record.every.</p>\n";
    }
    let mut section = |title: &str, caption: &str, figure: Option<String>| {
        if let Some(figure) = figure {
            html += &page::figure(title, &figure, caption);
        }
    };
    section(
        "Jobs, faults and timeouts",
        "Bars: jobs from their first transfer to the end, and faults while they last. Each mark below is a \
         retransmission timer that expired, dark orange if it ended its queue pair.",
        Some(plots::timeline(scenario, simulation, results)),
    );
    section(
        "Throughput",
        "Of the busiest links, averaged over each sampling interval, headers included.",
        plots::throughput(scenario, simulation),
    );
    section(
        "Queues",
        "Bytes that wait at the ports with the longest queues.",
        plots::queues(scenario, simulation),
    );
    section(
        "Rates",
        "Rates to which congestion control limits queue pairs; those it does not limit are not shown.",
        plots::rates(scenario, simulation),
    );
    section(
        "Goodput of the slowest connections",
        "Payload that arrived in order, averaged, of the connections whose transfers took longest compared with \
         their ideal times.",
        plots::goodput(scenario, simulation, results),
    );
    section(
        "Completion time by size",
        "Times from posting to acknowledgement over the time that the transfer takes alone in the fabric: \
         median, 95th and 99th percentile of all transfers of a size class.",
        plots::slowdown(results),
    );
    section(
        "Waits of adaptive retransmission",
        "Retransmissions by the wait that came before them, in the bins that DOCA Telemetry reads.",
        plots::histogram(results),
    );
    page::document(title, &html)
}

fn jobs(results: &Results) -> String {
    let mut html = String::from(
        "<h2>Jobs</h2>\n<table>\n<tr><th>Job</th><th>Outcome</th><th class=\"n\">Time, ms</th>\
         <th class=\"n\">Ideal, ms</th><th class=\"n\">Lost, ms</th><th class=\"n\">Timeouts</th>\
         <th class=\"n\">Failed QPs</th></tr>\n",
    );
    let span = |ns: Option<u64>| match ns {
        Some(ns) => ms(Some(Span::from_nanos(ns))),
        None => "\u{2013}".to_owned(),
    };
    for job in &results.summary.jobs {
        let (class, outcome) = match job.fate {
            Fate::Finished => ("finished", "finished".to_owned()),
            Fate::Aborted => (
                "aborted",
                format!("aborted: {}", job.cause.as_deref().unwrap_or_default()),
            ),
            Fate::Unfinished => {
                let all = job.transfers;
                (
                    "unfinished",
                    format!("unfinished: {} of {all} transfers", job.delivered),
                )
            }
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"{class}\">{outcome}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&job.name),
            span(job.time_ns),
            span(Some(job.ideal_ns)),
            span(job.lost_ns),
            grouped(job.timeouts),
            grouped(job.failures.into())
        );
    }
    html + "</table>\n"
}

fn totals(results: &Results) -> String {
    let it = &results.summary.totals;
    let losses = loss_names(it);
    let losses = if losses.is_empty() {
        "none".into()
    } else {
        losses.join(", ")
    };
    let mut rows = vec![
        (
            "Timeouts",
            format!(
                "{}, of them {} adaptive and {} fatal",
                grouped(it.timeouts),
                grouped(it.adaptive_timeouts),
                grouped(it.fatal_timeouts)
            ),
        ),
        (
            "Retransmitted",
            format!(
                "{} of {} packets, of them {} spurious",
                grouped(it.retransmitted),
                grouped(it.packets),
                grouped(it.spurious)
            ),
        ),
        ("Packets lost", losses),
        (
            "Congestion",
            format!(
                "{} marks, {} CNPs, {} pauses",
                grouped(it.marked),
                grouped(it.cnps),
                grouped(it.pauses)
            ),
        ),
    ];
    if let Some(worst) = &results.summary.worst_queue {
        let bytes = kilobytes(worst.bytes);
        rows.push((
            "Longest queue",
            format!("{bytes} at {}", escape(&worst.port)),
        ));
    }
    let collisions = results.summary.jobs.iter().filter_map(collisions);
    rows.extend(collisions.map(|it| ("Collisions", escape(&it))));
    let mut html = String::from("<h2>The whole fabric</h2>\n<table>\n");
    for (name, value) in rows {
        let _ = writeln!(html, "<tr><td>{name}</td><td>{value}</td></tr>");
    }
    html + "</table>\n"
}

/// The busiest links, and who sent over them.
fn links(results: &Results) -> String {
    let links = &results.summary.busiest_links;
    if links.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<h2>The busiest links</h2>\n<table>\n<tr><th>Link</th><th class=\"n\">Used</th><th class=\"n\">Peak</th><th class=\"n\">Longest queue</th>\
         <th class=\"n\">Pauses</th><th class=\"n\">Lost</th><th class=\"n\">Connections</th>\
         <th>Most sent by</th></tr>\n",
    );
    for link in links {
        let it = &link.carried;
        let talkers = link.talkers.iter();
        let talkers = talkers.map(|it| {
            let (src, dst) = (escape(&it.src), escape(&it.dst));
            format!("<span class=\"whole\">{src} to {dst}</span>")
        });
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escape(&link.link),
            percent(it.utilisation),
            it.peak.map_or_else(|| "\u{2013}".to_owned(), percent),
            kilobytes(it.queue_max),
            grouped(it.pauses),
            grouped(it.dropped + it.lost),
            it.connections,
            talkers.collect::<Vec<_>>().join(", ")
        );
    }
    html + "</table>\n<p class=\"facts\">Used: the share of what the link's rate allows from the first transfer to the \
            end. Peak: the same of one sampling interval.</p>\n"
}
