//! Runs the work of [`bare`](crate::bare) on the device, through its own verbs, for comparison.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
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
use hdrhistogram::Histogram;
use tempfile::TempDir;

use crate::bare::{Contention, Latency, PingPong, Stream, Throughput};

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
    #[error("cannot make a directory: {0}")]
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
}

/// Two sides, and the directory of their devices if they have one.
struct Pair {
    near: Side,
    far: Side,
    _directory: Option<TempDir>,
}

/// One side: a device, a queue pair, a registered buffer.
pub(crate) struct Side {
    pub(crate) device: Device,
    pub(crate) cq: CqId,
    pub(crate) qpn: Qpn,
    buffer: Buffer,
    pub(crate) mr: MrInfo,
}

impl Side {
    pub(crate) fn open(last_octet: u8, bytes: usize, outstanding: usize) -> Result<Self, Error> {
        Self::on(device(last_octet)?, bytes, outstanding)
    }

    fn on(device: Device, bytes: usize, outstanding: usize) -> Result<Self, Error> {
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

/// A device at an address of this run's own.
pub(crate) fn device(last_octet: u8) -> Result<Device, OpenError> {
    Device::open(DeviceConfig::new(address(last_octet)))
}

fn address(last_octet: u8) -> IpAddr {
    let run = std::process::id() as u8;
    IpAddr::V4(Ipv4Addr::new(127, 98, run, last_octet))
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
pub(crate) fn queue_pair(pd: PdId, cq: CqId, depth: u32) -> QpInit {
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
pub(crate) fn endpoint(device: &Device, qpn: Qpn) -> Endpoint {
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
            let private = Permissions::from_mode(0o700);
            let directory = tempfile::Builder::new().permissions(private).tempdir();
            let directory = directory.map_err(Error::Directory)?;
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
    Ok(Pair {
        near,
        far,
        _directory: directory,
    })
}

pub(crate) fn connect(a: &Side, b: &Side, mtu: Mtu) -> Result<(), Error> {
    let attr = attributes(mtu);
    a.device.connect(a.endpoint(), b.endpoint(), &attr)?;
    b.device.connect(b.endpoint(), a.endpoint(), &attr)?;
    Ok(())
}

/// With everything allowed, and timers of 67 ms.
pub(crate) fn attributes(mtu: Mtu) -> QpAttr {
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

/// Streams WRITEs from one device to another, each polled by a thread of its own, keeping
/// `outstanding` requests posted. The device's own window holds; that of `config` is not used.
pub fn stream(carrier: Carrier, config: &Stream) -> Result<Throughput, Error> {
    let mtu = u32::try_from(config.mtu_bytes)
        .ok()
        .and_then(Mtu::from_bytes);
    let mtu = mtu.ok_or(Error::Mtu(config.mtu_bytes))?;
    let bytes = config.message_bytes.max(64 << 10);
    let pair = pair(carrier, bytes, mtu, config.outstanding)?;
    let (source, target) = (&pair.near, &pair.far);
    let data: Vec<u8> = (0..bytes as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect();
    source.buffer.write(0, &data);
    let mut throughput = beside_poller(&target.device, || send_stream(config, source, target))?;
    let mut arrived = vec![0; config.message_bytes];
    target.buffer.read(0, &mut arrived);
    if arrived != data[..config.message_bytes] {
        return Err(Error::Damaged);
    }
    throughput.packets_per_second = throughput.messages_per_second
        * config.message_bytes.div_ceil(config.mtu_bytes).max(1) as f64;
    Ok(throughput)
}

/// Runs `send` while a thread of its own polls the target, and notes how much of their time others had
/// the cores.
pub(crate) fn beside_poller(
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

fn send_stream(config: &Stream, source: &Side, target: &Side) -> Result<Throughput, Error> {
    let slots = (source.buffer.len() / config.message_bytes).max(1);
    let mut next = 0;
    let mut request = || {
        let offset = (next % slots * config.message_bytes) as u64;
        next += 1;
        let op = SendOp::Write {
            va: target.mr.va + offset,
            rkey: target.mr.key.rkey(),
            imm: None,
        };
        let sge = Sge {
            addr: source.mr.va + offset,
            length: config.message_bytes as u32,
            lkey: source.mr.key.lkey(),
        };
        SendWr::new(next as u64, op, sge)
    };
    let mut completions = Vec::with_capacity(config.outstanding);
    let mut run = |seconds: f64, posted: &mut usize| -> Result<(u64, f64), Error> {
        let started = Instant::now();
        let length = Duration::from_secs_f64(seconds);
        let mut done = 0;
        while started.elapsed() < length {
            let room = config.outstanding - *posted;
            if room > 0 {
                source
                    .device
                    .post_send(source.qpn, (0..room).map(|_| request()))?;
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

pub(crate) fn check(completions: &[Completion]) -> Result<(), Error> {
    match completions.iter().find(|c| c.status != WcStatus::Success) {
        Some(failed) => Err(Error::Failed(failed.status)),
        None => Ok(()),
    }
}

/// Bounces 8-byte inline WRITEs between two devices, each polled by a thread of its own that spins
/// on the word. `datagram_bytes` is not used.
pub fn ping_pong(carrier: Carrier, config: &PingPong) -> Result<Latency, Error> {
    let pair = pair(carrier, 4096, Mtu::Mtu4096, 64)?;
    let (near, far) = (&pair.near, &pair.far);
    let rounds = u64::from(config.warm_up_rounds) + u64::from(config.rounds);
    let mut histogram = Histogram::<u64>::new_with_max(60_000_000_000, 3).expect("bounds in order");
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let contention = Contention::begin();
            for round in 1..=rounds {
                await_word(far, round);
                write_word(far, near, round)?;
            }
            // The last acknowledgement may still be owed.
            far.device.progress();
            Ok::<_, Error>(contention.end())
        });
        let contention = Contention::begin();
        for round in 1..=rounds {
            let started = Instant::now();
            write_word(near, far, round)?;
            await_word(near, round);
            if round > u64::from(config.warm_up_rounds) {
                let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                histogram.saturating_record(nanos);
            }
        }
        let waited = echo.join().expect("the echo does not panic")?;
        Ok(Latency::of_round_trips(
            &histogram,
            contention.end().max(waited),
        ))
    })
}

fn await_word(side: &Side, value: u64) {
    while side.buffer.load(0) != value {
        side.device.progress();
    }
}

fn write_word(from: &Side, to: &Side, value: u64) -> Result<(), Error> {
    // A completion now and then keeps the queue from filling up.
    let mut flags = SendFlags::INLINE;
    if value.is_multiple_of(16) {
        flags |= SendFlags::SIGNALED;
    }
    let request = SendWr {
        wr_id: value,
        op: SendOp::Write {
            va: to.mr.va,
            rkey: to.mr.key.rkey(),
            imm: None,
        },
        flags,
        sges: Sges::new(),
        inline: Some(value.to_ne_bytes()[..].into()),
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
