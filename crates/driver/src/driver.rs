//! Decides when a device receives, answers, sends, spins and sleeps.

use std::mem;

use ferroce_device::{Event, Hca, Outgoing, Posted, Remainder, Time};

use crate::doorbell::{Doorbell, Ring, Waiting};
use crate::helper::{Next, Round};
use crate::link::{Aside, Clock, Link, Taken};
use crate::patience::{
    BATCH_BYTES, IDLE_AFTER, LEND, REACTION, REACTIONS, RECEIVE_CALLS_MAX, REPLY, REST, REST_PAUSE,
    ROUND_PACKETS, STREAM_PACKETS, TRANSMIT_BYTES_MAX, UNREAD,
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
pub struct Driver<L, C> {
    /// The device.
    pub hca: Hca,
    /// What carries its packets.
    pub link: L,
    clock: C,
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
    /// What it has posted last was all that its queue pair had to do.
    has_asked: bool,
    /// When the helper last took something for the program, which has not posted since.
    delivered: Option<Time>,
    /// How often in a row the program has posted soon after that.
    reactions: u32,
}

impl<L: Link, C: Clock> Driver<L, C> {
    /// A driver for this device on this link.
    pub fn new(hca: Hca, link: L, clock: C) -> Self {
        Self {
            hca,
            link,
            clock,
            packet: Outgoing::empty(),
            holds_packet: false,
            is_deferred: false,
            doorbell: Doorbell::default(),
            polled: Time::ZERO,
            stirred: Time::ZERO,
            second_look: SecondLook::default(),
            sent: Time::ZERO,
            has_posted: false,
            has_asked: false,
            delivered: None,
            reactions: 0,
        }
    }

    // What a program's threads do.

    /// One round of a polling program; `polled` is the time of the poll.
    ///
    /// The answers to a few packets ([`STREAM_PACKETS`]), or to more if the program posts after each such
    /// batch, wait for the next round or for the program's next request, and are sent with it in one batch,
    /// so that a reply and an acknowledgement cost one system call.
    ///
    /// Returns whether packets have been received or sent, so that it may have taken a while.
    pub fn poll(&mut self, polled: Time) -> bool {
        self.polled = polled;
        if self.is_deferred || self.is_blocked() {
            self.transmit();
        }
        // A link that is gone is still driven, so that its timers expire.
        // What has arrived may answer what has left since the program noted the time.
        let at = polled.max(self.sent);
        let mut packets = self.receive_round(at).unwrap_or(0);
        let waits = packets == 0 && self.awaits_reply();
        if waits {
            packets = self.await_reply();
        }
        if packets > 0 {
            self.stirred = polled;
        }
        let is_due = self.run_timers(polled);
        if self.wants_answer(packets) || is_due {
            self.transmit();
        }
        self.is_deferred = self.hca.wants_transmit();
        packets > 0 || waits || self.sent >= polled
    }

    /// Whether the next poll waits for the reply to what the program has posted, because the program watches its
    /// memory for it: it has reacted to what the helper has put there, time after time, by posting the next request.
    ///
    /// Such a program polls once for each request, before the reply is there. If its helper had to take the reply,
    /// it would have to get the core on which the program watches.
    #[inline]
    pub fn awaits_reply(&self) -> bool {
        self.has_asked && self.reactions >= REACTIONS
    }

    /// Receives until something comes. A reply that does not is one that the program does not wait for.
    fn await_reply(&mut self) -> usize {
        let began = self.clock.now();
        loop {
            let now = self.clock.now();
            if now.since(began) >= REPLY {
                self.reactions = 0;
                return 0;
            }
            let packets = self.receive_round(now).unwrap_or(0);
            if packets > 0 {
                return packets;
            }
        }
    }

    /// The program has posted: perhaps its reaction to what the helper has put into its memory.
    fn note_reaction(&mut self) {
        if let Some(delivered) = self.delivered.take() {
            let is_soon = self.clock.now().since(delivered) < REACTION;
            self.reactions = match is_soon {
                true => REACTIONS.min(self.reactions + 1),
                false => 0,
            };
        }
    }

    /// Whether the peer needs the answer to `packets`, which have come, at once.
    ///
    /// If the last of them belongs to a message that goes on, the rest is received as well, as long as it keeps
    /// coming: the program may now stop polling, and watch its memory for the last byte. Its reply takes the answer
    /// along. That is done once for each request that a program waits for: one that receives a stream polls for its
    /// completions.
    fn wants_answer(&mut self, mut packets: usize) -> bool {
        if packets == 0 || !self.has_asked {
            return self.is_stream(packets);
        }
        let began = self.clock.now();
        let (mut last, mut all) = (began, packets);
        loop {
            // The peer may be able to send no more before it is answered.
            let is_needed = self.is_stream(packets) || packets == 0 && self.hca.wants_transmit();
            match self.hca.remainder() {
                Remainder::None => return is_needed,
                Remainder::Arrived => break,
                Remainder::Awaited if is_needed => drop(self.transmit()),
                Remainder::Awaited => {}
            }
            let now = self.clock.now();
            if packets > 0 {
                last = now;
            }
            if now.since(last) >= REST_PAUSE || now.since(began) >= REST {
                self.hca.give_up_remainder();
                return true;
            }
            packets = self.receive_round(now).unwrap_or(0);
            all += packets;
        }
        // A few may only be the answer to the request.
        self.has_asked = all <= STREAM_PACKETS;
        false
    }

    /// Whether a poll that has found a completion may return without receiving, because packets were
    /// received recently.
    #[inline]
    pub fn is_fresh(&self, now: Time) -> bool {
        now.since(self.polled) < UNREAD
    }

    /// Whether nothing was received or sent recently, so that polls need not check the link each time.
    #[inline]
    pub fn is_idle(&self, now: Time) -> bool {
        now.since(self.stirred) >= IDLE_AFTER && !self.is_deferred && !self.is_blocked()
    }

    /// Whether nothing was received or sent for [`LEND`], so that a polling thread waits for its peer.
    ///
    /// [`LEND`]: crate::patience::LEND
    #[inline]
    pub fn is_waiting(&self, now: Time) -> bool {
        now.since(self.stirred) >= LEND
    }

    /// To be called at the end of a verb that posts: decides whether the posted requests are sent
    /// immediately, by [`Self::send`]. `is_watched` says whether the helper keeps watch over waiting ones, and
    /// `has_paused` whether the program has [done something else](crate::Handshake::take_pause) meanwhile.
    #[inline]
    pub fn ring(&mut self, is_watched: bool, has_paused: bool) -> Ring {
        if has_paused {
            self.doorbell.note_pause();
        }
        let posted = self.hca.take_posted();
        if posted == Posted::default() {
            return Ring::Waits; // for answers, or there is nothing
        }
        self.note_reaction();
        self.has_posted = true;
        self.has_asked = posted.at_once;
        let ring = self.doorbell.ring(posted, is_watched, || self.clock.now());
        self.is_deferred |= ring == Ring::Waits;
        ring
    }

    /// Sends full batches. The rest waits, unless it is most of a batch.
    pub fn send_batches(&mut self) -> Sent {
        let now = self.clock.now();
        let sent = self.hand_over(now).unwrap_or_else(|| {
            let left_over = self.link.waiting();
            if left_over > 0 && left_over < BATCH_BYTES as usize / 2 {
                self.doorbell.keep(now);
                return Sent::More;
            }
            self.flush()
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
    pub fn send(&mut self) -> Sent {
        let sent = self.transmit();
        self.is_deferred = sent == Sent::More;
        sent
    }

    /// Receives everything that has arrived, and sends the answers, as a card would have done by now. To be
    /// called before a verb that ends a queue pair's outstanding requests, which would otherwise flush
    /// requests whose acknowledgements have arrived.
    pub fn catch_up(&mut self) {
        self.receive_all();
        self.send();
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
    pub fn take(&mut self, is_around: bool) -> Round {
        let began = self.clock.now();
        let mut received = self.receive_round(began).ok();
        if received == Some(0) {
            received = Some(self.receive_aside());
        }
        if received != Some(0) {
            self.stirred = began;
        }
        let packets = received.unwrap_or(0);
        let round = Round {
            received,
            is_stream: match is_around {
                true => self.wants_answer(packets),
                false => self.is_stream(packets),
            },
            is_due: self.run_timers(began),
            is_around,
        };
        if is_around && packets > 0 {
            self.delivered = Some(self.clock.now());
        }
        round
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

    /// Frees memory that device and link needed for traffic before the helper sleeps, unless the program
    /// will probably poll soon. If there is more to free, returns another round.
    pub fn tidy(&mut self, round: Round, next: Next) -> Next {
        if !matches!(next, Next::Sleep(_)) {
            return next;
        }
        if !round.is_around && self.hca.rest() {
            return Next::Spin;
        }
        self.link.rest();
        next
    }

    // Steps.

    /// The present.
    #[inline]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Receives once; returns the number of packets.
    ///
    /// # Errors
    /// The link is permanently gone.
    pub fn receive(&mut self) -> Result<usize, L::Gone> {
        let taken = self.link.receive(|| self.clock.now(), &mut self.hca);
        Ok(taken?.packets)
    }

    /// Receives from the link's other sources, announced or not; returns the number of packets.
    pub fn receive_aside(&mut self) -> usize {
        self.link
            .receive_aside(|| self.clock.now(), &mut self.hca, Aside::All)
    }

    /// Receives from all sources; several batches of a stream. `at` is the current time.
    ///
    /// # Errors
    /// The link is permanently gone.
    fn receive_round(&mut self, at: Time) -> Result<usize, L::Gone> {
        let Taken {
            mut packets,
            mut more,
        } = self.link.glance(at, || self.clock.now(), &mut self.hca)?;
        packets += self
            .link
            .receive_aside(|| self.clock.now(), &mut self.hca, Aside::Announced);
        let is_stream = packets > STREAM_PACKETS;
        while is_stream && more && packets < ROUND_PACKETS && self.second_look.is_worth_it() {
            let taken = self
                .link
                .glance(self.clock.now(), || self.clock.now(), &mut self.hca);
            let taken = taken.unwrap_or_default();
            self.second_look.note(taken.packets);
            packets += taken.packets;
            more = taken.more;
        }
        Ok(packets)
    }

    /// Receives everything that has arrived; returns the number of packets.
    pub fn receive_all(&mut self) -> usize {
        let mut packets = 0;
        for _ in 0..RECEIVE_CALLS_MAX {
            let taken = self
                .link
                .receive(|| self.clock.now(), &mut self.hca)
                .unwrap_or_default();
            packets += taken.packets;
            if !taken.more {
                break;
            }
        }
        packets
            + self
                .link
                .receive_aside(|| self.clock.now(), &mut self.hca, Aside::Announced)
    }

    /// When [`Self::run_timers`] must be called.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        match (self.hca.poll_timeout(), self.link.poll_timeout()) {
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
    pub fn run_timers(&mut self, at: Time) -> bool {
        if !self.is_due(at) {
            return false;
        }
        if self.hca.timers_are_due(at) {
            self.receive_all();
        }
        self.expire(at);
        true
    }

    /// The same for a caller that has received everything.
    pub fn expire_due(&mut self, at: Time) -> bool {
        let is_due = self.is_due(at);
        if is_due {
            self.expire(at);
        }
        is_due
    }

    fn is_due(&self, at: Time) -> bool {
        self.poll_timeout().is_some_and(|deadline| deadline <= at)
    }

    fn expire(&mut self, at: Time) {
        self.link.handle_timeout(at, &mut self.hca);
        self.hca.handle_timeout(at);
    }

    /// Sends what the device has to send.
    pub fn transmit(&mut self) -> Sent {
        let now = self.clock.now();
        let stopped = self.hand_over(now);
        stopped.unwrap_or_else(|| self.flush())
    }

    fn flush(&mut self) -> Sent {
        match self.link.flush(&mut self.hca) {
            true => Sent::All,
            false => Sent::Blocked,
        }
    }

    /// Hands the link what the device has to send, and has all batches leave but the last one. That is
    /// still there then, unless it could not go on: for the reason that it returns.
    fn hand_over(&mut self, now: Time) -> Option<Sent> {
        self.sent = now;
        let stopped = self.fill(now);
        let has_sent = stopped.is_some() || self.link.waiting() > 0;
        if has_sent {
            self.stirred = now;
        }
        self.doorbell.leave(now, has_sent);
        stopped
    }

    fn fill(&mut self, now: Time) -> Option<Sent> {
        let mut bytes = 0;
        loop {
            if !self.holds_packet && !self.hca.poll_transmit_into(now, &mut self.packet) {
                return None;
            }
            self.holds_packet = self.link.push(&mut self.hca, &self.packet).is_err();
            if !self.holds_packet {
                continue;
            }
            bytes += self.link.waiting();
            let is_blocked = !self.link.flush(&mut self.hca);
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
    pub fn is_blocked(&self) -> bool {
        self.link.waiting() > 0
    }

    /// When the device must be driven again if nothing arrives; [`Time::ZERO`] means soon. A helper that
    /// would sleep longer must be woken.
    pub fn wanted_at(&self) -> Option<Time> {
        match self.is_deferred || self.is_blocked() {
            true => Some(Time::ZERO),
            false => self.poll_timeout(),
        }
    }

    /// The next event for the program.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(event) = self.hca.poll_event() {
            if let Some(event) = self.link.handle_event(event) {
                return Some(event);
            }
        }
        self.link.poll_event()
    }
}
