//! The hosts' side of the protocol: a ring of processes that send to each other, whatever the library.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process;
use std::sync::mpsc::{self, Receiver as Orders, TryRecvError};
use std::thread;
use std::time::Duration;

use clap::Args;
use ferroce_dynlib::leave;
use ferroce_os::Clock;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::protocol::{Order, Report};

/// Steps of a channel that are under way at a time, as in NCCL.
pub(super) const WINDOW: usize = 4;
/// Words of a step.
pub(super) const WORDS: usize = 32 * 1024;
/// How often the host says how far it is.
const EVERY_NS: u64 = 50_000_000;
/// Standstills from this length on are told.
const STANDSTILL_NS: u64 = 50_000_000;
/// How long the host sleeps when nothing is complete.
pub(super) const PAUSE: Duration = Duration::from_micros(50);

/// What a host is told when it is started.
#[derive(Args, Debug)]
pub(super) struct Position {
    /// The library
    #[arg(long, value_name = "FILE")]
    pub(super) library: PathBuf,
    /// Only load the library and say its version
    #[arg(long)]
    probe: bool,
    /// Which host of the ring it is
    #[arg(long, default_value_t = 0)]
    pub(super) host: usize,
    /// How many hosts there are
    #[arg(long, default_value_t = 2)]
    pub(super) hosts: usize,
    /// Channels to each neighbour
    #[arg(long, default_value_t = 1)]
    pub(super) channels: usize,
    /// Time between two steps of a channel, in nanoseconds
    #[arg(long, default_value_t = 0)]
    pace_ns: u64,
}

impl Position {
    /// Says whether the library can be used. Ends the process if it cannot, or if nothing else was
    /// asked.
    pub(super) fn begin<L>(
        &self,
        loaded: Result<L, impl ToString>,
        version: impl Fn(&L) -> String,
    ) -> (L, Orders<Order>) {
        // A drill that is killed leaves no process.
        let _ = set_pdeathsig(Signal::SIGKILL);
        let library = match loaded {
            Ok(library) => library,
            Err(error) => {
                let reason = error.to_string();
                tell(&Report::Refused { reason });
                leave(1);
            }
        };
        let version = version(&library);
        let pid = process::id().cast_signed();
        tell(&Report::Loaded { version, pid });
        if self.probe {
            leave(0);
        }
        (library, orders())
    }

    /// What this host sends on a channel, and what the host before it does.
    pub(super) fn patterns(&self, channel: usize) -> (Pattern, Pattern) {
        let pattern = |host| Pattern {
            seed: ((host as u64) << 32) | ((channel as u64) << 16),
        };
        let before = (self.host + self.hosts - 1) % self.hosts;
        (pattern(self.host), pattern(before))
    }

    pub(super) fn pacer(&self) -> Pacer {
        Pacer {
            pace_ns: self.pace_ns,
            next_ns: 0,
            filled: 0,
        }
    }
}

/// A call of a library that has failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) call: &'static str,
    pub(super) code: i32,
    pub(super) name: String,
}

/// The words of the messages of a host on a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    seed: u64,
}

impl Pattern {
    pub(super) fn word(self, step: u64, part: usize) -> impl Fn(u64) -> u64 {
        let message = (step << 8 | part as u64) ^ self.seed << 20;
        let first = message.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        move |at| first.wrapping_add(at.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }
}

/// What all channels have received.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) bytes: u64,
    pub(super) wrong_words: u64,
}

/// Says when a channel may begin a step.
#[derive(Debug)]
pub(super) struct Pacer {
    pace_ns: u64,
    next_ns: u64,
    /// Steps that were begun.
    pub(super) filled: u64,
}

impl Pacer {
    /// The step that begins now, if one does. As in a ring that reduces, a host sends no more than a
    /// window ahead of what it has received.
    pub(super) fn begin(&mut self, arrivals: &Arrivals) -> Option<u64> {
        let now = Clock.now_ns();
        let may_begin = self.filled < arrivals.received + WINDOW as u64;
        if !may_begin || now < self.next_ns {
            return None;
        }
        self.next_ns = now + self.pace_ns;
        self.filled += 1;
        Some(self.filled - 1)
    }

    /// The steps of the window, the oldest first.
    pub(super) fn window(&self) -> std::ops::Range<u64> {
        self.filled.saturating_sub(WINDOW as u64)..self.filled
    }
}

/// What a channel has received, and when it last did.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Steps that are complete.
    pub(super) received: u64,
    last_ns: u64,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            received: 0,
            last_ns: Clock.now_ns(),
        }
    }

    /// A step is complete.
    pub(super) fn step(&mut self) {
        self.received += 1;
        let now = Clock.now_ns();
        if now - self.last_ns >= STANDSTILL_NS {
            tell(&Report::Standstill {
                from_ns: self.last_ns,
                to_ns: now,
            });
        }
        self.last_ns = now;
    }
}

/// A connection to the next host, and one from the host before.
pub(super) trait Channel {
    fn arrivals(&mut self) -> &mut Arrivals;
    /// Whether nothing of it is under way.
    fn is_at_rest(&self) -> bool;
}

/// A host of the ring, by what it does with its library.
pub(super) trait Ring {
    type Channel: Channel;

    /// Lets the host before connect; what it needs, one for each channel, in hexadecimal digits.
    fn listen(&mut self) -> Result<Vec<String>, Failed>;
    /// Connects all channels; `None` if the drill is over before that.
    fn connect(
        &mut self,
        handles: &[String],
        orders: &Orders<Order>,
    ) -> Result<Option<Vec<Self::Channel>>, Failed>;
    /// Drives a channel; whether anything moved.
    fn drive(&self, channel: &mut Self::Channel, totals: &mut Totals) -> Result<bool, Failed>;
    /// Closes connections, even if something is under way.
    fn close(&mut self, channels: Vec<Self::Channel>) -> Result<(), Failed>;
    /// Ends the use of the library.
    fn end(self) -> Result<(), Failed>;
}

/// Takes part in the ring that `start` makes, until the drill is over, and ends the process.
pub(super) fn serve<R: Ring>(
    orders: &Orders<Order>,
    start: impl FnOnce() -> Result<R, Failed>,
) -> ! {
    if let Err(failed) = start().and_then(|ring| take_part(ring, orders)) {
        tell_failure(failed);
        let _ = orders.recv();
    }
    leave(0)
}

fn take_part(mut ring: impl Ring, orders: &Orders<Order>) -> Result<(), Failed> {
    let mut totals = Totals::default();
    // Of connections that take the place of others, when those last received something.
    let mut since_ns = None;
    loop {
        let handles = ring.listen()?;
        tell(&Report::Listening { handles });
        let Ok(Order::Connect { handles }) = orders.recv() else {
            return Ok(());
        };
        let Some(mut channels) = ring.connect(&handles, orders)? else {
            return Ok(());
        };
        if let Some(since_ns) = since_ns {
            for channel in &mut channels {
                channel.arrivals().last_ns = since_ns;
            }
        }
        tell(&Report::Connected);
        let exchanged = exchange(&ring, &mut channels, &mut totals, orders);
        let has_failed = exchanged.is_err();
        let order = exchanged.unwrap_or_else(|failed| {
            tell_failure(failed);
            // The drill looks at the whole ring before it ends the hosts.
            orders.recv().unwrap_or(Order::End)
        });
        if let Order::Again = order {
            since_ns = oldest(&mut channels);
            // As after a failure, when a library closes what may still be under way.
            let _ = ring.close(channels);
            continue;
        }
        // A library may wait for what is still under way; it is left to the end of the process.
        if !has_failed && channels.iter().all(Channel::is_at_rest) {
            ring.close(channels)?;
            ring.end()?;
        }
        tell(&Report::Closed);
        return Ok(());
    }
}

/// Drives the channels until the next order.
fn exchange<R: Ring>(
    ring: &R,
    channels: &mut [R::Channel],
    totals: &mut Totals,
    orders: &Orders<Order>,
) -> Result<Order, Failed> {
    let mut next_ns = 0;
    loop {
        let mut has_moved = false;
        for channel in &mut *channels {
            has_moved |= ring.drive(channel, totals)?;
        }
        let now = Clock.now_ns();
        if now >= next_ns {
            next_ns = now + EVERY_NS;
            tell(&Report::Progress {
                at_ns: now,
                bytes: totals.bytes,
                wrong_words: totals.wrong_words,
                oldest_ns: oldest(channels).unwrap_or(now),
            });
        }
        if let Some(order) = next(orders) {
            return Ok(order);
        }
        if !has_moved {
            thread::sleep(PAUSE);
        }
    }
}

/// When the channel that has stood still for the longest last received something.
fn oldest(channels: &mut [impl Channel]) -> Option<u64> {
    channels.iter_mut().map(|it| it.arrivals().last_ns).min()
}

/// Prints a line all at once: the library prints into the same pipe.
fn tell(report: &Report) {
    let line = serde_json::to_string(report).unwrap_or_default() + "\n";
    // Without a reader there is no drill any more, and no host: see `orders`.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

fn tell_failure(failed: Failed) {
    tell(&Report::Failed {
        at_ns: Clock.now_ns(),
        call: failed.call.to_owned(),
        code: failed.code,
        name: failed.name,
    });
}

/// The orders on standard input. At its end the process ends.
fn orders() -> Orders<Order> {
    let (to, orders) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let order = serde_json::from_str(&line).ok();
            if order.is_none_or(|order| to.send(order).is_err()) {
                break;
            }
        }
        leave(1);
    });
    orders
}

/// The next order, if there is one already.
pub(super) fn next(orders: &Orders<Order>) -> Option<Order> {
    match orders.try_recv() {
        Ok(order) => Some(order),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Order::End),
    }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits, as far as they are.
pub(super) fn of_hex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    let byte = |pair: Option<&str>| u8::from_str_radix(pair?, 16).ok();
    pairs.map_while(byte).collect()
}
