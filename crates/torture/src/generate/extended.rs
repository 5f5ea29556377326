//! Extended reliable connections (XRC), and initiators and targets of the dynamically connected transport (DC).

use super::{Draft, Pair, Queue, Route, first_psn};
use crate::script::Step;

/// The number of the first queue pair of XRC, of the first target of DC, and of the first initiator.
const XRC: u64 = 2_000_000;
const TARGETS: u64 = 3_000_000;
const INITIATORS: u64 = 4_000_000;
/// Shared receive queues of the XRC domain, one of another domain, and that of targets.
const XRC_SRQS: [u64; 2] = [11, 12];
const FOREIGN_SRQ: u64 = 13;
const DC_SRQ: u64 = 21;

impl Draft {
    pub(super) fn extended(&mut self) {
        if self.dice.chance(25) {
            self.xrc();
        }
        if self.dice.chance(25) {
            self.dc();
        }
    }

    fn xrc(&mut self) {
        for host in 0..self.hosts {
            for id in XRC_SRQS.into_iter().chain([FOREIGN_SRQ]) {
                let step = Step::Srq {
                    id,
                    size: self.dice.pick(&[8, 64, 256]),
                    pd: u64::from(self.dice.chance(10)),
                    xrc: if id == FOREIGN_SRQ { 2 } else { 1 },
                };
                self.add(0, host, step);
            }
        }
        let count = self.dice.within(1..=3);
        let mut pairs = Vec::new();
        for number in 0..count {
            let own = self.host();
            let peer = (own + 1 + self.dice.below(self.hosts as u64 - 1) as usize) % self.hosts;
            let pair = Pair {
                hosts: [own, peer],
                qps: [XRC + 2 * number, XRC + 2 * number + 1],
                rc: true,
                srqs: [0, XRC_SRQS[0]],
            };
            for (end, kind) in [9, 10].into_iter().enumerate() {
                let step = Step::Qp {
                    port: 0,
                    send_cq: 0,
                    recv_cq: 0,
                    id: pair.qps[end],
                    kind,
                    pd: u64::from(self.dice.chance(5)),
                    srq: 0,
                    sends: self.dice.pick(&[0, 0, 4]),
                    receives: 0,
                };
                self.add(0, pair.hosts[end], step);
            }
            self.connect(0, pair);
            pairs.push(pair);
        }
        for _ in 0..self.requests / 4 {
            let (pair, at) = (self.dice.pick(&pairs), self.dice.below(self.lasts));
            let (receiver, qp) = (pair.hosts[1], pair.qps[1]);
            match self.dice.below(60) {
                0 => self.connect(at, pair),
                1 => self.add(at, receiver, Step::Open { qp }),
                2 => self.add(at, receiver, Step::Destroy { qp }),
                _ => {
                    let right = self.dice.pick(&XRC_SRQS);
                    let to = match self.dice.per_mille(10) {
                        true => self.dice.pick(&[FOREIGN_SRQ, 1, 99]),
                        false => right,
                    };
                    let route = Route {
                        to: (to, 0),
                        queue: Queue::Shared(right),
                        ..pair.route(0)
                    };
                    self.message(at, route);
                }
            }
        }
        self.extended.extend(
            pairs
                .into_iter()
                .flat_map(|pair| [0, 1].map(|end| pair.route(end))),
        );
    }

    fn dc(&mut self) {
        let mut targets = Vec::new();
        let mut initiators = Vec::new();
        for host in 0..self.hosts {
            let size = self.dice.pick(&[8, 64, 256]);
            let (id, pd) = (DC_SRQ, u64::from(self.dice.chance(10)));
            self.add(
                0,
                host,
                Step::Srq {
                    id,
                    size,
                    pd,
                    xrc: 0,
                },
            );
        }
        let counts = [TARGETS, INITIATORS].map(|first| first..first + self.dice.within(1..=3));
        for (kind, ids) in [0x101, 0x100].into_iter().zip(counts) {
            for id in ids {
                let host = self.host();
                let step = Step::Qp {
                    port: 0,
                    send_cq: 0,
                    recv_cq: 0,
                    id,
                    kind,
                    pd: u64::from(self.dice.chance(5)),
                    srq: DC_SRQ,
                    sends: self.dice.pick(&[0, 0, 4]),
                    receives: 0,
                };
                self.add(0, host, step);
                let at = match self.dice.chance(90) {
                    true => 0,
                    false => self.dice.below(self.lasts),
                };
                self.dc_ready(at, host, id);
                let ends = if kind == 0x101 {
                    &mut targets
                } else {
                    &mut initiators
                };
                ends.push((host, id));
            }
        }
        let route = |(host, qp): (usize, u64), (peer, to): (usize, u64)| Route {
            host,
            qp,
            peer,
            to: (to, 0),
            queue: Queue::Shared(DC_SRQ),
            rc: true,
        };
        for _ in 0..self.requests / 4 {
            let (own, target) = (self.dice.pick(&initiators), self.dice.pick(&targets));
            let at = self.dice.below(self.lasts);
            match self.dice.below(80) {
                0 | 1 => self.dc_ready(at, own.0, own.1),
                2 => self.dc_ready(at, target.0, target.1),
                3 if self.dice.chance(30) => self.add(at, target.0, Step::Destroy { qp: target.1 }),
                _ => {
                    let mut route = route(own, target);
                    if self.dice.per_mille(10) {
                        route.to = self.dice.pick(&[(target.1, 1), (99, 0)]);
                    }
                    self.message(at, route);
                }
            }
        }
        let first = route(initiators[0], targets[0]);
        self.extended.push(first);
        self.extended.push(Route {
            host: first.peer,
            qp: targets[0].1,
            ..first
        });
    }

    fn dc_ready(&mut self, at: u64, host: usize, qp: u64) {
        let access = self.access();
        let dice = &mut self.dice;
        let step = Step::DcReady {
            qp,
            timeout: dice.within(5..=12),
            retry: dice.pick(&[7, 7, 7, 3, 0]),
            rnr: dice.pick(&[7, 7, 7, 3, 0]),
            atomics: dice.pick(&[16, 16, 4, 1]),
            access,
            psn: first_psn(dice, at),
        };
        self.add(at, host, step);
    }
}
