//! Hosts that take packets more slowly than they arrive, and pause the network.

use std::collections::VecDeque;

use ferroce_base::time::Time;
use ferroce_dcqcn::Rate;

use super::{Network, Stations};
use crate::frame::{Frame, Parcel};

/// What a link's buffer in a host holds at most.
pub(super) const BUFFER_BYTES: u64 = 512 << 10;
/// Lossless priorities are paused when it holds so much, and resumed when it holds half of that. The rest is for
/// what still arrives.
const PAUSE_BYTES: u64 = 256 << 10;

/// What a host has not taken yet of what a line has brought.
#[derive(Debug)]
pub(super) struct Intake {
    rate: Rate,
    /// In the order in which they came; the host is taking the first.
    waiting: VecDeque<Frame>,
    bytes: u64,
    /// When it has taken the first.
    pub(super) next: Option<Time>,
    /// The priorities that it does not want, a bit each.
    pub(super) pausing: u8,
}

impl Intake {
    fn new(rate: Rate) -> Self {
        Self {
            rate,
            waiting: VecDeque::new(),
            bytes: 0,
            next: None,
            pausing: 0,
        }
    }

    /// Keeps a frame until the host takes it; false if there is no room.
    fn keep(&mut self, now: Time, frame: Frame) -> bool {
        let bytes = u64::from(frame.bytes);
        if self.bytes + bytes > BUFFER_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.waiting.push_back(frame);
        if self.next.is_none() {
            self.begin(now);
        }
        true
    }

    /// Takes the first frame.
    fn take(&mut self, now: Time) -> Option<Frame> {
        let frame = self.waiting.pop_front()?;
        self.bytes -= u64::from(frame.bytes);
        self.begin(now);
        Some(frame)
    }

    fn begin(&mut self, now: Time) {
        let first = self.waiting.front();
        self.next = first.map(|frame| now.after(self.rate.transmission(frame.bytes.into())));
    }

    /// Whether the lossless priorities have to be paused, or resumed.
    fn is_turned(&self) -> bool {
        match self.pausing {
            0 => self.bytes >= PAUSE_BYTES,
            _ => self.bytes <= PAUSE_BYTES / 2,
        }
    }

    /// Frames that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Frame> {
        self.waiting.iter()
    }
}

impl<P: Parcel> Network<P> {
    /// Makes a host take packets no faster than at a rate, on each of its links, or as fast as they arrive
    /// again. It then pauses the lossless priorities of switches, and drops what has no room.
    pub(crate) fn set_intake(
        &mut self,
        ends: &mut impl Stations<P>,
        host: u32,
        rate: Option<Rate>,
    ) {
        let lines = self.host_lines[host as usize];
        for (_, line) in super::links(lines) {
            let coming = line ^ 1;
            let Some(rate) = rate else {
                while self.take_waiting(ends, coming) {}
                self.intakes.remove(&coming);
                continue;
            };
            let intake = self.intakes.entry(coming);
            intake.or_insert_with(|| Intake::new(rate)).rate = rate;
        }
    }

    /// A frame has come to a host by a line whose frames it takes slowly.
    pub(super) fn keep_for_host(&mut self, coming: u32, frame: Frame) {
        let Some(intake) = self.intakes.get_mut(&coming) else {
            return;
        };
        if !intake.keep(self.now, frame) {
            self.lines[coming as usize].count_refused();
            return self.lose(&frame);
        }
        self.follow_intake(coming);
    }

    /// A host takes the next frame that a line has brought; false if there is none.
    pub(super) fn take_waiting(&mut self, ends: &mut impl Stations<P>, coming: u32) -> bool {
        let taken = self
            .intakes
            .get_mut(&coming)
            .and_then(|it| it.take(self.now));
        let Some(frame) = taken else {
            return false;
        };
        self.follow_intake(coming);
        let (host, _) = self.lines[coming as usize].way.to;
        ends.receive(self.now, host, &frame, self.packets.get(frame.packet));
        self.packets.give_back(frame.packet);
        self.kick(ends, host);
        true
    }

    /// Pauses or resumes the other end if there is a reason, and waits for the next frame.
    fn follow_intake(&mut self, coming: u32) {
        let (lossless, leaving) = (self.lossless, coming ^ 1);
        let Some(intake) = self.intakes.get_mut(&coming) else {
            return;
        };
        if lossless != 0 && intake.is_turned() {
            intake.pausing ^= lossless;
            let line = &mut self.lines[leaving as usize];
            if line.send_pause(self.now, intake.pausing) {
                self.launched(leaving);
            }
        }
        let next = self.intakes.get(&coming).and_then(|it| it.next);
        self.events.set(self.departure(leaving), next);
    }
}
