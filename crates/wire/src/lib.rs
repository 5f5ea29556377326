//! RoCEv2 packets: headers, ICRC, CNP and pcapng (no clock, no socket, no unsafe).
//!
//! Everything here concerns the payload of a UDP datagram: base transport header, extension
//! headers, payload, pad, ICRC.
//!
//! - [`Packet`] is a zero-copy view of received bytes. [`Packet::new_checked`] is the only place
//!   where parsing can fail.
//! - [`Headers`] holds the same as owned values, and is used to write packets.
//! - [`IcrcFlow`] computes the ICRC of a flow's packets; [`IcrcVerifier`] checks them.
//! - [`cm`] has the messages of connection management, which are sent as payload.
//! - [`cnp`] and [`pcapng`] are small modules built on the others.
//! - [`ethernet`] computes how many bytes of a link a packet takes.
//!
//! No function of this crate panics, regardless of the bytes or values it is given, and only
//! [`pcapng`] allocates.
//!
//! ```
//! use ferroce_wire::{
//!     Connection, Headers, IcrcFlow, IpPair, Packet, Place, Psn, Qpn, ROCE_V2_PORT,
//! };
//!
//! let ip = IpPair::V4 { src: [127, 0, 0, 1], dst: [127, 0, 0, 2] };
//! let flow = IcrcFlow::new(ip, 49_152, ROCE_V2_PORT);
//!
//! let send = Headers::send(Connection::Rc, Place::Only, None);
//! let headers = send.to(Qpn::new(17), Psn::new(42));
//! let mut buffer = [0; 64];
//! let len = headers.emit_packet(b"hello", &flow, 0, &mut buffer)?;
//!
//! assert!(flow.verify(0, &buffer[..len]).is_ok());
//! let packet = Packet::new_checked(&buffer[..len])?;
//! assert_eq!(packet.payload(), b"hello");
//! assert_eq!(packet.headers().psn, Psn::new(42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

mod aeth;
pub mod cm;
pub mod cnp;
pub mod ethernet;
mod extension;
mod flows;
mod gf2;
mod headers;
mod icrc;
mod ids;
mod lengths;
mod opcode;
mod packet;
pub mod pcapng;
#[cfg(test)]
mod testing;
mod trailer;

pub use aeth::{Aeth, CreditCode, NakCode, RNR_TIMER_NS, Syndrome, rnr_timer_ns};
pub use extension::{AtomicEth, DcConnect, Dceth, Deth, ExtensionValues, Reth};
pub use flows::{Flow, Flows};
pub use headers::{
    BthFlags, Connection, EmitError, Headers, PKEY_DEFAULT, Place, ROCE_V2_PORT, STEERING_PROBE,
};
pub use icrc::{IcrcFlow, IcrcVerifier, IdPolicy, IpPair, Verdict};
pub use ids::{Psn, Qpn, Srqn};
pub use lengths::{
    AETH_LEN, ATOMIC_ACK_ETH_LEN, ATOMIC_ETH_LEN, BTH_LEN, CNP_RESERVED_LEN, DC_CONNECT_LEN,
    DCETH_LEN, DETH_LEN, HEADERS_LEN_MAX, ICRC_LEN, IETH_LEN, IMM_LEN, RETH_LEN, XRCETH_LEN,
    pad_len,
};
pub use opcode::{Opcode, Service};
pub use packet::{Packet, ParseError};
pub use trailer::{HELLO, Hello, TRAILER_LEN_MAX, fill_trailer, strip_trailer};
