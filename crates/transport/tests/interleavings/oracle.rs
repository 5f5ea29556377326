//! The required result of a scenario.

use ferroce_testing::message::{Kind, Posted};
use ferroce_testing::oracle::{check_memory, check_received, check_responses, check_sends};
use ferroce_transport::{Completion, QpState, WcStatus, WorkQueue};

use crate::common::{A, B, Id};
use crate::play::{Outcome, Planned, Stage};

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
        let completions = stage.pair.completions(id, WorkQueue::Send);
        let received = stage.pair.completions(id.peer(), WorkQueue::Recv);
        let sends = stage.posted(id);
        let done = check_sends(completions.iter(), &sends, failed[id as usize]);
        check_receives(stage, id, &received, &sends, failed, done);
        let (peer, target) = (id.peer(), &stage.plans[id.peer() as usize]);
        let base = target.target.va;
        check_responses(&target.before, base, &sends[..done]);
        let actual = stage
            .pair
            .bytes(peer, target.target.part(0, target.target.len));
        let mtu = stage.pair[id].qp.attr().path_mtu.bytes();
        let in_order = stage.pair[peer].qp.lands_in_order();
        check_memory(&target.before, base, &actual, (mtu, in_order), &sends, done);
        check_binds(stage, id, done);
    }
    Outcome {
        completed: failed == [false, false],
    }
}

/// The peer's receives complete in order with the bytes of the messages that consume one: of all
/// messages that are done, and perhaps of further ones.
fn check_receives(
    stage: &Stage,
    id: Id,
    completions: &[Completion],
    sends: &[Posted<'_>],
    failed: [bool; 2],
    done: usize,
) {
    let peer = id.peer();
    let mut expected = sends.iter().filter(|sent| sent.kind.consumes_receive());
    let mut received = 0;
    for wc in completions {
        if wc.status != WcStatus::Success {
            assert!(failed[peer as usize]);
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            continue;
        }
        let sent = expected.next().expect("one message, one receive");
        assert_eq!(wc.wr_id, received);
        let sges = &stage.plans[peer as usize].recvs[wc.wr_id as usize];
        let (bytes, len) = (stage.bytes(peer, sges), check_received(wc, sent));
        assert!(bytes[..len] == sent.bytes[..len], "other bytes");
        received += 1;
    }
    let all = sends[..done].iter();
    let least = all.filter(|sent| sent.kind.consumes_receive()).count();
    assert!(received >= least as u64, "completed but not received");
}

/// Binds are executed in order and once: all that are done, and perhaps further ones.
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
