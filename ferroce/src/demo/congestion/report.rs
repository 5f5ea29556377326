//! The output of the congestion demo: the course, a table, a verdict, or JSON.

use super::course::{Course, Phase, PhaseFigures};
use super::plan::Plan;
use super::terminal;
use crate::demo::report::{capital, digits, wrap};
use crate::json::demo as json;
use crate::output::Table;

/// The whole report in words, with a picture of `width` columns.
pub(super) fn text(plan: &Plan, course: &Course, width: usize) -> String {
    format!(
        "{}\n{}\n{}\n{}\n",
        plan,
        terminal::draw(course, plan.bottleneck.bps(), width),
        table(plan, course),
        wrap(&conclusion(plan, course))
    )
}

/// One row for each phase.
fn table(plan: &Plan, course: &Course) -> Table {
    let mut table = Table::new(&[
        "time s",
        ">QPs",
        ">Gb/s",
        ">used %",
        ">least Gb/s",
        ">most Gb/s",
        ">Jain",
        ">queue KB",
        ">max KB",
    ]);
    for phase in &course.phases {
        let figures = course.figures(phase);
        let seconds = |ns: u64| digits(ns as f64 / 1e9);
        let (least, most) = figures.extremes_bps();
        let carried = plan.was_carried(&figures);
        let if_carried = |text: String| if carried { text } else { "-".to_owned() };
        table.row(vec![
            format!(
                "{} to {}",
                seconds(phase.span.start),
                seconds(phase.span.end)
            ),
            phase.flows.len().to_string(),
            digits(figures.sum_bps() / 1e9),
            if_carried(digits(plan.busy(&figures) * 100.0)),
            digits(least / 1e9),
            digits(most / 1e9),
            if_carried(format!("{:.3}", figures.jain)),
            digits(figures.queue_mean / 1e3),
            digits(figures.queue_max as f64 / 1e3),
        ]);
    }
    table
}

/// What the machine could not carry, of the phases that the conclusion is about; `None` if it could.
pub(super) fn too_busy(plan: &Plan, course: &Course) -> Option<String> {
    let last = course.phases.len().saturating_sub(2);
    let phases = course.phases[last..].iter();
    let mut figures = phases.map(|phase| course.figures(phase));
    let missed = figures.find(|figures| !plan.was_carried(figures))?;
    Some(format!(
        "The machine is too busy, or too slow, for a verdict: it carried {} Gb/s where the bottleneck \
         and the limits of the QPs allowed more. Stop other programs, or give the bottleneck a lower \
         rate with --bottleneck, and try again.",
        digits(missed.sum_bps() / 1e9),
    ))
}

/// What the figures mean.
fn conclusion(plan: &Plan, course: &Course) -> String {
    if !course.verified {
        return "Bytes arrived that were never sent there.".to_owned();
    }
    if let Some(excuse) = too_busy(plan, course) {
        return format!("{excuse} Every byte that arrived was right.");
    }
    if course.cnps == 0 {
        return "No QP was slowed down: the bottleneck marked too little. Give it a lower rate with \
                --bottleneck, or let more QPs send with --flows."
            .to_owned();
    }
    let busy = |phase: &Phase| digits(plan.busy(&course.figures(phase)) * 100.0);
    let mut parts = Vec::new();
    if let [.., together, last] = course.phases.as_slice() {
        parts.push(format!(
            "{} QPs shared the bottleneck with a Jain index of {:.3} and used {} % of it",
            plan.flows,
            course.figures(together).jain,
            busy(together)
        ));
        let left = plan.flows - last.flows.len();
        parts.push(format!("when {left} had left, {} % of it", busy(last)));
    } else if let [only] = course.phases.as_slice() {
        parts.push(format!("the QP used {} % of the bottleneck", busy(only)));
    }
    let dropped = match course.dropped {
        0 => "none was lost in the queue".to_owned(),
        n => format!("{n} were lost because it was full"),
    };
    format!(
        "{}. Of the packets {} were marked, for which {} CNPs slowed their senders down, and \
         {dropped}. Every byte that arrived was right.",
        capital(&parts.join("; ")),
        course.marked,
        course.cnps,
    )
}

/// The report for programs.
pub(super) fn document(plan: &Plan, course: &Course) -> json::Congestion {
    let samples = course.samples.iter().map(|sample| json::Sample {
        at_s: sample.at_ns as f64 / 1e9,
        queue_bytes: sample.queue_bytes,
        carried_bytes: sample.flows.iter().map(|flow| flow.bytes).collect(),
        limit_bps: sample.flows.iter().map(|flow| flow.limit_bps).collect(),
        alpha: sample.flows.iter().map(|flow| flow.alpha).collect(),
    });
    let phase = |phase: &Phase| phase_json(plan, phase, course.figures(phase));
    json::Congestion {
        configuration: json::CongestionConfiguration {
            ferroce_version: env!("CARGO_PKG_VERSION"),
            addresses: plan.addresses,
            flows: plan.flows,
            time_ns: plan.length_ns,
            bottleneck_bps: plan.bottleneck.bps(),
            preset: plan.preset,
            marks_from_bytes: plan.red.kmin(),
            marks_up_to_bytes: plan.red.kmax(),
            marks_at_most: plan.red.pmax(),
            seed: plan.seed,
        },
        too_busy: too_busy(plan, course),
        verified: course.verified,
        marked: course.marked,
        dropped: course.dropped,
        cnps: course.cnps,
        phases: course.phases.iter().map(phase).collect(),
        samples: samples.collect(),
    }
}

fn phase_json(plan: &Plan, phase: &Phase, figures: PhaseFigures) -> json::Phase {
    let carried = plan.was_carried(&figures);
    json::Phase {
        from_s: phase.span.start as f64 / 1e9,
        to_s: phase.span.end as f64 / 1e9,
        queue_pairs: phase.flows.len(),
        carried_bps: figures.sum_bps(),
        busy: carried.then(|| plan.busy(&figures)),
        jain: carried.then_some(figures.jain),
        queue_mean_bytes: figures.queue_mean,
        queue_max_bytes: figures.queue_max,
        shares_bps: figures.shares_bps,
    }
}
