//! Packets that the kernel dropped because a buffer was full.

use ferroce_device::{Span, Time};

use crate::socket::Socket;

/// How long after an arrival the kernel is asked what it has dropped.
const PAUSE: Span = Span::from_millis(100);

/// What the kernel has dropped because the socket's receive buffer was full. It is asked now and then
/// while packets arrive, and once more after that.
#[derive(Debug, Default)]
pub struct Overflow {
    /// What is known already.
    known: u32,
    look_at: Option<Time>,
}

impl Overflow {
    /// Packets have arrived.
    #[inline]
    pub fn note_arrival(&mut self, now: Time) {
        if self.look_at.is_none() {
            self.look_at = Some(now.after(PAUSE));
        }
    }

    /// When the kernel is to be asked.
    #[inline]
    pub fn look_at(&self) -> Option<Time> {
        self.look_at
    }

    /// Asks it if it is time; returns how many packets it has dropped since the last answer.
    pub fn look(&mut self, now: Time, socket: &Socket) -> u32 {
        if self.look_at.is_none_or(|at| at > now) {
            return 0;
        }
        self.look_at = None;
        let Ok(drops) = socket.receive_drops() else {
            return 0;
        };
        drops.saturating_sub(std::mem::replace(&mut self.known, drops))
    }
}
