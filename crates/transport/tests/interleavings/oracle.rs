//! What must have come of a scenario, from executing its messages one after the other.

use ferroce_transport::{Completion, QpState, SendOp, WcFlags, WcOpcode, WcStatus, WorkQueue};

use crate::common::{A, B, Id};
use crate::play::{Outcome, Plan, Planned, Stage};
use crate::scenario::Kind;

pub(crate) fn check(stage: &mut Stage) -> Outcome {
    let failed = [A, B].map(|id| stage.pair[id].qp.state() == QpState::Err);
    for id in [A, B] {
        if !failed[id as usize] {
            let qp = &stage.pair[id].qp;
            assert_eq!(qp.send_queue_len(), 0, "{id:?} hangs");
            assert_eq!(qp.in_flight(), 0);
            assert!(!qp.has_answers());
            assert_eq!(qp.state(), QpState::Rts);
        }
        let done = check_sends(stage, id, failed[id as usize]);
        check_receives(stage, id, failed, done);
        check_responses(stage, id, done);
        check_memory(stage, id, done);
        check_binds(stage, id, done);
    }
    Outcome {
        completed: failed == [false, false],
    }
}

/// Send completions come in order: success for those with a completion, then one documented error,
/// then everything else flushed. Returns how many messages are known to be done.
fn check_sends(stage: &mut Stage, id: Id, failed: bool) -> usize {
    let completions = stage.pair.completions(id, WorkQueue::Send);
    let sends = &stage.plans[id as usize].sends;
    let mut next = 0;
    let mut error = None;
    for wc in &completions {
        if wc.status == WcStatus::Success {
            assert!(error.is_none(), "success after an error");
            while !sends[next].message.signaled {
                next += 1;
            }
            check_success(wc, &sends[next]);
        } else if wc.status == WcStatus::WrFlushErr {
            assert_eq!(wc.vendor_err, 249);
        } else {
            assert!(error.is_none(), "two errors");
            assert!(
                matches!(wc.status, WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr),
                "{wc:?}"
            );
            if wc.status == WcStatus::RetryExcErr {
                assert_eq!(wc.vendor_err, 129);
            }
        }
        if wc.status != WcStatus::Success && error.is_none() {
            // Messages without a completion may be done before it.
            let at = wc.wr_id as usize;
            assert!(sends[next..at].iter().all(|s| !s.message.signaled));
            error = Some(at);
            next = at;
        }
        assert_eq!(wc.wr_id, next as u64, "out of order");
        assert_eq!(wc.opcode, sends[next].wr.op.wc_opcode());
        next += 1;
    }
    if failed {
        assert!(error.is_none() || next == sends.len(), "not all flushed");
        error.unwrap_or(next)
    } else {
        assert_eq!(error, None);
        assert!(sends[next..].iter().all(|s| !s.message.signaled));
        sends.len()
    }
}

fn check_success(wc: &Completion, sent: &Planned) {
    assert_eq!(wc.vendor_err, 0);
    if sent.message.kind.needs_response() {
        assert_eq!(wc.byte_len, sent.len);
    }
}

/// The peer's receives complete in order with the bytes of the messages that consume one: of all
/// that are done, and perhaps of some more.
fn check_receives(stage: &mut Stage, id: Id, failed: [bool; 2], done: usize) {
    let peer = id.peer();
    let completions = stage.pair.completions(peer, WorkQueue::Recv);
    let sends = &stage.plans[id as usize].sends;
    let mut expected = sends.iter().filter(|s| s.message.kind.consumes_receive());
    let mut received = 0;
    for wc in &completions {
        if wc.status != WcStatus::Success {
            assert!(failed[peer as usize]);
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            continue;
        }
        let sent = expected.next().expect("one message, one receive");
        assert_eq!(wc.wr_id, received);
        check_received(stage, id, wc, sent);
        received += 1;
    }
    let all = sends.iter().take(done);
    let least = all.filter(|s| s.message.kind.consumes_receive()).count();
    assert!(received >= least as u64, "completed but not received");
}

fn check_received(stage: &Stage, id: Id, wc: &Completion, sent: &Planned) {
    let peer = id.peer();
    let (opcode, flags, imm) = match sent.wr.op {
        SendOp::Send { imm: None } => (WcOpcode::Recv, WcFlags::empty(), 0),
        SendOp::Send { imm: Some(imm) } => (WcOpcode::Recv, WcFlags::WITH_IMM, imm),
        SendOp::SendInvalidate { rkey } => (WcOpcode::Recv, WcFlags::WITH_INV, rkey),
        SendOp::Write { imm, .. } => (
            WcOpcode::RecvRdmaWithImm,
            WcFlags::WITH_IMM,
            imm.unwrap_or_default(),
        ),
        _ => unreachable!("consumes no receive"),
    };
    assert_eq!((wc.opcode, wc.flags, wc.imm), (opcode, flags, imm));
    assert_eq!(wc.byte_len, sent.len);
    if opcode == WcOpcode::Recv {
        let sges = &stage.plans[peer as usize].recvs[wc.wr_id as usize];
        let mut bytes = gather(stage, peer, sges);
        bytes.truncate(sent.len as usize);
        assert!(bytes == gather(stage, id, &sent.local), "other bytes");
    }
}

fn gather(stage: &Stage, id: Id, sges: &[ferroce_transport::Sge]) -> Vec<u8> {
    let bytes = |sge: &ferroce_transport::Sge| stage.pair.bytes(id, *sge);
    sges.iter().flat_map(bytes).collect()
}

/// READs and atomics that are done brought what was there when their turn came.
fn check_responses(stage: &Stage, id: Id, done: usize) {
    let Plan { target, before, .. } = &stage.plans[id.peer() as usize];
    let mut memory = before.clone();
    for sent in &stage.plans[id as usize].sends[..done] {
        let found = execute(
            &mut memory,
            target.va,
            sent,
            &gather(stage, id, &sent.local),
        );
        if sent.message.kind.needs_response() {
            assert!(
                found == gather(stage, id, &sent.local),
                "{:?}",
                sent.message
            );
        }
    }
}

/// The peer's memory is as after some message that is not before the last one known to be done,
/// or some packets into the next.
fn check_memory(stage: &Stage, id: Id, done: usize) {
    let Plan { target, before, .. } = &stage.plans[id.peer() as usize];
    let actual = stage.pair.bytes(id.peer(), target.part(0, target.len));
    let mtu = stage.pair[id].qp.attr().path_mtu.bytes() as usize;
    let mut memory = before.clone();
    let sends = &stage.plans[id as usize].sends;
    for (index, sent) in sends.iter().enumerate() {
        if index >= done && memory == actual {
            return;
        }
        let bytes = gather(stage, id, &sent.local);
        if index >= done && matches!(sent.message.kind, Kind::Write | Kind::WriteImm) {
            let packets = bytes.len().div_ceil(mtu);
            for packet in 1..packets {
                execute(&mut memory, target.va, sent, &bytes[..packet * mtu]);
                if memory == actual {
                    return;
                }
            }
        }
        execute(&mut memory, target.va, sent, &bytes);
    }
    assert!(memory == actual, "the target of {id:?} holds other bytes");
}

/// Binds happen in order and once: all of those that are done, and perhaps of some more.
fn check_binds(stage: &Stage, id: Id, done: usize) {
    let binds = &stage.pair[id].host.binds;
    let sends = &stage.plans[id as usize].sends;
    let all = |sends: &[Planned]| -> Vec<u32> {
        let binds = sends.iter().filter(|s| s.message.kind == Kind::BindMw);
        binds.map(|s| s.wr.wr_id as u32).collect()
    };
    let executed: Vec<u32> = binds.iter().map(|bind| bind.rkey).collect();
    assert!(all(sends).starts_with(&executed), "{executed:?}");
    assert!(executed.len() >= all(&sends[..done]).len());
}

/// Executes a message on the target; returns what the response must bring.
fn execute(memory: &mut [u8], base: u64, sent: &Planned, bytes: &[u8]) -> Vec<u8> {
    let start = |va: u64| (va - base) as usize;
    match sent.wr.op {
        SendOp::Send { .. }
        | SendOp::SendInvalidate { .. }
        | SendOp::BindMw(_)
        | SendOp::LocalInvalidate { .. } => Vec::new(),
        SendOp::Write { va, .. } => {
            memory[start(va)..][..bytes.len()].copy_from_slice(bytes);
            Vec::new()
        }
        SendOp::Read { va, .. } => memory[start(va)..][..sent.len as usize].to_vec(),
        SendOp::CompareSwap {
            va, compare, swap, ..
        } => update(&mut memory[start(va)..][..8], |word| {
            if word == compare { swap } else { word }
        }),
        SendOp::FetchAdd { va, add, .. } => {
            update(&mut memory[start(va)..][..8], |word| word.wrapping_add(add))
        }
    }
}

fn update(word: &mut [u8], new: impl Fn(u64) -> u64) -> Vec<u8> {
    let original = u64::from_ne_bytes((&*word).try_into().unwrap());
    word.copy_from_slice(&new(original).to_ne_bytes());
    original.to_ne_bytes().to_vec()
}
