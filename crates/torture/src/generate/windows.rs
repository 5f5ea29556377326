//! Memory windows: bound, used by the peer, and invalidated by either side.

use super::{Draft, Route, WORDS};
use crate::script::Step;

/// Bytes of a window that writes go to.
const BYTES: u64 = 2_048;
/// Remote write, remote read and remote atomics: bits of `ibv_access_flags`.
const REMOTE: u64 = 0b1110;

impl Draft {
    pub(super) fn windows(&mut self) {
        if self.dice.chance(65) {
            return;
        }
        for window in 1..=self.dice.within(1..=self.requests / 8) {
            let pair = self.dice.below(self.pairs.len() as u64) as usize;
            let (pair, end) = (self.pairs[pair], self.dice.below(2) as usize);
            let peer = pair.route(1 - end);
            // A window of type 1 may be bound by any queue pair.
            let at_host = self.extended.iter().find(|it| it.host == peer.peer);
            let own = at_host.copied().filter(|_| window % 8 == 0);
            self.episode(window, own.unwrap_or_else(|| pair.route(end)), peer);
        }
    }

    /// The life of a window of one end of a connection.
    fn episode(&mut self, window: u64, own: Route, peer: Route) {
        let mut at = self.dice.below(self.lasts);
        let step = Step::Window {
            id: window,
            kind: self.dice.within(1..=2),
            pd: u64::from(self.dice.chance(3)),
        };
        self.add(at, own.host, step);
        let pause = self.dice.pick(&[0, 500, 5_000, 50_000]);
        for _ in 0..self.dice.within(1..=4) {
            self.bind(at, window, own, peer, pause);
            at += pause + self.dice.below(pause + 1);
            match self.dice.below(10) {
                0..4 => self.invalidate(at, window, own),
                4..7 => self.send_invalidate(at, window, peer),
                7 if self.dice.chance(20) => {
                    self.add(at, own.host, Step::FreeWindow { id: window });
                }
                _ => {}
            }
            at += self.dice.below(pause + 1);
        }
        if self.dice.chance(30) {
            self.add(at, own.host, Step::FreeWindow { id: window });
        }
    }

    /// A bind, and what the peer does with it.
    fn bind(&mut self, at: u64, window: u64, own: Route, peer: Route, pause: u64) {
        let is_of_words = self.dice.chance(30);
        let (region, from, len) = match is_of_words {
            true => (self.area_of(own.host), 0, WORDS),
            false => self.place(own.host, BYTES),
        };
        let odd = self.dice.below(200);
        let step = Step::Bind {
            qp: own.qp,
            window,
            region: if odd == 0 { 99 } else { region },
            at: from + if odd == 1 { 1 << 20 } else { 0 },
            len: if odd < 6 { 0 } else { len + 8 },
            access: match self.dice.chance(90) {
                true => REMOTE,
                false => self.dice.below(16),
            },
            zero: u64::from(self.dice.chance(30)),
            flags: self.flags(),
            wrong: u64::from(self.dice.chance(2)),
        };
        self.add(at, own.host, step);
        let mut free = from % 8;
        for _ in 0..self.dice.below(6) {
            let at = at + self.dice.below(2 * pause + 1);
            let len = self.dice.below(BYTES / 3);
            let user = if self.dice.chance(97) {
                peer
            } else {
                self.other(peer)
            };
            let (qp, flags, (to, key)) = (user.qp, self.flags(), user.to);
            let place = 8 * (4 * self.dice.below(2) + self.dice.below(4));
            let step = match self.dice.below(10) {
                0..2 if is_of_words && peer.rc => Step::Add {
                    qp,
                    region: 0,
                    at: place % 32,
                    flags,
                    to,
                    key,
                    window,
                },
                2..4 if is_of_words && peer.rc => Step::Swap {
                    qp,
                    region: 0,
                    at: 32 + place % 32,
                    flags,
                    to,
                    key,
                    window,
                },
                4..6 if peer.rc => Step::Read {
                    qp,
                    len,
                    region: 0,
                    at: self.dice.below(BYTES),
                    flags,
                    lkey: 0,
                    to,
                    key,
                    window,
                },
                _ if is_of_words => continue,
                _ => {
                    let at = match self.dice.chance(95) {
                        true => free,
                        false => BYTES - self.dice.below(len + 1),
                    };
                    free += len;
                    Step::Write {
                        qp,
                        len,
                        region: 0,
                        at,
                        imm: 0,
                        flags,
                        lkey: 0,
                        to,
                        key,
                        window,
                    }
                }
            };
            self.add(at, user.host, step);
        }
    }

    /// A queue pair that the window may not be for.
    fn other(&mut self, peer: Route) -> Route {
        let same = |pair: &super::Pair| (0..2).find(|end| pair.hosts[*end] == peer.host);
        let others = self
            .pairs
            .iter()
            .filter_map(|pair| Some(pair.route(same(pair)?)));
        let others: Vec<Route> = others.collect();
        self.dice.pick(&others)
    }

    fn area_of(&mut self, host: usize) -> u64 {
        self.area(host).map_or(0, |area| self.areas[area].id)
    }

    /// The program of the window invalidates it; or another key by accident.
    fn invalidate(&mut self, at: u64, window: u64, own: Route) {
        let (window, region) = self.named(window);
        let step = Step::Invalidate {
            qp: own.qp,
            window,
            region,
            flags: self.flags(),
        };
        self.add(at, own.host, step);
    }

    fn send_invalidate(&mut self, at: u64, window: u64, peer: Route) {
        let (window, region) = self.named(window);
        let (to, key) = peer.to;
        let step = Step::SendInvalidate {
            qp: peer.qp,
            len: self.length(),
            window,
            region,
            flags: self.flags(),
            lkey: 0,
            to,
            key,
        };
        self.add(at, peer.host, step);
        self.receive(peer);
    }

    fn named(&mut self, window: u64) -> (u64, u64) {
        match self.dice.per_mille(30) {
            true => (0, self.dice.below(3)),
            false => (window, 0),
        }
    }
}
