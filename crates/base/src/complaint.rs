//! What a reader of TOML or JSON complains about, without the names of the program's own types.

/// Returns the complaint of a deserializer in the terms of the file: what a value must be, and what it is.
///
/// ```
/// use ferroce_base::complaint::plain;
///
/// let complaint = "invalid type: string \"x\", expected u8";
/// assert_eq!(plain(complaint), "must be a whole number from 0 to 255, not \"x\"");
/// ```
#[must_use]
pub fn plain(complaint: &str) -> String {
    let (complaint, place) = match complaint.rfind(" at line ") {
        Some(at) => (&complaint[..at], &complaint[at..]),
        None => (complaint, ""),
    };
    let text = match complaint.rsplit_once(", expected ") {
        Some((found, expected)) => refused(found, expected),
        None => named(complaint),
    };
    text.unwrap_or_else(|| complaint.to_owned()) + place
}

/// Returns a complaint with its control characters as escapes: it quotes a file, whose author must not control
/// the terminal. Tabs and ends of lines stay.
///
/// ```
/// use ferroce_base::complaint::printable;
///
/// assert_eq!(printable("unknown key \u{1b}[31mred"), "unknown key \\u{1b}[31mred");
/// ```
#[must_use]
pub fn printable(complaint: &str) -> String {
    let mut text = String::with_capacity(complaint.len());
    for it in complaint.chars() {
        match it {
            '\t' | '\n' => text.push(it),
            it if it.is_control() => text.extend(it.escape_unicode()),
            it => text.push(it),
        }
    }
    text
}

/// Something was found where something else is expected.
fn refused(found: &str, expected: &str) -> Option<String> {
    if let Some(variant) = found.strip_prefix("unknown variant ") {
        let all = expected.replace('`', "");
        return Some(format!("unknown value {}; expected {all}", bare(variant)));
    }
    if let Some(field) = found.strip_prefix("unknown field ") {
        let all = expected.replace('`', "");
        return Some(format!("unknown key {}; expected {all}", bare(field)));
    }
    let found = match (
        found.strip_prefix("invalid length "),
        found.split_once(": "),
    ) {
        (Some(length), _) => format!("an array of {length}"),
        (None, Some(("invalid type" | "invalid value", found))) => value(found),
        _ => return None,
    };
    Some(format!("must be {}, not {found}", kind(expected)))
}

/// A key is there twice, or not at all.
fn named(complaint: &str) -> Option<String> {
    if let Some(field) = complaint.strip_prefix("missing field ") {
        return Some(format!("missing {}", bare(field)));
    }
    if let Some(field) = complaint.strip_prefix("duplicate field ") {
        return Some(format!("{} is given more than once", bare(field)));
    }
    // An enumeration in TOML.
    (complaint == "wanted string or table").then(|| "must be a string".to_owned())
}

/// What a type of the program is in a file.
fn kind(expected: &str) -> String {
    let up_to = |max: &dyn std::fmt::Display| format!("a whole number from 0 to {max}");
    match expected {
        "u8" => up_to(&u8::MAX),
        "u16" => up_to(&u16::MAX),
        "u32" => up_to(&u32::MAX),
        "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a map" => "a table".to_owned(),
        "a sequence" => "an array".to_owned(),
        "IP address" => "an IP address".to_owned(),
        other => match other.split_once(' ') {
            Some(("struct", _)) => "a table".to_owned(),
            Some(("tuple" | "newtype", _)) => "an array".to_owned(),
            Some(("enum" | "variant", _)) => "a string".to_owned(),
            _ => other.to_owned(),
        },
    }
}

/// A value that was found: itself where it is shown, else what it is.
fn value(found: &str) -> String {
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "an array".to_owned(),
        "null" | "unit value" | "Option value" => "nothing".to_owned(),
        "enum" | "unit variant" | "newtype variant" => "a string".to_owned(),
        other => match (other.find('"'), other.find('`')) {
            (Some(at), _) => other[at..].to_owned(),
            (None, Some(_)) => bare(other),
            (None, None) => other.to_owned(),
        },
    }
}

/// What stands between backticks.
fn bare(text: &str) -> String {
    let mut parts = text.split('`');
    parts.nth(1).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn types_are_named_as_the_file_names_them() {
        for (complaint, expected) in [
            (
                "invalid type: string \"x, expected y\", expected u32",
                "must be a whole number from 0 to 4294967295, not \"x, expected y\"",
            ),
            (
                "invalid type: integer `5`, expected struct PersonalityFile",
                "must be a table, not 5",
            ),
            (
                "invalid value: integer `-1`, expected u16",
                "must be a whole number from 0 to 65535, not -1",
            ),
            (
                "invalid type: sequence, expected IP address",
                "must be an IP address, not an array",
            ),
            (
                "invalid type: boolean `true`, expected a string",
                "must be a string, not true",
            ),
            (
                "invalid type: map, expected a sequence at line 3 column 9",
                "must be an array, not a table at line 3 column 9",
            ),
            (
                "unknown variant `x`, expected one of `a`, `b`",
                "unknown value x; expected one of a, b",
            ),
            (
                "unknown variant `x`, expected `a` or `b`",
                "unknown value x; expected a or b",
            ),
            (
                "unknown field `foo`, expected one of `port`, `seed`",
                "unknown key foo; expected one of port, seed",
            ),
            (
                "invalid length 0, expected struct File with 2 elements",
                "must be a table, not an array of 0",
            ),
            ("missing field `address`", "missing address"),
            ("duplicate field `port`", "port is given more than once"),
            ("wanted string or table", "must be a string"),
            ("invalid IP address syntax", "invalid IP address syntax"),
        ] {
            assert_eq!(plain(complaint), expected);
        }
    }
}
