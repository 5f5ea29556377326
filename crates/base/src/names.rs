//! What was meant by a name that does not exist.

/// A prefix this long says what was meant.
const PREFIX_MIN: usize = 3;

/// The name that was probably meant: one that begins with the word or with which the word begins, or one
/// that differs in at most a third of its letters. A word that is far from all of them has none.
///
/// Case does not matter.
///
/// ```
/// use ferroce_base::names::near;
///
/// let names = ["time_base", "start_range_index"];
/// assert_eq!(near("start_rang", names), Some("start_range_index"));
/// assert_eq!(near("time_bsae", names), Some("time_base"));
/// assert_eq!(near("colour", names), None);
/// ```
pub fn near<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = word.to_lowercase();
    let ranked = names.into_iter().filter_map(|name| {
        let rank = rank(&folded, &name.to_lowercase())?;
        // Of names that differ in case only, the one in the same letters.
        Some(((rank, strsim::levenshtein(word, name)), name))
    });
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, name)| name)
}

/// How far a name is from a word, if it is near: names with a common beginning come first.
fn rank(word: &str, name: &str) -> Option<(bool, usize)> {
    let distance = strsim::damerau_levenshtein(word, name);
    let longer = word.chars().count().max(name.chars().count());
    let begins = name.starts_with(word) && word.chars().count() >= PREFIX_MIN
        || word.starts_with(name) && name.chars().count() >= PREFIX_MIN;
    let is_typo = distance <= (longer / 3).max(1) && distance < longer;
    (begins || is_typo).then_some((!begins, distance))
}

/// What to write in place of a word: the name that was probably meant, or all of them.
///
/// ```
/// use ferroce_base::names::instead;
///
/// assert_eq!(instead("strat", ["start", "stop"]), "did you mean start?");
/// assert_eq!(instead("colour", ["start", "stop"]), "expected one of start, stop");
/// ```
pub fn instead<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    match (near(word, names.iter().copied()), names.as_slice()) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, []) => "there is none".to_owned(),
        (None, [only]) => format!("expected {only}"),
        (None, names) => format!("expected one of {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_proposed() {
        let fields = ["time_base", "start_range_index", "dec_mode", "fw_ver"];
        for (word, meant) in [
            ("start_rang", Some("start_range_index")),
            ("start_range_index_", Some("start_range_index")),
            ("TIME_BASE", Some("time_base")),
            ("tmie_base", Some("time_base")),
            ("decmode", Some("dec_mode")),
            ("dec", Some("dec_mode")),
            ("t", None),
            ("", None),
            ("st", None),
            ("colour", None),
            ("retry_count", None),
        ] {
            assert_eq!(near(word, fields), meant, "{word}");
        }
        assert_eq!(near("ab", ["ac"]), Some("ac"));
        assert_eq!(near("a", ["b"]), None);
    }

    #[test]
    fn the_nearest_of_several_is_proposed() {
        assert_eq!(near("rang", ["range_size", "range"]), Some("range"));
        assert_eq!(near("ratex", ["date", "rates"]), Some("rates"));
    }
}
