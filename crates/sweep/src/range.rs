//! Ranges of numbers, times, sizes, rates and probabilities.

use ferroce_base::units::{DECIMAL_SIZE, Quantity, RATE, SIZE, TIME};
use toml::Value;

/// A range, and how its values are spread.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Range {
    ends: [f64; 2],
    /// As they were written.
    written: [Value; 2],
    kind: Kind,
    pub(crate) is_log: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Whole,
    Real,
    Percent,
    Time,
    Size,
    Rate,
}

/// Digits of values between the ends.
const DIGITS: usize = 3;
/// The same where values are drawn.
const DIGITS_DRAWN: usize = 6;

const TIMES: &[(&str, u64)] = &[
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const SIZES: &[(&str, u64)] = &[("MB", 1_000_000), ("KB", 1_000), ("", 1)];
const RATES: &[(&str, u64)] = &[
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

impl Range {
    /// From one value to another.
    pub(crate) fn new(written: [Value; 2], is_log: bool) -> Result<Self, String> {
        let must = "must be two numbers, times, sizes, rates or probabilities of one kind, the smaller \
                    one first, for example [\"1ms\", \"10s\"]";
        let (kind, ends) = read(&written).ok_or(must)?;
        if ends[0] >= ends[1] {
            return Err(must.into());
        }
        if is_log && ends[0] <= 0.0 {
            return Err("must begin above 0 with scale = \"log\"".into());
        }
        Ok(Self {
            ends,
            written,
            kind,
            is_log,
        })
    }

    /// `count` values, evenly spread, both ends among them.
    pub(crate) fn spread(&self, count: u32) -> Result<Vec<Value>, String> {
        let last = count.saturating_sub(1).max(1);
        let values = (0..count).map(|at| match at {
            0 => self.written[0].clone(),
            at if at == last => self.written[1].clone(),
            at => self.value(self.between(f64::from(at) / f64::from(last)), DIGITS),
        });
        let values: Vec<Value> = values.collect();
        match values.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err("has fewer different values; write a smaller number of points".into()),
            false => Ok(values),
        }
    }

    /// The value at a share of the way, 0 to 1 without 1.
    pub(crate) fn draw(&self, share: f64) -> Value {
        match self.kind {
            // Each whole number has the same chance, the last one, too.
            Kind::Whole if !self.is_log => {
                let count = self.ends[1] - self.ends[0] + 1.0;
                self.value((self.ends[0] + count * share).floor(), DIGITS_DRAWN)
            }
            _ => self.value(self.between(share), DIGITS_DRAWN),
        }
    }

    fn between(&self, share: f64) -> f64 {
        let [from, to] = self.ends;
        match self.is_log {
            true => (from.ln() + (to.ln() - from.ln()) * share).exp(),
            false => from + (to - from) * share,
        }
    }

    /// A number as it is written in a file, with this number of digits.
    fn value(&self, number: f64, digits: usize) -> Value {
        let rounded = format!("{:.*e}", digits - 1, number);
        let rounded: f64 = rounded.parse().unwrap_or(number);
        let in_units = |units| Value::String(written(rounded.round() as u64, units));
        match self.kind {
            Kind::Whole => Value::Integer(number.round() as i64),
            Kind::Real => Value::Float(rounded),
            Kind::Percent => Value::String(format!("{rounded}%")),
            Kind::Time => in_units(TIMES),
            Kind::Size => in_units(SIZES),
            Kind::Rate => in_units(RATES),
        }
    }
}

/// A number of the smallest unit in the largest unit that is not larger.
fn written(number: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().find(|(_, unit)| *unit <= number);
    let Some((name, unit)) = fits else {
        return "0".into();
    };
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", number % unit);
    let fraction = match digits {
        0 => "",
        _ => fraction.trim_end_matches('0'),
    };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{name}", number / unit)
}

/// Reads a value of some kind.
type Read<'a> = &'a dyn Fn(&Value) -> Option<f64>;

fn read(written: &[Value; 2]) -> Option<(Kind, [f64; 2])> {
    let ends = |read: Read<'_>| {
        let [from, to] = written;
        Some([read(from)?, read(to)?])
    };
    let text = |quantity: &'static Quantity| {
        move |value: &Value| quantity.read(value.as_str()?).ok().map(|it| it as f64)
    };
    let percent = |value: &Value| value.as_str()?.strip_suffix('%')?.trim().parse().ok();
    let real = |value: &Value| {
        let whole = value.as_integer().map(|it| it as f64);
        value.as_float().or(whole).filter(|it| it.is_finite())
    };
    let whole = |value: &Value| value.as_integer().map(|it| it as f64);
    let kinds: [(Kind, Read<'_>); 6] = [
        (Kind::Whole, &whole),
        (Kind::Real, &real),
        (Kind::Percent, &percent),
        (Kind::Time, &text(&TIME)),
        (Kind::Size, &text(&SIZE)),
        (Kind::Rate, &text(&RATE)),
    ];
    let read = |(kind, it)| Some((kind, ends(it)?));
    kinds.into_iter().find_map(read)
}

/// The number that a value stands for, to draw it on an axis: seconds, bytes, bits a second, shares.
#[must_use]
pub fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = || text.parse::<f64>().ok().filter(|it| it.is_finite());
    let percent = || Some(text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0);
    let time = || Some(TIME.read(text).ok()? as f64 / 1e9);
    let other = |quantity: &Quantity| quantity.read(text).ok().map(|it| it as f64);
    plain()
        .or_else(percent)
        .or_else(time)
        .or_else(|| other(&RATE))
        .or_else(|| other(&DECIMAL_SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: &str, is_log: bool) -> Result<Range, String> {
        let table: toml::Table = format!("from = {from}\nto = {to}").parse().unwrap();
        Range::new([table["from"].clone(), table["to"].clone()], is_log)
    }

    fn spread(from: &str, to: &str, is_log: bool, count: u32) -> Vec<String> {
        let values = range(from, to, is_log).unwrap().spread(count).unwrap();
        values.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_are_spread_and_written_as_people_do() {
        assert_eq!(
            spread("'1ms'", "'10s'", true, 9),
            [
                "1ms", "3.16ms", "10ms", "31.6ms", "100ms", "316ms", "1s", "3.16s", "10s"
            ]
            .map(|it| format!("\"{it}\""))
        );
        assert_eq!(spread("8", "20", false, 4), ["8", "12", "16", "20"]);
        assert_eq!(spread("0.5", "1", false, 3), ["0.5", "0.75", "1"]);
        assert_eq!(spread("'0'", "'64KiB'", false, 3)[1], "\"32.8KB\"");
        assert_eq!(spread("'10Gbit'", "'400Gbit'", false, 3)[1], "\"205Gbit\"");
        assert_eq!(spread("'0.001%'", "'0.1%'", true, 3)[1], "\"0.01%\"");
        assert_eq!(spread("100000", "3000000", false, 3)[1], "1550000");
    }

    #[test]
    fn bad_ranges_are_refused() {
        for (from, to) in [
            ("1", "'1s'"),
            ("'1s'", "'1s'"),
            ("2", "1"),
            ("'a'", "'b'"),
            ("'1s'", "'1KiB'"),
        ] {
            assert!(
                range(from, to, false)
                    .unwrap_err()
                    .contains("smaller one first")
            );
        }
        assert!(range("0", "1", true).unwrap_err().contains("above 0"));
        let few = range("1", "3", false).unwrap().spread(9);
        assert!(few.unwrap_err().contains("fewer"));
    }

    #[test]
    fn every_whole_number_is_drawn() {
        let range = range("3", "5", false).unwrap();
        let drawn = [0.0, 0.34, 0.999].map(|share| range.draw(share).as_integer().unwrap());
        assert_eq!(drawn, [3, 4, 5]);
    }

    #[test]
    fn texts_have_numbers() {
        for (text, expected) in [
            ("300ms", 0.3),
            ("14", 14.0),
            ("1e-3", 1e-3),
            ("0.1%", 1e-3),
            ("64KiB", 65536.0),
            ("1Gbit", 1e9),
        ] {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        assert_eq!(number("link-flap"), None);
    }
}
