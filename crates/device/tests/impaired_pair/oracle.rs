//! The required result of a scenario, from executing its messages one after the other.

use ferroce_device::{Completion, Counter, Direction, QpState, Span, Time, TimerExpiry, WcStatus};
use ferroce_testing::message::Posted;
use ferroce_testing::oracle::{
    check_memory, check_received, check_responses, check_sends, is_recv,
};
use ferroce_testing::{A, B, World};

use crate::play::{End, Outcome, Recv, Stage};
use crate::scenario::{Plan, RNR_NS_MAX, Scenario};

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
            let done = check_messages(stage, nth, id, failed, scenario);
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

/// Returns how many messages of one end are known to be done.
fn check_messages(
    stage: &mut Stage,
    nth: usize,
    id: usize,
    failed: [bool; 2],
    scenario: &Scenario,
) -> usize {
    let Stage { pair, ends, recvs } = stage;
    let peer = 1 - id;
    let attr = &scenario.qps[nth].attr;
    let (own, other) = (&ends[nth][id], &ends[nth][peer]);
    let sends = own.posted();
    let of_send_queue = |wc: &&Completion| wc.qpn == own.qpn && !is_recv(wc);
    let completions = pair.sides[id].completions.iter().filter(of_send_queue);
    let gave_up = |wc: &Completion| wc.status == WcStatus::RnrRetryExcErr;
    assert!(attr.rnr_retry < 7 || !completions.clone().any(gave_up));
    let done = check_sends(completions, &sends, failed[id]);
    let of_receive_queue = |wc: &&Completion| wc.qpn == other.qpn && is_recv(wc);
    let completions = pair.sides[peer].completions.iter().filter(of_receive_queue);
    check_receives(completions, &mut recvs[peer], &sends, failed[peer], done);
    let base = other.target.info.va;
    check_responses(&other.before, base, &sends[..done]);
    let (actual, mtu) = (other.target.bytes(), attr.path_mtu.bytes());
    let in_order = !scenario.routed[peer];
    check_memory(&other.before, base, &actual, (mtu, in_order), &sends, done);
    done
}

/// The peer's receives complete in order with the bytes of the messages that consume one: of all
/// messages that are done, and perhaps of further ones.
fn check_receives<'a>(
    completions: impl Iterator<Item = &'a Completion>,
    recvs: &mut [Recv],
    sends: &[Posted<'_>],
    failed: bool,
    done: usize,
) {
    let mut expected = sends.iter().filter(|sent| sent.kind.consumes_receive());
    let mut received = 0;
    let mut last = None;
    for wc in completions {
        let recv = &mut recvs[wc.wr_id as usize];
        assert!(!recv.used, "completed twice");
        recv.used = true;
        assert!(recv.qpn.is_none_or(|own| own == wc.qpn));
        assert!(last < Some(wc.wr_id), "out of order");
        last = Some(wc.wr_id);
        if wc.status != WcStatus::Success {
            assert!(failed);
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            continue;
        }
        let sent = expected.next().expect("one message, one receive");
        let (bytes, len) = (recv.region.bytes(), check_received(wc, sent));
        assert!(bytes[..len] == sent.bytes[..len], "other bytes");
        assert!(bytes[len..].iter().all(|byte| *byte == 0), "more bytes");
        received += 1;
    }
    let all = sends[..done].iter();
    let least = all.filter(|sent| sent.kind.consumes_receive()).count();
    assert!(received >= least, "completed but not received");
}

/// After the last event of the scenario, a queue pair keeps making progress or fails, each time
/// within its total timeout and that of the queue pairs which have the room that it waits for.
fn check_time(stage: &Stage, scenario: &Scenario, last: Time) {
    let mut limit = last;
    for id in [A, B] {
        let hca = &stage.pair.sides[id].hca;
        let total = |ends: &[End; 2], plan: &Plan| {
            let mut timeouts = hca.qp(ends[id].qpn).unwrap().timeouts();
            timeouts.timeout = plan.attr.timeout;
            timeouts.retry_cnt = plan.attr.retry_cnt;
            hca.policy().total(timeouts).unwrap()
        };
        let qps = || stage.ends.iter().zip(&scenario.qps);
        let room = qps().map(|(ends, plan)| total(ends, plan)).max();
        for (ends, plan) in qps() {
            let packets = ends[id].sends.iter().map(|sent| {
                let mtu = plan.attr.path_mtu.bytes();
                u64::from(sent.message.len.div_ceil(mtu).max(1))
            });
            let steps = packets.sum::<u64>() + 2;
            let room = room.unwrap_or_default();
            let step = total(ends, plan) + Span::from_nanos(RNR_NS_MAX) + room;
            limit = limit.max(last.after(step * steps));
        }
    }
    // A timer of an earlier policy may run: at most four times the largest timeout.
    let limit = limit.after(Span::from_nanos(4 * (4096 << 16)));
    let completions = stage.pair.sides.iter().flat_map(|side| &side.completions);
    let completed = completions.map(|wc| wc.timestamp).max();
    let ended = completed.unwrap_or(last).max(stage.pair.sent_at);
    assert!(ended <= limit, "{ended:?}, not {limit:?}");
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
        let cnps = sum(&[Counter::RpCnpHandled, Counter::RpCnpIgnored]);
        //= F13: these are not packets.
        let cnps = cnps - count(Counter::RoceSlowRestartCnps);
        assert_eq!(
            side.given + count(Counter::ImpairDuplicated),
            count(Counter::RdmaRxPackets) + cnps + sum(&gone) + damaged
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
        (Counter::ReqCqeError, with(false, &[retry, rnr, flush])),
        (Counter::ReqCqeFlushError, with(false, &[flush])),
        (Counter::RespCqeError, with(true, &[flush])),
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
