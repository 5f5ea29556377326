//! Tables printed by mlxreg and mstreg: one row per field or per dword.

use std::format;
use std::string::{String, ToString};

use ferroce_prm::roce_accl::ROCE_ACCL;

use super::{Content, Form, ImportError, hex};

/// Rows beyond the longest table there is, with all that a terminal may have added.
const ROWS_MAX: usize = 4096;

/// What kind of table it is, if it is one: what its first row has in front of the bar.
pub(super) fn form(text: &str) -> Option<Form> {
    let (_, name, _) = rows(text).next()?;
    Some(match address(name) {
        Some(_) => Form::Dwords,
        None => Form::Fields,
    })
}

/// The rows: line, what stands in front of the bar, and the value behind it.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str, u32)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let mut cells = line.split('|').map(str::trim);
        let (name, value) = (cells.next()?, cells.next()?);
        // Headers have no value; dumps have more in front of a bar than one word.
        let is_word = !name.is_empty() && !name.contains(char::is_whitespace);
        let has_prefix = value.starts_with("0x") || value.starts_with("0X");
        let value = hex(value).filter(|_| has_prefix && is_word)?;
        Some((at + 1, name, value))
    })
}

fn address(name: &str) -> Option<u32> {
    hex(name).filter(|_| name.starts_with("0x"))
}

pub(super) fn fields(text: &str) -> Result<Content, ImportError> {
    let mut content = Content::new();
    let mut unknown: Option<String> = None;
    for (line, name, value) in rows(text).take(ROWS_MAX) {
        // Tools differ in the case of some names.
        let field = ROCE_ACCL
            .field(name)
            .or_else(|| ROCE_ACCL.field(&name.to_ascii_lowercase()));
        let Some(field) = field else {
            unknown.get_or_insert_with(|| name.to_string());
            continue;
        };
        if content.knows(field) {
            let reason = format!("{name} is there twice; give one table");
            return Err(ImportError::Line { line, reason });
        }
        if !content.set(field, value) {
            let max = field.max();
            let reason = format!("{name} = {value:#x}: must be 0 to {max:#x}");
            return Err(ImportError::Line { line, reason });
        }
    }
    if let Some(name) = unknown {
        let text = format!("{name} is not a field of ROCE_ACCL; such rows are left out");
        content.remarks.push(text);
    }
    Ok(content)
}

pub(super) fn dwords(text: &str) -> Result<Content, ImportError> {
    let mut content = Content::new();
    for (line, name, value) in rows(text).take(ROWS_MAX) {
        let at = address(name).and_then(|at| usize::try_from(at).ok());
        let place = at.filter(|at| at.is_multiple_of(4) && *at < ROCE_ACCL.size());
        let Some(at) = place else {
            let reason = format!(
                "{name} is not the address of a dword of ROCE_ACCL; give a table of register 0x402c"
            );
            return Err(ImportError::Line { line, reason });
        };
        if content.known[at] != 0 {
            let reason = format!("address {name} is there twice; give one table");
            return Err(ImportError::Line { line, reason });
        }
        content.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        content.known[at..at + 4].fill(0xff);
    }
    Ok(content)
}
