//! Which process has which of the sockets that share the device's port, as they have found out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{SharedFile, byte};
use crate::sys;

/// A round of asking, never 0, which counts modulo 2^24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round(u32);

impl Round {
    const MASK: u32 = 0x00ff_ffff;

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    fn next(self) -> Self {
        Self((self.0 & Self::MASK) % Self::MASK + 1)
    }
}

/// Held until it is dropped: nobody else asks, or changes who gets which packet.
#[derive(Debug)]
pub(crate) struct Asking(Arc<SharedFile>);

impl Drop for Asking {
    fn drop(&mut self) {
        // If the kernel does not unlock, it does so when the file is closed.
        let _ = sys::unlock(&self.0.file, byte::PLACES);
    }
}

impl SharedFile {
    /// Lets this process ask; `None` while another one does.
    pub(crate) fn asking(self: &Arc<Self>) -> io::Result<Option<Asking>> {
        let locked = sys::lock(&self.file, byte::PLACES)?;
        Ok(locked.then(|| Asking(Arc::clone(self))))
    }

    /// Begins a round, whose probes carry `nonce`.
    pub(crate) fn begin_round(&self, _held: &Asking, nonce: u64) -> Round {
        let rounds = self.layout.rounds();
        let round = self.last_round().next();
        rounds.number.store(round.0, Ordering::Relaxed);
        rounds.nonce.store(nonce, Ordering::Relaxed);
        round
    }

    /// Notes that a round that began at `began_ns` is over.
    pub(crate) fn end_round(&self, _held: &Asking, began_ns: u64, now_ns: u64) {
        let rounds = self.layout.rounds();
        rounds.began_ns.store(began_ns, Ordering::Relaxed);
        rounds.ended_ns.store(now_ns, Ordering::Relaxed);
    }

    /// When the last finished round began and when it ended.
    pub(crate) fn last_times_ns(&self) -> (u64, u64) {
        let rounds = self.layout.rounds();
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        (load(&rounds.began_ns), load(&rounds.ended_ns))
    }

    pub(crate) fn last_round(&self) -> Round {
        Round(self.layout.rounds().number.load(Ordering::Relaxed))
    }

    /// Notes that a probe for socket `index` has come to the owner of `slot`, if it is one of the
    /// present round.
    ///
    /// The kernel hands a probe for a socket that is not there to any, so the lowest index counts:
    /// each socket gets its own.
    pub(crate) fn note_probe(&self, slot: u8, round: u32, nonce: u64, index: u8) {
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

    /// The index of the socket of each of some slots that is known since a round.
    pub(crate) fn places(&self, slots: &[u8], round: Round) -> Vec<(u8, u8)> {
        let place = |&slot: &u8| {
            let place = self.layout.member(slot).place().load(Ordering::Relaxed);
            (place >> 8 == round.0).then_some((slot, place as u8))
        };
        let mut places = Vec::new();
        if round.0 != 0 {
            places.extend(slots.iter().filter_map(place));
        }
        places
    }
}
