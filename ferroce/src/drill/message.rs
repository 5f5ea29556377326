//! Messages of libraries, in the forms that these print.
//!
//! NCCL and UCX name themselves and a level: `host:1:2 [0] file.cc:3 NCCL WARN text`,
//! `[4.5] [host:6:0] file.c:7  UCX  ERROR text`. Without both, UCX is about to end the process:
//! `[host:6:0:6] file.c:7  text`. Mooncake and NIXL print as Google's and Abseil's logging does:
//! `E0102 03:04:05.678901 9 file.cpp:10] text`.

/// Libraries that name themselves.
const NAMES: [&str; 2] = ["NCCL", "UCX"];
/// Levels, and whether a message of it is a warning or an error.
const LEVELS: [(&str, bool); 5] = [
    ("INFO", false),
    ("DIAG", false),
    ("WARN", true),
    ("ERROR", true),
    ("FATAL", true),
];

/// A message, read.
struct Message<'a> {
    is_warning: bool,
    text: &'a str,
}

/// Whether a library calls a message a warning or an error.
pub(super) fn is_warning(text: &str) -> bool {
    read(text).is_some_and(|it| it.is_warning)
}

/// A message without the place where it was printed.
pub(super) fn plain(text: &str) -> &str {
    read(text).map_or(text, |it| it.text).trim()
}

fn read(text: &str) -> Option<Message<'_>> {
    let named = NAMES.iter().find_map(|name| of_level(text, name));
    named
        .or_else(|| of_letter(text))
        .or_else(|| last_words(text))
}

/// A message with the name of the library, and a level.
fn of_level<'a>(text: &'a str, name: &str) -> Option<Message<'a>> {
    let (before, after) = text.split_once(name)?;
    let after = before.ends_with(' ').then_some(after)?.trim_start();
    let with = |(level, is_warning): &(&str, bool)| {
        let text = after.strip_prefix(level)?;
        text.starts_with(' ').then_some(Message {
            is_warning: *is_warning,
            text,
        })
    };
    LEVELS.iter().find_map(with)
}

/// A message with a letter for its level.
fn of_letter(text: &str) -> Option<Message<'_>> {
    let (level, rest) = text.split_at_checked(1)?;
    let has_date = rest.chars().take(4).all(|it| it.is_ascii_digit());
    if !has_date || !"IWEF".contains(level) {
        return None;
    }
    let (_, text) = rest.split_once("] ")?;
    Some(Message {
        is_warning: level != "I",
        text,
    })
}

/// UCX's message before it ends the process, with host, process, thread and process again.
fn last_words(text: &str) -> Option<Message<'_>> {
    let (from, rest) = text.strip_prefix('[')?.split_once("] ")?;
    let (place, text) = rest.trim_start().split_once(' ')?;
    let is_it = from.split(':').count() == 4 && place.contains(".c:");
    is_it.then_some(Message {
        // Details follow in brackets.
        is_warning: !text.trim_start().starts_with('['),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_all_libraries_are_read() {
        for (text, warns, said) in [
            (
                "vm:1:2 [0] net.cc:3 NCCL WARN Call failed",
                true,
                "Call failed",
            ),
            (
                "vm:1:2 [0] NCCL INFO NET/IB : Using h0r0",
                false,
                "NET/IB : Using h0r0",
            ),
            (
                "[1.5] [vm:1:0]  rc.c:3  UCX  ERROR Endpoint timeout",
                true,
                "Endpoint timeout",
            ),
            ("[1.5] [vm:1:0]  rc.c:3  UCX  INFO  cfg#0", false, "cfg#0"),
            (
                "E1127 22:44:00.123456 77 w.cpp:284] retry exceeded",
                true,
                "retry exceeded",
            ),
            (
                "[vm:14 :0:14] rc.c:124  send completion with error",
                true,
                "send completion with error",
            ),
            (
                "[vm:14] *** Process received signal ***",
                false,
                "[vm:14] *** Process received signal ***",
            ),
            ("I1127 22:44:00.123456 77 w.cpp:284] ready", false, "ready"),
            ("Error", false, "Error"),
            ("", false, ""),
        ] {
            assert_eq!((is_warning(text), plain(text)), (warns, said), "{text}");
        }
    }
}
