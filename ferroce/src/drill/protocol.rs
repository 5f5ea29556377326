//! What the hosts of a drill and the command tell each other: JSON, a line each.
//!
//! A host's other lines on standard output and standard error are messages of the library.

use serde::{Deserialize, Serialize};

/// A line of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Report {
    /// The library is loaded.
    Loaded {
        /// Its version.
        version: String,
        /// The process.
        pid: i32,
    },
    /// The library cannot be used.
    Refused {
        /// Why.
        reason: String,
    },
    /// Each channel of the host can be connected to.
    Listening {
        /// What the host before this one needs to connect, in hexadecimal digits; one for each channel.
        handles: Vec<String>,
    },
    /// All channels are connected to both neighbours.
    Connected,
    /// How far the host is.
    Progress {
        /// When, on the machine's clock.
        at_ns: u64,
        /// Payload that was received.
        bytes: u64,
        /// Words of it that were wrong.
        wrong_words: u64,
        /// When the channel that has stood still for the longest last received something.
        oldest_ns: u64,
    },
    /// A channel received nothing for a while.
    Standstill {
        /// When it last received something.
        from_ns: u64,
        /// When it received something again.
        to_ns: u64,
    },
    /// A call of the library failed; the host sends and receives no more.
    Failed {
        /// When.
        at_ns: u64,
        /// Name of the function.
        call: String,
        /// What it returned.
        code: i32,
        /// The name of that.
        name: String,
    },
    /// All is closed, and the host ends.
    Closed,
}

/// A line for a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Connect each channel to the next host, and begin.
    Connect {
        /// What the next host is listening with.
        handles: Vec<String>,
    },
    /// Close all connections, and listen again.
    Again,
    /// Close everything and end.
    End,
}
