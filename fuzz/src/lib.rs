//! The fuzz targets.
//!
//! Each target is a function over bytes that panics when the code under test breaks a promise.
//! cargo-fuzz calls it through `fuzz_targets/`, and `src/smoke.rs` calls it with the checked-in
//! corpus, mutations of it and random bytes, on the stable compiler and in a fixed order.
//!
//! | target | promise |
//! |---|---|
//! | [`packet`] | any bytes parse or are refused; what parses survives a round trip; the ICRC sees every flipped bit |
//! | [`capture`] | any capture or log is read to its end or refused, and nothing impossible is reported about it |
//! | [`cm`] | no messages, calls and times leave a connection manager without an end, or in an inconsistent state |
//! | [`register`] | a register access happens completely or not at all, regardless of its bytes and length |
//! | [`mlxreg`] | any text is register content or is refused; only bits that it names are written |
//! | [`congestion`] | any record, command or text gives parameters in range or is refused, and comes back as it was read |
//! | [`hpcc_topology`] | any text is a topology or is refused on one of its lines; in a topology that passes its check, all hosts reach each other |
//! | [`survey`] | any text is what ibnetdiscover, containerlab or lldpcli writes, or is refused on one of its lines; all hosts of what is read reach each other |
//! | [`hpcc_flows`], [`htsim_matrix`] | any text is a list of flows or is refused on one of its lines; a list that is read can be run, or its cycles are found |
//! | [`chakra`] | any files are traces or are refused with a reason; traces that are read can be run |
//! | [`fault`] | any text is fault rules or is refused with a reason; rules that are read come back as they were written, and only effects that a target can have are due |
//! | [`fwctl`] | an ioctl on the node of a device ends with an answer or an error, and writes only to the program's buffers |
//! | [`outages`] | any text gives outages or is refused with a reason, and so is any state of a search |
//! | [`profile`] | any profile file or register content is checked without a panic, and a valid one gives finite, ordered traces |
//! | [`qp_pair`] | no sequence of verbs, packets, losses and register writes makes a device panic, complete a request twice, access memory it may not, or hang |
//! | [`ring`] | packets in shared memory arrive as they were sent; regardless of what the other process writes there, neither end panics, reads outside, or loops forever |
//! | [`scenario`] | any scenario file is a scenario or is refused with a reason, and a small one runs to an end in a consistent state |
//! | [`sweep`] | any sweep file is a sweep or is refused with reasons, and each point of its plan is a scenario again |

mod capture;
mod cm;
mod congestion;
mod cursor;
mod fabric;
mod fault;
mod fwctl;
mod mlxreg;
mod outages;
mod packet;
mod profile;
mod qp_pair;
mod register;
mod ring;
mod scenario;
#[cfg(test)]
mod smoke;
mod sweep;

pub use capture::capture;
pub use cm::cm;
pub use congestion::congestion;
pub use cursor::Cursor;
pub use fabric::{chakra, hpcc_flows, hpcc_topology, htsim_matrix, survey};
pub use fault::fault;
pub use fwctl::fwctl;
pub use mlxreg::mlxreg;
pub use outages::outages;
pub use packet::packet;
pub use profile::profile;
pub use qp_pair::qp_pair;
pub use register::register;
pub use ring::ring;
pub use scenario::scenario;
pub use sweep::sweep;

/// Does something with an input; panics if a promise is broken.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 19] = [
    ("packet", packet),
    ("register", register),
    ("mlxreg", mlxreg),
    ("outages", outages),
    ("fault", fault),
    ("fwctl", fwctl),
    ("hpcc_topology", hpcc_topology),
    ("survey", survey),
    ("hpcc_flows", hpcc_flows),
    ("htsim_matrix", htsim_matrix),
    ("chakra", chakra),
    ("capture", capture),
    ("cm", cm),
    ("congestion", congestion),
    ("profile", profile),
    ("qp_pair", qp_pair),
    ("ring", ring),
    ("scenario", scenario),
    ("sweep", sweep),
];

/// Runs `target` over the files named on the command line, or hexadecimal digits after `--hex`.
pub fn replay(target: Target) {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_none() {
        eprintln!("usage: PROGRAM FILE... | PROGRAM --hex DIGITS...");
        std::process::exit(2);
    }
    let mut hex = false;
    for argument in arguments {
        if argument == "--hex" {
            hex = true;
            continue;
        }
        let bytes = if hex {
            from_hex(&argument).ok_or_else(|| format!("{argument}: not hexadecimal digits"))
        } else {
            std::fs::read(&argument).map_err(|error| format!("{argument}: {error}"))
        };
        match bytes {
            Ok(bytes) => target(&bytes),
            Err(message) => {
                eprintln!("{message}");
                std::process::exit(2);
            }
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inverse of [`to_hex`].
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.trim();
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect()
}
