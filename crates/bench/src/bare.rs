//! The limits of UDP sockets: reference figures without the device.
//!
//! [`stream()`] sends the packets of RDMA WRITEs from one thread to another over loopback. It does
//! only what no implementation on sockets can omit: headers, the invariant CRC on both sides, one
//! segmented (GSO) call for several packets, one copy from the socket's buffer to the target
//! memory, and acknowledgements that limit the sender to a window. It has one queue pair, no keys,
//! no timers and no retransmission (a lost packet is an error).
//!
//! [`ping_pong`] bounces one small datagram between two spinning threads.
//!
//! Both run inside the calling process, so a benchmark can measure the device directly before and
//! after under the same conditions. Figures vary by tens of percent with the state of the machine:
//! compare only within one run.

mod packet;
mod ping;
mod ring;
mod stream;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ferroce_sockets::{BindError, Options, SendError, Socket};
pub use ping::{Latency, PingPong, ping_pong};
pub use ring::ring_ping_pong;
pub use stream::{Stream, Throughput, stream};

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration that makes no stream.
    #[error("{0}")]
    Config(&'static str),
    /// No socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A socket call failed.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// A batch could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The kernel dropped something, or nothing moved for too long.
    #[error(
        "packet {expected} never arrived ({drops} dropped by the kernel): use a window below the \
         receive buffer of {buffer_bytes} bytes, or free a core"
    )]
    Lost {
        /// The first packet missing, counted from 0.
        expected: u64,
        /// Datagrams that found the receive buffer full.
        drops: u32,
        /// The receive buffer as granted.
        buffer_bytes: usize,
    },
    /// A packet arrived with a wrong CRC, or the target does not hold what was sent.
    #[error("the data arrived damaged")]
    Damaged,
}

/// Measures how long a thread had to wait for a core while it wanted to run.
///
/// A figure taken while other programs use the cores says little, and by itself does not show it.
#[derive(Debug)]
pub struct Contention {
    since: Instant,
    delay: Option<Duration>,
}

impl Contention {
    /// Begins to measure the calling thread.
    pub fn begin() -> Self {
        Self {
            since: Instant::now(),
            delay: run_delay(),
        }
    }

    /// The share of the time since then that the thread waited, 0 to 1; 0 if the kernel keeps no
    /// such account. To be called by the same thread.
    pub fn end(&self) -> f64 {
        let Some((before, after)) = self.delay.zip(run_delay()) else {
            return 0.0;
        };
        let waited = after.saturating_sub(before).as_secs_f64();
        (waited / self.since.elapsed().as_secs_f64()).min(1.0)
    }
}

/// How long the calling thread has been ready to run without running, in all.
fn run_delay() -> Option<Duration> {
    let line = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    line.split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

/// A socket on an unused port, at loopback address 127.0.0.`host`.
fn bind(host: u8, options: &Options) -> Result<Socket, BindError> {
    Socket::bind(
        SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)),
        options,
    )
}

/// What to do between two looks at an empty socket: with a core for each thread, look again.
fn idle(alone: bool) {
    if alone {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Whether each of two threads can have a core to itself.
fn two_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2)
}
