//! Rules in force, and when they are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::effect::Effect;
use crate::grammar::ParseError;
use crate::rule::{Rule, When};
use crate::target::{Target, Targets};

/// The most rules that are in force at a time.
pub const RULES_MAX: usize = 64;

/// Why rules cannot be in force together.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// More than there is room for.
    #[error("{count} fault rules; at most {RULES_MAX} are in force at a time: remove some")]
    Many {
        /// How many there would be.
        count: usize,
    },
    /// A rule that comes after one that takes everything.
    #[error(
        "the rule {rule} can never match: {earlier} comes first and always applies; swap them, or give \
         the first a condition such as nth"
    )]
    Hidden {
        /// The one that cannot match.
        rule: String,
        /// The one before it.
        earlier: String,
    },
    /// A line that cannot be read.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        error: ParseError,
    },
    /// A file in which there is no rule.
    #[error("there is no rule; must be one a line, such as post_send=ENOMEM,nth=3")]
    Empty,
}

/// The rules of a file: one a line. What follows a # is a remark.
///
/// # Errors
/// Returns the first line that cannot be read.
pub fn read_lines(text: &str) -> Result<Vec<Rule>, TableError> {
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(line, text)| (line, text.split('#').next().unwrap_or_default().trim()));
    let rules = lines
        .filter(|(_, text)| !text.is_empty())
        .map(|(line, text)| {
            let rule = text.parse();
            rule.map_err(|error| TableError::Line { line, error })
        });
    match rules.collect::<Result<Vec<_>, _>>()? {
        rules if rules.is_empty() => Err(TableError::Empty),
        rules => Ok(rules),
    }
}

/// Refuses rules that cannot be in force together.
///
/// # Errors
/// Returns why.
pub fn check(rules: &[Rule]) -> Result<(), TableError> {
    if rules.len() > RULES_MAX {
        let count = rules.len();
        return Err(TableError::Many { count });
    }
    for (index, rule) in rules.iter().enumerate() {
        let hides = |it: &&Rule| {
            it.when == When::Always && it.target == rule.target && it.scope.includes(&rule.scope)
        };
        if let Some(earlier) = rules[..index].iter().find(hides) {
            return Err(TableError::Hidden {
                rule: rule.to_string(),
                earlier: earlier.to_string(),
            });
        }
    }
    Ok(())
}

/// A target that a program comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occasion<'a> {
    /// What it is.
    pub target: Target,
    /// The device, if one is known.
    pub device: Option<&'a str>,
    /// The queue pair, if one belongs to it.
    pub qp: Option<u32>,
}

impl<'a> Occasion<'a> {
    /// One on a device, without a queue pair.
    pub fn on(target: Target, device: &'a str) -> Self {
        Self {
            target,
            device: Some(device),
            qp: None,
        }
    }

    /// The same on a queue pair.
    #[must_use]
    pub fn of_qp(self, qp: u32) -> Self {
        Self {
            qp: Some(qp),
            ..self
        }
    }
}

/// The rules that are in force in a process, and how often each was met. Several threads may use them.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    /// What tells it from all other rules that its table has had.
    id: u64,
    rule: Rule,
    met: Arc<AtomicU64>,
}

impl Rules {
    /// Rules that have met nothing yet, with the identities that they have in a table.
    pub fn new(rules: impl IntoIterator<Item = (u64, Rule)>) -> Self {
        Self::default().followed_by(rules)
    }

    /// The rules that are in force after these. Those that stay go on counting.
    #[must_use]
    pub fn followed_by(&self, rules: impl IntoIterator<Item = (u64, Rule)>) -> Self {
        let counted = |(id, rule)| {
            let old = self.rules.iter().find(|it| it.id == id);
            let met = old.map(|it| Arc::clone(&it.met)).unwrap_or_default();
            Counted { id, rule, met }
        };
        Self {
            rules: rules.into_iter().map(counted).collect(),
        }
    }

    /// What they are about.
    pub fn targets(&self) -> Targets {
        self.rules.iter().map(|it| it.rule.target).collect()
    }

    /// Counts an occasion, and returns what happens to it: the effect of the first rule that is due.
    /// `note` learns of each rule that has met it, by its identity, and whether it is that one.
    pub fn meet(&self, occasion: Occasion<'_>, mut note: impl FnMut(u64, bool)) -> Option<Effect> {
        let mut effect = None;
        for it in self.rules.iter().filter(|it| is_met(&it.rule, occasion)) {
            let number = it.met.fetch_add(1, Ordering::Relaxed) + 1;
            let strikes = effect.is_none() && it.rule.when.is_due(number);
            if strikes {
                effect = Some(it.rule.effect);
            }
            note(it.id, strikes);
        }
        effect
    }
}

/// Whether an occasion is in the scope of a rule. The program is the process's affair.
fn is_met(rule: &Rule, occasion: Occasion<'_>) -> bool {
    let scope = &rule.scope;
    rule.target == occasion.target
        && (scope.device.is_none() || scope.device.as_deref() == occasion.device)
        && (scope.qp.is_none() || scope.qp == occasion.qp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        let read = |text: &&str| {
            text.parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        texts.iter().map(read).collect()
    }

    fn in_force(texts: &[&str]) -> Rules {
        Rules::new((0..).zip(rules(texts)))
    }

    /// The numbers of the posts, out of `count`, that fail.
    fn failures(text: &str, count: usize) -> Vec<usize> {
        let rules = in_force(&[text]);
        let posts = (1..=count).filter(|_| strikes(&rules, post("fr0", 1)));
        posts.collect()
    }

    fn strikes(rules: &Rules, occasion: Occasion<'_>) -> bool {
        rules.meet(occasion, |_, _| ()).is_some()
    }

    fn post(device: &str, qp: u32) -> Occasion<'_> {
        Occasion::on(Target::PostSend, device).of_qp(qp)
    }

    #[test]
    fn rules_are_due_by_number_or_by_chance() {
        assert_eq!(failures("post_send=EIO", 3), [1, 2, 3]);
        assert_eq!(failures("post_send=EIO,nth=2", 9), [2]);
        assert_eq!(failures("post_send=EIO,every=3", 9), [3, 6, 9]);
        assert_eq!(failures("post_send=EIO,p=100%", 3), [1, 2, 3]);
        let by_chance = failures("post_send=EIO,p=10%,seed=7", 10_000);
        assert!(
            (900..1100).contains(&by_chance.len()),
            "{}",
            by_chance.len()
        );
        assert_eq!(by_chance, failures("post_send=EIO,p=10%,seed=7", 10_000));
        assert_ne!(by_chance, failures("post_send=EIO,p=10%,seed=8", 10_000));
    }

    #[test]
    fn only_what_is_in_scope_is_counted() {
        let rules = in_force(&["post_send=EIO,nth=2,device=fr0,qp=5"]);
        let others = [
            post("fr1", 5),
            post("fr0", 6),
            Occasion::on(Target::PostSend, "fr0"),
            Occasion::on(Target::PostRecv, "fr0").of_qp(5),
        ];
        assert!(!strikes(&rules, post("fr0", 5)));
        assert!(others.iter().all(|it| !strikes(&rules, *it)));
        assert!(strikes(&rules, post("fr0", 5)));
    }

    #[test]
    fn a_rule_without_a_device_counts_over_all_devices() {
        let rules = in_force(&["post_send=EIO,nth=3"]);
        let places = [post("fr0", 1), post("fr1", 2), post("fr0", 3)];
        assert_eq!(places.map(|it| strikes(&rules, it)), [false, false, true]);
    }

    #[test]
    fn the_first_rule_that_is_due_applies_and_the_others_count() {
        let rules = in_force(&["post_send=EIO,every=2", "post_send=ENOMEM,every=3"]);
        let struck = || {
            let mut struck = None;
            rules.meet(post("fr0", 1), |id, strikes| {
                struck = struck.or_else(|| strikes.then_some(id));
            });
            struck
        };
        let numbers: Vec<_> = (1..=6).map(|_| struck()).collect();
        assert_eq!(numbers, [None, Some(0), Some(1), Some(0), None, Some(0)]);
    }

    #[test]
    fn rules_that_stay_go_on_counting() {
        let before = in_force(&["post_send=EIO,nth=2", "post_send=EIO,nth=9"]);
        assert!(!strikes(&before, post("fr0", 1)));
        let new = rules(&["post_send=EIO,nth=2", "post_send=EIO,nth=2"]);
        let after = before.followed_by([7, 0].into_iter().zip(new));
        let mut struck = Vec::new();
        for _ in 0..2 {
            after.meet(post("fr0", 1), |id, strikes| {
                struck.extend(strikes.then_some(id));
            });
        }
        assert_eq!(struck, [0, 7]);
    }

    #[test]
    fn a_file_has_one_rule_a_line() {
        let text = "# all of it\n\npost_send=EIO,nth=1 # a remark\n  reg_mr=ENOMEM\n";
        let read = read_lines(text).unwrap();
        assert_eq!(read, rules(&["post_send=EIO,nth=1", "reg_mr=ENOMEM"]));
        let error = read_lines("post_send=EIO\n\nreg_mr=EIO,nth=0").unwrap_err();
        assert!(
            error.to_string().starts_with("line 3: invalid nth \"0\""),
            "{error}"
        );
        assert_eq!(read_lines("# nothing\n"), Err(TableError::Empty));
    }

    #[test]
    fn there_is_room_for_a_number_of_rules() {
        let texts: Vec<_> = (1..=RULES_MAX + 1)
            .map(|nth| format!("post_send=EIO,nth={nth}"))
            .collect();
        let all = rules(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(check(&all[..RULES_MAX]), Ok(()));
        let count = RULES_MAX + 1;
        assert_eq!(check(&all), Err(TableError::Many { count }));
        let full = Rules::new((0..).zip(all[..RULES_MAX].to_vec()));
        let posts = (1..=2 * RULES_MAX).filter(|_| strikes(&full, post("fr0", 1)));
        assert_eq!(posts.count(), RULES_MAX);
    }

    #[test]
    fn a_rule_behind_one_that_always_applies_is_refused() {
        for hidden in [
            ["post_send=EIO", "post_send=ENOMEM,nth=3"],
            ["post_send=EIO,device=fr0", "post_send=EIO,device=fr0,qp=1"],
        ] {
            let error = check(&rules(&hidden)).unwrap_err().to_string();
            assert!(error.contains("can never match"), "{error}");
        }
        for fine in [
            ["post_send=ENOMEM,nth=3", "post_send=EIO"],
            ["post_send=EIO,device=fr0", "post_send=EIO"],
            ["post_send=EIO", "post_recv=EIO"],
        ] {
            assert_eq!(check(&rules(&fine)), Ok(()), "{fine:?}");
        }
    }

    proptest! {
        /// What is read is written as the same rule, and nothing makes the reader panic.
        #[test]
        fn texts_are_read_or_refused(text in "(post_send|reg_mr|completion|PORT_ERR)=[A-Za-z0-9:x_%-]{0,12}(,(nth|p|seed|qp|device)=[0-9a-z.%]{0,6}){0,3}") {
            if let Ok(rule) = text.parse::<Rule>() {
                prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
            }
        }
    }
}
