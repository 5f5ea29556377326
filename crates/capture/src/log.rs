//! Program logs: when queue pairs failed because their peer did not answer.
//!
//! NCCL, UCX, Mooncake, perftest and the kernel write different lines. They have in common a time
//! and one of the names of `IBV_WC_RETRY_EXC_ERR`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use ferroce_base::time::Span;

/// Bytes of a line that are looked at.
const LINE_MAX: u64 = 16 << 10;
/// Errors that are kept; later ones are counted.
const ERRORS_MAX: usize = 1 << 16;
/// Errors that follow this closely are one failure: each work request of a queue pair has its own.
const ONE_FAILURE: Span = Span::from_millis(200);
const NS: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// What lines call the error, in lower case.
const NAMES: [&str; 10] = [
    "ibv_wc_retry_exc_err",
    "transport retry counter exceeded",
    "transport retry count exceeded",
    "vendor err 129",
    "vend 0x81",
    "syndrom 0x81",
    "status=12 ",
    "status 12:",
    "with error 12,",
    "retry-exceeded",
];

/// What comes before the name of a peer.
const PEERS: [&str; 4] = ["peer_nic: ", "from peer ", "rqpn ", "remote_ip="];

/// The failures in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Lines.
    pub lines: u64,
    /// Lines with the error.
    pub errors: u64,
    /// Those of them without a time.
    pub untimed: u64,
    /// When queue pairs failed, in nanoseconds, by peer if the lines name it; in chronological
    /// order.
    pub failures: BTreeMap<String, Vec<u64>>,
    kept: usize,
}

impl Log {
    /// Reads a log line by line, in constant memory.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn read(mut source: impl BufRead) -> io::Result<Self> {
        let mut log = Self::default();
        let mut line = Vec::new();
        while next_line(&mut source, &mut line)? {
            log.lines += 1;
            log.add(&String::from_utf8_lossy(&line));
        }
        for times in log.failures.values_mut() {
            times.sort_unstable();
            // The first of those that follow each other closely.
            let mut last = None;
            times.retain(|at| {
                let before = last.replace(*at);
                before.is_none_or(|before| Span::from_nanos(at - before) >= ONE_FAILURE)
            });
        }
        Ok(log)
    }

    fn add(&mut self, line: &str) {
        let lower = line.to_ascii_lowercase();
        if !NAMES.iter().any(|name| lower.contains(name)) {
            return;
        }
        self.errors += 1;
        match time(line) {
            None => self.untimed += 1,
            Some(at) => {
                if self.kept < ERRORS_MAX {
                    self.kept += 1;
                    self.failures.entry(peer(line)).or_default().push(at);
                }
            }
        }
    }

    /// Returns the times between consecutive failures of the same peer, or between all failures if
    /// no peer failed twice.
    #[must_use]
    pub fn gaps(&self) -> Vec<Span> {
        let gaps = |times: &Vec<u64>| -> Vec<Span> {
            let pairs = times.windows(2);
            pairs
                .map(|pair| Span::from_nanos(pair[1] - pair[0]))
                .collect()
        };
        let by_peer: Vec<Span> = self.failures.values().flat_map(gaps).collect();
        if !by_peer.is_empty() {
            return by_peer;
        }
        let mut all: Vec<u64> = self.failures.values().flatten().copied().collect();
        all.sort_unstable();
        let gaps = gaps(&all);
        gaps.into_iter().filter(|gap| *gap >= ONE_FAILURE).collect()
    }
}

/// Reads a line, or as much of it as is looked at; whether there was one.
fn next_line(source: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = Read::by_ref(source)
        .take(LINE_MAX)
        .read_until(b'\n', line)?;
    if read as u64 == LINE_MAX && !line.ends_with(b"\n") {
        // The rest of it.
        loop {
            let buffer = source.fill_buf()?;
            let (used, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            source.consume(used);
            if is_end {
                break;
            }
        }
    }
    Ok(read > 0)
}

fn peer(line: &str) -> String {
    let after = PEERS.iter().find_map(|name| line.split_once(name));
    let Some((_, rest)) = after else {
        return String::new();
    };
    let end = rest.find([' ', ',', ')', ']']).unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// The time of a line, in nanoseconds: of the day, with the date if there is one, or since whenever
/// `[seconds.fraction]` counts.
fn time(line: &str) -> Option<u64> {
    clock(line).or_else(|| seconds(line))
}

/// `12:34:56.789`, and the date before it.
fn clock(line: &str) -> Option<u64> {
    let bytes = line.as_bytes();
    let is_clock = |at: &usize| {
        let digit = |offset: usize| bytes.get(at + offset).is_some_and(u8::is_ascii_digit);
        let colon = |offset: usize| bytes.get(at + offset) == Some(&b':');
        let starts = *at == 0 || !(bytes[at - 1].is_ascii_digit() || bytes[at - 1] == b':');
        starts
            && [0, 1, 3, 4, 6, 7].into_iter().all(digit)
            && [2, 5].into_iter().all(colon)
            && !digit(8)
            && !colon(8)
    };
    let at = (0..bytes.len().saturating_sub(7)).find(is_clock)?;
    let number = |from: usize| line.get(from..from + 2)?.parse::<u64>().ok();
    let (hour, minute, second) = (number(at)?, number(at + 3)?, number(at + 6)?);
    if hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let fraction = match bytes.get(at + 8) {
        Some(b'.' | b',') => fraction(line.get(at + 9..)?),
        _ => 0,
    };
    let days = date(line.get(..at)?).unwrap_or(0);
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * NS + fraction)
}

/// Nanoseconds of the digits behind a decimal point.
fn fraction(text: &str) -> u64 {
    let digits = text.bytes().take_while(u8::is_ascii_digit).take(9);
    let (value, len) = digits.fold((0, 0), |(value, len), digit| {
        (value * 10 + u64::from(digit - b'0'), len + 1)
    });
    value * 10u64.pow(9 - len)
}

/// Days of the date that ends a text: `2026-11-22`, `2026/11/22`, `E1122`, `E20261122`, `Nov 22`.
fn date(before: &str) -> Option<u64> {
    let text = before.trim_end_matches([' ', 'T', '[', '_']);
    let word = text.rsplit([' ', '[', '(']).next()?;
    let numbers: Vec<u64> = word
        .split(['-', '/'])
        .map_while(|it| it.parse().ok())
        .collect();
    if let [year, month, day] = numbers[..] {
        return days(year, month, day);
    }
    let glog = word.strip_prefix(['I', 'W', 'E', 'F']).unwrap_or_default();
    let part = |from: usize, len: usize| glog.get(from..from + len)?.parse::<u64>().ok();
    match glog.len() {
        4 => days(2000, part(0, 2)?, part(2, 2)?),
        8 => days(part(0, 4)?, part(4, 2)?, part(6, 2)?),
        _ => syslog(text),
    }
}

/// `Nov 22`.
fn syslog(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut words = text.split_whitespace().rev();
    let day = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)?;
    days(2000, month as u64 + 1, day)
}

/// Days since 1970.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    /// From the first of March of the year 0.
    const TO_1970: u64 = 719_468;
    if !(1970..=2400).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // A year that begins in March has its leap day at its end.
    let year = year - u64::from(month < 3);
    let month = (month + 9) % 12;
    let leap_days = year / 4 - year / 100 + year / 400;
    Some((year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1).saturating_sub(TO_1970))
}

/// `[1716382012.123456]`, of UCX or the kernel.
fn seconds(line: &str) -> Option<u64> {
    line.split('[').skip(1).find_map(|rest| {
        let (number, _) = rest.split_once(']')?;
        let (whole, part) = number.trim_start().split_once('.')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        if !is_number(whole) || !is_number(part) {
            return None;
        }
        let whole: u64 = whole.parse().ok()?;
        (whole < DAY * 365 * 300).then(|| whole * NS + fraction(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_programs() {
        let hms = |h: u64, m: u64, s: u64| ((h * 60 + m) * 60 + s) * NS;
        let day = |y, m, d| days(y, m, d).unwrap() * DAY * NS;
        for (line, expected) in [
            (
                "E0331 02:48:57.801054 803278 worker.cpp:1] x",
                day(2000, 3, 31) + hms(2, 48, 57) + 801_054_000,
            ),
            (
                "E20251012 09:10:11.5 14 t.cpp:2] x",
                day(2025, 10, 12) + hms(9, 10, 11) + 500_000_000,
            ),
            (
                "2026-11-22T23:59:59.999+00:00 x",
                day(2026, 11, 22) + hms(23, 59, 59) + 999_000_000,
            ),
            (
                "2026-11-22 01:02:03,5 x",
                day(2026, 11, 22) + hms(1, 2, 3) + 500_000_000,
            ),
            ("[2026/11/22 01:02:03] x", day(2026, 11, 22) + hms(1, 2, 3)),
            ("Nov 22 01:02:03 host x", day(2000, 11, 22) + hms(1, 2, 3)),
            ("01:02:03 x", hms(1, 2, 3)),
            (
                "[1716382012.123456] [host:1:0] x",
                1_716_382_012_123_456_000,
            ),
            ("[  123.5] x", 123_500_000_000),
        ] {
            assert_eq!(time(line), Some(expected), "{line}");
        }
        for line in [
            "",
            "no time",
            "[4] x",
            "1:2:3",
            "99:99:99",
            "::::::::",
            "[x.y]",
            "é12:34:5é6",
        ] {
            assert_eq!(time(line), None, "{line}");
        }
    }

    #[test]
    fn a_day_follows_a_day() {
        assert_eq!(days(2024, 2, 29).unwrap() + 1, days(2024, 3, 1).unwrap());
        assert_eq!(days(2025, 12, 31).unwrap() + 1, days(2026, 1, 1).unwrap());
        assert_eq!(days(2025, 2, 28).unwrap() + 1, days(2025, 3, 1).unwrap());
    }

    #[test]
    fn failures_are_told_apart_by_peer_and_time() {
        let line = |at: &str, peer: &str| {
            format!(
                "E0331 {at} 1 w.cpp:2] Process failed (peer_nic: {peer}@mlx5_4, x): transport retry counter exceeded\n"
            )
        };
        let text = line("02:00:00.0", "a")
            + &line("02:00:00.1", "a")
            + "something else\n"
            + &line("02:00:03.9", "a")
            + &line("02:00:04.5", "b")
            + "transport retry counter exceeded\n";
        let log = Log::read(text.as_bytes()).unwrap();
        assert_eq!((log.lines, log.errors, log.untimed), (6, 5, 1));
        assert_eq!(log.gaps(), [Span::from_millis(3900)]);
        assert_eq!(log.failures.len(), 2);
    }

    #[test]
    fn a_line_of_megabytes_is_one_line() {
        let text = "x".repeat(3 << 20) + "\n12:00:00 IBV_WC_RETRY_EXC_ERR";
        let log = Log::read(text.as_bytes()).unwrap();
        assert_eq!((log.lines, log.errors), (2, 1));
    }
}
