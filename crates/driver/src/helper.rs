//! Decides who drives a device: its program, or its helper thread.

use ferroce_device::{Span, Time};

use crate::Sent;
use crate::patience::{
    AROUND, LOOK_AGAIN, LOOK_SOON, PAUSE, POLLING, SPARED_MAX, SPIN, STAND_BACK, TURN,
};

/// Decisions of the thread that serves a device while its program does not: which of the two drives the
/// device, and when this one sleeps. The thread itself belongs to the host.
///
/// A round begins with [`Helper::look`]. If the result is to drive, the host receives, asks
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
    /// Sleep for so long, whatever arrives, because the program drives the device.
    StandBack(Span),
    /// Wait at most this long for packets that the program does not receive, for example because it now
    /// watches its memory; then call [`Helper::has_waited`].
    AwaitAbsence(Span),
    /// Drive the device.
    Drive {
        /// The program has polled recently and will probably poll again soon.
        is_around: bool,
    },
}

/// How [`Look::AwaitAbsence`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Packets have arrived. The host gives the program [`POLLING`] to receive them, unless it pauses.
    Arrived,
    /// Another thread has woken the helper.
    Woken,
    /// Nothing has happened.
    InVain,
}

/// What the helper does after a round of driving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another round.
    Again,
    /// Another round, after yielding the core.
    Spin,
    /// Sleep until packets arrive, another thread wakes the helper, or this time is reached.
    Sleep(Option<Time>),
    /// The link is permanently gone. Sleep for so long; timers continue, so that queue pairs fail in time.
    Pause(Span),
}

/// The result of a round of driving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// Packets received; `None` if the link is gone.
    pub received: Option<usize>,
    /// They are part of a stream, whose sender waits for acknowledgements.
    pub is_stream: bool,
    /// A timer expired.
    pub is_due: bool,
    /// See [`Look::Drive`].
    pub is_around: bool,
}

impl Helper {
    /// A helper that starts now.
    pub fn new(now: Time) -> Self {
        Self {
            last_packet: now,
            stands_back: false,
            spared: 0,
        }
    }

    /// Begins a round. `polled` is when the program polled last; `None` if it is at rest. `pauses` says whether it
    /// [does something else](crate::Handshake::pauses) between polls: the helper then takes what arrives as soon
    /// as the program does not poll. `is_crowded` says whether more processes share the device than there are cores: the
    /// program polls when it has one.
    pub fn look(
        &mut self,
        now: Time,
        polled: Option<Time>,
        pauses: bool,
        is_crowded: bool,
    ) -> Look {
        let (polling, stand_back, look_again) = match (pauses, is_crowded) {
            (true, _) => (PAUSE, POLLING, LOOK_SOON),
            (false, true) => (TURN, TURN, TURN),
            (false, false) => (POLLING, STAND_BACK, LOOK_AGAIN),
        };
        let absent = polled.map_or(Span::NEVER, |polled| now.since(polled));
        if self.stands_back && absent < stand_back {
            return Look::StandBack(look_again);
        }
        self.stands_back = false;
        if absent < polling {
            self.spared += 1;
            self.stands_back = self.spared > SPARED_MAX;
            return match self.stands_back {
                true => Look::StandBack(look_again),
                false => Look::AwaitAbsence(LOOK_AGAIN),
            };
        }
        Look::Drive {
            is_around: absent < AROUND,
        }
    }

    /// Reports how [`Look::AwaitAbsence`] ended. If for a while no packets wait longer than a polling program
    /// needs to receive them, the program needs no helper.
    pub fn has_waited(&mut self, waited: Waited) {
        self.stands_back = waited == Waited::InVain;
    }

    /// The helper has locked the device to drive it.
    pub fn has_begun(&mut self) {
        self.spared = 0;
    }

    /// Whether the answer to the received packets is left to the program for [`LEAVE`], so that it is sent
    /// together with its next request.
    ///
    /// [`LEAVE`]: crate::patience::LEAVE
    pub fn leaves_answer(&self, round: Round) -> bool {
        let is_some = round.received.is_some_and(|packets| packets > 0);
        round.is_around && is_some && !round.is_stream && !round.is_due
    }

    /// What to do after a round; `sent` is how far sending came, `deadline` is the next timer's.
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
