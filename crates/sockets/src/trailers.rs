//! Which peers take trailers.
//!
//! The [trailer](ferroce_wire::fill_trailer) of a packet is for a peer that takes it away. Other software never gets
//! one, nor a question whether they take them: those go only to peers whose packets come from the devices' own
//! port, which others' do not. A peer that answers gets trailers for a second, and is asked again before that is
//! over. If its link lets questions through, but not packets, these are sent again without trailers, and soon
//! the peer gets none.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use ferroce_device::{Span, Time};
use ferroce_wire::{Hello, Qpn};

/// Peers remembered; further ones get packets without trailers.
const PEERS_MAX: usize = 1024;
/// When a peer is forgotten that gets nothing.
const FORGET: Span = Span::from_secs(20);
/// How long an answer counts.
const LEASE: Span = Span::from_secs(1);
/// How often a peer is asked whose answer counts.
const RENEW: Span = Span::from_millis(250);
/// How soon a peer is asked again that has not answered; after that, twice as late each time.
const PAUSE_MIN: Span = Span::from_millis(1);
const PAUSE_MAX: Span = Span::from_secs(10);
/// The most answers within a millisecond, to all peers together.
const ANSWERS_MAX: usize = 64;
/// This number of packets that go again is not an accident if they are half of those with trailers.
const REPEATED_MAX: u32 = 16;

/// A process of a peer: its address and slot.
pub(crate) type Process = (IpAddr, u32);

/// Knows which peers take trailers, and asks them.
#[derive(Debug)]
pub struct Trailers {
    /// The slot of this process.
    slot: u32,
    peers: HashMap<Process, Peer>,
    nonces: RandomState,
    asked: u64,
    /// When it was called last.
    latest: Time,
    deadline: Option<Time>,
    /// What waits to be sent, and how much of it are answers that the current millisecond allows.
    outbox: Vec<(IpAddr, [u8; Hello::LEN])>,
    answers: usize,
    answers_since: Time,
}

#[derive(Debug)]
struct Peer {
    takes: bool,
    /// Until when, if it does.
    until: Time,
    /// Of the last question, if that is not answered.
    nonce: Option<u64>,
    asked_at: Time,
    /// When something is to be done about it.
    look_at: Time,
    pause: Span,
    /// Something was for it since it was looked at, and when that had been so last.
    is_used: bool,
    used_at: Time,
    /// Packets with trailers since its last answer, and such as went again.
    sent: u32,
    repeated: u32,
    /// How often it seemed to take no trailers although it had said so.
    doubts: u8,
}

impl Trailers {
    /// For the process with this slot, which is the upper part of its queue pairs' numbers; 0 if it shares its
    /// port with no others.
    pub fn new(slot: u8) -> Self {
        Self {
            slot: slot.into(),
            peers: HashMap::new(),
            nonces: RandomState::new(),
            asked: 0,
            latest: Time::ZERO,
            deadline: None,
            outbox: Vec::new(),
            answers: 0,
            answers_since: Time::ZERO,
        }
    }

    /// Whether a process of a peer takes trailers, which something is now sent to.
    pub(crate) fn takes(&mut self, process: Process) -> bool {
        if let Some(peer) = self.peers.get_mut(&process) {
            if !peer.is_used {
                peer.is_used = true;
                peer.look_at = peer.look_at.min(peer.asked_at.after(peer.pause));
                self.deadline = self.deadline.map(|at| at.min(peer.look_at));
            }
            return peer.takes;
        }
        if self.peers.len() < PEERS_MAX {
            self.peers.insert(process, Peer::new(self.latest));
            self.deadline = Some(self.latest);
        }
        false
    }

    /// Packets that have left for a peer with trailers, and packets that were sent again.
    pub(crate) fn note(&mut self, process: Process, sent: u32, repeated: u32) {
        let Some(peer) = self.peers.get_mut(&process) else {
            return;
        };
        peer.sent = peer.sent.saturating_add(sent);
        peer.repeated = peer.repeated.saturating_add(repeated);
        let is_doubtful = peer.repeated >= REPEATED_MAX && peer.repeated >= peer.sent / 2;
        if peer.takes && is_doubtful {
            peer.doubt(self.latest);
        }
    }

    /// When [`Self::run`] wants to be called.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Asks those whose turn it is, as far as they have been `heard` from the devices' port, and forgets those
    /// that get nothing.
    #[cold]
    pub fn run(&mut self, now: Time, heard: impl Fn(IpAddr) -> bool) {
        self.latest = now;
        let Self { peers, outbox, .. } = self;
        peers.retain(|&(address, slot), peer| {
            if now < peer.look_at {
                return true;
            }
            peer.takes &= now < peer.until;
            if !std::mem::take(&mut peer.is_used) {
                let forget_at = peer.used_at.after(FORGET);
                peer.look_at = if peer.takes { peer.until } else { forget_at };
                return now < forget_at;
            }
            if heard(address) {
                self.asked += 1;
                let nonce = self.nonces.hash_one((now.as_picos(), self.asked));
                peer.nonce = Some(nonce);
                outbox.push((address, hello(self.slot, slot, nonce, false)));
            }
            peer.asked(now);
            true
        });
        self.plan();
    }

    /// Takes a question or an answer from an address of a device.
    #[cold]
    pub fn take(&mut self, from: IpAddr, hello: Hello, now: Time) {
        if slot_of(hello.to) != self.slot {
            return; // the peer asks again, and then it may be steered better
        }
        self.latest = now;
        let process = (from, slot_of(hello.from));
        let asked = self.peers.get_mut(&process);
        let asked = asked.filter(|peer| peer.nonce == Some(hello.nonce));
        match (hello.is_answer, asked) {
            (true, Some(peer)) => {
                peer.answered(now);
                self.plan();
            }
            // Nothing was asked; or this process's own question has come back.
            (true, None) | (false, Some(_)) => {}
            (false, None) => self.answer(process, hello.nonce, now),
        }
    }

    fn answer(&mut self, (address, slot): Process, nonce: u64, now: Time) {
        if now.since(self.answers_since) >= PAUSE_MIN {
            (self.answers, self.answers_since) = (0, now);
        }
        if self.answers < ANSWERS_MAX {
            self.answers += 1;
            let answer = hello(self.slot, slot, nonce, true);
            self.outbox.push((address, answer));
        }
    }

    /// The next datagram to be sent, and where.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<(IpAddr, [u8; Hello::LEN])> {
        self.outbox.pop()
    }

    fn plan(&mut self) {
        let next = self.peers.values().map(|peer| peer.look_at).min();
        // All that are due within a while together.
        self.deadline = next.map(|at| at.max(self.latest.after(PAUSE_MIN)));
    }
}

impl Peer {
    /// One that something is sent to for the first time.
    fn new(now: Time) -> Self {
        Self {
            takes: false,
            until: Time::ZERO,
            nonce: None,
            asked_at: now,
            look_at: now,
            pause: PAUSE_MIN,
            is_used: true,
            used_at: now,
            sent: 0,
            repeated: 0,
            doubts: 0,
        }
    }

    fn asked(&mut self, now: Time) {
        (self.asked_at, self.used_at) = (now, now);
        self.look_at = now.after(self.pause);
        if !self.takes {
            self.pause = PAUSE_MAX.min(self.pause * 2);
        }
    }

    fn answered(&mut self, now: Time) {
        self.takes = true;
        self.nonce = None;
        (self.until, self.pause) = (now.after(LEASE), RENEW);
        self.look_at = now.after(RENEW);
        (self.sent, self.repeated) = (0, 0);
    }

    /// It gets no trailers for a while, which doubles each time.
    fn doubt(&mut self, now: Time) {
        self.takes = false;
        self.nonce = None;
        (self.sent, self.repeated) = (0, 0);
        self.asked_at = now;
        self.pause = PAUSE_MAX * (1 << self.doubts);
        self.look_at = now.after(self.pause);
        self.doubts = (self.doubts + 1).min(6);
    }
}

fn hello(own: u32, to: u32, nonce: u64, is_answer: bool) -> [u8; Hello::LEN] {
    let hello = Hello {
        is_answer,
        to: Qpn::new(to << 16),
        from: Qpn::new(own << 16),
        nonce,
    };
    hello.bytes()
}

/// The slot of the process that has a queue pair.
pub(crate) fn slot_of(qpn: Qpn) -> u32 {
    qpn.value() >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const THEIRS: u8 = 7;

    fn at(millis: u64) -> Time {
        Time::ZERO.after(Span::from_millis(millis))
    }

    /// Two processes, the first of which sends to the second.
    struct Pair(Trailers, Trailers);

    impl Pair {
        fn new() -> Self {
            Self(Trailers::new(3), Trailers::new(THEIRS))
        }

        fn sends(&mut self) -> bool {
            self.0.takes((PEER, THEIRS.into()))
        }

        /// The first does what is due, and what it says arrives; returns the number of datagrams.
        fn run(&mut self, now: Time, answers: bool) -> usize {
            if self.0.deadline().is_some_and(|at| at <= now) {
                self.0.run(now, |address| address == PEER);
            }
            let mut datagrams = 0;
            while let Some((to, bytes)) = self.0.poll_transmit() {
                datagrams += 1;
                assert_eq!(to, PEER);
                self.1.take(OWN, Hello::read(&bytes).unwrap(), now);
                while let Some((to, bytes)) = self.1.poll_transmit() {
                    assert_eq!(to, OWN);
                    if answers {
                        self.0.take(PEER, Hello::read(&bytes).unwrap(), now);
                    }
                }
            }
            datagrams
        }
    }

    #[test]
    fn a_peer_that_answers_gets_trailers() {
        let mut pair = Pair::new();
        assert!(!pair.sends());
        assert_eq!(pair.run(at(0), true), 1);
        for millis in 0..5000 {
            assert!(pair.sends(), "after {millis} ms");
            pair.run(at(millis), true);
        }
        // It changes to something that does not answer.
        for millis in 5000..6001 {
            pair.run(at(millis), false);
        }
        assert!(!pair.sends());
    }

    #[test]
    fn silent_peers_are_asked_more_and_more_rarely() {
        let mut pair = Pair::new();
        let mut asked = 0;
        for millis in 0..60_000 {
            assert!(!pair.sends());
            asked += pair.run(at(millis), false);
        }
        assert!((14..25).contains(&asked), "{asked}");
    }

    #[test]
    fn strangers_are_not_asked() {
        let mut trailers = Trailers::new(3);
        for millis in 0..1000 {
            assert!(!trailers.takes((PEER, 0)));
            trailers.run(at(millis), |_| false);
            assert_eq!(trailers.poll_transmit(), None);
        }
    }

    #[test]
    fn echoes_and_guesses_are_no_answers() {
        let mut trailers = Trailers::new(3);
        let process = (PEER, 3);
        trailers.takes(process);
        trailers.run(at(1), |_| true);
        let (_, question) = trailers.poll_transmit().unwrap();
        let hello = Hello::read(&question).unwrap();
        trailers.take(PEER, hello, at(1));
        assert_eq!(trailers.poll_transmit(), None, "its own question");
        let guess = Hello {
            is_answer: true,
            nonce: hello.nonce ^ 1,
            ..hello
        };
        trailers.take(PEER, guess, at(1));
        trailers.take(
            OWN,
            Hello {
                is_answer: true,
                ..hello
            },
            at(1),
        );
        assert!(!trailers.takes(process));
    }

    #[test]
    fn a_link_that_lets_no_trailers_through_gets_none() {
        let mut pair = Pair::new();
        pair.sends();
        pair.run(at(0), true);
        assert!(pair.sends());
        let process = (PEER, THEIRS.into());
        pair.0.note(process, 100, 16);
        assert!(pair.sends(), "losses are no reason");
        pair.0.note(process, 0, 34);
        assert!(!pair.sends());
        for millis in 0..9_000 {
            pair.run(at(millis), true);
            assert!(!pair.sends(), "after {millis} ms");
        }
        for millis in 9_000..12_000 {
            pair.run(at(millis), true);
            pair.sends();
        }
        assert!(pair.sends());
        pair.0.note(process, 16, 16);
        for millis in 12_000..29_000 {
            pair.run(at(millis), true);
            assert!(!pair.sends(), "twice as long the second time");
        }
    }

    #[test]
    fn peers_and_answers_are_bounded() {
        let mut trailers = Trailers::new(0);
        for slot in 0..10_000 {
            trailers.takes((PEER, slot));
        }
        assert_eq!(trailers.peers.len(), PEERS_MAX);
        trailers.run(at(1), |_| true);
        trailers.run(at(30), |_| true);
        assert_eq!(trailers.deadline(), Some(at(20_001)));
        trailers.run(at(20_001), |_| true);
        assert!(trailers.peers.is_empty(), "those that get nothing");
        assert_eq!(trailers.deadline(), None);
        while trailers.poll_transmit().is_some() {}
        for nonce in 0..10_000 {
            let question = Hello {
                is_answer: false,
                to: Qpn::new(0),
                from: Qpn::new(0x10000),
                nonce,
            };
            trailers.take(PEER, question, at(30_000));
        }
        assert_eq!(trailers.outbox.len(), ANSWERS_MAX);
    }
}
