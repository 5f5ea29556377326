//! The fitted profile, and the evidence for it.

use ferroce_adp::file::to_toml;
use ferroce_base::time::Span;
use ferroce_designer::command::{Tool, quoted, set};
use ferroce_designer::figures::{qp_name, sentence};

use super::Found;
use crate::adp::compare::report::{count, fared, percent, short_name};
use crate::adp::compare::{Tried, wrapped};
use crate::json::adp as json;
use crate::output::Table;

/// Profiles that Ferroce comes with follow the fitted one, plain InfiniBand and the firmware.
const FIRST_SHIPPED: usize = 3;

pub(super) fn text(found: &Found<'_>) -> String {
    let Found { fit, question, .. } = found;
    let qp = qp_name(question.qp);
    let trains = question.outages.trains(question.count, question.seed);
    let title = format!(
        "fitted to {}; {}; QP {qp}; seed {}; {}",
        found.asked.title(question.count, &trains),
        fit.link,
        question.seed,
        constraints(found),
    );
    let profile = &found.best.profile;
    let policy = question.policy(profile);
    let endurance = ferroce_adp::Endurance::of(&policy, question.qp);
    format!(
        "{}\n\n{}\n{}\n\nOn {} other outages (seed {}):\n\n{}\n{}{}\n{}\n",
        wrapped(&title),
        to_toml(profile.raw()),
        wrapped(&format!("A QP {qp} {}.", sentence(endurance.as_ref()))),
        fit.evidence,
        found.evidence_seed,
        table(found),
        legend(found),
        conclusion(found),
        set(Tool::Mlxreg, &quoted(&fit.device), profile),
    )
}

/// What the profile keeps within.
fn constraints(found: &Found<'_>) -> String {
    let fit = found.fit;
    let mut parts = Vec::new();
    parts.extend(fit.survive.map(|it| format!("survives {}", it.about())));
    let detects = fit.detect_within;
    parts.extend(detects.map(|it| format!("detects within {}", it.about())));
    parts.push(format!("less than {} spurious", fit.spurious_below));
    parts.push(format!("a death costs {}", fit.death_costs.about()));
    parts.join("; ")
}

fn table(found: &Found<'_>) -> Table {
    let header = [
        "policy",
        ">cost",
        ">survive",
        ">lost p50",
        ">p99",
        ">resume p99",
        ">resent",
        ">spurious",
    ];
    let mut table = Table::new(&header);
    for (Tried { name, fared, .. }, meets) in found.tried.iter().zip(&found.meets) {
        let mark = if *meets { "" } else { "*" };
        table.row(vec![
            short_name(name) + mark,
            fared.cost(found.question.death).about().to_string(),
            percent(fared.survived),
            fared.lost[0].about().to_string(),
            fared.lost[1].about().to_string(),
            fared.resumed_after[1].about().to_string(),
            count(fared.retransmissions),
            count(fared.spurious),
        ]);
    }
    table
}

fn legend(found: &Found<'_>) -> String {
    let mut legend = "cost: mean time lost for each outage, deaths included; other columns as in\n\
                      `ferroce adp compare`\n"
        .to_owned();
    if found.meets.contains(&false) {
        legend += "* does not keep within the constraints\n";
    }
    legend
}

/// How the profile compares with the best of those that Ferroce comes with.
fn conclusion(found: &Found<'_>) -> String {
    let cost = |it: &Tried| it.fared.cost(found.question.death);
    let shipped = found.tried[FIRST_SHIPPED..].iter();
    let Some(best) = shipped.min_by_key(|it| cost(it)) else {
        return String::new();
    };
    let (own, other) = (cost(&found.tried[0]), cost(best));
    let verdict = match ratio(own, other) {
        ratio if ratio < 0.995 => format!("{:.0} % less than", (1.0 - ratio) * 100.0),
        ratio if ratio > 1.005 => format!("{:.0} % more than", (ratio - 1.0) * 100.0),
        _ => "as much as".to_owned(),
    };
    format!(
        "\nThe fitted profile costs {} for each outage: {verdict} the best shipped\n\
         profile, {}, with {}.\n",
        own.about(),
        best.name,
        other.about()
    )
}

fn ratio(own: Span, other: Span) -> f64 {
    own.as_picos() as f64 / other.as_picos().max(1) as f64
}

/// The report for programs.
pub(super) fn json(found: &Found<'_>) -> json::Fit {
    let Found {
        fit,
        asked,
        question,
        best,
        tried,
        meets,
        evidence_seed,
    } = found;
    let policies = tried.iter().zip(meets).map(|(it, meets)| json::PolicyCost {
        cost_ns: it.fared.cost(question.death).as_nanos(),
        meets_constraints: *meets,
        fared: fared(&it.name, &it.fared),
    });
    let policy = question.policy(&best.profile);
    json::Fit {
        configuration: json::FitConfiguration {
            ferroce_version: env!("CARGO_PKG_VERSION"),
            outages: asked.text.clone(),
            loss: fit.link.loss(),
            round_trip: fit.link.round_trip().to_string(),
            timeout: question.qp.timeout,
            retry_cnt: question.qp.retry_cnt,
            min_ack_timeout_limit_disabled: fit.min_ack_timeout_limit_disabled,
            survive_ns: fit.survive.map(Span::as_nanos),
            detect_within_ns: fit.detect_within.map(Span::as_nanos),
            spurious_below: question.spurious_below,
            death_costs_ns: question.death.as_nanos(),
            count: question.count,
            rounds: question.rounds,
            steps: question.steps,
            seed: question.seed,
            evidence_count: fit.evidence,
            evidence_seed: *evidence_seed,
        },
        profile: json::Fitted {
            toml: to_toml(best.profile.raw()),
            command: set(Tool::Mlxreg, &quoted(&fit.device), &best.profile),
            cost_ns: best.cost.as_nanos(),
            endurance: ferroce_adp::Endurance::of(&policy, question.qp).map(Into::into),
        },
        policies: policies.collect(),
    }
}
