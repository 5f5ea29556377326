//! What was reached: verbs, and events of queue pairs in each state.

use std::fmt;

use ferroce_device::{QpState, QpType, SendOp};
use ferroce_wire::Opcode;

use crate::rules::is_reliable;
use crate::script::Step;

/// Something that a program does with a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Recv,
    Send,
    Write,
    Read,
    Atomic,
    Bind,
    Invalidate,
    Unknown,
    ToReset,
    ToInit,
    ToSqd,
    ToErr,
    ToOther,
    Destroy,
}

impl Verb {
    pub(crate) fn of(op: &SendOp) -> Self {
        match op {
            SendOp::Send { .. } | SendOp::SendInvalidate { .. } => Self::Send,
            SendOp::Write { .. } => Self::Write,
            SendOp::Read { .. } => Self::Read,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => Self::Atomic,
            SendOp::BindMw(_) => Self::Bind,
            SendOp::LocalInvalidate { .. } => Self::Invalidate,
            SendOp::Connect { .. } => Self::Unknown,
        }
    }

    pub(crate) fn modify(to: QpState) -> Self {
        match to {
            QpState::Reset => Self::ToReset,
            QpState::Init => Self::ToInit,
            QpState::Sqd => Self::ToSqd,
            QpState::Err => Self::ToErr,
            QpState::Rtr | QpState::Rts | QpState::Sqe => Self::ToOther,
        }
    }
}

/// Events of a queue pair: verbs, in their order, then packets.
const EVENTS: [&str; 20] = [
    "post receive",
    "post SEND",
    "post WRITE",
    "post READ",
    "post atomic",
    "post bind",
    "post invalidation",
    "post unknown operation",
    "modify to RESET",
    "modify to INIT",
    "modify to SQD",
    "modify to ERR",
    "modify to another state",
    "destroy",
    "SEND packet",
    "WRITE packet",
    "READ request",
    "atomic request",
    "acknowledgement",
    "response with data",
];
/// Where packets begin among them.
const PACKETS: usize = 14;
const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];
const KINDS: [QpType; 7] = [
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::XrcSend,
    QpType::XrcRecv,
    QpType::Dci,
    QpType::Dct,
];

/// What runs have done and reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Scripts that were played.
    pub runs: u64,
    /// Lines of scripts that were executed, by their verbs, in the order of [`Step::VERBS`].
    pub steps: Vec<u64>,
    /// Events of queue pairs, by type, state and event.
    reached: Vec<u64>,
    /// Work requests that ended, by how.
    pub outcomes: Vec<(&'static str, u64)>,
    /// How connections ended that were asked for.
    pub dials: Vec<(&'static str, u64)>,
    /// Calls and completions that a rule of `ferroce fault` acted on.
    pub injected: u64,
    /// Packets that hosts sent.
    pub packets: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            runs: 0,
            steps: vec![0; Step::VERBS.len()],
            reached: vec![0; KINDS.len() * STATES.len() * EVENTS.len()],
            outcomes: Vec::new(),
            dials: Vec::new(),
            injected: 0,
            packets: 0,
        }
    }
}

impl Coverage {
    /// Lines of scripts that were executed.
    pub fn operations(&self) -> u64 {
        self.steps.iter().sum()
    }

    /// Adds what another run has reached.
    pub fn add(&mut self, other: &Self) {
        let add = |to: &mut Vec<u64>, from: &Vec<u64>| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        add(&mut self.steps, &other.steps);
        add(&mut self.reached, &other.reached);
        for (name, count) in &other.outcomes {
            count_in(&mut self.outcomes, name, *count);
        }
        for (name, count) in &other.dials {
            count_in(&mut self.dials, name, *count);
        }
        self.packets += other.packets;
        self.injected += other.injected;
        self.runs += other.runs;
    }

    pub(crate) fn step(&mut self, verb: &str) {
        if let Some(at) = Step::VERBS.iter().position(|it| *it == verb) {
            self.steps[at] += 1;
        }
    }

    pub(crate) fn outcome(&mut self, name: &'static str) {
        count_in(&mut self.outcomes, name, 1);
    }

    pub(crate) fn dial(&mut self, name: &'static str) {
        count_in(&mut self.dials, name, 1);
    }

    pub(crate) fn verb(&mut self, kind: QpType, state: QpState, verb: Verb) {
        self.reach(kind, state, verb as usize);
    }

    pub(crate) fn packet(&mut self, kind: QpType, state: Option<QpState>, opcode: Opcode) {
        let Some(state) = state else {
            return;
        };
        let nth = if opcode.is_read_response() {
            5
        } else if opcode.is_response() {
            4
        } else if opcode.is_send() {
            0
        } else if opcode.is_write() {
            1
        } else if opcode.is_atomic() {
            3
        } else if opcode.operation() == Opcode::RcReadRequest {
            2
        } else {
            return; // an initiator connects, or leaves
        };
        self.reach(kind, state, PACKETS + nth);
    }

    fn reach(&mut self, kind: QpType, state: QpState, event: usize) {
        let Some(kind) = KINDS.iter().position(|it| *it == kind) else {
            return;
        };
        let place = (kind * STATES.len() + state as usize) * EVENTS.len() + event;
        self.reached[place] += 1;
    }

    /// States and events that go together and were never reached together: the type and state of a queue pair, and
    /// the events.
    pub fn unreached(&self) -> Vec<(String, Vec<&'static str>)> {
        let mut unreached = Vec::new();
        for (k, kind) in KINDS.iter().enumerate() {
            for (s, state) in STATES.iter().enumerate() {
                let at = (k * STATES.len() + s) * EVENTS.len();
                let is_missing = |event: &usize| {
                    self.reached[at + event] == 0 && is_possible(*kind, *state, *event)
                };
                let missing: Vec<_> = (0..EVENTS.len())
                    .filter(is_missing)
                    .map(|event| EVENTS[event])
                    .collect();
                if !missing.is_empty() {
                    unreached.push((format!("{kind} in {state:?}"), missing));
                }
            }
        }
        unreached
    }

    /// How many pairs of states and events were reached, and how many there are.
    pub fn pairs(&self) -> (usize, usize) {
        let mut all = 0;
        let mut reached = 0;
        for (k, kind) in KINDS.iter().enumerate() {
            for (s, state) in STATES.iter().enumerate() {
                for event in (0..EVENTS.len()).filter(|event| is_possible(*kind, *state, *event)) {
                    all += 1;
                    let count = self.reached[(k * STATES.len() + s) * EVENTS.len() + event];
                    reached += usize::from(count > 0);
                }
            }
        }
        (reached, all)
    }
}

/// Whether a queue pair of this type can be in this state while that happens. Calls that it refuses are possible.
fn is_possible(kind: QpType, state: QpState, event: usize) -> bool {
    use QpState::{Init, Reset, Rtr, Sqd, Sqe};
    let has_state = match state {
        // A reliable queue pair whose send queue fails is in ERR.
        Sqe => !is_reliable(kind),
        Sqd => !matches!(kind, QpType::Dci | QpType::Dct),
        _ => kind != QpType::Dct || matches!(state, Reset | Init | Rtr),
    };
    let is_answered = is_reliable(kind);
    let (takes_requests, takes_responses) = match kind {
        QpType::XrcSend | QpType::Dci => (false, true),
        QpType::XrcRecv => (true, false),
        QpType::Dct => (state == Rtr, false), // others wait until it is ready
        _ => (true, is_answered),
    };
    let has_packet = match EVENTS[event] {
        "SEND packet" => takes_requests,
        "WRITE packet" => takes_requests && kind != QpType::Ud,
        "READ request" | "atomic request" => takes_requests && is_answered,
        "acknowledgement" | "response with data" => takes_responses,
        _ => true,
    };
    has_state && has_packet
}

/// Counts something by its name.
fn count_in(counts: &mut Vec<(&'static str, u64)>, name: &'static str, count: u64) {
    match counts.iter_mut().find(|(it, _)| *it == name) {
        Some((_, sum)) => *sum += count,
        None => counts.push((name, count)),
    }
}

/// Columns of a line of the coverage.
const COLUMNS: usize = 80;

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = Step::VERBS.iter().zip(&self.steps);
        let steps = steps
            .filter(|(_, count)| **count > 0)
            .map(|(verb, count)| format!("{verb} {count}"));
        write_list(f, "operations", steps)?;
        for (title, counts) in [
            ("work requests", &self.outcomes),
            ("connections", &self.dials),
        ] {
            let mut counts = counts.clone();
            counts.sort_unstable();
            let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
            write_list(f, title, counts)?;
        }
        writeln!(f, "faults injected by rules: {}", self.injected)?;
        let (reached, all) = self.pairs();
        writeln!(f, "states x events: {reached} of {all} reached")?;
        for (place, missing) in self.unreached() {
            let missing = missing.into_iter().map(str::to_owned);
            write_list(f, &format!("never: {place}"), missing)?;
        }
        Ok(())
    }
}

/// Writes a list behind its name, on as many lines as it needs.
fn write_list(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    items: impl Iterator<Item = String>,
) -> fmt::Result {
    let mut line = format!("{name}:");
    let mut items = items.peekable();
    while let Some(item) = items.next() {
        let comma = if items.peek().is_some() { "," } else { "" };
        if line.len() + item.len() + 2 > COLUMNS {
            writeln!(f, "{line}")?;
            line = " ".to_owned();
        }
        line = format!("{line} {item}{comma}");
    }
    writeln!(f, "{line}")
}
