//! How much the way to a peer, and the peer itself, take at a time.

use ferroce_transport::{Mtu, Span, Time};

use super::cost;

/// What a path is tried with first.
const START_BYTES: u64 = 32 << 10;
/// Below this, and two packets, no loss and no delay brings it.
const FLOOR_BYTES: u64 = 8 << 10;
/// A queue that takes longer than this to pass is long enough to keep any way busy.
const QUEUE: Span = Span::from_millis(2);
/// How long the shortest round trip is remembered: between one and two of these.
const MEMORY: Span = Span::from_secs(10);

/// How much a device keeps on the wire to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Window {
    /// As much as the peer shows that it takes.
    #[default]
    Auto,
    /// So many bytes, as a receive buffer counts them, whatever the peer shows.
    Fixed(u32),
}

/// What a queue pair has learned about the way to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// An answer came so long after its request.
    RoundTrip {
        rtt: Span,
        /// How long the queue pair waits for an answer.
        wait: Option<Span>,
    },
    /// The peer misses a packet, or has not answered in time.
    Loss { in_time: bool },
}

/// The window of one path.
///
/// It grows while answers come quickly: twofold each round trip until something speaks against it,
/// then by a quarter. Answers that come so late that a timer nearly runs out for them are a queue in
/// front of a slow peer, and the window shrinks to what half that queue is. So it does when something
/// is lost, whose reason may be a full buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathWindow {
    bytes: u64,
    max: u64,
    is_fixed: bool,
    /// Nothing has spoken against growing fast.
    is_new: bool,
    /// More than half of it was in use since it last changed.
    is_used: bool,
    /// When it last changed. Packets that were sent before say nothing about it.
    changed: Time,
    /// When an answer came too late. One such may have waited for a thread of this machine.
    late: Option<Time>,
    /// The last round trip.
    rtt: Option<Span>,
    /// The shortest one, in the present stretch of time and in the one before.
    shortest: [Span; 2],
    stretch: Time,
}

impl PathWindow {
    /// That of a path nothing is known of, which may become `max` bytes.
    pub(super) fn new(window: Window, max: u64, now: Time) -> Self {
        let (bytes, max, is_fixed) = match window {
            Window::Auto => (START_BYTES.min(max), max, false),
            Window::Fixed(bytes) => (bytes.into(), bytes.into(), true),
        };
        Self {
            bytes,
            max,
            is_fixed,
            is_new: true,
            is_used: false,
            changed: now,
            late: None,
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

    /// The most that it may become.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The last round trip.
    pub(crate) fn rtt(&self) -> Option<Span> {
        self.rtt
    }

    /// So much is on the wire now that somebody has sent.
    pub(super) fn note_use(&mut self, used: u64) {
        self.is_used |= used > self.bytes / 2;
    }

    /// A queue pair whose packets are of this size has learned something.
    pub(super) fn heed(&mut self, now: Time, signal: Signal, mtu: Mtu) {
        match signal {
            Signal::RoundTrip { rtt, wait } => {
                self.remember(now, rtt);
                if !self.is_fixed {
                    self.heed_round_trip(now, rtt, wait, mtu);
                }
            }
            // Once for all that was on the wire.
            Signal::Loss { in_time } => {
                let rtt = self.rtt.unwrap_or_default();
                if !self.is_fixed && now >= self.changed.after(rtt) {
                    let percent = if in_time { 70 } else { 50 };
                    self.shrink(now, self.bytes * percent / 100, mtu);
                }
            }
        }
    }

    fn heed_round_trip(&mut self, now: Time, rtt: Span, wait: Option<Span>, mtu: Mtu) {
        let wait = wait.unwrap_or(Span::NEVER);
        if self.changed.after(rtt) > now {
            return; // about the window before
        }
        if rtt > wait / 2 {
            match self.late {
                None => self.late = Some(now),
                Some(late) if late.after(rtt) <= now => {
                    let fitting = u128::from(self.bytes) * u128::from((wait / 4).as_picos());
                    let bytes = fitting / u128::from(rtt.as_picos());
                    self.shrink(now, u64::try_from(bytes).unwrap_or(self.bytes), mtu);
                }
                Some(_) => {} // sent before the first one came
            }
            return;
        }
        self.late = None;
        let shortest = self.shortest[0].min(self.shortest[1]);
        let is_quick = rtt <= (wait / 8).min(QUEUE) || rtt / 2 <= shortest;
        if is_quick && self.is_used && self.bytes < self.max {
            let more = if self.is_new {
                self.bytes
            } else {
                self.bytes / 4
            };
            self.set(now, (self.bytes + more).min(self.max));
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

    fn shrink(&mut self, now: Time, bytes: u64, mtu: Mtu) {
        let floor = FLOOR_BYTES.max(cost(2, mtu)).min(self.max);
        self.is_new = false;
        self.set(now, bytes.max(floor).min(self.bytes));
    }

    fn set(&mut self, now: Time, bytes: u64) {
        self.bytes = bytes;
        self.changed = now;
        self.is_used = false;
        self.late = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 2 << 20;
    const WAIT_NS: u64 = 4_194_304;

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
            self.now = self.now.after(Span::from_nanos(rtt_ns));
            self.window.note_use(MAX);
            let signal = Signal::RoundTrip {
                rtt: Span::from_nanos(rtt_ns),
                wait: Some(Span::from_nanos(WAIT_NS)),
            };
            self.window.heed(self.now, signal, Mtu::Mtu1024);
            self.window.bytes()
        }

        fn loss(&mut self, in_time: bool) -> u64 {
            let signal = Signal::Loss { in_time };
            self.window.heed(self.now, signal, Mtu::Mtu1024);
            self.window.bytes()
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
            path.window.heed(path.now, signal, Mtu::Mtu1024);
        }
        assert_eq!(path.window.bytes(), START_BYTES);
    }

    #[test]
    fn a_long_way_is_no_queue() {
        let mut path = Path::new();
        while path.round(1_500_000) < MAX {}
        assert!(path.now <= Time::from_nanos(6 * 1_500_000));
    }

    /// A peer that takes 5,000 packets a second: its queue is the round trip.
    #[test]
    fn a_slow_peer_gets_what_it_works_off_before_a_timer_runs_out() {
        let mut path = Path::new();
        for round in 0..100 {
            let packets = path.window.bytes() / 1152;
            let rtt_ns = 100_000 + packets * 200_000;
            path.round(rtt_ns);
            assert!(round < 10 || rtt_ns < WAIT_NS, "round {round}: {rtt_ns} ns");
        }
        assert!(path.window.bytes() >= FLOOR_BYTES);
    }

    #[test]
    fn one_stall_changes_nothing_and_two_are_soon_made_up_for() {
        let mut path = Path::grown();
        assert_eq!(path.round(10_000_000), MAX);
        assert_eq!(path.round(50_000), MAX);
        path.round(10_000_000);
        assert!(path.round(10_000_000) < MAX / 4);
        let began = path.now;
        while path.round(50_000) < MAX {}
        assert!(path.now.since(began) < Span::from_millis(1));
    }

    #[test]
    fn a_loss_counts_once_for_all_that_was_on_the_wire() {
        let mut path = Path::grown();
        path.now = path.now.after(Span::from_micros(50));
        let less = path.loss(true);
        assert_eq!(less, MAX * 7 / 10);
        assert_eq!(path.loss(true), less);
        path.now = path.now.after(Span::from_micros(50));
        assert_eq!(path.loss(false), less / 2);
        for _ in 0..100 {
            path.now = path.now.after(Span::from_micros(50));
            path.loss(false);
        }
        assert_eq!(path.window.bytes(), FLOOR_BYTES);
        assert_eq!(path.round(50_000), FLOOR_BYTES + FLOOR_BYTES / 4);
    }

    #[test]
    fn a_fixed_window_stays() {
        let fixed = Window::Fixed(100_000);
        let mut path = Path::new();
        path.window = PathWindow::new(fixed, MAX, Time::ZERO);
        path.round(50_000);
        path.now = path.now.after(Span::from_micros(50));
        path.loss(false);
        assert_eq!(path.window.bytes(), 100_000);
        assert_eq!(path.window.rtt(), Some(Span::from_micros(50)));
    }
}
