//! Commands that write the register: mlxreg and mstreg, by field name or position, and `ferroce reg
//! set`.

use std::format;
use std::mem;
use std::string::{String, ToString};
use std::vec::Vec;

use ferroce_prm::mlxreg::{apply, apply_raw, number};
use ferroce_prm::roce_accl::ROCE_ACCL;

use super::{Bytes, Content, ImportError};

/// The programs whose commands are read.
const PROGRAMS: [&str; 3] = ["mlxreg", "mstreg", "ferroce"];

pub(super) fn is_one(text: &str) -> bool {
    let words = text.split_whitespace().take(16);
    words
        .map(|word| word.rsplit('/').next().unwrap_or_default())
        .any(|word| PROGRAMS.contains(&word))
        && !text.trim_start().starts_with(['#', '['])
}

pub(super) fn read(text: &str) -> Result<Content, ImportError> {
    let words = words(text).map_err(|reason| ImportError::Command(reason.to_string()))?;
    let options = Options::of(&words);
    let Some(data) = options.data else {
        return Err(ImportError::Command(
            "the command writes nothing: it has no --set; give one that writes, or what --get prints"
                .into(),
        ));
    };
    let is_other = match (&options.name, &options.id) {
        (Some(name), _) => name != ROCE_ACCL.name(),
        (None, Some(id)) => number(id) != Ok(ROCE_ACCL.id().into()),
        (None, None) => true,
    };
    if is_other {
        let register = options.name.or(options.id).unwrap_or_default();
        return Err(ImportError::Command(format!(
            "the command writes register {register:?}, not ROCE_ACCL (0x402c), which has the profile"
        )));
    }
    let by_name = options.name.is_some();
    written(by_name, &options.indexes, &data).map_err(ImportError::Command)
}

/// What the command writes. On zeros and on ones it leaves different bits where it writes none.
fn written(by_name: bool, indexes: &str, data: &str) -> Result<Content, String> {
    let on = |background: u8| -> Result<Bytes, String> {
        let mut bytes = [background; ROCE_ACCL.size()];
        let applied = match by_name {
            true => apply(&ROCE_ACCL, &mut bytes, indexes, data),
            false => apply_raw(&mut bytes, indexes, data),
        };
        applied.map_err(|error| error.to_string())?;
        Ok(bytes)
    };
    let mut content = Content::new();
    let (zeros, ones) = (on(0)?, on(0xff)?);
    for (at, known) in content.known.iter_mut().enumerate() {
        *known = !(zeros[at] ^ ones[at]);
    }
    content.bytes = zeros;
    Ok(content)
}

/// What of a command counts.
#[derive(Default)]
struct Options {
    name: Option<String>,
    id: Option<String>,
    indexes: String,
    data: Option<String>,
}

impl Options {
    fn of(words: &[String]) -> Self {
        let is_ferroce = words.windows(2).position(|two| two == ["reg", "set"]);
        if let Some(at) = is_ferroce {
            return Self::of_ferroce(&words[at + 2..]);
        }
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_string())),
                _ => (word.as_str(), None),
            };
            let into = match name {
                "--reg_name" => &mut options.name,
                "--reg_id" => &mut options.id,
                "--set" | "-s" => &mut options.data,
                "--indexes" | "-i" => {
                    let value = inline.or_else(|| words.next().cloned());
                    options.indexes = value.unwrap_or_default();
                    continue;
                }
                _ => continue,
            };
            *into = inline.or_else(|| words.next().cloned());
        }
        options
    }

    /// `ferroce reg set DEV ROCE_ACCL name value name=value`: an index is one of the names.
    fn of_ferroce(words: &[String]) -> Self {
        let place = words.iter().position(|word| word == ROCE_ACCL.name());
        let mut rest = words[place.map_or(words.len(), |at| at + 1)..].iter();
        let mut fields = Vec::new();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-d" | "--device" => drop(rest.next()),
                option if option.starts_with('-') => {}
                pair if pair.contains('=') => fields.push(pair.to_string()),
                name => {
                    let value = rest.next().map_or("", |value| value);
                    fields.push(format!("{name}={value}"));
                }
            }
        }
        let is_index = |word: &String| word.starts_with("adp_retx_profile_id=");
        let (indexes, data): (Vec<_>, Vec<_>) = fields.into_iter().partition(is_index);
        Self {
            name: place
                .map_or_else(|| words.first(), |at| words.get(at))
                .cloned(),
            id: None,
            indexes: indexes.join(","),
            data: Some(data.join(",")),
        }
    }
}

/// The words of a command as a shell takes them apart, as far as such commands need it.
fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_word = false;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            // Long lists are broken over lines inside of quotes, too.
            (Some(_), c) if c.is_whitespace() => {}
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (Some('"') | None, '\\') => {
                let escaped = chars.next().filter(|c| !matches!(c, '\n' | '\r'));
                word.extend(escaped);
                is_word |= escaped.is_some();
            }
            (None, c) if c.is_whitespace() => {
                if mem::take(&mut is_word) {
                    words.push(mem::take(&mut word));
                }
            }
            _ => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if quote.is_some() {
        return Err("the command has a quotation mark without a second one; add it");
    }
    if is_word {
        words.push(word);
    }
    Ok(words)
}
