//! Access registers of the device: one constant field table per register drives the lossless codec.
//!
//! A [`Register`] is a name, an id, a size and a table of [`Field`]s. The table is the only place
//! where a bit position is written down; codec, help, JSON and mlxreg-like text all read it. An
//! [`Image`] puts a register over a byte buffer and reads and writes single fields. It knows no
//! meaning: whether a value makes sense is the business of the crate that owns the feature.
//!
//! Registers are big-endian dwords. A field is named by the byte offset of its dword and the number
//! of its least significant bit inside that dword, bit 0 being the last bit on the wire, exactly as
//! register dumps and raw `0x10.31:1` tokens count.
//!
//! ```
//! use ferroce_prm::{Image, roce_accl};
//!
//! let mut bytes = [0; roce_accl::ROCE_ACCL.size()];
//! let mut image = Image::new(&roce_accl::ROCE_ACCL, &mut bytes[..]).unwrap();
//! image.set(&roce_accl::TIME_BASE, 4).unwrap();
//! image.set(&roce_accl::QP_TOTAL_TIMEOUT, 1).unwrap();
//! assert_eq!(image.get(&roce_accl::TIME_BASE), 4);
//! assert_eq!(bytes[0x10..0x14], [0x80, 0, 0, 4]);
//! ```
//!
//! A further register is one more module with its table, and one more line in [`REGISTERS`].

#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

pub mod cong;
mod image;
mod register;
pub mod roce_accl;

pub use image::{Image, LengthError, SetError};
pub use register::{Access, Field, Register};

/// Every register this crate knows, ordered by name.
pub const REGISTERS: &[&Register] = &[&roce_accl::ROCE_ACCL];

/// The register with this id, if it is known.
#[must_use]
pub fn by_id(id: u16) -> Option<&'static Register> {
    REGISTERS
        .iter()
        .copied()
        .find(|register| register.id() == id)
}

/// The register with this name, if it is known. Case matters, as it does to mlxreg.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Register> {
    REGISTERS
        .iter()
        .copied()
        .find(|register| register.name() == name)
}
