//! Two devices that one thread drives.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::Device;
use crate::engine::{Engine, Transmitted};
use crate::wait::{Clock, Waiter, thread_cpu_ns, tighten_timer_slack};

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
    slept_ns: u64,
    /// When it was made, by the clock and by the thread's processor time.
    made_ns: (u64, u64),
}

/// What became of a thread's time.
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
    /// When the process has no file descriptor left.
    pub fn new(devices: [&'a Device; 2]) -> io::Result<Self> {
        // Without it timers are up to 50 us late.
        let _ = tighten_timer_slack();
        Ok(Self {
            devices,
            waiter: Waiter::new()?,
            slept_ns: 0,
            made_ns: (Clock.now_ns(), thread_cpu_ns()),
        })
    }

    /// What became of the time since it was made, if it stayed on one thread.
    pub fn spent(&self) -> Spent {
        let (made_ns, cpu_ns) = self.made_ns;
        let slept = Duration::from_nanos(self.slept_ns);
        let worked = Duration::from_nanos(thread_cpu_ns().saturating_sub(cpu_ns));
        let all = Duration::from_nanos(Clock.now_ns().saturating_sub(made_ns));
        Spent {
            slept,
            worked,
            stalled: all.saturating_sub(slept).saturating_sub(worked),
        }
    }

    /// Drives both until something has happened at one of them or `limit` has passed; sleeps while
    /// there is nothing to do.
    pub fn drive(&mut self, limit: Duration) {
        let started = Clock.now_ns();
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        loop {
            let [a, b] = self.devices;
            let deadline_ns = match round([a, b]) {
                Round::Busy => return,
                Round::Idle { deadline_ns } => deadline_ns,
            };
            let now = Clock.now_ns();
            let end = started.saturating_add(limit_ns);
            if now >= end {
                return;
            }
            let until = deadline_ns.map_or(end, |deadline| deadline.min(end));
            let left = Duration::from_nanos(until.saturating_sub(now));
            let other = [Some(b.shared.socket.as_fd()), None];
            // It can fail for want of memory only; then it looks again at once.
            let _ = self
                .waiter
                .wait_also(&a.shared.socket, other, Some(left), false);
            // Beyond that it was ready to go on.
            self.slept_ns += Clock.now_ns().min(until).saturating_sub(now);
        }
    }
}

/// What one round has brought.
enum Round {
    /// Something has happened.
    Busy,
    /// Nothing has, and nothing will before this time unless a packet arrives.
    Idle { deadline_ns: Option<u64> },
}

fn round(devices: [&Device; 2]) -> Round {
    let mut engines = devices.map(|device| device.shared.lock());
    // A deadline that passes from here on comes up in the next round.
    let now = Engine::now();
    let mut is_busy = false;
    // A request that lay in one socket is answered in the first pass, and the answer taken in the
    // second one at the latest.
    for _ in 0..2 {
        let mut packets = 0;
        for (device, engine) in devices.iter().zip(&mut engines) {
            packets += engine.receive_all(&device.shared.socket);
            is_busy |= send(device, engine);
        }
        is_busy |= packets > 0;
        if packets == 0 {
            break;
        }
    }
    for (device, engine) in devices.iter().zip(&mut engines) {
        if engine.is_due(now) {
            engine.expire(now, &device.shared.socket);
            send(device, engine);
            is_busy = true;
        }
        device.shared.publish(engine);
    }
    if is_busy {
        return Round::Busy;
    }
    let deadlines = engines.iter().filter_map(|engine| engine.poll_timeout());
    Round::Idle {
        deadline_ns: deadlines.min().map(|at| Clock.nanos_at(at)),
    }
}

/// Sends what a device has; tells whether there is more.
fn send(device: &Device, engine: &mut Engine) -> bool {
    engine.transmit(&device.shared.socket) != Transmitted::All
}
