//! The packets of a flood.

use std::net::SocketAddr;

use ferroce_base::random::Dice;
use ferroce_wire::cm::{
    AddressHeader, Bits, Mad, Message, PortSpace, Private, Req, ServiceId, headers as mad_headers,
};
use ferroce_wire::{
    Aeth, BthFlags, Connection, CreditCode, Deth, Headers, Hello, ICRC_LEN, IcrcFlow, NakCode,
    PKEY_DEFAULT, Place, Psn, Qpn, Reth, Syndrome, cnp,
};

/// The longest packet of a flood, bytes.
pub const PACKET_LEN_MAX: usize = 2048;
/// The service that the victims' program listens on.
pub const SERVICE: ServiceId = ServiceId::new(PortSpace::Tcp, 7174);
/// Bytes that each duplicate of a READ request asks for.
pub const READ_BYTES: u32 = 1 << 20;
/// PSNs before the connection's first: each of them counts as executed.
const OLD_PSNS: u64 = 1 << 20;
/// Bits that a report has in its payload, in bytes.
const REPORT_LEN: usize = 128;

/// What an attacker sends. All but garbage and damaged packets are well-formed, with the right ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flood {
    /// REQs of the connection manager, each for a new connection.
    NewRequests,
    /// The same REQ again and again.
    SameRequest,
    /// CNPs for the victim's queue pair, and for unknown ones.
    Cnps,
    /// ACKs and NAKs for a lost packet, at any PSN.
    Answers,
    /// NAKs that end a connection, at any PSN.
    FatalNaks,
    /// WRITEs that were executed long ago.
    OldWrites,
    /// READs of 1 MiB that were answered long ago.
    OldReads,
    /// WRITEs ahead of their turn, at any PSN, that ask for reports of what is missing.
    EarlyWrites,
    /// Reports of missing packets, at any PSN.
    Reports,
    /// Bytes that are not a packet.
    Garbage,
    /// WRITEs of 1 KiB with a wrong ICRC.
    Damaged,
    /// Questions whether the victim takes trailers, and answers that nothing has asked for.
    Hellos,
    /// Datagrams with a wrong Q_Key.
    Datagrams,
}

/// Which of the two victims a flood is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// The one that sends WRITEs and receives acknowledgements.
    Requester,
    /// The one that receives them.
    Responder,
}

impl Flood {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::NewRequests,
        Self::SameRequest,
        Self::Cnps,
        Self::Answers,
        Self::FatalNaks,
        Self::OldWrites,
        Self::OldReads,
        Self::EarlyWrites,
        Self::Reports,
        Self::Garbage,
        Self::Damaged,
        Self::Hellos,
        Self::Datagrams,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewRequests => "new REQs",
            Self::SameRequest => "one REQ, repeated",
            Self::Cnps => "CNPs",
            Self::Answers => "ACKs and sequence NAKs",
            Self::FatalNaks => "fatal NAKs",
            Self::OldWrites => "old WRITEs",
            Self::OldReads => "old READs of 1 MiB",
            Self::EarlyWrites => "early WRITEs",
            Self::Reports => "gap reports",
            Self::Garbage => "garbage",
            Self::Damaged => "wrong ICRC",
            Self::Hellos => "trailer questions",
            Self::Datagrams => "wrong Q_Key",
        }
    }

    /// Whether it is for queue pairs that repeat selectively.
    pub const fn is_of_selective_repeat(self) -> bool {
        matches!(self, Self::EarlyWrites | Self::Reports)
    }

    /// The victim that it harms most.
    pub const fn aim(self) -> Aim {
        match self {
            Self::Cnps | Self::Answers | Self::FatalNaks | Self::Reports => Aim::Requester,
            _ => Aim::Responder,
        }
    }
}

/// What an attacker knows of its victim: all but the PSN that is due.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The device's address and port.
    pub device: SocketAddr,
    /// Its connected queue pair.
    pub qpn: Qpn,
    /// The PSN that this queue pair began with.
    pub first_psn: Psn,
    /// A place in its memory, with room for [`READ_BYTES`].
    pub va: u64,
    /// The key to that.
    pub rkey: u32,
    /// Its queue pair for datagrams.
    pub datagrams: Qpn,
}

/// The packets of a flood, one after the other.
#[derive(Debug)]
pub struct Packets {
    flood: Flood,
    known: Known,
    source: SocketAddr,
    flow: IcrcFlow,
    dice: Dice,
    made: u32,
}

impl Packets {
    /// Those that `source` sends to the victim; `seed` decides what is guessed.
    ///
    /// `None` if one address is of IPv4 and the other of IPv6.
    pub fn new(flood: Flood, known: Known, source: SocketAddr, seed: u64) -> Option<Self> {
        let ip = ferroce_wire::IpPair::new(source.ip(), known.device.ip())?;
        Some(Self {
            flood,
            known,
            source,
            flow: IcrcFlow::new(ip, source.port(), known.device.port()),
            dice: Dice::new(seed),
            made: 0,
        })
    }

    /// Writes the next packet, from BTH to ICRC, to the start of `buffer`, and returns its length in bytes.
    ///
    /// # Panics
    /// Panics if the buffer is shorter than [`PACKET_LEN_MAX`].
    pub fn make(&mut self, buffer: &mut [u8]) -> usize {
        self.made = self.made.wrapping_add(1);
        let is_odd = !self.made.is_multiple_of(2);
        let Known { qpn, .. } = self.known;
        match self.flood {
            Flood::NewRequests => self.request(self.made, buffer),
            Flood::SameRequest => self.request(1, buffer),
            Flood::Cnps => {
                let unknown = Qpn::new(qpn.value() ^ 0x12_0000);
                let dest = if is_odd { qpn } else { unknown };
                self.emit(&cnp::headers(dest, PKEY_DEFAULT), &[], buffer)
            }
            Flood::Answers => {
                let credit = CreditCode::from_credits(1);
                let syndrome = match is_odd {
                    true => Syndrome::Ack { credit },
                    false => Syndrome::Nak(NakCode::SequenceError),
                };
                let psn = self.any_psn();
                let headers = Headers::acknowledge(Aeth { syndrome, msn: 1 });
                self.emit(&headers.to(qpn, psn), &[], buffer)
            }
            Flood::FatalNaks => {
                let syndrome = Syndrome::Nak(NakCode::RemoteOperational);
                let psn = self.any_psn();
                let headers = Headers::acknowledge(Aeth { syndrome, msn: 1 });
                self.emit(&headers.to(qpn, psn), &[], buffer)
            }
            Flood::OldWrites => {
                let psn = self.old_psn();
                self.emit(&self.write(8).to(qpn, psn), b"attacked", buffer)
            }
            Flood::OldReads => {
                let psn = self.old_psn();
                let headers = Headers::read(None, self.reth(READ_BYTES));
                self.emit(&headers.to(qpn, psn), &[], buffer)
            }
            Flood::EarlyWrites => {
                let mut headers = self.write(8).to(qpn, self.any_psn());
                headers.flags |= BthFlags::SELECTIVE | BthFlags::ACK_REQ;
                self.emit(&headers, b"attacked", buffer)
            }
            Flood::Reports => {
                let syndrome = Syndrome::Nak(NakCode::SequenceError);
                let headers = Headers::acknowledge_report(Aeth { syndrome, msn: 1 });
                let (psn, kept) = (self.any_psn(), self.bytes::<REPORT_LEN>());
                self.emit(&headers.to(qpn, psn), &kept, buffer)
            }
            Flood::Garbage => {
                let len = self.dice.below(1400) as usize;
                let (words, rest) = buffer[..len].as_chunks_mut();
                words.fill(self.bytes::<8>());
                rest.fill(0xff);
                len
            }
            Flood::Damaged => {
                let psn = self.any_psn();
                let len = self.emit(&self.write(1024).to(qpn, psn), &[0xee; 1024], buffer);
                buffer[len - ICRC_LEN] ^= 1;
                len
            }
            Flood::Hellos => {
                let hello = Hello {
                    is_answer: is_odd,
                    to: Qpn::new(0),
                    from: Qpn::new((self.made << 16) & 0xff_0000),
                    nonce: self.dice.next(),
                };
                let bytes = hello.bytes();
                buffer[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            }
            Flood::Datagrams => {
                let deth = Deth {
                    qkey: self.dice.next() as u32 | 1,
                    src_qp: Qpn::new(0x77),
                };
                let headers = Headers::datagram(deth, None);
                let to = self.known.datagrams;
                self.emit(&headers.to(to, Psn::ZERO), b"attacked", buffer)
            }
        }
    }

    fn emit(&self, headers: &Headers, payload: &[u8], buffer: &mut [u8]) -> usize {
        headers
            .emit_packet(payload, &self.flow, 0, buffer)
            .expect("the buffer has room for each packet")
    }

    /// A REQ in the sender's own name.
    fn request(&self, name: u32, buffer: &mut [u8]) -> usize {
        let dest = self.known.device.ip();
        let source = self.source;
        let names = AddressHeader { source, dest }.emit();
        let request = Req {
            local_comm_id: name,
            service_id: SERVICE,
            qpn: Qpn::new(name | 0x100),
            mtu: Bits::saturating(3),
            local_gid: source.ip().into(),
            private: Private::new(&names).expect("the header fits"),
            ..Req::default()
        };
        let mad = Mad {
            tid: name.into(),
            message: Message::from(request),
        };
        self.emit(&mad_headers(Psn::ZERO), &mad.emit(), buffer)
    }

    fn write(&self, length: u32) -> Headers {
        Headers::write(Connection::Rc, Place::Only, self.reth(length), None)
    }

    fn reth(&self, length: u32) -> Reth {
        let Known { va, rkey, .. } = self.known;
        Reth { va, rkey, length }
    }

    fn any_psn(&mut self) -> Psn {
        Psn::new(self.dice.next() as u32)
    }

    fn old_psn(&mut self) -> Psn {
        let back = 1 + self.dice.below(OLD_PSNS) as u32;
        Psn::new(self.known.first_psn.value().wrapping_sub(back))
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (words, _) = bytes.as_chunks_mut();
        for word in words {
            *word = self.dice.next().to_ne_bytes();
        }
        bytes
    }
}
