//! The known positions of processes among the sockets that share the device's port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_device::Time;
use ferroce_os::Clock;

use super::{Membership, SharedFile};

/// A round of asking, never 0, which counts modulo 2^24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round(u32);

impl Round {
    const MASK: u32 = 0x00ff_ffff;

    /// The number of the round.
    pub fn number(self) -> u32 {
        self.0
    }

    fn next(self) -> Self {
        Self((self.0 & Self::MASK) % Self::MASK + 1)
    }
}

/// Which socket a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The slot of the process.
    pub slot: u8,
    /// The socket's index.
    pub index: u8,
    /// When that came out.
    pub round: Round,
}

/// The value instead of an index and a round for a process that did not answer in time and has never
/// answered. No round has the number 0.
const SILENT: u32 = 1;

/// How long a process that asks keeps the others from it: ten times as long as a round takes. One that is
/// stopped meanwhile has lost its turn.
const TURN_US: u64 = 1_000_000;

/// Whether a turn has lasted too long. One that begins in the future is of before the machine was
/// started anew.
fn is_over(since_us: u64, now_us: u64) -> bool {
    now_us.wrapping_sub(since_us) >= TURN_US
}

/// While it is held, no other process asks, or changes which process gets which packet.
#[derive(Debug)]
pub struct Asking {
    shared: Arc<SharedFile>,
    turn: u64,
}

impl Asking {
    /// Whether it is still this process's turn.
    pub fn is_held(&self) -> bool {
        self.shared.layout.rounds().asking.load(Ordering::Relaxed) == self.turn
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let cell = &self.shared.layout.rounds().asking;
        let _ = cell.compare_exchange(self.turn, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl SharedFile {
    /// Lets the owner of a slot, which is this process, ask; `None` while another one does.
    pub fn asking(self: &Arc<Self>, slot: u8, now: Time) -> Option<Asking> {
        const SINCE: u64 = (1 << 56) - 1;
        let now_us = (Clock.nanos_at(now) / 1_000) & SINCE;
        let cell = &self.layout.rounds().asking;
        let old = cell.load(Ordering::Relaxed);
        let other = (old >> 56) as u8;
        let is_over = is_over(old & SINCE, now_us);
        let is_free = old == 0 || is_over || other != slot && !self.is_alive(other);
        let turn = u64::from(slot) << 56 | now_us;
        let take = || cell.compare_exchange(old, turn, Ordering::AcqRel, Ordering::Relaxed);
        (is_free && take().is_ok()).then(|| Asking {
            shared: Arc::clone(self),
            turn,
        })
    }

    /// Begins a round, whose probes carry `nonce`.
    pub fn begin_round(&self, _held: &Asking, nonce: u64) -> Round {
        let rounds = self.layout.rounds();
        let round = self.last_round().next();
        rounds.number.store(round.0, Ordering::Relaxed);
        rounds.nonce.store(nonce, Ordering::Relaxed);
        round
    }

    /// Notes that a round that began at `began` is over.
    pub fn end_round(&self, _held: &Asking, began: Time, now: Time) {
        let rounds = self.layout.rounds();
        let store = |cell: &AtomicU64, at| cell.store(Clock.nanos_at(at), Ordering::Relaxed);
        store(&rounds.began_ns, began);
        store(&rounds.ended_ns, now);
    }

    /// When the last finished round began and when it ended.
    pub fn last_times(&self) -> (Time, Time) {
        let rounds = self.layout.rounds();
        let load = |cell: &AtomicU64| Clock.time_at(cell.load(Ordering::Relaxed));
        (load(&rounds.began_ns), load(&rounds.ended_ns))
    }

    /// The last round that was begun.
    pub fn last_round(&self) -> Round {
        Round(self.layout.rounds().number.load(Ordering::Relaxed))
    }

    /// Notes that a probe for socket `index` has come to the owner of `slot`, if it is one of the
    /// present round.
    ///
    /// The kernel hands a probe for a socket that is not there to any, so the lowest index counts:
    /// each socket gets its own.
    pub fn note_probe(&self, slot: u8, round: u32, nonce: u64, index: u8) {
        if self.layout.rounds().nonce.load(Ordering::Relaxed) != nonce {
            return;
        }
        let place = self.layout.member(slot).place();
        let old = place.load(Ordering::Relaxed);
        let new = round << 8 | u32::from(index);
        if old >> 8 != round & Round::MASK || new < old {
            place.store(new, Ordering::Relaxed);
        }
    }

    /// Notes that the owner of a slot did not answer in time.
    pub fn note_silence(&self, _held: &Asking, slot: u8) {
        let place = self.layout.member(slot).place();
        // One that has answered before is known by its round.
        let _ = place.compare_exchange(0, SILENT, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the owner of a slot was asked and has not answered in the last round: it is stopped.
    pub fn is_silent(&self, slot: u8) -> bool {
        let place = self.layout.member(slot).place().load(Ordering::Relaxed);
        place == SILENT || place >> 8 != 0 && Round(place >> 8) != self.last_round()
    }

    /// The index of the socket of a slot, as it came out last.
    pub fn index(&self, slot: u8) -> Option<u8> {
        let places = self.places(&[slot]);
        places.first().map(|place| place.index)
    }

    /// Whether one of the processes in these slots has a place behind `index`, which another socket would
    /// take if that one went: or may have, for all that is known.
    pub fn is_place_needed(&self, _held: &Membership<'_>, index: Option<u8>, slots: &[u8]) -> bool {
        let places = self.places(slots);
        let is_before = |place: &Place| index.is_some_and(|index| place.index < index);
        places.len() < slots.len() || !places.iter().all(is_before)
    }

    /// Those of some slots whose owners have answered in the last round, and behind them those that have
    /// in the one before: the last one may have just begun.
    pub fn awake(&self, slots: &[u8]) -> Vec<u8> {
        let last = self.last_round();
        let mut places = self.places(slots);
        places.retain(|place| place.round == last || place.round.next() == last);
        places.sort_by_key(|place| (place.round != last, place.index));
        places.into_iter().map(|place| place.slot).collect()
    }

    /// The index of the socket of each of some slots, as it came out last, and in which round.
    pub fn places(&self, slots: &[u8]) -> Vec<Place> {
        let place = |&slot: &u8| {
            let place = self.layout.member(slot).place().load(Ordering::Relaxed);
            let round = Round(place >> 8);
            // It has come since the last one.
            (round.0 != 0).then_some(Place {
                slot,
                index: place as u8,
                round,
            })
        };
        slots.iter().filter_map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_round_comes_round_and_is_never_zero() {
        assert_eq!(Round(0).next(), Round(1));
        assert_eq!(Round(Round::MASK - 1).next(), Round(Round::MASK));
        assert_eq!(Round(Round::MASK).next(), Round(1));
        assert_eq!(
            Round(u32::MAX).next(),
            Round(1),
            "a file that says nonsense"
        );
    }

    #[test]
    fn a_turn_ends_whatever_the_clock_says() {
        assert!(!is_over(5, 5));
        assert!(!is_over(5, 5 + TURN_US - 1));
        assert!(is_over(5, 5 + TURN_US));
        assert!(is_over(u64::from(u32::MAX), 5), "of before a restart");
    }
}
