//! One direction of a cable: frames that have left one end and not yet reached the other.

use std::collections::VecDeque;

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_wire::ethernet;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::frame::Frame;
use crate::sizes::AROUND_FRAME;

/// A PFC frame, as long as the shortest there are.
const PAUSE_BYTES: u32 = ethernet::FRAME_LEN_MIN as u32;
/// What a switch needs of a frame to know where it goes.
const CUT_THROUGH_BYTES: u32 = 64;

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

/// Counters of a line.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LineCounters {
    /// Frames that left, including lost ones.
    pub frames: u64,
    /// Their bytes, with all overhead.
    pub bytes: u64,
    /// Frames lost at random.
    pub lost: u64,
    /// Frames lost because the line was down or was cut while they were on it.
    pub dropped_down: u64,
    /// Frames that waited for it when it was cut, and were dropped. They are not included in those
    /// that left.
    pub flushed: u64,
    /// PFC frames that left.
    pub pauses: u64,
    /// Frames that a slow host at its other end had no room for. They have arrived.
    pub refused: u64,
}

impl LineCounters {
    /// Adds a part of what was counted from one moment to another, between which nothing was lost.
    pub(crate) fn add(&mut self, from: &Self, to: &Self, part: impl Fn(u64) -> u64) {
        self.frames += part(to.frames - from.frames);
        self.bytes += part(to.bytes - from.bytes);
        self.pauses += part(to.pauses - from.pauses);
    }
}

/// How a cable loses packets: it is in one of two states, a better and a worse one (Gilbert and
/// Elliott). All values are in units of 2^-32. A cable that is always in the better state loses
/// packets independently of each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Loss {
    /// Share of packets lost in the better state.
    pub good: u32,
    /// Share of packets lost in the worse state.
    pub bad: u32,
    /// Share of packets in the better state after which the worse begins.
    pub enter: u32,
    /// Share of packets in the worse state after which it ends.
    pub leave: u32,
}

impl Loss {
    /// Creates a loss where packets are lost independently of each other.
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
    /// Its other end is in another part of the network.
    pub(crate) leads_out: bool,
    delay: Span,
    /// What a frame takes in addition, which a pause does not: the latency of the switch at the other end.
    pub(crate) latency: Span,
    /// When the last frame has left.
    pub(crate) free_at: Time,
    /// In the order in which it arrives.
    under_way: VecDeque<(Time, Item)>,
    /// When the last of those arrives that take no longer than they must.
    last: Time,
    frames: u64,
    bytes: u64,
    rest: Box<Rest>,
}

/// What of a line few frames need.
#[derive(Debug)]
struct Rest {
    /// None if frames take no time to leave.
    rate: Option<Rate>,
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
    refused: u64,
}

impl Line {
    pub(crate) fn new(way: Way, rate: Rate, delay: Span, seed: u64) -> Self {
        let mut line = Self {
            way,
            picos_per_byte: 0,
            is_up: true,
            cuts_through: false,
            is_bad: false,
            leads_out: false,
            delay,
            latency: Span::ZERO,
            free_at: Time::ZERO,
            under_way: VecDeque::new(),
            last: Time::ZERO,
            frames: 0,
            bytes: 0,
            rest: Box::new(Rest {
                rate: Some(rate),
                loss: Loss::default(),
                is_worse: false,
                corruption: 0,
                rng: Xoshiro256PlusPlus::seed_from_u64(seed),
                lost: 0,
                dropped_down: 0,
                flushed: 0,
                pauses: 0,
                refused: 0,
            }),
        };
        line.set_rate(Some(rate));
        line
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rest.rate.unwrap_or(Rate::MAX)
    }

    /// Changes the rate, for what leaves from now on.
    pub(crate) fn set_rate(&mut self, rate: Option<Rate>) {
        const BITS_PS: u64 = 8_000_000_000_000;
        self.rest.rate = rate;
        let bps = rate.map_or(0, Rate::bps);
        let picos = (bps > 0 && BITS_PS.is_multiple_of(bps)).then(|| BITS_PS / bps);
        self.picos_per_byte = picos.and_then(|it| it.try_into().ok()).unwrap_or(0);
    }

    /// Changes the delay, for what leaves from now on.
    pub(crate) fn set_delay(&mut self, delay: Span) {
        self.delay = delay;
    }

    pub(crate) fn set_loss(&mut self, loss: Loss) {
        self.rest.loss = loss;
        self.note_trouble();
    }

    /// Flips a bit of this many packets of 2^32.
    pub(crate) fn set_corruption(&mut self, share: u32) {
        self.rest.corruption = share;
        self.note_trouble();
    }

    /// Whether it may lose packets, or flips bits.
    pub(crate) fn is_bad(&self) -> bool {
        self.is_bad
    }

    fn note_trouble(&mut self) {
        self.is_bad = self.rest.loss != Loss::default() || self.rest.corruption > 0;
    }

    /// What waited for it is thrown away.
    pub(crate) fn count_flushed(&mut self, frames: u64) {
        self.rest.flushed += frames;
    }

    /// The host at its other end had no room for a frame.
    pub(crate) fn count_refused(&mut self) {
        self.rest.refused += 1;
    }

    pub(crate) fn counters(&self) -> LineCounters {
        LineCounters {
            frames: self.frames,
            bytes: self.bytes,
            lost: self.rest.lost,
            dropped_down: self.rest.dropped_down,
            flushed: self.rest.flushed,
            pauses: self.rest.pauses,
            refused: self.rest.refused,
        }
    }

    /// How long this many bytes take to leave.
    #[inline]
    pub(crate) fn transmission(&self, bytes: u32) -> Span {
        match self.picos_per_byte {
            0 => self.rest.transmission(bytes),
            picos => Span::from_picos(u64::from(picos) * u64::from(bytes)),
        }
    }

    /// How long this many bytes take to the other end.
    pub(crate) fn crossing(&self, bytes: u32) -> Span {
        Span::from_picos(
            self.transmission(bytes)
                .as_picos()
                .saturating_add(self.delay.as_picos()),
        )
    }

    /// A frame leaves, if the line is free. Returns how many bytes and how long that takes.
    #[inline]
    fn take(&mut self, now: Time, frame: &Frame) -> (u32, Span) {
        let bytes = u32::from(frame.bytes) + AROUND_FRAME;
        let takes = self.transmission(bytes);
        self.free_at = now.after(takes);
        self.frames += 1;
        self.bytes += u64::from(bytes);
        (bytes, takes)
    }

    /// Sends a frame that gets lost.
    pub(crate) fn lose(&mut self, now: Time, frame: &Frame) {
        self.take(now, frame);
        self.rest.lost += 1;
    }

    /// Sends a frame, if the line is free, that arrives so much later than others. Returns false if it is
    /// lost.
    #[inline]
    pub(crate) fn send(&mut self, now: Time, mut frame: Frame, late: Span) -> bool {
        let (bytes, takes) = self.take(now, &frame);
        if !self.is_up {
            self.rest.dropped_down += 1;
            return false;
        }
        if self.is_bad && self.rest.loses() {
            // It arrives with a wrong check sequence, and the receiver discards it.
            self.rest.lost += 1;
            return false;
        }
        frame.ingress = self.way.to.1;
        let until_seen = match self.cuts_through {
            true => self.transmission(bytes.min(CUT_THROUGH_BYTES)),
            false => takes,
        };
        let late = late + self.latency;
        self.launch(now.after(until_seen), late, Item::Frame(frame));
        true
    }

    /// A bit to be flipped in the next packet, if one is.
    #[inline]
    pub(crate) fn flips(&mut self) -> Option<u32> {
        let rest = &mut self.rest;
        let flips = self.is_bad && rest.corruption > 0 && rest.rng.next_u32() < rest.corruption;
        flips.then(|| rest.rng.next_u32())
    }

    /// Sends a PFC frame ahead of all that waits. Returns false if it is lost.
    pub(crate) fn send_pause(&mut self, now: Time, priorities: u8) -> bool {
        self.rest.pauses += 1;
        let leaves = self.free_at.max(now);
        self.free_at = leaves.after(self.transmission(PAUSE_BYTES + AROUND_FRAME));
        self.bytes += u64::from(PAUSE_BYTES + AROUND_FRAME);
        if self.is_up {
            self.launch(self.free_at, Span::ZERO, Item::Pause(priorities));
        }
        self.is_up
    }

    #[inline]
    fn launch(&mut self, seen: Time, late: Span, item: Item) {
        // A short frame behind a long one that is cut through may not arrive before it.
        self.last = seen.after(self.delay).max(self.last);
        self.admit(self.last.after(late), item);
    }

    /// Takes what arrives at a time.
    #[inline]
    pub(crate) fn admit(&mut self, at: Time, item: Item) {
        if self.under_way.back().is_none_or(|(last, _)| *last <= at) {
            self.under_way.push_back((at, item));
        } else {
            let place = self.under_way.partition_point(|(other, _)| *other <= at);
            self.under_way.insert(place, (at, item));
        }
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

    /// Takes what was put on the line last, which is all that is on it if it leads to another part.
    pub(crate) fn take_last(&mut self) -> Option<(Time, Item)> {
        self.under_way.pop_back()
    }

    /// Whether it has a carrier.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Mends the line.
    pub(crate) fn mend(&mut self) {
        self.is_up = true;
    }

    /// Cuts the line: what is under way is lost. Returns those frames.
    pub(crate) fn cut(&mut self) -> impl Iterator<Item = Frame> {
        self.is_up = false;
        self.last = Time::ZERO;
        let lost = self.under_way.drain(..);
        let counters = &mut self.rest;
        lost.filter_map(|(_, item)| match item {
            Item::Frame(frame) => {
                counters.dropped_down += 1;
                Some(frame)
            }
            Item::Pause(_) => None,
        })
    }

    /// Loses frames that are under way and not to be kept.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&Frame) -> bool) {
        let lost = &mut self.rest.lost;
        self.under_way.retain(|(_, item)| match item {
            Item::Frame(frame) => {
                let kept = is_kept(frame);
                *lost += u64::from(!kept);
                kept
            }
            Item::Pause(_) => true,
        });
    }

    /// Frames under way, in the order in which they arrive.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Frame> {
        self.under_way.iter().filter_map(|(_, item)| match item {
            Item::Frame(frame) => Some(frame),
            Item::Pause(_) => None,
        })
    }

    /// Gives back memory that traffic has taken.
    pub(crate) fn rest(&mut self) {
        self.under_way.shrink_to_fit();
    }

    /// How many frames are under way.
    pub(crate) fn frames(&self) -> u64 {
        self.under_way().count() as u64
    }

    /// Frames that have left.
    pub(crate) fn sent(&self) -> u64 {
        self.frames
    }

    /// Those that will not arrive, or not yet.
    pub(crate) fn lost_or_under_way(&self) -> u64 {
        self.rest.lost + self.rest.dropped_down + self.frames()
    }
}

impl Rest {
    fn transmission(&self, bytes: u32) -> Span {
        let takes = |rate: Rate| rate.transmission(bytes);
        self.rate.map_or(Span::ZERO, takes)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_by_time_and_then_in_order_of_sending() {
        let (ends, at) = ((0, 0), |ns| Time::ZERO.after(Span::from_nanos(ns)));
        let way = Way {
            from: ends,
            to: ends,
        };
        let mut line = Line::new(way, Rate::default(), Span::from_nanos(1), 1);
        line.set_rate(None);
        for (number, late) in [(2, 4), (0, 0), (3, 4), (1, 0)] {
            let frame = Frame::new(number, 0, 100);
            assert!(line.send(at(0), frame, Span::from_nanos(late)));
        }
        let mut take = |ns| match line.take_due(at(ns)) {
            Some(Item::Frame(frame)) => Some(frame.source),
            _ => None,
        };
        assert_eq!(
            [0, 1, 1, 4, 5, 5].map(&mut take),
            [None, Some(0), Some(1), None, Some(2), Some(3)]
        );
    }
}
