//! What two queue pairs exchange, and how much goes wrong.

use super::connection::MTU;

/// A connection whose behaviours are explored.
#[derive(Debug)]
pub(super) struct Scenario {
    /// As `ferroce-models` names it.
    pub(super) name: &'static str,
    pub(super) repeat: Repeat,
    /// Of each end, in order.
    pub(super) messages: [&'static [Kind]; 2],
    /// Packets that may be in flight.
    pub(super) window: u32,
    /// How much may go wrong.
    pub(super) faults: u8,
    pub(super) retry_cnt: u8,
    /// The retries may not suffice.
    pub(super) may_fail: bool,
    /// Programs post their receives at any time, instead of before everything else.
    pub(super) receives_late: bool,
    pub(super) flaw: Option<Flaw>,
}

/// How both ends repeat what is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repeat {
    /// Everything from there on.
    GoBack,
    /// Selectively, without knowing the peer (`selective_repeat_forced_en`).
    Forced,
    /// Selectively, as both have agreed.
    Agreed,
    /// The same, and packets may overtake each other.
    Routed,
}

/// A message. The number is that of its packets; the last one has only 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send(u32),
    Write(u32),
    Read(u32),
    /// An atomic fetch and add.
    Add,
}

impl Kind {
    pub(super) const fn bytes(self) -> u32 {
        match self {
            Self::Send(packets) | Self::Write(packets) | Self::Read(packets) => {
                (packets - 1) * MTU + 8
            }
            Self::Add => 8,
        }
    }
}

/// What no network or host may do. It must break a property; otherwise that would say nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// Instead of losing a packet the network changes a bit of its payload, which no checksum shows.
    Corrupts,
    /// A lost request is acknowledged.
    Acknowledges,
    /// A copy has the next PSN.
    Renumbers,
    /// Timers never expire.
    NoTimers,
}

const PLAIN: Scenario = Scenario {
    name: "",
    repeat: Repeat::GoBack,
    messages: [&[], &[]],
    window: 4,
    faults: 2,
    retry_cnt: 7,
    may_fail: false,
    receives_late: false,
    flaw: None,
};

use Kind::{Add, Read, Send, Write};

/// All that are explored.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "rc::go_back",
        messages: [&[Send(2), Write(2)], &[]],
        ..PLAIN
    },
    Scenario {
        name: "rc::go_back_responses",
        messages: [&[Read(3), Add], &[]],
        ..PLAIN
    },
    Scenario {
        name: "rc::forced",
        repeat: Repeat::Forced,
        messages: [&[Write(3), Send(1)], &[]],
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed",
        repeat: Repeat::Agreed,
        messages: [&[Send(2), Write(2)], &[]],
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed_three_faults",
        repeat: Repeat::Agreed,
        messages: [&[Send(3)], &[]],
        faults: 3,
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed_responses",
        repeat: Repeat::Agreed,
        messages: [&[Read(3), Add], &[]],
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed_small_window",
        repeat: Repeat::Agreed,
        messages: [&[Write(3), Write(3)], &[]],
        window: 2,
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed_both_ways",
        repeat: Repeat::Agreed,
        messages: [&[Send(2)], &[Add]],
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed_late_receives",
        repeat: Repeat::Agreed,
        messages: [&[Send(1), Send(2)], &[]],
        receives_late: true,
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed_few_retries",
        repeat: Repeat::Agreed,
        messages: [&[Send(1), Write(2)], &[]],
        faults: 3,
        retry_cnt: 1,
        may_fail: true,
        ..PLAIN
    },
    Scenario {
        name: "rc::routed_three_faults",
        repeat: Repeat::Routed,
        messages: [&[Write(3), Send(1)], &[]],
        faults: 3,
        ..PLAIN
    },
    Scenario {
        name: "rc::forced_responses",
        repeat: Repeat::Forced,
        messages: [&[Read(3), Add], &[]],
        ..PLAIN
    },
    Scenario {
        name: "rc::routed_responses",
        repeat: Repeat::Routed,
        messages: [&[Read(3), Add], &[]],
        ..PLAIN
    },
    Scenario {
        name: "rc::go_back_late_receives",
        messages: [&[Send(1), Send(2)], &[]],
        receives_late: true,
        ..PLAIN
    },
    Scenario {
        name: "rc::agreed_both_ways_three_faults",
        repeat: Repeat::Agreed,
        messages: [&[Send(1)], &[Add]],
        faults: 3,
        ..PLAIN
    },
    Scenario {
        name: "rc::flaw_corrupts",
        messages: [&[Write(2)], &[]],
        flaw: Some(Flaw::Corrupts),
        ..PLAIN
    },
    Scenario {
        name: "rc::flaw_acknowledges",
        messages: [&[Send(1)], &[]],
        flaw: Some(Flaw::Acknowledges),
        ..PLAIN
    },
    Scenario {
        name: "rc::flaw_renumbers",
        messages: [&[Add, Send(1)], &[]],
        flaw: Some(Flaw::Renumbers),
        ..PLAIN
    },
    Scenario {
        name: "rc::flaw_no_timers",
        messages: [&[Send(1)], &[]],
        flaw: Some(Flaw::NoTimers),
        ..PLAIN
    },
];
