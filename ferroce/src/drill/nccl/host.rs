//! A host of a drill: the process that loads the library, and sends and receives in a ring.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver as Orders, TryRecvError};
use std::thread;
use std::time::Duration;

use clap::Args;
use ferroce_nccl::{
    Accepting, Buffer, CallError, Handle, Interface, Library, Net, Receiver, Registered, Request,
    Sender, leave,
};
use ferroce_os::Clock;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::drill::protocol::{Order, Report};
use crate::output::{Failure, Output};

/// Steps of a channel that are under way at a time, as in NCCL.
const WINDOW: usize = 4;
/// Words of a message.
const WORDS: usize = 32 * 1024;
/// How often the host says how far it is.
const EVERY_NS: u64 = 50_000_000;
/// Standstills from this length on are told.
const STANDSTILL_NS: u64 = 50_000_000;
/// How long the host sleeps when nothing is complete.
const PAUSE: Duration = Duration::from_micros(50);

/// Send and receive as a host of a drill; the drill starts it
#[derive(Args, Debug)]
pub(crate) struct Host {
    /// The library
    #[arg(long, value_name = "FILE")]
    library: PathBuf,
    /// Only load the library and say its version
    #[arg(long)]
    probe: bool,
    /// Which host of the ring it is
    #[arg(long, default_value_t = 0)]
    host: usize,
    /// How many hosts there are
    #[arg(long, default_value_t = 2)]
    hosts: usize,
    /// Channels to each neighbour
    #[arg(long, default_value_t = 1)]
    channels: usize,
    /// Time between two steps of a channel, in nanoseconds
    #[arg(long, default_value_t = 0)]
    pace_ns: u64,
    /// Use each device for channels of its own
    #[arg(long)]
    separate: bool,
}

impl Host {
    pub(crate) fn run(self, _: &mut Output<'_>) -> Result<(), Failure> {
        // A drill that is killed leaves no process.
        let _ = set_pdeathsig(Signal::SIGKILL);
        let library = match Library::load(&self.library) {
            Ok(library) => library,
            Err(error) => {
                tell(&Report::Refused {
                    reason: error.to_string(),
                });
                leave(1);
            }
        };
        tell(&Report::Loaded {
            version: library.version().to_string(),
        });
        if self.probe {
            leave(0);
        }
        let orders = orders();
        if let Err(error) = self.drill(library, &orders) {
            tell_failure(error);
            let _ = orders.recv();
        }
        leave(0)
    }

    fn drill(&self, library: Library, orders: &Orders<Order>) -> Result<(), CallError> {
        let net = Net::init(library, 1)?;
        let devices = self.devices(&net, library.interface())?;
        let mut totals = Totals::default();
        let mut since_ns = None;
        loop {
            let (listening, handles) = self.listen(&net, &devices)?;
            tell(&Report::Listening { handles });
            let Ok(Order::Connect { handles }) = orders.recv() else {
                return Ok(());
            };
            let handles = handles.iter().filter_map(|text| from_hex(text)).collect();
            let ends = self.connect(&net, &devices, &listening, handles, orders)?;
            let Some(ends) = ends else {
                return Ok(());
            };
            let mut channels = self.channels(&net, ends, since_ns)?;
            tell(&Report::Connected);
            let exchanged = exchange(&net, &mut channels, &mut totals, orders);
            let has_failed = exchanged.is_err();
            let order = exchanged.unwrap_or_else(|error| {
                tell_failure(error);
                // The drill looks at the whole ring before it ends the hosts.
                orders.recv().unwrap_or(Order::End)
            });
            if let Order::Again = order {
                since_ns = channels.iter().map(|channel| channel.last_ns).min();
                // As after a failure, when a library closes what may still be under way.
                let _ = close(&net, channels, listening);
                continue;
            }
            // The library would wait for what is still under way; it is left to the end of the process.
            if !has_failed && channels.iter().all(Channel::is_at_rest) {
                close(&net, channels, listening)?;
                net.finalize()?;
            }
            tell(&Report::Closed);
            return Ok(());
        }
    }

    fn listen(
        &self,
        net: &Net,
        devices: &[i32],
    ) -> Result<(Vec<Accepting>, Vec<String>), CallError> {
        let ends = (0..self.channels).map(|channel| {
            let (end, handle) = net.listen(devices[channel % devices.len()])?;
            Ok((end, hex(&handle)))
        });
        let ends: Result<Vec<_>, _> = ends.collect();
        Ok(ends?.into_iter().unzip())
    }

    /// The devices of the channels: all merged into one, or each by itself.
    fn devices(&self, net: &Net, interface: Interface) -> Result<Vec<i32>, CallError> {
        let all: Vec<i32> = (0..net.devices()?).collect();
        match all.len() {
            2.. if !self.separate && interface > Interface::V8 => Ok(vec![net.merge(&all)?]),
            _ => Ok(all),
        }
    }

    /// Connects all channels; `None` if the drill is over before that.
    fn connect(
        &self,
        net: &Net,
        devices: &[i32],
        listening: &[Accepting],
        mut handles: Vec<Handle>,
        orders: &Orders<Order>,
    ) -> Result<Option<Vec<(Sender, Receiver)>>, CallError> {
        let mut ends: Vec<(Option<Sender>, Option<Receiver>)> =
            (0..self.channels).map(|_| (None, None)).collect();
        while ends.iter().any(|it| it.0.is_none() || it.1.is_none()) {
            if next(orders).is_some() {
                return Ok(None);
            }
            for (at, (sender, receiver)) in ends.iter_mut().enumerate() {
                if sender.is_none() {
                    *sender = net.connect(devices[at % devices.len()], &mut handles[at])?;
                }
                if receiver.is_none() {
                    *receiver = net.accept(&listening[at])?;
                }
            }
            thread::sleep(PAUSE);
        }
        let both = |(sender, receiver): (Option<_>, Option<_>)| sender.zip(receiver);
        Ok(ends.into_iter().map(both).collect())
    }

    /// Channels over connections. They count a standstill from `since_ns` on, if that is given.
    fn channels(
        &self,
        net: &Net,
        ends: Vec<(Sender, Receiver)>,
        since_ns: Option<u64>,
    ) -> Result<Vec<Channel>, CallError> {
        let before = (self.host + self.hosts - 1) % self.hosts;
        let channel = |(at, ends): (usize, (Sender, Receiver))| {
            let pattern = |host| Pattern {
                seed: ((host as u64) << 32) | ((at as u64) << 16),
            };
            let (own, theirs) = (pattern(self.host), pattern(before));
            // Every other channel receives two messages at a time.
            let group = 1 + at % 2;
            let mut channel = Channel::new(net, ends, (own, theirs), group)?;
            channel.pace_ns = self.pace_ns;
            channel.last_ns = since_ns.unwrap_or(channel.last_ns);
            Ok(channel)
        };
        ends.into_iter().enumerate().map(channel).collect()
    }
}

/// The words of the messages of a host on a channel.
#[derive(Clone, Copy)]
struct Pattern {
    seed: u64,
}

impl Pattern {
    fn word(self, step: u64, part: usize) -> impl Fn(u64) -> u64 {
        let message = (step << 8 | part as u64) ^ self.seed << 20;
        let first = message.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        move |at| first.wrapping_add(at.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }
}

/// A message that is to be sent, or is under way.
struct Outgoing {
    registered: Registered,
    request: Option<Request>,
    is_due: bool,
}

/// Messages that are received at a time.
struct Incoming {
    registered: Vec<Registered>,
    request: Option<Request>,
}

/// A connection to the next host, and one from the host before.
struct Channel {
    sender: Sender,
    receiver: Receiver,
    own: Pattern,
    theirs: Pattern,
    /// Of each step in the window, the messages.
    outgoing: Vec<Vec<Outgoing>>,
    incoming: Vec<Incoming>,
    /// Steps that were begun.
    filled: u64,
    posted: u64,
    /// Steps that are complete.
    received: u64,
    last_ns: u64,
    /// The least time between the beginnings of two steps.
    pace_ns: u64,
    /// When the next step may begin.
    next_ns: u64,
}

/// What all channels have received.
#[derive(Default)]
struct Totals {
    bytes: u64,
    wrong_words: u64,
}

impl Channel {
    fn new(
        net: &Net,
        (sender, receiver): (Sender, Receiver),
        (own, theirs): (Pattern, Pattern),
        group: usize,
    ) -> Result<Self, CallError> {
        let words = WORDS / group;
        let outgoing = || {
            Ok(Outgoing {
                registered: net.register_with_sender(&sender, Buffer::zeroed(words))?,
                request: None,
                is_due: false,
            })
        };
        let outgoing = (0..WINDOW).map(|_| (0..group).map(|_| outgoing()).collect());
        let outgoing = outgoing.collect::<Result<_, CallError>>()?;
        let incoming = (0..WINDOW).map(|_| {
            let buffers = (0..group).map(|_| Buffer::zeroed(words));
            let registered = buffers.map(|it| net.register_with_receiver(&receiver, it));
            Ok(Incoming {
                registered: registered.collect::<Result<_, CallError>>()?,
                request: None,
            })
        });
        let incoming = incoming.collect::<Result<_, CallError>>()?;
        Ok(Self {
            sender,
            receiver,
            own,
            theirs,
            outgoing,
            incoming,
            filled: 0,
            posted: 0,
            received: 0,
            last_ns: Clock.now_ns(),
            pace_ns: 0,
            next_ns: 0,
        })
    }

    /// Drives the channel; whether anything moved.
    fn drive(&mut self, net: &Net, totals: &mut Totals) -> Result<bool, CallError> {
        let mut has_moved = self.post(net)?;
        has_moved |= self.send(net)?;
        let slot = (self.received % WINDOW as u64) as usize;
        let incoming = &mut self.incoming[slot];
        if let Some(request) = &incoming.request
            && let Some(sizes) = net.test(request)?
        {
            incoming.request = None;
            for (part, registered) in incoming.registered.iter().enumerate() {
                let size = usize::try_from(sizes[part]).unwrap_or(0);
                let (words, all) = (size / 8, registered.buffer.bytes() / 8);
                let word = self.theirs.word(self.received, part);
                totals.bytes += size as u64;
                totals.wrong_words +=
                    registered.buffer.differing(0..words, word) + (all - words) as u64;
            }
            self.received += 1;
            let now = Clock.now_ns();
            if now - self.last_ns >= STANDSTILL_NS {
                tell(&Report::Standstill {
                    from_ns: self.last_ns,
                    to_ns: now,
                });
            }
            self.last_ns = now;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Posts receives as long as there is room in the window.
    fn post(&mut self, net: &Net) -> Result<bool, CallError> {
        let mut has_moved = false;
        while self.posted < self.received + WINDOW as u64 {
            let incoming = &mut self.incoming[(self.posted % WINDOW as u64) as usize];
            let into: Vec<_> = incoming.registered.iter().zip(0..).collect();
            let Some(request) = net.receive(&self.receiver, &into)? else {
                break;
            };
            incoming.request = Some(request);
            self.posted += 1;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Begins the sends of the next step, and drives those of earlier ones. As in a ring that reduces, a
    /// host sends no more than a window ahead of what it has received.
    fn send(&mut self, net: &Net) -> Result<bool, CallError> {
        let mut has_moved = false;
        let slot = (self.filled % WINDOW as u64) as usize;
        let is_free = |it: &Outgoing| it.request.is_none() && !it.is_due;
        let is_free = self.outgoing[slot].iter().all(is_free);
        let now = Clock.now_ns();
        if is_free && now >= self.next_ns && self.filled < self.received + WINDOW as u64 {
            self.next_ns = now + self.pace_ns;
            for (part, outgoing) in self.outgoing[slot].iter_mut().enumerate() {
                outgoing
                    .registered
                    .buffer
                    .fill(self.own.word(self.filled, part));
                outgoing.is_due = true;
            }
            self.filled += 1;
        }
        // The oldest step first: messages leave in order.
        let oldest = self.filled.saturating_sub(WINDOW as u64);
        'due: for step in oldest..self.filled {
            let slot = (step % WINDOW as u64) as usize;
            for (part, outgoing) in self.outgoing[slot].iter_mut().enumerate() {
                if outgoing.is_due {
                    let tag = part as i32;
                    outgoing.request = net.send(&self.sender, &outgoing.registered, tag)?;
                    if outgoing.request.is_none() {
                        break 'due;
                    }
                    outgoing.is_due = false;
                    has_moved = true;
                } else if let Some(request) = &outgoing.request
                    && net.test(request)?.is_some()
                {
                    outgoing.request = None;
                    has_moved = true;
                }
            }
        }
        Ok(has_moved)
    }

    /// Whether nothing of it is under way.
    fn is_at_rest(&self) -> bool {
        let mut outgoing = self.outgoing.iter().flatten();
        outgoing.all(|it| it.request.is_none())
            && self.incoming.iter().all(|it| it.request.is_none())
    }
}

/// Drives the channels until the next order.
fn exchange(
    net: &Net,
    channels: &mut [Channel],
    totals: &mut Totals,
    orders: &Orders<Order>,
) -> Result<Order, CallError> {
    let mut next_ns = 0;
    loop {
        let mut has_moved = false;
        for channel in &mut *channels {
            has_moved |= channel.drive(net, totals)?;
        }
        let now = Clock.now_ns();
        if now >= next_ns {
            next_ns = now + EVERY_NS;
            let last = channels.iter().map(|channel| channel.last_ns);
            tell(&Report::Progress {
                at_ns: now,
                bytes: totals.bytes,
                wrong_words: totals.wrong_words,
                oldest_ns: last.min().unwrap_or(now),
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

fn close(net: &Net, channels: Vec<Channel>, listening: Vec<Accepting>) -> Result<(), CallError> {
    for channel in channels {
        for outgoing in channel.outgoing.into_iter().flatten() {
            net.deregister_from_sender(&channel.sender, outgoing.registered)?;
        }
        for registered in channel.incoming.into_iter().flat_map(|it| it.registered) {
            net.deregister_from_receiver(&channel.receiver, registered)?;
        }
        net.close_sender(channel.sender)?;
        net.close_receiver(channel.receiver)?;
    }
    for end in listening {
        net.close_listener(end)?;
    }
    Ok(())
}

/// Prints a line all at once: the library prints into the same pipe.
fn tell(report: &Report) {
    let line = serde_json::to_string(report).unwrap_or_default() + "\n";
    // Without a reader there is no drill any more, and no host: see `orders`.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

fn tell_failure(error: CallError) {
    tell(&Report::Failed {
        at_ns: Clock.now_ns(),
        call: error.call.to_owned(),
        code: error.code,
        name: error.name().to_owned(),
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
fn next(orders: &Orders<Order>) -> Option<Order> {
    match orders.try_recv() {
        Ok(order) => Some(order),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Order::End),
    }
}

fn hex(handle: &Handle) -> String {
    handle.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Handle> {
    let mut handle = Handle([0; Handle::BYTES]);
    for (at, byte) in handle.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(handle)
}
