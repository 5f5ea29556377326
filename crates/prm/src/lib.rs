//! Access registers of the device, with one constant field table per register.
//!
//! A [`Register`] is a name, an id, a size and a table of [`Field`]s. The table is the only place
//! that defines bit positions; codec, help, JSON and mlxreg-like text all use it. An [`Image`] lays
//! a register over a byte buffer and reads and writes single fields. This crate does not interpret
//! values: the crate that owns a feature decides whether a value is valid.
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
//! To add a register, add a module with its table, and a line in [`REGISTERS`].

#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

#[macro_use]
mod table;
pub mod adp_retx_histogram;
pub mod adp_retx_histogram_config;
mod command;
pub mod cong;

mod image;
pub mod mfrl;
pub mod mgir;
pub mod mlxreg;
pub mod nic_cap_reg;
mod pci;
mod register;
pub mod roce_accl;

pub use command::{Method, Status};
pub use image::{Image, LengthError, SetError};
pub use pci::{PciAddress, PciAddressError};
pub use register::{Access, Field, Register};

/// Every register this crate knows, ordered by name.
pub const REGISTERS: &[&Register] = &[
    &adp_retx_histogram::ADP_RETX_HISTOGRAM,
    &adp_retx_histogram_config::ADP_RETX_HISTOGRAM_CONFIG,
    &mfrl::MFRL,
    &mgir::MGIR,
    &nic_cap_reg::NIC_CAP_REG,
    &roce_accl::ROCE_ACCL,
];

/// Returns the register with this id, if it is known.
#[must_use]
pub fn by_id(id: u16) -> Option<&'static Register> {
    REGISTERS
        .iter()
        .copied()
        .find(|register| register.id() == id)
}

/// Returns the register with this name, if it is known. Names are case-sensitive, as in mlxreg.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Register> {
    REGISTERS
        .iter()
        .copied()
        .find(|register| register.name() == name)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn registers_are_found_by_name_and_by_number() {
        assert!(REGISTERS.is_sorted_by_key(|register| register.name()));
        let ids: BTreeSet<_> = REGISTERS.iter().map(|register| register.id()).collect();
        assert_eq!(ids.len(), REGISTERS.len());
        for register in REGISTERS {
            assert_eq!(by_id(register.id()).unwrap().name(), register.name());
            assert_eq!(by_name(register.name()).unwrap().id(), register.id());
        }
        assert!(by_id(0).is_none() && by_name("roce_accl").is_none());
    }

    #[test]
    fn every_field_has_a_name_and_a_path_of_its_own_and_a_sentence() {
        for register in REGISTERS {
            assert!(register.doc().ends_with('.') && register.fields().len() <= 256);
            let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
            for field in register.fields() {
                assert!(names.insert(field.name()), "{}", field.name());
                assert!(paths.insert(field.path()), "{}", field.path());
                assert_eq!(register.field(field.name()), Some(*field));
                assert_eq!(register.field(field.path()), Some(*field));
                let doc = field.doc();
                assert!(doc.ends_with('.') && !doc.contains("  "), "{doc:?}");
            }
        }
    }
}
