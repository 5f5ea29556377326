//! A queue pair held at a rate by congestion control: how well it keeps to it, and at what cost.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use ferroce_dcqcn::Params;
use ferroce_device::{Counter, Direction, Impairment, Mtu, SendOp, SendWr, SettingError, Sge};

use ferroce_bench::pair::{Error, Side, check, connect};

/// Requests posted at a time.
const OUTSTANDING: usize = 64;
/// How long it sends before it is looked at.
const WARM_UP: Duration = Duration::from_millis(300);

/// What was seen of a held queue pair.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Paced {
    /// The rate that was set, Mb/s.
    pub set_mbps: u32,
    /// The rate at which packets left, from the BTH to the ICRC, Mb/s.
    pub seen_mbps: f64,
    /// Packets per second.
    pub packets: f64,
    /// Packets that were sent again, from the start on: on loopback nothing should be lost.
    pub repeated: u64,
    /// CPU time of the sender for each second.
    pub sender_cpu: f64,
    /// CPU time of the receiver for each second.
    pub receiver_cpu: f64,
}

/// Sends WRITEs from one device to another for some seconds. The first CNP limits the queue pair
/// to `mbps`, where it stays. The program sleeps until its completions come.
pub fn pace(mbps: u32, seconds: f64) -> Result<Paced, Error> {
    let mut stream = Stream::open(mbps)?;
    stream.limit()?;
    stream.send_for(WARM_UP)?;

    let sent = stream.sent();
    let cpu = [&stream.sender, &stream.receiver].map(|threads| threads.cpu());
    let started = Instant::now();
    stream.send_for(Duration::from_secs_f64(seconds))?;
    let elapsed = started.elapsed();
    let cpu_after = [&stream.sender, &stream.receiver].map(|threads| threads.cpu());
    let [frames, packets] = [0, 1].map(|at| stream.sent()[at] - sent[at]);
    let repeated = stream
        .source
        .device
        .state()
        .counter(Counter::RetransmittedPackets);
    stream.finish()?;

    let per_second = |amount: f64| amount / elapsed.as_secs_f64();
    let [sender_cpu, receiver_cpu] =
        [0, 1].map(|at| per_second((cpu_after[at] - cpu[at]).as_secs_f64()));
    Ok(Paced {
        set_mbps: mbps,
        seen_mbps: per_second(frames as f64 * 8e-6),
        packets: per_second(packets as f64),
        repeated,
        sender_cpu,
        receiver_cpu,
    })
}

/// WRITEs from one device to another.
struct Stream {
    source: Side,
    target: Side,
    message: u32,
    posted: usize,
    messages: u64,
    sender: Threads,
    receiver: Threads,
}

impl Stream {
    fn open(mbps: u32) -> Result<Self, Error> {
        // A message takes some milliseconds, so that completions are no load of their own.
        let message = (mbps * 1_000).clamp(16 << 10, 1 << 20);
        let mut stream = {
            let source = Side::open(3, message as usize, OUTSTANDING)?;
            let sender = Threads::all();
            let target = Side::open(4, message as usize, OUTSTANDING)?;
            let receiver = Threads::all().without(&sender);
            connect(&source, &target, Mtu::Mtu4096)?;
            Self {
                source,
                target,
                message,
                posted: 0,
                messages: 0,
                sender,
                receiver,
            }
        };
        stream.hold_at(mbps)?;
        Ok(stream)
    }

    /// The first CNP sets the rate, others cut nothing, and 31 periods pass before it rises.
    fn hold_at(&mut self, mbps: u32) -> Result<(), Error> {
        let change = |params: &mut Params| -> Result<(), SettingError> {
            for (name, value) in [
                ("rate_to_set_on_first_cnp", mbps),
                ("rpg_min_dec_fac", 100),
                ("rpg_time_reset", 131_071),
                ("rpg_byte_reset", 0),
                ("rpg_threshold", 31),
            ] {
                params
                    .assign(&format!("{name}={value}"))
                    .expect("known and in range");
            }
            Ok(())
        };
        Ok(self.source.device.state().change_congestion(change)?)
    }

    /// Marks packets until the queue pair is limited.
    fn limit(&mut self) -> Result<(), Error> {
        self.mark(1.0)?;
        while !self.is_limited() {
            self.send_for(Duration::from_millis(1))?;
        }
        self.mark(0.0)
    }

    fn mark(&self, share: f64) -> Result<(), Error> {
        let link = Impairment {
            ecn_mark: share,
            ..Impairment::default()
        };
        let state = self.target.device.state();
        Ok(state.set_impairment(Direction::Ingress, link)?)
    }

    fn is_limited(&self) -> bool {
        let (device, qpn) = (&self.source.device, self.source.qpn);
        let now = device.now();
        device.with(|hca| hca.rate_limit(qpn, now).is_some())
    }

    fn send_for(&mut self, length: Duration) -> Result<(), Error> {
        let started = Instant::now();
        while let Some(left) = length.checked_sub(started.elapsed()) {
            let requests = (self.posted..OUTSTANDING).map(|_| self.request());
            let requests: Vec<_> = requests.collect();
            self.posted += requests.len();
            self.source.device.post_send(self.source.qpn, requests)?;
            self.complete(left)?;
        }
        Ok(())
    }

    fn request(&self) -> SendWr {
        let op = SendOp::Write {
            va: self.target.mr.va,
            rkey: self.target.mr.key.rkey(),
            imm: None,
        };
        let sge = Sge {
            addr: self.source.mr.va,
            length: self.message,
            lkey: self.source.mr.key.lkey(),
        };
        SendWr::new(0, op, sge)
    }

    fn complete(&mut self, patience: Duration) -> Result<(), Error> {
        let (device, mut completions) = (&self.source.device, Vec::new());
        device.wait(self.source.cq, OUTSTANDING, &mut completions, patience)?;
        check(&completions)?;
        self.posted -= completions.len();
        self.messages += completions.len() as u64;
        Ok(())
    }

    /// Bytes from the BTH to the ICRC, and packets, so far.
    fn sent(&self) -> [u64; 2] {
        let state = self.source.device.state();
        let packets = state.counter(Counter::RdmaTxPackets);
        // BTH and ICRC of each, and the RETH of each first one.
        let headers = 16 * packets + 16 * self.messages;
        [state.counter(Counter::RdmaTxBytes) + headers, packets]
    }

    /// Lets out at full speed what is still posted: it would be cut off with the devices.
    fn finish(mut self) -> Result<(), Error> {
        let off = |params: &mut Params| -> Result<(), SettingError> {
            params.assign("enable/0=0").expect("known and in range");
            Ok(())
        };
        self.source.device.state().change_congestion(off)?;
        while self.posted > 0 {
            self.complete(Duration::from_secs(1))?;
        }
        Ok(())
    }
}

/// Threads of this process, by number.
struct Threads(BTreeSet<String>);

impl Threads {
    fn all() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
        let names = tasks.flatten().map(|task| task.file_name());
        Self(names.filter_map(|name| name.into_string().ok()).collect())
    }

    fn without(mut self, others: &Self) -> Self {
        self.0.retain(|thread| !others.0.contains(thread));
        self
    }

    /// CPU time that they have used.
    fn cpu(&self) -> Duration {
        let ns = |thread: &String| -> Option<u64> {
            let path = format!("/proc/self/task/{thread}/schedstat");
            let line = fs::read_to_string(path).ok()?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        Duration::from_nanos(self.0.iter().filter_map(ns).sum())
    }
}
