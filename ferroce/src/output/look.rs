//! How wide output may be, and whether it has colour.
//!
//! Tables are made deep inside commands, so this is kept for each thread, as it is the same for all that a
//! command prints. [`crate::execute`] sets it; until then output is 80 columns wide and has no colour.

use std::cell::Cell;
use std::env;
use std::io::{self, IsTerminal};

use clap::ValueEnum;

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// Also in files and pipes, and despite NO_COLOR
    Always,
    /// Never
    Never,
}

/// What is known of the streams before the command line is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surroundings {
    out_is_terminal: bool,
    err_is_terminal: bool,
    colour_is_unwanted: bool,
    /// Of the terminal, or by `COLUMNS`.
    columns: Option<usize>,
}

impl Surroundings {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|it| !it.is_empty());
        let terminal = terminal_size::terminal_size_of(io::stdout());
        let terminal = terminal.map(|(width, _)| usize::from(width.0));
        let by_variable = || env::var("COLUMNS").ok()?.trim().parse().ok();
        Self {
            out_is_terminal: io::stdout().is_terminal(),
            err_is_terminal: io::stderr().is_terminal(),
            colour_is_unwanted: is_set("NO_COLOR")
                || env::var_os("TERM").is_some_and(|it| it == "dumb"),
            columns: terminal.or_else(by_variable).filter(|it| *it > 0),
        }
    }

    /// How output looks here.
    pub(crate) fn look(self, choice: ColorChoice) -> Look {
        let has_colour = |is_terminal| match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && !self.colour_is_unwanted,
        };
        Look {
            out: Paint(has_colour(self.out_is_terminal)),
            err: Paint(has_colour(self.err_is_terminal)),
            columns: self.columns.map(|it| it.max(COLUMNS_MIN)),
        }
    }
}

/// How output looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) out: Paint,
    pub(crate) err: Paint,
    columns: Option<usize>,
}

/// Columns that tables, pictures and help take at least.
const COLUMNS_MIN: usize = 60;
const COLUMNS_USUAL: usize = 80;
/// Very wide terminals are not filled: long lines are hard to follow.
const COLUMNS_FILLED_MAX: usize = 120;

thread_local! {
    static LOOK: Cell<Look> = const {
        Cell::new(Look { out: Paint(false), err: Paint(false), columns: None })
    };
}

/// Sets how the output of this thread looks.
pub(crate) fn set(look: Look) {
    LOOK.set(look);
}

/// How this thread's output looks.
pub(crate) fn look() -> Look {
    LOOK.get()
}

/// Columns that a table may have: those of the terminal or of `COLUMNS`, else 80.
pub(crate) fn columns() -> usize {
    look().columns.unwrap_or(COLUMNS_USUAL)
}

/// Columns that a picture fills.
pub(crate) fn filled_columns() -> usize {
    columns().min(COLUMNS_FILLED_MAX)
}

/// Columns of lines that have one object each, as `rdma` prints them; none in a pipe, where `grep` and `awk`
/// read them as they are.
pub(crate) fn row_columns() -> Option<usize> {
    look().columns
}

/// Text with emphasis, or as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[1;36m";

/// What begins a line about something that is wrong, and its colour.
const LABELS: [(&str, &str); 3] = [("error:", RED), ("warning:", YELLOW), ("note:", CYAN)];

impl Paint {
    pub(crate) fn is_on(self) -> bool {
        self.0
    }

    fn with(self, colour: &str, text: &str) -> String {
        match self.0 && !text.is_empty() {
            true => format!("{colour}{text}{RESET}"),
            false => text.to_owned(),
        }
    }

    /// The heading of a table.
    pub(crate) fn heading(self, text: &str) -> String {
        self.with(BOLD, text)
    }

    /// What deserves attention.
    pub(crate) fn warning(self, text: &str) -> String {
        self.with(YELLOW, text)
    }

    /// What is broken.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with(RED, text)
    }

    /// Lines of which some begin with `error:`, `warning:` or `note:`, also behind the place in a file
    /// that they are about.
    pub(crate) fn labels(self, lines: &str) -> String {
        if !self.0 {
            return lines.to_owned();
        }
        lines
            .split_inclusive('\n')
            .map(|it| self.label(it))
            .collect()
    }

    fn label(self, line: &str) -> String {
        for (label, colour) in LABELS {
            let found = line.find(label).filter(|at| {
                // `profile.toml:12: error: …`
                let place = line[..*at].strip_suffix(": ");
                *at == 0 || place.is_some_and(|place| !place.contains(": "))
            });
            if let Some(at) = found {
                let end = at + label.len();
                let label = self.with(colour, label);
                return format!("{}{label}{}", &line[..at], &line[end..]);
            }
        }
        line.to_owned()
    }
}

/// Cuts a line to at most `columns` columns and marks the cut with an ellipsis. Colours take no
/// columns.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    let mut text = String::new();
    let (mut room, mut rest) = (columns, line);
    while let Some(first) = rest.chars().next() {
        if let Some(colour) = colour_at(rest) {
            text += &rest[..colour];
            rest = &rest[colour..];
            continue;
        }
        if room == 1 && width(rest) > 1 {
            text.push('…');
            if line.contains('\x1b') {
                text += RESET;
            }
            return text;
        }
        text.push(first);
        rest = &rest[first.len_utf8()..];
        room -= 1;
    }
    text
}

/// Columns of a text; colours take none.
pub(crate) fn width(text: &str) -> usize {
    let (mut columns, mut rest) = (0, text);
    while let Some(first) = rest.chars().next() {
        let colour = colour_at(rest);
        columns += usize::from(colour.is_none());
        rest = &rest[colour.unwrap_or_else(|| first.len_utf8())..];
    }
    columns
}

/// The length of the sequence that begins or ends a colour, if one is at the beginning.
fn colour_at(text: &str) -> Option<usize> {
    text.strip_prefix("\x1b[")?;
    text.find('m').map(|at| at + 1)
}

/// The choice among arguments that may be wrong in other respects, for the complaint about them.
pub(crate) fn choice_among(args: &[std::ffi::OsString]) -> ColorChoice {
    let words = args.iter().map(|it| it.to_string_lossy());
    let words: Vec<_> = words.take_while(|it| it != "--").collect();
    let values =
        words
            .iter()
            .enumerate()
            .filter_map(|(at, word)| match word.strip_prefix("--color")? {
                "" => words.get(at + 1).map(|it| it.to_string()),
                value => value.strip_prefix('=').map(str::to_owned),
            });
    let mut choices = values.filter_map(|it| ColorChoice::from_str(&it, false).ok());
    choices.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Paint = Paint(true);

    #[test]
    fn colour_is_for_terminals_unless_it_is_asked_for_or_unwanted() {
        let has_colour = |out_is_terminal, colour_is_unwanted, choice| {
            let surroundings = Surroundings {
                out_is_terminal,
                colour_is_unwanted,
                ..Surroundings::default()
            };
            surroundings.look(choice).out.is_on()
        };
        assert!(has_colour(true, false, ColorChoice::Auto));
        assert!(!has_colour(false, false, ColorChoice::Auto));
        assert!(!has_colour(true, true, ColorChoice::Auto));
        assert!(has_colour(false, true, ColorChoice::Always));
        assert!(!has_colour(true, false, ColorChoice::Never));
    }

    #[test]
    fn labels_are_painted_where_lines_begin() {
        let painted = |line| ON.labels(line).contains(RED);
        assert!(painted("error: no device fr9\n"));
        assert!(painted("a note\nprofile.toml:3: error: too long\n"));
        assert!(!painted("the last error: none\n"));
        assert!(!painted("device fr0: said: error: busy\n"));
        assert_eq!(
            ON.labels("warning: it is late"),
            "\x1b[1;33mwarning:\x1b[0m it is late"
        );
        assert_eq!(Paint(false).labels("error: plain"), "error: plain");
    }

    #[test]
    fn lines_are_cut_by_what_can_be_seen() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        let bold = ON.heading("abcdefg");
        assert_eq!(width(&bold), 7);
        assert_eq!(cut(&bold, 7), bold);
        assert_eq!(cut(&bold, 6), "\x1b[1mabcde…\x1b[0m");
    }

    #[test]
    fn the_choice_is_found_among_bad_arguments() {
        let choice = |line: &str| {
            let args: Vec<_> = line.split(' ').map(Into::into).collect();
            choice_among(&args)
        };
        assert_eq!(
            choice("ferroce --color=always nonsense"),
            ColorChoice::Always
        );
        assert_eq!(choice("ferroce nonsense --color never"), ColorChoice::Never);
        assert_eq!(
            choice("ferroce run -- ls --color=always"),
            ColorChoice::Auto
        );
        assert_eq!(choice("ferroce --color=purple"), ColorChoice::Auto);
    }
}
