//! A program of a round: a process of its own on one of the round's devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use ferroce_device::{Completion, CqId, Hca, PdId, VerbsError};
use ferroce_registry::Registry;
use ferroce_runtime::{AttachOptions, Device};
use ferroce_wire::Qpn;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::flow::{Failed, Flow, Wrong};
use super::protocol::{End, Order, Report, Tally, tell};
use crate::output::Failure;

/// Completions that a queue has room for.
const COMPLETIONS: u32 = 1 << 14;
/// How the names of files end that hold the state of devices.
const STATE: &str = ".state";
/// How long a program sleeps at most, if nothing completes, before it looks for orders.
const PAUSE: Duration = Duration::from_millis(1);

/// What a program has on its device.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) device: Device,
    pub(super) pd: PdId,
    pub(super) cq: CqId,
}

#[derive(Debug)]
struct Program {
    site: Site,
    flows: BTreeMap<End, Flow>,
    by_qpn: BTreeMap<Qpn, End>,
    /// Ends whose last requests are waited for.
    draining: Vec<End>,
}

/// Why a program ends.
enum Stop {
    /// It shall leave.
    Left,
    /// The director has ended, so that nothing is left to do.
    Alone,
    Wrong(Wrong),
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Alone
    }
}

impl From<VerbsError> for Stop {
    fn from(error: VerbsError) -> Self {
        Self::Wrong(Wrong::new("call", error.to_string()))
    }
}

/// Does what the director orders, until that ends.
pub(super) fn run(directory: &Path, device: &str, card_process: bool) -> Result<(), Failure> {
    // A round that is killed leaves no program.
    let _ = set_pdeathsig(Signal::SIGKILL);
    let orders = orders();
    let attach = || Program::attach(directory, device, card_process).map_err(Failure::broken);
    // What the first opening of a process makes, stays for the others.
    drop(attach()?);
    let before = Held::now();
    let mut program = attach()?;
    let stop = match tell(&Report::Attached) {
        Ok(()) => program.work(&orders),
        Err(_) => Stop::Alone,
    };
    drop(program);
    let report = match stop {
        Stop::Left => {
            let after = Held::now();
            Report::Left {
                kept: after.beyond(before),
            }
        }
        Stop::Wrong(wrong) => wrong.report(),
        Stop::Alone => return Ok(()),
    };
    // Without the director, nothing is left to tell.
    let _ = tell(&report);
    Ok(())
}

/// The director's orders. They end when it does.
fn orders() -> Receiver<Order> {
    let (to, orders) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let order = line.ok().and_then(|it| serde_json::from_str(&it).ok());
            if order.is_none_or(|order| to.send(order).is_err()) {
                return;
            }
        }
    });
    orders
}

/// What a process holds that its device may have left, by what it is: files that are open, and memory that is shared
/// with other processes.
struct Held(Vec<String>);

impl Held {
    fn now() -> Self {
        let open = fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let open = open.filter_map(|it| Some(fs::read_link(it.path()).ok()?.display().to_string()));
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        // proc(5): addresses, permissions with the way of sharing last, offset, device, inode, path.
        let shared = maps.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let permissions = words.next()?;
            let path = words.nth(3).unwrap_or("memory");
            permissions.ends_with('s').then(|| format!("map of {path}"))
        });
        Self(open.chain(shared).collect())
    }

    /// What is held now and was not before. A process keeps one mapping of the state of each device that it has met.
    fn beyond(self, before: Self) -> Vec<String> {
        let mut more = self.0;
        let mut met = BTreeSet::new();
        more.retain(|held| !held.ends_with(STATE) || !met.insert(held.clone()));
        for held in before.0.into_iter().filter(|it| !it.ends_with(STATE)) {
            if let Some(at) = more.iter().position(|it| *it == held) {
                more.swap_remove(at);
            }
        }
        more
    }
}

impl Program {
    fn attach(directory: &Path, device: &str, card_process: bool) -> Result<Self, String> {
        let registry = Registry::at(directory).map_err(|error| error.to_string())?;
        let options = AttachOptions {
            card_process,
            ..AttachOptions::default()
        };
        let device =
            Device::attach(&registry, device, options).map_err(|error| error.to_string())?;
        let make =
            |hca: &mut Hca| Ok::<_, VerbsError>((hca.alloc_pd()?, hca.create_cq(COMPLETIONS)?));
        let (pd, cq) = device.with(make).map_err(|error| error.to_string())?;
        Ok(Self {
            site: Site { device, pd, cq },
            flows: BTreeMap::new(),
            by_qpn: BTreeMap::new(),
            draining: Vec::new(),
        })
    }

    fn work(&mut self, orders: &Receiver<Order>) -> Stop {
        let mut out = Vec::new();
        loop {
            let order = match orders.try_recv() {
                Ok(order) => Some(order),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return Stop::Alone,
            };
            let pause = if order.is_some() {
                Duration::ZERO
            } else {
                PAUSE
            };
            let done = order
                .map_or(Ok(()), |order| self.follow(order))
                .and_then(|()| self.turn(&mut out, pause));
            if let Err(stop) = done {
                return stop;
            }
        }
    }

    /// Takes what has completed, and posts more.
    fn turn(&mut self, out: &mut Vec<Completion>, pause: Duration) -> Result<(), Stop> {
        let Site { device, cq, .. } = &self.site;
        if device.has_failed() {
            return Err(Wrong::new("failed", "the device has failed".to_owned()).into());
        }
        out.clear();
        device.wait(*cq, COMPLETIONS as usize, out, pause)?;
        for done in out.iter() {
            self.complete(done)?;
        }
        for flow in self.flows.values_mut() {
            flow.fill(&self.site.device)?;
        }
        let is_drained = |end: &End| self.flows.get(end).is_none_or(Flow::is_drained);
        let (drained, draining) = self
            .draining
            .iter()
            .partition::<Vec<End>, _>(|it| is_drained(it));
        self.draining = draining;
        for end in drained {
            tell(&Report::Drained(end))?;
        }
        Ok(())
    }

    fn complete(&mut self, done: &Completion) -> Result<(), Stop> {
        // Its queue pair has failed at an earlier completion of this turn, and is gone.
        let Some(end) = self.by_qpn.get(&done.qpn).copied() else {
            return Ok(());
        };
        let Some(flow) = self.flows.get_mut(&end) else {
            return Ok(());
        };
        let failed = flow
            .complete(&self.site.device, done)
            .map_err(|wrong| wrong.of(end))?;
        if let Some(Failed { status, vendor_err }) = failed {
            let tally = self.close(end)?.unwrap_or_default();
            tell(&Report::Broken {
                end,
                status: status.name().to_owned(),
                vendor_err,
                tally,
            })?;
        }
        Ok(())
    }

    fn follow(&mut self, order: Order) -> Result<(), Stop> {
        let device = &self.site.device;
        match order {
            Order::Open(end, terms) => {
                let flow = Flow::open(&self.site, end.side, terms)?;
                let place = flow.place(device);
                self.by_qpn.insert(flow.qpn, end);
                self.flows.insert(end, flow);
                tell(&Report::Opened(end, place))?;
            }
            Order::Connect(end, peer) => {
                if let Some(flow) = self.flows.get_mut(&end) {
                    flow.connect(device, peer)?;
                    tell(&Report::Connected(end))?;
                }
            }
            Order::Begin(end) => {
                if let Some(flow) = self.flows.get_mut(&end) {
                    flow.send(true);
                }
            }
            Order::Drain(end) => {
                if let Some(flow) = self.flows.get_mut(&end) {
                    flow.send(false);
                    self.draining.push(end);
                }
            }
            Order::Close(end) => {
                // What the peer has sent is here, as it was acknowledged.
                self.turn(&mut Vec::new(), Duration::ZERO)?;
                if let Some(tally) = self.close(end)? {
                    tell(&Report::Closed(end, tally))?;
                }
            }
            Order::Leave => return Err(Stop::Left),
        }
        Ok(())
    }

    /// Destroys what one end has; answers what has happened at it.
    fn close(&mut self, end: End) -> Result<Option<Tally>, Stop> {
        let Some(flow) = self.flows.remove(&end) else {
            return Ok(None);
        };
        self.by_qpn.remove(&flow.qpn);
        flow.check_guards().map_err(|wrong| wrong.of(end))?;
        let tally = flow.tally();
        flow.close(&self.site.device)?;
        Ok(Some(tally))
    }
}
