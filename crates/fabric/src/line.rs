//! One direction of a cable: what has left one end and not reached the other.

use std::collections::VecDeque;

use ferroce_dcqcn::Rate;
use ferroce_time::{Span, Time};
use ferroce_wire::ethernet;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::packets::PacketId;

/// Bytes around a frame that take time on the wire and no room in a buffer.
pub(crate) const AROUND_FRAME: u32 = (ethernet::PREAMBLE_LEN + ethernet::INTERFRAME_GAP) as u32;
/// A PFC frame, as long as the shortest there are.
const PAUSE_BYTES: u32 = ethernet::FRAME_LEN_MIN as u32;
/// What a switch needs of a frame to know where it goes.
const CUT_THROUGH_BYTES: u32 = 64;

/// A frame on its way: what switches look at. The packet itself stays where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) packet: PacketId,
    /// The host it comes from.
    pub(crate) source: u32,
    /// The host it goes to.
    pub(crate) dest: u32,
    /// What spreads flows over equal paths.
    pub(crate) flow: u32,
    /// From the Ethernet header to the check sequence.
    pub(crate) bytes: u16,
    /// By which port it came to the switch that it is in.
    pub(crate) ingress: u16,
    pub(crate) priority: u8,
    pub(crate) ecn: Ecn,
}

/// What a frame's ECN bits say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ecn {
    /// It must not be marked.
    NotCapable,
    /// It may be.
    Capable,
    /// It is.
    Marked,
}

/// What travels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Frame(Frame),
    /// Priorities that the other end is not to send any more; a bit each.
    Pause(u8),
}

const _: () = assert!(
    size_of::<(Time, Item)>() <= 40,
    "moved for each line crossed"
);

/// What a line has carried.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LineCounters {
    /// Frames that left, lost ones included.
    pub frames: u64,
    /// Their bytes, with what is around them.
    pub bytes: u64,
    /// Frames lost at random.
    pub lost: u64,
    /// Frames lost because the line was down or was cut while they were on it.
    pub dropped_down: u64,
    /// Frames that waited for it when it was cut, and were thrown away. They are not among those that
    /// left.
    pub flushed: u64,
    /// PFC frames that left.
    pub pauses: u64,
}

/// How a cable loses packets: it is in one of two states, of which one is the worse (Gilbert and Elliott).
/// All are shares of 2^32. One that is always in the better state loses packets independently of each
/// other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Loss {
    /// Packets lost in the better state.
    pub good: u32,
    /// Packets lost in the worse state.
    pub bad: u32,
    /// Packets of the better state after which the worse begins.
    pub enter: u32,
    /// Packets of the worse state after which it ends.
    pub leave: u32,
}

impl Loss {
    /// Packets lost independently of each other.
    #[must_use]
    pub const fn random(share: u32) -> Self {
        Self {
            good: share,
            bad: 0,
            enter: 0,
            leave: 0,
        }
    }
}

/// Between which ports a line goes: nodes, and ports of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) from: (u32, u16),
    pub(crate) to: (u32, u16),
}

/// One direction of a cable. What each frame needs is together, in two cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line {
    pub(crate) way: Way,
    /// Picoseconds of a byte, if that is a whole number; or zero.
    picos_per_byte: u32,
    is_up: bool,
    /// The switch at the other end forwards what has begun to arrive.
    pub(crate) cuts_through: bool,
    /// It may lose packets, or flip bits.
    is_bad: bool,
    delay: Span,
    /// When the last frame has left.
    pub(crate) free_at: Time,
    /// In the order in which it arrives.
    under_way: VecDeque<(Time, Item)>,
    frames: u64,
    bytes: u64,
    rest: Box<Rest>,
}

/// What of a line few frames need.
#[derive(Debug)]
struct Rest {
    rate: Rate,
    loss: Loss,
    /// It is in the worse of the two states.
    is_worse: bool,
    /// Packets of which a bit is flipped, of 2^32.
    corruption: u32,
    rng: Xoshiro256PlusPlus,
    lost: u64,
    dropped_down: u64,
    flushed: u64,
    pauses: u64,
}

impl Line {
    pub(crate) fn new(way: Way, rate: Rate, delay: Span, seed: u64) -> Self {
        let mut line = Self {
            way,
            picos_per_byte: 0,
            is_up: true,
            cuts_through: false,
            is_bad: false,
            delay,
            free_at: Time::ZERO,
            under_way: VecDeque::new(),
            frames: 0,
            bytes: 0,
            rest: Box::new(Rest {
                rate,
                loss: Loss::default(),
                is_worse: false,
                corruption: 0,
                rng: Xoshiro256PlusPlus::seed_from_u64(seed),
                lost: 0,
                dropped_down: 0,
                flushed: 0,
                pauses: 0,
            }),
        };
        line.set_rate(rate);
        line
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rest.rate
    }

    /// Changes the rate, for what leaves from now on.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        const BITS_PS: u64 = 8_000_000_000_000;
        self.rest.rate = rate;
        let bps = rate.bps();
        let picos = (bps > 0 && BITS_PS.is_multiple_of(bps)).then(|| BITS_PS / bps);
        self.picos_per_byte = picos.and_then(|it| it.try_into().ok()).unwrap_or(0);
    }

    pub(crate) fn set_loss(&mut self, loss: Loss) {
        self.rest.loss = loss;
        self.note_trouble();
    }

    /// Flips a bit of so many packets of 2^32.
    pub(crate) fn set_corruption(&mut self, share: u32) {
        self.rest.corruption = share;
        self.note_trouble();
    }

    fn note_trouble(&mut self) {
        self.is_bad = self.rest.loss != Loss::default() || self.rest.corruption > 0;
    }

    /// What waited for it is thrown away.
    pub(crate) fn count_flushed(&mut self, frames: u64) {
        self.rest.flushed += frames;
    }

    pub(crate) fn counters(&self) -> LineCounters {
        LineCounters {
            frames: self.frames,
            bytes: self.bytes,
            lost: self.rest.lost,
            dropped_down: self.rest.dropped_down,
            flushed: self.rest.flushed,
            pauses: self.rest.pauses,
        }
    }

    /// How long so many bytes take to leave.
    #[inline]
    pub(crate) fn transmission(&self, bytes: u32) -> Span {
        match self.picos_per_byte {
            0 => self.rest.rate.transmission(bytes),
            picos => Span::from_picos(u64::from(picos) * u64::from(bytes)),
        }
    }

    /// How long so many bytes take to the other end.
    pub(crate) fn crossing(&self, bytes: u32) -> Span {
        Span::from_picos(
            self.transmission(bytes)
                .as_picos()
                .saturating_add(self.delay.as_picos()),
        )
    }

    /// Sends a frame, if the line is free. Returns the packet if it is lost.
    #[inline]
    pub(crate) fn send(&mut self, now: Time, mut frame: Frame) -> Option<PacketId> {
        let bytes = u32::from(frame.bytes) + AROUND_FRAME;
        let takes = self.transmission(bytes);
        self.free_at = now.after(takes);
        self.frames += 1;
        self.bytes += u64::from(bytes);
        if !self.is_up {
            self.rest.dropped_down += 1;
            return Some(frame.packet);
        }
        if self.is_bad && self.rest.loses() {
            // It arrives with a wrong check sequence, and whoever gets it throws it away.
            self.rest.lost += 1;
            return Some(frame.packet);
        }
        frame.ingress = self.way.to.1;
        let until_seen = match self.cuts_through {
            true => self.transmission(bytes.min(CUT_THROUGH_BYTES)),
            false => takes,
        };
        self.launch(now.after(until_seen), Item::Frame(frame));
        None
    }

    /// A bit to be flipped in the next packet, if one is.
    #[inline]
    pub(crate) fn flips(&mut self) -> Option<u32> {
        let rest = &mut self.rest;
        let flips = self.is_bad && rest.corruption > 0 && rest.rng.next_u32() < rest.corruption;
        flips.then(|| rest.rng.next_u32())
    }

    /// Sends a PFC frame ahead of all that waits.
    pub(crate) fn send_pause(&mut self, now: Time, priorities: u8) {
        self.rest.pauses += 1;
        let leaves = self.free_at.max(now);
        self.free_at = leaves.after(self.transmission(PAUSE_BYTES + AROUND_FRAME));
        self.bytes += u64::from(PAUSE_BYTES + AROUND_FRAME);
        if self.is_up {
            self.launch(self.free_at, Item::Pause(priorities));
        }
    }

    #[inline]
    fn launch(&mut self, seen: Time, item: Item) {
        let mut at = seen.after(self.delay);
        // A short frame behind a long one that is cut through: heads do not overtake heads.
        if let Some((last, _)) = self.under_way.back() {
            at = at.max(*last);
        }
        self.under_way.push_back((at, item));
    }

    /// When the next item arrives.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.under_way.front().map(|(at, _)| *at)
    }

    /// Takes the next item, if it has arrived.
    #[inline]
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Item> {
        self.under_way.front().filter(|(at, _)| *at <= now)?;
        self.under_way.pop_front().map(|(_, item)| item)
    }

    /// Mends the line.
    pub(crate) fn mend(&mut self) {
        self.is_up = true;
    }

    /// Cuts the line: what is under way is lost. Returns those packets.
    pub(crate) fn cut(&mut self) -> impl Iterator<Item = PacketId> {
        self.is_up = false;
        let lost = self.under_way.drain(..);
        let counters = &mut self.rest;
        lost.filter_map(|(_, item)| match item {
            Item::Frame(frame) => {
                counters.dropped_down += 1;
                Some(frame.packet)
            }
            Item::Pause(_) => None,
        })
    }

    /// Gives back memory that traffic has taken.
    pub(crate) fn rest(&mut self) {
        self.under_way.shrink_to_fit();
    }

    /// Frames under way.
    pub(crate) fn frames(&self) -> u64 {
        let is_frame = |(_, item): &&(Time, Item)| matches!(item, Item::Frame(_));
        self.under_way.iter().filter(is_frame).count() as u64
    }

    /// Frames that have come to its other end.
    pub(crate) fn arrived(&self) -> u64 {
        let counters = self.counters();
        counters.frames - counters.lost - counters.dropped_down - self.frames()
    }
}

impl Rest {
    /// Whether the next packet is lost.
    fn loses(&mut self) -> bool {
        let mut happens = |share: u32| share > 0 && self.rng.next_u32() < share;
        let loss = &self.loss;
        self.is_worse ^= happens(if self.is_worse {
            loss.leave
        } else {
            loss.enter
        });
        happens(if self.is_worse { loss.bad } else { loss.good })
    }
}
