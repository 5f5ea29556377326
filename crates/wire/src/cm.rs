//! Messages of the connection manager (IBA vol 1, chapter 12), which queue pairs 1 exchange to set
//! up and end connections.
//!
//! Each message is a management datagram (MAD) of 256 bytes in one UD packet. The fields have the
//! names of the standard; "local" always means the sender.

mod address;
mod field;
mod message;

use core::fmt;

use thiserror::Error;

pub use address::{AddressHeader, PortSpace, ServiceId};
use field::{BODY_LEN, Body, Place, Value};
pub use field::{Bits, Gid, Private, PrivateTooLong};
pub use message::{Answered, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};

use crate::extension::Deth;
use crate::headers::Headers;
use crate::ids::{Psn, Qpn};

/// Size of a MAD, bytes.
pub const MAD_LEN: usize = 256;

/// Q_Key of queue pair 1 on every device.
pub const GSI_QKEY: u32 = 0x8001_0000;

const MAD_HEADER_LEN: usize = MAD_LEN - BODY_LEN;
const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// Returns the headers of a packet with a MAD, from queue pair 1 to queue pair 1.
pub const fn headers(psn: Psn) -> Headers {
    let deth = Deth {
        qkey: GSI_QKEY,
        src_qp: Qpn::GSI,
    };
    Headers::datagram(deth, None).to(Qpn::GSI, psn)
}

/// A MAD of the connection manager.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mad {
    /// Transaction ID: an answer has the ID of the message it answers.
    pub tid: u64,
    /// The message.
    pub message: Message,
}

macro_rules! kinds {
    ($($name:ident = $attribute:literal,)*) => {
        /// A message of the connection manager.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[allow(missing_docs, reason = "the messages themselves are documented")]
        #[allow(clippy::large_enum_variant, reason = "on the wire they are all as large")]
        pub enum Message {
            $($name($name),)*
        }

        impl Message {
            /// Returns the attribute ID that identifies the kind of message in the MAD header.
            pub const fn attribute(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $attribute,)*
                }
            }

            fn read(attribute: u16, body: &Body) -> Option<Self> {
                match attribute {
                    $($attribute => Some(Self::$name($name::read(body))),)*
                    _ => None,
                }
            }

            fn write(&self, body: &mut Body) {
                match self {
                    $(Self::$name(message) => message.write(body),)*
                }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        })*
    };
}

kinds! {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
}

impl Message {
    /// Returns the receiver's ID for the connection or request, in messages that carry one.
    pub const fn addressee(&self) -> Option<u32> {
        Some(match self {
            Self::Req(_) | Self::SidrReq(_) => return None,
            Self::Mra(message) => message.remote_comm_id,
            Self::Rej(message) => message.remote_comm_id,
            Self::Rep(message) => message.remote_comm_id,
            Self::Rtu(message) => message.remote_comm_id,
            Self::Dreq(message) => message.remote_comm_id,
            Self::Drep(message) => message.remote_comm_id,
            Self::SidrRep(message) => message.request_id,
        })
    }
}

impl Mad {
    /// Parses a MAD. Reserved fields and the status are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, MadError> {
        let (common, tid, attribute, body) =
            split(bytes).ok_or(MadError::Length { got: bytes.len() })?;
        let [base_version, class, class_version, method, ..] = *common;
        for (field, got, expected) in [
            ("base version", base_version, BASE_VERSION),
            ("management class", class, CLASS),
            ("class version", class_version, CLASS_VERSION),
            ("method", method, METHOD_SEND),
        ] {
            if got != expected {
                return Err(MadError::Field {
                    field,
                    got,
                    expected,
                });
            }
        }
        let attribute = u16::from_be_bytes(*attribute);
        let message =
            Message::read(attribute, body).ok_or(MadError::Attribute { got: attribute })?;
        Ok(Self {
            tid: u64::from_be_bytes(*tid),
            message,
        })
    }

    /// Returns the bytes of the MAD.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND]);
        mad[8..16].copy_from_slice(&self.tid.to_be_bytes());
        mad[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        let mut body = [0; BODY_LEN];
        self.message.write(&mut body);
        mad[MAD_HEADER_LEN..].copy_from_slice(&body);
        mad
    }
}

/// Versions, class, method and status; transaction; attribute; message.
type Parts<'a> = (&'a [u8; 8], &'a [u8; 8], &'a [u8; 2], &'a Body);

fn split(bytes: &[u8]) -> Option<Parts<'_>> {
    let (common, rest) = bytes.split_first_chunk()?;
    let (tid, rest) = rest.split_first_chunk()?;
    let (attribute, rest) = rest.split_first_chunk()?;
    let (_reserved, body) = rest.split_first_chunk::<2>()?;
    Some((common, tid, attribute, body.try_into().ok()?))
}

/// The reason why bytes are not a MAD of the connection manager.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MadError {
    /// The length is not that of a MAD.
    #[error("a MAD has {MAD_LEN} bytes, got {got}")]
    Length {
        /// Length found, bytes.
        got: usize,
    },
    /// The MAD belongs to another management class, or to another version of this one.
    #[error("MAD {field} is {got}, expected {expected}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The value found.
        got: u8,
        /// The only valid value.
        expected: u8,
    },
    /// There is no such message, or it concerns alternate paths, which RoCE does not have.
    #[error("attribute {got:#x} is not a message that is answered here")]
    Attribute {
        /// The attribute ID found.
        got: u16,
    },
}

/// The reason for a rejection (IBA vol 1, 12.6.7.2).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair available.
    pub const NO_QP: Self = Self(1);
    /// No resources available.
    pub const NO_RESOURCES: Self = Self(3);
    /// The sender gave up waiting.
    pub const TIMEOUT: Self = Self(4);
    /// The sender does not know the connection, or no longer knows it.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// No program listens for this service.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The service uses another transport.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// One side has a connection with the same queue pair that the other does not know.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The path does not lead from the sender to the receiver.
    pub const INVALID_GID: Self = Self(12);
    /// The path MTU is none, or more than the port has.
    pub const INVALID_MTU: Self = Self(26);
    /// The listening program refused the connection.
    pub const CONSUMER: Self = Self(28);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::NO_QP => "no queue pair available",
            Self::NO_RESOURCES => "no resources available",
            Self::TIMEOUT => "timeout",
            Self::INVALID_COMM_ID => "invalid communication ID",
            Self::INVALID_SERVICE_ID => "invalid service ID: no program listens",
            Self::INVALID_TRANSPORT => "invalid transport service type",
            Self::STALE_CONNECTION => "stale connection",
            Self::INVALID_GID => "invalid GID: not the address that the request came from",
            Self::INVALID_MTU => "invalid path MTU",
            Self::CONSUMER => "rejected by the program",
            Self(reason) => return write!(f, "reason {reason}"),
        })
    }
}

impl Value for RejectReason {
    fn read(body: &Body, place: Place) -> Self {
        Self(Value::read(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        self.0.write(body, place);
    }
}

#[cfg(test)]
mod tests;
