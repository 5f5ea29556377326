//! Ports that flap under traffic of all types of queue pairs, each run from a seed.

use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::{
    AccessFlags, Event, Path, QpState, QpType, SendTo, SendWr, Span, Srqn, Time, UdAddress,
    WcStatus, XrcObjects,
};
use ferroce_testing::{A, B, Dice, Region, SEND, World, attr, config, recv_wr, seeds};
use ferroce_wire::{Psn, Qpn};

use super::of_port;

const RUNS: u64 = 50;
/// For each of the two ports, in each run.
const FLAPS: u32 = 125;
const QKEY: u32 = 7;
const BYTES: usize = 4096;

#[test]
fn ten_thousand_flaps_lose_no_event_and_no_queue_pair() {
    let mut flaps = 0;
    let runs = seeds::each(RUNS, |seed| flaps += run(seed));
    assert!(flaps >= runs * 200, "{flaps} in {runs} runs");
}

/// Returns the number of times that ports went down.
fn run(seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let mut flapping = Flapping::new();
    let plans = [A, B].map(|id| flapping.plan(id, &mut dice));
    let end = plans.iter().flatten().map(|it| it.1).max().unwrap();
    while flapping.world.now < end {
        flapping.post_some(&mut dice);
        let until = dice.within(1..=400);
        flapping.world.run_for(until * 1_000);
        flapping.revive();
    }
    flapping.world.run();
    flapping.revive();
    flapping.check_all_work();
    plans
        .iter()
        .zip([A, B])
        .map(|(plan, id)| flapping.check_port(id, plan))
        .sum()
}

/// A pair of queue pairs of one type.
struct Rail {
    qp_type: QpType,
    qpns: [Qpn; 2],
    posted: u64,
    done: u64,
}

struct Flapping {
    world: World,
    rails: Vec<Rail>,
    source: Region,
    sink: Region,
    /// For datagrams.
    inbox: Region,
    srq: Srqn,
    /// Completions that were checked.
    seen: [usize; 2],
}

impl Flapping {
    fn new() -> Self {
        let mut world = World::new([config(), config()]);
        world.log = Some(Vec::new());
        world.audit_every = 64;
        let xrcd = world.sides[B].hca.alloc_xrcd().unwrap();
        let (pd, cq) = (world.sides[B].pd, world.sides[B].cq);
        let objects = XrcObjects { xrcd, cq };
        let srq = world.sides[B]
            .hca
            .create_xrc_srq(pd, objects, 16, 1)
            .unwrap();
        let srq = world.sides[B].hca.srq_number(srq).unwrap();
        let types = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend];
        let rails = types.map(|qp_type| {
            let qpns = match qp_type {
                QpType::Ud => [A, B].map(|id| world.sides[id].create_ud(QKEY)),
                QpType::XrcSend => [
                    world.sides[A].create_qp_of(QpType::XrcSend),
                    world.sides[B].hca.create_xrc_recv_qp(xrcd).unwrap(),
                ],
                other => [A, B].map(|id| world.sides[id].create_qp_of(other)),
            };
            let (posted, done) = (0, 0);
            Rail {
                qp_type,
                qpns,
                posted,
                done,
            }
        });
        let source = world.sides[A].register(BYTES, AccessFlags::LOCAL_WRITE);
        let sink = world.sides[B].register(BYTES, AccessFlags::all());
        let inbox = world.sides[B].register(BYTES + 40, AccessFlags::LOCAL_WRITE);
        let rails = Vec::from(rails);
        let mut flapping = Self {
            world,
            rails,
            source,
            sink,
            inbox,
            srq,
            seen: [0; 2],
        };
        for rail in 0..flapping.rails.len() {
            flapping.connect(rail);
        }
        let ud = flapping.rails[2].qpns[B];
        for wr_id in 0..16 {
            flapping.world.sides[B].recv(ud, wr_id, &flapping.inbox);
        }
        flapping
    }

    fn connect(&mut self, rail: usize) {
        let Rail { qp_type, qpns, .. } = self.rails[rail];
        if qp_type == QpType::Ud {
            return;
        }
        let peer_type = match qp_type {
            QpType::XrcSend => QpType::XrcRecv,
            other => other,
        };
        for (id, qp_type) in [(A, qp_type), (B, peer_type)] {
            let side = &mut self.world.sides[id];
            if side.state(qpns[id]) != QpState::Reset {
                side.move_to(qpns[id], QpState::Reset);
            }
            let dest = self.world.sides[1 - id].address;
            let attr = ferroce_device::QpAttr {
                dest_qpn: qpns[1 - id],
                rq_psn: Psn::new(5),
                sq_psn: Psn::new(5),
                ..attr()
            };
            let traffic_class = 0;
            let path = Path {
                dest,
                traffic_class,
                sl: 0,
                port: 1,
            };
            self.world.sides[id].ready(qpns[id], qp_type, attr, Some(path));
        }
        self.world.settle();
    }

    /// Puts a schedule in force. Returns when the port is to be down, outage by outage.
    fn plan(&mut self, id: usize, dice: &mut Dice) -> Vec<(Time, Time)> {
        let mut outages = Vec::new();
        let mut at = self.world.now;
        let mut left = FLAPS;
        while left > 0 {
            let times = (dice.below(20) as u32 + 1).min(left);
            let length = Span::from_nanos(dice.within(1..=900_000));
            let pause = Span::from_nanos(dice.within(1_000..=900_000));
            let first = at.after(Span::from_nanos(dice.within(1_000..=500_000)));
            let every = length + pause;
            outages.push(Outages {
                first,
                length,
                every,
                times,
            });
            at = first.after(every.times(times.into()));
            left -= times;
        }
        // A few of them overlap others.
        let doubled = outages[dice.below(outages.len() as u64) as usize];
        outages.push(Outages {
            first: doubled.first.after(doubled.length.times(2)),
            ..doubled
        });
        let now = self.world.now;
        let hca = &mut self.world.sides[id].hca;
        hca.state()
            .set_schedule(now, Schedule::new(outages.clone()).unwrap())
            .unwrap();
        hca.handle_settings(now);
        merged(&outages)
    }

    fn post_some(&mut self, dice: &mut Dice) {
        for at in 0..self.rails.len() {
            let rail = &mut self.rails[at];
            let is_up = self.world.sides[A].state(rail.qpns[A]) == QpState::Rts;
            if !is_up || rail.posted - rail.done >= 4 || dice.chance(30) {
                continue;
            }
            let wr = self.wr(at, dice.chance(30));
            let rail = &mut self.rails[at];
            rail.posted += 1;
            let qpn = rail.qpns[A];
            self.world.post(A, qpn, wr);
        }
    }

    fn wr(&self, at: usize, read: bool) -> SendWr {
        let rail = &self.rails[at];
        let (wr_id, sge) = (at as u64, self.source.whole());
        match rail.qp_type {
            QpType::Ud => {
                let (dest, traffic_class) = (self.world.sides[B].address, 0);
                let to = UdAddress {
                    path: Path {
                        dest,
                        traffic_class,
                        sl: 0,
                        port: 1,
                    },
                    qpn: rail.qpns[B],
                    qkey: QKEY,
                };
                SendWr {
                    to: SendTo::Datagram(to),
                    ..SendWr::new(wr_id, SEND, self.source.sge(0, 1000))
                }
            }
            QpType::Rc if read => SendWr::new(wr_id, self.sink.read(), sge),
            QpType::XrcSend => SendWr {
                to: SendTo::Srq(self.srq),
                ..SendWr::new(wr_id, self.sink.write(), sge)
            },
            _ => SendWr::new(wr_id, self.sink.write(), sge),
        }
    }

    /// Counts what is done, and reconnects what has failed.
    fn revive(&mut self) {
        for completion in &self.world.sides[A].completions[self.seen[A]..] {
            let rail = &mut self.rails[completion.wr_id as usize];
            rail.done += 1;
            let reliable = matches!(rail.qp_type, QpType::Rc | QpType::XrcSend);
            let dies = [WcStatus::RetryExcErr, WcStatus::WrFlushErr].contains(&completion.status);
            let fits = completion.status == WcStatus::Success || reliable && dies;
            assert!(fits, "{completion:?}");
        }
        self.seen[A] = self.world.sides[A].completions.len();
        let received = self.world.sides[B].completions.len();
        for _ in self.seen[B]..received {
            let wr = recv_wr(0, &self.inbox);
            let ud = self.rails[2].qpns[B];
            self.world.sides[B].hca.post_recv(ud, wr).unwrap();
        }
        self.seen[B] = received;
        for rail in 0..self.rails.len() {
            let Rail {
                qpns, posted, done, ..
            } = self.rails[rail];
            let failed = [A, B].map(|id| self.world.sides[id].state(qpns[id]) == QpState::Err);
            if failed != [false; 2] && posted == done {
                self.connect(rail);
            }
        }
    }

    /// Checks that every request has completed, and that each queue pair carries another one.
    fn check_all_work(&mut self) {
        for at in 0..self.rails.len() {
            let Rail {
                posted, done, qpns, ..
            } = self.rails[at];
            assert_eq!(posted, done, "rail {at} is stuck");
            assert!(posted > 0, "rail {at} had nothing to do");
            self.source.fill(at as u64 + 1);
            let wr = self.wr(at, false);
            self.rails[at].posted += 1;
            self.world.post(A, qpns[A], wr);
            self.world.run();
            let last = self.world.sides[A].completions.last().unwrap();
            assert_eq!((last.wr_id, last.status), (at as u64, WcStatus::Success));
            if self.rails[at].qp_type != QpType::Ud {
                assert!(self.sink.bytes() == self.source.bytes(), "rail {at}");
            }
        }
    }

    /// Checks that events and counters match the plan, and that nothing left while the port was
    /// down.
    fn check_port(&mut self, id: usize, plan: &[(Time, Time)]) -> u64 {
        let expected = plan
            .iter()
            .flat_map(|_| [Event::PortError { port: 1 }, Event::PortActive { port: 1 }]);
        assert!(of_port(&self.world.sides[id]).into_iter().eq(expected));
        let now = self.world.now;
        let downed = self.world.sides[id].hca.state().link_downed(now);
        assert_eq!(downed, plan.len() as u64);
        let mut outages = plan.iter().peekable();
        for sent in self.world.log.iter().flatten().filter(|it| it.from == id) {
            while outages.next_if(|(_, end)| *end <= sent.at).is_some() {}
            if let Some((begin, _)) = outages.peek() {
                assert!(sent.at <= *begin, "{:?} in {:?}", sent.at, outages.peek());
            }
        }
        downed
    }
}

/// The intervals in which at least one of them is in progress.
fn merged(outages: &[Outages]) -> Vec<(Time, Time)> {
    let mut all: Vec<(Time, Time)> = Vec::new();
    for it in outages {
        for number in 0..u64::from(it.times) {
            let begin = it.first.after(it.every.times(number));
            all.push((begin, begin.after(it.length)));
        }
    }
    all.sort_unstable();
    let mut merged: Vec<(Time, Time)> = Vec::new();
    for (begin, end) in all {
        match merged.last_mut() {
            Some((_, last)) if begin <= *last => *last = end.max(*last),
            _ => merged.push((begin, end)),
        }
    }
    merged
}
