//! Values at fixed bits of a message.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

use crate::ids::{Psn, Qpn};

/// Bytes of the attribute modifier, the last field of the MAD header.
const MODIFIER_LEN: usize = 4;

/// Bytes of a CM message: the attribute modifier, and all behind the MAD header.
pub(super) const BODY_LEN: usize = MODIFIER_LEN + 232;

/// A CM message.
pub(super) type Body = [u8; BODY_LEN];

/// First bit of a field, counted from the most significant bit of the body's first byte.
#[derive(Clone, Copy)]
pub(super) struct Place(usize);

/// The field begins with a byte behind the MAD header.
pub(super) const fn at(byte: usize) -> Place {
    bit(byte, 0)
}

/// The field begins inside a byte; bit 0 is its most significant one.
pub(super) const fn bit(byte: usize, bit: usize) -> Place {
    Place(8 * (MODIFIER_LEN + byte) + bit)
}

/// The attribute modifier.
pub(super) const MODIFIER: Place = Place(0);

/// What a field holds; the type knows its width.
pub(super) trait Value: Sized {
    fn read(body: &Body, place: Place) -> Self;
    fn write(&self, body: &mut Body, place: Place);
}

/// A bit at a time: fields begin and end anywhere, and connections are made rarely.
fn load(body: &Body, Place(first): Place, width: usize) -> u64 {
    (first..first + width).fold(0, |value, at| {
        let byte = body.get(at / 8).copied().unwrap_or(0);
        value << 1 | u64::from(byte >> (7 - at % 8) & 1)
    })
}

fn store(body: &mut Body, Place(first): Place, width: usize, value: u64) {
    for n in 0..width {
        let at = first + n;
        if let Some(byte) = body.get_mut(at / 8)
            && value >> (width - 1 - n) & 1 == 1
        {
            *byte |= 0x80 >> (at % 8);
        }
    }
}

macro_rules! integers {
    ($($type:ty: $width:literal, $from:expr;)*) => { $(
        impl Value for $type {
            fn read(body: &Body, place: Place) -> Self {
                #[allow(clippy::cast_possible_truncation, reason = "as wide as the field")]
                let from: fn(u64) -> Self = $from;
                from(load(body, place, $width))
            }

            fn write(&self, body: &mut Body, place: Place) {
                store(body, place, $width, u64::from(*self));
            }
        }
    )* };
}

integers! {
    bool: 1, |value| value == 1;
    u8: 8, |value| value as Self;
    u16: 16, |value| value as Self;
    u32: 32, |value| value as Self;
    u64: 64, |value| value;
}

impl Value for Qpn {
    fn read(body: &Body, place: Place) -> Self {
        Self::from_bytes(Value::read(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        self.to_bytes().write(body, place);
    }
}

impl Value for Psn {
    fn read(body: &Body, place: Place) -> Self {
        Self::from_bytes(Value::read(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        self.to_bytes().write(body, place);
    }
}

impl<const N: usize> Value for [u8; N] {
    fn read(body: &Body, Place(first): Place) -> Self {
        let bytes = body.get(first / 8..).and_then(<[u8]>::first_chunk);
        *bytes.unwrap_or(&[0; N])
    }

    fn write(&self, body: &mut Body, Place(first): Place) {
        if let Some(bytes) = body.get_mut(first / 8..).and_then(<[u8]>::first_chunk_mut) {
            *bytes = *self;
        }
    }
}

/// A number of `N` bits, 1 to 32.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Bits<const N: u32>(u32);

impl<const N: u32> Bits<N> {
    /// The largest value.
    pub const MAX: Self = Self(u32::MAX >> (32 - N));

    /// Creates the number, if it fits in `N` bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX.0 {
            Some(Self(value))
        } else {
            None
        }
    }

    /// Creates the number, limited to the largest value.
    pub const fn saturating(value: u32) -> Self {
        match Self::new(value) {
            Some(bits) => bits,
            None => Self::MAX,
        }
    }

    /// Returns the number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl<const N: u32> fmt::Display for Bits<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const N: u32> Value for Bits<N> {
    fn read(body: &Body, place: Place) -> Self {
        // At most 32 bits.
        #[allow(clippy::cast_possible_truncation)]
        let value = load(body, place, N as usize) as u32;
        Self(value)
    }

    fn write(&self, body: &mut Body, place: Place) {
        store(body, place, N as usize, self.0.into());
    }
}

/// A global identifier; in RoCE v2 an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the address.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        Self(match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        })
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl Value for Gid {
    fn read(body: &Body, place: Place) -> Self {
        Self(Value::read(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        self.0.write(body, place);
    }
}

/// Private data: `N` bytes for the programs, padded with zeros.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Private<const N: usize>(pub [u8; N]);

impl<const N: usize> Private<N> {
    /// Pads the bytes with zeros.
    pub fn new(bytes: &[u8]) -> Result<Self, PrivateTooLong> {
        let mut private = Self::default();
        let room = private.0.get_mut(..bytes.len()).ok_or(PrivateTooLong {
            max: N,
            got: bytes.len(),
        })?;
        room.copy_from_slice(bytes);
        Ok(private)
    }
}

impl<const N: usize> Default for Private<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Value for Private<N> {
    fn read(body: &Body, place: Place) -> Self {
        Self(Value::read(body, place))
    }

    fn write(&self, body: &mut Body, place: Place) {
        self.0.write(body, place);
    }
}

/// The error for more private data than the message can hold.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{got} bytes of private data, the message has room for {max}")]
pub struct PrivateTooLong {
    /// Maximum length, bytes.
    pub max: usize,
    /// Given length, bytes.
    pub got: usize,
}
