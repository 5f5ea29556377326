//! Two devices driven by one thread.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use ferroce_device::{Span, Time};
use ferroce_driver::{Both, drive_both};
use ferroce_os::{Clock, Waiter, thread_cpu_ns, tighten_timer_slack};

use super::Device;

/// Two devices of one program that talk to each other, driven by one thread of it.
///
/// With a thread at each end, one that gets no processor looks like a lost packet to the other one.
/// Here no timer of either runs out before both have taken and answered what had arrived when it was
/// due; so on a busy machine everything takes longer, and nothing is sent again for that. The
/// devices are best opened without their helper threads, see [`DeviceConfig::helper`].
///
/// [`DeviceConfig::helper`]: super::DeviceConfig::helper
#[derive(Debug)]
pub struct Tandem<'a> {
    devices: [&'a Device; 2],
    waiter: Waiter,
    slept: Span,
    /// When it was made, by the clock and by the thread's processor time in nanoseconds.
    made: (Time, u64),
}

/// How a thread's time was spent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// Nothing was to be done.
    pub slept: Duration,
    /// It had a processor.
    pub worked: Duration,
    /// It wanted one and had none.
    pub stalled: Duration,
}

impl<'a> Tandem<'a> {
    /// Drives these two.
    ///
    /// # Errors
    /// Returns an error when the process has no file descriptor left.
    pub fn new(devices: [&'a Device; 2]) -> io::Result<Self> {
        // Without it timers are up to 50 us late.
        let _ = tighten_timer_slack();
        Ok(Self {
            devices,
            waiter: Waiter::new()?,
            slept: Span::ZERO,
            made: (Clock.now(), thread_cpu_ns()),
        })
    }

    /// How the time since it was made was spent, if it stayed on one thread.
    pub fn spent(&self) -> Spent {
        let (made, cpu_ns) = self.made;
        let slept = Duration::from(self.slept);
        let worked = Duration::from_nanos(thread_cpu_ns().saturating_sub(cpu_ns));
        let all = Duration::from(Clock.now().since(made));
        Spent {
            slept,
            worked,
            stalled: all.saturating_sub(slept).saturating_sub(worked),
        }
    }

    /// Drives both until something has happened at one of them or `limit` has passed; sleeps while
    /// there is nothing to do.
    pub fn drive(&mut self, limit: Duration) {
        let end = Clock.now().after(limit.into());
        loop {
            let [a, b] = self.devices;
            let deadline = match round([a, b]) {
                Both::Busy => return,
                Both::Idle(deadline) => deadline,
            };
            let now = Clock.now();
            if now >= end {
                return;
            }
            let until = deadline.map_or(end, |deadline| deadline.min(end));
            let left = until.since(now).into();
            let other = [Some(b.shared.first.socket.as_fd()), None, None];
            // It can fail for lack of memory only; then it looks again at once.
            let _ = self
                .waiter
                .wait_also(&a.shared.first.socket, other, Some(left), false);
            // Beyond that it was ready to go on.
            self.slept += Clock.now().min(until).since(now);
        }
    }
}

fn round(devices: [&Device; 2]) -> Both {
    let mut engines = devices.map(|device| device.shared.lock());
    let both = drive_both(engines.each_mut().map(|engine| &mut **engine));
    for (device, engine) in devices.iter().zip(&mut engines) {
        device.shared.publish(engine);
    }
    both
}
