//! Posted requests and their results.

use ferroce_device::{Completion, QpType, WcFlags, WcOpcode, WcStatus};

/// The life that begins with the first connection.
const FIRST_LIFE: usize = 1;

/// What an accepted work request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// If `tagged`, its immediate data is its id.
    Send {
        signaled: bool,
        tagged: bool,
    },
    Recv {
        shared: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: Kind,
    /// The life of the queue pair it was posted in; a reset begins the next one.
    life: usize,
    done: bool,
}

/// The accepted work requests of one side; their ids count up from 0.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
    life: usize,
    /// Lives in which a send request has failed.
    failed: Vec<bool>,
    last_send: Option<u64>,
    last_recv: Option<u64>,
    /// Immediate data received in the first life, not yet compared with what was sent.
    arrivals: Vec<u32>,
    last_arrival: Option<u32>,
    /// Completions may be missing.
    pub(super) overrun: bool,
}

impl Ledger {
    /// The id for the next work request.
    pub(super) fn next_id(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn accepted(&mut self, kind: Kind) {
        self.entries.push(Entry {
            kind,
            life: self.life,
            done: false,
        });
    }

    /// What is on the queue pair's queues is gone without completions.
    pub(super) fn begin_life(&mut self) {
        self.life += 1;
    }

    /// The send queue, stopped by an error, goes on.
    pub(super) fn recover(&mut self) {
        if let Some(failed) = self.failed.get_mut(self.life) {
            *failed = false;
        }
    }

    pub(super) fn completed(&mut self, wc: &Completion, is_send_queue: bool) {
        let entry = &mut self.entries[wc.wr_id as usize];
        assert!(!entry.done, "completed twice: {wc:?}");
        entry.done = true;
        let life = entry.life;
        let is_recv_opcode = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        assert_eq!(is_recv_opcode, !is_send_queue, "{wc:?}");
        match entry.kind {
            Kind::Send { signaled, .. } => {
                assert!(is_send_queue, "on the wrong queue: {wc:?}");
                assert!(signaled || wc.status != WcStatus::Success, "{wc:?}");
                assert!(self.last_send < Some(wc.wr_id), "out of order: {wc:?}");
                self.last_send = Some(wc.wr_id);
                self.check_status(wc, life);
            }
            Kind::Recv { shared } => {
                assert!(!is_send_queue, "on the wrong queue: {wc:?}");
                assert!(shared || self.last_recv < Some(wc.wr_id), "out of order");
                self.last_recv = Some(wc.wr_id);
                let tagged = wc.flags.contains(WcFlags::WITH_IMM);
                if tagged && wc.status == WcStatus::Success && self.life == FIRST_LIFE {
                    self.arrivals.push(wc.imm);
                }
            }
        }
        assert!(wc.vendor_err == 0 || wc.status != WcStatus::Success);
    }

    /// What a well-behaved peer has sent arrives at most once and in order; datagrams as they come.
    /// Only before anything is connected anew: late packets of an earlier connection may be taken
    /// for some of this one.
    pub(super) fn compare_arrivals(&mut self, peer: &Self, qp_type: QpType) {
        for id in self.arrivals.drain(..) {
            if peer.life != FIRST_LIFE {
                continue;
            }
            let entry = &peer.entries[id as usize];
            let sent = matches!(entry.kind, Kind::Send { tagged: true, .. });
            assert!(sent, "{id} came, which was never sent");
            if qp_type != QpType::Ud {
                assert!(self.last_arrival < Some(id), "{id} came again or late");
                self.last_arrival = Some(id);
            }
        }
    }

    /// Successes, then one error, then only what it flushed, until the queue recovers.
    fn check_status(&mut self, wc: &Completion, life: usize) {
        if self.failed.len() <= life {
            self.failed.resize(life + 1, false);
        }
        let failed = &mut self.failed[life];
        match wc.status {
            WcStatus::Success => assert!(!*failed, "success after an error: {wc:?}"),
            WcStatus::WrFlushErr => *failed = true,
            _ => {
                assert!(!*failed, "a second error: {wc:?}");
                *failed = true;
            }
        }
    }

    fn waiting(&self, is: impl Fn(Kind) -> bool) -> usize {
        let open = |entry: &&Entry| !entry.done && entry.life == self.life && is(entry.kind);
        self.entries.iter().filter(open).count()
    }

    /// Compares with what the queue pair says is left, once its completions are polled.
    pub(super) fn balance(&self, sends: usize, recvs: Option<usize>) {
        if self.overrun {
            return;
        }
        let signaled = self.waiting(|kind| matches!(kind, Kind::Send { signaled: true, .. }));
        let all = self.waiting(|kind| matches!(kind, Kind::Send { .. }));
        assert!(
            (signaled..=all).contains(&sends),
            "{sends} on the send queue, {signaled} to {all} without a completion"
        );
        if let Some(recvs) = recvs {
            let open = self.waiting(|kind| kind == Kind::Recv { shared: false });
            // A half-received SEND has taken its request off the queue.
            assert!(
                open == recvs || open == recvs + 1,
                "{recvs} on the receive queue, {open} without a completion"
            );
        }
    }
}
