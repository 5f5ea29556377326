//! `ferroce adp encode` and `decode`: profiles as register payloads.

use std::path::Path;

use clap::Args;
use ferroce_adp::file::import::Form;
use ferroce_adp::{PROFILE_SIZE, Profile, RawProfile, file};
use ferroce_designer::command;
use ferroce_prm::{Image, roce_accl as reg};

use super::input::{FileArg, load, stdin};
use crate::json::adp as json;
use crate::json::shared::{Named, hex};
use crate::output::{Failure, Output};

/// Print the ROCE_ACCL payload that writes a profile
///
/// These are the 128 bytes of a set that makes the profile number 1 and touches nothing else, as
/// one line of hex.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Encode {
    #[command(flatten)]
    file: FileArg,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// Print the profile that a ROCE_ACCL payload writes, as a profile file
///
/// The exact inverse of encode. A payload that also writes something else is decoded too, with a
/// remark for what the file does not hold.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Decode {
    /// The payload, 128 bytes in hex (64 from older tools); 0x and white space do not matter, and -
    /// reads standard input, which may be anything that import reads
    #[arg(value_name = "HEX", required = true)]
    hex: Vec<String>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Encode {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let payload = hex(&command::payload(&load(&self.file.file)?));
        match self.json {
            true => to.document(&json::Encoded {
                register: reg::ROCE_ACCL.name(),
                register_id: reg::ROCE_ACCL.id(),
                payload,
            }),
            false => to.text(&format!("{payload}\n")),
        }
    }
}

impl Decode {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let mut hex = self.hex.join(" ");
        if matches!(hex.trim(), "-" | "/dev/stdin") {
            hex = stdin()?;
            if Form::of(&hex) != Form::Dump {
                return super::import::print(Path::new("-"), &hex, self.json, to);
            }
        }
        let (profile, remarks) = decode(&bytes(&hex)?)?;
        let toml = file::to_toml(profile.raw());
        if self.json {
            return to.document(&decoded(&profile, toml, remarks));
        }
        to.text(&toml)?;
        for remark in remarks {
            to.remark(format_args!("warning: {remark}"))?;
        }
        Ok(())
    }
}

/// A profile for programs.
pub(super) fn decoded(profile: &Profile, toml: String, remarks: Vec<String>) -> json::Decoded {
    json::Decoded {
        profile: fields(&profile.to_register()),
        toml,
        remarks,
    }
}

/// The fields of a profile by name, out of its bytes in ROCE_ACCL.
pub(super) fn fields(profile: &[u8; PROFILE_SIZE]) -> Named<u32> {
    let mut bytes = [0; reg::ROCE_ACCL.size()];
    bytes[reg::PROFILE_OFFSET..][..PROFILE_SIZE].copy_from_slice(profile);
    let image = Image::new(&reg::ROCE_ACCL, &bytes[..]).expect("the size is the register's");
    let fields = reg::ROCE_ACCL.fields().iter();
    let fields = fields.filter(|field| field.offset() >= reg::PROFILE_OFFSET);
    fields
        .map(|field| (field.name(), image.get(field)))
        .collect()
}

/// The profile that a payload writes, and what of the payload the profile does not hold.
fn decode(payload: &[u8]) -> Result<(Profile, Vec<String>), Failure> {
    let sizes = [reg::ROCE_ACCL.size(), reg::PROFILE_OFFSET + PROFILE_SIZE];
    if !sizes.contains(&payload.len()) {
        return Err(Failure::input(format_args!(
            "ROCE_ACCL has {} bytes ({} in older tools), not {}; give all of it, from its first \
             dword on",
            sizes[0],
            sizes[1],
            payload.len()
        )));
    }
    let image = Image::new(&reg::ROCE_ACCL, payload).map_err(Failure::input)?;
    if !image.is_set(&reg::ADP_RETX_PROFILE_SELECT) {
        return Err(Failure::input(
            "the payload writes no profile: adp_retx_profile_select (bit 28 of the first dword) is \
             0; set it",
        ));
    }
    match image.get(&reg::ADP_RETX_PROFILE_ID) {
        1 => {}
        0 => {
            return Err(Failure::input(
                "adp_retx_profile_id = 0 stands for the firmware's own timeouts, which are no \
                 profile; profiles have id 1",
            ));
        }
        id => {
            return Err(Failure::input(format_args!(
                "adp_retx_profile_id = {id} is beyond the only profile there is; write 1"
            )));
        }
    }
    let mut register = [0; PROFILE_SIZE];
    register.copy_from_slice(&payload[reg::PROFILE_OFFSET..][..PROFILE_SIZE]);
    let raw = RawProfile::from_register(&register);
    let profile = Profile::try_from(raw).map_err(|invalid| {
        let lines = invalid
            .violations
            .iter()
            .map(|found| format!("error: {found}\n"));
        Failure::Input(lines.collect())
    })?;
    let remarks = remarks(payload, &image, &profile);
    Ok((profile, remarks))
}

/// Everything by which the payload differs from the one that encode prints.
fn remarks(payload: &[u8], image: &Image<&[u8]>, profile: &Profile) -> Vec<String> {
    let canonical = command::payload(profile);
    let canonical =
        Image::new(&reg::ROCE_ACCL, &canonical[..]).expect("the size is the register's");
    let fields = reg::ROCE_ACCL.fields().iter();
    let mut remarks: Vec<String> = fields
        .filter(|field| image.get(field) != canonical.get(field))
        .map(|field| {
            let (name, value) = (field.name(), image.get(field));
            let what = match reg::SELECTS.contains(field) {
                true => "the payload writes more than a profile",
                false => "is not part of a profile",
            };
            format!("{name} = {value}: {what}; the file leaves it out")
        })
        .collect();
    let mut known = payload.to_vec();
    let mut image = Image::new(&reg::ROCE_ACCL, &mut known[..]).expect("the size has been checked");
    for field in reg::ROCE_ACCL.fields() {
        image
            .set(field, 0)
            .expect("0 fits every field, and all lie in the shorter size");
    }
    for (i, dword) in known
        .chunks(4)
        .enumerate()
        .filter(|(_, dword)| *dword != [0; 4])
    {
        let hex: String = dword.iter().map(|byte| format!("{byte:02x}")).collect();
        remarks.push(format!(
            "reserved bits {hex} at byte {:#04x}; the file leaves them out",
            i * 4
        ));
    }
    remarks
}

/// The bytes that hex text means.
fn bytes(text: &str) -> Result<Vec<u8>, Failure> {
    let mut digits = String::new();
    for word in text.split_whitespace() {
        let word = word
            .strip_prefix("0x")
            .or_else(|| word.strip_prefix("0X"))
            .unwrap_or(word);
        if let Some(other) = word.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(Failure::input(format_args!(
                "{other:?} is not a hex digit; give the payload that `ferroce adp encode` prints"
            )));
        }
        digits += word;
    }
    if !digits.len().is_multiple_of(2) {
        return Err(Failure::input(format_args!(
            "{} hex digits are half a byte too many; give two digits for each byte",
            digits.len()
        )));
    }
    let byte = |i| u8::from_str_radix(&digits[i..i + 2], 16);
    let bytes: Result<_, _> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map_err(Failure::input)
}
