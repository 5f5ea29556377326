//! Whatever the links do, each message of a DCI arrives exactly once at its target, in order with the
//! right bytes, or the DCI ends in the documented error.

use std::collections::HashSet;
use std::sync::Arc;

use ferroce_device::{
    AccessFlags, Completion, Counter, DctAddress, Direction, Hca, HcaConfig, Mtu, Path, QpAttr,
    QpInit, QpModify, QpState, QpType, RecvWr, SendFlags, SendOp, SendTo, SendWr, Settings, Sges,
    Span, WcOpcode, WcStatus,
};
use ferroce_prm::{Image, roce_accl as reg};
use ferroce_testing::message::{Kind, Posted, Target};
use ferroce_testing::oracle::{
    check_memory, check_received, check_responses, check_sends, is_recv,
};
use ferroce_testing::{A, B, Bounds, Dice, Region, Side, World, attr, sharing};
use ferroce_wire::{Psn, Qpn};

use crate::scenario::{config, impairment};

/// Length of each part of an initiator's memory at the other side.
const PART: u32 = 8 << 10;
/// Messages are told apart by their bytes.
const LEN_MIN: u32 = 16;
const LEN_MAX: u32 = 6000;

/// Messages sent and done, and connections.
pub(crate) struct Outcome {
    pub(crate) sent: usize,
    pub(crate) done: usize,
    pub(crate) connects: u64,
}

struct Initiator {
    qpn: Qpn,
    sends: Vec<Sent>,
    /// The memory at the other side that it alone reaches.
    target: Region,
    before: Vec<u8>,
}

struct Sent {
    kind: Kind,
    wr: SendWr,
    local: Region,
    /// Which of the targets it is for.
    target: usize,
    at: u64,
}

struct Stage {
    pair: World,
    mtu: Mtu,
    targets: Vec<Qpn>,
    initiators: Vec<Initiator>,
    recvs: Vec<Region>,
}

pub(crate) fn play(seed: u64) -> Outcome {
    let dice = &mut Dice::new(seed);
    let mut stage = Stage::new(dice);
    let perfect = dice.chance(10);
    if !perfect {
        stage.impair(dice);
    }
    stage.post_all();
    stage.pair.run();
    let mut outcome = Outcome {
        sent: 0,
        done: 0,
        connects: stage.pair.count(B, Counter::RxDctConnect),
    };
    let done: Vec<_> = stage.initiators.iter().map(|it| stage.check(it)).collect();
    stage.check_receives(&done);
    for (initiator, done) in stage.initiators.iter().zip(done) {
        assert!(
            !perfect || done == initiator.sends.len(),
            "a perfect link lost one"
        );
        outcome.sent += initiator.sends.len();
        outcome.done += done;
    }
    for side in &stage.pair.sides {
        side.hca.audit();
    }
    for target in &stage.targets {
        stage.pair.sides[B].hca.destroy_qp(*target).unwrap();
    }
    stage.pair.sides[B].hca.audit();
    outcome
}

/// A device whose ROCE_ACCL says whether initiators wait for their targets.
fn device(half_handshake: bool, (config, bounds): (HcaConfig, Bounds)) -> Hca {
    let mut parts = Settings::new(config.personality).to_parts();
    let mut register = Image::new(&reg::ROCE_ACCL, parts.roce_accl).unwrap();
    let value = half_handshake.into();
    register.set(&reg::DC_HALF_HANDSHAKE_EN, value).unwrap();
    parts.roce_accl = register.into_inner();
    let settings = Arc::new(Settings::from_parts(parts));
    sharing(Hca::with_settings(config, settings), bounds)
}

fn steps(side: &mut Side, qpn: Qpn, qp_type: QpType, attr: QpAttr) {
    use QpState::{Init, Reset, Rtr, Rts};
    let is_dct = qp_type == QpType::Dct;
    for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
        let path = Path {
            dest: [0, 0, 0, 0].into(),
            traffic_class: 2,
            sl: 0,
            port: 1,
        };
        let path = (is_dct && to == Rtr).then_some(path);
        if !is_dct || to != Rts {
            let step = QpModify::step(qp_type, from, to, attr);
            side.hca.modify_qp(qpn, &step, path).unwrap();
        }
    }
}

impl Stage {
    fn new(dice: &mut Dice) -> Self {
        let half_handshake = dice.chance(50);
        let hcas = [A, B].map(|_| device(half_handshake, config(dice)));
        let sides = (1..).zip(hcas).map(|(number, hca)| Side::on(number, hca));
        let mut pair = World::of(sides);
        let mtu = dice.pick(&Mtu::ALL);
        let attr = QpAttr {
            path_mtu: mtu,
            timeout: dice.pick(&[8, 10]),
            ..attr()
        };
        let b = &mut pair.sides[B];
        let srq = b.hca.create_srq(b.pd, 256, 1).unwrap();
        let init = QpInit {
            srq: Some(srq),
            ..b.init()
        };
        let count = dice.within(1..=3);
        let targets = (0..count).map(|key| {
            let qpn = b.hca.create_dct(&init, key).unwrap();
            steps(b, qpn, QpType::Dct, attr);
            qpn
        });
        let targets = targets.collect();
        let mut stage = Self {
            pair,
            mtu,
            targets,
            initiators: Vec::new(),
            recvs: Vec::new(),
        };
        for _ in 0..dice.within(1..=3) {
            stage.open(dice, attr);
        }
        for wr_id in 0..64 {
            let side = &mut stage.pair.sides[B];
            let region = side.register(LEN_MAX as usize, AccessFlags::LOCAL_WRITE);
            let sges = Sges::from_buf([region.whole()]);
            side.hca.post_srq_recv(srq, RecvWr { wr_id, sges }).unwrap();
            stage.recvs.push(region);
        }
        stage
    }

    /// Makes an initiator and plans what it sends.
    fn open(&mut self, dice: &mut Dice, attr: QpAttr) {
        let qpn = self.pair.sides[A].create_qp_of(QpType::Dci);
        let sq_psn = Psn::new(dice.pick(&[0, 0xff_fff8, 0x7f_fff8]));
        steps(
            &mut self.pair.sides[A],
            qpn,
            QpType::Dci,
            QpAttr { sq_psn, ..attr },
        );
        let len = Target::bytes(PART) as usize;
        let target = self.pair.sides[B].register(len, AccessFlags::all());
        target.fill(dice.next());
        let mut initiator = Initiator {
            qpn,
            sends: Vec::new(),
            before: target.bytes(),
            target,
        };
        let (mut at, mut to) = (0, 0);
        for wr_id in 0..dice.below(20) {
            at += dice.pick(&[0, 0, 5_000, 3_000_000]);
            if dice.chance(40) {
                to = dice.below(self.targets.len() as u64) as usize;
            }
            let sent = self.plan(dice, &initiator, wr_id, at, to);
            initiator.sends.push(sent);
        }
        self.initiators.push(initiator);
    }

    fn plan(&mut self, dice: &mut Dice, own: &Initiator, wr_id: u64, at: u64, to: usize) -> Sent {
        let kinds = Kind::ALL.into_iter();
        let kinds: Vec<_> = kinds.filter(|it| *it != Kind::SendInvalidate).collect();
        let kind = dice.pick(&kinds);
        let len = match kind.is_atomic() {
            true => 8,
            false => dice.within(LEN_MIN.into()..=LEN_MAX.into()) as u32,
        };
        let local = self.pair.sides[A].register(len as usize, AccessFlags::LOCAL_WRITE);
        local.fill(dice.next());
        let target = Target {
            va: own.target.info.va,
            rkey: own.target.info.key.rkey(),
            part: PART,
        };
        let place = dice.next() as u32;
        let op = target.op(kind, place, len, &own.before);
        let op = op.expect("it reaches the target");
        let address = DctAddress {
            path: Path {
                dest: self.pair.sides[B].address,
                traffic_class: 2,
                sl: 0,
                port: 1,
            },
            qpn: self.targets[to],
            key: to as u64,
        };
        let mut wr = SendWr {
            to: SendTo::Dct(address),
            ..SendWr::new(wr_id, op, local.whole())
        };
        wr.flags.set(SendFlags::SIGNALED, dice.chance(80));
        wr.flags.set(SendFlags::FENCE, dice.chance(10));
        wr.flags.set(SendFlags::SOLICITED, dice.chance(20));
        Sent {
            kind,
            wr,
            local,
            target: to,
            at,
        }
    }

    fn impair(&mut self, dice: &mut Dice) {
        for side in &mut self.pair.sides {
            for direction in [Direction::Egress, Direction::Ingress] {
                if dice.chance(70) {
                    let link = impairment(dice).beginning_at(self.pair.now);
                    side.hca.set_impairment(direction, link).unwrap();
                }
            }
        }
    }

    fn post_all(&mut self) {
        let start = self.pair.now;
        let posts = self.initiators.iter().flat_map(|initiator| {
            let of = |sent: &Sent| (sent.at, initiator.qpn, sent.wr.clone());
            initiator.sends.iter().map(of)
        });
        let mut posts: Vec<_> = posts.collect();
        posts.sort_by_key(|(at, ..)| *at);
        for (at, qpn, wr) in posts {
            self.pair.run_until(start.after(Span::from_nanos(at)));
            self.pair.post(A, qpn, wr);
        }
    }

    /// Returns how many messages are known to be done.
    fn check(&self, own: &Initiator) -> usize {
        let side = &self.pair.sides[A];
        let failed = side.state(own.qpn) == QpState::Err;
        if !failed {
            let qp = side.hca.qp(own.qpn).unwrap();
            assert_eq!(qp.state(), QpState::Rts);
            assert_eq!((qp.send_queue_len(), qp.in_flight()), (0, 0), "it hangs");
            assert_eq!(qp.poll_timeout(), None);
        }
        let sends = own.posted();
        let is_own = |wc: &&Completion| wc.qpn == own.qpn;
        let done = check_sends(side.completions.iter().filter(is_own), &sends, failed);
        let base = own.target.info.va;
        check_responses(&own.before, base, &sends[..done]);
        let actual = own.target.bytes();
        check_memory(
            &own.before,
            base,
            &actual,
            (self.mtu.bytes(), true),
            &sends,
            done,
        );
        done
    }

    /// The receives of each target complete with what its initiators have sent to it, each initiator's
    /// in order: all that is done, and perhaps some more.
    fn check_receives(&self, done: &[usize]) {
        let posted: Vec<_> = self.initiators.iter().map(Initiator::posted).collect();
        let mut next = vec![0; posted.len()];
        let mut used = HashSet::new();
        let received = self.pair.sides[B].completions.iter();
        for wc in received.filter(|wc| is_recv(wc) && wc.status == WcStatus::Success) {
            assert!(used.insert(wc.wr_id), "completed twice");
            let bytes = self.recvs[wc.wr_id as usize].bytes();
            let is_it = |which: usize| {
                let at = self.next_received(which, next[which])?;
                let sent = &posted[which][at];
                let target = self.initiators[which].sends[at].target;
                let is_from = self.targets[target] == wc.qpn && has_brought(wc, sent, &bytes);
                is_from.then_some((which, at))
            };
            let (which, at) = (0..posted.len()).find_map(is_it).expect("sent, in order");
            let held = check_received(wc, &posted[which][at]);
            assert!(bytes[held..].iter().all(|byte| *byte == 0));
            next[which] = at + 1;
        }
        for (which, done) in done.iter().enumerate() {
            let missing = self.next_received(which, next[which]);
            assert!(missing.is_none_or(|at| at >= *done), "one is missing");
        }
    }

    /// The first message from `at` on that completes a receive.
    fn next_received(&self, which: usize, at: usize) -> Option<usize> {
        let sends = &self.initiators[which].sends;
        (at..sends.len()).find(|at| sends[*at].kind.consumes_receive())
    }
}

/// Whether a receive may hold that message.
fn has_brought(wc: &Completion, sent: &Posted<'_>, bytes: &[u8]) -> bool {
    let is_alike = wc.byte_len as usize == sent.bytes.len();
    is_alike
        && match sent.wr.op {
            SendOp::Write { imm, .. } => {
                wc.opcode == WcOpcode::RecvRdmaWithImm && Some(wc.imm) == imm
            }
            _ => wc.opcode == WcOpcode::Recv && bytes[..sent.bytes.len()] == sent.bytes[..],
        }
}

impl Initiator {
    fn posted(&self) -> Vec<Posted<'_>> {
        let sends = self.sends.iter();
        sends
            .map(|sent| Posted {
                kind: sent.kind,
                wr: &sent.wr,
                bytes: sent.local.bytes(),
            })
            .collect()
    }
}
