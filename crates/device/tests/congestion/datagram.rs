//! Marked datagrams: their sender gets a CNP, and a queue pair without a peer ignores CNPs.

use std::net::IpAddr;

use ferroce_device::{
    AccessFlags, Counter, Data, HcaConfig, Path, Received, SendTo, SendWr, Span, UdAddress,
};
use ferroce_wire::{BthFlags, Deth, Headers, Opcode, Psn, Qpn};

use super::{mark, set};
use ferroce_testing::{A, B, SEND, World};

const QKEY: u32 = 0x1234_5678;
const GROUP: [u8; 4] = [239, 1, 2, 3];
/// [`GROUP`] as a GID.
const MGID: [u8; 16] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
const CE: u8 = 0b11;

/// A device that receives datagrams at a queue pair.
struct Listener {
    pair: World,
    qpn: Qpn,
}

impl Listener {
    fn new(assignments: &[&str]) -> Self {
        let mut pair = World::pair(HcaConfig::default());
        set(&pair.sides[B].hca, assignments);
        let qpn = pair.sides[B].create_ud(QKEY);
        Self { pair, qpn }
    }

    /// Delivers a marked datagram from the queue pair `source_qp`.
    fn hear(&mut self, source: IpAddr, source_qp: Qpn) {
        let dest = self.pair.sides[B].address;
        self.hear_as(source, dest, &datagram(self.qpn, source_qp, QKEY));
    }

    fn hear_as(&mut self, source: IpAddr, dest: IpAddr, headers: &Headers) {
        let received = Received {
            source,
            dest,
            traffic_class: 26 << 2 | CE,
            sl: 0,
            headers,
            data: Data::Length(0),
            port: 1,
        };
        self.pair.sides[B]
            .hca
            .handle_packet(self.pair.now, &received);
    }

    /// The destinations of the CNPs that leave now.
    fn cnps(&mut self) -> Vec<(Path, Qpn)> {
        let (hca, now) = (&mut self.pair.sides[B].hca, self.pair.now);
        let packets = std::iter::from_fn(|| hca.poll_transmit(now));
        let addressed = packets.map(|packet| {
            let headers = packet.headers;
            assert_eq!(headers.opcode(), Opcode::Cnp);
            assert!(headers.flags.contains(BthFlags::BECN));
            (packet.path, headers.dest_qp)
        });
        addressed.collect()
    }
}

fn datagram(to: Qpn, src_qp: Qpn, qkey: u32) -> Headers {
    Headers::datagram(Deth { qkey, src_qp }, None).to(to, Psn::ZERO)
}

fn sender(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

#[test]
fn the_sender_of_a_marked_datagram_gets_a_cnp() {
    let mut listener = Listener::new(&[]);
    listener.hear(sender(77), Qpn::new(0x4_0123));
    let path = Path {
        dest: sender(77),
        traffic_class: 48 << 2,
        sl: 0,
        port: 1,
    };
    assert_eq!(listener.cnps(), [(path, Qpn::new(0x4_0123))]);
    assert_eq!(listener.pair.count(B, Counter::NpEcnMarkedRocePackets), 1);
    assert_eq!(listener.pair.count(B, Counter::NpCnpSent), 1);
}

#[test]
fn a_datagram_sender_ignores_cnps() {
    let mut pair = World::pair(HcaConfig::default());
    let [a, b] = [A, B].map(|side| pair.sides[side].create_ud(QKEY));
    let source = pair.sides[A].register(100, AccessFlags::empty());
    let to = UdAddress {
        path: Path {
            dest: pair.sides[B].address,
            traffic_class: 0,
            sl: 0,
            port: 1,
        },
        qpn: b,
        qkey: QKEY,
    };
    mark(&mut pair, B, 1.0);
    for wr_id in 0..20 {
        let datagram = SendWr {
            to: SendTo::Datagram(to),
            ..SendWr::new(wr_id, SEND, source.whole())
        };
        pair.post(A, a, datagram);
        pair.run_for(10_000);
    }
    assert_eq!(pair.count(B, Counter::NpEcnMarkedRocePackets), 20);
    let answered = pair.count(B, Counter::NpCnpSent);
    assert!(answered > 10, "one in 4 us: {answered}");
    assert_eq!(pair.count(A, Counter::RpCnpIgnored), answered);
    assert_eq!(pair.count(A, Counter::RpCnpHandled), 0);
    let now = pair.now;
    assert_eq!(pair.sides[A].hca.rate_limit(a, now), None);
    assert_eq!(pair.sides[A].sent.0, 20);
}

#[test]
fn the_interval_is_the_ports_or_the_senders_queue_pairs() {
    let senders = [(1, 0x100), (1, 0x101), (9, 0x100)].map(|(last, qpn)| (sender(last), qpn));
    for (moderation, answered) in [("1", 1), ("2", 3)] {
        let choice = format!("ROCE_CC_CNP_MODERATION={moderation}");
        let mut listener = Listener::new(&[&choice, "min_time_between_cnps=50"]);
        for interval in 0..3 {
            for _ in 0..4 {
                for (source, qpn) in senders {
                    listener.hear(source, Qpn::new(qpn));
                }
                listener.pair.now = listener.pair.now.after(Span::from_nanos(12_500));
            }
            let cnps = listener.cnps();
            assert_eq!(cnps.len(), answered, "{choice}, interval {interval}");
        }
    }
}

#[test]
fn a_sender_s_cnp_interval_covers_all_queue_pairs_it_writes_to() {
    let mut listener = Listener::new(&["ROCE_CC_CNP_MODERATION=2"]);
    let other = listener.pair.sides[B].create_ud(QKEY);
    let dest = listener.pair.sides[B].address;
    for to in [listener.qpn, other] {
        let headers = datagram(to, Qpn::new(0x100), QKEY);
        listener.hear_as(sender(1), dest, &headers);
    }
    assert_eq!(listener.cnps().len(), 1);
}

#[test]
fn the_number_of_cnps_to_outsiders_is_bounded() {
    let mut listener = Listener::new(&["ROCE_CC_CNP_MODERATION=2"]);
    let mut answered = 0;
    for qpn in 2..5_000 {
        listener.hear(sender(1), Qpn::new(qpn));
        answered += listener.cnps().len();
    }
    assert!((200..=256).contains(&answered), "{answered} at one moment");
}

#[test]
fn a_group_and_a_wrong_queue_key_are_not_answered() {
    let mut listener = Listener::new(&[]);
    let hca = &mut listener.pair.sides[B].hca;
    hca.attach_mcast(listener.qpn, MGID).unwrap();
    let to_group = datagram(Qpn::MULTICAST, Qpn::new(0x100), QKEY);
    listener.hear_as(sender(1), GROUP.into(), &to_group);
    let dest = listener.pair.sides[B].address;
    let wrong_key = datagram(listener.qpn, Qpn::new(0x100), QKEY + 1);
    listener.hear_as(sender(1), dest, &wrong_key);
    assert_eq!(listener.cnps(), []);
    assert_eq!(listener.pair.count(B, Counter::NpEcnMarkedRocePackets), 2);
    assert_eq!(listener.pair.count(B, Counter::RxMulticastPackets), 1);
    assert_eq!(listener.pair.count(B, Counter::RxWrongQkey), 1);
}

#[test]
fn marked_datagrams_are_only_counted_while_disabled() {
    // The priority of DSCP 26 is 3.
    let mut listener = Listener::new(&["roce_np/enable/3=0"]);
    listener.hear(sender(1), Qpn::new(0x100));
    assert_eq!(listener.cnps(), []);
    assert_eq!(listener.pair.count(B, Counter::NpEcnMarkedRocePackets), 1);
}
