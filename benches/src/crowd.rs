//! Many queue pairs that stream from one device to another.

use std::time::{Duration, Instant};

use ferroce_device::{
    AccessFlags, Buffer, CqId, Memory, MrInfo, Mtu, SendOp, SendWr, Sge, VerbsError,
};
use ferroce_runtime::Device;
use ferroce_wire::Qpn;

use ferroce_bench::bare::Throughput;
use ferroce_bench::pair::{Error, attributes, beside_poller, check, device, endpoint, queue_pair};

/// Queue pairs with WRITEs outstanding all the time.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// How many of them.
    pub queue_pairs: usize,
    /// Length of each WRITE.
    pub message_bytes: usize,
    /// Path MTU.
    pub mtu: Mtu,
    /// How long.
    pub seconds: f64,
}

/// WRITEs that each queue pair has outstanding: while one ends, there is another.
const OUTSTANDING: usize = 2;

/// One side: a device, queue pairs, and the buffer that all of them use.
struct Side {
    device: Device,
    cq: CqId,
    qpns: Vec<Qpn>,
    mr: MrInfo,
}

impl Side {
    fn open(last_octet: u8, crowd: &Crowd) -> Result<Self, Error> {
        let device = device(last_octet)?;
        let requests = u32::try_from(crowd.queue_pairs * OUTSTANDING).unwrap_or(u32::MAX);
        let (cq, qpns, mr) = device.with(|hca| -> Result<_, VerbsError> {
            let pd = hca.alloc_pd()?;
            let cq = hca.create_cq(requests)?;
            let memory = Memory::Buffer(Buffer::zeroed(crowd.message_bytes));
            let mr = hca.reg_mr(pd, memory, AccessFlags::all())?;
            let init = queue_pair(pd, cq, OUTSTANDING as u32);
            let qpns = (0..crowd.queue_pairs).map(|_| hca.create_qp(&init));
            Ok((cq, qpns.collect::<Result<_, _>>()?, mr))
        })?;
        Ok(Self {
            device,
            cq,
            qpns,
            mr,
        })
    }
}

/// Streams from every queue pair at once, each device polled by a thread of its own.
pub fn stream(crowd: &Crowd) -> Result<Throughput, Error> {
    let (source, target) = (Side::open(1, crowd)?, Side::open(2, crowd)?);
    for (near, far) in source.qpns.iter().zip(&target.qpns) {
        let (near, far) = (
            endpoint(&source.device, *near),
            endpoint(&target.device, *far),
        );
        let attr = attributes(crowd.mtu);
        source.device.connect(near, far, &attr)?;
        target.device.connect(far, near, &attr)?;
    }
    beside_poller(&target.device, || send(crowd, &source, &target))
}

fn send(crowd: &Crowd, source: &Side, target: &Side) -> Result<Throughput, Error> {
    let request = |queue_pair: usize| {
        let op = SendOp::Write {
            va: target.mr.va,
            rkey: target.mr.key.rkey(),
            imm: None,
        };
        let sge = Sge {
            addr: source.mr.va,
            length: crowd.message_bytes as u32,
            lkey: source.mr.key.lkey(),
        };
        SendWr::new(queue_pair as u64, op, sge)
    };
    for (queue_pair, qpn) in source.qpns.iter().enumerate() {
        let requests = (0..OUTSTANDING).map(|_| request(queue_pair));
        source.device.post_send(*qpn, requests)?;
    }
    let mut completions = Vec::new();
    let mut run = |seconds: f64| -> Result<(u64, f64), Error> {
        let (started, length) = (Instant::now(), Duration::from_secs_f64(seconds));
        let mut done = 0;
        while started.elapsed() < length {
            completions.clear();
            let max = source.qpns.len() * OUTSTANDING;
            source.device.poll(source.cq, max, &mut completions)?;
            check(&completions)?;
            source.device.post(|hca| {
                completions.iter().try_for_each(|completion| {
                    let queue_pair = completion.wr_id as usize;
                    hca.post_send(source.qpns[queue_pair], request(queue_pair))
                })
            })?;
            done += completions.len() as u64;
        }
        Ok((done, started.elapsed().as_secs_f64()))
    };
    run(crowd.seconds / 5.0)?;
    let (messages, seconds) = run(crowd.seconds)?;
    let messages_per_second = messages as f64 / seconds;
    let packets = crowd
        .message_bytes
        .div_ceil(crowd.mtu.bytes() as usize)
        .max(1);
    Ok(Throughput {
        gbps: messages_per_second * crowd.message_bytes as f64 * 8.0 / 1e9,
        packets_per_second: messages_per_second * packets as f64,
        messages_per_second,
        seconds,
        contention: 0.0,
    })
}
