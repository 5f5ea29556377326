//! `ferroce adp trace`: replays a QP whose peer is silent.

use std::path::PathBuf;

use clap::Args;
use ferroce_adp::trace::{Event, Input, Replay, SilentPeer, Step, Wait};
use ferroce_adp::{PolicyKind, RetryState};
use ferroce_base::time::Span;

use super::input::{Chosen, DeviceArgs, PersonalityArgs, QpArgs, choose};
use crate::json::adp as json;
use crate::output::{Failure, Output, Table, ms};

/// Replay a QP whose peer is silent, from its first send to the error
///
/// Under a profile, exponents count doublings of its time_base; else of 4.096 us. There is no range
/// while the initial timeout is in use. In JSON, infinite times are null: a wait that never ends
/// has wait_ns and at_ns null and the event "never".
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Trace {
    /// Profile file (TOML) or built-in profile, such as link-flap; - reads standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    personality: PersonalityArgs,
    #[command(flatten)]
    qp: QpArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print at most this many waits
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max: usize,
    /// Print the state after each of these events instead: t = the timer expires, a = forward
    /// progress; as in t,t,a
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', value_parser = event)]
    events: Option<Vec<Input>>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

const RETRY_EXC: &str = "IBV_WC_RETRY_EXC_ERR";

impl Trace {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let chosen = choose(self.file.as_deref(), self.personality, self.device, None)?;
        let state = RetryState::with_draw(&chosen.policy, self.qp.qp(), 0, chosen.draw);
        match &self.events {
            None => self.silent(&chosen, state, to),
            Some(events) => self.replay(&chosen, state, events, to),
        }
    }

    fn silent(
        &self,
        chosen: &Chosen,
        state: RetryState,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let mut peer = SilentPeer::new(chosen.policy, state);
        let waits: Vec<Wait> = peer.by_ref().take(self.max).collect();
        let is_cut = peer.next().is_some();
        if self.json {
            to.document(&json::Trace {
                queue_pair: state.qp().into(),
                ack_timeout_ns: state.ack_timeout(&chosen.policy).map(Span::as_nanos),
                total_ns: state.total(&chosen.policy).map(Span::as_nanos),
                shortest_total_ns: shortest_total(chosen, state).map(Span::as_nanos),
                waits: waits.iter().map(Into::into).collect(),
                cut: is_cut,
            })?;
        } else {
            let mut table =
                Table::new(&[">#", ">wait ms", ">at ms", ">exponent", ">range", "event"]);
            for (i, wait) in waits.iter().enumerate() {
                table.row(vec![
                    (i + 1).to_string(),
                    ms(wait.wait),
                    ms(wait.at),
                    wait.exponent.to_string(),
                    range(wait.range),
                    event_text(wait.event),
                ]);
            }
            to.text(&format!("{}\n{table}", head(chosen, state)))?;
        }
        if is_cut {
            let Self { max, .. } = self;
            to.remark(format_args!("cut after {max} waits; --max N shows more"))?;
        }
        Ok(())
    }

    fn replay(
        &self,
        chosen: &Chosen,
        state: RetryState,
        events: &[Input],
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let replay = Replay::new(chosen.policy, state, events.iter().copied());
        let steps: Vec<Step> = replay.take(self.max).collect();
        if self.json {
            let states = steps.iter().map(|step| json::State {
                event: input_word(step.input),
                exponent: step.exponent,
                range: step.range,
                timer_ns: step.timer.map(Span::as_nanos),
                error: step.has_failed.then_some(RETRY_EXC),
            });
            to.document(&json::Events {
                queue_pair: state.qp().into(),
                states: states.collect(),
            })?;
        } else {
            let mut table = Table::new(&[">#", "event", ">exponent", ">range", ">timer ms"]);
            for (i, step) in steps.iter().enumerate() {
                table.row(vec![
                    (i + 1).to_string(),
                    match step.input {
                        Input::Timeout => "t  expiry".to_owned(),
                        Input::Progress => "a  progress".to_owned(),
                    },
                    step.exponent.to_string(),
                    range(step.range),
                    match step.has_failed {
                        true => RETRY_EXC.to_owned(),
                        false => ms(step.timer),
                    },
                ]);
            }
            to.text(&format!("{}\n{table}", head(chosen, state)))?;
        }
        let left = events.len() - steps.len();
        if left > 0 {
            let why = match steps.last().is_some_and(|step| step.has_failed) {
                true => "the QP has failed",
                false => "--max N shows more",
            };
            to.remark(format_args!("{left} events left out: {why}"))?;
        }
        Ok(())
    }
}

/// The total if a card's coarse timers shorten every wait that they may.
//= F14: these are what a device has by default; a replay is exact.
fn shortest_total(chosen: &Chosen, state: RetryState) -> Option<Span> {
    let mut policy = chosen.policy;
    if let PolicyKind::Firmware { quantiser, .. } = &mut policy.kind {
        *quantiser = true;
    }
    state.shortest_total(&policy)
}

/// What is replayed, and its two limits.
pub(crate) fn head(chosen: &Chosen, state: RetryState) -> String {
    let qp = state.qp();
    let shortest = shortest_total(chosen, state);
    let limits = match state.ack_timeout(&chosen.policy) {
        None => "ack timeout never: timeout 0 turns the timer off".to_owned(),
        Some(ack_timeout) => format!(
            "ack timeout {}, total {}",
            ack_timeout,
            match state.total(&chosen.policy) {
                None => "never".to_owned(),
                Some(Span::ZERO) => "0: the first expiry is fatal".to_owned(),
                Some(total) => match shortest.filter(|shortest| *shortest < total) {
                    Some(shortest) => format!("{total} ({shortest} at least on a card)"),
                    None => total.to_string(),
                },
            }
        ),
    };
    format!(
        "{}, QP timeout {}, retry count {}\n{limits}\n",
        chosen.name, qp.timeout, qp.retry_cnt
    )
}

fn range(range: Option<u8>) -> String {
    range.map_or_else(|| "-".to_owned(), |range| range.to_string())
}

fn event_text(event: Event) -> String {
    match event {
        Event::Error => format!("error {RETRY_EXC}"),
        Event::Never => "never".to_owned(),
        Event::Retransmit { .. } => "retransmit".to_owned(),
        Event::Initial => "initial, nothing is sent".to_owned(),
    }
}

fn input_word(input: Input) -> &'static str {
    match input {
        Input::Progress => "a",
        Input::Timeout => "t",
    }
}

fn event(text: &str) -> Result<Input, String> {
    match text.trim() {
        "t" => Ok(Input::Timeout),
        "a" => Ok(Input::Progress),
        _ => Err("not an event; write t for an expiry and a for progress, as in t,t,a".to_owned()),
    }
}
