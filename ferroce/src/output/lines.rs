//! Layout of explanations and findings.

use std::fmt::Write as _;

use std::path::Path;

use ferroce_base::time::Span;

use super::look::{columns, row_columns, width as columns_of};

/// Text in two columns, the second one wrapped.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) text: String,
}

const LEFT: usize = 13;
const NAME: usize = 32;
const WIDTH: usize = 80;

impl Lines {
    /// A row, or as many as its body takes.
    pub(crate) fn add(&mut self, head: &str, body: &str) {
        for (i, row) in wrapped(body, WIDTH - LEFT).iter().enumerate() {
            let head = if i == 0 { head } else { "" };
            self.line(&format!("{head:<LEFT$}{row}"));
        }
    }

    /// A row of the second column, in which a name stands beside its own text.
    pub(crate) fn named(&mut self, name: &str, text: &str) {
        for (i, row) in wrapped(text, WIDTH - LEFT - NAME).iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            self.line(&format!("{:<LEFT$}{name:<NAME$}{row}", ""));
        }
    }

    /// Text over both columns.
    pub(crate) fn across(&mut self, text: &str) {
        for row in wrapped(text, WIDTH) {
            self.line(&row);
        }
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.replace(UNBROKEN, " ").trim_end());
    }
}

/// A text in lines as wide as output may be.
pub(crate) fn lines(text: &str) -> String {
    wrapped(text, columns()).join("\n") + "\n"
}

/// Prose in lines that begin with four spaces, below what it is about.
pub(crate) fn indented(text: &str) -> String {
    let rows = wrapped(text, columns().min(100) - 4);
    rows.iter().map(|row| format!("    {row}\n")).collect()
}

/// Something that was found in a file. On a terminal it is wrapped; elsewhere it is one line, as editors
/// and `grep` expect.
pub(crate) fn finding(file: &Path, line: Option<usize>, kind: &str, text: &str) -> String {
    let place = match line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    };
    let text = format!("{place}: {kind}: {text}");
    let rows = match row_columns() {
        Some(columns) => wrapped(&text, columns - FURTHER.len()),
        None => vec![text],
    };
    rows.join(&format!("\n{FURTHER}"))
}

/// What the further rows of a finding begin with.
const FURTHER: &str = "    ";

/// The lines of a text. One that fits keeps its own spaces.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    wrapped_at(&[' '], text, width)
}

/// The parts of a text that stay whole, each with what ends it. A number stays with its unit.
pub(crate) fn pieces<'a>(ends: &[char], text: &'a str) -> impl Iterator<Item = &'a str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = end_of_piece(ends, rest, 0)?;
        if rest[..end].trim_end().parse::<f64>().is_ok() {
            let next = end_of_piece(ends, rest, end);
            let is_unit = |next: &usize| UNITS.contains(&unit(&rest[end..*next]));
            end = next.filter(is_unit).unwrap_or(end);
        }
        let piece;
        (piece, rest) = rest.split_at(end);
        Some(piece)
    })
}

const UNITS: [&str; 9] = ["%", "ns", "us", "ms", "s", "min", "h", "KiB", "MiB"];

/// A word without the mark behind it.
fn unit(piece: &str) -> &str {
    piece.trim_end_matches([' ', ',', ';', ':', '.', ')'])
}

fn end_of_piece(ends: &[char], text: &str, from: usize) -> Option<usize> {
    let rest = &text[from..];
    let end = rest
        .find(ends)
        .map(|at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
    end.or_else(|| (!rest.is_empty()).then_some(rest.len()))
        .map(|it| from + it)
}

/// The same for a text that may break after other characters as well.
pub(crate) fn wrapped_at(ends: &[char], text: &str, width: usize) -> Vec<String> {
    if columns_of(text) <= width {
        return vec![text.to_owned()];
    }
    let mut rows = vec![String::new()];
    for piece in pieces(ends, text) {
        let last = rows.last_mut().expect("there is a first row");
        if !last.is_empty() && columns_of(last) + columns_of(piece.trim_end()) > width {
            rows.push(piece.to_owned());
        } else {
            *last += piece;
        }
    }
    for row in &mut rows {
        row.truncate(row.trim_end().len());
    }
    rows
}

/// A space at which no line breaks.
const UNBROKEN: &str = "\u{a0}";

/// Text that stays in one line.
pub(crate) fn unbroken(text: &str) -> String {
    text.replace(' ', UNBROKEN)
}

/// A duration with three digits: `268 ms`, `1.07 s`.
pub(crate) fn short(ns: f64) -> String {
    if ns >= Span::NEVER.as_nanos() as f64 {
        return "never".to_owned();
    }
    let (value, unit) = match ns {
        _ if ns >= 1e9 => (ns / 1e9, "s"),
        _ if ns >= 1e6 => (ns / 1e6, "ms"),
        _ if ns >= 1e3 => (ns / 1e3, "us"),
        _ => (ns, "ns"),
    };
    let digits = match value {
        _ if value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text} {unit}")
}

/// A number with a comma after each group of thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{grouped, wrapped};

    #[test]
    fn a_number_stays_with_its_unit() {
        for (text, width, rows) in [
            (
                "a loss of 2 % each way",
                11,
                &["a loss of", "2 % each", "way"][..],
            ),
            (
                "dark for 300 ms, then up",
                12,
                &["dark for", "300 ms, then", "up"],
            ),
            ("8 QPs and 9 waits", 6, &["8 QPs", "and 9", "waits"]),
            ("1 2 % 3", 3, &["1", "2 %", "3"]),
        ] {
            assert_eq!(wrapped(text, width), rows, "{text}");
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
