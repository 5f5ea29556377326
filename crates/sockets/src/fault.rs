//! Errors on the sending path, each reported once.

use std::io;
use std::net::IpAddr;

use ferroce_device::{Event, Refusal};

use crate::socket::SendError;

/// Faults told before the rest are only counted: a device with that many has one cause.
const TOLD_MAX: usize = 64;

/// What is wrong with the way out. Each fault is told once, or a queue pair that repeats its
/// packets would tell it thousands of times.
#[derive(Debug, Default)]
pub struct Faults {
    told: Vec<Event>,
    /// How many of those [`Self::poll`] has handed out.
    polled: usize,
}

impl Faults {
    /// Notes why packets to `dest` did not leave, unless it may pass by itself.
    #[cold]
    pub fn refused(&mut self, dest: IpAddr, error: &SendError) {
        let reason = match error {
            SendError::WouldBlock => return,
            SendError::PathMtu { bytes } => Refusal::PathMtu { bytes: *bytes },
            SendError::Lost(error) => match error.raw_os_error() {
                // A full queue on the way, as switches have them.
                None | Some(libc::ENOBUFS | libc::ENOMEM) => return,
                Some(errno) => Refusal::Os { errno },
            },
            SendError::Unsendable { .. } => {
                let errno = libc::EAFNOSUPPORT;
                Refusal::Os { errno }
            }
            SendError::Fatal(_) => return self.fatal(),
        };
        self.tell(Event::SendRefused { dest, reason });
    }

    /// Notes that the host is not in a group that it should be in.
    #[cold]
    pub fn not_joined(&mut self, group: IpAddr, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let reason = Refusal::Os { errno };
        self.tell(Event::GroupRefused { group, reason });
    }

    /// Notes that the kernel has dropped packets that had arrived.
    #[cold]
    pub fn overflowed(&mut self) {
        self.tell(Event::ReceiveOverflow);
    }

    /// Notes that the socket is gone permanently.
    #[cold]
    pub fn fatal(&mut self) {
        self.tell(Event::DeviceFatal);
    }

    /// Notes that the user has removed the device.
    #[cold]
    pub fn removed(&mut self) {
        self.tell(Event::DeviceRemoved);
    }

    fn tell(&mut self, event: Event) {
        if self.told.len() < TOLD_MAX && !self.told.contains(&event) {
            self.told.push(event);
        }
    }

    /// The next fault to tell.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        let event = *self.told.get(self.polled)?;
        self.polled += 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(errno: i32) -> SendError {
        SendError::Lost(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn each_fault_is_told_once() {
        let mut faults = Faults::default();
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for _ in 0..3 {
            faults.refused(a, &SendError::PathMtu { bytes: 4112 });
            faults.refused(b, &os(libc::EHOSTUNREACH));
        }
        let reason = Refusal::PathMtu { bytes: 4112 };
        assert_eq!(faults.poll(), Some(Event::SendRefused { dest: a, reason }));
        let errno = libc::EHOSTUNREACH;
        let reason = Refusal::Os { errno };
        assert_eq!(faults.poll(), Some(Event::SendRefused { dest: b, reason }));
        assert_eq!(faults.poll(), None);
        faults.refused(
            a,
            &SendError::Fatal(io::Error::from_raw_os_error(libc::EBADF)),
        );
        faults.fatal();
        assert_eq!(faults.poll(), Some(Event::DeviceFatal));
        assert_eq!(faults.poll(), None);
    }

    #[test]
    fn errors_that_may_pass_are_not_reported() {
        let mut faults = Faults::default();
        faults.refused([10, 0, 0, 1].into(), &os(libc::ENOBUFS));
        faults.refused([10, 0, 0, 1].into(), &SendError::WouldBlock);
        assert_eq!(faults.poll(), None);
    }

    #[test]
    fn a_thousand_strangers_fill_no_memory() {
        let mut faults = Faults::default();
        for n in 0..1000_u32 {
            faults.refused(IpAddr::V4(n.into()), &os(libc::ENETUNREACH));
        }
        assert_eq!(std::iter::from_fn(|| faults.poll()).count(), TOLD_MAX);
    }
}
