//! Control characters in a file, which TOML can write as escapes.

use toml::de::{DeTable, DeValue};

/// The first key or string of a table with a control character other than tabs and ends of lines: where it
/// begins, in bytes, and the character.
pub(super) fn in_table(table: &DeTable<'_>) -> Option<(usize, char)> {
    table.iter().find_map(|(key, value)| {
        let in_key = || in_text(key.get_ref()).map(|it| (key.span().start, it));
        let in_value = || in_value(value.get_ref(), value.span().start);
        in_key().or_else(in_value)
    })
}

fn in_value(value: &DeValue<'_>, at: usize) -> Option<(usize, char)> {
    match value {
        DeValue::String(text) => in_text(text).map(|it| (at, it)),
        DeValue::Array(values) => {
            let mut values = values.iter();
            values.find_map(|it| in_value(it.get_ref(), it.span().start))
        }
        DeValue::Table(table) => in_table(table),
        _ => None,
    }
}

fn in_text(text: &str) -> Option<char> {
    let ends_line = |at: usize| text[at..].starts_with('\n') || text[at..].starts_with("\r\n");
    let is_plain = |at, it: char| !it.is_control() || it == '\t' || ends_line(at);
    let found = text.char_indices().find(|(at, it)| !is_plain(*at, *it));
    found.map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    /// The line and the text of the refusal.
    fn refused(text: &str) -> (Option<usize>, String) {
        let problems = parse(text).unwrap_err().problems;
        (problems[0].line, problems[0].text.clone())
    }

    #[test]
    fn control_characters_are_refused_wherever_they_are() {
        let refusal = |character: &str| format!("control character {character}; leave it out");
        for (text, line, character) in [
            ("a = \"\\u001b[31m\"", 1, "U+001B"),
            ("a = 1\n\"\\u001b[2J\" = 2", 2, "U+001B"),
            ("\n[\"\\u0007\"]\na = 1", 2, "U+0007"),
            ("a = [1,\n\"b\\b\"]", 2, "U+0008"),
            ("a = { b = { c = \"\\u007f\" } }", 1, "U+007F"),
            ("a = \"one\\rtwo\"", 1, "U+000D"),
            ("[[a]]\nb = 'c'\n[[a]]\nb = '\u{9b}2J'", 4, "U+009B"),
        ] {
            assert_eq!(refused(text), (Some(line), refusal(character)), "{text:?}");
        }
        assert!(parse("a = \"one\\ttwo\\r\\nthree\"\nb = 'Grüße'").is_ok());
    }

    #[test]
    fn messages_of_the_parser_have_no_control_characters() {
        for text in [
            "\"\\u001b[31m\" = 1\n\"\\u001b[31m\" = 2",
            "\"\\u001b[31m\".a = 1\n\"\\u001b[31m\" = 2",
            "[\"\\u001b[31m\"]\n[\"\\u001b[31m\"]",
            "a = \u{1b}",
        ] {
            let (_, message) = refused(text);
            assert!(!message.chars().any(char::is_control), "{message:?}");
        }
    }
}
