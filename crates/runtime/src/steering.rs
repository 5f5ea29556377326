//! Makes the kernel deliver packets to the process that they are for, which saves forwarding them.
//!
//! The kernel takes a program that selects a socket by its index, but does not reveal the index of
//! a socket; [`Socket::steer`] has details. A process that joins, or has had to forward packets,
//! therefore finds out: it sends a probe to each index, and each process records in the shared file
//! which probe it received. If the result is wrong or unknown, or if steering is refused, packets
//! are forwarded.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ferroce_device::{Span, Time};
use ferroce_registry::{Asking, Place, Presence, Round, SharedFile};
use ferroce_sockets::{PROBE, Routes, Socket};

use crate::kept::PLACES_MAX;

/// How long after a round packets that come to the wrong process are no reason for another one.
const PAUSE_MIN: Span = Span::from_millis(5);
/// The same after rounds that came to nothing.
const PAUSE_MAX: Span = Span::from_secs(1);
/// After as much peace the next reason is a new one.
const PEACE: Span = Span::from_secs(2);
/// How often a process looks whether another one has finished its round.
const TRY_AGAIN: Span = Span::from_millis(1);
/// When answers are looked at first; then after twice as long, and so on.
const LOOK: Span = Span::from_micros(50);
/// How long answers are waited for. A process that is slower is stopped, or the machine is very busy.
const ROUND: Span = Span::from_millis(100);
/// Sockets there may be beside those of known processes, which may be about to end, and beside those
/// that keep a place.
const SPARE_PROBES: usize = 4 + PLACES_MAX;
/// Opcode, index, nothing, round, nonce.
const PROBE_LEN: usize = 1 + 1 + 2 + 4 + 8;

/// What a process does for that.
#[derive(Debug)]
pub(crate) struct Steering {
    shared: Arc<SharedFile>,
    slot: u8,
    state: State,
    pause: Span,
    /// When this process's last round ended.
    ended: Time,
}

#[derive(Debug)]
enum State {
    Quiet,
    /// There is a reason for a round.
    Due {
        reason: Reason,
        since: Time,
        at: Time,
    },
    Waiting(Waiting),
    /// The kernel takes no programs.
    Refused,
}

#[derive(Clone, Copy, Debug)]
enum Reason {
    Joined,
    Missed,
    /// A process listens whose socket is known since the last round.
    Listens,
}

/// Probes are on their way.
#[derive(Debug)]
struct Waiting {
    held: Asking,
    round: Round,
    /// All slots whose owners share the port.
    slots: Vec<u8>,
    /// Those of them that are waited for and have not answered. Who was silent in the last round is
    /// stopped.
    awaited: Vec<u8>,
    /// What the kernel's program says.
    routes: Routes,
    /// The round before.
    last: Round,
    began: Time,
    look_at: Time,
}

impl Steering {
    /// For a process that does not share the port yet.
    pub(crate) fn new(shared: Arc<SharedFile>, slot: u8) -> Self {
        Self {
            shared,
            slot,
            state: State::Quiet,
            pause: PAUSE_MIN,
            ended: Time::ZERO,
        }
    }

    /// The process shares the port from now on.
    pub(crate) fn joined(&mut self, now: Time) {
        self.state = State::Due {
            reason: Reason::Joined,
            since: now,
            at: now,
        };
    }

    /// A process listens that did not before. If probes are under way, the kernel is told with their result.
    pub(crate) fn listens(&mut self, now: Time) {
        if matches!(self.state, State::Quiet) {
            self.state = State::Due {
                reason: Reason::Listens,
                since: now,
                at: now,
            };
        }
    }

    /// Whether packets come straight to the process that they are for, as far as possible.
    ///
    /// Not only those for this process: what it sends to another one by a detour is overtaken by what
    /// it sends after the kernel knows the way, and UC takes an order that is broken for a loss.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state, State::Quiet | State::Refused)
    }

    /// When [`Self::run`] wants to be called.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Quiet | State::Refused => None,
            State::Due { at, .. } => Some(*at),
            State::Waiting(waiting) => Some(waiting.look_at),
        }
    }

    /// A packet for another process has come to this one.
    #[cold]
    pub(crate) fn missed(&mut self, slot: u8, now: Time) {
        let rests = now.since(self.ended) < self.pause;
        if matches!(self.state, State::Quiet) && !rests && self.shared.shares_port(slot) {
            self.state = State::Due {
                reason: Reason::Missed,
                since: now,
                at: now,
            };
        }
    }

    /// Takes what may be a probe, which came from the device's own port or from another one, to this
    /// process's own socket or to one whose place it keeps. False if it is none.
    ///
    /// Who is busy may read a probe only after its round is over, when it says nothing any more.
    #[cold]
    pub(crate) fn take(&self, bytes: &[u8], from_own_port: bool, to_own_socket: bool) -> bool {
        let Ok([PROBE, index, _, _, rest @ ..]) = <&[u8; PROBE_LEN]>::try_from(bytes) else {
            return false;
        };
        let [a, b, c, d, nonce @ ..] = *rest;
        let round = u32::from_ne_bytes([a, b, c, d]);
        let nonce = u64::from_ne_bytes(nonce);
        if from_own_port && to_own_socket {
            self.shared.note_probe(self.slot, round, nonce, *index);
        }
        from_own_port
    }

    /// Does what is due.
    #[cold]
    pub(crate) fn run(&mut self, now: Time, socket: &Socket) {
        self.state = match std::mem::replace(&mut self.state, State::Quiet) {
            State::Due { reason, since, .. } => self.begin(reason, since, now, socket),
            State::Waiting(waiting) => self.look(waiting, now, socket),
            state => state,
        };
    }

    fn begin(&self, reason: Reason, since: Time, now: Time, socket: &Socket) -> State {
        let (began, ended) = self.shared.last_times();
        let served = match reason {
            Reason::Joined | Reason::Listens => began > since,
            Reason::Missed => ended > since,
        };
        let Ok(mut slots) = self.shared.other_slots(&[Presence::In]) else {
            return State::Refused;
        };
        if served || slots.is_empty() {
            return State::Quiet;
        }
        let Some(held) = self.shared.asking(self.slot, now) else {
            let at = now.after(TRY_AGAIN);
            return State::Due { reason, since, at };
        };
        slots.push(self.slot);
        // A program that lets probes pass, and else the one before.
        let last = self.shared.last_round();
        let places = self.shared.places(&slots);
        let routes = self.routes(&places, &[last]);
        if socket.steer(&routes).is_err() {
            return State::Refused;
        }
        if matches!(reason, Reason::Listens) {
            return State::Quiet;
        }
        let mut awaited = slots.clone();
        awaited.retain(|slot| !self.shared.is_silent(*slot) || *slot == self.slot);
        let nonce = RandomState::new().hash_one(now.as_picos());
        let round = self.shared.begin_round(&held, nonce);
        let known = places.iter().map(|place| usize::from(place.index) + 1);
        let sockets = known.max().unwrap_or(0).max(slots.len());
        for index in (0..=u8::MAX).take(sockets + SPARE_PROBES) {
            // A process that does not get its probe does not answer.
            let _ = socket.send(socket.address(), 0, &probe(index, round, nonce), 0);
        }
        State::Waiting(Waiting {
            held,
            round,
            slots,
            awaited,
            routes,
            last,
            began: now,
            look_at: now.after(LOOK),
        })
    }

    /// What follows from places. Processes that answered in the first of the `rounds` in which one
    /// did take what is for others; in doubt an index is that of the first.
    fn routes(&self, places: &[Place], rounds: &[Round]) -> Routes {
        let newest = |index: u8| {
            let same = places.iter().filter(move |place| place.index == index);
            same.min_by_key(|place| {
                let nth = rounds.iter().position(|round| *round == place.round);
                nth.unwrap_or(rounds.len())
            })
        };
        // A stopped process keeps its index, unless another one has it now.
        let valid = |place: &&Place| newest(place.index) == Some(*place);
        let slots = places.iter().filter(valid);
        let slots: Vec<(u8, u8)> = slots.map(|place| (place.slot, place.index)).collect();
        let spread = |round: &Round| {
            let answered = places.iter().filter(valid);
            let answered = answered.filter(|place| place.round == *round);
            answered.map(|place| place.index).collect::<Vec<_>>()
        };
        let spread = rounds
            .iter()
            .map(spread)
            .find(|sockets| !sockets.is_empty());
        let index = |owner: u8| slots.iter().find(|(slot, _)| *slot == owner);
        let services = self.shared.listeners();
        let services = services.filter_map(|(service, owner)| Some((service, index(owner)?.1)));
        Routes {
            services: services.collect(),
            spread: spread.unwrap_or_default(),
            slots,
        }
    }

    fn look(&mut self, mut waiting: Waiting, now: Time, socket: &Socket) -> State {
        if !waiting.held.is_held() {
            // This process was stopped, and another one has found out meanwhile.
            return State::Quiet;
        }
        let round = waiting.round;
        let places = self.shared.places(&waiting.slots);
        let answered = |slot: &u8| {
            let mut places = places.iter();
            places.any(|place| place.slot == *slot && place.round == round)
        };
        waiting.awaited.retain(|slot| !answered(slot));
        let waited = now.since(waiting.began);
        let is_over = waiting.awaited.is_empty() || waited >= ROUND;
        let routes = match is_over {
            true => self.routes(&places, &[round]),
            // Who has not answered yet may just be busy.
            false => self.routes(&places, &[round, waiting.last]),
        };
        if routes != waiting.routes {
            if socket.steer(&routes).is_err() {
                return State::Refused;
            }
            waiting.routes = routes;
        }
        if !is_over {
            let end = waiting.began.after(ROUND);
            waiting.look_at = now.after(waited).min(end);
            return State::Waiting(waiting);
        }
        for slot in &waiting.awaited {
            self.shared.note_silence(&waiting.held, *slot);
        }
        self.shared.end_round(&waiting.held, waiting.began, now);
        self.pause = match now.since(self.ended) < PEACE {
            true => PAUSE_MAX.min(self.pause * 2),
            false => PAUSE_MIN,
        };
        self.ended = now;
        State::Quiet
    }
}

fn probe(index: u8, round: Round, nonce: u64) -> [u8; PROBE_LEN] {
    let mut bytes = [0; PROBE_LEN];
    (bytes[0], bytes[1]) = (PROBE, index);
    bytes[4..8].copy_from_slice(&round.number().to_ne_bytes());
    bytes[8..].copy_from_slice(&nonce.to_ne_bytes());
    bytes
}
