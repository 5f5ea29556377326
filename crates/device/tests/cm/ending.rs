//! The end of a connection is reported after the completions before it, as with a card, where a
//! completion is in memory long before a DREQ has passed the kernel.

use ferroce_device::cm::{CmEventKind, CommId};
use ferroce_device::{Qpn, SendFlags, SendOp, WcStatus};
use ferroce_testing::side::{attr, local};

use super::net::{A, B, MS, Net};

/// Two queue pairs that are connected through the connection managers. B's completions are not
/// polled automatically.
struct Pair {
    net: Net,
    qpns: [Qpn; 2],
    comms: [CommId; 2],
}

impl Pair {
    fn new() -> Self {
        let mut net = Net::new();
        let qpns = [A, B].map(|side| net.world.sides[side].create_qp());
        let comms = net.connected(qpns.map(Qpn::value));
        net.world.connect(qpns, attr());
        net.world.sides[B].watch_nothing();
        net.told(B);
        // From here on, not only messages of the connection manager are on the wire.
        net.world.log = None;
        Self { net, qpns, comms }
    }

    /// B sends an empty message, which A has a receive for.
    fn send(&mut self) {
        let region = self.net.world.sides[A].register(64, ferroce_device::AccessFlags::all());
        self.net.world.sides[A].recv(self.qpns[A], 1, &region);
        let op = SendOp::Send { imm: None };
        let wr = local(7, SendFlags::SIGNALED, op);
        self.net.world.post(B, self.qpns[B], wr);
    }

    fn disconnect(&mut self, side: usize) {
        self.net.disconnect(side, self.comms[side]).unwrap();
    }

    fn run(&mut self, ns: u64) {
        self.net.world.run_for(ns);
        self.net.world.sides[B].hca.audit();
    }

    /// The status of B's first completion.
    fn poll(&mut self) -> Option<WcStatus> {
        let side = &mut self.net.world.sides[B];
        let completion = side.hca.poll_completion(side.cq).unwrap();
        completion.map(|completion| completion.status)
    }

    /// The events that B's program takes, in the way of hosts: after being told that there are
    /// some.
    fn hears(&mut self) -> Vec<CmEventKind> {
        let announced = self.net.announced(B);
        let events = self.net.events(B);
        assert_eq!(announced, usize::from(!events.is_empty()));
        events
    }

    fn is_told(&mut self) -> bool {
        let events = self.hears();
        matches!(events[..], [CmEventKind::Disconnected { .. }])
    }
}

/// In one batch: A's acknowledgement and DREQ leave at the same time.
#[test]
fn a_completion_of_the_same_batch_comes_first() {
    let mut pair = Pair::new();
    pair.send();
    pair.run(15_000); // the message has arrived, its acknowledgement not
    assert_eq!(pair.poll(), None);
    pair.disconnect(A);
    pair.run(MS);
    assert_eq!(pair.hears(), []);
    assert_eq!(pair.poll(), Some(WcStatus::Success));
    assert!(pair.is_told());
}

/// In two batches: the acknowledgement came much earlier.
#[test]
fn a_completion_of_an_earlier_batch_comes_first() {
    let mut pair = Pair::new();
    pair.send();
    pair.run(MS);
    pair.disconnect(A);
    pair.run(MS);
    assert_eq!(pair.hears(), []);
    assert_eq!(pair.poll(), Some(WcStatus::Success));
    assert!(pair.is_told());
}

#[test]
fn the_end_is_reported_at_once_if_everything_was_polled() {
    let mut pair = Pair::new();
    pair.send();
    pair.run(MS);
    assert_eq!(pair.poll(), Some(WcStatus::Success));
    pair.disconnect(A);
    pair.run(11_000); // the latency of the wire
    assert!(pair.is_told());
}

/// A program that does not poll gets the event as well, and its peer gets the DREP.
#[test]
fn the_end_is_reported_after_100_ms_without_a_poll() {
    let mut pair = Pair::new();
    pair.send();
    pair.run(MS);
    pair.disconnect(A);
    pair.run(100 * MS);
    assert_eq!(pair.hears(), []);
    pair.run(MS / 10);
    assert!(pair.is_told());
    assert_eq!(pair.poll(), Some(WcStatus::Success));
    pair.disconnect(B);
    pair.run(MS);
    let events = pair.net.events(A);
    let [CmEventKind::DisconnectReply { .. }] = events[..] else {
        panic!("{events:?}");
    };
}

/// A program that also disconnects need not wait, and gets the events in order.
#[test]
fn the_end_is_reported_at_once_if_both_sides_disconnect() {
    let mut pair = Pair::new();
    pair.send();
    pair.run(MS);
    pair.disconnect(A);
    pair.run(MS);
    assert_eq!(pair.hears(), []);
    pair.disconnect(B);
    pair.run(0);
    assert!(pair.is_told());
}

#[test]
fn the_end_of_a_destroyed_connection_is_not_reported() {
    let mut pair = Pair::new();
    pair.send();
    pair.run(MS);
    pair.disconnect(A);
    pair.run(MS);
    pair.net.destroy(B, pair.comms[B]);
    pair.run(200 * MS);
    assert_eq!(pair.hears(), []);
}
