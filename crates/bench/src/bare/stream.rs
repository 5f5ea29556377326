//! A stream of RDMA WRITEs in one direction.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_sockets::{
    Message, Options, PAYLOAD_BYTES_MAX, RecvBuffers, SEGMENTS_MAX, SendError, Socket,
};
use serde::Serialize;

use super::packet::{
    ACKNOWLEDGE, AETH_BYTES, BTH_BYTES, Bth, ICRC_BYTES, Icrc, RETH_BYTES, WRITE_FIRST, WRITE_LAST,
    WRITE_MIDDLE, WRITE_ONLY, emit_reth, reth_address, widen,
};
use super::{Contention, Error, bind, idle, two_cores};

/// What [`stream()`] measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// Length of a WRITE.
    pub message_bytes: usize,
    /// Payload of a full packet: the path MTU of the queue pair.
    pub mtu_bytes: usize,
    /// WRITEs under way at once, at most.
    pub outstanding: usize,
    /// Payload under way at once, at most.
    pub window_bytes: usize,
    /// Time to measure, after a tenth of it to warm up.
    pub seconds: f64,
    /// Compute and check the invariant CRC.
    pub icrc: bool,
    /// Copy the payload into the target's memory.
    pub copy: bool,
    /// Send several packets with one segmented call.
    pub segmentation: bool,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 10,
            mtu_bytes: 4096,
            outstanding: 128,
            window_bytes: 300_000,
            seconds: 1.0,
            icrc: true,
            copy: true,
            segmentation: true,
        }
    }
}

impl Stream {
    /// Messages of a length, 128 outstanding, of which the window takes all if they are short. Of long ones
    /// as many as 16 MiB hold: more would only take time to arrive after the measurement.
    #[must_use]
    pub fn of_messages(message_bytes: usize, seconds: f64) -> Self {
        const BYTES_MAX: usize = 16 << 20;
        let default = Self::default();
        let window_bytes = match message_bytes < default.mtu_bytes {
            true => default.outstanding * default.mtu_bytes,
            false => default.window_bytes,
        };
        Self {
            message_bytes,
            outstanding: (BYTES_MAX / message_bytes.max(1)).clamp(1, default.outstanding),
            seconds,
            window_bytes,
            ..default
        }
    }

    /// The workloads the device is compared on: long and short WRITEs at two path MTUs.
    pub fn standard() -> Vec<Self> {
        [4096, 1024]
            .into_iter()
            .flat_map(|mtu_bytes| {
                [(1 << 20, 128), (64 << 10, 128), (4 << 10, 16)].map(
                    |(message_bytes, outstanding)| Self {
                        message_bytes,
                        mtu_bytes,
                        outstanding,
                        ..Self::default()
                    },
                )
            })
            .collect()
    }
}

/// What came through, counted by what the sender got acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Payload in gigabits per second.
    pub gbps: f64,
    /// Data packets per second.
    pub packets_per_second: f64,
    /// WRITEs per second.
    pub messages_per_second: f64,
    /// How long the measured part took.
    pub seconds: f64,
    /// Share of the time that a thread had to wait for a core; the worse of the two.
    pub contention: f64,
}

/// Streams WRITEs from one thread to another over loopback, as fast as the window allows.
///
/// Source and target are one message long, or 64 KiB if that is more, and used again and again,
/// as bandwidth tests on verbs do.
///
/// # Errors
/// Returns an error when a socket call fails, a packet is lost, or the data does not arrive as it
/// was sent.
pub fn stream(config: &Stream) -> Result<Throughput, Error> {
    let plan = Plan::new(config)?;
    let options = Options {
        segmentation: config.segmentation,
        ..Options::default()
    };
    let source = bind(1, &options)?;
    let target = bind(2, &options)?;
    let data: Vec<u8> = (0..plan.region_bytes as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let contention = Contention::begin();
            let memory = Receiver::new(&plan, &target, &source).run(&stop)?;
            Ok::<_, Error>((memory, contention.end()))
        });
        let contention = Contention::begin();
        let sent = Sender::new(&plan, &source, &target, &data).run();
        stop.store(true, Ordering::Relaxed);
        let received = receiver.join().expect("the receiver does not panic");
        // What the receiver saw explains why the sender got no answer.
        let (memory, receiver_waited) = received?;
        let mut throughput = sent.map_err(|error| match error {
            Error::Lost {
                expected,
                buffer_bytes,
                ..
            } => Error::Lost {
                expected,
                drops: target.receive_drops().unwrap_or_default(),
                buffer_bytes,
            },
            error => error,
        })?;
        throughput.contention = contention.end().max(receiver_waited);
        if config.copy && memory[..plan.message_bytes] != data[..plan.message_bytes] {
            return Err(Error::Damaged);
        }
        Ok(throughput)
    })
}

/// How a WRITE is cut into packets, and packets into batches.
struct Plan {
    config: Stream,
    message_bytes: usize,
    mtu_bytes: usize,
    packets_per_message: usize,
    /// Packets that may be unacknowledged.
    window_packets: u64,
    /// The receiver acknowledges at least this often.
    ack_packets: u64,
    region_bytes: usize,
    alone: bool,
}

impl Plan {
    fn new(config: &Stream) -> Result<Self, Error> {
        let &Stream {
            message_bytes,
            mtu_bytes,
            outstanding,
            window_bytes,
            ..
        } = config;
        if !matches!(mtu_bytes, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(Error::Config(
                "the MTU is one of 256, 512, 1024, 2048 and 4096",
            ));
        }
        if message_bytes == 0 || !message_bytes.is_multiple_of(4) || message_bytes > 1 << 30 {
            return Err(Error::Config(
                "a message has 4 bytes to 1 GiB, in words (no padding here)",
            ));
        }
        if outstanding == 0 || window_bytes < 2 * mtu_bytes {
            return Err(Error::Config(
                "the window holds at least one message and two packets",
            ));
        }
        let packets_per_message = message_bytes.div_ceil(mtu_bytes);
        let window_packets =
            (window_bytes / mtu_bytes).min(outstanding * packets_per_message) as u64;
        Ok(Self {
            config: config.clone(),
            message_bytes,
            mtu_bytes,
            packets_per_message,
            window_packets,
            ack_packets: (window_packets / 4).max(1),
            region_bytes: message_bytes.max(64 << 10),
            alone: two_cores(),
        })
    }

    /// Where in the regions message `index` lies.
    fn offset(&self, index: u64) -> usize {
        let slots = (self.region_bytes / self.message_bytes) as u64;
        (index % slots) as usize * self.message_bytes
    }

    fn payload_of(&self, packet: usize) -> std::ops::Range<usize> {
        packet * self.mtu_bytes..self.message_bytes.min((packet + 1) * self.mtu_bytes)
    }

    fn opcode(&self, packet: usize) -> u8 {
        match (packet == 0, packet + 1 == self.packets_per_message) {
            (true, true) => WRITE_ONLY,
            (true, false) => WRITE_FIRST,
            (false, true) => WRITE_LAST,
            (false, false) => WRITE_MIDDLE,
        }
    }

    fn header_bytes(packet: usize) -> usize {
        BTH_BYTES + if packet == 0 { RETH_BYTES } else { 0 }
    }

    /// Size of a packet on the wire, from its BTH to its CRC.
    fn wire_bytes(&self, packet: usize) -> usize {
        Self::header_bytes(packet) + self.payload_of(packet).len() + ICRC_BYTES
    }
}

struct Sender<'a> {
    plan: &'a Plan,
    socket: &'a Socket,
    to: SocketAddr,
    data: &'a [u8],
    icrc: Icrc,
    /// Next packet to send and first packet not acknowledged, counted from 0.
    next: u64,
    acked: u64,
    acks: RecvBuffers,
    icrc_of_acks: Icrc,
    /// Trailers and headers of one batch: payloads lie between its entries.
    frames: Vec<[u8; FRAME_BYTES]>,
}

/// The CRC of one packet and the headers of the next.
const FRAME_BYTES: usize = ICRC_BYTES + BTH_BYTES + RETH_BYTES;

impl<'a> Sender<'a> {
    fn new(plan: &'a Plan, socket: &'a Socket, target: &Socket, data: &'a [u8]) -> Self {
        Self {
            plan,
            socket,
            to: target.address(),
            data,
            icrc: Icrc::between(socket, target),
            next: 0,
            acked: 0,
            acks: RecvBuffers::new(1),
            icrc_of_acks: Icrc::between(target, socket),
            frames: vec![[0; FRAME_BYTES]; SEGMENTS_MAX + 1],
        }
    }

    fn run(mut self) -> Result<Throughput, Error> {
        let measure = Duration::from_secs_f64(self.plan.config.seconds);
        let begin = Instant::now() + measure / 10;
        let end = begin + measure;
        let mut started = None;
        let mut progress = Instant::now();
        let mut looks = 0u32;
        loop {
            let batch = self.batch();
            let moving = batch > 0 && self.send(batch)?;
            // Every look costs a call, so it waits until half the window is used.
            let due = !moving || (self.next - self.acked) * 2 >= self.plan.window_packets;
            let acked = if due { self.collect_acks()? } else { 0 };
            if acked == 0 && !moving {
                looks += 1;
                idle(self.plan.alone);
                // Reading the clock costs; a second of silence is long enough to be noticed late.
                if !looks.is_multiple_of(1024) {
                    continue;
                }
            }
            let now = Instant::now();
            if acked > 0 {
                progress = now;
            } else if now - progress > Duration::from_secs(1) {
                return Err(Error::Lost {
                    expected: self.acked,
                    drops: 0,
                    buffer_bytes: self.socket.granted().receive_buffer_bytes,
                });
            }
            match started {
                None if now >= begin => started = Some((now, self.acked)),
                // One WRITE at least, however slow the machine: there must be something to check.
                Some((since, base))
                    if now >= end && self.acked - base >= self.plan.packets_per_message as u64 =>
                {
                    return Ok(self.throughput(now - since, self.acked - base));
                }
                _ => {}
            }
        }
    }

    fn throughput(&self, elapsed: Duration, packets: u64) -> Throughput {
        let seconds = elapsed.as_secs_f64();
        let messages_per_second = packets as f64 / self.plan.packets_per_message as f64 / seconds;
        Throughput {
            gbps: messages_per_second * self.plan.message_bytes as f64 * 8.0 / 1e9,
            packets_per_second: packets as f64 / seconds,
            messages_per_second,
            seconds,
            contention: 0.0,
        }
    }

    /// How many packets the next call can carry: within the window, of one message unless each
    /// message is one packet, and all of the first one's size but the last, which may be shorter.
    fn batch(&self) -> usize {
        let plan = self.plan;
        let open = plan.window_packets - (self.next - self.acked);
        let at = (self.next % plan.packets_per_message as u64) as usize;
        let segment = plan.wire_bytes(at);
        let limit = (PAYLOAD_BYTES_MAX / segment)
            .min(self.socket.segments_max())
            .min(open as usize);
        if plan.packets_per_message == 1 {
            return limit;
        }
        let left = plan.packets_per_message - at;
        // The first packet is longer than the second, which so ends its batch.
        let alike = if at == 0 { 2 } else { left };
        alike.min(left).min(limit)
    }

    /// Sends the next `count` packets; `false` if the socket is full.
    fn send(&mut self, count: usize) -> Result<bool, Error> {
        let plan = self.plan;
        let per_message = plan.packets_per_message as u64;
        let mut payloads: Vec<&[u8]> = Vec::with_capacity(count);
        for i in 0..count {
            let (message, packet) = (
                (self.next + i as u64) / per_message,
                ((self.next + i as u64) % per_message) as usize,
            );
            let range = plan.payload_of(packet);
            let offset = plan.offset(message);
            let payload = &self.data[offset + range.start..offset + range.end];
            let header = &mut self.frames[i][ICRC_BYTES..][..Plan::header_bytes(packet)];
            let bth = Bth {
                opcode: plan.opcode(packet),
                qpn: 0x11,
                ack_request: packet + 1 == plan.packets_per_message,
                psn: (self.next + i as u64) as u32,
            };
            bth.emit(header);
            if packet == 0 {
                emit_reth(
                    offset as u64,
                    plan.message_bytes as u32,
                    &mut header[BTH_BYTES..],
                );
            }
            if plan.config.icrc {
                let (bth, rest) = header.split_at(BTH_BYTES);
                let crc = self
                    .icrc
                    .compute(self.socket.ip_id(i as u16), bth, rest, payload);
                self.frames[i + 1][..ICRC_BYTES].copy_from_slice(&crc);
            }
            payloads.push(payload);
        }

        let first = (self.next % per_message) as usize;
        let mut slices = Vec::with_capacity(2 * count + 1);
        for (i, payload) in payloads.iter().enumerate() {
            let packet = if per_message == 1 { 0 } else { first + i };
            let begin = if i == 0 { ICRC_BYTES } else { 0 };
            let end = ICRC_BYTES + Plan::header_bytes(packet);
            slices.push(IoSlice::new(&self.frames[i][begin..end]));
            slices.push(IoSlice::new(payload));
        }
        slices.push(IoSlice::new(&self.frames[count][..ICRC_BYTES]));
        match self
            .socket
            .send_slices(self.to, 0, &slices, plan.wire_bytes(first))
        {
            Ok(sent) => {
                self.next += sent.datagrams as u64;
                Ok(true)
            }
            Err(SendError::WouldBlock) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes an acknowledgement if there is one and returns how many packets it covers.
    fn collect_acks(&mut self) -> Result<u64, Error> {
        let before = self.acked;
        if self.socket.recv(&mut self.acks)? > 0 {
            for datagram in self.acks.messages().flat_map(|message| message.datagrams()) {
                let Some((body, crc)) = datagram.bytes.split_last_chunk::<ICRC_BYTES>() else {
                    return Err(Error::Damaged);
                };
                let Some(bth) = Bth::parse(body) else {
                    return Err(Error::Damaged);
                };
                let (head, rest) = body.split_at(BTH_BYTES);
                if self.plan.config.icrc
                    && self.icrc_of_acks.compute(datagram.index, head, rest, &[]) != *crc
                {
                    return Err(Error::Damaged);
                }
                self.acked = self.acked.max(widen(bth.psn, self.acked) + 1);
            }
        }
        Ok(self.acked - before)
    }
}

struct Receiver<'a> {
    plan: &'a Plan,
    socket: &'a Socket,
    to: SocketAddr,
    icrc: Icrc,
    icrc_of_acks: Icrc,
    memory: Vec<u8>,
    /// Next packet to arrive, first packet not acknowledged, and where its payload goes.
    expected: u64,
    acked: u64,
    write_at: usize,
    ack_requested: bool,
}

impl<'a> Receiver<'a> {
    fn new(plan: &'a Plan, socket: &'a Socket, source: &Socket) -> Self {
        Self {
            plan,
            socket,
            to: source.address(),
            icrc: Icrc::between(source, socket),
            icrc_of_acks: Icrc::between(socket, source),
            memory: vec![0; plan.region_bytes],
            expected: 0,
            acked: 0,
            write_at: 0,
            ack_requested: false,
        }
    }

    /// Serves until told to stop; returns the target's memory.
    fn run(mut self, stop: &AtomicBool) -> Result<Vec<u8>, Error> {
        let mut buffers = RecvBuffers::new(1);
        while !stop.load(Ordering::Relaxed) {
            let empty = self.socket.recv(&mut buffers)? == 0;
            for message in buffers.messages() {
                self.take(&message)?;
            }
            // An acknowledgement costs as much as a batch, so one that was asked for waits for
            // what has arrived meanwhile, within reason.
            if empty && self.ack_requested || self.expected - self.acked >= self.plan.ack_packets {
                self.acknowledge()?;
            } else if empty {
                idle(self.plan.alone);
            }
        }
        Ok(self.memory)
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), Error> {
        for datagram in message.datagrams() {
            let (body, crc) = datagram.bytes.split_last_chunk().ok_or(Error::Damaged)?;
            let bth = Bth::parse(body).ok_or(Error::Damaged)?;
            if widen(bth.psn, self.expected) != self.expected {
                return Err(Error::Lost {
                    expected: self.expected,
                    drops: self.socket.receive_drops().unwrap_or_default(),
                    buffer_bytes: self.socket.granted().receive_buffer_bytes,
                });
            }
            let (head, mut payload) = body.split_at(BTH_BYTES);
            if self.plan.config.icrc
                && self.icrc.compute(datagram.index, head, &[], payload) != *crc
            {
                return Err(Error::Damaged);
            }
            if matches!(bth.opcode, WRITE_FIRST | WRITE_ONLY) {
                self.write_at = reth_address(payload).ok_or(Error::Damaged)? as usize;
                payload = &payload[RETH_BYTES..];
            }
            if self.plan.config.copy {
                let end = self.write_at + payload.len();
                self.memory
                    .get_mut(self.write_at..end)
                    .ok_or(Error::Damaged)?
                    .copy_from_slice(payload);
                self.write_at = end;
            }
            self.expected += 1;
            self.ack_requested |= bth.ack_request;
        }
        Ok(())
    }

    fn acknowledge(&mut self) -> Result<(), Error> {
        const LEN: usize = BTH_BYTES + AETH_BYTES;
        let mut packet = [0; LEN + ICRC_BYTES];
        let psn = (self.expected - 1) as u32;
        Bth {
            opcode: ACKNOWLEDGE,
            qpn: 0x12,
            ack_request: false,
            psn,
        }
        .emit(&mut packet);
        // An ACK without credit limit, and the message number, which is not looked at here.
        packet[BTH_BYTES..LEN].copy_from_slice(&(0x1f00_0000 | psn & 0xff_ffff).to_be_bytes());
        if self.plan.config.icrc {
            let (head, rest) = packet[..LEN].split_at(BTH_BYTES);
            let crc = self.icrc_of_acks.compute(0, head, rest, &[]);
            packet[LEN..].copy_from_slice(&crc);
        }
        match self.socket.send(self.to, 0, &packet, packet.len()) {
            Ok(_) => {
                self.acked = self.expected;
                self.ack_requested = false;
                Ok(())
            }
            // Stays due.
            Err(SendError::WouldBlock) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
