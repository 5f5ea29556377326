//! Values on the command line: fractions, durations, sizes.

use std::net::IpAddr;

use super::plan::{Blackout, Start};

/// Losses above this leave nothing to look at.
const LOSS_MAX: f64 = 0.5;
/// Longest blackout, latest start of one, and longest run.
const TIME_MAX_NS: u64 = 3600 * 1_000_000_000;
/// Shortest run.
const RUN_TIME_MIN_NS: u64 = 100_000_000;
/// Most bytes of one run.
const BYTES_MAX: u64 = 1 << 40;

const DURATIONS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
];

const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("K", 1024.0),
    ("KiB", 1024.0),
    ("KB", 1e3),
    ("M", 1_048_576.0),
    ("MiB", 1_048_576.0),
    ("MB", 1e6),
    ("G", 1_073_741_824.0),
    ("GiB", 1_073_741_824.0),
    ("GB", 1e9),
    ("T", 1_099_511_627_776.0),
    ("TiB", 1_099_511_627_776.0),
    ("TB", 1e12),
];

/// A probability: `0.01` or `1%`.
pub(super) fn loss(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "" => 1.0,
        "%" => 0.01,
        _ => return Err("not a fraction; write one like 0.01, or a percentage like 1%".to_owned()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "not a number; write a fraction like 0.01, or a percentage like 1%")?;
    let loss = number * scale;
    if (0.0..=LOSS_MAX).contains(&loss) {
        return Ok(loss);
    }
    // Whoever writes 1 or 5 means percent.
    let instead = if unit.is_empty() && (1.0..=50.0).contains(&number) {
        format!("for {number} percent write {number}%")
    } else {
        "write for example 1%".to_owned()
    };
    Err(format!("allowed is 0 to 0.5 (0% to 50%); {instead}"))
}

/// `LEN` or `LEN@AT`; a length of 0 is no blackout.
pub(super) fn blackout(text: &str) -> Result<Blackout, String> {
    let (length, start) = match text.split_once('@') {
        Some((length, at)) => (length, start(at.trim())?),
        None => (text, Start::DEFAULT),
    };
    Ok(Blackout {
        start,
        length_ns: duration(length.trim())?,
    })
}

const BLACKOUT: &str = "write LEN or LEN@AT with units ns, us, ms, s or min, or AT as a percentage \
                        of the bytes, for example 400ms, 400ms@1s or 400ms@25%; 0 is none";

fn start(text: &str) -> Result<Start, String> {
    let Some(number) = text.strip_suffix('%') else {
        return duration(text).map(Start::Time);
    };
    match number.trim_end().parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Start::Percent(percent)),
        _ => Err(format!("'{text}' is not from 0% to 100%; {BLACKOUT}")),
    }
}

fn duration(text: &str) -> Result<u64, String> {
    duration_or(text, BLACKOUT)
}

/// How long a demo runs.
pub(super) fn run_time(text: &str) -> Result<u64, String> {
    const INSTEAD: &str = "write 100ms to 60min, for example 6s or 1min";
    let ns = duration_or(text, INSTEAD)?;
    if ns < RUN_TIME_MIN_NS {
        return Err(format!("'{text}' is too short to see anything; {INSTEAD}"));
    }
    Ok(ns)
}

/// A duration, up to an hour; what is none is answered with what to write instead.
fn duration_or(text: &str, instead: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale = match DURATIONS.iter().find(|(name, _)| *name == unit) {
        Some((_, scale)) => *scale,
        None if unit.is_empty() && number.parse() == Ok(0.0) => 1.0,
        None if unit.is_empty() && !number.is_empty() => {
            return Err(format!("'{text}' has no unit; {instead}"));
        }
        None => return Err(format!("'{text}' is no duration; {instead}")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' is no duration; {instead}"))?;
    whole(number * scale, 0, TIME_MAX_NS)
        .ok_or_else(|| format!("'{text}' is more than 1 hour; {instead}"))
}

/// A number of bytes: `1000000`, `64M`, `1GiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const INSTEAD: &str = "write 1 to 1T, for example 64M (2^20), 64MB (10^6) or 1GiB";
    let (number, unit) = split(text);
    let named = SIZES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let number: Option<f64> = number.parse().ok();
    match (number, named) {
        (Some(number), Some((_, scale))) => whole(number * scale, 1, BYTES_MAX)
            .ok_or_else(|| format!("allowed is 1 byte to 1 TiB; {INSTEAD}")),
        _ => Err(format!("not a size; {INSTEAD}")),
    }
}

/// An ACK timeout code that ends.
pub(super) fn timeout_code(text: &str) -> Result<u8, String> {
    const INSTEAD: &str = "write 1 to 31 (4.096 us doubled so many times; the device counts less \
                           than 16 as 16, 268 ms)";
    match text.parse::<u64>() {
        Ok(0) => Err(format!(
            "0 waits for ever, and the demo with it at the first loss; {INSTEAD}"
        )),
        Ok(code @ 1..=31) => Ok(u8::try_from(code).unwrap_or(31)),
        Ok(_) => Err(format!("timeout is a field of 5 bits; {INSTEAD}")),
        Err(_) => Err(format!("not a number; {INSTEAD}")),
    }
}

/// Two different addresses of one family: `127.0.0.1,127.0.0.2`.
pub(super) fn addresses(text: &str) -> Result<[IpAddr; 2], String> {
    const INSTEAD: &str = "write two of 127.0.0.0/8, for example 127.0.0.3,127.0.0.4";
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
    let both = text.split_once(',').map(|(a, b)| (parse(a), parse(b)));
    let Some((Some(a), Some(b))) = both else {
        return Err(format!("not two addresses with a comma between; {INSTEAD}"));
    };
    if a == b {
        return Err(format!("both devices would have the same one; {INSTEAD}"));
    }
    if a.is_ipv4() != b.is_ipv4() {
        return Err(format!("one is IPv4 and one IPv6; {INSTEAD}"));
    }
    Ok([a, b])
}

/// A number and what follows it.
fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// The nearest integer, if it lies in the range.
fn whole(number: f64, min: u64, max: u64) -> Option<u64> {
    let number = number.round();
    // Both ends are below 2^53, where every integer has its f64.
    (number >= min as f64 && number <= max as f64).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_and_percentages_are_the_same() {
        assert_eq!(loss("0.01"), Ok(0.01));
        assert_eq!(loss("1%"), Ok(0.01));
        assert_eq!(loss("0"), Ok(0.0));
        assert_eq!(loss("50 %"), Ok(0.5));
        for bad in ["1", "-0.1", "51%", "NaN", "inf", "", "%", "1e-2x"] {
            assert!(loss(bad).is_err(), "{bad}");
        }
        assert_eq!(
            loss("1").unwrap_err(),
            "allowed is 0 to 0.5 (0% to 50%); for 1 percent write 1%"
        );
    }

    #[test]
    fn blackouts_have_a_length_and_a_start() {
        let span = |length_ns, start| Ok(Blackout { start, length_ns });
        let time = Start::Time;
        assert_eq!(blackout("400ms@1s"), span(400_000_000, time(1_000_000_000)));
        assert_eq!(blackout("1.5s@20us"), span(1_500_000_000, time(20_000)));
        assert_eq!(
            blackout("1min@5.5%"),
            span(60_000_000_000, Start::Percent(5.5))
        );
        assert_eq!(blackout("0"), span(0, Start::DEFAULT));
        assert_eq!(blackout("0@0"), span(0, time(0)));
        for bad in [
            "400", "400ms@", "@1s", "ms", "2h", "61min", "-1s", "1s@1", "1s@101%", "1s@%", "1%",
        ] {
            assert!(blackout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_run_has_a_length() {
        assert_eq!(run_time("100ms"), Ok(100_000_000));
        assert_eq!(run_time("60min"), Ok(TIME_MAX_NS));
        for bad in ["99ms", "61min", "0", "6", "s", "1h"] {
            assert!(
                run_time(bad).unwrap_err().contains("for example 6s"),
                "{bad}"
            );
        }
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        assert_eq!(bytes("64M"), Ok(64 << 20));
        assert_eq!(bytes("1GiB"), Ok(1 << 30));
        assert_eq!(bytes("1 gb"), Ok(1_000_000_000));
        assert_eq!(bytes("0.5k"), Ok(512));
        assert_eq!(bytes("7"), Ok(7));
        for bad in ["0", "2T", "M", "64 Q", "", "-5"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_two_of_a_kind() {
        assert!(addresses("127.0.0.1, 127.0.0.2").is_ok());
        for bad in ["127.0.0.1", "127.0.0.1,127.0.0.1", "127.0.0.1,::1", "a,b"] {
            assert!(addresses(bad).is_err(), "{bad}");
        }
    }
}
