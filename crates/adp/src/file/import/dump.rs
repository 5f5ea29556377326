//! Hex dumps of the register: one line or many, with or without `0x`, with offsets and text as xxd
//! and hexdump print them, or the command buffer that mlxreg generates.

use std::format;
use std::vec::Vec;

use ferroce_prm::roce_accl as reg;
use ferroce_prm::roce_accl::ROCE_ACCL;

use super::{Content, ImportError};
use crate::raw::PROFILE_SIZE;

/// In front of the data, a generated command has the operation's four dwords and a header.
const HEADER: usize = 20;

/// The largest text that is worth reading.
const BYTES_MAX: usize = 4096;

/// Whether there is nothing but hex, and some.
pub(super) fn is_one(text: &str) -> bool {
    let mut words = lines(text).flat_map(|(_, line)| words(line)).peekable();
    words.peek().is_some() && words.all(|word| !word.is_empty() && is_hex(word))
}

pub(super) fn read(text: &str) -> Result<Content, ImportError> {
    let mut bytes = Vec::new();
    for (line, content) in lines(text) {
        for word in words(content) {
            if !word.len().is_multiple_of(2) {
                let reason = format!("{word} has half a byte too many; give two digits for each");
                return Err(ImportError::Line { line, reason });
            }
            let pairs = word.as_bytes().chunks(2);
            let pairs = pairs.filter_map(|pair| std::str::from_utf8(pair).ok());
            bytes.extend(pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()));
        }
        if bytes.len() > BYTES_MAX {
            return Err(ImportError::Size(bytes.len()));
        }
    }
    let is_command = text.contains("Word[") && bytes.len() > HEADER;
    let bytes = &bytes[if is_command { HEADER } else { 0 }..];
    if ![ROCE_ACCL.size(), reg::PROFILE_OFFSET + PROFILE_SIZE].contains(&bytes.len()) {
        return Err(ImportError::Size(bytes.len()));
    }
    let mut content = Content::new();
    content.bytes[..bytes.len()].copy_from_slice(bytes);
    content.known.fill(0xff);
    Ok(content)
}

/// The lines with something in them, without headings of generated commands.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate();
    let numbered = numbered.map(|(at, line)| (at + 1, line.trim()));
    numbered.filter(|(_, line)| {
        let is_heading = ["Generated ", "Raw Buffer Data", "====", "#"];
        !line.is_empty() && !is_heading.iter().any(|it| line.starts_with(it))
    })
}

/// The words of a line that hold bytes.
fn words(line: &str) -> impl Iterator<Item = &str> {
    // xxd: the offset ends with a colon, and behind two spaces is text. hexdump: that is between
    // bars, and the offset has eight digits in front of two spaces.
    let (offset, rest) = match line.split_once(':') {
        Some((offset, rest)) => (Some(offset), rest.trim_start()),
        None => (None, line),
    };
    let is_offset = offset.is_none_or(|it| is_hex(strip(it)) || it.starts_with("Word["));
    let rest = if is_offset { rest } else { line };
    let rest = match (offset, rest.split_once('|')) {
        (None, Some((bytes, _))) => bytes.split_once("  ").map_or(bytes, |(_, bytes)| bytes),
        (Some(_), None) => rest.split_once("  ").map_or(rest, |(bytes, _)| bytes),
        _ => rest,
    };
    rest.split_whitespace().map(strip)
}

fn strip(word: &str) -> &str {
    let stripped = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    stripped.unwrap_or(word)
}

fn is_hex(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
}
