//! The initiator of the dynamically connected transport (DCI): to which target it is connected, and
//! when it turns to another one.
//!
//! A connection begins with a connect request, which has a PSN and is acknowledged like any other
//! request, and ends with a disconnect, which is sent once. Between them are requests and responses
//! of RC. A DCI has one connection at a time: it turns to another target when the last one has
//! answered everything.

use ferroce_base::time::{Span, Time};
use ferroce_wire::{DcConnect, Dceth, Headers, Qpn};

use crate::service::DctAddress;
use crate::work::SendOp;

/// How long a connection without requests is kept.
const LINGER: Span = Span::from_millis(1);

/// The connection of a DCI.
#[derive(Clone, Debug)]
pub(crate) struct Initiator {
    dceth: Dceth,
    /// Differs from that of the queue pair that had this number before.
    incarnation: u32,
    target: Option<DctAddress>,
    /// When the connection ends if nothing is posted.
    idle_until: Option<Time>,
    /// That time has come.
    is_over: bool,
}

impl Initiator {
    pub(crate) fn new(initiator: Qpn, incarnation: u32) -> Self {
        let connection = 0;
        Self {
            dceth: Dceth {
                connection,
                initiator,
            },
            incarnation,
            target: None,
            idle_until: None,
            is_over: false,
        }
    }

    pub(crate) fn target(&self) -> Option<DctAddress> {
        self.target
    }

    pub(crate) fn dceth(&self) -> Dceth {
        self.dceth
    }

    /// Begins a connection; returns the request that opens it.
    pub(crate) fn connect(&mut self, target: DctAddress) -> SendOp {
        self.dceth.connection = self.dceth.connection.wrapping_add(1);
        self.target = Some(target);
        self.keep();
        let connect = DcConnect {
            key: target.key,
            incarnation: self.incarnation,
        };
        SendOp::Connect {
            dceth: self.dceth,
            connect,
        }
    }

    /// Ends the connection; returns the packet that tells the target.
    pub(crate) fn disconnect(&mut self) -> Headers {
        self.forget();
        Headers::disconnect(self.dceth)
    }

    /// Ends the connection without telling the target.
    pub(crate) fn forget(&mut self) {
        self.target = None;
        self.keep();
    }

    /// The connection has something to do.
    pub(crate) fn keep(&mut self) {
        (self.idle_until, self.is_over) = (None, false);
    }

    /// The connection has nothing to do.
    pub(crate) fn linger(&mut self, now: Time) {
        self.idle_until.get_or_insert_with(|| now.after(LINGER));
    }

    /// When the connection ends.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.idle_until.filter(|_| !self.is_over)
    }

    /// Ends the wait for more requests when it is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.is_over |= self.idle_until.is_some_and(|until| until <= now);
    }

    /// Whether the connection has had nothing to do for long enough.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}
