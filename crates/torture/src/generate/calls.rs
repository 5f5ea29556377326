//! Calls in every state: queue pairs that go through their states, and calls that must be refused.

use super::{DATAGRAMS, Draft, Route};
use crate::play::{FAULTS, OPERATIONS};
use crate::script::Step;

/// The usual states of a queue pair, by the values of `ibv_qp_state`: RESET to ERR by way of SQD, and again.
const JOURNEY: [u64; 9] = [0, 1, 2, 3, 4, 3, 6, 0, 1];
/// Nanoseconds between two states at most.
const PACE: u64 = 4_000;

/// What goes through its states.
#[derive(Clone, Copy)]
enum Walker {
    /// One end of a connection, and how messages of it and to it go.
    End(Route, Route),
    /// A UD queue pair: host and number.
    Datagrams(usize, u64),
}

impl Draft {
    pub(super) fn calls(&mut self) {
        for _ in 0..self.dice.pick(&[0, 0, 0, 1, 2]) {
            let walker = self.walker();
            self.walk(walker);
        }
        for _ in 0..self.requests / 50 {
            let (walker, at) = (self.walker(), self.dice.below(self.lasts));
            self.odd(walker, at);
        }
    }

    /// Connections grow old by around a quarter, a half, all or more of the PSNs, or by any number of messages.
    pub(super) fn ages(&mut self) {
        let lap = 1_u64 << 24;
        for _ in 0..self.dice.pick(&[0, 0, 1, 2, 4]) {
            let mark = self.dice.pick(&[lap / 4, lap / 2, lap, lap / 2 * 3]);
            let messages = match self.dice.chance(75) {
                true => mark + 16 - self.dice.below(32),
                false => self.dice.below(1 << 32),
            };
            let (walker, at) = (self.walker(), self.dice.below(self.lasts));
            let (host, qp) = walker.place();
            self.add(at, host, Step::Age { qp, messages });
        }
    }

    fn walker(&mut self) -> Walker {
        if self.has_datagrams && self.dice.chance(30) {
            return Walker::Datagrams(self.host(), DATAGRAMS + self.dice.below(2));
        }
        if !self.extended.is_empty() && self.dice.chance(40) {
            let route = self.dice.pick(&self.extended);
            let peer = self.extended.iter().find(|it| it.host == route.peer);
            return Walker::End(route, *peer.unwrap_or(&route));
        }
        let pair = self.dice.below(self.pairs.len() as u64) as usize;
        let (pair, end) = (self.pairs[pair], self.dice.below(2) as usize);
        Walker::End(pair.route(end), pair.route(1 - end))
    }

    /// Moves a queue pair from state to state, with calls in each of them, and perhaps destroys it in the end.
    fn walk(&mut self, walker: Walker) {
        let mut at = self.dice.below(self.lasts);
        let first = self.dice.below(3) as usize;
        let last = self.dice.within(first as u64..=JOURNEY.len() as u64) as usize;
        for state in JOURNEY[first..last].iter().copied() {
            self.move_to(walker, at, state);
            for _ in 0..self.dice.below(4) {
                self.call(walker, at);
            }
            at += self.dice.pick(&[0, PACE / 8, PACE]);
            for _ in 0..self.dice.below(2) {
                self.call(walker, at);
            }
        }
        match self.dice.below(4) {
            0 => {
                let (host, qp) = walker.place();
                self.add(at, host, Step::Destroy { qp });
                self.odd(walker, at);
            }
            1 => {
                let state = self.dice.below(7);
                self.move_to(walker, at, state);
            }
            _ => {}
        }
    }

    fn move_to(&mut self, walker: Walker, at: u64, state: u64) {
        let (host, qp) = walker.place();
        self.add(at, host, Step::Modify { qp, state });
    }

    /// A call of its program, or of that of its peer.
    fn call(&mut self, walker: Walker, at: u64) {
        let (host, qp) = walker.place();
        let len = self.dice.below(200);
        match self.dice.below(9) {
            0 => {
                let state = self.dice.below(7);
                self.move_to(walker, at, state);
            }
            1 => self.add(
                at,
                host,
                Step::Recv {
                    qp,
                    len: 4_136,
                    lkey: 0,
                },
            ),
            5 => {
                let step = Step::Invalidate {
                    qp,
                    window: self.dice.within(1..=8),
                    region: 0,
                    flags: 2,
                };
                self.add(at, host, step);
            }
            2 | 3 => self.odd(walker, at),
            // The send queue of an unreliable queue pair fails.
            4 => {
                let step = match walker {
                    Walker::End(..) => Step::Send {
                        qp,
                        len,
                        imm: 0,
                        flags: 2,
                        lkey: 1,
                        to: 0,
                        key: 0,
                    },
                    Walker::Datagrams(..) => datagram(host as u64, qp, len, 1),
                };
                self.add(at, host, step);
            }
            _ => match walker {
                Walker::End(own, peer) => {
                    let route = if self.dice.chance(60) { peer } else { own };
                    self.message(at, route);
                }
                Walker::Datagrams(..) => {
                    let from = self.host();
                    self.add(at, from, datagram(host as u64, qp, len, 0));
                }
            },
        }
    }

    /// A call that must be refused.
    fn odd(&mut self, walker: Walker, at: u64) {
        let (host, qp) = walker.place();
        let step = match self.dice.chance(15) {
            true => Step::OddRecv {
                qp,
                fault: self.dice.below(2),
            },
            false => Step::Odd {
                qp,
                op: self.dice.below(OPERATIONS),
                fault: self.dice.below(FAULTS),
            },
        };
        self.add(at, host, step);
    }
}

impl Walker {
    fn place(self) -> (usize, u64) {
        match self {
            Self::End(own, _) => (own.host, own.qp),
            Self::Datagrams(host, qp) => (host, qp),
        }
    }
}

/// A datagram to a queue pair, from that with the same number.
fn datagram(peer: u64, qp: u64, len: u64, lkey: u64) -> Step {
    Step::Datagram {
        qp,
        peer,
        to: qp,
        len,
        imm: 0,
        flags: 2,
        qkey: 1,
        lkey,
    }
}
