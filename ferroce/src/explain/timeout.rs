//! `ferroce explain timeout`: from a setting to the seconds until failure, step by step.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use ferroce_adp::trace::{Event, SilentPeer, Wait};
use ferroce_adp::{
    AckTimeoutFloor, Demand, Endurance, Policy, PolicyKind, Profile, QpTimeouts, RetryState,
    ack_timeout,
};
use ferroce_base::time::Span;
use ferroce_base::units::TIME;
use ferroce_designer::figures::{sentence, span_range};

use super::app::{App, Asked, Setting};
use super::survive::Survive;
use crate::adp::{Chosen, DeviceArgs, ExtendedRetryArgs, Personality, PersonalityArgs, choose};
use crate::json::explain as json;
use crate::output::exit_codes;
use crate::output::lines::{Lines, unbroken};
use crate::output::{Failure, Output};

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce explain timeout --timeout 14 --retry-cnt 7
  ferroce explain timeout --from nccl NCCL_IB_TIMEOUT=22
  ferroce explain timeout --from ucx --survive 20s
  ferroce explain timeout --from env --profile link-flap"
);

/// Explain which outages a QP tolerates and when it gives up
///
/// The answer comes first, then the chain that leads to it: what an application sets, the QP's
/// attributes, the minimum that the device enforces, and the policy. RC, XRC and DC are timed alike.
///
/// With --survive, the answer is what to set so that every outage up to this long is survived.
///
/// Without --profile and --personality the policy is the firmware's own, as a real device has it
/// out of the box.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Timeout {
    /// ACK timeout that is asked for: 4.096 us doubled T times, 0 = never
    #[arg(long, value_name = "T")]
    timeout: Option<u64>,
    /// Retry count that is asked for
    #[arg(long, value_name = "R")]
    retry_cnt: Option<u64>,
    #[command(flatten)]
    extended: ExtendedRetryArgs,
    /// Profile file (TOML) or built-in profile, such as link-flap; - reads standard input
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    personality: PersonalityArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Begin with the settings of an application: nccl, rccl, ucx, nixl, openmpi, mpich, libfabric,
    /// mooncake, perftest or rdma_cm, and any number of NAME=VALUE, as in --from nccl
    /// NCCL_IB_TIMEOUT=22. What is not given comes from the environment, or has the application's
    /// default; env stands for the application whose variables are set
    #[arg(long, num_args = 1.., value_names = ["APP", "NAME=VALUE"])]
    from: Option<Vec<String>>,
    /// Answer what to set to survive outages up to this long, such as 20s
    #[arg(long, value_name = "TIME", value_parser = time)]
    survive: Option<Span>,
    /// With --survive: notice a dead peer within this time, such as 60s
    #[arg(long, value_name = "TIME", value_parser = time, requires = "survive")]
    detect_within: Option<Span>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

const WAITS_MAX: usize = 10_000;

/// What NCCL's queue pairs have by default.
const NCCL: QpTimeouts = QpTimeouts {
    timeout: 20,
    retry_cnt: 7,
};

impl Timeout {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        if let Some(survive) = self.survive {
            return self.survive(survive, to);
        }
        let (app, mut asked) = self.asked()?;
        let timeout = fit(&mut asked, "timeout", 5);
        let retry_cnt = fit(&mut asked, "retry_cnt", 3);
        let qp = self.extended.qp(timeout, retry_cnt);
        if let Some(count) = self.extended.extended_retry_count {
            let text = format!(
                "retry_cnt {retry_cnt} has no effect: extended_retry_count {count} replaces it"
            );
            asked.remark("no_effect", text);
        }
        let file = self.profile.as_deref();
        let chosen = choose(
            file,
            self.personality,
            self.device,
            Some(Personality::Firmware),
        )?;
        let policy = &chosen.policy;
        effects(&mut asked, qp, policy);

        let state = RetryState::with_draw(policy, qp, 0, chosen.draw);
        let mut peer = SilentPeer::new(*policy, state);
        let waits: Vec<Wait> = peer.by_ref().take(WAITS_MAX).collect();
        let fatal = waits.last().filter(|wait| wait.event == Event::Error);
        let exact = match fatal {
            Some(wait) => wait.at,
            None => state.total(policy),
        };
        if peer.next().is_some() {
            asked.remark(
                "note",
                format!("only the first {WAITS_MAX} waits are traced"),
            );
        }
        //= F14: the ladder of a device out of the box has coarse timers.
        let device = Policy {
            floor: policy.floor,
            ..Policy::new(PolicyKind::Firmware {
                quantiser: true,
                initial_exponent: None,
            })
        };
        let chain = Chain {
            app,
            asked: &asked,
            qp,
            is_extended: self.extended.extended_retry_count.is_some(),
            chosen: &chosen,
            endurance: Endurance::of(&with_coarse_timers(policy), qp),
            device: device.total(qp),
            device_min: device.shortest_total(qp),
            exact,
            waits,
        };
        if self.json {
            to.document(&chain.json())
        } else {
            to.text(&chain.text())
        }
    }

    /// The way back.
    fn survive(&self, survive: Span, to: &mut Output<'_>) -> Result<(), Failure> {
        if self.extended.extended_retry_count.is_some() {
            return Err(Failure::input(
                "--survive answers with attributes that verbs set; leave out \
                 --extended-retry-count",
            ));
        }
        let (app, mut asked) = match (&self.from, self.timeout, self.retry_cnt) {
            (Some(_), ..) => self.asked()?,
            (None, timeout, retry_cnt) => {
                let timeout = timeout.unwrap_or_else(|| NCCL.timeout.into());
                let retry_cnt = retry_cnt.unwrap_or_else(|| NCCL.retry_cnt.into());
                (None, Asked::of(timeout, retry_cnt))
            }
        };
        let qp = QpTimeouts {
            timeout: fit(&mut asked, "timeout", 5),
            retry_cnt: fit(&mut asked, "retry_cnt", 3),
        };
        let file = self.profile.as_deref();
        let firmware = Some(Personality::Firmware);
        let mut chosen = choose(file, self.personality, self.device, firmware)?;
        chosen.policy = with_coarse_timers(&chosen.policy);
        let question = Survive {
            demand: Demand {
                survive,
                detect_within: self.detect_within.unwrap_or(Span::NEVER),
            },
            app,
            chosen: &chosen,
            is_chosen: file.is_some() || self.personality.personality.is_some(),
            qp,
        };
        question.run(self.json, to)
    }

    /// The attributes that the QP is asked for, and the application that asks, if given.
    fn asked(&self) -> Result<(Option<App>, Asked), Failure> {
        let environment = |name: &str| {
            let value = std::env::var(name).ok();
            value.filter(|value| !value.is_empty())
        };
        if let Some(from) = &self.from {
            let [name, settings @ ..] = &from[..] else {
                return Err(Failure::input(
                    "--from needs an application, as in --from nccl",
                ));
            };
            let app = match name.as_str() {
                "env" => App::in_environment(&environment)?,
                name => App::named(name)?,
            };
            let asked = app.asks(settings, &environment, self.timeout, self.retry_cnt)?;
            return Ok((Some(app), asked));
        }
        match (self.timeout, self.retry_cnt) {
            (Some(timeout), Some(retry_cnt)) => Ok((None, Asked::of(timeout, retry_cnt))),
            (None, _) => Err(Failure::input(
                "missing --timeout T; give it with --retry-cnt R, or give --from APP",
            )),
            (_, None) => Err(Failure::input(
                "missing --retry-cnt R; give 0 to 7, or give --from APP",
            )),
        }
    }
}

struct Chain<'a> {
    app: Option<App>,
    asked: &'a Asked,
    qp: QpTimeouts,
    is_extended: bool,
    chosen: &'a Chosen,
    endurance: Option<Endurance>,
    device: Option<Span>,
    device_min: Option<Span>,
    exact: Option<Span>,
    waits: Vec<Wait>,
}

impl Chain<'_> {
    fn json(&self) -> json::Timeout {
        let policy = &self.chosen.policy;
        json::Timeout {
            from: self.app.map(|app| json::Application {
                app: app.name(),
                settings: self.asked.settings.clone(),
            }),
            queue_pair: self.qp.into(),
            minimum_timeout: match policy.floor {
                AckTimeoutFloor::Disabled => None,
                AckTimeoutFloor::Enforced(code) => Some(code),
            },
            effective_timeout: policy.floor.apply(self.qp.timeout),
            ack_timeout_ns: policy.ack_timeout(self.qp).map(Span::as_nanos),
            policy: match policy.kind {
                PolicyKind::Firmware { .. } => "firmware",
                PolicyKind::Ib { .. } => "ib",
                PolicyKind::Profile(_) => "profile",
            },
            answer: self.endurance.map(Into::into),
            nominal_ns: self.nominal().map(Span::as_nanos),
            ib_ns: self.plain().map(Span::as_nanos),
            device_ns: self.device.map(Span::as_nanos),
            device_min_ns: self.device_min.map(Span::as_nanos),
            exact_ns: self.exact.map(Span::as_nanos),
            waits: self.waits.iter().map(Into::into).collect(),
            remarks: self.asked.remarks.clone(),
        }
    }

    fn text(&self) -> String {
        let (policy, qp) = (&self.chosen.policy, self.qp);
        let mut lines = Lines::default();
        lines.across(&sentence(self.endurance.as_ref()));
        lines.across("");
        if let Some(app) = self.app {
            for (i, setting) in self.asked.settings.iter().enumerate() {
                let Setting {
                    name,
                    value,
                    source,
                } = setting;
                let head = if i == 0 { app.name() } else { "" };
                lines.add(head, &format!("{name} = {value} ({source})"));
            }
            for step in &self.asked.steps {
                lines.add("", step);
            }
        }
        let asked = in_words(ack_timeout(qp.timeout));
        let count = match self.is_extended {
            true => "extended_retry_count",
            false => "retry_cnt",
        };
        let attributes = format!("timeout {}: {asked}; {count} {}", qp.timeout, qp.retry_cnt);
        lines.add("QP", &attributes);
        let effective = policy.floor.apply(qp.timeout);
        lines.add(
            "minimum",
            &match policy.floor {
                AckTimeoutFloor::Disabled => {
                    "none: min_ack_timeout_limit_disabled is set".to_owned()
                }
                AckTimeoutFloor::Enforced(code) if effective != qp.timeout => format!(
                    "{code} is enforced, and the timeout becomes {}",
                    policy.ack_timeout(qp).unwrap_or_default().about()
                ),
                AckTimeoutFloor::Enforced(code) => {
                    format!("{code} is enforced; no effect here")
                }
            },
        );
        lines.add(
            "policy",
            &format!("{}: {}", self.chosen.name, meaning(policy)),
        );
        if let Some(found) = &self.endurance {
            lines.add("", "");
            lines.add("survives", &survives(found));
        }
        lines.add("", "");
        let mut gives_up = |head: &str, when: String, why: &str| {
            lines.add(head, &format!("{when:<18}{why}"));
        };
        gives_up(
            "gives up",
            in_words(self.exact),
            "simulated: this policy, exact timers",
        );
        gives_up("", self.device_range(), &self.device_formula());
        gives_up("", in_words(self.plain()), &self.plain_formula());
        gives_up("", in_words(self.nominal()), &self.nominal_formula());
        lines.add("trace", &self.trace());
        for (i, remark) in self.asked.remarks.iter().enumerate() {
            if i == 0 {
                lines.add("", "");
            }
            let kind = label(remark.kind);
            lines.add(kind, &remark.text);
        }
        lines.text
    }

    /// What manuals say.
    fn nominal(&self) -> Option<Span> {
        ack_timeout(self.qp.timeout).map(|timeout| timeout * self.qp.retry_cnt.into())
    }

    /// Plain InfiniBand, as the standard has it: no minimum.
    fn plain(&self) -> Option<Span> {
        let mut plain = Policy::new(PolicyKind::IB);
        plain.floor = AckTimeoutFloor::Disabled;
        plain.total(self.qp)
    }

    fn nominal_formula(&self) -> String {
        match ack_timeout(self.qp.timeout) {
            None => "nominal: timeout 0 is infinite".to_owned(),
            Some(timeout) => format!("nominal: {} x {}", self.qp.retry_cnt, timeout.about()),
        }
    }

    fn plain_formula(&self) -> String {
        match ack_timeout(self.qp.timeout) {
            None => "plain InfiniBand".to_owned(),
            Some(timeout) => {
                let waits = u16::from(self.qp.retry_cnt) + 1;
                format!("plain InfiniBand: {waits} x {}", timeout.about())
            }
        }
    }

    fn device_range(&self) -> String {
        match (self.device_min, self.device) {
            (Some(least), Some(most)) => span_range(least, most),
            _ => in_words(None),
        }
    }

    fn device_formula(&self) -> String {
        let policy = &self.chosen.policy;
        let retry_cnt = self.qp.retry_cnt;
        match policy.ack_timeout(self.qp).map(Span::about) {
            None => "a card out of the box".to_owned(),
            Some(timeout) if policy.floor == AckTimeoutFloor::Disabled => format!(
                "a card without minimum: 0.51 to 1.16 and {} x {timeout}",
                u16::from(retry_cnt) + 1
            ),
            Some(_) if retry_cnt == 0 => "a card out of the box: 7 retransmissions".to_owned(),
            Some(timeout) => {
                format!("a card out of the box: {retry_cnt} x 2 x {timeout} at most")
            }
        }
    }

    /// The waits, equal neighbours together.
    fn trace(&self) -> String {
        let mut text = String::new();
        for run in self.waits.chunk_by(|a, b| a.wait == b.wait) {
            let wait = in_words(run[0].wait);
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = match run.len() {
                1 => write!(text, "{comma}{}", unbroken(&wait)),
                n => write!(text, "{comma}{}", unbroken(&format!("{wait} x{n}"))),
            };
        }
        match self.waits.last().map(|wait| wait.event) {
            Some(Event::Error) => text + ", then IBV_WC_RETRY_EXC_ERR",
            Some(Event::Never) => "the timer never runs".to_owned(),
            _ => text + ", and so on",
        }
    }
}

/// What stands before a remark, whose text is a sentence of its own.
fn label(kind: &'static str) -> &'static str {
    match kind {
        "does_not_fit" => "too large",
        "no_effect" => "ignored",
        other => other,
    }
}

/// A value as its field holds it.
fn fit(asked: &mut Asked, name: &str, bits: u32) -> u8 {
    let value = if name == "timeout" {
        asked.timeout
    } else {
        asked.retry_cnt
    };
    let max = (1 << bits) - 1;
    let kept = u8::try_from(value & max).unwrap_or(0);
    if value > max {
        let text = format!(
            "{name} = {value} does not fit its {bits} bits (0 to {max}): verbs call it invalid and \
             may refuse it, and a driver that keeps the low bits makes it {kept}, as is assumed \
             here; write {max} at most"
        );
        asked.remark("does_not_fit", text);
    }
    kept
}

/// What of the settings does nothing, or not what it seems to.
fn effects(asked: &mut Asked, qp: QpTimeouts, policy: &Policy) {
    let QpTimeouts { timeout, retry_cnt } = qp;
    let effective = policy.floor.apply(timeout);
    if effective != timeout {
        let text = format!(
            "timeout {timeout} has no effect: every timeout from 1 to {effective} counts as \
             {effective}; write {} or more for longer waits, or set \
             min_ack_timeout_limit_disabled for shorter ones",
            effective + 1
        );
        asked.remark("no_effect", text);
    }
    match &policy.kind {
        PolicyKind::Profile(profile) => {
            if !profile.raw().qp_total_timeout && timeout != 0 {
                let text = format!(
                    "retry_cnt {retry_cnt} has no effect on timeouts: the profile's own \
                     retx_total_timeout limits an outage; sequence NAKs still count against it"
                );
                asked.remark("no_effect", text);
            }
            for warning in profile.raw().check_for(qp, policy.floor).warnings {
                asked.remark("warning", format!("profile: {warning}"));
            }
        }
        PolicyKind::Firmware { .. } if policy.floor == AckTimeoutFloor::Disabled => {
            let text = "without the minimum the firmware does no adaptive retransmission, as \
                        measured: it waits for 0.51 to 1.16 of the QP's timeout, sends nothing, and \
                        then waits for the timeout every time"
                .to_owned();
            asked.remark("note", text);
        }
        PolicyKind::Firmware { .. } if retry_cnt == 0 && timeout != 0 => {
            let text = "retry_cnt 0 has no effect under the firmware's own ladder: measured \
                        devices retransmit seven times all the same"
                .to_owned();
            asked.remark("no_effect", text);
        }
        PolicyKind::Firmware { .. } if timeout != 0 => {
            let text =
                "the first wait is drawn from 4.2 to 67.1 ms; the coarse timer of a card cuts \
                        about half of the others, up to the first of the equal ones, to three \
                        quarters; the trace shows them uncut"
                    .to_owned();
            asked.remark("note", text);
        }
        PolicyKind::Firmware { .. } | PolicyKind::Ib { .. } => {}
    }
}

/// What a policy does, in half a sentence.
fn meaning(policy: &Policy) -> &'static str {
    match &policy.kind {
        PolicyKind::Firmware { .. } if policy.floor == AckTimeoutFloor::Disabled => {
            "an initial wait, then the same wait retry_cnt + 1 times"
        }
        PolicyKind::Firmware { .. } => "waits double up to the timeout, then twice the timeout",
        PolicyKind::Ib { .. } => "the same wait retry_cnt + 1 times",
        PolicyKind::Profile(profile) if profile.raw().qp_total_timeout => {
            "its ranges, capped by the timeout, up to timeout x retry_cnt"
        }
        PolicyKind::Profile(_) => "its ranges, capped by the timeout, up to its own total",
    }
}

/// Which outages, and why not longer ones.
fn survives(found: &Endurance) -> String {
    let Endurance {
        survives,
        survives_at_best: best,
        ..
    } = found;
    let up_to = match survives.at_least().to_string() == best.at_least().to_string() {
        true => survives.at_least().to_string(),
        false => format!("{}, with luck {}", survives.at_least(), best.at_least()),
    };
    match found.retransmissions {
        0 => "nothing: the first wait ends in the error".to_owned(),
        u64::MAX => "outages of any length".to_owned(),
        _ if *survives == Span::NEVER => "outages of any length".to_owned(),
        n => format!(
            "{up_to}: by then the QP sends the last of up to {n} retransmissions, and fails one wait \
             later"
        ),
    }
}

/// What an application's queue pairs endure with these variables, of which only some are settings of
/// queue pairs, under the profile, or under the firmware's own timeouts without one. `timeout` is what the
/// application has by default.
pub(crate) fn endurance_of(
    app: &str,
    variables: &[(String, String)],
    environment: super::app::Environment<'_>,
    timeout: Option<u64>,
    profile: Option<&Profile>,
) -> Result<Option<Endurance>, Failure> {
    let app = App::named(app)?;
    let decides = |it: &&(String, String)| app.takes(&it.0);
    let decisive = variables.iter().filter(decides);
    let settings: Vec<_> = decisive
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut asked = app.asks(&settings, environment, timeout, None)?;
    let qp = QpTimeouts {
        timeout: fit(&mut asked, "timeout", 5),
        retry_cnt: fit(&mut asked, "retry_cnt", 3),
    };
    let policy = match profile {
        Some(profile) => Policy::new(PolicyKind::Profile(*profile)),
        None => Policy::new(PolicyKind::Firmware {
            quantiser: true,
            initial_exponent: None,
        }),
    };
    Ok(Endurance::of(&policy, qp))
}

/// The policy as a device follows it.
//= F14: the firmware's own ladder has coarse timers.
fn with_coarse_timers(policy: &Policy) -> Policy {
    let mut policy = *policy;
    if let PolicyKind::Firmware { quantiser, .. } = &mut policy.kind {
        *quantiser = true;
    }
    policy
}

/// An outage, or how long until a dead peer is noticed.
fn time(text: &str) -> Result<Span, String> {
    const DAY_NS: u64 = 24 * 3_600 * 1_000_000_000;
    let ns = TIME.read_in(text, 1..=DAY_NS);
    ns.map(Span::from_nanos)
        .map_err(|invalid| invalid.to_string())
}

/// A time that may not end, for people.
fn in_words(span: Option<Span>) -> String {
    span.unwrap_or(Span::NEVER).about().to_string()
}
