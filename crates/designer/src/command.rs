//! Commands that program a card with a profile, and the bytes that they send.

use ferroce_adp::{PROFILE_SIZE, Profile};
use ferroce_prm::roce_accl::{self as reg, ROCE_ACCL};
use ferroce_prm::{Field, Image};

/// A tool that writes registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Tool {
    /// mlxreg of MFT, fields by name
    Mlxreg,
    /// mlxreg of any age, fields by place
    MlxregRaw,
    /// mstreg of mstflint
    Mstreg,
    /// This program
    Ferroce,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mlxreg, Self::MlxregRaw, Self::Mstreg, Self::Ferroce];

    /// What command lines call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlxreg => "mlxreg",
            Self::MlxregRaw => "mlxreg-raw",
            Self::Mstreg => "mstreg",
            Self::Ferroce => "ferroce",
        }
    }
}

/// The payload that makes a profile number 1.
#[must_use]
pub fn payload(profile: &Profile) -> [u8; ROCE_ACCL.size()] {
    let mut payload = [0; ROCE_ACCL.size()];
    payload[reg::PROFILE_OFFSET..][..PROFILE_SIZE].copy_from_slice(&profile.to_register());
    let set = |payload: &mut [u8], field, value| {
        let mut image = Image::new(&ROCE_ACCL, payload).expect("the size is the register's");
        image.set(field, value).expect("1 fits every field");
    };
    set(&mut payload, &reg::ADP_RETX_PROFILE_SELECT, 1);
    set(&mut payload, &reg::ADP_RETX_PROFILE_ID, 1);
    payload
}

/// The command that goes back to the firmware's own timeouts. `device` is quoted, and a card or a
/// device in software.
#[must_use]
pub fn undo(tool: Tool, is_card: bool, device: &str) -> String {
    match (tool, is_card) {
        (Tool::Mlxreg | Tool::MlxregRaw, _) => format!("mlxfwreset -d {device} --yes reset"),
        // Before a card's firmware restarts, its drivers have to let go of it.
        (Tool::Mstreg, _) | (Tool::Ferroce, true) => {
            format!("mstfwreset -d {device} --yes reset")
        }
        (Tool::Ferroce, false) => format!("ferroce adp reset {device}"),
    }
}

/// The command that writes a profile. `device` is quoted.
#[must_use]
pub fn set(tool: Tool, device: &str, profile: &Profile) -> String {
    let values = values(profile);
    let by_name = |(field, value): &(&Field, u32)| format!("{}={value}", field.name());
    let by_place = |(field, value): &(&Field, u32)| format!("{}={value}", place(field));
    let list = |text: &dyn Fn(&(&'static Field, u32)) -> String, by| {
        values.iter().map(text).collect::<Vec<_>>().join(by)
    };
    let index = &reg::ADP_RETX_PROFILE_ID;
    let named = |tool: &str| {
        format!(
            "{tool} -d {device} --yes --reg_name {} --indexes \"{}\" --set \"{}\"",
            ROCE_ACCL.name(),
            by_name(&(index, 1)),
            list(&by_name, ",")
        )
    };
    match tool {
        Tool::Mlxreg => named("mlxreg"),
        Tool::Mstreg => named("mstreg"),
        Tool::MlxregRaw => format!(
            "mlxreg -d {device} --yes --reg_id {:#x} --reg_len {:#x} --indexes \"{}\" --set \"{}\"",
            ROCE_ACCL.id(),
            ROCE_ACCL.size(),
            by_place(&(index, 1)),
            list(&by_place, ",")
        ),
        Tool::Ferroce => format!(
            "ferroce reg set {device} {} {} {}",
            ROCE_ACCL.name(),
            by_name(&(index, 1)),
            list(&by_name, " ")
        ),
    }
}

/// The select bit and every field of the profile that counts.
fn values(profile: &Profile) -> Vec<(&'static Field, u32)> {
    let payload = payload(profile);
    let image = Image::new(&ROCE_ACCL, &payload[..]).expect("the size is the register's");
    let ranges = image.get(&reg::RANGE_NUM) as usize;
    let end = reg::RANGE_SIZE[0].offset() + 4 * ranges;
    let is_used = |field: &&Field| (reg::PROFILE_OFFSET..end).contains(&field.offset());
    let fields = ROCE_ACCL.fields().iter().copied().filter(is_used);
    let select = &reg::ADP_RETX_PROFILE_SELECT;
    std::iter::once((select, 1))
        .chain(fields.map(|field| (field, image.get(field))))
        .collect()
}

/// The place of a field, as a raw token has it.
fn place(field: &Field) -> String {
    format!("{:#x}.{}:{}", field.offset(), field.lsb(), field.width())
}

/// A name that a shell takes as it is meant.
#[must_use]
pub fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use ferroce_prm::mlxreg;

    use super::*;

    fn profile() -> Profile {
        let words = "a0400004 00001001 04021001 00011202";
        let mut bytes = [0; PROFILE_SIZE];
        for (at, word) in words.split(' ').enumerate() {
            let word = u32::from_str_radix(word, 16).unwrap();
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_be_bytes());
        }
        Profile::from_register(&bytes).unwrap()
    }

    fn between<'a>(text: &'a str, from: &str) -> &'a str {
        let (_, rest) = text.split_once(from).unwrap();
        rest.split_once('"').unwrap().0
    }

    #[test]
    fn the_commands_write_what_encode_prints() {
        let expected = payload(&profile());
        for tool in [Tool::Mlxreg, Tool::MlxregRaw, Tool::Mstreg] {
            let command = set(tool, "DEV", &profile());
            let indexes = between(&command, "--indexes \"");
            let data = between(&command, "--set \"");
            let mut bytes = [0; ROCE_ACCL.size()];
            let applied = match tool {
                Tool::MlxregRaw => mlxreg::apply_raw(&mut bytes, indexes, data),
                _ => mlxreg::apply(&ROCE_ACCL, &mut bytes, indexes, data),
            };
            applied.unwrap();
            assert_eq!(bytes, expected, "{command}");
        }
    }

    #[test]
    fn names_of_devices_are_safe_in_a_shell() {
        assert_eq!(quoted("0000:3a:00.0"), "0000:3a:00.0");
        assert_eq!(quoted("a b'c"), "'a b'\\''c'");
    }
}
