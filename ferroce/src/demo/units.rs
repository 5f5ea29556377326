//! Values of the demo on the command line: losses, outages, durations, sizes.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ferroce_base::units::{Decimal, Invalid, Probability, SIZE, TIME};

use super::plan::{Blackout, Start};

const SECOND: u64 = 1_000_000_000;
/// How long an outage lasts, and when it begins.
const TIMES: RangeInclusive<u64> = 0..=3600 * SECOND;
/// How long a demo runs. In less there is nothing to see.
const RUN_TIMES: RangeInclusive<u64> = SECOND / 10..=3600 * SECOND;
/// Bytes of one run.
const BYTES: RangeInclusive<u64> = 1..=1 << 40;

/// A probability that leaves something to look at: `0.01` or `1%`.
pub(super) fn loss(text: &str) -> Result<f64, String> {
    let allowed = "must be a probability between 0 and 0.5 (or 0% to 50%)";
    let half = Probability::from_f64(0.5);
    match text.parse::<Probability>() {
        Ok(loss) if Some(loss) <= half => Ok(loss.as_f64()),
        // A user who writes 1 or 5 means percent.
        _ => Err(match text.parse::<Decimal>() {
            Ok(number) if format!("{number}%").parse::<Probability>().is_ok() => {
                format!("{allowed}; for {number} percent write {number}%")
            }
            _ => format!("{allowed}, for example 1%"),
        }),
    }
}

/// `LEN` or `LEN@AT`; a length of 0 is none.
pub(super) fn blackout(text: &str) -> Result<Blackout, String> {
    let (length, start) = match text.split_once('@') {
        Some((length, at)) => (length, start(at.trim())?),
        None => (text, Start::DEFAULT),
    };
    let length_ns = TIME.read_in(length, TIMES);
    let length_ns = length_ns.map_err(|invalid| {
        format!("the length {invalid}; write LEN or LEN@AT, such as 400ms@1s or 400ms@25%")
    })?;
    Ok(Blackout { start, length_ns })
}

fn start(text: &str) -> Result<Start, String> {
    let start = match text.strip_suffix('%') {
        Some(percent) => text
            .parse::<Probability>()
            .and_then(|_| percent.trim_end().parse::<Decimal>())
            .map(|percent| Start::Percent(percent.as_f64())),
        None => TIME.read_in(text, TIMES).map(Start::Time),
    };
    start.map_err(|_| {
        let time = TIME.write(*TIMES.end());
        format!(
            "the start after the @ must be a time from 0 to {time}, or a percentage of the bytes, \
             such as 400ms@1s or 400ms@25%"
        )
    })
}

/// How long a demo runs.
pub(super) fn run_time(text: &str) -> Result<u64, Invalid> {
    TIME.read_in(text, RUN_TIMES)
}

/// A number of bytes: `1000000`, `64M`, `1GiB`.
pub(super) fn bytes(text: &str) -> Result<u64, Invalid> {
    SIZE.read_in(text, BYTES)
}

/// An ACK timeout code that ends.
pub(super) fn timeout_code(text: &str) -> Result<u8, String> {
    const INSTEAD: &str = "write 1 to 31 (4.096 us doubled so many times; the device counts less \
                           than 16 as 16, 268 ms)";
    match text.parse::<u64>() {
        Ok(0) => Err(format!(
            "0 disables the timeout, so the demo would hang at the first loss; {INSTEAD}"
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
            "must be a probability between 0 and 0.5 (or 0% to 50%); for 1 percent write 1%"
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
        assert_eq!(run_time("60min"), Ok(3600 * SECOND));
        for bad in ["99ms", "61min", "0", "6", "s", "1h"] {
            let error = run_time(bad).unwrap_err().to_string();
            assert!(error.contains("from 100ms to 3600s"), "{bad}: {error}");
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
