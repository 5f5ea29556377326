//! Two devices that exchange data while they are attacked.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_bench::pair::{self, Error, Side};
use ferroce_device::{
    Attr, Completion, Counter, Hca, Method, Mtu, QpAttr, QpCap, QpInit, QpModify, QpState, QpType,
    SendFlags, SendOp, SendWr, Sge, VerbsError, WcStatus,
};
use ferroce_prm::mlxreg::apply;
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_runtime::Device;
use ferroce_wire::{Psn, Qpn};

use super::packets::{Aim, Known, READ_BYTES, SERVICE};

/// What the victims do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Length of each WRITE, bytes.
    pub message_bytes: usize,
    /// WRITEs posted at a time.
    pub outstanding: usize,
    /// Their queue pairs repeat selectively.
    pub selective: bool,
}

impl Load {
    /// WRITEs of 8 bytes.
    pub const SHORT: Self = Self {
        message_bytes: 8,
        outstanding: 128,
        selective: false,
    };
    /// WRITEs of 1 MiB.
    pub const LONG: Self = Self {
        message_bytes: 1 << 20,
        outstanding: 16,
        ..Self::SHORT
    };

    /// Where the memory begins that no WRITE of the victims' own is for, and a READ of an attacker is, bytes.
    const fn region(self) -> usize {
        self.message_bytes.next_multiple_of(4096)
    }
}

/// A device that sends WRITEs, and one that receives them, whose program listens for connections and has a
/// queue pair for datagrams.
#[derive(Debug)]
pub struct Victims {
    requester: Side,
    responder: Side,
    datagrams: Qpn,
    load: Load,
}

/// Data moved in a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moved {
    /// WRITEs completed.
    pub messages: u64,
    /// In seconds.
    pub seconds: f64,
    /// How the connection ended, if it did.
    pub ended: Option<WcStatus>,
}

impl Moved {
    /// WRITEs in a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }
}

/// What the process of the victims takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footprint {
    /// Memory in use, KiB.
    pub resident_kib: u64,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Footprint {
    /// Of this process, now.
    ///
    /// # Errors
    /// Returns an error when the system does not say.
    pub fn now() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let size = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        Ok(Self {
            resident_kib: size.ok_or(io::ErrorKind::InvalidData)?,
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
        })
    }
}

/// The last octets of the addresses of requester, responder, attacker and bystander.
const OCTETS: [u8; 4] = [1, 2, 3, 4];
/// The responder's program looks for requests once in this number of rounds of its loop.
const LOOK_AFTER: u32 = 64;
const LISTEN_BACKLOG: u32 = 128;
const QKEY: u32 = 0x1111_1110;

impl Victims {
    /// Opens and connects them.
    ///
    /// # Errors
    /// Returns an error when a device or a queue pair is refused.
    pub fn open(load: Load) -> Result<Self, Error> {
        let requester = side(OCTETS[0], load)?;
        let responder = side(OCTETS[1], load)?;
        pair::connect(&requester, &responder, Mtu::Mtu4096)?;
        let device = &responder.device;
        device.join()?;
        let datagrams = device.with(|hca| -> Result<Qpn, VerbsError> {
            let listening = hca.cm_mut().listen(SERVICE, LISTEN_BACKLOG);
            listening.expect("a fresh device has no listeners");
            datagram_queue_pair(hca)
        })?;
        Ok(Self {
            requester,
            responder,
            datagrams,
            load,
        })
    }

    /// One of the devices.
    pub fn device(&self, aim: Aim) -> &Device {
        &self.side(aim).device
    }

    fn side(&self, aim: Aim) -> &Side {
        match aim {
            Aim::Requester => &self.requester,
            Aim::Responder => &self.responder,
        }
    }

    /// The address of the peer of one of them.
    pub fn peer_of(&self, aim: Aim) -> IpAddr {
        let peer = match aim {
            Aim::Requester => &self.responder,
            Aim::Responder => &self.requester,
        };
        peer.device.address().ip()
    }

    /// An address for the attacker.
    pub fn attacker(&self) -> IpAddr {
        self.beside(OCTETS[2])
    }

    /// An address for a socket that has nothing to do with it.
    pub fn bystander(&self) -> IpAddr {
        self.beside(OCTETS[3])
    }

    fn beside(&self, octet: u8) -> IpAddr {
        match self.responder.device.address().ip() {
            IpAddr::V4(own) => {
                let [a, b, c, _] = own.octets();
                Ipv4Addr::new(a, b, c, octet).into()
            }
            own @ IpAddr::V6(_) => own,
        }
    }

    /// What an attacker knows of one of them.
    pub fn known(&self, aim: Aim) -> Known {
        let side = self.side(aim);
        Known {
            device: side.device.address(),
            qpn: side.qpn,
            first_psn: Psn::new(1),
            va: side.mr.va + self.load.region() as u64,
            rkey: side.mr.key.rkey(),
            datagrams: self.datagrams,
        }
    }

    /// Whether nothing has been written to the memory that an attacker knows of.
    pub fn are_untouched(&self) -> bool {
        [&self.requester, &self.responder].iter().all(|side| {
            let mut bytes = vec![0xff; READ_BYTES as usize];
            side.buffer.read(self.load.region(), &mut bytes);
            bytes.iter().all(|byte| *byte == 0)
        })
    }

    /// A counter of one of them.
    pub fn count(&self, aim: Aim, counter: Counter) -> u64 {
        self.device(aim).state().counter(counter)
    }

    /// Moves data for some time, or until the connection ends.
    ///
    /// # Errors
    /// Returns an error when a request is refused.
    pub fn work(&self, length: Duration) -> Result<Moved, Error> {
        self.attended(|| self.send(length))
    }

    /// Does nothing for some time but what packets ask for.
    ///
    /// # Errors
    /// Returns an error when no thread can be started.
    pub fn rest(&self, length: Duration) -> Result<(), Error> {
        self.attended(|| {
            let started = Instant::now();
            while started.elapsed() < length {
                self.requester.device.progress();
            }
            Ok(())
        })
    }

    /// Beside a thread that polls the responder, and refuses all requests for connections.
    fn attended<T>(&self, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let responder = thread::Builder::new().name("responder".into());
            let responder = responder.spawn_scoped(scope, || {
                for round in 1_u32.. {
                    self.responder.device.progress();
                    if round.is_multiple_of(LOOK_AFTER) {
                        self.refuse();
                    }
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            responder.map_err(Error::Thread)?;
            let outcome = f();
            over.store(true, Ordering::Relaxed);
            outcome
        })
    }

    fn refuse(&self) {
        let device = &self.responder.device;
        let now = device.now();
        device.with(|hca| {
            while let Some(event) = hca.poll_cm_event() {
                // One that has ended by itself is gone already.
                let _ = hca.cm_mut().destroy(now, event.comm);
            }
        });
    }

    fn send(&self, length: Duration) -> Result<Moved, Error> {
        let (near, most) = (&self.requester, self.load.outstanding);
        let mut completions = Vec::with_capacity(most);
        let (mut free, mut messages, mut ended) = (most, 0, None);
        let started = Instant::now();
        while ended.is_none() && started.elapsed() < length {
            near.device
                .post_send(near.qpn, (0..free).map(|_| self.request()))?;
            completions.clear();
            near.device.poll(near.cq, most, &mut completions)?;
            free = completions.len();
            ended = failure(&completions);
            messages += completions.len() as u64;
        }
        let mut moved = Moved {
            messages,
            seconds: started.elapsed().as_secs_f64(),
            ended,
        };
        self.drain(most - free, &mut moved)?;
        Ok(moved)
    }

    /// Waits for what is still under way, so that the next measurement begins with empty queues.
    fn drain(&self, mut left: usize, moved: &mut Moved) -> Result<(), Error> {
        let near = &self.requester;
        let (mut completions, started) = (Vec::new(), Instant::now());
        while left > 0 && moved.ended.is_none() {
            completions.clear();
            near.device.poll(near.cq, left, &mut completions)?;
            left -= completions.len();
            moved.ended = failure(&completions);
            if started.elapsed() > PATIENCE {
                return Err(Error::Silent);
            }
        }
        Ok(())
    }

    fn request(&self) -> SendWr {
        let (near, far) = (&self.requester, &self.responder);
        let op = SendOp::Write {
            va: far.mr.va,
            rkey: far.mr.key.rkey(),
            imm: None,
        };
        let sge = Sge {
            addr: near.mr.va,
            length: self.load.message_bytes as u32,
            lkey: near.mr.key.lkey(),
        };
        SendWr {
            flags: SendFlags::SIGNALED,
            ..SendWr::new(0, op, sge)
        }
    }
}

/// How long what is under way may take: longer than any timer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the connection ended, if a completion says that it has.
fn failure(completions: &[Completion]) -> Option<WcStatus> {
    let mut statuses = completions.iter().map(|it| it.status);
    statuses.find(|it| *it != WcStatus::Success)
}

/// A device with a queue pair of the kind that a load wants.
fn side(octet: u8, load: Load) -> Result<Side, Error> {
    let device = pair::device(octet)?;
    if load.selective {
        let mut payload = [0; ROCE_ACCL.size()];
        let field = "selective_repeat_forced_en=1,selective_repeat_forced_en_field_select=1";
        apply(&ROCE_ACCL, &mut payload, "", field).expect("fields of the register");
        device
            .state()
            .access_register(ROCE_ACCL.id(), Method::Write, &mut payload)
            .expect("a device without a card takes the setting");
    }
    let bytes = load.region() + READ_BYTES as usize;
    Side::on(device, bytes, load.outstanding)
}

fn datagram_queue_pair(hca: &mut Hca) -> Result<Qpn, VerbsError> {
    let pd = hca.alloc_pd()?;
    let cq = hca.create_cq(16)?;
    let init = QpInit {
        cap: QpCap::default(),
        ..QpInit::new(QpType::Ud, pd, cq)
    };
    let qpn = hca.create_qp(&init)?;
    let attr = QpAttr {
        qkey: QKEY,
        ..QpAttr::default()
    };
    let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
    for step in states.windows(2) {
        let change = QpModify::step(QpType::Ud, step[0], step[1], attr);
        debug_assert!(!change.mask.contains(Attr::AV));
        hca.modify_qp(qpn, &change, None)?;
    }
    Ok(qpn)
}
