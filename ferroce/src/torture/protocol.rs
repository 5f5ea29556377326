//! What the director of a round and its programs tell each other, a line of JSON each.

use std::io::{self, Write};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// One end of a pair of queue pairs: the pair's number, and which of its two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) pair: u64,
    pub(super) side: u8,
}

/// How the two ends of a pair find each other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) address: IpAddr,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) va: u64,
    pub(super) rkey: u32,
}

/// What both ends of a pair are the same in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Terms {
    /// What determines its messages.
    pub(super) seed: u64,
    /// Bytes of the longest one.
    pub(super) longest: usize,
    /// The local ACK timeout's code.
    pub(super) timeout: u8,
}

/// What a program shall do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Register memory and make a queue pair: [`Report::Opened`].
    Open(End, Terms),
    /// Connect it with its peer: [`Report::Connected`].
    Connect(End, Place),
    /// Send messages from now on.
    Begin(End),
    /// Send no more, and wait for those under way: [`Report::Drained`].
    Drain(End),
    /// Destroy the queue pair, and deregister its memory: [`Report::Closed`].
    Close(End),
    /// Leave the device, and end: [`Report::Left`].
    Leave,
}

/// What has happened at one end.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Requests of this end.
    pub(super) posted: u64,
    /// Those that succeeded.
    pub(super) succeeded: u64,
    /// Those of them for which the peer must have received something.
    pub(super) delivered: u64,
    /// Those of them that have added to the peer's word.
    pub(super) added: u64,
    /// Messages that this end has received.
    pub(super) received: u64,
    /// What the peer has added to this end's word.
    pub(super) word: u64,
    /// Bytes that were compared.
    pub(super) compared: u64,
}

/// What a program has done, or noticed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// It has the device open.
    Attached,
    Opened(End, Place),
    Connected(End),
    Drained(End),
    Closed(End, Tally),
    /// A request has failed, after which the queue pair was destroyed.
    Broken {
        end: End,
        status: String,
        vendor_err: u32,
        tally: Tally,
    },
    /// It has left the device, and what it holds that it did not before it attached.
    Left {
        kept: Vec<String>,
    },
    /// A rule does not hold.
    Wrong {
        rule: String,
        what: String,
    },
}

/// Tells the director.
///
/// # Errors
///
/// The director has ended.
pub(super) fn tell(report: &Report) -> io::Result<()> {
    let line = serde_json::to_string(report)? + "\n";
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}
