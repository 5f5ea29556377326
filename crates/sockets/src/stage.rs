//! Turns packets into bytes, and collects them into batches of one system call.

use std::net::SocketAddr;

use ferroce_device::{Counter, Hca, Outgoing, Path, Shape, damage};
use ferroce_os::{Seen, Tap};
use ferroce_wire::{Flows, ICRC_LEN, IcrcFlow, Opcode, Service, TRAILER_LEN_MAX, fill_trailer};

use crate::exits::Exit;
use crate::fault::Faults;
use crate::socket::{PAYLOAD_BYTES_MAX, SendError, Socket};
use crate::trailers::{Trailers, slot_of};

/// Packets that leave with one system call: as bytes, one after the other, all as long as the
/// first but the last, which may be shorter. For a peer that takes [trailers](Trailers), shorter ones
/// are made as long.
///
/// The payload is copied here once, and the ICRC computed over the copy. Sending straight from
/// registered memory would save the copy, but the memory belongs to the program and may change
/// between the CRC and the kernel's copy of it: what the peer of a READ does all day to a flag
/// would then arrive as a damaged packet. A card reads memory once; so does this.
#[derive(Debug)]
pub struct Stage {
    bytes: Box<[u8]>,
    len: usize,
    /// Length of each packet but the last, with its trailer; 0 while empty.
    segment: usize,
    /// The packets' own lengths.
    lens: Vec<u16>,
    /// The peer takes trailers.
    levels: bool,
    /// Packets with trailers, and packets that are sent again, since [`Trailers`] were told last.
    with_trailer: u32,
    repeated: u32,
    /// A packet shorter than the first one ends the batch.
    closed: bool,
    /// The number of the socket that they leave by.
    exit: u8,
    dest: SocketAddr,
    tos: u8,
    /// The priority in the VLAN tag with which captures show them.
    sl: u8,
    /// The slot of the process they are for, if their device is shared: one system call reaches
    /// one socket.
    slot: u32,
    flow: Option<IcrcFlow>,
}

/// Why a packet was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It does not fit this batch; send that first.
    NotNow,
    /// It can never be sent.
    Never,
    /// Its destination is of another address family than the socket.
    Family,
}

impl Stage {
    /// An empty batch for the socket with this address.
    #[inline]
    pub fn new(own: SocketAddr) -> Self {
        Self {
            bytes: vec![0; PAYLOAD_BYTES_MAX].into_boxed_slice(),
            len: 0,
            segment: 0,
            lens: Vec::new(),
            levels: false,
            with_trailer: 0,
            repeated: 0,
            closed: false,
            exit: 0,
            dest: own,
            tos: 0,
            sl: 0,
            slot: 0,
            flow: None,
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Bytes that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The [number](Exit::number) of the socket that it is for.
    #[inline]
    pub fn exit(&self) -> u8 {
        self.exit
    }

    /// Forgets what waits.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.segment = 0;
        self.lens.clear();
        self.closed = false;
    }

    /// Adds a packet.
    #[inline]
    pub fn push(
        &mut self,
        hca: &Hca,
        packet: &Outgoing,
        exit: Exit<'_>,
        trailers: &mut Trailers,
    ) -> Result<(), Refused> {
        let Exit {
            number,
            socket,
            flows,
        } = exit;
        let dest = SocketAddr::new(packet.path.dest, self.dest.port());
        let shape = Shape::of(packet);
        let (icrc_at, len) = (shape.icrc_at, shape.len);
        let slot = slot_of(packet.headers.dest_qp);
        if self.is_empty() {
            self.tell(trailers);
            self.begin(dest, &packet.path, len, flows)?;
            (self.slot, self.exit) = (slot, number);
            self.level(packet, trailers);
        } else if (slot, number) != (self.slot, self.exit)
            || !self.fits(dest, &packet.path, len, socket)
        {
            return Err(Refused::NotNow);
        }
        let flow = self.flow.as_ref().ok_or(Refused::Family)?;
        let out = &mut self.bytes[self.len..self.len + len];
        if !shape.write(hca, packet, out) {
            return Err(Refused::Never);
        }
        let icrc = flow.compute(socket.ip_id(self.lens.len() as u16), &out[..icrc_at]);
        out[icrc_at..].copy_from_slice(&icrc.to_le_bytes());
        damage(packet, out);
        self.len += len;
        self.lens.push(len as u16); // at most a datagram
        self.repeated += u32::from(packet.is_repeated);
        match self.segment - len {
            0 => {}
            missing @ 1..=TRAILER_LEN_MAX if self.levels && !packet.is_repeated => {
                fill_trailer(&mut self.bytes[self.len..][..missing]);
                self.len += missing;
                self.with_trailer += 1;
            }
            _ => self.closed = true,
        }
        Ok(())
    }

    #[inline]
    fn begin(
        &mut self,
        dest: SocketAddr,
        path: &Path,
        len: usize,
        flows: &mut Flows,
    ) -> Result<(), Refused> {
        if len > self.bytes.len() {
            return Err(Refused::Never);
        }
        self.clear();
        self.flow = flows.get(dest).map(|flow| flow.to_peer);
        (self.dest, self.segment) = (dest, len);
        (self.tos, self.sl) = (path.traffic_class, path.sl);
        Ok(())
    }

    /// Tells what has become of packets for the peer of the last batch.
    #[inline]
    fn tell(&mut self, trailers: &mut Trailers) {
        if self.with_trailer + self.repeated > 0 {
            let process = (self.dest.ip(), self.slot);
            trailers.note(process, self.with_trailer, self.repeated);
            (self.with_trailer, self.repeated) = (0, 0);
        }
    }

    /// Makes room in each segment of the batch that begins with this packet for the longest of its message, if
    /// the peer takes trailers. Unreliable services get none: nothing would tell that a peer does not take them.
    #[inline]
    fn level(&mut self, packet: &Outgoing, trailers: &mut Trailers) {
        let opcode = packet.headers.opcode();
        let is_of_several = opcode.is_first() || opcode.is_middle() || opcode.is_last();
        if !is_of_several || opcode.service() == Service::Uc {
            self.levels = false;
            return;
        }
        let process = (self.dest.ip(), self.slot);
        self.levels = trailers.takes(process);
        if self.levels && !packet.is_repeated {
            self.segment += header_len_of_first(opcode).saturating_sub(opcode.header_len());
        }
    }

    #[inline]
    fn fits(&self, dest: SocketAddr, path: &Path, len: usize, socket: &Socket) -> bool {
        !self.closed
            && (dest, path.traffic_class, path.sl) == (self.dest, self.tos, self.sl)
            && len <= self.segment
            && self.len + if self.levels { self.segment } else { len } <= self.bytes.len()
            && self.lens.len() < socket.segments_max()
    }

    /// Sends the batch. `Err` means that the socket takes nothing now and the batch waits.
    #[inline]
    pub fn flush(
        &mut self,
        socket: &Socket,
        hca: &mut Hca,
        tap: Option<&Tap>,
        faults: &mut Faults,
    ) -> Result<(), WouldBlock> {
        while !self.is_empty() {
            let segmented = socket.segmentation();
            if let Some(tap) = tap {
                tap.leaving(self.dest.ip(), self.packets());
            }
            match socket.send(self.dest, self.tos, &self.bytes[..self.len], self.segment) {
                Ok(sent) => {
                    self.record(socket, tap, sent.datagrams);
                    self.drop_front(sent.datagrams, sent.bytes);
                    if segmented && !self.is_empty() {
                        self.renumber(sent.datagrams, socket);
                    }
                }
                Err(SendError::WouldBlock) => return Err(WouldBlock),
                Err(_) if socket.is_out() => self.clear(),
                // The link lost it, as links do; the transport repeats what matters.
                Err(error) => {
                    hca.count(Counter::TxDropped, self.lens.len() as u64);
                    faults.refused(self.dest.ip(), &error);
                    self.clear();
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn record(&self, socket: &Socket, tap: Option<&Tap>, datagrams: usize) {
        let Some(tap) = tap else { return };
        for (index, bytes) in self.packets().take(datagrams).enumerate() {
            let ip_id = socket.ip_id(index as u16);
            let seen = Seen {
                source: socket.address(),
                dest: self.dest,
                tos: self.tos,
                pcp: Some(self.sl),
                ip_id,
                dont_fragment: true,
            };
            tap.sent(&seen, bytes);
        }
    }

    /// The packets without their trailers.
    #[inline]
    fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let segments = self.bytes[..self.len].chunks(self.segment);
        segments
            .zip(&self.lens)
            .map(|(segment, len)| &segment[..usize::from(*len)])
    }

    /// Takes the packets off that have left.
    #[inline]
    fn drop_front(&mut self, packets: usize, bytes: usize) {
        if packets >= self.lens.len() {
            self.clear();
            return;
        }
        self.bytes.copy_within(bytes..self.len, 0);
        self.len -= bytes;
        self.lens.drain(..packets);
    }

    /// Makes the ICRCs anew after the route turned out unable to segment: what remains was numbered
    /// from `first` on, and each packet now gets the IP Identification of one sent alone. A packet
    /// that the impaired link has damaged keeps its wrong ICRC.
    #[cold]
    fn renumber(&mut self, first: usize, socket: &Socket) {
        let Some(flow) = &self.flow else { return };
        let segments = self.bytes[..self.len].chunks_mut(self.segment);
        for (index, (segment, len)) in segments.zip(&self.lens).enumerate() {
            let packet = &mut segment[..usize::from(*len)];
            if let Some((transport, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>()
                && *icrc
                    == flow
                        .compute((first + index) as u16, transport)
                        .to_le_bytes()
            {
                let ip_id = socket.ip_id(index as u16);
                *icrc = flow.compute(ip_id, transport).to_le_bytes();
            }
        }
    }
}

/// The length of the headers of a message's first packet, the longest of those of several packets.
fn header_len_of_first(opcode: Opcode) -> usize {
    let first = match opcode.operation() {
        Opcode::RcWriteMiddle | Opcode::RcWriteLast | Opcode::RcWriteLastImm => {
            Opcode::RcWriteFirst
        }
        Opcode::RcReadResponseMiddle => Opcode::RcReadResponseFirst,
        other => other,
    };
    let first = first.of_service(opcode.service()).unwrap_or(opcode);
    first.header_len()
}

/// The socket takes nothing now.
#[derive(Debug)]
pub struct WouldBlock;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Options;

    /// Three packets numbered for one segmented batch, the second of them damaged; the first has
    /// left when the route turns out unable to segment.
    #[test]
    fn packets_are_numbered_anew_but_stay_damaged() {
        const LEN: usize = 64;
        let plain = Options {
            segmentation: false,
            ..Options::default()
        };
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), &plain).unwrap();
        let peer = "127.0.0.2:4791".parse().unwrap();
        let flow = Flows::new(socket.address()).get(peer).unwrap().to_peer;
        let mut stage = Stage::new(socket.address());
        (stage.flow, stage.segment) = (Some(flow), LEN);
        (stage.lens, stage.len) = (vec![LEN as u16; 3], 3 * LEN);
        for (index, packet) in stage.bytes.chunks_mut(LEN).take(3).enumerate() {
            packet.fill(index as u8);
            let (transport, icrc) = packet.split_last_chunk_mut().unwrap();
            *icrc = flow.compute(index as u16, transport).to_le_bytes();
        }
        stage.bytes[LEN + 20] ^= 1;

        stage.drop_front(1, LEN);
        stage.renumber(1, &socket);
        let good = |at: usize| {
            let (transport, icrc) = stage.bytes[at..][..LEN].split_last_chunk().unwrap();
            *icrc == flow.compute(0, transport).to_le_bytes()
        };
        assert!(!good(0), "a damaged packet became a good one");
        assert!(good(LEN));
        assert_eq!((stage.lens.len(), stage.len), (2, 2 * LEN));
    }
}
