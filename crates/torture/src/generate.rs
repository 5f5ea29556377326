//! A script from a seed.
//!
//! | module | content |
//! |---|---|
//! | `extended` | XRC and DC |
//! | `windows` | memory windows |
//! | `queues` | completion queues |
//! | `calls` | queue pairs that go through their states, and calls that are refused |

mod calls;
mod extended;
mod queues;
mod windows;

mod dials;
mod faults;

use ferroce_base::random::{Dice, mix};

use crate::pattern::MESSAGE_MAX;
use crate::script::{HOSTS_MAX, Line, Script, Step};

/// The script of a seed: the same on every machine.
pub fn generate(seed: u64) -> Script {
    let mut draft = Draft::new(seed);
    draft.hosts();
    draft.services();
    draft.connections();
    draft.dialling();
    draft.datagrams();
    draft.apart(0x7864, Draft::extended);
    draft.faults();
    draft.traffic();
    draft.apart(0x6371, Draft::queues);
    draft.apart(0x7769, Draft::windows);
    draft.apart(0x6361, Draft::calls);
    draft.apart(0x6167, Draft::ages);
    draft.lines.sort_by_key(|line| line.at);
    Script {
        seed,
        lines: draft.lines,
    }
}

/// A connected pair of queue pairs.
#[derive(Clone, Copy)]
struct Pair {
    hosts: [usize; 2],
    qps: [u64; 2],
    /// Reliable.
    rc: bool,
    /// The shared receive queues of both, 0 for none.
    srqs: [u64; 2],
}

/// How messages go from one queue pair to another.
#[derive(Clone, Copy)]
struct Route {
    host: usize,
    qp: u64,
    /// The host that they are for.
    peer: usize,
    /// The shared receive queue of XRC or the target of DC, and 1 for a wrong key.
    to: (u64, u64),
    /// Where receives for them are posted.
    queue: Queue,
    /// Reliable.
    rc: bool,
}

/// A queue for receives.
#[derive(Clone, Copy)]
enum Queue {
    /// That of a queue pair.
    Own(u64),
    Shared(u64),
}

/// Anywhere; at the start perhaps not far before the end of all PSNs, or of half of them. Later ones are not close to
/// each other, so that late packets of the connection before are not taken for those of the next one.
fn first_psn(dice: &mut Dice, at: u64) -> u64 {
    match dice.below(10) {
        8 if at == 0 => (1 << 23) - dice.within(1..=16),
        9 if at == 0 => (1 << 24) - dice.within(1..=16),
        _ => dice.below(1 << 24),
    }
}

impl Pair {
    /// How messages of one end go.
    fn route(self, end: usize) -> Route {
        let queue = match self.srqs[1 - end] {
            0 => Queue::Own(self.qps[1 - end]),
            srq => Queue::Shared(srq),
        };
        Route {
            host: self.hosts[end],
            qp: self.qps[end],
            peer: self.hosts[1 - end],
            to: (0, 0),
            queue,
            rc: self.rc,
        }
    }
}

/// A region, and how much of it has been given to writes.
struct Area {
    host: usize,
    id: u64,
    len: u64,
    used: u64,
}

struct Draft {
    seed: u64,
    dice: Dice,
    lines: Vec<Line>,
    hosts: usize,
    /// What links each has.
    links: Vec<u64>,
    pairs: Vec<Pair>,
    areas: Vec<Area>,
    /// Nanoseconds that the script lasts.
    lasts: u64,
    /// Pairs to connect.
    count: u64,
    requests: u64,
    /// Hosts have UD queue pairs.
    has_datagrams: bool,
    /// Routes of XRC and DC.
    extended: Vec<Route>,
    /// Some connections are made by the connection manager.
    dials: bool,
}

/// The number of a host's first UD queue pair.
const DATAGRAMS: u64 = 1_000_000;
/// Bytes at the start of each region that atomics use.
const WORDS: u64 = 64;

impl Draft {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(mix(seed, 0x70_72));
        let is_large = dice.per_mille(1);
        let (hosts, pairs, requests) = match is_large {
            true => (HOSTS_MAX, 2_000, 10_000),
            false => (
                dice.pick(&[2, 2, 2, 2, 3, 4]),
                dice.pick(&[1, 2, 4, 8]),
                dice.pick(&[20, 60, 100, 200]),
            ),
        };
        let lasts = dice.pick(&[50_000, 500_000, 5_000_000]);
        Self {
            seed,
            has_datagrams: false,
            extended: Vec::new(),
            count: pairs,
            dice,
            lines: Vec::new(),
            hosts,
            links: Vec::new(),
            pairs: Vec::new(),
            areas: Vec::new(),
            lasts,
            requests,
            dials: false,
        }
    }

    /// Has something drawn from numbers of its own, so that it does not change the rest.
    fn apart(&mut self, mark: u64, part: impl FnOnce(&mut Self)) {
        let usual = std::mem::replace(&mut self.dice, Dice::new(mix(self.seed, mark)));
        part(self);
        self.dice = usual;
    }

    fn add(&mut self, at: u64, host: usize, step: Step) {
        self.lines.push(Line { at, host, step });
    }

    fn host(&mut self) -> usize {
        self.dice.below(self.hosts as u64) as usize
    }

    fn hosts(&mut self) {
        for host in 0..self.hosts {
            let step = Step::Host {
                mbps: self.dice.pick(&[0, 0, 0, 1_000, 100_000, 400_000]),
                options: self.dice.pick(&[0, 0, 0, 8, 1, 2, 3, 4, 32, 32])
                    + self.dice.pick(&[0, 0, 16]),
                window: self.dice.pick(&[0, 0, 4_096, 32_768]),
                links: self.dice.pick(&[0, 0, 0, 0, 0, 1, 2, 2]),
            };
            if let Step::Host { links, .. } = step {
                self.links.push(links);
            }
            self.add(0, host, step);
            if self.dice.chance(30) {
                let (size, pd) = (
                    self.dice.pick(&[8, 64, 256]),
                    u64::from(self.dice.chance(5)),
                );
                self.add(
                    0,
                    host,
                    Step::Srq {
                        id: 1,
                        size,
                        pd,
                        xrc: 0,
                    },
                );
            }
            for id in 1..=self.dice.within(1..=2) {
                let len = self.dice.pick(&[4_096, 30_000, 65_536, 262_144]);
                let (access, pd) = (self.access(), u64::from(self.dice.chance(5)));
                self.add(
                    0,
                    host,
                    Step::Region {
                        id,
                        len,
                        access,
                        pd,
                    },
                );
                let used = WORDS;
                self.areas.push(Area {
                    host,
                    id,
                    len,
                    used,
                });
            }
        }
    }

    /// Usually everything.
    fn access(&mut self) -> u64 {
        match self.dice.chance(95) {
            true => 0b1_1111,
            false => self.dice.below(32),
        }
    }

    fn connections(&mut self) {
        for number in 1..=self.count {
            let own = self.host();
            let peer = (own + 1 + self.dice.below(self.hosts as u64 - 1) as usize) % self.hosts;
            let rc = self.dice.chance(85);
            let mut srq = || u64::from(self.dice.chance(25));
            let pair = Pair {
                srqs: [srq(), srq()],
                hosts: [own, peer],
                qps: [2 * number, 2 * number + 1],
                rc,
            };
            for end in 0..2 {
                let step = Step::Qp {
                    send_cq: 0,
                    recv_cq: 0,
                    id: pair.qps[end],
                    kind: if rc { 0 } else { 3 },
                    pd: u64::from(self.dice.chance(5)),
                    srq: pair.srqs[end],
                    sends: self.dice.pick(&[0, 0, 0, 4, 16]),
                    receives: self.dice.pick(&[0, 0, 0, 4, 16]),
                    port: self.dice.pick(&[0, 0, 2]),
                };
                self.add(0, pair.hosts[end], step);
            }
            self.pairs.push(pair);
            self.first_connection(pair);
        }
    }

    /// UD queue pairs, and groups.
    fn datagrams(&mut self) {
        if self.dice.chance(60) {
            return;
        }
        self.has_datagrams = true;
        for host in 0..self.hosts {
            for id in DATAGRAMS..DATAGRAMS + self.dice.within(1..=2) {
                let srq = u64::from(self.dice.chance(20));
                let step = Step::Qp {
                    send_cq: 0,
                    recv_cq: 0,
                    id,
                    kind: 4,
                    pd: 0,
                    srq,
                    sends: self.dice.pick(&[0, 0, 4]),
                    receives: 0,
                    port: 0,
                };
                self.add(0, host, step);
                self.ready(0, host, id);
                if self.dice.chance(50) {
                    let group = self.dice.below(2);
                    self.add(0, host, Step::Join { qp: id, group });
                }
                for _ in 0..self.dice.below(10) {
                    let at = self.dice.below(self.lasts);
                    self.add(
                        at,
                        host,
                        Step::Recv {
                            qp: id,
                            len: 4_136,
                            lkey: 0,
                        },
                    );
                }
            }
        }
        for _ in 0..self.requests / 4 {
            let (at, host, qp) = (
                self.dice.below(self.lasts),
                self.host(),
                DATAGRAMS + self.dice.below(2),
            );
            let step = match self.dice.below(40) {
                0 => Step::Leave {
                    qp,
                    group: self.dice.below(2),
                },
                1 => Step::Join {
                    qp,
                    group: self.dice.below(2),
                },
                2 => Step::Modify {
                    qp,
                    state: self.dice.below(7),
                },
                3 => Step::Destroy { qp },
                4 => {
                    self.ready(at, host, qp);
                    continue;
                }
                _ => Step::Datagram {
                    qp,
                    peer: self.host() as u64,
                    to: self.dice.pick(&[0, DATAGRAMS, DATAGRAMS + 1, 2]),
                    len: self.length().min(4_096 + self.dice.below(2)),
                    imm: self.dice.pick(&[0, 0, 7]),
                    flags: self.flags(),
                    qkey: self.dice.pick(&[1, 1, 1, 2]),
                    lkey: u64::from(self.dice.per_mille(5)),
                },
            };
            self.add(at, host, step);
        }
    }

    fn ready(&mut self, at: u64, host: usize, qp: u64) {
        let qkey = self.dice.pick(&[1, 1, 1, 2]);
        self.add(at, host, Step::Ready { qp, qkey });
    }

    fn connect(&mut self, at: u64, pair: Pair) {
        let access = self.access();
        let dice = &mut self.dice;
        let step = Step::Connect {
            qp: pair.qps[0],
            peer: pair.hosts[1] as u64,
            to: pair.qps[1],
            mtu: dice.within(1..=5),
            timeout: dice.within(5..=12),
            retry: dice.pick(&[7, 7, 7, 3, 1, 0]),
            rnr: dice.pick(&[7, 7, 7, 3, 0]),
            atomics: if dice.chance(4) {
                0
            } else {
                dice.pick(&[16, 16, 4, 1])
            },
            owed: if dice.chance(10) {
                dice.pick(&[1, 2])
            } else {
                0
            },
            rnr_timer: dice.pick(&[0, 0, 1, 2, 8, 14]),
            access,
            psn: first_psn(dice, at),
        };
        self.add(at, pair.hosts[0], step);
    }

    fn traffic(&mut self) {
        for _ in 0..self.requests {
            let pair = self.dice.below(self.pairs.len() as u64) as usize;
            let (pair, end) = (self.pairs[pair], self.dice.below(2) as usize);
            let at = self.dice.below(self.lasts);
            match self.dice.below(100) {
                0..2 => self.trouble(at, pair, end),
                2 if self.dice.chance(30) => self.memory(at),
                _ => self.message(at, pair.route(end)),
            }
        }
    }

    /// Something that ends a queue pair, or a connection.
    fn trouble(&mut self, at: u64, pair: Pair, end: usize) {
        let (host, qp) = (pair.hosts[end], pair.qps[end]);
        match self.dice.below(10) {
            0 => {
                self.add(at, host, Step::Destroy { qp });
            }
            1..5 => {
                let state = self.dice.below(7);
                self.add(at, host, Step::Modify { qp, state });
                if self.dice.chance(60) {
                    // It goes on from there, one state after the other.
                    for (nth, state) in [1, 2, 3].into_iter().enumerate() {
                        let at = at + (nth as u64 + 1) * self.dice.below(20_000);
                        self.add(at, host, Step::Modify { qp, state });
                    }
                }
            }
            _ => self.connect(at, pair),
        }
    }

    /// A region loses its rights, or all of it.
    fn memory(&mut self, at: u64) {
        let area = self.dice.below(self.areas.len() as u64) as usize;
        let (host, id) = (self.areas[area].host, self.areas[area].id);
        let step = match self.dice.chance(50) {
            true => Step::Deregister { id },
            false => Step::Reregister {
                id,
                access: self.access(),
                pd: u64::from(self.dice.chance(20)),
            },
        };
        self.add(at, host, step);
    }

    fn message(&mut self, at: u64, route: Route) {
        let Route { host, qp, peer, .. } = route;
        let (to, key) = route.to;
        let len = self.length();
        let flags = self.flags();
        let lkey = u64::from(self.dice.per_mille(2));
        let imm = match self.dice.chance(30) {
            true => self.dice.within(1..=u64::from(u32::MAX)),
            false => 0,
        };
        let step = match self.dice.below(if route.rc || self.dice.clone().chance(2) {
            100
        } else {
            60
        }) {
            0..30 => Step::Send {
                qp,
                to,
                key,
                len,
                imm,
                flags,
                lkey,
            },
            30..60 => {
                let imm = if self.dice.chance(30) { imm } else { 0 };
                let (region, at, len) = self.place(peer, len);
                Step::Write {
                    qp,
                    window: 0,
                    to,
                    key,
                    len,
                    region,
                    at,
                    imm,
                    flags,
                    lkey,
                }
            }
            60..80 => {
                let (region, at, len) = self.any_place(peer, len);
                Step::Read {
                    qp,
                    window: 0,
                    to,
                    key,
                    len,
                    region,
                    at,
                    flags,
                    lkey,
                }
            }
            80..92 => {
                let (region, at) = self.word(peer, 0);
                Step::Add {
                    qp,
                    window: 0,
                    to,
                    key,
                    region,
                    at,
                    flags,
                }
            }
            _ => {
                let (region, at) = self.word(peer, 4);
                Step::Swap {
                    qp,
                    window: 0,
                    to,
                    key,
                    region,
                    at,
                    flags,
                }
            }
        };
        let consumes = matches!(step, Step::Send { .. } | Step::Write { imm: 1.., .. });
        self.add(at, host, step);
        if consumes && self.dice.chance(98) {
            self.receive(route);
        }
    }

    /// A receive for a message, early or at any time.
    fn receive(&mut self, route: Route) {
        let len = match self.dice.per_mille(3) {
            true => self.length(),
            false => MESSAGE_MAX as u64 / 4,
        };
        let lkey = u64::from(self.dice.per_mille(2));
        let at = match self.dice.chance(70) {
            true => 0,
            false => self.dice.below(self.lasts),
        };
        let step = match route.queue {
            Queue::Own(qp) => Step::Recv { qp, len, lkey },
            Queue::Shared(srq) => Step::SrqRecv { srq, len, lkey },
        };
        self.add(at, route.peer, step);
    }

    fn length(&mut self) -> u64 {
        let most = self
            .dice
            .pick(&[0, 1, 64, 256, 257, 1_024, 1_500, 4_096, 16_384]);
        match self.dice.chance(40) {
            true => most,
            false => self.dice.below(most + 1),
        }
    }

    /// Signalled in most cases; fenced, solicited or inline in some.
    fn flags(&mut self) -> u64 {
        let dice = &mut self.dice;
        let mut flag = |percent, bit| u64::from(dice.chance(percent)) * bit;
        flag(70, 2) | flag(15, 1) | flag(30, 4) | flag(20, 8)
    }

    /// A region of a host.
    fn area(&mut self, host: usize) -> Option<usize> {
        let of_host: Vec<usize> = (0..self.areas.len())
            .filter(|area| self.areas[*area].host == host)
            .collect();
        (!of_host.is_empty()).then(|| self.dice.pick(&of_host))
    }

    /// A place of its own for a write, or one that is taken, with how much of the length fits there.
    fn place(&mut self, host: usize, len: u64) -> (u64, u64, u64) {
        let Some(place) = self.area(host) else {
            return (0, 0, len);
        };
        let area = &mut self.areas[place];
        let at = area.used;
        if at + len > area.len || self.dice.per_mille(20) {
            return self.any_place(host, len);
        }
        area.used += len;
        (area.id, at, len)
    }

    /// Any place in a region, or by accident beyond its end, or in none.
    fn any_place(&mut self, host: usize, len: u64) -> (u64, u64, u64) {
        let Some(area) = self.area(host) else {
            return (0, 0, len);
        };
        let Area { id, len: all, .. } = self.areas[area];
        let fits = len.min(all - WORDS);
        match self.dice.below(300) {
            0 => (id, all - len.min(all) + self.dice.below(3), len),
            1 => (99, 0, len),
            _ => (id, WORDS + self.dice.below(all - WORDS - fits + 1), fits),
        }
    }

    fn word(&mut self, host: usize, first: u64) -> (u64, u64) {
        let area = self.area(host).map_or(0, |area| self.areas[area].id);
        let place = 8 * (first + self.dice.below(4));
        match self.dice.per_mille(3) {
            true => (area, place + self.dice.below(8)),
            false => (area, place),
        }
    }
}
