//! The minimum latency of one datagram.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{Contention, Error, idle, two_cores};

/// What [`ping_pong`] measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PingPong {
    /// Length of a message: UDP payload of a datagram, or bytes of a WRITE.
    pub message_bytes: usize,
    /// Round trips measured.
    pub rounds: u32,
    /// Round trips before that, at most.
    pub warm_up_rounds: u32,
    /// When to end with fewer round trips, in seconds, of which those before are a tenth at most. One is
    /// measured in any case.
    pub seconds_max: Option<f64>,
}

/// A ping-pong under way: which round trips are measured, and when it is over.
pub(crate) struct Course {
    warm_up_rounds: u64,
    rounds: u64,
    /// When the warm-up ends, and when everything does.
    until: Option<(Instant, Instant)>,
    histogram: Histogram<u64>,
}

impl PingPong {
    /// From now on.
    pub(crate) fn course(&self) -> Course {
        let warm_up_rounds = u64::from(self.warm_up_rounds);
        let now = Instant::now();
        let until = self.seconds_max.map(Duration::from_secs_f64);
        Course {
            warm_up_rounds,
            rounds: warm_up_rounds + u64::from(self.rounds),
            until: until.map(|length| (now + length / 10, now + length)),
            histogram: Histogram::new_with_max(60_000_000_000, 3).expect("bounds in order"),
        }
    }
}

impl Course {
    /// Whether a round trip, counted from 0, is not made any more.
    pub(crate) fn is_over(&self, round: u64, now: Instant) -> bool {
        let is_late = self.until.is_some_and(|(_, end)| now > end);
        round >= self.rounds || (is_late && !self.histogram.is_empty())
    }

    /// Notes a round trip that began at `started` and has just ended, unless it is of the warm-up.
    pub(crate) fn note(&mut self, round: u64, started: Instant) {
        let is_warm = self.until.is_some_and(|(warm, _)| started > warm);
        if is_warm || round >= self.warm_up_rounds {
            let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.histogram.saturating_record(nanos);
        }
    }

    /// What was measured while threads waited for a core for this share of the time.
    pub(crate) fn latency(&self, contention: f64) -> Latency {
        let half = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 2.0;
        Latency {
            rounds: self.histogram.len(),
            min_ns: self.histogram.min() as f64 / 2.0,
            p50_ns: half(0.5),
            p90_ns: half(0.9),
            p99_ns: half(0.99),
            p999_ns: half(0.999),
            max_ns: self.histogram.max() as f64 / 2.0,
            contention,
        }
    }
}

impl Default for PingPong {
    fn default() -> Self {
        Self {
            message_bytes: 64,
            rounds: 100_000,
            warm_up_rounds: 10_000,
            seconds_max: None,
        }
    }
}

/// Half round trips in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Round trips measured.
    pub rounds: u64,
    /// The shortest.
    pub min_ns: f64,
    /// Half took no longer.
    pub p50_ns: f64,
    /// 90 % took no longer.
    pub p90_ns: f64,
    /// 99 % took no longer.
    pub p99_ns: f64,
    /// 99.9 % took no longer.
    pub p999_ns: f64,
    /// The longest, which is usually the scheduler's.
    pub max_ns: f64,
    /// Share of the time that a thread had to wait for a core; the worse of the two.
    pub contention: f64,
}

/// Bounces one datagram between two threads that look at their non-blocking sockets without pause.
///
/// The sockets are what the standard library makes of them: no options, no control messages.
///
/// # Errors
/// Returns an error when a socket call fails, or a datagram stays away for a second.
pub fn ping_pong(config: &PingPong) -> Result<Latency, Error> {
    let ping = UdpSocket::bind("127.0.0.1:0")?;
    let pong = UdpSocket::bind("127.0.0.2:0")?;
    ping.set_nonblocking(true)?;
    pong.set_nonblocking(true)?;
    let target = pong.local_addr()?;
    let stop = AtomicBool::new(false);
    let alone = two_cores();
    let mut course = config.course();
    let contention = thread::scope(|scope| {
        let echo = scope.spawn(|| -> io::Result<f64> {
            let contention = Contention::begin();
            let mut buffer = vec![0; 1 << 16];
            while !stop.load(Ordering::Relaxed) {
                match pong.recv_from(&mut buffer) {
                    Ok((len, source)) => {
                        pong.send_to(&buffer[..len], source)?;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => idle(alone),
                    Err(error) => return Err(error),
                }
            }
            Ok(contention.end())
        });
        let contention = Contention::begin();
        let measured = || -> io::Result<()> {
            let mut buffer = vec![0; 1 << 16];
            let payload = vec![0x5a; config.message_bytes];
            for round in 0.. {
                let start = Instant::now();
                if course.is_over(round, start) {
                    break;
                }
                ping.send_to(&payload, target)?;
                let mut looks = 0u32;
                loop {
                    match ping.recv_from(&mut buffer) {
                        Ok(_) => break,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => idle(alone),
                        Err(error) => return Err(error),
                    }
                    looks += 1;
                    if looks.is_multiple_of(1024) && start.elapsed() > Duration::from_secs(1) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                course.note(round, start);
            }
            Ok(())
        }();
        stop.store(true, Ordering::Relaxed);
        let echoed = echo.join().expect("the echo thread does not panic");
        measured
            .and(echoed)
            .map(|echo_waited| contention.end().max(echo_waited))
    })?;
    Ok(course.latency(contention))
}
