//! The effect of a profile.

use ferroce_adp::builtin;
use ferroce_adp::file::import::{Imported, import};
use ferroce_adp::file::{json_schema, to_toml};
use ferroce_adp::{
    Endurance, Policy, PolicyKind, Profile, QpTimeouts, RawProfile, RawRange, Report,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::command::{Tool, quoted, set, undo};
use crate::figures::{EnduranceJson, Words, sentence};
use crate::findings::{Problem, problems};
use crate::ladder::Ladder;
use crate::question::{PROBLEMS_MAX, Question};

/// The fields of a profile, and profiles to begin with.
pub(crate) fn catalogue() -> Value {
    let profiles = builtin::all()
        .iter()
        .map(|it| json!({"name": it.name, "about": it.about, "text": it.toml}));
    let tools = Tool::ALL.map(Tool::name);
    json!({
        "schema": serde_json::from_str(&json_schema()).unwrap_or(Value::Null),
        "profiles": profiles.collect::<Vec<_>>(),
        "tools": tools,
    })
}

/// What a profile does.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Design {
    /// What the text was read as.
    form: Option<&'static str>,
    /// What of it is not in the profile, and what it leaves open.
    remarks: Vec<String>,
    /// Why it is not a profile.
    problems: Vec<Problem>,
    /// Its values by the keys of a profile file, good or bad.
    profile: Option<Map<String, Value>>,
    valid: bool,
    deadly: bool,
    findings: Vec<Finding>,
    /// What exponents mean, by field, if it is valid.
    durations: Map<String, Value>,
    /// The profile as a file, and the commands that write it, if it is valid.
    toml: Option<String>,
    commands: Vec<Command>,
    /// Beside the profile, if it is valid, what the QP does without one.
    policies: Vec<Fares>,
}

/// One thing about the profile that is wrong or worth knowing.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    /// error, deadly, warning or note.
    kind: &'static str,
    field: String,
    /// What `ferroce adp check` says.
    text: String,
}

/// A tool and what it is told.
#[derive(Clone, Debug, Serialize)]
struct Command {
    tool: &'static str,
    set: String,
    /// Whether a name is a card's, Ferroce knows when it sees the device.
    undo: Option<String>,
}

/// How the QP fares under a policy.
#[derive(Clone, Debug, Serialize)]
struct Fares {
    policy: &'static str,
    words: Words,
    sentence: String,
    /// Null if the timer is off.
    figures: Option<EnduranceJson>,
    ladder: Ladder,
}

impl Design {
    pub(crate) fn of(question: &Question<'_>) -> Self {
        let policies = vec![
            Fares::of("plain InfiniBand", question, PolicyKind::IB),
            Fares::of("firmware", question, PolicyKind::FIRMWARE),
        ];
        match import(&question.text) {
            Ok(imported) => Self {
                policies,
                ..Self::default()
            }
            .with(imported, question),
            Err(error) => {
                let mut problems = problems(&error);
                problems.truncate(PROBLEMS_MAX);
                Self {
                    problems,
                    policies,
                    ..Self::default()
                }
            }
        }
    }

    fn with(self, imported: Imported, question: &Question<'_>) -> Self {
        let document = &imported.document;
        let report = document.check_for(question.qp, question.floor);
        let shown = Self {
            form: Some(imported.form.name()),
            remarks: imported.remarks,
            profile: Some(values(document.raw())),
            valid: report.is_valid(),
            deadly: report.is_deadly(),
            findings: findings(&report),
            ..self
        };
        match document.profile() {
            Ok(profile) => shown.with_profile(&profile, question),
            Err(_) => shown,
        }
    }

    fn with_profile(mut self, profile: &Profile, question: &Question<'_>) -> Self {
        let device = quoted(&question.device);
        self.toml = Some(to_toml(profile.raw()));
        self.durations = durations(profile);
        self.commands = Tool::ALL
            .into_iter()
            .map(|tool| Command {
                tool: tool.name(),
                set: set(tool, &device, profile),
                undo: (tool != Tool::Ferroce).then(|| undo(tool, true, &device)),
            })
            .collect();
        let own = Fares::of("profile", question, PolicyKind::Profile(*profile));
        self.policies.insert(0, own);
        self
    }
}

fn durations(profile: &Profile) -> Map<String, Value> {
    let raw = profile.raw();
    let mut durations = Map::new();
    let mut put = |field: String, (before, exponent): (&str, u16)| {
        let text = format!("{before}{}", profile.duration(exponent));
        durations.insert(field, text.into());
    };
    if !raw.qp_total_timeout {
        put(
            "retx_total_timeout".into(),
            ("", raw.retx_total_timeout.into()),
        );
    }
    let low = u16::from(raw.timeout_init_low_bound);
    let last = u16::from(raw.timeout_init_range_size).max(1) - 1;
    put("timeout_init_low_bound".into(), ("", low));
    put("timeout_init_range_size".into(), ("up to ", low + last));
    for (index, range) in profile.ranges().enumerate() {
        let field = |name: &str| format!("timeout_range[{index}].{name}");
        put(field("range_low_bound"), ("", range.low()));
        put(field("range_size"), ("up to ", range.high(false)));
    }
    durations
}

fn findings(report: &Report) -> Vec<Finding> {
    let violations = report.violations.iter().map(|found| Finding {
        kind: "error",
        field: found.field.to_string(),
        text: found.to_string(),
    });
    let warnings = report.warnings.iter().map(|found| {
        (
            found,
            match found.is_deadly {
                true => "deadly",
                false => "warning",
            },
        )
    });
    let notes = report.notes.iter().map(|found| (found, "note"));
    let others = warnings.chain(notes).map(|(found, kind)| Finding {
        kind,
        field: found.field.to_string(),
        text: found.to_string(),
    });
    violations.chain(others).collect()
}

impl Fares {
    fn of(name: &'static str, question: &Question<'_>, kind: PolicyKind) -> Self {
        let qp: QpTimeouts = question.qp;
        let mut policy = Policy::new(kind);
        policy.floor = question.floor;
        let endurance = Endurance::of(&as_on_a_card(policy), qp);
        Self {
            policy: name,
            words: Words::of(endurance.as_ref()),
            sentence: sentence(endurance.as_ref()),
            figures: endurance.map(Into::into),
            ladder: Ladder::new(&policy, qp),
        }
    }
}

/// A card's own ladder has coarse timers.
//= F14: what is promised holds with them; a ladder is drawn with exact ones.
fn as_on_a_card(mut policy: Policy) -> Policy {
    if let PolicyKind::Firmware { quantiser, .. } = &mut policy.kind {
        *quantiser = true;
    }
    policy
}

/// The values by their keys. Ranges that are not in use are left out.
fn values(raw: &RawProfile) -> Map<String, Value> {
    let ranges = raw.timeout_range.iter().take(raw.range_num.into());
    let ranges: Vec<_> = ranges.map(range).collect();
    let values = json!({
        "time_base": raw.time_base,
        "time_unit": raw.time_unit,
        "qp_total_timeout": raw.qp_total_timeout,
        "retx_total_timeout": raw.retx_total_timeout,
        "start_range_index": raw.start_range_index,
        "timeout_init_low_bound": raw.timeout_init_low_bound,
        "timeout_init_range_size": raw.timeout_init_range_size,
        "timeout_range": ranges,
    });
    match values {
        Value::Object(values) => values,
        _ => Map::new(),
    }
}

fn range(raw: &RawRange) -> Value {
    let dec_mode = ferroce_prm::roce_accl::DEC_MODE[0].value_name(raw.dec_mode.into());
    json!({
        "range_low_bound": raw.range_low_bound,
        "range_size": raw.range_size,
        "timeout_retry_num": raw.timeout_retry_num,
        "dec_mode": dec_mode.map_or_else(|| raw.dec_mode.into(), Value::from),
        "prev_range_index": raw.prev_range_index,
    })
}
