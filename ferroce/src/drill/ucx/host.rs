//! A host of a drill with UCX: a worker, and an endpoint for each channel.

use std::mem;
use std::sync::mpsc::Receiver as Orders;
use std::time::{Duration, Instant};

use clap::Args;
use ferroce_ucx::{CallError, Endpoint, Library, Worker};

use super::put::{Inbox, Put};
use super::tag::Tag;
use super::{Errors, Operation};
use crate::drill::protocol::Order;
use crate::drill::worker::{
    Arrivals, Channel, Failed, Pacer, Pattern, Position, Ring, Totals, next, of_hex, serve, to_hex,
};
use crate::output::{Failure, Output};

/// How long endpoints may take to close.
const CLOSING: Duration = Duration::from_secs(1);

/// Send and receive as a host of a drill; the drill starts it
#[derive(Args, Debug)]
pub(crate) struct Host {
    #[command(flatten)]
    position: Position,
    /// What channels use
    #[arg(long, value_enum, default_value_t = Operation::Tag)]
    operation: Operation,
    /// The error mode of endpoints
    #[arg(long, value_enum, default_value_t = Errors::Peer)]
    errors: Errors,
}

impl Host {
    pub(crate) fn run(self, _: &mut Output<'_>) -> Result<(), Failure> {
        let library = Library::load(&self.position.library);
        let version = |it: &Library| it.version().to_string();
        let (library, orders) = self.position.begin(library, version);
        serve(&orders, || {
            Ok(Peer {
                host: self,
                library,
                worker: None,
                inboxes: Vec::new(),
            })
        })
    }
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self {
            call: error.call,
            code: error.code,
            name: error.name,
        }
    }
}

/// UCX's part of a host.
struct Peer {
    host: Host,
    library: Library,
    /// From when the host listens on.
    worker: Option<Worker>,
    /// What the host before writes into.
    inboxes: Vec<Inbox>,
}

/// An endpoint to the next host, and what comes from the host before.
pub(super) struct Lane {
    link: Link,
    flow: Flow,
}

/// What every lane has.
pub(super) struct Link {
    pub(super) endpoint: Endpoint,
    pub(super) own: Pattern,
    pub(super) theirs: Pattern,
    pub(super) pacer: Pacer,
    pub(super) arrivals: Arrivals,
}

/// How a lane sends and receives.
enum Flow {
    Tag(Tag),
    Put(Put),
}

impl Ring for Peer {
    type Channel = Lane;

    fn listen(&mut self) -> Result<Vec<String>, Failed> {
        let position = &self.host.position;
        // Messages of before must not be taken for new ones. An old worker stays: what was posted to it
        // holds on to it.
        let worker = Worker::new(self.library, position.channels)?;
        let address = to_hex(&worker.address()?);
        let mut handles = Vec::new();
        for _ in 0..position.channels {
            let key = match self.host.operation {
                Operation::Tag => Vec::new(),
                Operation::Put => {
                    let inbox = Inbox::new(&worker, position.hosts)?;
                    let key = worker.key(&inbox.region)?;
                    self.inboxes.push(inbox);
                    key
                }
            };
            handles.push(format!("{address}.{}", to_hex(&key)));
        }
        self.worker = Some(worker);
        Ok(handles)
    }

    fn connect(
        &mut self,
        handles: &[String],
        orders: &Orders<Order>,
    ) -> Result<Option<Vec<Lane>>, Failed> {
        let mut inboxes = mem::take(&mut self.inboxes).into_iter();
        let worker = self.worker();
        let mut lanes = Vec::new();
        for (at, handle) in handles.iter().enumerate() {
            let (address, key) = handle.split_once('.').unwrap_or((handle, ""));
            let endpoint = worker.connect(&of_hex(address), self.host.errors.mode())?;
            let flow = match inboxes.next() {
                None => Flow::Tag(Tag::greet(worker, &endpoint, at)?),
                Some(inbox) => Flow::Put(Put::greet(worker, &endpoint, inbox, &of_hex(key))?),
            };
            let (own, theirs) = self.host.position.patterns(at);
            let link = Link {
                endpoint,
                own,
                theirs,
                pacer: self.host.position.pacer(),
                arrivals: Arrivals::new(),
            };
            lanes.push(Lane { link, flow });
        }
        // UCX connects when there is something to send.
        let mut waiting: Vec<&mut Lane> = lanes.iter_mut().collect();
        while !waiting.is_empty() {
            if next(orders).is_some() {
                return Ok(None);
            }
            worker.progress();
            let mut left = Vec::new();
            for lane in waiting {
                worker.check(&lane.link.endpoint)?;
                let has_greeted = match &mut lane.flow {
                    Flow::Tag(flow) => flow.has_greeted(worker)?,
                    Flow::Put(flow) => flow.has_greeted(worker)?,
                };
                if !has_greeted {
                    left.push(lane);
                }
            }
            waiting = left;
        }
        for lane in &mut lanes {
            lane.link.arrivals = Arrivals::new();
        }
        Ok(Some(lanes))
    }

    fn drive(&self, lane: &mut Lane, totals: &mut Totals) -> Result<bool, Failed> {
        let worker = self.worker();
        let Lane { link, flow } = lane;
        let has_progressed = worker.progress();
        worker.check(&link.endpoint)?;
        let has_moved = match flow {
            Flow::Tag(flow) => flow.drive(worker, link, totals)?,
            Flow::Put(flow) => flow.drive(worker, link, totals)?,
        };
        Ok(has_progressed || has_moved)
    }

    fn close(&mut self, lanes: Vec<Lane>) -> Result<(), Failed> {
        let worker = self.worker();
        let mut closing = Vec::new();
        for lane in lanes {
            // Its buffers stay: what was posted may still write into them.
            mem::forget(lane.flow);
            closing.push(worker.close(lane.link.endpoint)?);
        }
        let until = Instant::now() + CLOSING;
        while !closing.is_empty() && Instant::now() < until {
            worker.progress();
            closing.retain_mut(|it| worker.is_complete(it) == Ok(false));
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failed> {
        if let Some(worker) = self.worker {
            worker.destroy();
        }
        Ok(())
    }
}

impl Peer {
    fn worker(&self) -> &Worker {
        self.worker.as_ref().expect("a host listens first")
    }
}

impl Channel for Lane {
    fn arrivals(&mut self) -> &mut Arrivals {
        &mut self.link.arrivals
    }

    fn is_at_rest(&self) -> bool {
        match &self.flow {
            Flow::Tag(flow) => flow.is_at_rest(),
            Flow::Put(flow) => flow.is_at_rest(),
        }
    }
}
