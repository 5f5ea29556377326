//! Connections by way of the connection managers.

use super::{Draft, Pair};
use crate::script::Step;

/// The services that programs listen on.
const SERVICES: u64 = 2;
/// Nanoseconds within which a connection is made, if nothing is in the way.
const HANDSHAKE: u64 = 5_000;

impl Draft {
    /// Programs listen, in some scripts.
    pub(super) fn services(&mut self) {
        self.dials = self.dice.chance(40);
        if !self.dials {
            return;
        }
        for host in 0..self.hosts {
            for service in 0..SERVICES {
                let at = match self.dice.chance(90) {
                    true => 0,
                    false => self.dice.below(self.lasts),
                };
                self.listen(at, host, service);
            }
        }
    }

    fn listen(&mut self, at: u64, host: usize, service: u64) {
        let backlog = self.dice.pick(&[1, 2, 16, 16]);
        self.add(at, host, Step::Listen { service, backlog });
    }

    /// Connects a pair for the first time: directly, or by the connection manager.
    pub(super) fn first_connection(&mut self, pair: Pair) {
        match self.dials && self.dice.chance(60) {
            true => self.dial(0, pair, 0),
            false => self.connect(0, pair),
        }
    }

    /// Pairs are connected anew, connections end, and programs are inattentive.
    pub(super) fn dialling(&mut self) {
        if !self.dials {
            return;
        }
        for _ in 0..self.requests / 10 {
            let pair = self.dice.below(self.pairs.len() as u64) as usize;
            let (pair, end) = (self.pairs[pair], self.dice.below(2) as usize);
            let at = self.dice.below(self.lasts);
            let (host, qp) = (pair.hosts[end], pair.qps[end]);
            match self.dice.below(20) {
                0..6 => {
                    // One connection ends before the next begins.
                    self.add(at, host, Step::HangUp { qp });
                    let later = at + 2 * HANDSHAKE + self.dice.below(HANDSHAKE);
                    self.dial(later, pair, end);
                }
                6..9 => self.dial(at, pair, end),
                9 => {
                    // Both at once.
                    let later = at + self.dice.below(HANDSHAKE);
                    self.dial(at, pair, end);
                    self.dial(later, pair, 1 - end);
                }
                10..14 => self.add(at, host, Step::HangUp { qp }),
                14 => self.add(at, host, Step::Forget { qp }),
                15 => {
                    let ns = self.dice.below(self.lasts);
                    self.add(at, host, Step::LookAway { ns });
                }
                16 => {
                    let service = self.dice.below(SERVICES);
                    self.add(at, host, Step::Unlisten { service });
                    let later = at + self.dice.below(1_000_000);
                    self.listen(later, host, service);
                }
                17 if self.dice.chance(20) => {
                    // One of both dies while the connection is made.
                    self.dial(at, pair, end);
                    let (later, victim) = (at + self.dice.below(HANDSHAKE), self.dice.below(2));
                    self.add(later, pair.hosts[victim as usize], Step::Kill {});
                    if self.dice.chance(50) {
                        // And is asked all the same.
                        let later = later + self.dice.below(self.lasts);
                        self.dial(later, pair, 1 - victim as usize);
                    }
                }
                _ => {
                    self.dial(at, pair, end);
                    let later = at + self.dice.below(4 * HANDSHAKE);
                    let step = match self.dice.chance(50) {
                        true => Step::HangUp { qp },
                        false => Step::Forget { qp },
                    };
                    self.add(later, host, step);
                }
            }
        }
    }

    fn dial(&mut self, at: u64, pair: Pair, end: usize) {
        let access = self.access();
        let dice = &mut self.dice;
        let step = Step::Dial {
            qp: pair.qps[end],
            peer: pair.hosts[1 - end] as u64,
            to: pair.qps[1 - end],
            service: dice.below(SERVICES),
            mtu: dice.within(1..=5),
            timeout: dice.within(5..=12),
            retry: dice.pick(&[7, 7, 7, 3, 1, 0]),
            rnr: dice.pick(&[7, 7, 7, 3, 0]),
            atomics: dice.pick(&[16, 16, 4, 1]),
            access,
            psn: dice.below(1 << 24),
            answer: dice.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]),
            think: match dice.chance(20) {
                true => dice.below(2_000_000),
                false => 0,
            },
            wait: dice.within(5..=10),
            tries: dice.pick(&[15, 7, 7, 3, 1, 0]),
        };
        self.add(at, pair.hosts[end], step);
    }
}
