//! Profiles in the forms that operators have: the output of tools for cards, and the commands that
//! program them.
//!
//! All of them represent one register, ROCE_ACCL. Each form is therefore read into the bytes of
//! that register and a mask of the bits that the text contains, which are then checked in one
//! place. No text causes a panic, and text that cannot be read is refused.

mod command;
mod dump;
mod table;

use std::borrow::ToOwned;
use std::format;
use std::string::String;
use std::vec::Vec;

use ferroce_prm::roce_accl::{self as reg, ROCE_ACCL};
use ferroce_prm::{Field, Image};

use super::{Document, FileError};
use crate::raw::{PROFILE_SIZE, RANGE_NUM_MAX, RawProfile};

/// A profile that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The form of the text.
    pub form: Form,
    /// Its profile, valid or not, with line numbers if it is a profile file.
    pub document: Document,
    /// What else the text contains, and what it leaves open; whole sentences.
    pub remarks: Vec<String>,
}

/// The form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A profile file.
    Toml,
    /// The output of mlxreg or mstreg for the register by name: one row per field.
    Fields,
    /// Their output for the register by number: one row per dword.
    Dwords,
    /// The register's bytes in hex.
    Dump,
    /// A command that writes the register.
    Command,
}

impl Form {
    /// Guesses the form of a text, without checking it.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if let Some(form) = table::form(text) {
            return form;
        }
        if dump::is_one(text) {
            return Self::Dump;
        }
        match command::is_one(text) {
            true => Self::Command,
            false => Self::Toml,
        }
    }

    /// Returns the form in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Toml => "a profile file",
            Self::Fields => "a table of fields",
            Self::Dwords => "a table of dwords",
            Self::Dump => "a register dump",
            Self::Command => "a command line",
        }
    }
}

/// The reason why a text is not a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is a profile file with errors.
    #[error(transparent)]
    File(#[from] FileError),
    /// A table lacks a field of the profile.
    #[error(
        "the table has no row {0}; it seems to be cut: give all of it, or all 128 bytes of the \
         register"
    )]
    Missing(&'static str),
    /// A row, a word or an option cannot be read, with the reason.
    #[error("line {line}: {reason}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong, and what to give.
        reason: String,
    },
    /// The number of bytes is wrong.
    #[error("ROCE_ACCL has 128 bytes (64 in older tools), not {0}; give all of it")]
    Size(usize),
    /// A command cannot be read, with the reason.
    #[error("{0}")]
    Command(String),
    /// No profile is active.
    #[error(
        "no profile is set: the card uses the firmware's own timeouts (adp_retx_profile_id = 0, and \
         no range)"
    )]
    NoProfile,
}

/// Reads a profile in any of these forms.
pub fn import(text: &str) -> Result<Imported, ImportError> {
    let form = Form::of(text);
    let content = match form {
        Form::Toml => {
            let document = Document::parse(text)?;
            return Ok(Imported {
                form,
                document,
                remarks: Vec::new(),
            });
        }
        Form::Fields => table::fields(text)?,
        Form::Dwords => table::dwords(text)?,
        Form::Dump => dump::read(text)?,
        Form::Command => command::read(text)?,
    };
    content.imported(form)
}

/// Bytes of a register.
type Bytes = [u8; ROCE_ACCL.size()];

/// The register, as far as a text speaks of it.
#[derive(Clone, Debug)]
struct Content {
    bytes: Bytes,
    /// A mask of the bits that the text contains.
    known: Bytes,
    remarks: Vec<String>,
}

impl Content {
    const fn new() -> Self {
        Self {
            bytes: [0; ROCE_ACCL.size()],
            known: [0; ROCE_ACCL.size()],
            remarks: Vec::new(),
        }
    }

    /// The text gives a field a value. False if it has done so before, or the value does not fit.
    fn set(&mut self, field: &'static Field, value: u32) -> bool {
        !self.knows(field)
            && image(&mut self.bytes).set(field, value).is_ok()
            && image(&mut self.known).set(field, field.max()).is_ok()
    }

    fn knows(&self, field: &'static Field) -> bool {
        read(&self.known, field) == field.max()
    }

    fn imported(mut self, form: Form) -> Result<Imported, ImportError> {
        if let Some(missing) = self.missing() {
            match form {
                // A command leaves on a card what it does not name.
                Form::Command => self.keeps(),
                _ => return Err(ImportError::Missing(missing.name())),
            }
        }
        if read(&self.bytes, &reg::RANGE_NUM) == 0 && !self.is_active() {
            return Err(ImportError::NoProfile);
        }
        self.surroundings(form);
        let mut profile = [0; PROFILE_SIZE];
        profile.copy_from_slice(&self.bytes[reg::PROFILE_OFFSET..][..PROFILE_SIZE]);
        let raw = RawProfile::from_register(&profile);
        Ok(Imported {
            form,
            document: Document {
                raw,
                ..Document::empty()
            },
            remarks: self.remarks,
        })
    }

    fn is_active(&self) -> bool {
        read(&self.bytes, &reg::ADP_RETX_PROFILE_ID) > 0
    }

    /// Fields of a profile that the text does not give.
    fn unknown(&self) -> impl Iterator<Item = &'static Field> + '_ {
        let ranges = read(&self.bytes, &reg::RANGE_NUM) as usize;
        let all = [
            &reg::TIME_BASE,
            &reg::TIME_UNIT,
            &reg::START_RANGE_INDEX,
            &reg::RANGE_NUM,
            &reg::QP_TOTAL_TIMEOUT,
            &reg::TIMEOUT_INIT_RANGE_SIZE,
            &reg::TIMEOUT_INIT_LOW_BOUND,
        ];
        let has_own_total = read(&self.bytes, &reg::QP_TOTAL_TIMEOUT) == 0;
        let total = has_own_total.then_some(&reg::RETX_TOTAL_TIMEOUT);
        let of_ranges = (0..ranges.min(RANGE_NUM_MAX)).flat_map(|i| {
            [
                &reg::RANGE_SIZE[i],
                &reg::RANGE_LOW_BOUND[i],
                &reg::TIMEOUT_RETRY_NUM[i],
                &reg::DEC_MODE[i],
                &reg::PREV_RANGE_INDEX[i],
            ]
        });
        let fields = all.into_iter().chain(total).chain(of_ranges);
        fields.filter(|field| !self.knows(field))
    }

    fn missing(&self) -> Option<&'static Field> {
        self.unknown().next()
    }

    /// What a command does not write.
    fn keeps(&mut self) {
        let names: Vec<_> = self.unknown().map(Field::name).collect();
        self.remarks.push(format!(
            "the command does not write {}: the card keeps what it has there, which is taken as 0",
            names.join(", ")
        ));
        // Its unit alone is not 0 where there is one.
        if !self.knows(&reg::TIME_UNIT) {
            self.set(&reg::TIME_UNIT, 1);
        }
    }

    /// What else of the register decides about timeouts.
    fn surroundings(&mut self, form: Form) {
        let mut remark = |text: &str| self.remarks.push(text.to_owned());
        let value = |field| read(&self.bytes, field);
        let is_known = |field| read(&self.known, field) > 0;
        let is_content = form != Form::Command;
        if is_content && value(&reg::ADP_RETX_PROFILE_ID) == 0 {
            remark("adp_retx_profile_id = 0: the card has these values and does not use them");
        }
        if is_content
            && is_known(&reg::ROCE_ADP_RETRANS_EN)
            && value(&reg::ROCE_ADP_RETRANS_EN) == 0
            && form != Form::Dump
        {
            remark(
                "roce_adp_retrans_en = 0: adaptive retransmission is off, and the profile waits",
            );
        }
        if value(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED) == 1 {
            remark(
                "min_ack_timeout_limit_disabled = 1: timeouts below 16 count as they are; check \
                 with --min-ack-timeout-limit-disabled",
            );
        }
        if is_content && value(&reg::RANGE_NUM) as usize > RANGE_NUM_MAX {
            remark("range_num is larger than a register has room for");
        }
    }
}

fn image(bytes: &mut Bytes) -> Image<&mut [u8]> {
    match Image::new(&ROCE_ACCL, &mut bytes[..]) {
        Ok(image) => image,
        Err(_) => unreachable!("the size is the register's"),
    }
}

fn read(bytes: &Bytes, field: &'static Field) -> u32 {
    match Image::new(&ROCE_ACCL, &bytes[..]) {
        Ok(image) => image.get(field),
        Err(_) => unreachable!("the size is the register's"),
    }
}

/// A number in hex, with or without `0x`, of 32 bits.
fn hex(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = digits.unwrap_or(text);
    let is_hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(digits, 16).ok())?
}
