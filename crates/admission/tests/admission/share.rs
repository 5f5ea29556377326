//! How many queue pairs share the buffer of a peer's socket.

use ferroce_admission::{Bounds, Window};
use ferroce_device::{AccessFlags, HcaConfig, QpState, SendWr, Span};
use ferroce_wire::Qpn;

use ferroce_testing::{A, B, World, attr, config};

const MTU: u64 = 1024;
const MIN: u64 = 64 << 10;

fn devices(qps: usize, peer_bytes: u32) -> (World, Vec<[Qpn; 2]>) {
    let config = HcaConfig {
        window_bytes: 256 << 10,
        ..config()
    };
    let bounds = Bounds {
        window: Window::Fixed(peer_bytes),
        ..Bounds::default()
    };
    let mut pair = World::within([0, 1].map(|_| (config.clone(), bounds)));
    let qps = (0..qps)
        .map(|_| {
            let qpns = [A, B].map(|id| pair.sides[id].create_qp());
            pair.connect(qpns, attr());
            qpns
        })
        .collect();
    (pair, qps)
}

fn write(pair: &mut World, qpn: Qpn, len: usize) {
    let own = pair.sides[A].register(len, AccessFlags::empty());
    let remote = pair.sides[B].register(len, AccessFlags::all());
    pair.post(A, qpn, SendWr::new(0, remote.write(), own.whole()));
}

fn in_flight(pair: &World, qpn: Qpn) -> u64 {
    u64::from(pair.sides[A].hca.qp(qpn).unwrap().in_flight()) * MTU
}

#[test]
fn one_queue_pair_has_its_window_and_many_have_their_share() {
    let (mut pair, qps) = devices(1, 1 << 20);
    write(&mut pair, qps[0][A], 1 << 20);
    pair.settle();
    assert_eq!(in_flight(&pair, qps[0][A]), 256 << 10);
    pair.run();

    let (mut pair, qps) = devices(32, 1 << 20);
    for [a, _] in &qps {
        write(&mut pair, *a, 512 << 10);
    }
    pair.settle();
    let all: u64 = qps.iter().map(|[a, _]| in_flight(&pair, *a)).sum();
    // The first queue pairs started before the others had anything to send.
    assert!(all <= 32 * MIN + (256 << 10), "{all}");
    pair.run_for(20_000);
    for [a, _] in &qps {
        assert!(in_flight(&pair, *a) <= MIN);
    }
    pair.run();
    assert_eq!(pair.sides[A].completions.len(), 32);
}

#[test]
fn a_finished_queue_pair_leaves_its_share_to_the_others() {
    let (mut pair, qps) = devices(5, 512 << 10);
    for [a, _] in &qps {
        write(&mut pair, *a, 16 << 20);
    }
    pair.run_for(20_000);
    pair.sides[A].hca.audit();
    assert!(in_flight(&pair, qps[4][A]) <= 128 << 10);
    // An error, a reset, a destruction, and a peer that does not answer.
    pair.sides[A].move_to(qps[0][A], QpState::Err);
    pair.sides[A].hca.audit();
    pair.sides[A].move_to(qps[1][A], QpState::Reset);
    pair.sides[A].hca.audit();
    pair.sides[A].hca.destroy_qp(qps[2][A]).unwrap();
    pair.sides[A].hca.audit();
    pair.sides[B].hca.destroy_qp(qps[3][B]).unwrap();
    while pair.sides[A].state(qps[3][A]) != QpState::Err {
        pair.run_for(1_000_000);
    }
    pair.sides[A].hca.audit();
    write(&mut pair, qps[4][A], 64 << 20);
    let now = pair.now;
    pair.run_until(now.after(Span::from_nanos(20_000)));
    let largest = in_flight(&pair, qps[4][A]);
    assert!(
        largest > 128 << 10,
        "{largest}: its window is all there is now"
    );
}

#[test]
fn queue_pairs_take_turns() {
    let (mut pair, qps) = devices(3, 2 << 20);
    for [a, _] in &qps {
        write(&mut pair, *a, 200 << 10);
    }
    let mut turns = Vec::new();
    let now = pair.now;
    while let Some(packet) = pair.sides[A].hca.poll_transmit(now) {
        pair.sides[A].hca.audit();
        let qpn = packet.headers.dest_qp;
        match turns.last_mut() {
            Some((last, n)) if *last == qpn => *n += 1,
            _ => turns.push((qpn, 1)),
        }
        // More work in the middle of a turn does not prolong it.
        if turns.len() == 2 {
            let sge = pair.sides[A].register(8, AccessFlags::empty()).whole();
            let wr = SendWr::new(1, ferroce_testing::SEND, sge);
            let _ = pair.sides[A].hca.post_send(qps[0][A], wr);
        }
    }
    assert!(turns.len() >= 9, "{turns:?}");
    assert!(turns.iter().all(|(_, n)| *n <= 64), "{turns:?}");
    let whose: Vec<_> = turns[..6].iter().map(|(qpn, _)| *qpn).collect();
    let [first, second, third] = [0, 1, 2].map(|n| qps[n][B]);
    assert_eq!(whose, [first, second, third, first, second, third]);
}
