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
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PingPong {
    /// UDP payload of a datagram.
    pub datagram_bytes: usize,
    /// Round trips measured.
    pub rounds: u32,
    /// Round trips before that.
    pub warm_up_rounds: u32,
}

impl Default for PingPong {
    fn default() -> Self {
        Self {
            datagram_bytes: 64,
            rounds: 100_000,
            warm_up_rounds: 10_000,
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

impl Latency {
    /// Halves the round trips in `histogram`.
    pub fn of_round_trips(histogram: &Histogram<u64>, contention: f64) -> Self {
        let half = |quantile| histogram.value_at_quantile(quantile) as f64 / 2.0;
        Self {
            rounds: histogram.len(),
            min_ns: histogram.min() as f64 / 2.0,
            p50_ns: half(0.5),
            p90_ns: half(0.9),
            p99_ns: half(0.99),
            p999_ns: half(0.999),
            max_ns: histogram.max() as f64 / 2.0,
            contention,
        }
    }
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
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3).expect("the bounds are in order");

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
            let payload = vec![0x5a; config.datagram_bytes];
            for round in 0..config.warm_up_rounds + config.rounds {
                let start = Instant::now();
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
                if round >= config.warm_up_rounds {
                    histogram.saturating_record(start.elapsed().as_nanos() as u64);
                }
            }
            Ok(())
        }();
        stop.store(true, Ordering::Relaxed);
        let echoed = echo.join().expect("the echo thread does not panic");
        measured
            .and(echoed)
            .map(|echo_waited| contention.end().max(echo_waited))
    })?;
    Ok(Latency::of_round_trips(&histogram, contention))
}
