//! Random events for two devices.

use ferroce_adp::{DecTrigger, Profile, RawProfile, RawRange};
use ferroce_dcqcn::CongestionPoint;
use ferroce_device::impair::{Blackout, Bottleneck, BurstLoss};
use ferroce_device::{
    Direction, HcaConfig, Impairment, Mtu, Personality, QpAttr, Rate, Span, Time,
};

use ferroce_testing::message::Kind;
use ferroce_testing::{Bounds, Dice, attr};

/// A run. Times are in nanoseconds from its start.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) configs: [(HcaConfig, Bounds); 2],
    /// Whether receives come from a shared queue.
    pub(crate) srq: [bool; 2],
    /// Which side's queue pairs repeat selectively.
    pub(crate) selective: [bool; 2],
    /// Which side's packets take many paths.
    pub(crate) routed: [bool; 2],
    /// Which side's queue pairs slow down after a silence.
    pub(crate) restarts: [bool; 2],
    pub(crate) qps: Vec<Plan>,
    /// Events at the start and at any later time.
    pub(crate) cues: Vec<(u64, usize, Cue)>,
    /// The links are perfect: nothing may be retransmitted.
    pub(crate) perfect: bool,
    /// Both links go dark permanently.
    pub(crate) cut_at: Option<u64>,
    /// When a connection becomes older.
    pub(crate) ages: Vec<(u64, Age)>,
}

/// A number of messages between a pair of queue pairs, in one direction, that make it older.
#[derive(Clone, Debug)]
pub(crate) struct Age {
    pub(crate) nth: usize,
    pub(crate) from: usize,
    pub(crate) messages: u32,
}

/// A pair of queue pairs and its messages.
#[derive(Debug)]
pub(crate) struct Plan {
    /// XRC from A to B; otherwise RC.
    pub(crate) xrc: bool,
    pub(crate) attr: QpAttr,
    pub(crate) psns: [u32; 2],
    /// From A and from B.
    pub(crate) messages: [Vec<Message>; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) len: u32,
    pub(crate) place: u32,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) inline: bool,
    pub(crate) solicited: bool,
    /// Where the scatter/gather list is cut.
    pub(crate) cut: Option<u32>,
    pub(crate) post_at: u64,
    /// When the receive for it is posted.
    pub(crate) recv_at: u64,
}

/// Something that happens to one of the devices.
#[derive(Clone, Debug)]
pub(crate) enum Cue {
    Impair(Direction, Impairment),
    Adaptive(bool),
    NoFloor(bool),
    Profile(Profile),
    ResetRegisters,
    /// The host cannot send, or can again.
    Block(bool),
}

/// Largest message.
pub(crate) const LEN_MAX: u32 = 48 << 10;

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        let dice = &mut Dice::new(seed);
        let perfect = dice.chance(10);
        let configs = [0, 1].map(|_| config(dice));
        let srq = [0, 1].map(|_| dice.chance(30));
        let calm = dice.chance(50);
        let qps = (0..dice.within(1..=4)).map(|_| plan(dice, perfect, calm));
        let qps: Vec<Plan> = qps.collect();
        let mut cues = Vec::new();
        for side in [0, 1] {
            registers(dice, side, &mut cues);
            if perfect {
                continue;
            }
            for direction in [Direction::Egress, Direction::Ingress] {
                if dice.chance(70) {
                    let link = Cue::Impair(direction, impairment(dice));
                    cues.push((0, side, link));
                }
                if dice.chance(20) {
                    let link = match dice.chance(50) {
                        true => Impairment::default(),
                        false => impairment(dice),
                    };
                    cues.push((dice.below(5_000_000), side, Cue::Impair(direction, link)));
                }
            }
        }
        // A separate generator, so that the rest of a seed's scenario stays the same.
        let late = &mut Dice::new(!seed);
        if !perfect {
            blocks(late, &mut cues);
        }
        let ages = ages(late, qps.len());
        cues.sort_by_key(|(at, side, _)| (*at, *side));
        Self {
            configs,
            srq,
            qps,
            cues,
            perfect,
            ages,
            selective: [0, 1].map(|_| dice.chance(50)),
            routed: [0, 1].map(|_| late.chance(40)),
            restarts: [0, 1].map(|_| late.chance(50)),
            cut_at: (!perfect && dice.chance(15)).then(|| dice.below(5_000_000)),
        }
    }

    /// Whether the link at one end of a device was never impaired.
    pub(crate) fn is_clear(&self, side: usize, direction: Direction) -> bool {
        !self.cues.iter().any(|(_, which, cue)| {
            *which == side && matches!(cue, Cue::Impair(d, _) if *d == direction)
        })
    }
}

pub(crate) fn config(dice: &mut Dice) -> (HcaConfig, Bounds) {
    let seed = dice.next();
    let window_bytes = dice.pick(&[0, 4 << 10, 64 << 10, 1 << 20]);
    let bounds = Bounds {
        peer_bytes: dice.pick(&[0, 128 << 10, 2 << 20]),
        ..Bounds::default()
    };
    let config = HcaConfig {
        seed,
        window_bytes,
        personality: Personality {
            adaptive: dice.chance(80),
            ib_multiplier: dice.within(1..=4) as u8,
            min_ack_timeout: dice.pick(&[0, 7, 9, 16]),
            quantiser: dice.chance(30),
            initial_exponent: dice.chance(80).then(|| dice.within(4..=8) as u8),
            extended_retry_count: None,
            dec_trigger: match dice.chance(50) {
                true => DecTrigger::PerProgress,
                false => DecTrigger::PerRecovery,
            },
            range_bound_exclusive: dice.chance(20),
            rnr_ticks: dice.chance(20),
            slow_restart: dice.chance(50),
        },
        trace_timers: true,
        ..HcaConfig::default()
    };
    (config, bounds)
}

fn plan(dice: &mut Dice, perfect: bool, calm: bool) -> Plan {
    let psn = |dice: &mut Dice| match dice.chance(30) {
        true => 0xff_fff0 + dice.below(16) as u32,
        false => dice.below(1 << 24) as u32,
    };
    let rd_atomic = dice.within(1..=4) as u8;
    let attr = QpAttr {
        path_mtu: dice.pick(&Mtu::ALL),
        max_rd_atomic: rd_atomic,
        max_dest_rd_atomic: rd_atomic,
        min_rnr_timer: dice.pick(&[1, 3, 8]),
        // Nothing may time out on perfect links, so their timeout is longer.
        timeout: if perfect {
            14
        } else {
            dice.within(6..=11) as u8
        },
        retry_cnt: match dice.chance(if calm { 0 } else { 20 }) {
            true => dice.below(8) as u8,
            false => 7,
        },
        rnr_retry: match dice.chance(if calm { 0 } else { 20 }) {
            true => dice.below(7) as u8,
            false => 7,
        },
        ..attr()
    };
    let mut plan = Plan {
        xrc: dice.chance(20),
        attr,
        psns: [psn(dice), psn(dice)],
        messages: [0, 1].map(|_| {
            let (mut post_at, mut recv_at) = (0, 0);
            (0..dice.below(10))
                .map(|_| {
                    let pause = |dice: &mut Dice| match dice.chance(30) {
                        true => dice.below(1_000_000),
                        false => 0,
                    };
                    post_at += pause(dice);
                    if !perfect {
                        recv_at += pause(dice);
                    }
                    message(dice, attr.path_mtu, post_at, recv_at)
                })
                .collect()
        }),
    };
    if plan.xrc {
        let [from_a, from_b] = &mut plan.messages;
        from_b.clear();
        // B's end has no send queue to bind a window with.
        from_a.retain(|message| message.kind != Kind::SendInvalidate);
    }
    plan
}

fn message(dice: &mut Dice, mtu: Mtu, post_at: u64, recv_at: u64) -> Message {
    let kind = dice.pick(&Kind::ALL);
    let packets = dice.pick(&[0, 1, 1, 2, 3, 8, 24]) * mtu.bytes();
    let len = packets.saturating_add_signed(dice.within(0..=6) as i32 - 3);
    Message {
        kind,
        len: if kind.is_atomic() {
            8
        } else {
            len.min(LEN_MAX)
        },
        place: dice.next() as u32,
        signaled: dice.chance(60),
        fence: dice.chance(20),
        inline: dice.chance(20),
        solicited: dice.chance(30),
        cut: dice.chance(30).then(|| dice.next() as u32),
        post_at,
        recv_at,
    }
}

/// Times at which hosts cannot send, longer than timers, so that queues fill.
fn blocks(dice: &mut Dice, cues: &mut Vec<(u64, usize, Cue)>) {
    for side in [0, 1] {
        let mut at = 0;
        for _ in 0..dice.pick(&[0, 0, 1, 2]) {
            at += dice.below(3_000_000);
            cues.push((at, side, Cue::Block(true)));
            at += dice.below(2_000_000);
            cues.push((at, side, Cue::Block(false)));
        }
    }
}

/// Around a quarter, a half and all of the PSNs, or any distance.
fn ages(dice: &mut Dice, qps: usize) -> Vec<(u64, Age)> {
    let lap = 1_u32 << 24;
    let count = dice.pick(&[0, 0, 1, 2, 4]);
    let age = |_| {
        let mark = dice.pick(&[lap / 4, lap / 2, lap, lap / 2 * 3]);
        let messages = match dice.chance(75) {
            true => mark + 16 - dice.below(32) as u32,
            false => dice.next() as u32,
        };
        let (nth, from) = (dice.below(qps as u64) as usize, dice.below(2) as usize);
        let at = dice.below(5_000_000);
        (
            at,
            Age {
                nth,
                from,
                messages,
            },
        )
    };
    (0..count).map(age).collect()
}

/// What is written to the registers of a device, and when.
fn registers(dice: &mut Dice, side: usize, cues: &mut Vec<(u64, usize, Cue)>) {
    if dice.chance(50) {
        cues.push((0, side, Cue::Profile(profile(dice))));
    }
    if dice.chance(60) {
        cues.push((0, side, Cue::NoFloor(true)));
    }
    for _ in 0..dice.pick(&[0, 0, 1, 3]) {
        let cue = match dice.below(6) {
            0 => Cue::Adaptive(dice.chance(50)),
            1 => Cue::NoFloor(dice.chance(50)),
            2 => Cue::ResetRegisters,
            _ => Cue::Profile(profile(dice)),
        };
        cues.push((dice.below(5_000_000), side, cue));
    }
}

/// A profile whose waits are short, as the links are.
fn profile(dice: &mut Dice) -> Profile {
    let range_num = dice.within(1..=4) as u8;
    let mut raw = RawProfile {
        time_base: dice.pick(&[4, 8]),
        range_num,
        start_range_index: dice.below(range_num.into()) as u8,
        qp_total_timeout: dice.chance(50),
        retx_total_timeout: dice.within(10..=13) as u8,
        timeout_init_low_bound: dice.within(3..=7) as u8,
        timeout_init_range_size: dice.below(4) as u8,
        ..RawProfile::EMPTY
    };
    let mut low = dice.within(3..=5) as u8;
    for index in 0..range_num {
        raw.timeout_range[usize::from(index)] = RawRange {
            range_low_bound: low,
            range_size: dice.below(3) as u8,
            timeout_retry_num: dice.below(4) as u16,
            dec_mode: dice.below(3) as u8,
            prev_range_index: dice.below(index.max(1).into()) as u8,
        };
        low += dice.within(1..=3) as u8;
    }
    Profile::try_from(raw).expect("a profile of legal values")
}

/// A bad link; most have several faults.
pub(crate) fn impairment(dice: &mut Dice) -> Impairment {
    let mut link = Impairment::default();
    if dice.chance(50) {
        link.loss = dice.probability(0.1);
    }
    if dice.chance(25) {
        link.burst = Some(BurstLoss {
            enter: dice.probability(0.02),
            mean_length: 1.0 + dice.probability(10.0),
        });
    }
    if dice.chance(35) {
        link.duplicate = dice.probability(0.2);
    }
    if dice.chance(35) {
        link.corrupt = dice.probability(0.1);
    }
    if dice.chance(35) {
        link.ecn_mark = dice.probability(1.0);
    }
    if dice.chance(25) {
        // A packet takes 33 us at most, and a full queue 250 us.
        let rate = Rate::from_mbps(dice.pick(&[1_000, 10_000, 100_000]));
        link.bottleneck = Some(Bottleneck {
            rate,
            limit_bytes: (rate.bps() / 8 / 4_000) as u32,
            red: CongestionPoint::new(1_000, 20_000, 500_000).ok(),
        });
    }
    if dice.chance(40) {
        link.delay = Span::from_nanos(dice.below(30_000));
    }
    if dice.chance(40) {
        link.jitter = Span::from_nanos(dice.below(30_000));
    }
    if dice.chance(35) {
        link.reorder = dice.probability(0.2);
        link.reorder_by = Span::from_nanos(dice.below(100_000));
    }
    for _ in 0..dice.pick(&[0, 0, 0, 1, 2]) {
        link.blackouts.push(Blackout {
            from: Time::from_nanos(dice.below(5_000_000)),
            length: Span::from_nanos(dice.below(3_000_000)),
        });
    }
    link
}

/// The longest time that a link of a scenario holds a packet.
pub(crate) const HELD_NS_MAX: u64 = 250_000 + 30_000 + 30_000 + 100_000;

/// The longest time that a queue pair of a scenario waits for a receiver.
pub(crate) const RNR_NS_MAX: u64 = 1_000_000;
