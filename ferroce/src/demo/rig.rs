//! Two devices, connected by several queue pairs.

use ferroce_adp::QpTimeouts;
use ferroce_designer::command;
use ferroce_device::{
    AccessFlags, Buffer, Completion, CqId, Direction, HcaConfig, Impairment, Memory, Method,
    MrInfo, Mtu, Personality, QpAttr, QpCap, QpInit, QpType, RecvWr, Secret, Sge, Sges, Span,
    impair::Blackout,
};
use ferroce_os::Interface;
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_runtime::{Device, DeviceConfig, Endpoint};
use ferroce_wire::{Psn, Qpn};

use super::error::Error;
use super::plan::{Kind, Plan};
use super::workload::MESSAGE_MAX;

/// Queue pairs between the devices.
pub(crate) const QPS: usize = 8;
/// Messages that each of them has on its way, at most.
pub(crate) const DEPTH: usize = 4;
/// Receive requests that the server keeps posted for each.
pub(crate) const RECEIVES: usize = 2 * DEPTH;

/// What a program makes on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) qps: usize,
    /// Messages that there is room for, for each queue pair.
    pub(crate) places: usize,
    /// Bytes of a message.
    pub(crate) message: usize,
    /// Requests in the two queues of each.
    pub(crate) sends: usize,
    pub(crate) receives: usize,
}

/// One device and what a program has made on it.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) cq: CqId,
    pub(crate) qps: Vec<Qpn>,
    /// Room for messages of the largest size; see [`Self::place`].
    pub(crate) buffer: Buffer,
    mr: MrInfo,
    layout: Layout,
}

impl End {
    pub(crate) fn open(config: DeviceConfig, layout: Layout) -> Result<Self, Error> {
        let Layout {
            qps,
            places,
            message,
            sends,
            receives,
        } = layout;
        let address = config.address;
        let device = Device::open(config)?;
        if !Interface::has_carrier(address) {
            let interface = Interface::name_of(address).unwrap_or_default();
            return Err(Error::Down { address, interface });
        }
        let buffer = Buffer::zeroed(qps * places * message);
        let (cq, qps, mr) = device.with(|hca| {
            let pd = hca.alloc_pd()?;
            let cq = hca.create_cq((qps * (sends + receives)) as u32)?;
            let mr = hca.reg_mr(
                pd,
                Memory::Buffer(buffer.clone()),
                AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
            )?;
            let init = QpInit {
                cap: QpCap {
                    max_send_wr: sends as u32,
                    max_recv_wr: receives as u32,
                    ..QpCap::default()
                },
                ..QpInit::new(QpType::Rc, pd, cq)
            };
            let qps = (0..qps).map(|_| hca.create_qp(&init));
            let qps = qps.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, Error>((cq, qps, mr))
        })?;
        Ok(Self {
            device,
            cq,
            qps,
            buffer,
            mr,
            layout,
        })
    }

    /// Where in the buffer a queue pair keeps a message.
    pub(crate) fn place(&self, qp: usize, place: usize) -> usize {
        (qp * self.layout.places + place) * self.layout.message
    }

    /// A message at a place, for work requests of this end.
    pub(crate) fn sge(&self, place: usize, length: u32) -> Sge {
        Sge {
            addr: self.buffer.addr() + place as u64,
            length,
            lkey: self.mr.key.lkey(),
        }
    }

    /// The address and key of a place, for work requests of the other end.
    pub(crate) fn remote(&self, place: usize) -> (u64, u32) {
        (self.mr.va + place as u64, self.mr.key.rkey())
    }

    /// Which queue pair has this number.
    pub(crate) fn index_of(&self, qpn: Qpn) -> usize {
        let index = self.qps.iter().position(|&own| own == qpn);
        index.expect("a completion is of a queue pair of its device")
    }

    /// Takes completions that are there, up to the capacity of `out`. Drives nothing.
    pub(crate) fn take(&self, out: &mut Vec<Completion>) -> Result<(), Error> {
        self.device.with(|hca| {
            while out.len() < out.capacity()
                && let Some(completion) = hca.poll_completion(self.cq)?
            {
                out.push(completion);
            }
            Ok(())
        })
    }

    /// Lets a SEND be received at a place.
    pub(crate) fn post_recv(&self, qp: usize, place: usize) -> Result<(), Error> {
        let sge = self.sge(self.place(qp, place), self.layout.message as u32);
        let wr = RecvWr {
            wr_id: place as u64,
            sges: Sges::from_buf([sge]),
        };
        Ok(self.device.post_recv(self.qps[qp], wr)?)
    }

    fn endpoint(&self, seed: u64, qp: usize) -> Endpoint {
        // Some near the end of the circle, so that PSNs wrap.
        let spread = seed.wrapping_mul(0x9e37_79b9) as u32 ^ (qp as u32) << 21;
        Endpoint {
            address: self.device.address().ip(),
            qpn: self.qps[qp],
            psn: Psn::new(spread & 0xff_ffff),
        }
    }

    /// Makes the link from this end lose packets, and all of them during a span of time.
    fn impair(&self, loss: f64, outage: Option<Outage>) -> Result<(), Error> {
        let now = self.device.now();
        let blackouts = outage.iter().map(|outage| Blackout {
            from: now.after(Span::from_nanos(outage.in_ns)),
            length: Span::from_nanos(outage.length_ns),
        });
        let impairment = Impairment {
            loss,
            blackouts: blackouts.collect(),
            ..Impairment::default()
        };
        self.device
            .with(|hca| hca.set_impairment(Direction::Egress, impairment))
            .map_err(|error| Error::Internal(error.to_string()))
    }
}

/// A blackout to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// How long from now.
    pub(crate) in_ns: u64,
    pub(crate) length_ns: u64,
}

/// The devices of one run.
#[derive(Debug)]
pub(crate) struct Rig {
    /// The end that makes the requests.
    pub(crate) client: End,
    /// The end that serves them. Its first places are for WRITE and READ, the others for SEND.
    pub(crate) server: End,
}

impl Rig {
    /// Opens the devices under a policy and connects the queue pairs.
    pub(crate) fn new(plan: &Plan, kind: Kind) -> Result<Self, Error> {
        let layout = |places| Layout {
            qps: QPS,
            places,
            message: MESSAGE_MAX as usize,
            sends: DEPTH,
            receives: RECEIVES,
        };
        let client = End::open(config(plan, kind, 0), layout(DEPTH))?;
        let server = End::open(config(plan, kind, 1), layout(DEPTH + RECEIVES))?;
        if kind == Kind::Profile {
            // As a tool writes it to a real card.
            let mut payload = command::payload(&plan.profile);
            for end in [&client, &server] {
                end.device
                    .with(|hca| hca.access_register(ROCE_ACCL.id(), Method::Write, &mut payload))
                    .map_err(|error| Error::Internal(error.to_string()))?;
            }
        }
        connect(&client, &server, plan.seed, plan.qp)?;
        Ok(Self { client, server })
    }

    /// Impairs the link in both directions, and interrupts it during the outage.
    pub(crate) fn impair(&self, loss: f64, outage: Option<Outage>) -> Result<(), Error> {
        self.client.impair(loss, outage)?;
        self.server.impair(loss, outage)
    }
}

/// One of the devices of a run.
fn config(plan: &Plan, kind: Kind, which: usize) -> DeviceConfig {
    let hca = HcaConfig {
        // The two devices lose different packets, and every policy's devices the same ones.
        seed: plan.seed.wrapping_mul(2).wrapping_add(which as u64),
        // Other numbers in each run, so that a capture of all runs can be taken apart, and the same
        // ones with the same seed.
        secret: Some(Secret::new(plan.seed.into()).derive(kind as u64, which as u64)),
        personality: Personality {
            adaptive: kind != Kind::Ib,
            ..Personality::default()
        },
        trace_timers: true,
        ..HcaConfig::default()
    };
    DeviceConfig {
        hca,
        tap: plan.tap.clone(),
        // One thread drives both: a thread that gets no processor must not look like a lost packet.
        helper: false,
        ..DeviceConfig::new(plan.addresses[which])
    }
}

/// Connects each queue pair of one end with its like of the other.
pub(crate) fn connect(a: &End, b: &End, seed: u64, qp: QpTimeouts) -> Result<(), Error> {
    let attr = QpAttr {
        access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
        path_mtu: Mtu::Mtu4096,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: qp.timeout,
        retry_cnt: qp.retry_cnt,
        rnr_retry: 7,
        ..QpAttr::default()
    };
    for qp in 0..a.qps.len() {
        let ends = [a.endpoint(seed, qp), b.endpoint(seed, qp)];
        a.device.connect(ends[0], ends[1], &attr)?;
        b.device.connect(ends[1], ends[0], &attr)?;
    }
    Ok(())
}
