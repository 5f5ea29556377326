use ferroce_dcqcn::Rate;
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, ReactionPoint};
use ferroce_transport::Time;

/// A queue pair whose turn has not come sleeps this much longer, so that then a batch leaves and
/// not a single packet: at 10 Gb/s a wake-up for each would take a core.
const TICK_NS: u64 = 50_000;
/// A sleeper that wakes up late makes up for as much as this. More would be a burst into the very
/// queue that the rate is to spare.
const CREDIT_NS: u64 = 10 * TICK_NS;
/// A queue pair keeps in flight what it may send in this time. Of that a quarter passes between two
/// requests for an acknowledgement, which must be less than the shortest timeouts, 8 ms.
const WINDOWS_PER_SECOND: u64 = 50;

/// The rate limiter of one queue pair: when its next packet may leave.
///
/// A virtual clock: each packet moves the time of the next one by how long it takes at the rate.
#[derive(Debug)]
pub(crate) struct Limiter {
    rp: NvidiaRp,
    /// When the next packet's turn is, ns, and picoseconds on top.
    due_ns: u64,
    due_ps: u64,
    /// Until when the queue pair sleeps.
    wait_until: Option<Time>,
}

impl Limiter {
    /// That of a flow that has just got its first CNP.
    pub(crate) fn new(config: &NvidiaConfig, now: Time) -> Self {
        let mut limiter = Self {
            rp: NvidiaRp::new(config),
            due_ns: now.as_nanos(),
            due_ps: 0,
            wait_until: None,
        };
        limiter.on_cnp(config, now);
        limiter
    }

    pub(crate) fn on_cnp(&mut self, config: &NvidiaConfig, now: Time) {
        self.rp.on_cnp(config, now.as_nanos());
    }

    /// The reaction point behind it.
    pub(crate) fn reaction(&self) -> NvidiaRp {
        self.rp
    }

    /// Whether there is still a limit, as of the last call.
    pub(crate) fn is_limited(&self) -> bool {
        self.rp.is_limited()
    }

    /// The rate in force.
    pub(crate) fn rate(&mut self, config: &NvidiaConfig, now: Time) -> Rate {
        self.rp.rate(config, now.as_nanos())
    }

    /// Bytes that may be in flight.
    pub(crate) fn window_bytes(&mut self, config: &NvidiaConfig, now: Time) -> u64 {
        self.rate(config, now).bps() / 8 / WINDOWS_PER_SECOND
    }

    /// Until when the queue pair sleeps, if it does.
    pub(crate) fn wait_until(&self) -> Option<Time> {
        self.wait_until
    }

    /// Ends a sleep whose time has come; tells whether it was one.
    pub(crate) fn wake(&mut self, now: Time) -> bool {
        let is_over = self.wait_until.is_some_and(|until| until <= now);
        if is_over {
            self.wait_until = None;
        }
        is_over
    }

    /// Whether a packet may leave now. If not, the queue pair sleeps until its turn.
    pub(crate) fn admits(&mut self, now: Time) -> bool {
        self.wake(now);
        if self.wait_until.is_none() && self.due_ns > now.as_nanos() {
            self.wait_until = Some(Time::from_nanos(self.due_ns).after(TICK_NS));
        }
        self.wait_until.is_none()
    }

    /// A packet of `bytes` has left.
    pub(crate) fn on_sent(&mut self, config: &NvidiaConfig, now: Time, bytes: u32) {
        let now_ns = now.as_nanos();
        self.rp.on_bytes_sent(config, now_ns, bytes);
        let earliest_ns = now_ns.saturating_sub(CREDIT_NS);
        if self.due_ns < earliest_ns {
            (self.due_ns, self.due_ps) = (earliest_ns, 0);
        }
        let took_ps = self.rp.rate(config, now_ns).transmission_ps(bytes);
        let due_ps = self.due_ps.saturating_add(took_ps);
        self.due_ns = self.due_ns.saturating_add(due_ps / 1_000);
        self.due_ps = due_ps % 1_000;
    }
}
