//! Two ends on a network of two queues: writes arrive in their order, at any time, and each is
//! done at its sender at any time after that.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const SIZES: Sizes = Sizes {
    send_buffer: 4096,
    recv_buffer: 4096,
    send_queue: 16,
    recv_queue: 8,
    inline: 64,
    maps: 0,
};

/// Keys of an end's memory: its receive buffer and the places of offers.
const BUFFER: u32 = 1;
const OFFERS_KEY: u32 = 2;
/// Addresses are near the end of what there is.
const BASE: u64 = u64::MAX - (1 << 20);

/// What a completion is of.
#[derive(Clone, Copy)]
enum Done {
    Data(u32),
    Control,
    Heard(Message),
}

struct Write {
    message: Message,
    bytes: Vec<u8>,
    to: Place,
    done: Done,
}

struct Node {
    flow: Flow,
    sizes: Sizes,
    buffer: Vec<u8>,
    offers: [Target; OFFERS],
    /// On their way to the other end.
    writes: VecDeque<Write>,
    completions: VecDeque<Done>,
    receives: u16,
    /// Bytes that were sent, and read.
    sent: usize,
    read: usize,
    ended: Option<End>,
}

/// The byte at this place of what an end sends.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

impl Node {
    fn new(sizes: Sizes) -> Self {
        Self {
            flow: Flow::new(sizes),
            sizes,
            buffer: vec![0; sizes.recv_buffer as usize],
            offers: Default::default(),
            writes: VecDeque::new(),
            completions: VecDeque::new(),
            receives: sizes.receives(),
            sent: 0,
            read: 0,
            ended: None,
        }
    }

    fn hello(&self, is_big_endian: bool) -> Hello {
        let target = |key, length| Target {
            addr: BASE,
            key,
            length,
        };
        Hello {
            is_big_endian,
            limit: self.sizes.recv_queue,
            maps: 0,
            offers: target(OFFERS_KEY, OFFERS as u32),
            buffer: target(BUFFER, self.sizes.recv_buffer / 2),
        }
    }

    /// Takes up to `count` completions, and tells the peer what it may.
    fn poll(&mut self, count: usize) {
        for _ in 0..count.min(self.completions.len()) {
            match self.completions.pop_front() {
                Some(Done::Data(length)) => self.flow.data_is_done(length),
                Some(Done::Control) => self.flow.control_is_done(),
                Some(Done::Heard(message)) => {
                    self.receives += 1;
                    self.ended = self.flow.hear(message).or(self.ended);
                }
                None => {}
            }
        }
        self.look_for_offer();
        while let Some(credit) = self.flow.credit() {
            let (bytes, to) = credit.offer.map_or_else(Default::default, |offer| {
                let target = self.flow.for_peer(Target {
                    addr: BASE + u64::from(offer.offset),
                    key: BUFFER,
                    length: offer.length,
                });
                let Target { addr, key, length } = target;
                let bytes = [
                    &addr.to_ne_bytes()[..],
                    &key.to_ne_bytes(),
                    &length.to_ne_bytes(),
                ];
                (bytes.concat(), offer.to)
            });
            self.writes.push_back(Write {
                message: Message::Limit(credit.limit),
                bytes,
                to,
                done: Done::Control,
            });
        }
    }

    fn look_for_offer(&mut self) {
        if let Some(place) = self.flow.wanted_offer()
            && self.offers[place].length > 0
        {
            self.flow
                .take_offer(std::mem::take(&mut self.offers[place]));
        }
    }

    fn send(&mut self, wanted: usize) -> usize {
        if wanted == 0 || !self.flow.can_send() {
            return 0;
        }
        let (parts, to) = self.flow.send_data(wanted as u32);
        let length = parts.length();
        let from = self.sent;
        self.sent += length as usize;
        self.writes.push_back(Write {
            message: Message::Data(length),
            bytes: (from..self.sent).map(byte).collect(),
            to,
            done: Done::Data(length),
        });
        self.look_for_offer();
        length as usize
    }

    fn read(&mut self, wanted: u32) {
        let parts = self.flow.peek(wanted);
        let at = |offset: u32, length: u32| offset as usize..(offset + length) as usize;
        let (first, second) = (at(parts.offset, parts.first), at(0, parts.second));
        for place in first.chain(second) {
            assert_eq!(self.buffer[place], byte(self.read), "byte {}", self.read);
            self.read += 1;
        }
        self.flow.take(parts.length());
    }

    /// A write has arrived.
    fn take(&mut self, write: &Write) {
        assert!(self.receives > 0, "the peer has to try again");
        self.receives -= 1;
        let (addr, key) = write.to;
        let at = addr.wrapping_sub(BASE) as usize;
        match key {
            BUFFER => self.buffer[at..at + write.bytes.len()].copy_from_slice(&write.bytes),
            OFFERS_KEY => {
                let place = &mut self.offers[at / Target::LEN as usize];
                assert_eq!(
                    place.length, 0,
                    "an offer that was not taken is overwritten"
                );
                let number = |from| u32::from_ne_bytes(*write.bytes[from..].first_chunk().unwrap());
                let addr = u64::from_ne_bytes(*write.bytes.first_chunk().unwrap());
                let (key, length) = (number(8), number(12));
                *place = Target { addr, key, length };
            }
            _ => assert!(write.bytes.is_empty()),
        }
        self.completions.push_back(Done::Heard(write.message));
    }
}

struct Pair([Node; 2]);

impl Pair {
    fn new(sizes: [Sizes; 2]) -> Self {
        let mut nodes = sizes.map(Node::new);
        let is_big_endian = cfg!(target_endian = "big");
        let hellos = [&nodes[0], &nodes[1]].map(|node| node.hello(is_big_endian));
        let [a, b] = &mut nodes;
        a.flow.meet(&hellos[1]);
        b.flow.meet(&hellos[0]);
        Self(nodes)
    }

    /// The oldest writes of an end arrive.
    fn deliver(&mut self, from: usize, count: usize) {
        let [a, b] = &mut self.0;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        for _ in 0..count {
            let Some(write) = from.writes.pop_front() else {
                return;
            };
            to.take(&write);
            from.completions.push_back(write.done);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    Read(u32),
    Poll(usize),
    Deliver(usize),
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let what = prop_oneof![
        prop_oneof![1..200_usize, 1..20_000_usize].prop_map(Step::Send),
        prop_oneof![1..200_u32, 1..20_000_u32].prop_map(Step::Read),
        (1..20_usize).prop_map(Step::Poll),
        (1..20_usize).prop_map(Step::Deliver),
    ];
    (0..2_usize, what)
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let buffer = || (1024..20_000_u32).prop_map(|half| 2 * half);
    (buffer(), buffer(), 16..64_u16, 16..64_u16).prop_map(
        |(send_buffer, recv_buffer, send_queue, recv_queue)| Sizes {
            send_buffer,
            recv_buffer,
            send_queue,
            recv_queue,
            ..SIZES
        },
    )
}

proptest! {
    /// With any sizes, and either end slow: all bytes arrive in their order, nothing is overwritten
    /// before it was read, and neither end waits without end.
    #[test]
    fn all_that_is_sent_arrives(
        sizes in [sizes(), sizes()],
        totals in [0..200_000_usize, 0..200_000_usize],
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let mut pair = Pair::new(sizes);
        for (end, step) in steps {
            let node = &mut pair.0[end];
            match step {
                Step::Send(wanted) => {
                    node.send(wanted.min(totals[end] - node.sent));
                }
                Step::Read(wanted) => node.read(wanted),
                Step::Poll(count) => node.poll(count),
                Step::Deliver(count) => pair.deliver(end, count),
            }
        }
        // Then both do what they can.
        let is_over = |pair: &Pair| (0..2).all(|end| pair.0[1 - end].read == totals[end]);
        let moved = |pair: &Pair| pair.0.iter().map(|node| node.sent + node.read).sum::<usize>();
        let mut rounds_since = 0;
        while !is_over(&pair) {
            let before = moved(&pair);
            for (end, total) in totals.into_iter().enumerate() {
                let node = &mut pair.0[end];
                node.poll(usize::MAX);
                node.read(u32::MAX);
                node.send(total - node.sent);
                pair.deliver(end, usize::MAX);
            }
            rounds_since = if moved(&pair) > before { 0 } else { rounds_since + 1 };
            prop_assert!(rounds_since < 4, "both wait for ever");
        }
        for end in 0..2 {
            pair.0[end].poll(usize::MAX);
            pair.deliver(end, usize::MAX);
            pair.0[end].poll(usize::MAX);
            prop_assert_eq!(pair.0[end].ended, None);
        }
        prop_assert!(pair.0.iter().all(|node| node.flow.is_sent()));
    }
}

/// As many messages in one direction as numbers of 16 bits count, and more.
#[test]
fn counts_go_round() {
    let mut pair = Pair::new([SIZES; 2]);
    let total = 200_000;
    while pair.0[1].read < total {
        while pair.0[0].sent < total && pair.0[0].send(1) > 0 {}
        for end in [0, 1] {
            pair.deliver(end, usize::MAX);
        }
        pair.0[1].poll(usize::MAX);
        pair.0[1].read(u32::MAX);
        for end in [1, 0] {
            pair.0[end].poll(usize::MAX);
            pair.deliver(end, usize::MAX);
            pair.0[0].poll(usize::MAX);
        }
    }
}

/// A peer of the other byte order reads what it is offered.
#[test]
fn byte_orders_may_differ() {
    let mut node = Node::new(SIZES);
    node.flow.meet(&node.hello(cfg!(target_endian = "little")));
    node.poll(0);
    let offered = &node.writes[0].bytes;
    let length = u32::from_ne_bytes(*offered[12..].first_chunk().unwrap());
    assert_eq!(length.swap_bytes(), SIZES.recv_buffer / 2);
}

fn met(limit: u16, length: u32) -> Flow {
    let mut flow = Flow::new(SIZES);
    let target = |length| Target {
        addr: BASE,
        key: 1,
        length,
    };
    flow.meet(&Hello {
        is_big_endian: false,
        limit,
        maps: 0,
        offers: target(2),
        buffer: target(length),
    });
    flow
}

#[test]
fn rings_go_round_and_keep_their_bounds() {
    let mut flow = met(100, u32::MAX);
    let (one, _) = flow.send_data(3000);
    assert_eq!((one.offset, one.first, one.second), (0, 3000, 0));
    // What is left is less than is worth it.
    assert!(!flow.can_send());
    flow.data_is_done(3000);
    assert!(flow.can_send());
    let (two, to) = flow.send_data(5000);
    assert_eq!((two.offset, two.first, two.second), (3000, 1096, 3000));
    assert_eq!(to, (BASE + 3000, 1));
    flow.data_is_done(4096);
    assert_eq!(flow.send_data(1).0.offset, 3000);
    assert!(!flow.is_sent());
    flow.data_is_done(1);
    assert!(flow.is_sent());
}

#[test]
fn sending_stops_at_the_peer_s_limit_and_at_the_queue_size() {
    assert!(!met(0, 100).can_send());
    assert!(!met(1, 0).can_send());
    let mut flow = met(2, 100);
    for _ in 0..2 {
        assert!(flow.can_send());
        flow.send_data(1);
    }
    assert!(!flow.can_send());
    assert_eq!(flow.hear(Message::Limit(60)), None);
    while flow.can_send() {
        flow.send_data(1);
    }
    assert_eq!(flow.sent, SIZES.send_queue - CONTROLS);
}

/// The second half is offered at once, and each again when it was read.
#[test]
fn halves_are_offered_in_turn() {
    let mut flow = met(8, 2048);
    let credit = flow.credit().unwrap();
    let offer = credit.offer.unwrap();
    assert_eq!((credit.limit, offer.offset, offer.length), (8, 2048, 2048));
    assert_eq!(offer.to, (BASE + 16, 1));
    assert_eq!(flow.credit(), None);
    for (round, offset) in [0, 2048, 0].into_iter().enumerate() {
        assert_eq!(flow.hear(Message::Data(2048)), None);
        let parts = flow.peek(9999);
        assert_eq!((parts.offset, parts.first, parts.second), (offset, 2048, 0));
        flow.take(2000);
        assert_eq!(flow.credit(), None);
        flow.take(48);
        let credit = flow.credit().unwrap();
        assert_eq!(credit.offer.map(|offer| offer.offset), Some(offset));
        assert_eq!(credit.limit, 9 + round as u16);
    }
}

#[test]
fn a_peer_that_sends_small_messages_is_told_in_time() {
    let mut flow = met(8, 2048);
    flow.credit().unwrap();
    // An entry of the table of mapped memory is a message like others.
    for message in [Message::Data(1), Message::Mapped(0)].repeat(2) {
        assert_eq!(flow.credit(), None);
        assert_eq!(flow.hear(message), None);
        flow.take(flow.unread);
    }
    let (limit, offer) = (12, None);
    assert_eq!(flow.credit(), Some(Credit { limit, offer }));
}

#[test]
fn packets_a_peer_may_not_send_grow_nothing() {
    let mut flow = Flow::new(SIZES);
    assert_eq!(flow.hear(Message::Data(4097)), Some(End::Broken));
    for _ in 0..SIZES.recv_queue {
        assert_eq!(flow.hear(Message::Data(0)), None);
    }
    assert_eq!(flow.hear(Message::Data(0)), Some(End::Broken));
}
