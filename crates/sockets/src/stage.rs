//! Turns packets into bytes, and collects them into batches of one system call.

use std::net::SocketAddr;

use ferroce_device::{Counter, Hca, Outgoing, Path, Shape, damage};
use ferroce_os::{Seen, Tap};
use ferroce_wire::{Flows, ICRC_LEN, IcrcFlow};

use crate::exits::Exit;
use crate::fault::Faults;
use crate::socket::{PAYLOAD_BYTES_MAX, SendError, Socket};

/// Packets that leave with one system call: as bytes, one after the other, all as long as the
/// first but the last, which may be shorter.
///
/// The payload is copied here once, and the ICRC computed over the copy. Sending straight from
/// registered memory would save the copy, but the memory belongs to the program and may change
/// between the CRC and the kernel's copy of it: what the peer of a READ does all day to a flag
/// would then arrive as a damaged packet. A card reads memory once; so does this.
#[derive(Debug)]
pub struct Stage {
    bytes: Box<[u8]>,
    len: usize,
    /// Length of the first packet; 0 while empty.
    segment: usize,
    packets: usize,
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
            packets: 0,
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
        self.packets == 0
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
        self.packets = 0;
        self.closed = false;
    }

    /// Adds a packet.
    #[inline]
    pub fn push(&mut self, hca: &Hca, packet: &Outgoing, exit: Exit<'_>) -> Result<(), Refused> {
        let Exit {
            number,
            socket,
            flows,
        } = exit;
        let dest = SocketAddr::new(packet.path.dest, self.dest.port());
        let shape = Shape::of(packet);
        let (icrc_at, len) = (shape.icrc_at, shape.len);
        let slot = packet.headers.dest_qp.value() >> 16;
        if self.is_empty() {
            self.begin(dest, &packet.path, len, flows)?;
            (self.slot, self.exit) = (slot, number);
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
        let icrc = flow.compute(socket.ip_id(self.packets as u16), &out[..icrc_at]);
        out[icrc_at..].copy_from_slice(&icrc.to_le_bytes());
        damage(packet, out);
        self.len += len;
        self.packets += 1;
        self.closed = len < self.segment;
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

    #[inline]
    fn fits(&self, dest: SocketAddr, path: &Path, len: usize, socket: &Socket) -> bool {
        !self.closed
            && (dest, path.traffic_class, path.sl) == (self.dest, self.tos, self.sl)
            && len <= self.segment
            && self.len + len <= self.bytes.len()
            && self.packets < socket.segments_max()
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
                let packets = self.bytes[..self.len].chunks(self.segment);
                tap.leaving(self.dest.ip(), packets);
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
                    hca.count(Counter::TxDropped, self.packets as u64);
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
        let packets = self.bytes[..self.len].chunks(self.segment).take(datagrams);
        for (index, bytes) in packets.enumerate() {
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

    /// Takes the packets off that have left.
    #[inline]
    fn drop_front(&mut self, packets: usize, bytes: usize) {
        if packets >= self.packets {
            self.clear();
            return;
        }
        self.bytes.copy_within(bytes..self.len, 0);
        self.len -= bytes;
        self.packets -= packets;
    }

    /// Makes the ICRCs anew after the route turned out unable to segment: what remains was numbered
    /// from `first` on, and each packet now gets the IP Identification of one sent alone. A packet
    /// that the impaired link has damaged keeps its wrong ICRC.
    #[cold]
    fn renumber(&mut self, first: usize, socket: &Socket) {
        let Some(flow) = &self.flow else { return };
        for (index, packet) in self.bytes[..self.len].chunks_mut(self.segment).enumerate() {
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
        (stage.packets, stage.len) = (3, 3 * LEN);
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
        assert_eq!((stage.packets, stage.len), (2, 2 * LEN));
    }
}
