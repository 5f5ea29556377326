//! Numbers with units, as text and back.

/// A unit's name and how many of the smallest it is.
type Unit = (&'static str, u64);

/// Units of time from the longest on, in nanoseconds.
const TIMES: [Unit; 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units of rates, in bit/s, with the names that tc(8) prints.
const RATES: [Unit; 4] = [
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

/// Units of lengths. A switch's thousand is 1000, as in the papers about them.
const LENGTHS: [Unit; 3] = [("MB", 1_000_000), ("KB", 1_000), ("B", 1)];

/// A finite number in digits.
pub(super) fn number(text: &str) -> Option<f64> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    let text = Some(text.trim()).filter(|text| text.chars().all(is_number))?;
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

pub(super) fn probability(text: &str) -> Option<f64> {
    let probability = match text.trim().strip_suffix('%') {
        // The decimal point is moved, not the number divided: what is written is what is read.
        Some(percent) if !percent.contains(['e', 'E']) => {
            number(&format!("{}e-2", percent.trim_end()))?
        }
        Some(_) => return None,
        None => number(text)?,
    };
    (0.0..=1.0).contains(&probability).then_some(probability)
}

/// The exact inverse of [`probability`].
pub(super) fn percent(probability: f64) -> String {
    // Without an exponent, and with a dot unless it is whole.
    let decimal = probability.to_string();
    let (whole, fraction) = decimal.split_once('.').unwrap_or((&decimal, ""));
    let fraction = format!("{fraction:0<2}");
    let (hundredths, rest) = fraction.split_at(2);
    let whole = format!("{whole}{hundredths}");
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{whole}{dot}{rest}%")
}

/// Nanoseconds.
pub(super) fn nanos(text: &str) -> Option<u64> {
    read(text, &TIMES)
}

/// The inverse of [`nanos`].
pub(super) fn time(ns: u64) -> String {
    write(ns, &TIMES)
}

/// Bits per second.
pub(super) fn bps(text: &str) -> Option<u64> {
    read(text, &RATES)
}

/// The inverse of [`bps`].
pub(super) fn rate(bps: u64) -> String {
    write(bps, &RATES)
}

/// Bytes.
pub(super) fn bytes(text: &str) -> Option<u32> {
    u32::try_from(read(text, &LENGTHS)?).ok()
}

/// The inverse of [`bytes`].
pub(super) fn length(bytes: u32) -> String {
    write(bytes.into(), &LENGTHS)
}

/// A decimal number with a unit; 0 needs none.
fn read(text: &str, units: &[Unit]) -> Option<u64> {
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (decimal, unit) = text.split_at(unit_at);
    let (_, unit) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(*unit)?;
    // The digits behind the dot must come out as whole ones of the smallest unit.
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return Some(whole);
    }
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(*unit)?;
    part.is_multiple_of(scale)
        .then(|| whole.checked_add(part / scale))?
}

/// A number in the largest unit that needs no fraction.
fn write(number: u64, units: &[Unit]) -> String {
    let whole = |(_, unit): &&Unit| number.is_multiple_of(*unit);
    match units.iter().find(whole) {
        Some((name, unit)) if number > 0 => format!("{}{name}", number / unit),
        _ => format!("{number}"),
    }
}
