//! Two devices of this process that do the work of [`bare`](crate::bare), through their own verbs.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_device::{
    AccessFlags, Buffer, Completion, CqId, Memory, MrInfo, Mtu, PdId, QpAttr, QpCap, QpInit,
    QpType, SendFlags, SendOp, SendTo, SendWr, SettingError, Sge, Sges, VerbsError, WcStatus,
};
use ferroce_registry::{DeviceSpec, LinkSetting, Registry, RegistryError};
use ferroce_runtime::{AttachOptions, Device, DeviceConfig, Endpoint, OpenError};
use ferroce_wire::{Psn, Qpn};

use crate::bare::{Contention, Latency, PingPong, Stream, Throughput};
use crate::private_directory;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No directory of devices.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// No room for one.
    #[error(
        "cannot make a directory for the devices: {0}; set FERROCE_DIR to a writable one of yours"
    )]
    Directory(#[source] std::io::Error),
    /// A verb was refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A WRITE failed.
    #[error("a WRITE ended with {}", .0.name())]
    Failed(WcStatus),
    /// A setting was refused.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The path MTU is none of the five.
    #[error("path MTU {0}: give 256, 512, 1024, 2048 or 4096")]
    Mtu(usize),
    /// No thread for the target.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The target does not hold what was sent.
    #[error("the data arrived damaged")]
    Damaged,
    /// A message did not arrive.
    #[error("a message did not arrive within {} seconds", PATIENCE.as_secs())]
    Silent,
    /// The other side has ended the measurement.
    #[error("the measurement has ended")]
    Stopped,
}

/// Two connected sides.
struct Pair {
    near: Side,
    far: Side,
}

/// One side: a device, a queue pair, a registered buffer.
#[derive(Debug)]
pub struct Side {
    /// The device.
    pub device: Device,
    /// Where its requests complete.
    pub cq: CqId,
    /// The queue pair.
    pub qpn: Qpn,
    /// Its memory.
    pub buffer: Buffer,
    /// The buffer as the device knows it.
    pub mr: MrInfo,
}

impl Side {
    /// A device on UDP sockets, with room for `outstanding` requests and a buffer of `bytes`.
    ///
    /// # Errors
    /// Returns an error when the device cannot be opened.
    pub fn open(last_octet: u8, bytes: usize, outstanding: usize) -> Result<Self, Error> {
        Self::on(device(last_octet)?, bytes, outstanding)
    }

    /// The same on a device that is open.
    ///
    /// # Errors
    /// Returns an error when a verb is refused.
    pub fn on(device: Device, bytes: usize, outstanding: usize) -> Result<Self, Error> {
        let buffer = Buffer::zeroed(bytes);
        let depth = u32::try_from(outstanding.max(1)).unwrap_or(u32::MAX);
        let (cq, qpn, mr) = device.with(|hca| -> Result<_, VerbsError> {
            let pd = hca.alloc_pd()?;
            let cq = hca.create_cq(depth)?;
            let mr = hca.reg_mr(pd, Memory::Buffer(buffer.clone()), AccessFlags::all())?;
            Ok((cq, hca.create_qp(&queue_pair(pd, cq, depth))?, mr))
        })?;
        Ok(Self {
            device,
            cq,
            qpn,
            buffer,
            mr,
        })
    }

    fn endpoint(&self) -> Endpoint {
        endpoint(&self.device, self.qpn)
    }
}

/// A device at an address of this process's own.
///
/// # Errors
/// Returns an error when the address is in use.
pub fn device(last_octet: u8) -> Result<Device, OpenError> {
    Device::open(DeviceConfig::new(address(last_octet)))
}

fn address(last_octet: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | high & 63, low, last_octet).into()
}

/// What carries the packets between the two devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// UDP sockets.
    Udp,
    /// Rings in shared memory.
    Shm,
}

/// A queue pair with room for `depth` requests, which complete if they say so.
pub fn queue_pair(pd: PdId, cq: CqId, depth: u32) -> QpInit {
    let cap = QpCap {
        max_send_wr: depth,
        ..QpCap::default()
    };
    QpInit {
        cap,
        signal_all: false,
        ..QpInit::new(QpType::Rc, pd, cq)
    }
}

/// What the peer of a queue pair is told of it.
pub fn endpoint(device: &Device, qpn: Qpn) -> Endpoint {
    Endpoint {
        address: device.address().ip(),
        qpn,
        psn: Psn::new(1),
    }
}

fn pair(carrier: Carrier, bytes: usize, mtu: Mtu, outstanding: usize) -> Result<Pair, Error> {
    let (near, far, directory) = match carrier {
        Carrier::Udp => (
            Side::open(1, bytes, outstanding)?,
            Side::open(2, bytes, outstanding)?,
            None,
        ),
        Carrier::Shm => {
            let directory = private_directory().map_err(Error::Directory)?;
            let registry = Registry::at(directory.path())?;
            let open = |name: &str, last_octet| {
                registry.add(&DeviceSpec {
                    link: LinkSetting::Shm,
                    ..DeviceSpec::new(name, address(last_octet))
                })?;
                let device = Device::attach(&registry, name, AttachOptions::default())?;
                Side::on(device, bytes, outstanding)
            };
            (open("a", 1)?, open("b", 2)?, Some(directory))
        }
    };
    connect(&near, &far, mtu)?;
    if let Some(directory) = directory {
        // Once packets go both ways, the devices look for nothing in it any more: if this process is killed
        // later, nothing is left.
        greet(&near, &far)?;
        directory.close().map_err(Error::Directory)?;
    }
    Ok(Pair { near, far })
}

/// Sends a WRITE of nothing, which is acknowledged.
fn greet(from: &Side, to: &Side) -> Result<(), Error> {
    let op = SendOp::Write {
        va: to.mr.va,
        rkey: to.mr.key.rkey(),
        imm: None,
    };
    let nothing = Sge {
        addr: from.mr.va,
        length: 0,
        lkey: from.mr.key.lkey(),
    };
    from.device
        .post_send(from.qpn, [SendWr::new(0, op, nothing)])?;
    let since = Instant::now();
    let mut completions = Vec::new();
    while completions.is_empty() {
        if since.elapsed() > PATIENCE {
            return Err(Error::Silent);
        }
        to.device.progress();
        from.device.poll(from.cq, 1, &mut completions)?;
    }
    check(&completions)
}

/// Connects the queue pairs of two sides.
///
/// # Errors
/// Returns an error when a device refuses.
pub fn connect(a: &Side, b: &Side, mtu: Mtu) -> Result<(), Error> {
    let attr = attributes(mtu);
    a.device.connect(a.endpoint(), b.endpoint(), &attr)?;
    b.device.connect(b.endpoint(), a.endpoint(), &attr)?;
    Ok(())
}

/// With everything allowed, and timers of 67 ms.
pub fn attributes(mtu: Mtu) -> QpAttr {
    QpAttr {
        access: AccessFlags::all(),
        path_mtu: mtu,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

/// What the requests of a stream do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Atomic addition, of messages of 8 bytes.
    FetchAdd,
}

/// Streams requests from one device to another, each polled by a thread of its own, keeping
/// `outstanding` requests posted; of READs and atomics, 16 are under way at once. The device's own
/// window holds; that of `config` is not used.
///
/// # Errors
/// Returns an error when there is no device, a request fails, or the target does not hold what it has to.
pub fn stream(
    carrier: Carrier,
    operation: Operation,
    config: &Stream,
) -> Result<Throughput, Error> {
    let mtu = u32::try_from(config.mtu_bytes)
        .ok()
        .and_then(Mtu::from_bytes);
    let mtu = mtu.ok_or(Error::Mtu(config.mtu_bytes))?;
    let pair = pair(
        carrier,
        config.message_bytes.max(REGION_BYTES),
        mtu,
        config.outstanding,
    )?;
    let (source, target) = (&pair.near, &pair.far);
    let mut requests = Requests {
        operation,
        source,
        target,
        bytes: config.message_bytes,
        count: 0,
    };
    requests.fill();
    let mut throughput = beside_poller(&target.device, || send_stream(config, &mut requests))?;
    if !requests.have_arrived() {
        return Err(Error::Damaged);
    }
    throughput.packets_per_second = throughput.messages_per_second
        * config.message_bytes.div_ceil(config.mtu_bytes).max(1) as f64;
    Ok(throughput)
}

/// Buffers of streams are this long, or one message if that is more.
const REGION_BYTES: usize = 64 << 10;

/// The requests of a stream. Messages use the buffers from their beginning to their end, again and again.
struct Requests<'a> {
    operation: Operation,
    source: &'a Side,
    target: &'a Side,
    bytes: usize,
    /// Made so far.
    count: u64,
}

impl Requests<'_> {
    fn slots(&self) -> usize {
        (self.source.buffer.len() / self.bytes).max(1)
    }

    fn data(&self) -> Vec<u8> {
        let bytes = 0..self.source.buffer.len() as u32;
        bytes
            .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8)
            .collect()
    }

    /// Writes what is to arrive at the other side.
    fn fill(&self) {
        match self.operation {
            Operation::Write => self.source.buffer.write(0, &self.data()),
            Operation::Read => self.target.buffer.write(0, &self.data()),
            Operation::FetchAdd => {}
        }
    }

    /// Whether it is there, after all requests have completed.
    fn have_arrived(&self) -> bool {
        let side = match self.operation {
            Operation::Read => self.source,
            Operation::Write | Operation::FetchAdd => self.target,
        };
        let mut found = vec![0; side.buffer.len()];
        side.buffer.read(0, &mut found);
        match self.operation {
            Operation::Write | Operation::Read => found[..self.bytes] == self.data()[..self.bytes],
            Operation::FetchAdd => {
                let words = found.as_chunks().0.iter();
                words.map(|word| u64::from_ne_bytes(*word)).sum::<u64>() == self.count
            }
        }
    }

    fn make(&mut self) -> SendWr {
        let offset = (self.count % self.slots() as u64) * self.bytes as u64;
        self.count += 1;
        let (va, rkey) = (self.target.mr.va + offset, self.target.mr.key.rkey());
        let op = match self.operation {
            Operation::Write => SendOp::Write {
                va,
                rkey,
                imm: None,
            },
            Operation::Read => SendOp::Read { va, rkey },
            Operation::FetchAdd => SendOp::FetchAdd { va, rkey, add: 1 },
        };
        let sge = Sge {
            addr: self.source.mr.va + offset,
            length: self.bytes as u32,
            lkey: self.source.mr.key.lkey(),
        };
        SendWr::new(self.count, op, sge)
    }
}

/// Runs `send` while a thread of its own polls the target, and notes how much of their time others had
/// the cores.
///
/// # Errors
/// Returns the error of `send`, and one when no thread can be started.
pub fn beside_poller(
    target: &Device,
    send: impl FnOnce() -> Result<Throughput, Error>,
) -> Result<Throughput, Error> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let poller = thread::Builder::new().name("target".into());
        let poller = poller.spawn_scoped(scope, || {
            let contention = Contention::begin();
            while !stop.load(Ordering::Relaxed) {
                target.progress();
            }
            contention.end()
        });
        let poller = poller.map_err(Error::Thread)?;
        let contention = Contention::begin();
        let sent = send();
        stop.store(true, Ordering::Relaxed);
        let waited = poller.join().expect("the poller does not panic");
        sent.map(|sent| Throughput {
            contention: contention.end().max(waited),
            ..sent
        })
    })
}

fn send_stream(config: &Stream, requests: &mut Requests<'_>) -> Result<Throughput, Error> {
    let source = requests.source;
    let mut completions = Vec::with_capacity(config.outstanding);
    let mut run = |seconds: f64, posted: &mut usize| -> Result<(u64, f64), Error> {
        let started = Instant::now();
        let length = Duration::from_secs_f64(seconds);
        let mut done = 0;
        // One message at least, or there is no rate.
        while done == 0 || started.elapsed() < length {
            let room = config.outstanding - *posted;
            if room > 0 {
                source
                    .device
                    .post_send(source.qpn, (0..room).map(|_| requests.make()))?;
                *posted += room;
            }
            completions.clear();
            source
                .device
                .poll(source.cq, config.outstanding, &mut completions)?;
            check(&completions)?;
            *posted -= completions.len();
            done += completions.len() as u64;
        }
        Ok((done, started.elapsed().as_secs_f64()))
    };
    let mut posted = 0;
    run(config.seconds / 10.0, &mut posted)?;
    let (messages, seconds) = run(config.seconds, &mut posted)?;
    let messages_per_second = messages as f64 / seconds;
    // What is still posted would be cut off with the devices.
    let mut rest = Vec::new();
    while rest.len() < posted {
        source.device.poll(source.cq, posted, &mut rest)?;
    }
    check(&rest)?;
    Ok(Throughput {
        gbps: messages_per_second * config.message_bytes as f64 * 8.0 / 1e9,
        packets_per_second: 0.0,
        messages_per_second,
        seconds,
        contention: 0.0,
    })
}

/// Whether all requests have succeeded.
///
/// # Errors
/// Returns the status of the first that has not.
pub fn check(completions: &[Completion]) -> Result<(), Error> {
    match completions.iter().find(|c| c.status != WcStatus::Success) {
        Some(failed) => Err(Error::Failed(failed.status)),
        None => Ok(()),
    }
}

/// Bounces WRITEs between two devices, each polled by a thread of its own that spins on the last word.
/// `message_bytes` is a multiple of 8; 8 bytes are posted inline.
///
/// # Errors
/// Returns an error when there is no device, a WRITE fails, or nothing arrives for a while.
pub fn ping_pong(carrier: Carrier, config: &PingPong) -> Result<Latency, Error> {
    let bytes = config.message_bytes.max(8);
    // The halves of a buffer are what its side sends and what arrives.
    let pair = pair(carrier, 2 * bytes, Mtu::Mtu4096, 64)?;
    let (near, far) = (&pair.near, &pair.far);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let contention = Contention::begin();
            let answered = (1..).try_for_each(|round| {
                await_word(far, round, &stop)?;
                write_word(far, near, round)
            });
            // The last acknowledgement may still be owed.
            far.device.progress();
            stop.store(true, Ordering::Relaxed);
            (answered, contention.end())
        });
        let contention = Contention::begin();
        let mut course = config.course();
        let sent = (0..).try_for_each(|round| {
            let started = Instant::now();
            if course.is_over(round, started) {
                return Err(Error::Stopped);
            }
            write_word(near, far, round + 1)?;
            await_word(near, round + 1, &stop)?;
            course.note(round, started);
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        let (answered, waited) = echo.join().expect("the echo does not panic");
        // Each ends because the other has, unless something has gone wrong.
        match [sent, answered]
            .into_iter()
            .filter_map(Result::err)
            .find(|error| !matches!(error, Error::Stopped))
        {
            Some(error) => Err(error),
            None => Ok(course.latency(contention.end().max(waited))),
        }
    })
}

/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until the last word of a side's buffer has a value.
fn await_word(side: &Side, value: u64, stop: &AtomicBool) -> Result<(), Error> {
    let last = side.buffer.len() - 8;
    let since = Instant::now();
    for look in 1_u64.. {
        if side.buffer.load(last) == value {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        // Reading the clock costs more than a look.
        if look.is_multiple_of(1024) && since.elapsed() > PATIENCE {
            break;
        }
        side.device.progress();
    }
    Err(Error::Silent)
}

fn write_word(from: &Side, to: &Side, value: u64) -> Result<(), Error> {
    // A completion now and then keeps the queue from filling up.
    let mut flags = SendFlags::default();
    if value.is_multiple_of(16) {
        flags |= SendFlags::SIGNALED;
    }
    let bytes = from.buffer.len() / 2;
    let word = value.to_ne_bytes();
    let (inline, sges) = match bytes {
        8 => {
            flags |= SendFlags::INLINE;
            (Some(word[..].into()), Sges::new())
        }
        _ => {
            from.buffer.write(bytes - 8, &word);
            let sge = Sge {
                addr: from.mr.va,
                length: bytes as u32,
                lkey: from.mr.key.lkey(),
            };
            (None, Sges::from_iter([sge]))
        }
    };
    let request = SendWr {
        wr_id: value,
        op: SendOp::Write {
            va: to.mr.va + bytes as u64,
            rkey: to.mr.key.rkey(),
            imm: None,
        },
        flags,
        sges,
        inline,
        to: SendTo::Peer,
    };
    from.device.post_send(from.qpn, [request])?;
    if value.is_multiple_of(16) {
        let mut completions = Vec::new();
        from.device.poll(from.cq, 16, &mut completions)?;
        check(&completions)?;
    }
    Ok(())
}
