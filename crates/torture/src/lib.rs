//! Random programs on whole devices in virtual time, and what must hold of them whatever happens.
//!
//! A seed becomes a [`Script`] ([`generate`]), a script is played ([`play`]), and what does not hold is a
//! [`Finding`]; [`shrink`] looks for the shortest script with the same one. The script is all that these have in
//! common: it can be kept, changed by hand, and played again.
//!
//! ```
//! use ferroce_torture::{generate, play};
//!
//! let script = generate(1);
//! assert_eq!(play(&script).finding, None);
//! assert_eq!(script.to_string().parse(), Ok(script));
//! ```
//!
//! | module | content |
//! |---|---|
//! | `script` | scripts as text |
//! | `generate` | a script from a seed |
//! | `play` | devices that live through a script |
//! | `model` | what must have happened: requests, connections, permissions |
//! | `rules` | which calls are refused |
//! | `windows` | which keys of memory windows may have opened what |
//! | `seen` | what packets have shown of an end of a connection |
//! | `pattern` | bytes that tell where they come from |
//! | `network`, `events` | packets under way, and what is due |
//! | `coverage` | what was reached |
//! | `shrink` | shorter scripts |
//! | `watch` | notices a device that does not return |
#![forbid(unsafe_code)]

mod coverage;
mod events;
mod generate;
mod model;
mod network;
mod pattern;
mod play;
mod rules;
mod script;
mod seen;
mod shrink;
mod watch;
mod windows;

pub use coverage::Coverage;
pub use generate::generate;
pub use pattern::MESSAGE_MAX;
pub use play::{Finding, Report, play, play_watched};
pub use script::{HOSTS_MAX, Line, Script, ScriptError, Step};
pub use shrink::shrink;
pub use watch::{Progress, Watch};
