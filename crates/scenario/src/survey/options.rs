//! What the files of a fabric do not say.

use ferroce_device::Pairing;
use ferroce_fabric::topology::CableSpec;

/// What the files do not say.
#[derive(Clone, PartialEq, Debug)]
pub struct SurveyOptions {
    /// Nodes that are hosts, whatever the file says. A `*` stands for any characters.
    pub hosts: Vec<String>,
    /// Nodes that are switches, whatever the file says, in the same form.
    pub switches: Vec<String>,
    /// Nodes to leave out with their links, and ports (`node:port`), in the same form.
    pub left_out: Vec<String>,
    /// What the second link of a host is. Without it, each link of a host is a host of its own.
    pub pairing: Option<Pairing>,
    /// Cables of hosts. A rate that the file has goes before this one.
    pub host_cable: CableSpec,
    /// Cables between switches, in the same way.
    pub fabric_cable: CableSpec,
}

/// Whether a text is what a pattern says, in which a `*` stands for any characters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        let found = [
            ("leaf1", "leaf1"),
            ("*", ""),
            ("leaf*", "leaf1"),
            ("*:eth0", "h1:eth0"),
            ("l*f*-*1", "leaf-a-11"),
            ("a**", "a"),
        ];
        assert!(found.iter().all(|(pattern, text)| matches(pattern, text)));
        let missed = [
            ("leaf1", "leaf11"),
            ("leaf*", "aleaf"),
            ("a*a", "a"),
            ("*x", "y"),
            ("", "a"),
        ];
        assert!(!missed.iter().any(|(pattern, text)| matches(pattern, text)));
    }
}
