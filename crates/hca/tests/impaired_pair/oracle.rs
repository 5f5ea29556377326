//! What must have come of a scenario, from executing its messages one after the other.

use ferroce_hca::{
    Completion, Counter, Direction, QpState, SendOp, Span, Time, TimerExpiry, WcFlags, WcOpcode,
    WcStatus,
};

use crate::play::{End, Outcome, Planned, Stage};
use crate::scenario::{Kind, RNR_NS_MAX, Scenario, WRITE_OFF_NS};
use ferroce_testing::{A, B, World};

pub(crate) fn check(stage: &mut Stage, scenario: &Scenario, last: Time) -> Outcome {
    let mut outcome = Outcome { sent: 0, done: 0 };
    for nth in 0..stage.ends.len() {
        let failed = [A, B].map(|id| {
            let qpn = stage.ends[nth][id].qpn;
            stage.pair.sides[id].state(qpn) == QpState::Err
        });
        assert!(!scenario.perfect || failed == [false; 2]);
        for id in [A, B] {
            if !failed[id] {
                let qp = stage.pair.sides[id].hca.qp(stage.ends[nth][id].qpn);
                let qp = qp.unwrap();
                assert_eq!(qp.state(), QpState::Rts);
                assert_eq!(qp.send_queue_len(), 0, "a queue pair hangs");
                assert_eq!(qp.in_flight(), 0);
            }
            let done = check_sends(stage, nth, id, failed[id], scenario);
            check_receives(stage, nth, id, failed, done);
            check_responses(stage, nth, id, done);
            check_memory(stage, nth, id, done, scenario);
            outcome.sent += stage.ends[nth][id].sends.len() as u64;
            outcome.done += done as u64;
        }
    }
    check_time(stage, scenario, last);
    for id in [A, B] {
        check_counters(&stage.pair, id, scenario);
        stage.pair.sides[id].hca.audit();
    }
    outcome
}

fn is_recv(wc: &Completion) -> bool {
    matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
}

/// Send completions come in order: success for those with a completion, then one documented error,
/// then everything else flushed. Returns how many messages are known to be done.
fn check_sends(stage: &Stage, nth: usize, id: usize, failed: bool, scenario: &Scenario) -> usize {
    let End { qpn, sends, .. } = &stage.ends[nth][id];
    let completions = &stage.pair.sides[id].completions;
    assert!(sends.iter().all(|sent| sent.posted));
    let mut next = 0;
    let mut error = None;
    for wc in completions {
        if wc.qpn != *qpn || is_recv(wc) {
            continue;
        }
        if wc.status == WcStatus::Success {
            assert!(error.is_none(), "success after an error");
            while !sends[next].message.signaled {
                next += 1;
            }
            assert_eq!(wc.vendor_err, 0);
            if sends[next].message.kind.needs_response() {
                assert_eq!(wc.byte_len, sends[next].message.len);
            }
        } else {
            check_error(wc, error.is_some(), scenario, nth);
            if error.is_none() {
                // Messages without a completion may be done before it.
                let at = (wc.wr_id >> 8) as usize;
                assert!(sends[next..at].iter().all(|s| !s.message.signaled));
                error = Some(at);
                next = at;
            }
        }
        assert_eq!(wc.wr_id, (next as u64) << 8 | nth as u64, "out of order");
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

fn check_error(wc: &Completion, again: bool, scenario: &Scenario, nth: usize) {
    match wc.status {
        WcStatus::WrFlushErr => assert_eq!(wc.vendor_err, 249),
        WcStatus::RetryExcErr => assert_eq!(wc.vendor_err, 129),
        WcStatus::RnrRetryExcErr => assert!(scenario.qps[nth].attr.rnr_retry < 7),
        _ => panic!("{wc:?}"),
    }
    assert!(!again || wc.status == WcStatus::WrFlushErr, "two errors");
    assert!(wc.solicited);
}

/// The peer's receives complete in order with the bytes of the messages that consume one: of all
/// that are done, and perhaps of some more.
fn check_receives(stage: &mut Stage, nth: usize, id: usize, failed: [bool; 2], done: usize) {
    let peer = 1 - id;
    let sends = &stage.ends[nth][id].sends;
    let qpn = stage.ends[nth][peer].qpn;
    let mut expected = sends.iter().filter(|s| s.message.kind.consumes_receive());
    let mut received = 0;
    let mut last = None;
    for wc in &stage.pair.sides[peer].completions {
        if wc.qpn != qpn || !is_recv(wc) {
            continue;
        }
        let recv = &mut stage.recvs[peer][wc.wr_id as usize];
        assert!(!recv.used, "completed twice");
        recv.used = true;
        assert!(recv.qpn.is_none_or(|own| own == qpn));
        assert!(last < Some(wc.wr_id), "out of order");
        last = Some(wc.wr_id);
        if wc.status != WcStatus::Success {
            assert!(failed[peer]);
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            continue;
        }
        let sent = expected.next().expect("one message, one receive");
        check_received(wc, sent, &recv.region.bytes());
        received += 1;
    }
    let all = sends.iter().take(done);
    let least = all.filter(|s| s.message.kind.consumes_receive()).count();
    assert!(received >= least, "completed but not received");
}

fn check_received(wc: &Completion, sent: &Planned, bytes: &[u8]) {
    let (opcode, flags, imm) = match sent.wr.op {
        SendOp::Send { imm: None } => (WcOpcode::Recv, WcFlags::empty(), 0),
        SendOp::Send { imm: Some(imm) } => (WcOpcode::Recv, WcFlags::WITH_IMM, imm),
        SendOp::SendInvalidate { rkey } => (WcOpcode::Recv, WcFlags::WITH_INV, rkey),
        SendOp::Write { imm: Some(imm), .. } => (WcOpcode::RecvRdmaWithImm, WcFlags::WITH_IMM, imm),
        _ => unreachable!("consumes no receive"),
    };
    assert_eq!((wc.opcode, wc.flags, wc.imm), (opcode, flags, imm));
    assert_eq!(wc.byte_len, sent.message.len);
    assert_eq!(wc.solicited, sent.message.solicited);
    let len = match opcode {
        WcOpcode::Recv => sent.message.len as usize,
        _ => 0,
    };
    assert!(bytes[..len] == sent.local.bytes()[..len], "other bytes");
    assert!(bytes[len..].iter().all(|byte| *byte == 0), "more bytes");
}

/// READs and atomics that are done brought what was there when their turn came.
fn check_responses(stage: &Stage, nth: usize, id: usize, done: usize) {
    let End { target, before, .. } = &stage.ends[nth][1 - id];
    let mut memory = before.clone();
    for sent in &stage.ends[nth][id].sends[..done] {
        let bytes = sent.local.bytes();
        let found = execute(&mut memory, target.info.va, sent, &bytes);
        if sent.message.kind.needs_response() {
            assert!(found == bytes, "{:?}", sent.message);
        }
    }
}

/// The peer's memory is as after some message that is not before the last one known to be done,
/// or some packets into the next.
fn check_memory(stage: &Stage, nth: usize, id: usize, done: usize, scenario: &Scenario) {
    let End { target, before, .. } = &stage.ends[nth][1 - id];
    let actual = target.bytes();
    let mtu = scenario.qps[nth].attr.path_mtu.bytes() as usize;
    let mut memory = before.clone();
    let sends = &stage.ends[nth][id].sends;
    for (index, sent) in sends.iter().enumerate() {
        if index >= done && memory == actual {
            return;
        }
        let bytes = sent.local.bytes();
        if index >= done && matches!(sent.message.kind, Kind::Write | Kind::WriteImm) {
            for packet in 1..bytes.len().div_ceil(mtu) {
                execute(&mut memory, target.info.va, sent, &bytes[..packet * mtu]);
                if memory == actual {
                    return;
                }
            }
        }
        execute(&mut memory, target.info.va, sent, &bytes);
    }
    assert!(memory == actual, "the target holds other bytes");
}

/// Executes a message on the target; returns what the response must bring.
fn execute(memory: &mut [u8], base: u64, sent: &Planned, bytes: &[u8]) -> Vec<u8> {
    let start = |va: u64| (va - base) as usize;
    match sent.wr.op {
        SendOp::Send { .. } | SendOp::SendInvalidate { .. } => Vec::new(),
        SendOp::Write { va, .. } => {
            memory[start(va)..][..bytes.len()].copy_from_slice(bytes);
            Vec::new()
        }
        SendOp::Read { va, .. } => memory[start(va)..][..sent.message.len as usize].to_vec(),
        SendOp::CompareSwap {
            va, compare, swap, ..
        } => update(&mut memory[start(va)..][..8], |word| {
            if word == compare { swap } else { word }
        }),
        SendOp::FetchAdd { va, add, .. } => {
            update(&mut memory[start(va)..][..8], |word| word.wrapping_add(add))
        }
        SendOp::BindMw(_) | SendOp::LocalInvalidate { .. } => unreachable!("not among the kinds"),
    }
}

fn update(word: &mut [u8], new: impl Fn(u64) -> u64) -> Vec<u8> {
    let original = u64::from_ne_bytes((&*word).try_into().unwrap());
    word.copy_from_slice(&new(original).to_ne_bytes());
    original.to_ne_bytes().to_vec()
}

/// After the last thing that was done to it, a queue pair makes progress within its total timeout and
/// the time for which it may have to wait for room, again and again, or fails.
fn check_time(stage: &Stage, scenario: &Scenario, last: Time) {
    let mut limit = last;
    for id in [A, B] {
        for (ends, plan) in stage.ends.iter().zip(&scenario.qps) {
            let hca = &stage.pair.sides[id].hca;
            let qp = hca.qp(ends[id].qpn).unwrap();
            let mut timeouts = qp.timeouts();
            timeouts.timeout = plan.attr.timeout;
            timeouts.retry_cnt = plan.attr.retry_cnt;
            let total = hca.policy().total(timeouts).unwrap();
            let packets = ends[id].sends.iter().map(|sent| {
                let mtu = plan.attr.path_mtu.bytes();
                u64::from(sent.message.len.div_ceil(mtu).max(1))
            });
            let steps = packets.sum::<u64>() + 2;
            let step = total + Span::from_nanos(RNR_NS_MAX + WRITE_OFF_NS);
            limit = limit.max(last.after(step * steps));
        }
    }
    // A timer of an earlier policy may run: at most four times the largest timeout.
    let limit = limit.after(Span::from_nanos(4 * (4096 << 16)));
    assert!(
        stage.pair.now <= limit,
        "{:?}, not {limit:?}",
        stage.pair.now
    );
}

fn check_counters(pair: &World, id: usize, scenario: &Scenario) {
    let side = &pair.sides[id];
    let count = |counter| pair.count(id, counter);
    let sum = |counters: &[Counter]| counters.iter().map(|c| count(*c)).sum::<u64>();

    // Packets.
    assert_eq!(count(Counter::RdmaTxPackets), side.sent.0);
    assert_eq!(count(Counter::RdmaTxBytes), side.sent.1);
    assert_eq!(pair.sides[1 - id].sent.0, side.given + side.refused);
    let impossible = [
        Counter::RxUnknownQp,
        Counter::RxWrongPeer,
        Counter::RxWrongPkey,
        Counter::RxWrongService,
        Counter::RxUnexpectedResponse,
        Counter::TxDropped,
        Counter::RespCqeError,
        Counter::ReqRemoteAccessErrors,
        Counter::ReqRemoteInvalidRequest,
        Counter::RespRemoteAccessErrors,
        Counter::RespLocalLengthError,
    ];
    for counter in impossible {
        assert_eq!(count(counter), 0, "{}", counter.name());
    }
    // The impairment counters are those of both directions together.
    if scenario.is_clear(id, Direction::Egress) {
        let damaged = sum(&[Counter::RxIcrcEncapsulated, Counter::RxMalformed]) - side.refused;
        let gone = [
            Counter::RxWrongState,
            Counter::ImpairLost,
            Counter::ImpairQueueFull,
            Counter::ImpairBlackout,
        ];
        let cnps = [Counter::RpCnpHandled, Counter::RpCnpIgnored];
        assert_eq!(
            side.given + count(Counter::ImpairDuplicated),
            count(Counter::RdmaRxPackets) + sum(&cnps) + sum(&gone) + damaged
        );
        assert_eq!(side.damaged, 0);
    }
    if scenario.is_clear(id, Direction::Ingress) {
        assert!(side.damaged >= count(Counter::ImpairCorrupted));
        let peer_marks = scenario.is_clear(1 - id, Direction::Egress);
        assert!(!peer_marks || count(Counter::NpEcnMarkedRocePackets) == 0);
    }

    // Timers.
    let expiries = side.expiries();
    let adaptive: Vec<_> = expiries.iter().filter(|e| e.adaptive && !e.fatal).collect();
    assert_eq!(count(Counter::RoceAdpRetrans), adaptive.len() as u64);
    let config = side.hca.state().histogram_config();
    let mut bins = vec![0; config.bins.into()];
    for TimerExpiry { wait, .. } in adaptive {
        bins[config.bin_of(wait.as_nanos())] += 1;
    }
    assert_eq!(side.hca.state().histogram(), bins);
    let others = count(Counter::LocalAckTimeoutErr) + count(Counter::RoceAdpRetransTo);
    assert_eq!(others + bins.iter().sum::<u64>(), expiries.len() as u64);

    // Completions.
    let with = |recv, wanted: &[WcStatus]| {
        let is = |wc: &&Completion| is_recv(wc) == recv && wanted.contains(&wc.status);
        side.completions.iter().filter(is).count() as u64
    };
    let (retry, rnr) = (WcStatus::RetryExcErr, WcStatus::RnrRetryExcErr);
    let flush = WcStatus::WrFlushErr;
    for (counter, completions) in [
        (Counter::ReqTransportRetriesExceeded, with(false, &[retry])),
        (Counter::ReqRnrRetriesExceeded, with(false, &[rnr])),
        (Counter::ReqCqeError, with(false, &[retry, rnr])),
        (Counter::ReqCqeFlushError, with(false, &[flush])),
        (Counter::RespCqeFlushError, with(true, &[flush])),
    ] {
        assert_eq!(count(counter), completions, "{}", counter.name());
    }

    if scenario.perfect {
        for counter in [
            Counter::RetransmittedPackets,
            Counter::SpuriousRetransmissions,
            Counter::DuplicateRequest,
            Counter::EarlyDuplicateRequest,
            Counter::OutOfSequence,
            Counter::PacketSeqErr,
            Counter::ImpliedNakSeqErr,
            Counter::RnrNakRetryErr,
            Counter::OutOfBuffer,
        ] {
            assert_eq!(count(counter), 0, "{}", counter.name());
        }
        assert!(expiries.is_empty());
    }
}
