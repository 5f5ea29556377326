//! Decides who drives a device: its program, or its helper thread.

use ferroce_hca::{Span, Time};

use crate::Sent;
use crate::patience::{AROUND, LOOK_AGAIN, POLLING, SPARED_MAX, SPIN, STAND_BACK, STREAM_PACKETS};

/// The thread that serves a device while its program does not: who of the two drives, and when this
/// one sleeps. It has the thread's decisions; the host has the thread.
///
/// A round begins with [`Helper::look`]. Told to drive, the host takes what has arrived, asks
/// [`Helper::leaves_answer`], sends, and asks [`Helper::next`].
#[derive(Clone, Debug)]
pub struct Helper {
    last_packet: Time,
    stands_back: bool,
    /// How often in a row it was woken although the program polls.
    spared: u32,
}

/// What the helper is to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Sleep for so long, whatever arrives: the program is at it.
    StandBack(Span),
    /// Wait for something that the program leaves lying, as one does that has turned to looking at its
    /// memory, but no longer than this; then say [`Helper::has_waited`].
    AwaitAbsence(Span),
    /// Drive the device.
    Drive {
        /// The program has polled lately and goes on soon.
        is_around: bool,
    },
}

/// How waiting for something to lie ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Something has arrived. The host gives the program [`POLLING`] to take it.
    Arrived,
    /// Somebody has woken the helper.
    Woken,
    /// Nothing has happened.
    InVain,
}

/// What the helper does after a round of driving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another round.
    Again,
    /// Another round, after whoever wants the core has had it.
    Spin,
    /// Sleep until something arrives, somebody wakes it, or this time comes.
    Sleep(Option<Time>),
    /// The link is gone for good. Sleep for so long; timers still run, so that queue pairs fail in time.
    Pause(Span),
}

/// What a round of driving came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// Packets that had arrived; `None` if the link is gone.
    pub received: Option<usize>,
    /// A timer ran out.
    pub is_due: bool,
    /// See [`Look::Drive`].
    pub is_around: bool,
}

impl Helper {
    /// One that begins now.
    pub fn new(now: Time) -> Self {
        Self {
            last_packet: now,
            stands_back: false,
            spared: 0,
        }
    }

    /// Begins a round. `polled` is when the program polled last; `None` if it is at rest.
    pub fn look(&mut self, now: Time, polled: Option<Time>) -> Look {
        let absent = polled.map_or(Span::NEVER, |polled| now.since(polled));
        if self.stands_back && absent < STAND_BACK {
            return Look::StandBack(LOOK_AGAIN);
        }
        self.stands_back = false;
        if absent < POLLING {
            self.spared += 1;
            self.stands_back = self.spared > SPARED_MAX;
            return match self.stands_back {
                true => Look::StandBack(LOOK_AGAIN),
                false => Look::AwaitAbsence(LOOK_AGAIN),
            };
        }
        Look::Drive {
            is_around: absent < AROUND,
        }
    }

    /// What came of [`Look::AwaitAbsence`]. If nothing arrives for a while that stays longer than a
    /// program takes that polls, it needs no helper.
    pub fn has_waited(&mut self, waited: Waited) {
        self.stands_back = waited == Waited::InVain;
    }

    /// It has got the device to drive it.
    pub fn has_begun(&mut self) {
        self.spared = 0;
    }

    /// Whether the answer to what the round took is left to the program for [`LEAVE`], so that it
    /// leaves with its next request.
    ///
    /// [`LEAVE`]: crate::patience::LEAVE
    pub fn leaves_answer(&self, round: Round) -> bool {
        let is_little = matches!(round.received, Some(1..=STREAM_PACKETS));
        round.is_around && is_little && !round.is_due
    }

    /// What comes after a round that has `sent` what there was, where a timer runs until `deadline`.
    pub fn next(&mut self, now: Time, round: Round, sent: Sent, deadline: Option<Time>) -> Next {
        match round.received {
            None => Next::Pause(LOOK_AGAIN),
            Some(0) if sent == Sent::More => Next::Spin,
            Some(0) => {
                let has_spun = now.since(self.last_packet) >= SPIN;
                match has_spun || round.is_around {
                    true => Next::Sleep(deadline),
                    false => Next::Spin,
                }
            }
            Some(_) => {
                self.last_packet = now;
                Next::Again
            }
        }
    }
}
