//! Whatever the links do, UC delivers each message at most once and in order, and UD at most once
//! for each copy that the links make, both with the right bytes; and no request waits for an
//! answer.

use ferroce_device::{
    AccessFlags, Completion, Counter, Direction, Event, Mtu, Path, QpAttr, QpCap, QpInit, QpState,
    QpType, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sges, Span, SrqId, UdAddress, WcFlags,
    WcOpcode, WcStatus,
};
use ferroce_wire::{Psn, Qpn};

use crate::scenario::{config, impairment};
use ferroce_testing::Dice;
use ferroce_testing::oracle::is_recv;
use ferroce_testing::{A, B, Region, World, attr};

const QKEY: u32 = 0x1357_9bdf;
/// The IP header before a datagram.
const GRH: usize = ferroce_device::GRH_BYTES as usize;
/// Largest message.
const LEN_MAX: u32 = 16 << 10;

/// Messages sent and delivered.
pub(crate) struct Outcome {
    pub(crate) sent: usize,
    pub(crate) delivered: usize,
}

/// One direction of a pair of queue pairs.
struct Flow {
    qp_type: QpType,
    mtu: Mtu,
    from: usize,
    qpns: [Qpn; 2],
    srq: Option<SrqId>,
    sends: Vec<Sent>,
}

struct Sent {
    wr: SendWr,
    bytes: Vec<u8>,
    /// For a WRITE: memory for it alone.
    target: Option<Region>,
    at: u64,
}

struct Recv {
    region: Region,
    used: bool,
}

struct Stage {
    pair: World,
    flows: Vec<Flow>,
    /// By their number, for each device.
    recvs: [Vec<Recv>; 2],
    /// The most copies of one packet that can arrive.
    copies: usize,
}

pub(crate) fn play(seed: u64) -> Outcome {
    let dice = &mut Dice::new(seed);
    let mut stage = Stage::new(dice);
    let perfect = dice.chance(20);
    if !perfect {
        stage.impair(dice);
    }
    // Not every message finds a receive.
    let share = if perfect { 100 } else { dice.pick(&[100, 60]) };
    for nth in 0..stage.flows.len() {
        for _ in 0..stage.flows[nth].sends.len() {
            if dice.chance(share) {
                stage.post_recv(nth);
            }
        }
    }
    stage.post_all();
    stage.pair.run();
    let mut outcome = Outcome {
        sent: 0,
        delivered: 0,
    };
    for nth in 0..stage.flows.len() {
        let expected = stage.flows[nth].sends.iter().filter(|s| s.is_received());
        let expected = expected.count();
        let delivered = stage.check(nth);
        assert!(!perfect || delivered == expected, "a perfect link lost one");
        outcome.sent += expected;
        outcome.delivered += delivered;
    }
    for side in &stage.pair.sides {
        let bad = |event: &&Event| !matches!(event, Event::SrqLimit(_));
        assert_eq!(side.events.iter().find(bad), None);
        assert_eq!(side.hca.state().counter(Counter::RxWrongPeer), 0);
        side.hca.audit();
    }
    outcome
}

impl Sent {
    fn is_received(&self) -> bool {
        self.wr.op.consumes_receive()
    }
}

impl Stage {
    fn new(dice: &mut Dice) -> Self {
        let mut pair = World::within([config(dice), config(dice)]);
        let srqs = [A, B].map(|id| {
            let side = &mut pair.sides[id];
            let wanted = dice.chance(30);
            wanted.then(|| side.hca.create_srq(side.pd, 256, 1).unwrap())
        });
        let mut stage = Self {
            pair,
            flows: Vec::new(),
            recvs: [Vec::new(), Vec::new()],
            copies: 1,
        };
        for _ in 0..dice.within(1..=3) {
            stage.open(dice, srqs);
        }
        stage
    }

    /// Makes a pair of queue pairs and plans what they send.
    fn open(&mut self, dice: &mut Dice, srqs: [Option<SrqId>; 2]) {
        let qp_type = dice.pick(&[QpType::Uc, QpType::Ud]);
        let qpns = [A, B].map(|id| {
            let side = &mut self.pair.sides[id];
            let init = QpInit {
                qp_type,
                srq: srqs[id],
                cap: QpCap::default(),
                ..side.init()
            };
            side.hca.create_qp(&init).unwrap()
        });
        let psns = [0, 0].map(|_| Psn::new(dice.pick(&[0, 0xff_fff8, 0x7f_fff8])));
        let mtu = match qp_type {
            QpType::Ud => Mtu::Mtu4096,
            _ => dice.pick(&Mtu::ALL),
        };
        for own in [A, B] {
            let peer = 1 - own;
            let path = Path {
                dest: self.pair.sides[peer].address,
                traffic_class: 2,
                sl: 0,
                port: 1,
            };
            let attr = QpAttr {
                qkey: QKEY,
                path_mtu: mtu,
                dest_qpn: qpns[peer],
                sq_psn: psns[own],
                rq_psn: psns[peer],
                ..attr()
            };
            let path = (qp_type == QpType::Uc).then_some(path);
            self.pair.sides[own].ready(qpns[own], qp_type, attr, path);
        }
        for from in [A, B] {
            let mut flow = Flow {
                qp_type,
                mtu,
                from,
                qpns,
                srq: srqs[1 - from],
                sends: Vec::new(),
            };
            let mut at = 0;
            for _ in 0..dice.below(12) {
                at += dice.pick(&[0, 0, 5_000, 200_000]);
                let sent = self.plan(dice, &flow, at);
                flow.sends.push(sent);
            }
            self.flows.push(flow);
        }
    }

    fn plan(&mut self, dice: &mut Dice, flow: &Flow, at: u64) -> Sent {
        let packets = dice.pick(&[0, 1, 1, 2, 3, 8]) * flow.mtu.bytes();
        let len = packets.saturating_add_signed(dice.within(0..=6) as i32 - 3);
        let len = match flow.qp_type {
            QpType::Ud => len.min(flow.mtu.bytes()),
            _ => len.min(LEN_MAX),
        };
        let local = self.pair.sides[flow.from].register(len as usize, AccessFlags::empty());
        local.fill(dice.next());
        let imm = dice.chance(50).then(|| dice.next() as u32);
        let target = (flow.qp_type == QpType::Uc && dice.chance(50)).then(|| {
            let peer = &mut self.pair.sides[1 - flow.from];
            peer.register(len as usize, AccessFlags::all())
        });
        let op = match &target {
            None => SendOp::Send { imm },
            Some(target) => SendOp::Write {
                va: target.info.va,
                rkey: target.info.key.rkey(),
                imm,
            },
        };
        let to = match flow.qp_type {
            QpType::Ud => SendTo::Datagram(UdAddress {
                path: Path {
                    dest: self.pair.sides[1 - flow.from].address,
                    traffic_class: 0x68,
                    sl: 0,
                    port: 1,
                },
                qpn: flow.qpns[1 - flow.from],
                qkey: QKEY,
            }),
            _ => SendTo::Peer,
        };
        let mut wr = SendWr {
            to,
            ..SendWr::new(flow.sends.len() as u64, op, local.whole())
        };
        wr.flags.set(SendFlags::SIGNALED, dice.chance(70));
        Sent {
            wr,
            bytes: local.bytes(),
            target,
            at,
        }
    }

    fn impair(&mut self, dice: &mut Dice) {
        for side in &mut self.pair.sides {
            for direction in [Direction::Egress, Direction::Ingress] {
                let link = impairment(dice).beginning_at(self.pair.now);
                if link.duplicate > 0.0 {
                    self.copies = 4; // two links, each makes two of one
                }
                side.hca.set_impairment(direction, link).unwrap();
            }
        }
    }

    fn post_recv(&mut self, nth: usize) {
        let flow = &self.flows[nth];
        let to = 1 - flow.from;
        let side = &mut self.pair.sides[to];
        let region = side.register(GRH + LEN_MAX as usize, AccessFlags::LOCAL_WRITE);
        let wr = RecvWr {
            wr_id: self.recvs[to].len() as u64,
            sges: Sges::from_buf([region.whole()]),
        };
        match flow.srq {
            Some(srq) => side.hca.post_srq_recv(srq, wr).unwrap(),
            None => side.hca.post_recv(flow.qpns[to], wr).unwrap(),
        }
        let used = false;
        self.recvs[to].push(Recv { region, used });
    }

    fn post_all(&mut self) {
        let start = self.pair.now;
        let mut posts: Vec<_> = self
            .flows
            .iter()
            .flat_map(|flow| {
                let qpn = flow.qpns[flow.from];
                let of = move |sent: &Sent| (sent.at, flow.from, qpn, sent.wr.clone());
                flow.sends.iter().map(of)
            })
            .collect();
        posts.sort_by_key(|(at, ..)| *at);
        for (at, from, qpn, wr) in posts {
            self.pair.run_until(start.after(Span::from_nanos(at)));
            self.pair.post(from, qpn, wr);
        }
    }

    /// Returns how many messages were received.
    fn check(&mut self, nth: usize) -> usize {
        let flow = &self.flows[nth];
        let (from, to) = (flow.from, 1 - flow.from);
        let own = flow.qpns[from];
        let hca = &self.pair.sides[from].hca;
        let qp = hca.qp(own).unwrap();
        assert_eq!(qp.state(), QpState::Rts);
        assert_eq!((qp.send_queue_len(), qp.in_flight()), (0, 0));
        assert_eq!(qp.poll_timeout(), None, "nobody answers");
        let completions = |id: usize, qpn: Qpn, recv: bool| {
            let all = self.pair.sides[id].completions.iter();
            all.filter(move |wc| wc.qpn == qpn && is_recv(wc) == recv)
        };
        let signaled = flow.sends.iter().map(|sent| &sent.wr);
        let signaled = signaled.filter(|wr| wr.flags.contains(SendFlags::SIGNALED));
        let done = completions(from, own, false).map(|wc| (wc.wr_id, wc.status));
        assert!(
            done.eq(signaled.map(|wr| (wr.wr_id, WcStatus::Success))),
            "every request completes in order"
        );
        let mut uses = vec![0; flow.sends.len()];
        let mut next = 0;
        let mut last = None;
        for wc in completions(to, flow.qpns[to], true) {
            assert_eq!(wc.status, WcStatus::Success);
            let recv = &mut self.recvs[to][wc.wr_id as usize];
            assert!(!recv.used, "completed twice");
            recv.used = true;
            assert!(last < Some(wc.wr_id), "receives out of order");
            last = Some(wc.wr_id);
            let bytes = recv.region.bytes();
            let is_it = |nth: &usize| flow.has_brought(&flow.sends[*nth], wc, &bytes);
            match flow.qp_type {
                QpType::Ud => {
                    let of = |nth: &usize| uses[*nth] < self.copies && is_it(nth);
                    let found = (0..uses.len()).find(of).expect("what was sent, once");
                    uses[found] += 1;
                }
                _ => {
                    let found = (next..uses.len()).find(is_it).expect("sent, in order");
                    uses[found] += 1;
                    next = found + 1;
                }
            }
        }
        for (sent, uses) in flow.sends.iter().zip(&uses) {
            flow.check_target(sent, *uses > 0);
        }
        uses.iter().filter(|uses| **uses > 0).count()
    }
}

impl Flow {
    /// Whether the receive holds exactly that message.
    fn has_brought(&self, sent: &Sent, wc: &Completion, bytes: &[u8]) -> bool {
        let (opcode, imm) = match sent.wr.op {
            SendOp::Send { imm } => (WcOpcode::Recv, imm),
            SendOp::Write { imm: Some(imm), .. } => (WcOpcode::RecvRdmaWithImm, Some(imm)),
            _ => return false,
        };
        let is_ud = self.qp_type == QpType::Ud;
        let grh = if is_ud { GRH } else { 0 };
        let mut flags = WcFlags::empty();
        flags.set(WcFlags::GRH, is_ud);
        flags.set(WcFlags::WITH_IMM, imm.is_some());
        let payload = match opcode {
            WcOpcode::Recv => &sent.bytes[..],
            _ => &[],
        };
        assert_eq!(wc.src_qp.value() != 0, is_ud);
        (wc.opcode, wc.flags, wc.imm) == (opcode, flags, imm.unwrap_or(0))
            && wc.byte_len as usize == grh + sent.bytes.len()
            && bytes[grh..][..payload.len()] == *payload
            // A broken message of UC may have left bytes after it.
            && (!is_ud || bytes[grh + payload.len()..].iter().all(|byte| *byte == 0))
    }

    /// A WRITE has arrived up to the first packet that is lost.
    fn check_target(&self, sent: &Sent, whole: bool) {
        let Some(target) = &sent.target else { return };
        let mtu = self.mtu.bytes() as usize;
        let (bytes, len) = (target.bytes(), sent.bytes.len());
        let is_prefix = |packets: usize| {
            let end = (packets * mtu).min(len);
            bytes[..end] == sent.bytes[..end] && bytes[end..].iter().all(|byte| *byte == 0)
        };
        let packets = len.div_ceil(mtu);
        let least = if whole { packets } else { 0 };
        assert!((least..=packets).any(is_prefix), "a hole, or other bytes");
    }
}
