//! Trouble at the verbs, for what no link can produce: calls that fail, completions that come late,
//! twice or never, events that get lost.
//!
//! A [`Rule`] names a target, what happens to it, and when. Its text is a list in the manner of
//! impairments; a file has one rule in a line:
//!
//! ```
//! use ferroce_fault::{Effect, Occasion, Rule, Rules, Target};
//!
//! let rule: Rule = "post_send=ENOMEM,nth=3,device=fr0".parse().unwrap();
//! assert_eq!(rule.to_string(), "post_send=ENOMEM,nth=3,device=fr0");
//!
//! let rules = Rules::new([(0, rule)]);
//! let post = || rules.meet(Occasion::on(Target::PostSend, "fr0"), |_, _| ());
//! assert_eq!([post(), post()], [None, None]);
//! assert!(matches!(post(), Some(Effect::Fail(errno)) if errno.name() == "ENOMEM"));
//! ```
//!
//! Whether a rule is due depends on nothing but the rule and how often it was met, so a run with the same
//! calls has the same faults. Nothing here reads a clock, a file or memory that processes share.

#![forbid(unsafe_code)]

mod effect;
mod grammar;
mod rule;
mod rules;
mod target;

pub use effect::{Effect, Errno};
pub use grammar::{ParseError, TEXT_MAX};
pub use rule::{Rule, Scope, When};
pub use rules::{Occasion, RULES_MAX, Rules, TableError, check, read_lines};
pub use target::{Kind, Target, Targets};
