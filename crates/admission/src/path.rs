//! How much the path to a peer, and the peer itself, can take at a time.

use ferroce_device::Signal;
use ferroce_transport::{Mtu, Span, Time};

use crate::room::unit;

/// The initial window of a path.
const START_BYTES: u64 = 32 << 10;
/// Neither losses nor delays shrink the window below this.
const FLOOR_BYTES: u64 = 16 << 10;
/// A queueing delay that keeps a path of any length busy, and half of the shortest timeout. A
/// longer delay is too much.
const QUEUE: Span = Span::from_millis(2);
/// Share of the packets that may be retransmitted unnecessarily: one in this number,
const SPURIOUS_SHARE: u64 = 64;
/// and this number in advance: when both machines are busy with other work, many timers expire at
/// once, whatever the window is.
const SPURIOUS_AHEAD: u64 = 16;
/// After this number of consecutive late answers, each to a packet that was sent after the previous
/// one had arrived, the queue is persistent. A single late round may be a stall.
const LATE_MAX: u8 = 2;
/// How long the shortest round trip is remembered: between one and two of these.
const MEMORY: Span = Span::from_secs(10);

/// How much a device keeps on the wire to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Window {
    /// As much as the peer is observed to accept.
    #[default]
    Auto,
    /// A fixed number of bytes, counted as a receive buffer counts them, whatever the peer accepts.
    Fixed(u32),
}

/// By how much a window grows at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    /// Neither late answers nor a loss so far.
    Double,
    /// Answers were late.
    Quarter,
    /// A packet was lost. If the loss was random, each further one costs a window, because all that
    /// is on the wire behind the lost packet is sent again. With a loss of 1 %, a growth of an
    /// eighth balances at a window of 30 packets, and a growth of a quarter at 60.
    Eighth,
}

impl Growth {
    fn of(self, bytes: u64) -> u64 {
        match self {
            Self::Double => bytes,
            Self::Quarter => bytes / 4,
            Self::Eighth => bytes / 8,
        }
    }
}

/// The window of one path.
///
/// It grows when an answer comes quickly: it doubles each round trip until the first late answer or
/// loss, then grows by a quarter, or after a loss by an eighth. It shrinks when the peer misses a
/// packet, because its buffer may be full; and when answers are late for consecutive rounds, or
/// more packets are retransmitted unnecessarily than [`SPURIOUS_SHARE`] allows, because there may
/// be a queue in front of a slow peer. One round of late answers does not shrink it: threads, and
/// whole machines, stall for longer than timers run, however little is on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathWindow {
    bytes: u64,
    max: u64,
    is_fixed: bool,
    /// How fast it grows.
    growth: Growth,
    /// More than half of it was in use since it last changed.
    is_used: bool,
    /// When it last changed. Packets that were sent before say nothing about it.
    changed: Time,
    /// Bytes that were retransmitted unnecessarily, less the amount that is allowed.
    debt: u64,
    /// Consecutive late answers, each to a packet that was sent after the previous one had arrived.
    late: u8,
    /// When the last of them came.
    late_at: Time,
    /// The last round trip.
    rtt: Option<Span>,
    /// The shortest one in the current interval of time and in the one before.
    shortest: [Span; 2],
    stretch: Time,
}

impl PathWindow {
    /// The window of a path that has not been measured. It can grow to `max` bytes.
    pub(crate) fn new(window: Window, max: u64, now: Time) -> Self {
        let (bytes, max, is_fixed) = match window {
            Window::Auto => (START_BYTES.min(max), max, false),
            Window::Fixed(bytes) => (bytes.into(), bytes.into(), true),
        };
        Self {
            bytes,
            max,
            is_fixed,
            growth: Growth::Double,
            is_used: false,
            changed: now,
            debt: 0,
            late: 0,
            late_at: now,
            rtt: None,
            shortest: [Span::NEVER; 2],
            stretch: now,
        }
    }

    /// Bytes that may be on the wire.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The largest size that it can grow to.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The last round trip.
    pub(crate) fn rtt(&self) -> Option<Span> {
        self.rtt
    }

    /// A queue pair has sent; `used` bytes are on the wire now.
    pub(crate) fn note_use(&mut self, used: u64) {
        self.is_used |= used > self.bytes / 2;
    }

    /// `bytes` that were on the wire have been acknowledged.
    #[inline]
    pub(crate) fn note_return(&mut self, bytes: u64) {
        self.debt = self.debt.saturating_sub(bytes / SPURIOUS_SHARE);
    }

    /// A queue pair whose packets are of this size has learned something.
    pub(crate) fn signal(&mut self, now: Time, signal: Signal, mtu: Mtu) {
        match signal {
            Signal::RoundTrip { rtt, wait } => {
                self.remember(now, rtt);
                if !self.is_fixed {
                    self.signal_round_trip(now, rtt, wait);
                }
            }
            Signal::Loss { waited: None } if !self.is_fixed => self.signal_loss(now),
            Signal::Spurious if !self.is_fixed => self.signal_spurious(now, mtu),
            // A timeout alone proves nothing. Until more is known, only a single packet is sent.
            Signal::Answer | Signal::Spurious | Signal::Loss { .. } => {}
        }
    }

    fn signal_round_trip(&mut self, now: Time, rtt: Span, wait: Option<Span>) {
        if self.changed.after(rtt) > now {
            return; // about the window before
        }
        let wait = wait.unwrap_or(Span::NEVER);
        let is_short = rtt / 2 <= self.shortest[0].min(self.shortest[1]);
        if rtt > wait / 2 && !is_short {
            return self.signal_late(now, rtt);
        }
        self.late = 0;
        let is_quick = rtt <= (wait / 4).min(QUEUE) || is_short;
        if is_quick && self.is_used && self.debt == 0 && self.bytes < self.max {
            let more = self.growth.of(self.bytes);
            self.set(now, (self.bytes + more).min(self.max));
        }
    }

    /// Shrinks the window once for all packets that were on the wire.
    fn signal_loss(&mut self, now: Time) {
        if now >= self.changed.after(self.rtt.unwrap_or_default()) {
            self.shrink(now, self.bytes * 7 / 10, Growth::Eighth);
        }
    }

    /// A stall makes one round of answers late; a persistent queue makes all of them late.
    fn signal_late(&mut self, now: Time, rtt: Span) {
        if self.late_at.after(rtt) > now {
            return; // of the same round
        }
        self.late += 1;
        self.late_at = now;
        if self.late >= LATE_MAX {
            self.shrink(now, self.bytes * 7 / 10, Growth::Quarter);
        }
    }

    fn signal_spurious(&mut self, now: Time, mtu: Mtu) {
        // The answer took longer than the timer; how much longer is unknown.
        self.signal_late(now, self.rtt.unwrap_or(QUEUE).max(QUEUE));
        self.debt += unit(mtu);
        if self.debt > SPURIOUS_AHEAD * unit(mtu) {
            self.debt = 0;
            self.shrink(now, self.bytes / 2, Growth::Quarter);
        }
    }

    fn remember(&mut self, now: Time, rtt: Span) {
        if now >= self.stretch.after(MEMORY) {
            self.stretch = now;
            self.shortest = [Span::NEVER, self.shortest[0]];
        }
        self.shortest[0] = self.shortest[0].min(rtt);
        self.rtt = Some(rtt);
    }

    fn shrink(&mut self, now: Time, bytes: u64, growth: Growth) {
        let floor = FLOOR_BYTES.min(self.bytes);
        self.growth = growth;
        self.set(now, bytes.max(floor));
    }

    fn set(&mut self, now: Time, bytes: u64) {
        self.bytes = bytes;
        self.changed = now;
        self.is_used = false;
        self.late = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 2 << 20;
    const WAIT: Span = Span::from_nanos(4_194_304);

    struct Path {
        window: PathWindow,
        now: Time,
    }

    impl Path {
        fn new() -> Self {
            Self {
                window: PathWindow::new(Window::Auto, MAX, Time::ZERO),
                now: Time::ZERO,
            }
        }

        /// A busy round trip.
        fn round(&mut self, rtt_ns: u64) -> u64 {
            let rtt = Span::from_nanos(rtt_ns);
            self.now = self.now.after(rtt);
            self.window.note_use(MAX);
            let signal = Signal::RoundTrip {
                rtt,
                wait: Some(WAIT),
            };
            self.signal(signal)
        }

        fn signal(&mut self, signal: Signal) -> u64 {
            self.window.signal(self.now, signal, Mtu::Mtu1024);
            self.window.bytes()
        }

        fn loss(&mut self) -> u64 {
            self.signal(Signal::Loss { waited: None })
        }

        fn timeout(&mut self) -> u64 {
            self.now = self.now.after(WAIT);
            self.signal(Signal::Loss { waited: Some(WAIT) })
        }

        fn grown() -> Self {
            let mut path = Self::new();
            while path.round(50_000) < MAX {}
            path
        }
    }

    #[test]
    fn a_quick_path_gets_all_there_is_within_a_few_round_trips() {
        let path = Path::grown();
        assert!(path.now <= Time::from_nanos(6 * 50_000), "{:?}", path.now);
    }

    #[test]
    fn a_window_that_nobody_uses_stays_as_it_is() {
        let mut path = Path::new();
        for _ in 0..100 {
            path.now = path.now.after(Span::from_micros(50));
            let signal = Signal::RoundTrip {
                rtt: Span::from_micros(50),
                wait: None,
            };
            path.signal(signal);
        }
        assert_eq!(path.window.bytes(), START_BYTES);
    }

    #[test]
    fn a_long_way_is_no_queue() {
        let mut path = Path::new();
        while path.round(1_500_000) < MAX {}
        assert!(path.now <= Time::from_nanos(6 * 1_500_000));
    }

    /// The round-trip time of the path is almost the timeout.
    #[test]
    fn a_long_way_is_never_late() {
        let mut path = Path::new();
        for _ in 0..100 {
            assert!(path.round(4_000_000) >= START_BYTES);
        }
        assert_eq!(path.window.bytes(), MAX);
    }

    /// Threads and machines stall for longer than timers run.
    #[test]
    fn a_stall_changes_nothing() {
        let mut path = Path::grown();
        for _ in 0..20 {
            assert_eq!(path.round(10_000_000), MAX);
            path.round(50_000);
        }
    }

    #[test]
    fn a_queue_that_stays_shrinks_it() {
        let mut path = Path::grown();
        path.round(3_000_000);
        assert_eq!(path.round(3_000_000), MAX * 7 / 10);
        for _ in 0..100 {
            path.round(3_000_000);
        }
        assert_eq!(path.window.bytes(), FLOOR_BYTES);
    }

    #[test]
    fn many_spurious_repeats_shrink_the_window() {
        let mut path = Path::grown();
        assert_eq!(path.timeout(), MAX);
        for _ in 0..SPURIOUS_AHEAD {
            assert_eq!(path.signal(Signal::Spurious), MAX);
        }
        assert_eq!(path.signal(Signal::Spurious), MAX / 2);
        for _ in 0..10_000 {
            path.signal(Signal::Spurious);
        }
        assert_eq!(path.window.bytes(), FLOOR_BYTES);
    }

    #[test]
    fn a_little_of_that_only_keeps_it_from_growing() {
        let mut path = Path::new();
        let packet = unit(Mtu::Mtu1024);
        for _ in 0..100 {
            path.signal(Signal::Spurious);
            path.window.note_return(packet * (SPURIOUS_SHARE - 1));
            assert_eq!(path.round(50_000), START_BYTES);
            path.window.note_return(packet);
        }
        assert_eq!(path.round(50_000), 2 * START_BYTES);
    }

    #[test]
    fn a_loss_counts_once_for_all_that_was_on_the_wire() {
        let mut path = Path::grown();
        path.now = path.now.after(Span::from_micros(50));
        let less = path.loss();
        assert_eq!(less, MAX * 7 / 10);
        assert_eq!(path.loss(), less);
        path.now = path.now.after(Span::from_micros(50));
        assert_eq!(path.loss(), less * 7 / 10);
        for _ in 0..100 {
            path.now = path.now.after(Span::from_micros(50));
            path.loss();
        }
        assert_eq!(path.window.bytes(), FLOOR_BYTES);
        assert_eq!(path.round(50_000), FLOOR_BYTES + FLOOR_BYTES / 8);
    }

    /// Packets of 1024 bytes, one of 100 of them lost by chance: the window settles where what a loss
    /// repeats is a third of the traffic.
    #[test]
    fn chance_losses_leave_a_window_of_some_thirty_packets() {
        let mut path = Path::new();
        let (mut sent, mut lost, mut sum) = (0, 0, 0);
        for _ in 0..2000 {
            sent += path.round(500_000) / unit(Mtu::Mtu1024);
            if sent / 100 > lost {
                lost = sent / 100;
                path.now = path.now.after(Span::from_micros(500));
                path.loss();
            }
            sum += path.window.bytes() / unit(Mtu::Mtu1024);
        }
        let mean = sum / 2000;
        assert!((20..45).contains(&mean), "{mean}");
    }

    #[test]
    fn a_fixed_window_stays() {
        let fixed = Window::Fixed(100_000);
        let mut path = Path::new();
        path.window = PathWindow::new(fixed, MAX, Time::ZERO);
        path.round(50_000);
        path.now = path.now.after(Span::from_micros(50));
        path.loss();
        path.timeout();
        assert_eq!(path.window.bytes(), 100_000);
        assert_eq!(path.window.rtt(), Some(Span::from_micros(50)));
    }
}
