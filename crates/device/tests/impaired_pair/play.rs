//! Plays a scenario on a pair of devices.

use std::collections::BTreeMap;

use ferroce_device::impair::Blackout;
use ferroce_device::{
    AccessFlags, Direction, Hca, Impairment, QpCap, QpInit, QpState, QpType, RecvWr, SendFlags,
    SendOp, SendTo, SendWr, Sge, Sges, Span, SrqId, Time, XrcObjects,
};
use ferroce_wire::Qpn;

use crate::oracle;
use crate::scenario::{Age, Cue, HELD_NS_MAX, LEN_MAX, Message, RNR_NS_MAX, Scenario};
use ferroce_testing::message::{Posted, Target};
use ferroce_testing::register::{disable_floor, set_profile, switch_adaptive};
use ferroce_testing::{A, B, Region, World};

/// The result of a scenario in which every guarantee held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Messages posted.
    pub(crate) sent: u64,
    /// Messages known to be done.
    pub(crate) done: u64,
}

/// A pair of devices and the memory of its messages.
pub(crate) struct Stage {
    pub(crate) pair: World,
    /// For each pair of queue pairs, its end on A and on B.
    pub(crate) ends: Vec<[End; 2]>,
    /// Receives by their number, for each device.
    pub(crate) recvs: [Vec<Recv>; 2],
}

/// One queue pair with its memory and work requests.
pub(crate) struct End {
    pub(crate) qpn: Qpn,
    srq: Option<SrqId>,
    /// What the peer writes, reads and adds to.
    pub(crate) target: Region,
    /// The bytes in there at the start.
    pub(crate) before: Vec<u8>,
    /// In order.
    pub(crate) sends: Vec<Planned>,
}

/// A message with its memory.
pub(crate) struct Planned {
    pub(crate) message: Message,
    pub(crate) wr: SendWr,
    /// Whether the device accepted it.
    pub(crate) posted: bool,
    /// The bytes sent, or where the response goes.
    pub(crate) local: Region,
}

impl End {
    /// Its messages, with the present bytes.
    pub(crate) fn posted(&self) -> Vec<Posted<'_>> {
        let posted = |sent: &'_ Planned| sent.posted;
        assert!(self.sends.iter().all(posted));
        let sends = self.sends.iter().map(|sent| Posted {
            kind: sent.message.kind,
            wr: &sent.wr,
            bytes: sent.local.bytes(),
        });
        sends.collect()
    }
}

pub(crate) struct Recv {
    /// Posted to this queue pair, or to the shared queue.
    pub(crate) qpn: Option<Qpn>,
    pub(crate) region: Region,
    pub(crate) used: bool,
}

/// Bytes of each of the two parts of a target.
const PART: u32 = LEN_MAX + 1000;

/// How long a connection that is to become older waits for a moment at which it has nothing in
/// flight.
const AGE_NS_MAX: u64 = 200_000;

/// Plays a scenario. If connections become older in it, plays it once more without that: the
/// devices must then send the same, except for PSNs and message sequence numbers.
pub(crate) fn play(seed: u64) -> Outcome {
    let scenario = Scenario::new(seed);
    if scenario.ages.is_empty() {
        return play_once(&scenario, None);
    }
    let mut young = Scenario::new(seed);
    for (_, age) in &mut young.ages {
        age.messages = 0;
    }
    let [mut old_trace, mut young_trace] = [Vec::new(), Vec::new()];
    let outcome = play_once(&scenario, Some(&mut old_trace));
    play_once(&young, Some(&mut young_trace));
    assert_same(&old_trace, &young_trace);
    outcome
}

pub(crate) fn assert_same(first: &[String], second: &[String]) {
    if let Some(at) = first.iter().zip(second).position(|(a, b)| a != b) {
        panic!("event {at}: {}\nthen: {}", first[at], second[at]);
    }
    assert_eq!(first.len(), second.len());
}

pub(crate) fn play_once(scenario: &Scenario, trace: Option<&mut Vec<String>>) -> Outcome {
    let mut stage = Stage::new(scenario);
    stage.pair.trace = trace.is_some().then(Vec::new);
    let start = stage.pair.now;
    let mut last = start;
    for (at, cues) in stage.cues(scenario) {
        stage.pair.run_until(start.after(Span::from_nanos(at)));
        for cue in cues {
            stage.act(cue, start);
        }
        last = stage.pair.now;
    }
    if scenario.cut_at.is_some() {
        let limit = stage.patience();
        stage.pair.run_until(limit);
        for id in [A, B] {
            for ends in &stage.ends {
                let qp = stage.pair.sides[id].hca.qp(ends[id].qpn).unwrap();
                assert_eq!(qp.in_flight(), 0, "waits too long for a dead peer: {qp:?}");
            }
        }
    }
    stage.pair.run();
    let outcome = oracle::check(&mut stage, scenario, last);
    if let (Some(trace), Some(played)) = (trace, stage.pair.trace.take()) {
        *trace = played;
    }
    outcome
}

enum Act<'a> {
    Post(usize, usize, usize),
    Recv(usize, usize),
    Device(usize, &'a Cue),
    Age(&'a Age),
    Cut,
}

impl Stage {
    fn new(scenario: &Scenario) -> Self {
        let mut pair = World::within(scenario.configs.clone());
        let srqs = [A, B].map(|id| {
            let (side, wanted) = (&mut pair.sides[id], scenario.srq[id]);
            wanted.then(|| side.hca.create_srq(side.pd, 256, 2).unwrap())
        });
        for (side, on) in pair.sides.iter_mut().zip(scenario.selective) {
            side.repeat_selectively(on);
        }
        for (side, on) in pair.sides.iter_mut().zip(scenario.routed) {
            side.route_adaptively(on);
        }
        for (side, on) in pair.sides.iter_mut().zip(scenario.restarts) {
            side.restart_after_silence(on);
        }
        let mut stage = Self {
            pair,
            ends: Vec::new(),
            recvs: [Vec::new(), Vec::new()],
        };
        for plan in &scenario.qps {
            let ends = match plan.xrc {
                true => stage.xrc_ends(),
                false => [A, B].map(|id| stage.end(id, srqs[id])),
            };
            let qpns = [ends[A].qpn, ends[B].qpn];
            stage.pair.connect_from(qpns, plan.attr, plan.psns);
            stage.ends.push(ends);
            let nth = stage.ends.len() - 1;
            for id in [A, B] {
                for message in &plan.messages[id] {
                    stage.plan(nth, id, message);
                }
            }
        }
        stage
    }

    fn end(&mut self, id: usize, srq: Option<SrqId>) -> End {
        let side = &mut self.pair.sides[id];
        let init = QpInit {
            srq,
            cap: QpCap {
                max_inline_data: 1024,
                ..QpCap::default()
            },
            ..side.init()
        };
        let qpn = side.hca.create_qp(&init).unwrap();
        self.end_of(id, qpn, srq)
    }

    /// A sends, B has a shared receive queue.
    fn xrc_ends(&mut self) -> [End; 2] {
        let [a, b] = &mut self.pair.sides[..] else {
            unreachable!("a pair");
        };
        let xrcd = b.hca.alloc_xrcd().unwrap();
        let objects = XrcObjects { xrcd, cq: b.cq };
        let srq = b.hca.create_xrc_srq(b.pd, objects, 256, 2).unwrap();
        let recv = b.hca.create_xrc_recv_qp(xrcd).unwrap();
        let init = QpInit {
            qp_type: QpType::XrcSend,
            cap: QpCap {
                max_inline_data: 1024,
                ..QpCap::default()
            },
            ..a.init()
        };
        let send = a.hca.create_qp(&init).unwrap();
        [self.end_of(A, send, None), self.end_of(B, recv, Some(srq))]
    }

    fn end_of(&mut self, id: usize, qpn: Qpn, srq: Option<SrqId>) -> End {
        let side = &mut self.pair.sides[id];
        let target = side.register(Target::bytes(PART) as usize, AccessFlags::all());
        target.fill(u64::from(qpn.value()) << 1 | id as u64);
        End {
            qpn,
            srq,
            before: target.bytes(),
            target,
            sends: Vec::new(),
        }
    }

    /// Gives a message its memory on both sides.
    fn plan(&mut self, nth: usize, id: usize, message: &Message) {
        let Message {
            kind, len, place, ..
        } = *message;
        let peer = 1 - id;
        let End { target, before, .. } = &self.ends[nth][peer];
        let target = Target {
            va: target.info.va,
            rkey: target.info.key.rkey(),
            part: PART,
        };
        let op = match target.op(kind, place, len, before) {
            Some(op) => op,
            None => {
                let qpn = self.ends[nth][peer].qpn;
                let rkey = self.pair.open_window(peer, qpn);
                SendOp::SendInvalidate { rkey }
            }
        };
        // Each message has a region of its own, so that a stray byte anywhere is found.
        let local = self.pair.sides[id].register(len as usize, AccessFlags::LOCAL_WRITE);
        local.fill(u64::from(place) << 8 | nth as u64);
        let cut = message.cut.map_or(len, |cut| cut % (len + 1));
        let sges = [local.sge(0, cut), local.sge(cut.into(), len - cut)];
        let wr_id = self.ends[nth][id].sends.len() as u64;
        let mut wr = SendWr {
            wr_id: wr_id << 8 | nth as u64,
            op,
            flags: SendFlags::empty(),
            sges: Sges::from_slice(&sges),
            inline: None,
            to: self.to(nth, id),
        };
        wr.flags.set(SendFlags::SIGNALED, message.signaled);
        wr.flags.set(SendFlags::FENCE, message.fence);
        wr.flags.set(SendFlags::SOLICITED, message.solicited);
        if message.inline && len <= 1024 && !kind.needs_response() {
            wr.flags |= SendFlags::INLINE;
            wr.inline = Some(local.bytes().into());
            wr.sges.clear();
        }
        self.ends[nth][id].sends.push(Planned {
            message: message.clone(),
            wr,
            posted: false,
            local,
        });
    }

    /// The destination of messages.
    fn to(&mut self, nth: usize, id: usize) -> SendTo {
        let own = self.pair.sides[id].hca.qp(self.ends[nth][id].qpn).unwrap();
        match (own.config().qp_type, self.ends[nth][1 - id].srq) {
            (QpType::XrcSend, Some(srq)) => {
                SendTo::Srq(self.pair.sides[1 - id].hca.srq_number(srq).unwrap())
            }
            _ => SendTo::Peer,
        }
    }

    /// The events of the scenario, by time.
    fn cues<'a>(&self, scenario: &'a Scenario) -> BTreeMap<u64, Vec<Act<'a>>> {
        let mut acts: BTreeMap<u64, Vec<Act<'a>>> = BTreeMap::new();
        let mut add = |at, act| acts.entry(at).or_default().push(act);
        for (at, side, cue) in &scenario.cues {
            // A link that is cut stays cut.
            let is_cut = scenario.cut_at.is_some_and(|cut_at| *at > cut_at);
            if !(is_cut && matches!(cue, Cue::Impair(Direction::Ingress, _))) {
                add(*at, Act::Device(*side, cue));
            }
        }
        for (nth, plan) in scenario.qps.iter().enumerate() {
            for id in [A, B] {
                // A queue pair that fails consumes a request of a shared queue.
                if !(plan.xrc && id == B) {
                    add(0, Act::Recv(nth, 1 - id));
                }
                for (index, message) in plan.messages[id].iter().enumerate() {
                    if message.kind.consumes_receive() {
                        add(message.recv_at, Act::Recv(nth, 1 - id));
                    }
                    add(message.post_at, Act::Post(nth, id, index));
                }
            }
        }
        for (at, age) in &scenario.ages {
            add(*at, Act::Age(age));
        }
        if let Some(at) = scenario.cut_at {
            add(at, Act::Cut);
        }
        acts
    }

    fn act(&mut self, act: Act<'_>, start: Time) {
        match act {
            Act::Post(nth, id, index) => {
                let end = &mut self.ends[nth][id];
                let planned = &mut end.sends[index];
                let hca = &mut self.pair.sides[id].hca;
                hca.post_send(end.qpn, planned.wr.clone()).unwrap();
                planned.posted = true;
            }
            Act::Recv(nth, id) => self.post_recv(nth, id),
            Act::Device(side, Cue::Block(blocked)) => self.pair.sides[side].blocked = *blocked,
            Act::Age(age) => self.age(age),
            Act::Device(side, cue) => perform(&mut self.pair.sides[side].hca, cue, start),
            Act::Cut => {
                let link = Impairment {
                    blackouts: vec![Blackout {
                        from: Time::ZERO,
                        length: Span::NEVER,
                    }],
                    ..Impairment::default()
                };
                for side in &mut self.pair.sides {
                    side.hca
                        .set_impairment(Direction::Ingress, link.clone())
                        .unwrap();
                }
            }
        }
    }

    /// Advances a connection as soon as it has nothing in flight, if that is soon: a step may be as
    /// long as the longest timer, and later events must not wait for that.
    fn age(&mut self, age: &Age) {
        let Age {
            nth,
            from,
            messages,
        } = *age;
        let [own, peer] = [from, 1 - from].map(|id| self.ends[nth][id].qpn);
        let soon = self.pair.now.after(Span::from_nanos(AGE_NS_MAX));
        while !self.pair.age(from, [own, peer], messages) && self.pair.step_until(soon) {}
    }

    fn post_recv(&mut self, nth: usize, id: usize) {
        let side = &mut self.pair.sides[id];
        let region = side.register(LEN_MAX as usize, AccessFlags::LOCAL_WRITE);
        let half = LEN_MAX / 3;
        let sges: [Sge; 2] = [region.sge(0, half), region.sge(half.into(), LEN_MAX - half)];
        let wr = RecvWr {
            wr_id: self.recvs[id].len() as u64,
            sges: Sges::from_slice(&sges),
        };
        let End { qpn, srq, .. } = self.ends[nth][id];
        match srq {
            Some(srq) => side.hca.post_srq_recv(srq, wr).unwrap(),
            None => side.hca.post_recv(qpn, wr).unwrap(),
        }
        self.recvs[id].push(Recv {
            qpn: srq.is_none().then_some(qpn),
            region,
            used: false,
        });
    }

    /// When every queue pair has given up on a peer that is silent from now on.
    fn patience(&self) -> Time {
        let now = self.pair.now;
        let mut limit = now;
        for id in [A, B] {
            let hca = &self.pair.sides[id].hca;
            let policy = hca.policy();
            let qps = self.ends.iter().map(|ends| hca.qp(ends[id].qpn).unwrap());
            let live = qps.filter(|qp| qp.state() == QpState::Rts);
            let total = |timeouts| policy.total(timeouts).unwrap();
            // It may still be waiting for room that others hold until one of their timers shows
            // that the peer is silent.
            let totals = live.clone().map(|qp| total(qp.timeouts()));
            let room = totals.max().unwrap_or_default();
            for qp in live {
                // The current timer may belong to an earlier policy, and packets in flight may
                // still arrive.
                let from = qp.poll_timeout().unwrap_or(now).max(now);
                limit = limit.max(
                    from.after(total(qp.timeouts()))
                        .after(Span::from_nanos(2 * HELD_NS_MAX))
                        .after(Span::from_nanos(RNR_NS_MAX))
                        .after(room),
                );
            }
        }
        limit
    }
}

fn perform(hca: &mut Hca, cue: &Cue, start: Time) {
    match cue {
        Cue::Impair(direction, link) => {
            let link = link.clone().beginning_at(start);
            hca.set_impairment(*direction, link).unwrap();
        }
        Cue::Adaptive(on) => switch_adaptive(hca, *on),
        Cue::NoFloor(disabled) => disable_floor(hca, *disabled),
        Cue::Profile(profile) => set_profile(hca, profile),
        Cue::ResetRegisters => hca.reset_registers().unwrap(),
        Cue::Block(_) => {} // is the host's matter
    }
}
