//! Documents of `ferroce reg`.

use serde::Serialize;

use super::shared::Named;

/// The registers that are known.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct List {
    /// Each of them.
    pub(crate) registers: Vec<Register>,
}

/// A register.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Register {
    /// Its name.
    pub(crate) register: &'static str,
    /// Its number.
    pub(crate) register_id: u16,
    /// How long it is.
    pub(crate) size_bytes: usize,
    /// What it is for.
    pub(crate) doc: &'static str,
}

/// The fields of a register.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fields {
    /// The register.
    #[serde(flatten)]
    pub(crate) register: Register,
    /// Its fields, from its beginning to its end.
    pub(crate) fields: Vec<Field>,
}

/// A field of a register.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its name behind those of the structures that contain it.
    pub(crate) path: &'static str,
    /// The byte at which its dword begins.
    pub(crate) offset_bytes: usize,
    /// Its lowest bit in the dword.
    pub(crate) lsb: u8,
    /// How many bits it has.
    pub(crate) width_bits: u8,
    /// Who writes it: RW, RO, INDEX and others of the register's documentation.
    pub(crate) access: &'static str,
    /// Names of values.
    pub(crate) values: Named<u32>,
    /// What it means.
    pub(crate) doc: &'static str,
}

/// What a register of a device holds.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Content {
    /// The device.
    pub(crate) device: String,
    /// The register.
    pub(crate) register: &'static str,
    /// Its number.
    pub(crate) register_id: u16,
    /// Its fields.
    pub(crate) fields: Named<u32>,
    /// The counts of a register that is a histogram; null for others.
    pub(crate) histogram_bins: Option<Vec<u64>>,
}

/// What would be sent to a card. With --dry-run nothing is written.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Calls {
    /// One after the other.
    pub(crate) calls: Vec<Call>,
}

/// One access of a register.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Call {
    /// The register; null if only its number is known.
    pub(crate) register: Option<&'static str>,
    /// Its number.
    pub(crate) register_id: u16,
    /// read or write.
    pub(crate) method: &'static str,
    /// The register's bytes that go with it, in hexadecimal digits.
    pub(crate) payload: String,
    /// All that the ioctl of the card's node is given, in hexadecimal digits.
    pub(crate) input: String,
}
