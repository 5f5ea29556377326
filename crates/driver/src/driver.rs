//! Decides when a device receives, answers, sends, spins and sleeps.

use std::mem;

use ferroce_hca::{Event, Hca, Outgoing, Posted, Time};

use crate::doorbell::{Doorbell, Ring, Waiting};
use crate::helper::{Next, Round};
use crate::link::{Aside, Link, Taken};
use crate::patience::{
    BATCH_BYTES, LULL, RECEIVE_CALLS_MAX, ROUND_PACKETS, STREAM_PACKETS, TRANSMIT_BYTES_MAX, UNREAD,
};

/// The result of [`Driver::transmit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Everything was sent.
    All,
    /// There is more to send, and the link has room.
    More,
    /// The link has no room. Nothing is lost: the queue pairs keep their work until it has.
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
    /// The program has posted since packets of a stream, or of a long message, last arrived.
    has_posted: bool,
}

impl Driver {
    /// A driver for this device.
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
            has_posted: false,
        }
    }

    // What a program's threads do.

    /// One round of a polling program; `polled` is the time of the poll.
    ///
    /// The answers to a few packets ([`STREAM_PACKETS`]), or to more if the program posts after each such
    /// batch, wait for the next round or for the program's next request, and are sent with it in one batch,
    /// so that a reply and an acknowledgement cost one system call.
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
        if self.is_stream(packets) || is_due {
            self.transmit(&now, link);
        }
        self.is_deferred = self.hca.wants_transmit();
    }

    /// Whether a poll that has found a completion may return without receiving, because packets were
    /// received recently.
    #[inline]
    pub fn is_fresh(&self, now: Time) -> bool {
        now.since(self.polled) < UNREAD
    }

    /// Whether nothing was received or sent recently, so that polls need not check the link each time.
    #[inline]
    pub fn is_in_lull<L: Link>(&self, now: Time, link: &L) -> bool {
        now.since(self.stirred) >= LULL && !self.is_deferred && !self.is_blocked(link)
    }

    /// To be called at the end of a verb that posts: decides whether the posted requests are sent
    /// immediately, by [`Self::send`]. `is_watched` says whether the helper keeps watch over waiting ones.
    #[inline]
    pub fn ring(&mut self, is_watched: bool, now: impl Fn() -> Time) -> Ring {
        let posted = self.hca.take_posted();
        if posted == Posted::default() {
            return Ring::Waits; // for answers, or there is nothing
        }
        self.has_posted = true;
        let ring = self.doorbell.ring(posted, is_watched, now);
        self.is_deferred |= ring == Ring::Waits;
        ring
    }

    /// Sends full batches. The rest waits, unless it is most of a batch.
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

    /// The batch that waits.
    #[inline]
    pub fn waiting(&self) -> Waiting {
        self.doorbell.waiting()
    }

    /// Sends everything, including what the last round has deferred.
    #[inline]
    pub fn send<L: Link>(&mut self, now: impl Fn() -> Time, link: &mut L) -> Sent {
        let sent = self.transmit(now, link);
        self.is_deferred = sent == Sent::More;
        sent
    }

    /// Receives everything that has arrived, and sends the answers, as a card would have done by now. To be
    /// called before a verb that ends a queue pair's outstanding requests, which would otherwise flush
    /// requests whose acknowledgements have arrived.
    pub fn catch_up<L: Link>(&mut self, now: impl Fn() -> Time, link: &mut L) {
        self.receive_all(&now, link);
        self.send(now, link);
    }

    /// Whether the last round has deferred packets.
    pub fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Defers what the device has to send to the next round.
    pub fn defer(&mut self) {
        self.is_deferred = self.hca.wants_transmit();
    }

    // What the helper does.

    /// The first half of a round of the helper: receives, and runs timers. The second half is
    /// [`Self::send`] or [`Self::defer`].
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
            is_stream: self.is_stream(received.unwrap_or(0)),
            is_due: self.run_timers(began, now, link),
            is_around,
        }
    }

    /// Whether the peer streams, by the packets that a round has received, and needs the acknowledgements at
    /// once. A peer that waits for the answer to a message does not: the program has posted between its
    /// messages. If it were told early, it would stop polling, and the answer wait for its helper.
    #[inline]
    fn is_stream(&mut self, packets: usize) -> bool {
        if packets <= STREAM_PACKETS {
            return false;
        }
        let converses = mem::take(&mut self.has_posted);
        !converses || packets > ROUND_PACKETS
    }

    /// Frees memory that the device needed for traffic before the helper sleeps, unless the program will
    /// probably poll soon. If there is more to free, returns another round.
    pub fn tidy(&mut self, round: Round, next: Next) -> Next {
        match next {
            Next::Sleep(_) if !round.is_around && self.hca.rest() => Next::Spin,
            next => next,
        }
    }

    // Steps.

    /// Receives from all sources; several batches of a stream. `at` is the current time.
    ///
    /// # Errors
    /// The link is permanently gone.
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

    /// Receives everything that has arrived; returns the number of packets.
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

    /// When [`Self::run_timers`] must be called.
    #[inline]
    pub fn poll_timeout<L: Link>(&self, link: &L) -> Option<Time> {
        match (self.hca.poll_timeout(), link.poll_timeout()) {
            (Some(device), Some(link)) => Some(device.min(link)),
            (either, None) | (None, either) => either,
        }
    }

    /// Runs the timers that are due at this time; returns whether there were any. They may include packets
    /// held back by the impaired link, which [`Self::transmit`] then sends.
    ///
    /// Everything that has arrived is received first, so that an answer stops its timer however late this
    /// thread got a core. `at` must therefore be from before the last check of the link: a thread may lose
    /// its core between the two, and packets that arrive meanwhile precede deadlines that pass meanwhile.
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

    /// The same for a caller that has received everything.
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

    /// Whether packets wait for room on the link.
    pub fn is_blocked<L: Link>(&self, link: &L) -> bool {
        link.waiting() > 0
    }

    /// When the device must be driven again if nothing arrives; [`Time::ZERO`] means soon. A helper that
    /// would sleep longer must be woken.
    pub fn wanted_at<L: Link>(&self, link: &L) -> Option<Time> {
        match self.is_deferred || self.is_blocked(link) {
            true => Some(Time::ZERO),
            false => self.poll_timeout(link),
        }
    }

    /// The next event for the program.
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
