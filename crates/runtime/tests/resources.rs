//! What processes report of their objects.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Link, Node, Over, Place, address, attr};
use ferroce_registry::{Answer, Inquiry, Observer, QpRow, Query, QueryError, Registry, Resource};
use ferroce_wire::cm::{PortSpace, ServiceId};

const LEN: usize = 4096;

fn attach(directory: &Path) -> Node {
    Node::attach(&Registry::at(directory).unwrap(), "a", LEN)
}

fn observe(directory: &Path) -> Observer {
    Registry::at(directory).unwrap().observe("a").unwrap()
}

fn qps(observer: &Observer, slot: u8) -> Vec<QpRow> {
    let rows = observer.query(slot, Query::Qp).unwrap();
    let rows = rows.into_iter().map(|row| match row {
        Resource::Qp(row) => row,
        other => panic!("{other:?}"),
    });
    rows.collect()
}

#[test]
fn processes_report_their_objects_until_they_are_killed() {
    let place = Place::with_device(address(140, 0, 0));
    let mut child = place.start("a", LEN, "target");
    let node = attach(place.path());
    let attr = attr();
    let Link { qpn, peer, .. } = child.meet(&node, &attr);
    let observer = observe(place.path());
    let processes = observer.processes().unwrap();
    assert_eq!(processes.len(), 2);

    let process = processes.iter().find(|p| p.slot != node.device.slot());
    let process = process.unwrap();
    let rows = qps(&observer, process.slot);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.pid, &row.comm), (process.pid, &process.comm));
    assert_eq!((row.lqpn, row.rqpn), (peer.qpn.value(), Some(qpn.value())));
    assert_eq!((row.qp_type.as_str(), row.state.as_str()), ("RC", "RTS"));
    assert_eq!(row.peer, Some(node.device.address().ip()));
    assert_eq!((row.timeout, row.retry_cnt), (attr.timeout, attr.retry_cnt));
    assert_eq!((row.retries_left, row.in_flight), (attr.retry_cnt, 0));
    assert_eq!((row.send_queue, row.recv_queue), (0, 1));
    assert_eq!(row.sq_psn, peer.psn.value());
    assert!(row.wait_ns.is_some_and(|wait| wait > 0));

    // A query takes nothing from the process, and dead processes do not answer.
    assert_eq!(qps(&observer, process.slot), rows);
    child.kill();
    let gone = observer.query(process.slot, Query::Qp);
    assert!(matches!(gone, Err(QueryError::Gone { .. })), "{gone:?}");
    assert_eq!(observer.processes().unwrap().len(), 1);
    let nobody = observer.query(200, Query::Pd);
    assert!(matches!(nobody, Err(QueryError::Gone { slot: 200 })));
}

/// The answer does not depend on the program's activity.
#[test]
fn a_process_answers_whatever_its_program_does() {
    let place = Place::with_device(address(140, 1, 0));
    let node = attach(place.path());
    let slot = node.device.slot();
    let observer = observe(place.path());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                node.device.progress();
            }
        });
        let _over = Over(&over);
        for _ in 0..100 {
            assert_eq!(observer.query(slot, Query::Cq).unwrap().len(), 1);
        }
    });
    for _ in 0..100 {
        assert_eq!(observer.query(slot, Query::Mr).unwrap().len(), 1);
    }
}

/// A silent process delays the answers of the others only for the given time, and only once.
#[test]
fn a_silent_process_is_not_waited_for_again() {
    let place = Place::with_device(address(140, 3, 0));
    let (held, other) = (attach(place.path()), attach(place.path()));
    let observer = observe(place.path());
    let processes = observer.processes().unwrap();
    let slots: Vec<_> = processes.iter().map(|process| process.slot).collect();
    assert_eq!(slots, [held.device.slot(), other.device.slot()]);
    let questions: Vec<_> = processes.iter().map(|it| (&observer, it)).collect();
    let mut inquiry = Inquiry::default();
    let mut ask = |patience_s| {
        let until = Instant::now() + Duration::from_secs(patience_s);
        let answers = inquiry.ask(&questions, Query::Mr, until);
        <[Answer; 2]>::try_from(answers).unwrap()
    };
    // The device is locked, so nothing answers. Waiting for an hour would be noticed.
    held.device.with(|_| {
        for patience_s in [5, 3600] {
            let [silent, told] = ask(patience_s);
            assert!(matches!(silent, Err(QueryError::Silent { slot }) if slot == slots[0]));
            assert_eq!(told.unwrap().len(), 1);
        }
    });
    while ask(2).iter().any(Result::is_err) {}
}

#[test]
fn every_kind_of_object_has_its_rows() {
    let place = Place::with_device(address(140, 2, 0));
    let node = attach(place.path());
    let (slot, qpn) = (node.device.slot(), node.qp());
    let service = ServiceId::new(PortSpace::Tcp, 7471);
    let srqn = node.device.with(|hca| {
        let srq = hca.create_srq(node.pd, 16, 1).unwrap();
        hca.cm_mut().listen(service, 8).unwrap();
        hca.srq_number(srq).unwrap()
    });
    let observer = observe(place.path());
    let one = |query| {
        let rows = observer.query(slot, query).unwrap();
        assert_eq!(rows, node.device.resources(query), "{query:?}");
        let [row] = <[Resource; 1]>::try_from(rows).unwrap();
        row
    };
    match one(Query::Qp) {
        Resource::Qp(row) => {
            assert_eq!((row.lqpn, row.state.as_str()), (qpn.value(), "RESET"));
            assert_eq!((row.rqpn, row.peer), (None, None));
        }
        other => panic!("{other:?}"),
    }
    match one(Query::Mr) {
        Resource::Mr(row) => {
            assert_eq!((row.rkey, row.iova), (node.mr.key.rkey(), node.mr.va));
            assert_eq!((row.mrlen, row.pdn), (LEN as u64, node.pd.0));
        }
        other => panic!("{other:?}"),
    }
    match one(Query::Cq) {
        Resource::Cq(row) => assert_eq!((row.cqe, row.users), (1 << 16, 1)),
        other => panic!("{other:?}"),
    }
    match one(Query::Pd) {
        Resource::Pd(row) => assert_eq!((row.pdn, row.users), (node.pd.0, 3)),
        other => panic!("{other:?}"),
    }
    match one(Query::Srq) {
        Resource::Srq(row) => assert_eq!((row.srqn, row.max_wr), (srqn.value(), 16)),
        other => panic!("{other:?}"),
    }
    match one(Query::CmId) {
        Resource::CmId(row) => {
            assert_eq!((row.state.as_str(), row.src_port), ("LISTEN", Some(7471)));
            assert_eq!(row.ps.as_deref(), Some("TCP"));
            assert_eq!(row.src_addr, node.device.address().ip());
        }
        other => panic!("{other:?}"),
    }
    match one(Query::Count) {
        Resource::Count(counts) => {
            let all = [counts.pd, counts.cq, counts.qp, counts.cm_id, counts.mr];
            assert_eq!((all, counts.srq, counts.ctx), ([1; 5], 1, 1));
            assert_eq!((counts.qp_states.reset, counts.qp_states.sum()), (1, 1));
        }
        other => panic!("{other:?}"),
    }
}
