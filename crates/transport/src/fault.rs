//! What the completions of failed requests say.

use ferroce_wire::Qpn;

use crate::counter::Counter;
use crate::memory::AccessError;
use crate::services::Services;
use crate::work::{Completion, WcOpcode, WcStatus, WorkQueue};

/// What the completion of a request that failed says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) status: WcStatus,
    pub(crate) vendor_err: u32,
}

impl Fault {
    /// The queue pair is in ERR.
    pub(crate) const FLUSHED: Self = Self::flushed(0xf9);
    /// It was the oldest request when the program moved the queue pair there (F7).
    pub(crate) const STOPPED: Self = Self::flushed(0xf5);
    /// A response to a READ or atomic cannot be put where it belongs (F4).
    pub(crate) const RESPONSE: Self = Self::protection(0x33);
    /// Nor can a message (F5).
    pub(crate) const RECEIVE: Self = Self::protection(0x32);

    /// What a SEND or WRITE sends cannot be read.
    //= F2, F3: one code for a range beyond the MR, another for a key that is not valid here.
    pub(crate) fn send(error: AccessError) -> Self {
        Self::protection(match error {
            AccessError::OutOfBounds => 0x53,
            _ => 0x52,
        })
    }

    const fn flushed(vendor_err: u32) -> Self {
        Self {
            status: WcStatus::WrFlushErr,
            vendor_err,
        }
    }

    const fn protection(vendor_err: u32) -> Self {
        Self {
            status: WcStatus::LocProtErr,
            vendor_err,
        }
    }

    /// Completes that request.
    //= F8, F9: every error is counted, and those that were only flushed a second time.
    #[cold]
    pub(crate) fn complete<H: Services>(
        self,
        host: &mut H,
        wr_id: u64,
        opcode: WcOpcode,
        qpn: Qpn,
    ) {
        let queue = opcode.work_queue();
        let (errors, flushed) = match queue {
            WorkQueue::Send => (Counter::ReqCqeError, Counter::ReqCqeFlushError),
            WorkQueue::Recv => (Counter::RespCqeError, Counter::RespCqeFlushError),
        };
        host.count(errors, 1);
        if self == Self::FLUSHED {
            host.count(flushed, 1);
        }
        let completion = Completion {
            vendor_err: self.vendor_err,
            ..Completion::error(wr_id, self.status, opcode, qpn)
        };
        host.fail(queue, completion);
    }
}

impl From<WcStatus> for Fault {
    fn from(status: WcStatus) -> Self {
        Self {
            status,
            vendor_err: status.vendor_err(),
        }
    }
}
