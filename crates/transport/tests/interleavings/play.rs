//! Plays a scenario on a pair.

use std::collections::BTreeMap;

use ferroce_transport::{
    AccessFlags, Attr, MwBind, QpAttr, QpCap, QpModify, QpState, QpType, SendFlags, SendOp, SendTo,
    SendWr, Sge, Sges,
};

use ferroce_testing::message::{Kind, Posted, Target};

use crate::common::{A, B, Dice, Fate, Id, Mr, Packet, Pair, Setup};
use crate::oracle;
use crate::scenario::{Message, Scenario, policy};

/// The result of a scenario in which every guarantee held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Neither queue pair failed.
    pub(crate) completed: bool,
}

/// A pair and the memory of its messages.
pub(crate) struct Stage {
    pub(crate) pair: Pair,
    pub(crate) plans: [Plan; 2],
}

/// One side's memory and work requests.
pub(crate) struct Plan {
    /// What the peer writes, reads and adds to.
    pub(crate) target: Mr,
    /// The bytes in there at the start.
    pub(crate) before: Vec<u8>,
    /// In order.
    pub(crate) sends: Vec<Planned>,
    /// Where the peer's messages that consume a receive go, in order.
    pub(crate) recvs: Vec<Vec<Sge>>,
}

/// A message with its memory.
pub(crate) struct Planned {
    pub(crate) message: Message,
    pub(crate) wr: SendWr,
    /// The bytes sent, or where the response goes.
    pub(crate) local: Vec<Sge>,
}

/// Bytes of each of the two parts of a target.
const PART: u32 = 40 << 10;
const TARGET_BYTES: u32 = Target::bytes(PART);

/// Plays a scenario. If its connection ages, plays it once more without that: the packets must then
/// be the same, except for their PSNs and message sequence numbers.
pub(crate) fn play(scenario: &Scenario) -> Outcome {
    if scenario.ages.is_empty() {
        return play_once(scenario, None);
    }
    let (mut old, mut young) = (Vec::new(), Vec::new());
    let outcome = play_once(scenario, Some(&mut old));
    let mut twin = scenario.clone();
    for (.., distance) in &mut twin.ages {
        *distance = 0;
    }
    play_once(&twin, Some(&mut young));
    if let Some(at) = old.iter().zip(&young).position(|(old, young)| old != young) {
        panic!(
            "packet {at} of the old connection is {:?}\nof the young one {:?}",
            old[at], young[at]
        );
    }
    assert_eq!(old.len(), young.len());
    outcome
}

fn play_once(scenario: &Scenario, log: Option<&mut Vec<Packet>>) -> Outcome {
    let mut stage = Stage::new(scenario);
    stage.pair.net().rules.add(chaos(scenario));
    stage.pair.young = log.is_some().then(Vec::new);
    for (at_us, cues) in stage.cues(scenario) {
        let now_us = (stage.pair.now.as_nanos() - START_NS) / 1000;
        stage.pair.run_for(at_us.saturating_sub(now_us) * 1000);
        for cue in cues {
            stage.act(cue, scenario);
        }
    }
    stage.pair.run();
    if let (Some(log), Some(young)) = (log, stage.pair.young.take()) {
        *log = young;
    }
    oracle::check(&mut stage)
}

/// When a pair's clock begins.
const START_NS: u64 = 5_000_000;

/// What the wire does to each packet.
fn chaos(scenario: &Scenario) -> impl FnMut(&Packet) -> Option<Fate> + 'static {
    let Scenario {
        loss_per_mille,
        duplicate_per_mille,
        delay_per_mille,
        delay_us_max,
        ..
    } = *scenario;
    let mut dice = Dice::new(scenario.seed);
    move |_| {
        if dice.per_mille(loss_per_mille) {
            return Some(Fate::Lost);
        }
        let copies = 1 + usize::from(dice.per_mille(duplicate_per_mille));
        let mut delay = || match dice.per_mille(delay_per_mille) {
            true => 1000 * dice.below(delay_us_max),
            false => 0,
        };
        Some(Fate::Copies(
            [0, 1].map(|nth| (nth < copies).then(&mut delay)),
        ))
    }
}

enum Cue {
    Post(Id, usize),
    Recv(Id, usize),
    Drain,
    Resume,
    Policy(u8),
    Age(Id, u32),
}

impl Stage {
    /// The messages of a side, with the present bytes.
    pub(crate) fn posted(&self, id: Id) -> Vec<Posted<'_>> {
        let sends = self.plans[id as usize].sends.iter().map(|sent| Posted {
            kind: sent.message.kind,
            wr: &sent.wr,
            bytes: self.bytes(id, &sent.local),
        });
        sends.collect()
    }

    pub(crate) fn bytes(&self, id: Id, sges: &[Sge]) -> Vec<u8> {
        let bytes = |sge: &Sge| self.pair.bytes(id, *sge);
        sges.iter().flat_map(bytes).collect()
    }

    fn new(scenario: &Scenario) -> Self {
        let pair = Setup {
            mtu: scenario.mtu,
            psn: scenario.psn,
            window_bytes: scenario.window_packets * scenario.mtu.bytes(),
            timeout: scenario.timeout,
            retry_cnt: scenario.retry_cnt,
            rnr_retry: scenario.rnr_retry,
            min_rnr_timer: 8,
            rd_atomic: scenario.rd_atomic,
            dest_rd_atomic: scenario.rd_atomic,
            srq: scenario.srq,
            repeat: scenario.repeat,
            qp_type: match scenario.xrc {
                true => QpType::XrcSend,
                false => QpType::Rc,
            },
            policy: policy(scenario.policy, scenario.seed),
            gap_ns: scenario.gap_ns,
            has_port: scenario.seed.is_multiple_of(2),
            cap: QpCap {
                max_inline_data: 32 << 10,
                ..QpCap::default()
            },
            memory_bytes: 0,
            ..Setup::default()
        }
        .connect();
        let mut stage = Self {
            pair,
            plans: [A, B].map(|_| Plan {
                target: Mr {
                    key: 0,
                    va: 0,
                    len: 0,
                },
                before: Vec::new(),
                sends: Vec::new(),
                recvs: Vec::new(),
            }),
        };
        for id in [A, B] {
            stage.add_target(id);
        }
        for id in [A, B] {
            for (index, message) in scenario.messages[id as usize].iter().enumerate() {
                stage.plan(id, index as u64, message, scenario);
            }
        }
        stage
    }

    fn add_target(&mut self, id: Id) {
        let host = &mut self.pair[id].host;
        let target = host.register(TARGET_BYTES, AccessFlags::all());
        let plan = &mut self.plans[id as usize];
        plan.before = host.bytes(target.part(0, TARGET_BYTES)).to_vec();
        plan.target = target;
    }

    /// Gives a message its memory on both sides.
    fn plan(&mut self, id: Id, wr_id: u64, message: &Message, scenario: &Scenario) {
        let len = message.len(scenario.mtu);
        let kind = message.kind;
        let Plan { target, before, .. } = &self.plans[id.peer() as usize];
        let target = Target {
            va: target.va,
            rkey: target.key,
            part: PART,
        };
        let op = match (target.op(kind, message.place, len, before), kind) {
            (Some(op), _) => op,
            (None, Kind::BindMw) => {
                let own = self.plans[id as usize].target;
                SendOp::BindMw(MwBind {
                    rkey: wr_id as u32,
                    lkey: own.key,
                    va: own.va,
                    length: 1,
                    access: AccessFlags::REMOTE,
                    zero_based: false,
                })
            }
            (None, _) => {
                let host = &mut self.pair[id.peer()].host;
                let rkey = host.register(1, AccessFlags::all()).key;
                SendOp::SendInvalidate { rkey }
            }
        };
        // Each message has a region of its own, so that a stray byte anywhere is found.
        let source = self.pair[id].host.register(len, AccessFlags::LOCAL_WRITE);
        let local = cut(source, len, &message.cuts);
        let mut wr = SendWr {
            wr_id,
            op,
            flags: SendFlags::empty(),
            sges: Sges::from_slice(&local),
            inline: None,
            to: SendTo::Peer,
        };
        wr.flags.set(SendFlags::SIGNALED, message.signaled);
        wr.flags.set(SendFlags::FENCE, message.fence);
        if message.inline && !kind.needs_response() {
            wr.flags |= SendFlags::INLINE;
            wr.inline = Some(self.pair.bytes(id, source.part(0, len)).into());
            wr.sges.clear();
        }
        if kind.consumes_receive() {
            let slack = message.place % 5;
            let sink = self.pair[id.peer()]
                .host
                .register(len + slack, AccessFlags::LOCAL_WRITE);
            let sges = cut(sink, len + slack, &message.cuts);
            self.plans[id.peer() as usize].recvs.push(sges);
        }
        self.plans[id as usize].sends.push(Planned {
            message: message.clone(),
            wr,
            local,
        });
    }

    /// The events of the scenario, by time in microseconds.
    fn cues(&self, scenario: &Scenario) -> BTreeMap<u64, Vec<Cue>> {
        let mut cues: BTreeMap<u64, Vec<Cue>> = BTreeMap::new();
        let mut add = |at, cue| cues.entry(at).or_default().push(cue);
        for id in [A, B] {
            let (mut posted, mut received, mut recvs) = (0, 0, 0);
            for (index, message) in scenario.messages[id as usize].iter().enumerate() {
                posted += message.wait_us;
                add(posted, Cue::Post(id, index));
                if message.kind.consumes_receive() {
                    received += message.recv_wait_us;
                    add(received, Cue::Recv(id.peer(), recvs));
                    recvs += 1;
                }
            }
        }
        if let Some((at, length)) = scenario.drain_us {
            add(at, Cue::Drain);
            add(at + length, Cue::Resume);
        }
        for (at, side, distance) in &scenario.ages {
            add(*at, Cue::Age([A, B][*side], *distance));
        }
        if let Some((at, index)) = scenario.new_policy {
            add(at, Cue::Policy(index));
        }
        cues
    }

    fn act(&mut self, cue: Cue, scenario: &Scenario) {
        let pair = &mut self.pair;
        match cue {
            Cue::Post(id, index) => {
                let wr = self.plans[id as usize].sends[index].wr.clone();
                pair.post(id, wr);
            }
            Cue::Recv(id, index) => {
                let sges = &self.plans[id as usize].recvs[index];
                pair.recv_into(id, index as u64, sges);
            }
            Cue::Drain if pair[A].qp.state() == QpState::Rts => {
                let attr = QpAttr {
                    sqd_async_notify: true,
                    ..QpAttr::default()
                };
                let notify = Attr::EN_SQD_ASYNC_NOTIFY;
                pair.modify(A, &QpModify::to(QpState::Sqd, notify, attr));
            }
            Cue::Resume if pair[A].qp.state() == QpState::Sqd => pair.move_to(A, QpState::Rts),
            Cue::Drain | Cue::Resume => {}
            Cue::Age(id, distance) => {
                // As soon as nothing is in flight, if that is soon.
                let mut steps = 0..500;
                while !pair.age(id, distance) && steps.next().is_some() && pair.step(None) {}
            }
            Cue::Policy(index) => {
                for id in [A, B] {
                    let host = &mut pair[id].host;
                    let epoch = host.policy.epoch + 1;
                    host.policy = policy(index, scenario.seed);
                    host.policy.epoch = epoch;
                }
            }
        }
    }
}

/// A scatter/gather list over the first `len` bytes.
fn cut(mr: Mr, len: u32, cuts: &[u32]) -> Vec<Sge> {
    let mut edges: Vec<u32> = cuts.iter().map(|c| len * c / 1000).collect();
    edges.extend([0, len]);
    edges.sort_unstable();
    edges
        .windows(2)
        .map(|pair| mr.part(pair[0], pair[1] - pair[0]))
        .collect()
}
