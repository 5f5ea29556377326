//! One direction of a cable: what has left one end and not reached the other.

use std::collections::VecDeque;

use ferroce_dcqcn::Rate;
use ferroce_time::{Span, Time};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::packets::PacketId;

/// Bytes around a frame that take time on the wire and no room in a buffer: preamble, check sequence
/// and gap (IEEE 802.3).
pub(crate) const AROUND_FRAME: u32 = 24;
/// Ethernet, IPv4 and UDP headers.
pub(crate) const BELOW_BTH: u32 = 14 + 20 + 8;
/// A PFC frame, as long as the shortest there are.
const PAUSE_BYTES: u32 = 60;
/// What a switch needs of a frame to know where it goes.
const CUT_THROUGH_BYTES: u32 = 64;

/// A frame on its way: what switches look at. The packet itself stays where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) packet: PacketId,
    /// From the Ethernet header to the ICRC.
    pub(crate) bytes: u32,
    /// The host it comes from.
    pub(crate) source: u32,
    /// The host it goes to.
    pub(crate) dest: u32,
    /// What spreads flows over equal paths.
    pub(crate) flow: u32,
    pub(crate) priority: u8,
    /// It may be marked.
    pub(crate) is_ecn_capable: bool,
    /// It is marked.
    pub(crate) is_marked: bool,
    /// By which port it came to the switch that it is in.
    pub(crate) ingress: u16,
}

/// What travels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Frame(Frame),
    /// Priorities that the other end is not to send any more; a bit each.
    Pause(u8),
}

/// What a line has carried.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LineCounters {
    /// Frames that left, lost ones included.
    pub frames: u64,
    /// Their bytes, with what is around them.
    pub bytes: u64,
    /// Frames lost at random.
    pub lost: u64,
    /// Frames lost because the line was down.
    pub dropped_down: u64,
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

/// One direction of a cable.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) way: Way,
    pub(crate) rate: Rate,
    /// Picoseconds of a byte, if that is a whole number.
    picos_per_byte: Option<u64>,
    delay: Span,
    /// The other end forwards what has begun to arrive.
    cuts_through: bool,
    pub(crate) is_up: bool,
    /// When the last frame has left.
    pub(crate) free_at: Time,
    /// In the order in which it arrives.
    under_way: VecDeque<(Time, Item)>,
    pub(crate) loss: Loss,
    /// It is in the worse state.
    is_bad: bool,
    /// Packets of which a bit is flipped, of 2^32.
    pub(crate) corruption: u32,
    rng: Xoshiro256PlusPlus,
    pub(crate) counters: LineCounters,
}

impl Line {
    pub(crate) fn new(way: Way, rate: Rate, delay: Span, seed: u64) -> Self {
        let mut line = Self {
            way,
            rate,
            picos_per_byte: None,
            delay,
            cuts_through: false,
            is_up: true,
            free_at: Time::ZERO,
            under_way: VecDeque::new(),
            loss: Loss::default(),
            is_bad: false,
            corruption: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            counters: LineCounters::default(),
        };
        line.set_rate(rate);
        line
    }

    /// Changes the rate, for what leaves from now on.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        const BITS_PS: u64 = 8_000_000_000_000;
        self.rate = rate;
        let bps = rate.bps();
        self.picos_per_byte = (bps > 0 && BITS_PS.is_multiple_of(bps)).then(|| BITS_PS / bps);
    }

    /// The switch at the other end forwards what has begun to arrive.
    pub(crate) fn cut_through(&mut self) {
        self.cuts_through = true;
    }

    /// How long so many bytes take to leave.
    #[inline]
    pub(crate) fn transmission(&self, bytes: u32) -> Span {
        match self.picos_per_byte {
            Some(picos) => Span::from_picos(picos * u64::from(bytes)),
            None => self.rate.transmission(bytes),
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
        let bytes = frame.bytes + AROUND_FRAME;
        let takes = self.transmission(bytes);
        self.free_at = now.after(takes);
        self.counters.frames += 1;
        self.counters.bytes += u64::from(bytes);
        if !self.is_up {
            self.counters.dropped_down += 1;
            return Some(frame.packet);
        }
        if self.loss != Loss::default() && self.loses() {
            // It arrives with a wrong check sequence, and whoever gets it throws it away.
            self.counters.lost += 1;
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

    /// Whether the next packet is lost.
    #[cold]
    fn loses(&mut self) -> bool {
        let mut happens = |share: u32| share > 0 && self.rng.next_u32() < share;
        let changes = happens(if self.is_bad {
            self.loss.leave
        } else {
            self.loss.enter
        });
        self.is_bad ^= changes;
        happens(if self.is_bad {
            self.loss.bad
        } else {
            self.loss.good
        })
    }

    /// A bit to be flipped in the next packet, if one is.
    #[inline]
    pub(crate) fn flips(&mut self) -> Option<u32> {
        let flips = self.corruption > 0 && self.rng.next_u32() < self.corruption;
        flips.then(|| self.rng.next_u32())
    }

    /// Sends a PFC frame ahead of all that waits.
    pub(crate) fn send_pause(&mut self, now: Time, priorities: u8) {
        self.counters.pauses += 1;
        let leaves = self.free_at.max(now);
        self.free_at = leaves.after(self.transmission(PAUSE_BYTES + AROUND_FRAME));
        self.counters.bytes += u64::from(PAUSE_BYTES + AROUND_FRAME);
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

    /// Cuts the line: what is under way is lost. Returns those packets.
    pub(crate) fn cut(&mut self) -> impl Iterator<Item = PacketId> {
        self.is_up = false;
        let lost = self.under_way.drain(..);
        let counters = &mut self.counters;
        lost.filter_map(|(_, item)| match item {
            Item::Frame(frame) => {
                counters.dropped_down += 1;
                Some(frame.packet)
            }
            Item::Pause(_) => None,
        })
    }

    /// Frames under way.
    pub(crate) fn frames(&self) -> usize {
        let is_frame = |(_, item): &&(Time, Item)| matches!(item, Item::Frame(_));
        self.under_way.iter().filter(is_frame).count()
    }
}
