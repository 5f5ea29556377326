//! Captures: a port's packets as bytes. Packets become bytes nowhere else.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;

use ferroce_device::{Outgoing, VlanId, VlanTag};
use ferroce_transport::Payload;
use ferroce_wire::pcapng::{Direction, UdpMeta, Writer};
use ferroce_wire::{EmitError, IcrcFlow, IpPair, ROCE_V2_PORT};

use crate::host::address;
use crate::network::Passed;

/// Where a capture is written.
pub(crate) type Sink = Box<dyn Write + Send>;

/// The captures of a fabric.
#[derive(Default, Debug)]
pub(crate) struct Captures {
    all: Vec<Capture>,
    payload: Vec<u8>,
    bytes: Vec<u8>,
}

/// What passes one port, both ways.
struct Capture {
    /// The line that leaves it.
    port: u32,
    writer: Writer<Sink>,
    /// The first error; the rest of the capture is dropped.
    error: Option<io::Error>,
}

/// A packet at a port.
pub(crate) struct Seen<'a> {
    pub(crate) source_port: u16,
    /// The VLAN of the sender.
    pub(crate) vlan: Option<VlanId>,
    /// The line that leaves the port.
    pub(crate) port: u32,
    pub(crate) passed: &'a Passed<Outgoing>,
}

impl Captures {
    /// Begins a capture of the port that a line leaves.
    pub(crate) fn begin(&mut self, port: u32, to: Sink) -> io::Result<()> {
        self.all.push(Capture {
            port,
            writer: Writer::new(to)?,
            error: None,
        });
        Ok(())
    }

    /// Records a packet.
    pub(crate) fn note(&mut self, seen: &Seen<'_>) {
        let Passed {
            at,
            port: _,
            leaves,
            frame,
            packet,
        } = seen.passed;
        let meta = UdpMeta {
            tos: frame.ecn.on(packet.path.traffic_class),
            tag: seen.vlan.map(|vlan| VlanTag {
                vlan,
                pcp: packet.path.sl,
            }),
            direction: Some(if *leaves {
                Direction::Outbound
            } else {
                Direction::Inbound
            }),
            ..UdpMeta::new(
                SocketAddr::new(address(frame.source), seen.source_port),
                SocketAddr::new(packet.path.dest, ROCE_V2_PORT),
            )
        };
        let made = emit(packet, &meta, &mut self.payload, &mut self.bytes);
        for it in self
            .all
            .iter_mut()
            .filter(|it| it.port == seen.port && it.error.is_none())
        {
            let written = match &made {
                Ok(()) => it.writer.write_packet(at.as_nanos(), &meta, &self.bytes),
                Err(error) => Err(io::Error::other(*error)),
            };
            it.error = written.err();
        }
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// Returns an error if a capture is not whole.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for capture in &mut self.all {
            if let Some(error) = capture.error.take() {
                return Err(error);
            }
            capture.writer.flush()?;
        }
        Ok(())
    }
}

/// Makes bytes of a packet, from its BTH to its ICRC. The memory of hosts reads as zeros.
fn emit(
    packet: &Outgoing,
    meta: &UdpMeta,
    payload: &mut Vec<u8>,
    bytes: &mut Vec<u8>,
) -> Result<(), EmitError> {
    payload.clear();
    if let Payload::Carried(carried) = &packet.payload {
        payload.extend_from_slice(carried);
    }
    payload.resize(packet.payload_len as usize, 0);
    bytes.clear();
    bytes.resize(packet.frame_bytes() as usize, 0);
    // Hosts of a fabric have addresses of one family.
    if let Some(pair) = IpPair::new(meta.src.ip(), meta.dst.ip()) {
        let flow = IcrcFlow::new(pair, meta.src.port(), meta.dst.port());
        packet
            .headers
            .emit_packet(payload, &flow, meta.ip_id, bytes)?;
    }
    if let Some(bit) = packet.corrupt_bit() {
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
    }
    Ok(())
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, error, .. } = self;
        write!(f, "Capture at {port}, {error:?}")
    }
}
