//! A host of a drill with NCCL, which sends and receives as NCCL's proxy threads do.

use std::sync::mpsc::Receiver as Orders;
use std::thread;

use clap::Args;
use ferroce_dynlib::Buffer;
use ferroce_nccl::{
    Accepting, CallError, Handle, Interface, Library, Net, Receiver, Registered, Request, Sender,
};

use crate::drill::protocol::Order;
use crate::drill::worker::{
    Arrivals, Channel, Failed, PAUSE, Pacer, Pattern, Position, Ring, Totals, WINDOW, WORDS, next,
    of_hex, serve, to_hex,
};
use crate::output::{Failure, Output};

/// Send and receive as a host of a drill; the drill starts it
#[derive(Args, Debug)]
pub(crate) struct Host {
    #[command(flatten)]
    position: Position,
    /// Use each device for channels of its own
    #[arg(long)]
    separate: bool,
}

impl Host {
    pub(crate) fn run(self, _: &mut Output<'_>) -> Result<(), Failure> {
        let library = Library::load(&self.position.library);
        let version = |it: &Library| it.version().to_string();
        let (library, orders) = self.position.begin(library, version);
        serve(&orders, || {
            let net = Net::init(library, 1)?;
            let devices = self.devices(&net, library.interface())?;
            Ok(Proxy {
                host: self,
                net,
                devices,
                listening: Vec::new(),
            })
        })
    }

    /// The devices of the channels: all merged into one, or each by itself.
    fn devices(&self, net: &Net, interface: Interface) -> Result<Vec<i32>, CallError> {
        let all: Vec<i32> = (0..net.devices()?).collect();
        match all.len() {
            2.. if !self.separate && interface > Interface::V8 => Ok(vec![net.merge(&all)?]),
            _ => Ok(all),
        }
    }
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self {
            call: error.call,
            code: error.code,
            name: error.name().to_owned(),
        }
    }
}

/// NCCL's part of a host.
struct Proxy {
    host: Host,
    net: Net,
    devices: Vec<i32>,
    listening: Vec<Accepting>,
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
struct Lane {
    sender: Sender,
    receiver: Receiver,
    own: Pattern,
    theirs: Pattern,
    /// Of each step in the window, the messages.
    outgoing: Vec<Vec<Outgoing>>,
    incoming: Vec<Incoming>,
    pacer: Pacer,
    posted: u64,
    arrivals: Arrivals,
}

impl Ring for Proxy {
    type Channel = Lane;

    fn listen(&mut self) -> Result<Vec<String>, Failed> {
        let mut handles = Vec::new();
        for channel in 0..self.host.position.channels {
            let (end, handle) = self.net.listen(self.device(channel))?;
            self.listening.push(end);
            handles.push(to_hex(&handle.0));
        }
        Ok(handles)
    }

    fn connect(
        &mut self,
        handles: &[String],
        orders: &Orders<Order>,
    ) -> Result<Option<Vec<Lane>>, Failed> {
        let handles = handles.iter().map(|text| handle(text));
        let mut handles: Vec<Handle> = handles.collect();
        let mut ends: Vec<(Option<Sender>, Option<Receiver>)> =
            handles.iter().map(|_| (None, None)).collect();
        while ends.iter().any(|it| it.0.is_none() || it.1.is_none()) {
            if next(orders).is_some() {
                return Ok(None);
            }
            for (at, (sender, receiver)) in ends.iter_mut().enumerate() {
                if sender.is_none() {
                    *sender = self.net.connect(self.device(at), &mut handles[at])?;
                }
                if receiver.is_none() {
                    *receiver = self.net.accept(&self.listening[at])?;
                }
            }
            thread::sleep(PAUSE);
        }
        let both = |(sender, receiver): (Option<_>, Option<_>)| sender.zip(receiver);
        let ends = ends.into_iter().filter_map(both).enumerate();
        let lanes = ends.map(|(at, ends)| Ok(self.lane(at, ends)?));
        lanes.collect::<Result<_, Failed>>().map(Some)
    }

    fn drive(&self, lane: &mut Lane, totals: &mut Totals) -> Result<bool, Failed> {
        Ok(lane.drive(&self.net, totals)?)
    }

    fn close(&mut self, lanes: Vec<Lane>) -> Result<(), Failed> {
        let net = &self.net;
        for lane in lanes {
            for outgoing in lane.outgoing.into_iter().flatten() {
                net.deregister_from_sender(&lane.sender, outgoing.registered)?;
            }
            for registered in lane.incoming.into_iter().flat_map(|it| it.registered) {
                net.deregister_from_receiver(&lane.receiver, registered)?;
            }
            net.close_sender(lane.sender)?;
            net.close_receiver(lane.receiver)?;
        }
        for end in self.listening.drain(..) {
            net.close_listener(end)?;
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failed> {
        Ok(self.net.finalize()?)
    }
}

impl Proxy {
    fn device(&self, channel: usize) -> i32 {
        self.devices[channel % self.devices.len()]
    }

    fn lane(&self, at: usize, (sender, receiver): (Sender, Receiver)) -> Result<Lane, CallError> {
        let net = &self.net;
        // Every other channel receives two messages at a time.
        let group = 1 + at % 2;
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
        let (own, theirs) = self.host.position.patterns(at);
        Ok(Lane {
            sender,
            receiver,
            own,
            theirs,
            outgoing,
            incoming,
            pacer: self.host.position.pacer(),
            posted: 0,
            arrivals: Arrivals::new(),
        })
    }
}

impl Channel for Lane {
    fn arrivals(&mut self) -> &mut Arrivals {
        &mut self.arrivals
    }

    fn is_at_rest(&self) -> bool {
        let mut outgoing = self.outgoing.iter().flatten();
        outgoing.all(|it| it.request.is_none())
            && self.incoming.iter().all(|it| it.request.is_none())
    }
}

impl Lane {
    fn drive(&mut self, net: &Net, totals: &mut Totals) -> Result<bool, CallError> {
        let mut has_moved = self.post(net)?;
        has_moved |= self.send(net)?;
        let step = self.arrivals.received;
        let incoming = &mut self.incoming[slot(step)];
        if let Some(request) = &incoming.request
            && let Some(sizes) = net.test(request)?
        {
            incoming.request = None;
            for (part, registered) in incoming.registered.iter().enumerate() {
                let size = usize::try_from(sizes[part]).unwrap_or(0);
                let (words, all) = (size / 8, registered.buffer.bytes() / 8);
                let word = self.theirs.word(step, part);
                totals.bytes += size as u64;
                totals.wrong_words +=
                    registered.buffer.differing(0..words, word) + (all - words) as u64;
            }
            self.arrivals.step();
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Posts receives as long as there is room in the window.
    fn post(&mut self, net: &Net) -> Result<bool, CallError> {
        let mut has_moved = false;
        while self.posted < self.arrivals.received + WINDOW as u64 {
            let incoming = &mut self.incoming[slot(self.posted)];
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

    /// Begins the sends of the next step, and drives those of earlier ones.
    fn send(&mut self, net: &Net) -> Result<bool, CallError> {
        let mut has_moved = false;
        let is_free = |it: &Outgoing| it.request.is_none() && !it.is_due;
        let next = &self.outgoing[slot(self.pacer.filled)];
        if next.iter().all(is_free)
            && let Some(step) = self.pacer.begin(&self.arrivals)
        {
            for (part, outgoing) in self.outgoing[slot(step)].iter_mut().enumerate() {
                outgoing.registered.buffer.fill(self.own.word(step, part));
                outgoing.is_due = true;
            }
        }
        // The oldest step first: messages leave in order.
        'due: for step in self.pacer.window() {
            for (part, outgoing) in self.outgoing[slot(step)].iter_mut().enumerate() {
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
}

/// The place of a step in the window.
fn slot(step: u64) -> usize {
    (step % WINDOW as u64) as usize
}

fn handle(text: &str) -> Handle {
    let mut handle = Handle([0; Handle::BYTES]);
    for (place, byte) in handle.0.iter_mut().zip(of_hex(text)) {
        *place = byte;
    }
    handle
}
