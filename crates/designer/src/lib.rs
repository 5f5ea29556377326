//! The profile designer: computes the effect of a profile, for the web page and for commands.
//!
//! The page knows the fields of a profile and displays what it is given; every figure on it comes
//! from here. A question and its answer are JSON texts, so the page can ask a server, or this crate
//! compiled to WebAssembly in the page itself.
//!
//! - [`figures`] describes behaviour in outages, [`findings`] errors in a profile, and [`command`]
//!   how to program a card with it: `ferroce adp` prints the same.
//! - [`ladder`] has the waits of a QP with a silent peer, for plotting.
//! - [`answer`] answers the page.
//! - [`page`] has the page's files.
//!
//! ```
//! let question = r#"{"text": "time_base = 5\nqp_total_timeout = true"}"#;
//! let refused = ferroce_designer::answer("design", question).unwrap().unwrap();
//! assert!(refused.contains("timeout_init_low_bound is missing; add timeout_init_low_bound = 8"));
//! ```

#![forbid(unsafe_code)]

pub mod command;
mod design;
pub mod figures;
pub mod findings;
pub mod ladder;
pub mod page;
mod question;

pub use question::{PROBLEMS_MAX, Refusal, answer, flag, object};
