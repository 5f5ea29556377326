//! Resolves the tools' names.

use alloc::string::ToString;

use crate::param::{Param, Vocabulary};
use crate::params::ParamError;

/// The meaning of a name: a parameter, or the bit of a priority in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The parameter.
    pub param: Param,
    /// The name is that of a mask without a point: writing sets the masks of both points, reading
    /// returns the reaction point's, which is `param`.
    pub is_for_both: bool,
    /// The tool that uses the name.
    pub vocabulary: Vocabulary,
    /// 0..=7: only this priority's bit.
    pub priority: Option<u8>,
}

impl Target {
    /// Returns the parameter with this name in any vocabulary. A path before it is ignored
    /// (`ecn/roce_rp/rpg_gd`), and so are a port's suffix (`RPG_GD_P2`) and case.
    ///
    /// The masks of priorities belong to a point. The path determines which (`roce_np/enable/3`);
    /// without it, and in tools that have one mask, the name means both.
    pub fn parse(text: &str) -> Result<Self, ParamError> {
        let (path, leaf) = text.rsplit_once('/').unwrap_or(("", text));
        if let Some(mask) = Self::of_file(path) {
            return mask.with_priority(leaf);
        }
        if let Some(priority) = strip_prefix(leaf, "DcQcnEnablePrio").filter(|p| !p.is_empty()) {
            return Self::mask(Vocabulary::WinOf).with_priority(priority);
        }
        if let Some(mask) = Self::of_file(text) {
            return Ok(mask);
        }
        let name = ["_P1", "_P2"]
            .iter()
            .find_map(|port| leaf.strip_suffix(port))
            .unwrap_or(leaf);
        let mut named = names().filter(|(_, known)| known.eq_ignore_ascii_case(name));
        // Names of mlxconfig differ from those of sysfs by case only.
        let exact = names().find(|(_, known)| *known == name);
        match exact.or_else(|| named.next()) {
            Some(((param, vocabulary), _)) => Ok(Self {
                param,
                is_for_both: param == Param::PrioMask,
                vocabulary,
                priority: None,
            }),
            None => Err(ParamError::UnknownName {
                name: text.to_string(),
                near: near(name),
            }),
        }
    }

    /// The masks of both points.
    fn mask(vocabulary: Vocabulary) -> Self {
        Self {
            param: Param::PrioMask,
            is_for_both: true,
            vocabulary,
            priority: None,
        }
    }

    /// The masks that a path ending in `enable` is the directory of.
    fn of_file(path: &str) -> Option<Self> {
        let point = path.strip_suffix("enable")?;
        let point = match point.strip_suffix('/') {
            Some(point) => point.rsplit('/').next(),
            None if point.is_empty() => None,
            None => return None,
        };
        let (param, is_for_both) = match point {
            Some("roce_np") => (Param::NpPrioMask, false),
            Some("roce_rp") => (Param::PrioMask, false),
            _ => (Param::PrioMask, true),
        };
        Some(Self {
            param,
            is_for_both,
            ..Self::mask(Vocabulary::Sysfs)
        })
    }

    fn with_priority(self, text: &str) -> Result<Self, ParamError> {
        match text.parse() {
            Ok(priority @ 0..=7) => Ok(Self {
                priority: Some(priority),
                ..self
            }),
            _ => Err(ParamError::Priority {
                param: self.param,
                priority: text.to_string(),
            }),
        }
    }
}

fn names() -> impl Iterator<Item = ((Param, Vocabulary), &'static str)> {
    Vocabulary::ALL.into_iter().flat_map(|vocabulary| {
        let named = move |&param: &Param| Some(((param, vocabulary), param.name_in(vocabulary)?));
        Param::ALL.iter().filter_map(named)
    })
}

fn strip_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

/// More than any known name has twice: what is longer is not one with a mistake.
const NEAR_MAX: usize = 64;

/// The known name that shares most pairs of neighbouring letters with `name`, if it shares half of its
/// pairs.
fn near(name: &str) -> Option<&'static str> {
    if name.len() > NEAR_MAX {
        return None;
    }
    let shared = |a: &[u8], b: &[u8]| {
        let pairs = a.windows(2);
        pairs
            .filter(|pair| b.windows(2).any(|p| p == *pair))
            .count()
    };
    let folded = name.to_ascii_lowercase();
    let in_common = |known: &str| shared(folded.as_bytes(), known.to_ascii_lowercase().as_bytes());
    names()
        .map(|(_, known)| known)
        .filter(|known| in_common(known) * 2 >= name.len().max(2) - 1)
        .max_by_key(|known| {
            let pairs = in_common(known);
            // Of names with as many, the one in the same letters, then of similar length.
            let exact_pairs = shared(name.as_bytes(), known.as_bytes());
            let surplus = known.len().abs_diff(name.len());
            (pairs, exact_pairs, core::cmp::Reverse(surplus))
        })
}
