//! What must have happened, as far as it can be known without executing it: requests, connections, and who may
//! access what at which time.

use std::collections::VecDeque;
use std::net::IpAddr;

use ferroce_device::{
    AccessFlags, Buffer, MrInfo, Path, PdId, QpAttr, QpType, Qpn, SendTo, Span, SrqId, Srqn, Time,
    WcStatus,
};
use ferroce_wire::Psn;

use crate::seen::Seen;

/// A work request's number: that of its completion.
pub(crate) type Id = usize;
/// Set in the number of a receive request's completion.
pub(crate) const RECEIVE: u64 = 1 << 32;

/// What a send request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send,
    /// SEND with invalidate.
    SendInvalidate,
    Datagram,
    Write,
    Read,
    Add,
    Swap,
    /// Bind of a memory window.
    Bind,
    /// Local invalidation.
    Invalidate,
}

/// What a bind or an invalidation names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// A bind of a window, by its place among all.
    Binding(usize),
    Region,
    Nothing,
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It has no completion yet.
    Pending,
    /// It has succeeded.
    Done,
    /// It was not signalled, and a later request has failed: it may have succeeded.
    Unknown,
    /// It has failed.
    Failed(WcStatus),
    /// Its queue pair was destroyed or reset, or its host killed, before it was completed.
    Dropped,
}

/// Memory of the peer that a request reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    /// The region's place in the model.
    pub(crate) region: usize,
    pub(crate) at: u64,
    /// The binding of a window whose key is used, by its place among all.
    pub(crate) binding: Option<usize>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) path: Path,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: u32,
    /// The queue pair that sends it.
    pub(crate) from: Qpn,
}

/// Where a request is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) host: usize,
    /// What the peer's keys must belong to.
    pub(crate) pd: PdId,
    /// The number in the script of the shared receive queue that messages go to.
    pub(crate) srq: Option<u64>,
    /// The queue pair that executes it.
    pub(crate) qpn: Qpn,
    /// Of DC: its place among all targets.
    pub(crate) dct: Option<usize>,
    /// It refuses whatever comes, with this status.
    pub(crate) refusal: Option<WcStatus>,
    /// How requests name it.
    pub(crate) address: SendTo,
}

/// A send request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) host: usize,
    /// The queue pair, and its protection domain.
    pub(crate) by: (PdId, Qpn),
    /// Which of the devices that its host has had one after the other.
    pub(crate) incarnation: u64,
    pub(crate) len: usize,
    /// Where its payload begins among the bytes of all sources.
    pub(crate) source: usize,
    pub(crate) remote: Option<Remote>,
    pub(crate) target: Option<Target>,
    /// Where its response goes in its host's landing ground.
    pub(crate) landing: usize,
    pub(crate) imm: Option<u32>,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) bad_lkey: bool,
    pub(crate) posted: Time,
    pub(crate) ended: Time,
    pub(crate) connection: Option<(usize, usize)>,
    /// Where a datagram goes.
    pub(crate) to: Option<Destination>,
    /// What it binds or invalidates.
    pub(crate) named: Option<Named>,
    /// Of DC: the completion of a receive has told its message.
    pub(crate) told: bool,
    pub(crate) outcome: Outcome,
}

impl Request {
    /// Whether its payload goes to a receive of a connected peer.
    pub(crate) fn is_send(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::SendInvalidate)
    }

    /// Whether its response brings data.
    pub(crate) fn needs_response(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Add | Kind::Swap)
    }

    /// Whether it completes a receive of the peer.
    pub(crate) fn consumes_receive(&self) -> bool {
        self.is_send() || self.kind == Kind::Write && self.imm.is_some()
    }

    /// The status with which its target refuses whatever comes, if it does.
    pub(crate) fn refusal(&self) -> Option<WcStatus> {
        self.target.and_then(|target| target.refusal)
    }

    /// Whether the program knows that it has succeeded.
    pub(crate) fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }

    /// What the peer must permit.
    pub(crate) fn needs(&self) -> AccessFlags {
        match self.kind {
            Kind::Write => AccessFlags::REMOTE_WRITE,
            Kind::Read => AccessFlags::REMOTE_READ,
            Kind::Add | Kind::Swap => AccessFlags::REMOTE_ATOMIC,
            _ => AccessFlags::empty(),
        }
    }
}

/// A receive request.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    /// Which of the devices that its host has had one after the other.
    pub(crate) incarnation: u64,
    pub(crate) len: usize,
    /// Where its message goes in its host's landing ground.
    pub(crate) landing: usize,
    /// Posted to a reliable queue pair.
    pub(crate) reliable: bool,
    /// The number in the script of its shared receive queue, if it was posted to one.
    pub(crate) srq: Option<u64>,
    pub(crate) bad_lkey: bool,
    /// The bytes that came, among those of all sources.
    pub(crate) message: Option<(usize, usize)>,
    pub(crate) outcome: Outcome,
}

/// Memory of a host.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) host: usize,
    pub(crate) id: u64,
    pub(crate) info: MrInfo,
    pub(crate) buffer: Buffer,
    /// The owner and permissions from each time on; `None` while it is not registered.
    pub(crate) rights: Vec<(Time, Option<(PdId, AccessFlags)>)>,
    /// Requests that write to it.
    pub(crate) writes: Vec<Id>,
    /// Atomics.
    pub(crate) atomics: Vec<Id>,
}

/// Whether something was permitted during a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Always,
    Sometimes,
    Never,
}

impl Region {
    /// Whether it is registered now.
    pub(crate) fn is_registered(&self) -> bool {
        self.rights
            .last()
            .is_some_and(|(_, rights)| rights.is_some())
    }

    /// Whether a holder of a protection domain was permitted something during a time, both ends included.
    pub(crate) fn permits(&self, pd: PdId, needs: AccessFlags, from: Time, to: Time) -> Verdict {
        let permits = |rights: &Option<(PdId, AccessFlags)>| {
            rights.is_some_and(|(owner, access)| owner == pd && access.contains(needs))
        };
        let before = self.rights.partition_point(|(at, _)| *at < from);
        let meanwhile = &self.rights[before.saturating_sub(1)..];
        let mut verdicts = meanwhile
            .iter()
            .take_while(|(at, _)| *at <= to)
            .map(|(_, rights)| permits(rights));
        let first = verdicts.next().unwrap_or(false);
        match (first, verdicts.all(|verdict| verdict == first)) {
            (true, true) => Verdict::Always,
            (false, true) => Verdict::Never,
            _ => Verdict::Sometimes,
        }
    }
}

/// A queue pair of a script.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) qpn: Qpn,
    pub(crate) kind: QpType,
    pub(crate) pd: PdId,
    /// Destroyed.
    pub(crate) gone: bool,
    /// The latest connection, and which end of it this is.
    pub(crate) connection: Option<(usize, usize)>,
    /// Send requests without a completion, in order.
    pub(crate) sends: VecDeque<Id>,
    /// Receive requests of its own queue without a completion, in order.
    pub(crate) receives: VecDeque<Id>,
    /// A request of it has failed.
    pub(crate) failed: bool,
    /// Something has moved it to the error state other than a failed request of its own.
    pub(crate) pushed: bool,
    /// The number in the script of its shared receive queue.
    pub(crate) srq: Option<u64>,
    /// Of its device, from 1.
    pub(crate) port: u8,
    /// What it was made ready with, and the path to its peer.
    pub(crate) attr: QpAttr,
    pub(crate) path: Path,
    /// Its Q_Key, and the groups that it was ever attached to; of UD.
    pub(crate) qkey: u32,
    pub(crate) groups: Vec<IpAddr>,
    /// Those that it is attached to now.
    pub(crate) attached: Vec<IpAddr>,
    /// It began to wait for a peer that is gone.
    pub(crate) lonely: Option<Lonely>,
    /// Of a DCT: its place among all targets.
    pub(crate) dct: Option<usize>,
    /// The numbers in the script of its completion queues, for sends and for receives.
    pub(crate) cqs: (u64, u64),
    /// How often an XRC_RECV queue pair must be destroyed.
    pub(crate) handles: u32,
    /// The program has moved it to the error state, and no completion has said so yet.
    pub(crate) moved: bool,
}

/// A queue pair that had nothing in flight when it began to wait for a peer that is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lonely {
    pub(crate) peer: Qpn,
    /// When its first packet has left, and the packet's PSN.
    pub(crate) first: Option<(Time, Psn)>,
    /// How long it must wait.
    pub(crate) total: Span,
    /// How many times that packet has left, and how many times it must, if that is known.
    pub(crate) sent: u32,
    pub(crate) sends: Option<u32>,
}

/// A shared receive queue of a script.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) id: SrqId,
    pub(crate) pd: PdId,
    /// Its XRC domain, from 1.
    pub(crate) xrc: Option<u64>,
    /// How requests of XRC name it.
    pub(crate) number: Srqn,
    /// Requests without a completion, in order.
    pub(crate) receives: Vec<Id>,
    /// Requests that queue pairs may have taken and not completed: one for each that takes from it, and for each
    /// that was destroyed or reset.
    pub(crate) takers: usize,
    /// Completions of some have gone with their queue pairs.
    pub(crate) forgets: bool,
    /// The shortest receive that was posted, and whether one had a bad key.
    pub(crate) shortest: usize,
    pub(crate) bad_receive: bool,
}

/// Two queue pairs that were connected, or an initiator of DC since it was reset. The first end of XRC is the one that
/// sends.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) kind: QpType,
    /// Of DC, the second end stands for all targets.
    pub(crate) ends: [End; 2],
    pub(crate) mtu: usize,
    pub(crate) rnr_retry: u64,
    /// `timeout`, and `retry_cnt`.
    pub(crate) timeout: u64,
    pub(crate) retry: u64,
    pub(crate) access: AccessFlags,
    /// `max_rd_atomic` of both.
    pub(crate) rd_atomic: u64,
    /// `max_dest_rd_atomic` of both.
    pub(crate) owed_max: u64,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    /// Its place among the queue pairs of its host, and the port.
    pub(crate) qp: usize,
    pub(crate) port: u8,
    pub(crate) pd: PdId,
    /// Its requests that complete a receive of the other end, in order.
    pub(crate) consuming: Vec<Id>,
    /// How many receives of this end have succeeded.
    pub(crate) received: usize,
    /// The shortest receive that this end has posted, and whether one had a bad key.
    pub(crate) shortest: usize,
    pub(crate) bad_receive: bool,
    /// The number in the script of its shared receive queue.
    pub(crate) srq: Option<u64>,
    /// It has been reset, destroyed, or moved to an error state.
    pub(crate) ended: bool,
    /// What its packets have shown.
    pub(crate) seen: Seen,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_device::MrKey;

    #[test]
    fn a_verdict_covers_all_of_the_time() {
        let at = Time::from_nanos;
        let access = AccessFlags::REMOTE_READ;
        let region = Region {
            host: 0,
            id: 1,
            info: MrInfo {
                key: MrKey(1),
                pd: PdId(1),
                va: 0,
                len: 1,
                access,
            },
            buffer: Buffer::zeroed(1),
            rights: vec![(at(10), Some((PdId(1), access))), (at(20), None)],
            writes: Vec::new(),
            atomics: Vec::new(),
        };
        let verdict = |from, to| region.permits(PdId(1), access, at(from), at(to));
        assert_eq!(verdict(10, 19), Verdict::Always);
        assert_eq!(verdict(10, 20), Verdict::Sometimes);
        assert_eq!(verdict(15, 30), Verdict::Sometimes);
        assert_eq!(verdict(21, 30), Verdict::Never);
        assert_eq!(
            region.permits(PdId(2), access, at(10), at(15)),
            Verdict::Never
        );
    }
}
