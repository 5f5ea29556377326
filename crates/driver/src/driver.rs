//! Decides when a device receives, answers, sends, spins and sleeps.

use ferroce_hca::{Event, Hca, Outgoing, Posted, Time};

use crate::doorbell::{Doorbell, Ring, Waiting};
use crate::helper::{Next, Round};
use crate::link::{Aside, Link, Taken};
use crate::patience::{
    BATCH_BYTES, LULL, RECEIVE_CALLS_MAX, ROUND_PACKETS, STREAM_PACKETS, TRANSMIT_BYTES_MAX, UNREAD,
};

/// How far [`Driver::transmit`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Everything is on its way.
    All,
    /// There is more, and the link would take it.
    More,
    /// The link takes no more: nothing is lost, and the queue pairs keep their work until it does.
    Blocked,
}

/// Whether several batches of a stream lie on the link at a time, so that it pays to look again after one.
/// Where each batch waits for the answer to the one before, there is never a second one, and the look is a
/// system call for nothing.
#[derive(Clone, Copy, Debug, Default)]
struct SecondLook {
    /// Looks to leave out, which doubles with each that has brought nothing.
    pause: u8,
    left: u8,
}

impl SecondLook {
    const PAUSE_MAX: u8 = 15;

    fn is_worth_it(&mut self) -> bool {
        let is_worth_it = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_worth_it
    }

    fn note(&mut self, packets: usize) {
        self.pause = match packets {
            0 => Self::PAUSE_MAX.min(2 * self.pause + 1),
            _ => 0,
        };
        self.left = self.pause;
    }
}

/// Moves packets between a device and its link.
#[derive(Debug)]
pub struct Driver {
    /// The device.
    pub hca: Hca,
    /// The packet about to be handed to the link.
    packet: Outgoing,
    /// Whether it is still there: it did not fit what waits on the link.
    holds_packet: bool,
    /// There may be something to send that the last round has left for the next one.
    is_deferred: bool,
    /// What the program has posted and what of it waits for more.
    doorbell: Doorbell,
    /// When a polling program last took what had arrived.
    polled: Time,
    /// When something has come or left last.
    stirred: Time,
    second_look: SecondLook,
    /// When something was last sent, or looked for to be sent.
    sent: Time,
}

impl Driver {
    /// Drives this device.
    pub fn new(hca: Hca) -> Self {
        Self {
            hca,
            packet: Outgoing::empty(),
            holds_packet: false,
            is_deferred: false,
            doorbell: Doorbell::default(),
            polled: Time::ZERO,
            stirred: Time::ZERO,
            second_look: SecondLook::default(),
            sent: Time::ZERO,
        }
    }

    // What a program's threads do.

    /// One round of a program that polls, as it noted at `polled`.
    ///
    /// What a packet or two make the device answer waits for the next round, or for the program's
    /// next request, with which it then leaves in one batch: a reply and an acknowledgement cost
    /// one system call.
    pub fn poll<L: Link>(&mut self, polled: Time, now: impl Fn() -> Time, link: &mut L) {
        self.polled = polled;
        if self.is_deferred || self.is_blocked(link) {
            self.transmit(&now, link);
        }
        // Whoever drives a link that is gone still has its timers run out.
        // What has arrived may answer what has left since the program noted the time.
        let at = polled.max(self.sent);
        let packets = self.receive_round(at, &now, link).unwrap_or(0);
        if packets > 0 {
            self.stirred = polled;
        }
        let is_due = self.run_timers(polled, &now, link);
        if is_due || packets > STREAM_PACKETS {
            self.transmit(&now, link);
        }
        self.is_deferred = self.hca.wants_transmit();
    }

    /// Whether a poll that has found a completion may leave it at that: somebody has taken lately
    /// what arrives.
    #[inline]
    pub fn is_fresh(&self, now: Time) -> bool {
        now.since(self.polled) < UNREAD
    }

    /// Whether nothing comes or leaves these days, so that polls need not look each time.
    #[inline]
    pub fn is_in_lull<L: Link>(&self, now: Time, link: &L) -> bool {
        now.since(self.stirred) >= LULL && !self.is_deferred && !self.is_blocked(link)
    }

    /// What a verb that posts ends with: whether what it has posted leaves at once, which is up to
    /// [`Self::send`]. The helper keeps watch over what waits if `is_watched` says so.
    #[inline]
    pub fn ring(&mut self, is_watched: bool, now: impl Fn() -> Time) -> Ring {
        let posted = self.hca.take_posted();
        if posted == Posted::default() {
            return Ring::Waits; // for answers, or there is nothing
        }
        let ring = self.doorbell.ring(posted, is_watched, now);
        self.is_deferred |= ring == Ring::Waits;
        ring
    }

    /// Sends what the device has in full batches. What is left over waits, unless it is most of one.
    pub fn send_batches<L: Link>(&mut self, now: impl Fn() -> Time, link: &mut L) -> Sent {
        let now = now();
        let sent = self.hand_over(now, link).unwrap_or_else(|| {
            let left_over = link.waiting();
            if left_over > 0 && left_over < BATCH_BYTES as usize / 2 {
                self.doorbell.keep(now);
                return Sent::More;
            }
            self.flush(link)
        });
        self.is_deferred = sent == Sent::More;
        sent
    }

    /// What waits of that.
    #[inline]
    pub fn waiting(&self) -> Waiting {
        self.doorbell.waiting()
    }

    /// Sends what the device has, with what the last round has left.
    #[inline]
    pub fn send<L: Link>(&mut self, now: impl Fn() -> Time, link: &mut L) -> Sent {
        let sent = self.transmit(now, link);
        self.is_deferred = sent == Sent::More;
        sent
    }

    /// Takes everything that has arrived, and sends what it makes the device answer: so far a card is
    /// when a verb of its program reaches it. To be called before one that ends what a queue pair has
    /// under way, which would else flush requests whose acknowledgement is here.
    pub fn catch_up<L: Link>(&mut self, now: impl Fn() -> Time, link: &mut L) {
        self.receive_all(&now, link);
        self.send(now, link);
    }

    /// Whether the last round has left something to the next one.
    pub fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Leaves what the device has to send to the next round.
    pub fn defer(&mut self) {
        self.is_deferred = self.hca.wants_transmit();
    }

    // What the helper does.

    /// The first half of a round of the helper: takes what has arrived and lets timers run out. The
    /// second half is [`Self::send`], or [`Self::defer`].
    pub fn take<L: Link>(
        &mut self,
        is_around: bool,
        now: impl Fn() -> Time,
        link: &mut L,
    ) -> Round {
        let began = now();
        let mut received = self.receive_round(began, &now, link).ok();
        if received == Some(0) {
            received = Some(link.receive_aside(&now, &mut self.hca, Aside::All));
        }
        if received != Some(0) {
            self.stirred = began;
        }
        Round {
            received,
            is_due: self.run_timers(began, now, link),
            is_around,
        }
    }

    /// Has the device give memory back that it needed in traffic, before the helper sleeps. Not while
    /// the program is around, which goes on soon; and as long as there is more to give back, `next` is
    /// another round.
    pub fn tidy(&mut self, round: Round, next: Next) -> Next {
        match next {
            Next::Sleep(_) if !round.is_around && self.hca.rest() => Next::Spin,
            next => next,
        }
    }

    // Steps.

    /// Takes what has arrived by any way. Of a stream, several batches. `at` is a time that has just been
    /// asked for.
    ///
    /// # Errors
    /// The link is gone for good.
    pub fn receive_round<L: Link>(
        &mut self,
        at: Time,
        now: impl Fn() -> Time,
        link: &mut L,
    ) -> Result<usize, L::Gone> {
        let Taken {
            mut packets,
            mut more,
        } = link.glance(at, &now, &mut self.hca)?;
        packets += link.receive_aside(&now, &mut self.hca, Aside::Announced);
        let is_stream = packets > STREAM_PACKETS;
        while is_stream && more && packets < ROUND_PACKETS && self.second_look.is_worth_it() {
            let taken = link.glance(now(), &now, &mut self.hca);
            let taken = taken.unwrap_or_default();
            self.second_look.note(taken.packets);
            packets += taken.packets;
            more = taken.more;
        }
        Ok(packets)
    }

    /// Takes everything that has arrived; returns the number of packets.
    pub fn receive_all<L: Link>(&mut self, now: impl Fn() -> Time, link: &mut L) -> usize {
        let mut packets = 0;
        for _ in 0..RECEIVE_CALLS_MAX {
            let taken = link.receive(&now, &mut self.hca).unwrap_or_default();
            packets += taken.packets;
            if !taken.more {
                break;
            }
        }
        packets + link.receive_aside(&now, &mut self.hca, Aside::Announced)
    }

    /// When [`Self::run_timers`] wants to be called.
    #[inline]
    pub fn poll_timeout<L: Link>(&self, link: &L) -> Option<Time> {
        match (self.hca.poll_timeout(), link.poll_timeout()) {
            (Some(device), Some(link)) => Some(device.min(link)),
            (either, None) | (None, either) => either,
        }
    }

    /// Lets timers run out that were due at this time, and tells whether there were any. They may
    /// include packets that the impaired link held back, which [`Self::transmit`] then sends.
    ///
    /// What has arrived is taken first, all of it: an answer among it stops its timer, however late
    /// its thread got a core. So the time is one from before the last look at the link: a thread
    /// may lose its core between the two, and what arrives meanwhile has arrived before the
    /// deadlines that pass meanwhile.
    pub fn run_timers<L: Link>(&mut self, at: Time, now: impl Fn() -> Time, link: &mut L) -> bool {
        if !self.is_due(at, link) {
            return false;
        }
        if self.hca.timers_are_due(at) {
            self.receive_all(now, link);
        }
        self.expire(at, link);
        true
    }

    /// The same for whoever has taken all that had arrived then.
    pub fn expire_due<L: Link>(&mut self, at: Time, link: &mut L) -> bool {
        let is_due = self.is_due(at, link);
        if is_due {
            self.expire(at, link);
        }
        is_due
    }

    fn is_due<L: Link>(&self, at: Time, link: &L) -> bool {
        self.poll_timeout(link)
            .is_some_and(|deadline| deadline <= at)
    }

    fn expire<L: Link>(&mut self, at: Time, link: &mut L) {
        link.handle_timeout(at, &mut self.hca);
        self.hca.handle_timeout(at);
    }

    /// Sends what the device has to send.
    pub fn transmit<L: Link>(&mut self, now: impl Fn() -> Time, link: &mut L) -> Sent {
        let now = now();
        let stopped = self.hand_over(now, link);
        stopped.unwrap_or_else(|| self.flush(link))
    }

    fn flush<L: Link>(&mut self, link: &mut L) -> Sent {
        match link.flush(&mut self.hca) {
            true => Sent::All,
            false => Sent::Blocked,
        }
    }

    /// Hands the link what the device has to send, and has all batches leave but the last one. That is
    /// still there then, unless it could not go on: for the reason that it returns.
    fn hand_over<L: Link>(&mut self, now: Time, link: &mut L) -> Option<Sent> {
        self.sent = now;
        let stopped = self.fill(now, link);
        let has_sent = stopped.is_some() || link.waiting() > 0;
        if has_sent {
            self.stirred = now;
        }
        self.doorbell.leave(now, has_sent);
        stopped
    }

    fn fill<L: Link>(&mut self, now: Time, link: &mut L) -> Option<Sent> {
        if self.hca.take_lacks_lease() {
            link.lacks_lease(now);
        }
        let mut bytes = 0;
        loop {
            if !self.holds_packet && !self.hca.poll_transmit_into(now, &mut self.packet) {
                return None;
            }
            self.holds_packet = link.push(&mut self.hca, &self.packet).is_err();
            if !self.holds_packet {
                continue;
            }
            bytes += link.waiting();
            let is_blocked = !link.flush(&mut self.hca);
            if is_blocked || bytes >= TRANSMIT_BYTES_MAX {
                // It waits for the next call: the program may change its memory until then.
                self.hca.detach(&mut self.packet);
                return Some(match is_blocked {
                    true => Sent::Blocked,
                    false => Sent::More,
                });
            }
        }
    }

    /// Whether something waits until the link takes it.
    pub fn is_blocked<L: Link>(&self, link: &L) -> bool {
        link.waiting() > 0
    }

    /// When somebody must drive the device again if nothing arrives meanwhile; [`Time::ZERO`] if that is
    /// soon. A helper that means to sleep for longer is to be woken.
    pub fn wanted_at<L: Link>(&self, link: &L) -> Option<Time> {
        match self.is_deferred || self.is_blocked(link) {
            true => Some(Time::ZERO),
            false => self.poll_timeout(link),
        }
    }

    /// The next thing that somebody should know.
    #[inline]
    pub fn poll_event<L: Link>(&mut self, link: &mut L) -> Option<Event> {
        while let Some(event) = self.hca.poll_event() {
            if let Some(event) = link.handle_event(event) {
                return Some(event);
            }
        }
        link.poll_event()
    }
}
