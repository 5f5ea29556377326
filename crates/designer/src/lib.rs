//! The profile designer: what a profile does, as a web page asks for it and as commands print it.
//!
//! A page knows the fields of a profile and draws what it is told; every figure on it comes from
//! here. A question and its answer are JSON texts, so that the page may ask a server, or this crate
//! compiled to WebAssembly in the page itself.
//!
//! - [`figures`] says how outages are endured, [`findings`] what is wrong with a profile,
//!   [`command`] how a card is programmed with it: `ferroce adp` prints the same.
//! - [`ladder`] is the waits of a QP whose peer is silent, as something to draw.
//! - [`answer`] answers the page.
//! - [`page`] is the page's files.
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
