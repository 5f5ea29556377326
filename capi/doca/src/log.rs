//! Levels, and what a line of the log looks like.

use std::fmt;

use crate::error::Refusal;

/// `enum doca_log_level`: how much is told; a higher number tells more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
#[allow(missing_docs, reason = "the name is the value")]
pub enum Level {
    Disable = 10,
    Crit = 20,
    Error = 30,
    Warning = 40,
    Info = 50,
    Debug = 60,
    Trace = 70,
}

impl Level {
    const ALL: [(Self, &str); 7] = [
        (Self::Disable, "DIS"),
        (Self::Crit, "CRT"),
        (Self::Error, "ERR"),
        (Self::Warning, "WRN"),
        (Self::Info, "INF"),
        (Self::Debug, "DBG"),
        (Self::Trace, "TRC"),
    ];

    /// The numbers and names, for help texts.
    pub const NUMBERS: &str =
        "10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE";

    /// The level of a number.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`](crate::Code::InvalidValue): no level has it.
    pub fn of(number: u32) -> Result<Self, Refusal> {
        let found = Self::ALL.iter().find(|(level, _)| *level as u32 == number);
        let found = found.map(|(level, _)| *level);
        found.ok_or_else(|| Refusal::value("level", number, Self::NUMBERS))
    }

    fn tag(self) -> &'static str {
        let found = Self::ALL.iter().find(|(level, _)| *level == self);
        found.map_or("", |(_, tag)| tag)
    }
}

/// A line of the log without its end; parsers know the form
/// `[HH:MM:SS:microseconds][thread][DOCA][INF][file.c:12][function] text`.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Hours, minutes and seconds of the day, and microseconds.
    pub time: [u32; 4],
    /// Number of the thread.
    pub thread: u64,
    /// How much it matters.
    pub level: Level,
    /// The source's file; its directories are left out.
    pub file: &'a str,
    /// Line in that file.
    pub line: i32,
    /// The function that tells.
    pub function: &'a str,
    /// What it tells.
    pub text: &'a str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [hours, minutes, seconds, micros] = self.time;
        let file = self.file.rsplit('/').next().unwrap_or(self.file);
        write!(
            f,
            "[{hours:02}:{minutes:02}:{seconds:02}:{micros:06}][{}][DOCA][{}][{file}:{}][{}] {}",
            self.thread,
            self.level.tag(),
            self.line,
            self.function,
            self.text
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_form_that_parsers_know() {
        let line = Line {
            time: [6, 38, 3, 42],
            thread: 7,
            level: Level::Warning,
            file: "../samples/a.c",
            line: 12,
            function: "main",
            text: "no device",
        };
        let text = "[06:38:03:000042][7][DOCA][WRN][a.c:12][main] no device";
        assert_eq!(line.to_string(), text);
    }

    #[test]
    fn numbers_between_the_levels_are_none() {
        assert_eq!(Level::of(70), Ok(Level::Trace));
        for bad in [0, 5, 15, 80, u32::MAX] {
            assert!(Level::of(bad).is_err(), "{bad}");
        }
    }
}
