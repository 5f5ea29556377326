//! Limits a queue pair's packets to a rate.

use ferroce_dcqcn::Rate;
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, ReactionPoint};
use ferroce_transport::{Span, Time};

use crate::host_profile::HostProfile;

/// No packet's turn is further away: what has left is paid for, and one packet at the lowest rate takes
/// a third of this.
const WAIT_MAX: Span = Span::from_millis(100);
/// A debt takes no longer than this, also if settings change under it.
const DEBT_MAX: Span = Span::from_millis(50);

/// The settings of a device's limiters.
pub(crate) struct Pacing<'a> {
    pub(crate) config: &'a NvidiaConfig,
    pub(crate) host: &'a HostProfile,
    /// A burst ends with the packet that reaches this size (`cc_burst_size`).
    pub(crate) burst_bytes: u16,
}

/// The rate limiter of one queue pair: when its next packet may leave.
///
/// A virtual clock: each packet moves the time of the next one by how long it takes at the rate. What it
/// takes is a debt in bytes: when the rate changes, what is left of it takes as long as at the new one.
///
/// Each of very many is out of the cache when its turn comes; aligned, it comes as one pair of cache
/// lines instead of parts of two.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Limiter {
    rp: NvidiaRp,
    /// When the next packet's turn is.
    due: Time,
    /// Bytes that may leave before that, of the burst that the last turn began.
    burst_left: u32,
    /// Until when the queue pair sleeps.
    wait_until: Option<Time>,
    /// When it woke up last, and how much too late.
    woken_at: Time,
    late: Span,
}

impl Limiter {
    /// That of a flow that has just got its first CNP.
    pub(crate) fn new(config: &NvidiaConfig, now: Time) -> Self {
        let mut limiter = Self {
            rp: NvidiaRp::new(config),
            due: now,
            burst_left: 0,
            wait_until: None,
            woken_at: now,
            late: Span::ZERO,
        };
        limiter.on_cnp(config, now);
        limiter
    }

    pub(crate) fn on_cnp(&mut self, config: &NvidiaConfig, now: Time) {
        self.follow(config, now);
        self.rp.on_cnp(config, now);
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
        self.follow(config, now);
        self.rp.rate(config, now)
    }

    /// Lives through the changes of the rate that have come while a packet waits: each changes when its
    /// turn is.
    #[inline]
    fn follow(&mut self, config: &NvidiaConfig, now: Time) {
        while let Some(at) = self.rp.next_event().filter(|at| *at <= now)
            && at < self.due
        {
            let before = self.rp.rate(config, at.before(Span::from_picos(1)));
            let after = self.rp.rate(config, at);
            self.due = at.after(at_other_rate(self.due.since(at), before, after));
        }
    }

    /// Bytes that may be in flight.
    pub(crate) fn window_bytes(&mut self, pacing: &Pacing<'_>, now: Time) -> u64 {
        let windows_per_second = Span::from_secs(1) / pacing.host.paced_window;
        self.rate(pacing.config, now).bps() / 8 / windows_per_second
    }

    /// Until when the queue pair sleeps, if it does.
    pub(crate) fn wait_until(&self) -> Option<Time> {
        self.wait_until
    }

    /// Checks that the queue pair does not sleep without end.
    ///
    /// # Panics
    /// Panics if it does.
    pub(crate) fn audit(&self, now: Time) {
        let is_bounded = |until: Time| until.since(now) <= WAIT_MAX;
        assert!(self.wait_until.is_none_or(is_bounded), "{self:?}");
    }

    /// Ends a sleep whose time has come; tells whether it was one.
    pub(crate) fn wake(&mut self, host: &HostProfile, now: Time) -> bool {
        let Some(until) = self.wait_until.filter(|until| *until <= now) else {
            return false;
        };
        self.wait_until = None;
        self.woken_at = now;
        self.late = now.since(until).min(host.lateness_max);
        true
    }

    /// Whether a packet may leave now: its turn has come, or the burst of the last one is not over. If
    /// not, the queue pair sleeps until its turn, or until the rate changes and its turn with it.
    pub(crate) fn admits(&mut self, pacing: &Pacing<'_>, now: Time) -> bool {
        self.wake(pacing.host, now);
        self.follow(pacing.config, now);
        if self.due <= now {
            self.burst_left = pacing.burst_bytes.into();
        }
        if self.wait_until.is_none() && self.due > now && self.burst_left == 0 {
            let change = self.rp.next_event().unwrap_or(Time::NEVER);
            self.wait_until = Some(self.due.min(change).after(pacing.host.pacing_tick));
        }
        self.wait_until.is_none()
    }

    /// A packet of `bytes` has left.
    pub(crate) fn on_sent(&mut self, pacing: &Pacing<'_>, now: Time, bytes: u32) {
        let (config, host) = (pacing.config, pacing.host);
        self.rp.on_bytes_sent(config, now, bytes);
        let has_slept = now.since(self.woken_at) < host.pacing_tick;
        let late = if has_slept { self.late } else { Span::ZERO };
        let earliest = now.before(host.pacing_credit + late);
        let takes = self.rate(config, now).transmission(bytes);
        self.due = self.due.max(earliest).after(takes);
        self.burst_left = self.burst_left.saturating_sub(bytes);
    }
}

/// What takes so long at one rate, at another one.
#[cold]
fn at_other_rate(takes: Span, before: Rate, after: Rate) -> Span {
    let bits = u128::from(takes.as_picos()) * u128::from(before.bps());
    let picos = bits.div_ceil(u128::from(after.bps().max(1)));
    Span::from_picos(u64::try_from(picos).unwrap_or(u64::MAX)).min(DEBT_MAX)
}

#[cfg(test)]
mod tests {
    use ferroce_dcqcn::{Param, Params, Switches};

    use super::*;

    const HOST: &HostProfile = &HostProfile::SOCKETS;
    /// Of one packet of 1,000 bytes or 4,096.
    fn pacing<'a>(config: &'a NvidiaConfig, host: &'a HostProfile) -> Pacing<'a> {
        Pacing {
            config,
            host,
            burst_bytes: 0,
        }
    }

    const SECOND: Span = Span::from_secs(1);

    /// A limiter that stays at 100 Mb/s.
    fn limiter() -> (NvidiaConfig, Limiter) {
        let params = Params::default()
            .with(Param::RateToSetOnFirstCnp, 100)
            .with(Param::MinDecFac, 100)
            .with(Param::TimeReset, 131_071)
            .with(Param::ByteReset, 0)
            .with(Param::Threshold, 31);
        let config = NvidiaConfig::new(&params, &Switches::default(), Rate::from_mbps(100_000));
        let limiter = Limiter::new(&config, Time::ZERO);
        (config, limiter)
    }

    /// Bytes that leave in a second if the host is always as late as this.
    fn sent(late: Span) -> u64 {
        let (config, mut limiter) = limiter();
        let (mut now, mut bytes) = (Time::ZERO, 0);
        while now < Time::ZERO.after(SECOND) {
            if limiter.admits(&pacing(&config, HOST), now) {
                limiter.on_sent(&pacing(&config, HOST), now, 1_000);
                bytes += 1_000;
            } else {
                now = limiter.wait_until().unwrap().after(late);
            }
        }
        bytes
    }

    #[test]
    fn a_late_host_is_made_up_for() {
        for late_us in [0, 1, 300, 5_000, 9_000] {
            let bytes = sent(Span::from_micros(late_us));
            let off = bytes as f64 / 12_500_000.0 - 1.0;
            assert!(off.abs() < 0.01, "{late_us} us late: {bytes} bytes");
        }
    }

    #[test]
    fn catching_up_is_bounded() {
        let bytes = sent(Span::from_millis(50));
        // A second of 20 wakes: each brings the 10 ms of lateness and the credit.
        assert!((2_000_000..3_500_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn lateness_is_forgotten_by_one_that_had_nothing_to_send() {
        let (config, mut limiter) = limiter();
        while limiter.admits(&pacing(&config, HOST), Time::ZERO) {
            limiter.on_sent(&pacing(&config, HOST), Time::ZERO, 1_000);
        }
        let late = limiter.wait_until().unwrap().after(Span::from_millis(8));
        assert!(limiter.admits(&pacing(&config, HOST), late));
        let now = late.after(SECOND);
        let mut bytes = 0;
        while limiter.admits(&pacing(&config, HOST), now) {
            limiter.on_sent(&pacing(&config, HOST), now, 1_000);
            bytes += 1_000;
        }
        assert!(bytes <= 8_000, "{bytes} bytes at once");
    }

    /// A flow of the firmware's parameters that was cut for 100 us, to a few Mb/s.
    fn cut_down() -> (NvidiaConfig, Limiter, Time) {
        let line = Rate::from_mbps(100_000);
        let config = NvidiaConfig::new(&Params::default(), &Switches::default(), line);
        let mut limiter = Limiter::new(&config, Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..25 {
            now = now.after(Span::from_micros(4));
            limiter.on_cnp(&config, now);
        }
        now = now.after(Span::from_micros(4));
        assert!(limiter.rate(&config, now) < Rate::from_mbps(10));
        (config, limiter, now)
    }

    #[test]
    fn a_sleeper_goes_by_the_rate_that_has_risen() {
        let (config, mut limiter, now) = cut_down();
        let card = HostProfile::card(Rate::from_mbps(100_000));
        while limiter.admits(&pacing(&config, &card), now) {
            limiter.on_sent(&pacing(&config, &card), now, 4_096);
        }
        // Of 32,768 bits less than 3,000 are paid until the timer has the rate rise to half the line's.
        let risen = now.after(Span::from_micros(300));
        assert!(limiter.wait_until().unwrap() <= risen);
        while !limiter.admits(
            &pacing(&config, &card),
            limiter.wait_until().unwrap_or(risen),
        ) {}
        assert!(limiter.due <= risen.after(Span::from_micros(1)));
    }

    #[test]
    fn bytes_sent_match_the_rate() {
        let (config, mut limiter, start) = cut_down();
        let card = HostProfile::card(Rate::from_mbps(100_000));
        let (mut now, mut sent, mut allowed) = (start, 0, 0.0);
        let mut next_cnp = start.after(Span::from_micros(700));
        while now < start.after(Span::from_millis(20)) {
            while limiter.admits(&pacing(&config, &card), now) {
                limiter.on_sent(&pacing(&config, &card), now, 4_096);
                sent += 4_096;
            }
            if now >= next_cnp {
                limiter.on_cnp(&config, now);
                next_cnp = now.after(Span::from_micros(700));
            }
            let next = limiter.wait_until().unwrap().min(next_cnp);
            let rate = limiter.rate(&config, now).bps() as f64;
            allowed += rate / 8e12 * next.since(now).as_picos() as f64;
            now = next;
        }
        let off = f64::from(sent) - allowed;
        assert!(
            sent > 1_000_000 && off.abs() <= 20.0 * 4_096.0,
            "{sent} {allowed}"
        );
    }
}
