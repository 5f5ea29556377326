//! Limits on what peers can make the connection manager keep, and for how long: each test reaches
//! one.

use std::net::IpAddr;

use ferroce_device::cm::{CmError, CmEventKind, CommId, Overload};
use ferroce_device::{Counter, Event};
use ferroce_wire::cm::{Answered, Bits, Dreq, Mra, Private, RejectReason, Req, SidrReq};
use ferroce_wire::{Psn, Qpn};

use super::net::{A, B, MS, Net, S, SERVICE, WAIT_NS, address, req_of};

const CONNECTIONS_MAX: usize = 65_536;
const OF_SOURCE_MAX: usize = 4_096;
const LETTERS_MAX: usize = 4_096;

fn source(n: usize) -> IpAddr {
    IpAddr::from([10, 9, (n >> 8) as u8, n as u8])
}

/// A request with the longest timeouts.
fn req(from: IpAddr, name: u32) -> Req {
    Req {
        local_comm_id: name,
        service_id: SERVICE,
        qpn: Qpn::new(0x10_0000 + name),
        starting_psn: Psn::new(1),
        remote_response_timeout: Bits::MAX,
        local_response_timeout: Bits::MAX,
        ack_timeout: Bits::MAX,
        max_cm_retries: Bits::MAX,
        ..req_of(from)
    }
}

/// A single device that listens with this backlog.
fn listener(backlog: u32) -> Net {
    let mut net = Net::of(1);
    net.world.sides[A]
        .hca
        .cm_mut()
        .listen(SERVICE, backlog)
        .unwrap();
    net
}

fn next_request(net: &mut Net) -> Option<CommId> {
    let event = net.world.sides[A].hca.poll_cm_event()?;
    let is_request = matches!(
        event.kind,
        CmEventKind::Request { .. } | CmEventKind::SidrRequest { .. }
    );
    assert!(is_request, "{event:?}");
    Some(event.comm)
}

fn refuse(net: &mut Net, comm: CommId) {
    let (now, reason) = (net.world.now, RejectReason::CONSUMER);
    let cm = net.world.sides[A].hca.cm_mut();
    cm.reject(now, comm, reason, Private::default()).unwrap();
    cm.destroy(now, comm).unwrap();
}

fn told(net: &mut Net) -> Vec<(IpAddr, Overload)> {
    let dropped = |event| match event {
        Event::RequestDropped { source, cause, .. } => Some((source, cause)),
        _ => None,
    };
    net.told(A).into_iter().filter_map(dropped).collect()
}

/// Rejected requests fill the table, and the listener still receives the next one; a minute later
/// the table is empty.
#[test]
fn a_flood_of_requests_does_not_block_a_listener() {
    let mut net = listener(16);
    for n in 0..CONNECTIONS_MAX + 1_000 {
        net.flood(
            source(n / 4_000),
            A,
            7,
            req(source(n / 4_000), 1 + n as u32),
        );
        let comm = next_request(&mut net).expect("the listener hears");
        refuse(&mut net, comm);
        net.flush(A);
    }
    net.world.sides[A].hca.audit();
    assert_eq!(net.count(A), CONNECTIONS_MAX);
    assert_eq!(net.counter(A, Counter::CmForgotten), 1_000);
    assert_eq!(told(&mut net), []);
    net.run(60 * S);
    assert_eq!(net.count(A), 0);
}

/// A source displaces its own remnants, not those of others.
#[test]
fn a_source_displaces_only_its_own_remnants() {
    let mut net = listener(16);
    net.flood(source(9), A, 7, req(source(9), 1));
    let comm = next_request(&mut net).unwrap();
    refuse(&mut net, comm);
    for n in 0..2 * OF_SOURCE_MAX {
        net.flood(source(1), A, 7, req(source(1), 2 + n as u32));
        let comm = next_request(&mut net).unwrap();
        refuse(&mut net, comm);
    }
    net.world.sides[A].hca.audit();
    assert_eq!(net.count(A), 1 + OF_SOURCE_MAX);
    let forgotten = net.counter(A, Counter::CmForgotten);
    assert_eq!(forgotten, OF_SOURCE_MAX as u64);
    // The first one is still answered with the program's own rejection.
    net.settle();
    net.seen.clear();
    net.inject(source(9), A, 7, req(source(9), 1));
    net.settle();
    assert_eq!(net.seen.len(), 1);
    assert_eq!(next_request(&mut net), None);
}

#[test]
fn requests_that_wait_are_limited_by_source_and_backlog() {
    let mut net = listener(OF_SOURCE_MAX as u32 + 2);
    for n in 0..OF_SOURCE_MAX + 100 {
        net.flood(source(1), A, 7, req(source(1), 1 + n as u32));
    }
    assert_eq!(net.count(A), OF_SOURCE_MAX);
    assert_eq!(net.counter(A, Counter::CmSourceLimit), 100);
    // There is room for other sources, up to the backlog; datagrams count as well.
    for n in 0..10 {
        let sidr = SidrReq {
            request_id: n,
            service_id: SERVICE,
            ..SidrReq::default()
        };
        net.flood(source(2), A, 7, sidr);
    }
    net.world.sides[A].hca.audit();
    assert_eq!(net.count(A), OF_SOURCE_MAX + 2);
    assert_eq!(net.counter(A, Counter::CmBacklogFull), 8);
    // Each is reported once.
    let expected = [
        (source(1), Overload::Source),
        (source(2), Overload::Backlog),
    ];
    assert_eq!(told(&mut net), expected);
    // Waiting requests count towards the backlog of the next listener as well.
    net.world.sides[A].hca.cm_mut().unlisten(SERVICE).unwrap();
    net.world.sides[A]
        .hca
        .cm_mut()
        .listen(SERVICE, 4_098)
        .unwrap();
    net.inject(source(2), A, 7, req(source(2), 1));
    assert_eq!(net.counter(A, Counter::CmBacklogFull), 9);
}

/// One that asks without pause leaves room for a request of each other one, and for no more than the backlog
/// once again.
#[test]
fn a_source_that_fills_the_backlog_keeps_no_other_out() {
    let mut net = listener(16);
    for n in 0..1_000 {
        net.flood(source(1), A, 7, req(source(1), 1 + n));
    }
    assert_eq!(net.count(A), 16);
    for n in 2..12 {
        net.flood(source(n), A, 7, req(source(n), 1));
        net.flood(source(n), A, 7, req(source(n), 2));
        net.flood(source(1), A, 7, req(source(1), 1_000 + n as u32));
    }
    net.world.sides[A].hca.audit();
    assert_eq!(net.count(A), 16 + 10);
    for n in 12..50 {
        net.flood(source(n), A, 7, req(source(n), 1));
    }
    net.world.sides[A].hca.audit();
    assert_eq!(net.count(A), 2 * 16);
    // Each source that waits no more has room again.
    while let Some(comm) = next_request(&mut net) {
        refuse(&mut net, comm);
    }
    net.flood(source(1), A, 7, req(source(1), 5_000));
    assert!(next_request(&mut net).is_some());
    net.world.sides[A].hca.audit();
}

/// Connections that a program owns are never dropped.
#[test]
fn the_number_of_connections_is_limited() {
    let mut net = listener(16);
    for n in 0..CONNECTIONS_MAX {
        net.flood(
            source(n / 4_000),
            A,
            7,
            req(source(n / 4_000), 1 + n as u32),
        );
        let comm = next_request(&mut net).unwrap();
        let (now, reply) = (net.world.now, net.reply(0x222));
        net.world.sides[A]
            .hca
            .cm_mut()
            .accept(now, comm, &reply)
            .unwrap();
    }
    net.world.sides[A].hca.audit();
    assert_eq!(net.count(A), CONNECTIONS_MAX);
    // The outgoing messages were not drained.
    let lost = net.counter(A, Counter::CmTxDropped);
    assert_eq!(lost, (CONNECTIONS_MAX - LETTERS_MAX) as u64);
    net.flood(source(99), A, 7, req(source(99), 1));
    assert_eq!(next_request(&mut net), None);
    assert_eq!(net.counter(A, Counter::CmTableFull), 1);
    assert_eq!(told(&mut net), [(source(99), Overload::Table)]);
    let request = net.request(A, B, 0x111);
    let now = net.world.now;
    assert_eq!(
        net.world.sides[A].hca.cm_mut().connect(now, &request),
        Err(CmError::TooMany {
            max: CONNECTIONS_MAX
        })
    );
    // A connection that its program destroys makes room.
    let comm = net.world.sides[A]
        .hca
        .cm()
        .connections()
        .next()
        .unwrap()
        .comm;
    net.world.sides[A].hca.cm_mut().destroy(now, comm).unwrap();
    net.flood(source(99), A, 7, req(source(99), 1));
    assert!(next_request(&mut net).is_some());
    net.world.sides[A].hca.audit();
}

/// Whatever a peer writes into its messages, the next timer is at most two minutes away.
#[test]
fn no_peer_sets_a_timer_for_hours() {
    let deadline = |net: &Net| {
        net.world.sides[A].hca.audit();
        let next = net.world.sides[A].hca.poll_timeout().unwrap();
        next.since(net.world.now).as_nanos() / S
    };
    // A repeated answer.
    let mut net = listener(1);
    net.inject(source(1), A, 7, req(source(1), 1));
    let comm = next_request(&mut net).unwrap();
    let (now, reply) = (net.world.now, net.reply(0x222));
    net.world.sides[A]
        .hca
        .cm_mut()
        .accept(now, comm, &reply)
        .unwrap();
    assert_eq!(deadline(&net), 60);
    // A peer that asks for time.
    let mra = Mra {
        local_comm_id: 1,
        remote_comm_id: comm.0,
        answered: Answered::Rep.into(),
        service_timeout: Bits::MAX,
        ..Mra::default()
    };
    net.inject(source(1), A, 7, mra);
    assert_eq!(deadline(&net), 120);
    // A disconnect.
    let dreq = Dreq {
        local_comm_id: 1,
        remote_comm_id: comm.0,
        remote_qpn: Qpn::new(0x222),
        ..Dreq::default()
    };
    net.inject(source(1), A, 7, dreq);
    net.disconnect(A, comm).unwrap();
    assert_eq!(deadline(&net), 60);
    net.destroy(A, comm);
    net.run(60 * S);
    assert_eq!(net.count(A), 0);
}

/// A peer that asks for the longest waits and the most retries, and for more time whenever it can,
/// and then answers neither the REP nor the DREQ.
#[test]
fn a_connection_is_half_open_for_two_minutes_at_most() {
    let silent = |net: &mut Net, comm: CommId, answered: Answered| {
        let mra = Mra {
            local_comm_id: 1,
            remote_comm_id: comm.0,
            answered: answered.into(),
            service_timeout: Bits::MAX,
            ..Mra::default()
        };
        let begun = net.world.now;
        loop {
            net.run(S);
            net.inject(source(1), A, 7, mra);
            let waited = net.world.now.since(begun).as_nanos();
            if let Some(event) = net.world.sides[A].hca.poll_cm_event() {
                return (event.kind, waited.div_ceil(S));
            }
            assert!(waited < 1_000 * S);
        }
    };
    let mut net = listener(1);
    net.inject(source(1), A, 7, req(source(1), 1));
    let comm = next_request(&mut net).unwrap();
    let (now, reply) = (net.world.now, net.reply(0x222));
    let cm = net.world.sides[A].hca.cm_mut();
    cm.accept(now, comm, &reply).unwrap();
    let unreachable = (CmEventKind::Unreachable, 120);
    assert_eq!(silent(&mut net, comm, Answered::Rep), unreachable);

    net.inject(source(1), A, 7, req(source(1), 2));
    let comm = next_request(&mut net).unwrap();
    let (now, reply) = (net.world.now, net.reply(0x222));
    let cm = net.world.sides[A].hca.cm_mut();
    cm.accept(now, comm, &reply).unwrap();
    cm.establish(comm).unwrap();
    net.events(A);
    net.disconnect(A, comm).unwrap();
    let timeout = (CmEventKind::DisconnectTimeout, 120);
    assert_eq!(silent(&mut net, comm, Answered::Other), timeout);
}

/// One extension for each request; further MRAs about the same message change nothing.
#[test]
fn a_peer_may_extend_a_timeout_once_for_each_message() {
    let mut net = Net::new();
    let active = net.connect(0x111);
    net.until_request();
    net.kill(B);
    let mra = Mra {
        local_comm_id: 1,
        remote_comm_id: active.0,
        answered: Answered::Req.into(),
        service_timeout: Bits::saturating(20),
        ..Mra::default()
    };
    let tid = net.seen[0].mad.tid;
    let begun = net.world.now;
    while net.events(A).is_empty() {
        net.inject(address(B), A, tid, mra);
        net.run(100 * MS);
        assert!(net.world.now.since(begun).as_nanos() < 1_000 * S);
    }
    let waited = net.world.now.since(begun).as_nanos();
    // The wait for an answer 16 times, and one extension of 4.096 µs · 2^20.
    let expected = 16 * WAIT_NS + (4_096 << 20);
    assert!(waited.abs_diff(expected) <= 200 * MS, "{waited}");
}

#[test]
fn messages_for_unknown_connections_are_counted() {
    let mut net = Net::new();
    let [_, passive] = net.connected([0x111, 0x222]);
    assert_eq!(net.counter(B, Counter::CmUnmatched), 0);
    let dreq = |local_comm_id, remote_comm_id, qpn| Dreq {
        local_comm_id,
        remote_comm_id,
        remote_qpn: Qpn::new(qpn),
        ..Dreq::default()
    };
    let active = 0x0100_0000;
    for (stranger, message) in [
        (source(1), dreq(active, passive.0, 0x222)),
        (address(A), dreq(active, passive.0 + 1, 0x222)),
        (address(A), dreq(1, passive.0, 0x222)),
    ] {
        net.inject(stranger, B, 7, message);
    }
    assert_eq!(net.counter(B, Counter::CmUnmatched), 3);
}
