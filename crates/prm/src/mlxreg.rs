//! Register contents in the form of mlxreg's options `--indexes` and `--set`, and its error
//! messages.
//!
//! For a register with known fields, the form is `name=value,name=value`. For a register known only
//! by number, it is `address.offset:size=value`: the byte address of a dword, the number of the
//! least significant bit in it, and a width in bits. Numbers are decimal, hexadecimal after `0x` or
//! octal after `0`.

use crate::{Access, Field, Image, Register, SetError};

/// The most fields a register's table may have here.
const FIELDS_MAX: usize = 256;

/// Writes the fields named in `indexes` and `data` to the content of `register`, which stays partly
/// written if one of them is wrong.
pub fn apply<'a>(
    register: &'static Register,
    bytes: &mut [u8],
    indexes: &'a str,
    data: &'a str,
) -> Result<(), TextError<'a>> {
    let mut seen = [false; FIELDS_MAX];
    for (text, is_index) in [(indexes, true), (data, false)] {
        for token in tokens(text)? {
            let (name, value) = pair(token, '=')?;
            let value = number(value)?;
            let fields = register.fields().iter();
            let found = register.field(name).and_then(|field| {
                let at = fields.enumerate().find(|(_, other)| **other == field);
                at.map(|(at, _)| (at, field))
            });
            let (at, field) = match (found, is_index) {
                (Some(found), _) => found,
                (None, true) => return Err(TextError::UnknownIndex(name)),
                (None, false) => return Err(TextError::UnknownField(name)),
            };
            if seen.get(at).is_none_or(|seen| *seen) {
                return Err(TextError::Twice(name));
            }
            seen[at] = true;
            check_access(field, is_index)?;
            set(register, bytes, field, value)?;
        }
    }
    Ok(())
}

fn check_access<'a>(field: &'static Field, is_index: bool) -> Result<(), TextError<'a>> {
    match (field.access(), is_index) {
        (Access::Index, true) => Ok(()),
        (_, true) => Err(TextError::NotAnIndex(field.name())),
        (Access::Ro, false) => Err(TextError::ReadOnly(field.name())),
        _ => Ok(()),
    }
}

fn set<'a>(
    register: &'static Register,
    bytes: &mut [u8],
    field: &'static Field,
    value: u32,
) -> Result<(), TextError<'a>> {
    let beyond = TextError::Address(u32::from(field.lsb()));
    let mut image = Image::new(register, bytes).map_err(|_| beyond)?;
    image.set(field, value).map_err(|error| match error {
        SetError::TooLarge { .. } => TextError::TooLarge { field, value },
        SetError::Beyond { .. } => beyond,
    })
}

/// Writes the positions named in `indexes` and `data` to the content of any register.
pub fn apply_raw<'a>(
    bytes: &mut [u8],
    indexes: &'a str,
    data: &'a str,
) -> Result<(), TextError<'a>> {
    for text in [indexes, data] {
        for token in tokens(text)? {
            let (place, value) = pair(token, '=')?;
            let value = number(value)?;
            let (place, size) = pair(place, ':')?;
            let size = number(size)?;
            if size > 32 {
                return Err(TextError::Size(size));
            }
            let max = u32::MAX.checked_shr(32 - size).unwrap_or(0);
            if value > max {
                return Err(TextError::RawTooLarge { value, size, max });
            }
            let (address, offset) = pair(place, '.')?;
            let (address, offset) = (number(address)?, number(offset)?);
            set_raw(bytes, address, offset, size, max, value)?;
        }
    }
    Ok(())
}

fn set_raw<'a>(
    bytes: &mut [u8],
    address: u32,
    offset: u32,
    size: u32,
    max: u32,
    value: u32,
) -> Result<(), TextError<'a>> {
    // The tool prints the offset where it means the address.
    let out_of_range = TextError::Address(offset);
    let at = usize::try_from(address).map_err(|_| out_of_range)?;
    if at >= bytes.len() {
        return Err(out_of_range);
    }
    if !address.is_multiple_of(4) {
        return Err(TextError::Unaligned(offset));
    }
    if offset.saturating_add(size) > 32 {
        return Err(TextError::Offset { offset, size });
    }
    let dword = bytes.get_mut(at..at + 4).ok_or(out_of_range)?;
    let dword = <&mut [u8; 4]>::try_from(dword).map_err(|_| out_of_range)?;
    let place = |bits: u32| bits.checked_shl(offset).unwrap_or(0);
    let rest = u32::from_be_bytes(*dword) & !place(max);
    *dword = (rest | place(value)).to_be_bytes();
    Ok(())
}

/// Reads a number in C notation: decimal, hexadecimal after `0x`, or octal after `0`.
pub fn number(text: &str) -> Result<u32, TextError<'_>> {
    let digits = text.trim_ascii_start();
    if digits.starts_with('-') {
        return Err(TextError::Negative(text));
    }
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let hexadecimal = ["0x", "0X"].iter().find_map(|x| digits.strip_prefix(*x));
    let (digits, radix) = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (digits, 10),
    };
    // A second sign is none.
    let is_digits = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
    match u32::from_str_radix(digits, radix) {
        Ok(number) if is_digits => Ok(number),
        _ => Err(TextError::NotANumber(text)),
    }
}

/// What stands between commas; one at the end does no harm.
fn tokens(text: &str) -> Result<impl Iterator<Item = &str>, TextError<'_>> {
    let inner = text.strip_suffix(',').unwrap_or(text);
    let is_empty = text.is_empty();
    if !is_empty && inner.split(',').any(str::is_empty) {
        return Err(TextError::Invalid(text));
    }
    Ok(inner.split(',').filter(move |_| !is_empty))
}

fn pair(text: &str, by: char) -> Result<(&str, &str), TextError<'_>> {
    let inner = text.strip_suffix(by).unwrap_or(text);
    match inner.split_once(by) {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(by) => {
            Ok((left, right))
        }
        _ => Err(TextError::Invalid(text)),
    }
}

/// The reason why a text is not a register's content, in mlxreg's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text says it")]
pub enum TextError<'a> {
    #[error("Argument: {0} is invalid")]
    Invalid(&'a str),
    #[error("Argument: {0} is invalid.")]
    NotANumber(&'a str),
    #[error("Argument: {0} is invalid. It must be non-negative.")]
    Negative(&'a str),
    #[error("Can't find field name: \"{0}\"")]
    UnknownField(&'a str),
    #[error("Can't find INDEX name: \"{0}\"")]
    UnknownIndex(&'a str),
    #[error("Field: {0} appears twice.")]
    Twice(&'a str),
    #[error("Field: {0} is ReadOnly")]
    ReadOnly(&'static str),
    #[error("Field: {0} is not an INDEX.")]
    NotAnIndex(&'static str),
    #[error(
        "Value: {value:#x} exceeds maximum value for field '{}' ({} bits, max: {:#x})",
        field.name(), field.width(), field.max()
    )]
    TooLarge { field: &'static Field, value: u32 },
    #[error("Value: {value:#x} exceeds maximum value for a {size}-bit field (max: {max:#x})")]
    RawTooLarge { value: u32, size: u32, max: u32 },
    #[error("Invalid size: {0}. max size = 32 (bits)")]
    Size(u32),
    #[error("Address: {0:#010x} is out of range")]
    Address(u32),
    #[error("Address: {0:#010x} is not 4-bytes aligned")]
    Unaligned(u32),
    #[error("Offset: {offset} and Size: {size} is out of address range")]
    Offset { offset: u32, size: u32 },
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::{String, ToString};

    use proptest::prelude::*;

    use super::*;
    use crate::REGISTERS;
    use crate::roce_accl::ROCE_ACCL;

    /// The profile that NVIDIA's ranges make, as field names and as places.
    const NAMES: &str = "adp_retx_profile_select=1,time_base=4,time_unit=1,start_range_index=0,\
        range_num=2,qp_total_timeout=1,timeout_init_low_bound=16,timeout_init_range_size=1,\
        range_low_bound_0=16,range_size_0=1,timeout_retry_num_0=2,dec_mode_0=1,\
        prev_range_index_0=0,range_low_bound_1=18,range_size_1=2,timeout_retry_num_1=1,\
        dec_mode_1=0,prev_range_index_1=0";
    const EXPECTED: [(usize, [u8; 4]); 6] = [
        (0x0, [0x10, 0, 0, 0]),
        (0x4, [0x10, 0, 0, 0]),
        (0x10, [0xa0, 0x40, 0, 0x04]),
        (0x14, [0, 0, 0x10, 0x01]),
        (0x18, [0x04, 0x02, 0x10, 0x01]),
        (0x1c, [0, 0x01, 0x12, 0x02]),
    ];

    fn error(indexes: &str, data: &str) -> String {
        let result = apply(&ROCE_ACCL, &mut [0; 0x80], indexes, data);
        result.unwrap_err().to_string()
    }

    fn raw_error(data: &str) -> String {
        apply_raw(&mut [0; 0x40], "", data).unwrap_err().to_string()
    }

    #[test]
    fn names_and_places_make_the_published_bytes() {
        let mut expected = [0; 0x80];
        for (at, dword) in EXPECTED {
            expected[at..at + 4].copy_from_slice(&dword);
        }
        let mut bytes = [0; 0x80];
        apply(&ROCE_ACCL, &mut bytes, "adp_retx_profile_id=1", NAMES).unwrap();
        assert_eq!(bytes, expected);
        let mut bytes = [0; 0x80];
        let raw = "0x0.28:1=1,0x10.0:16=4,0x10.22:2=1,16.28:3=2,0x10.31:1=1,0x14.8:8=020,\
                   0x14.0:8=1,0x18.0:32=0x04021001,0x1c.0:32=0x00011202,";
        apply_raw(&mut bytes, "0x4.28:3=1", raw).unwrap();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn complaints_are_the_tools() {
        for (indexes, data, expected) in [
            ("", "time_base", "Argument: time_base is invalid"),
            ("", "time_base=", "Argument: time_base= is invalid"),
            ("", "=4", "Argument: =4 is invalid"),
            ("", "a=1=2", "Argument: a=1=2 is invalid"),
            (
                "",
                "time_base=4,,time_unit=1",
                "Argument: time_base=4,,time_unit=1 is invalid",
            ),
            ("", ",", "Argument: , is invalid"),
            ("", "time_base=four", "Argument: four is invalid."),
            ("", "time_base=0x", "Argument: 0x is invalid."),
            ("", "time_base=08", "Argument: 08 is invalid."),
            (
                "",
                "time_base=-4",
                "Argument: -4 is invalid. It must be non-negative.",
            ),
            ("", "time_bas=4", "Can't find field name: \"time_bas\""),
            ("idx=1", "", "Can't find INDEX name: \"idx\""),
            ("time_base=4", "", "Field: time_base is not an INDEX."),
            (
                "",
                "adp_retx_profile_max_id=1",
                "Field: adp_retx_profile_max_id is ReadOnly",
            ),
            (
                "",
                "time_base=4,time_base=4",
                "Field: time_base appears twice.",
            ),
            (
                "adp_retx_profile_id=1",
                "adp_retx_profile_id=1",
                "Field: adp_retx_profile_id appears twice.",
            ),
            (
                "",
                "timeout_retry_num_0=0x400",
                "Value: 0x400 exceeds maximum value for field 'timeout_retry_num_0' (10 bits, \
                 max: 0x3ff)",
            ),
        ] {
            assert_eq!(error(indexes, data), expected);
        }
        for (data, expected) in [
            ("0x0.28:1", "Argument: 0x0.28:1 is invalid"),
            ("0x0.28=1", "Argument: 0x0.28 is invalid"),
            ("0x0:1=1", "Argument: 0x0 is invalid"),
            ("0x0.28:x=1", "Argument: x is invalid."),
            ("0x0.0:33=1", "Invalid size: 33. max size = 32 (bits)"),
            (
                "0x0.0:2=4",
                "Value: 0x4 exceeds maximum value for a 2-bit field (max: 0x3)",
            ),
            ("0x40.5:1=1", "Address: 0x00000005 is out of range"),
            ("0x2.5:1=1", "Address: 0x00000005 is not 4-bytes aligned"),
            (
                "0x0.31:2=1",
                "Offset: 31 and Size: 2 is out of address range",
            ),
        ] {
            assert_eq!(raw_error(data), expected);
        }
    }

    #[test]
    fn numbers_are_those_of_c() {
        for (text, value) in [
            ("0", 0),
            ("010", 8),
            ("0x10", 16),
            (" +10", 10),
            ("0XfF", 255),
        ] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in ["", "0x", "+", "++1", "0x+1", "1 ", "4294967296", "0b1"] {
            assert!(number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_field_beyond_a_short_content_is_refused() {
        let result = apply(&ROCE_ACCL, &mut [0; 0x10], "", "time_base=4");
        assert_eq!(result, Err(TextError::Address(0)));
    }

    proptest! {
        #[test]
        fn applied_settings_are_read_back(at in 0..REGISTERS.len(), n: usize, value: u32) {
            let register = REGISTERS[at];
            let field = register.fields()[n % register.fields().len()];
            let value = value & field.max();
            let text = std::format!("{}={value:#x}", field.path());
            let (indexes, data) = match field.access() {
                Access::Index => (text.as_str(), ""),
                _ => ("", text.as_str()),
            };
            let mut bytes = std::vec![0; register.size()];
            let result = apply(register, &mut bytes, indexes, data);
            prop_assert_eq!(result.is_ok(), field.access() != Access::Ro);
            let mut raw = std::vec![0; register.size()];
            let place = std::format!(
                "{:#x}.{}:{}={value}", field.offset(), field.lsb(), field.width()
            );
            prop_assert_eq!(apply_raw(&mut raw, "", &place), Ok(()));
            prop_assert_eq!(Image::new(register, &raw[..]).unwrap().get(field), value);
            prop_assert!(result.is_err() || raw == bytes);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z0_=,.:x1-9 -]{0,60}") {
            let _ = apply(&ROCE_ACCL, &mut [0; 0x80], &text, &text);
            let _ = apply_raw(&mut [0; 0x40], &text, &text);
        }
    }
}
