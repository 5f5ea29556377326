//! `ferroce explain error`: from a completion's status and vendor error to the cause, and where to look.

mod causes;
mod seen;

use std::mem;

use clap::Args;
use ferroce_device::WcStatus;

use self::causes::{CAUSES, Cause, Signs};
pub(crate) use self::seen::recent_errors;
use crate::json::explain as json;
use crate::naming::DeviceArg;
use crate::output::exit_codes;
use crate::output::lines::Lines;
use crate::output::{Failure, Output, Table};

/// Explain an error completion
///
/// With a device: the last errors of it, those of programs that have ended included. With a status: its
/// causes. Without either: the table of all causes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "ferroce explain error [OPTIONS] [DEV | STATUS [VENDOR_ERR]]")]
pub(crate) struct Error {
    #[command(flatten)]
    device: DeviceArg,
    /// Instead of a device: a completion's status, as in 12 or RETRY_EXC_ERR, and its vendor_err, as in
    /// 0x81 or 129; without that, all causes of the status
    #[arg(value_name = "STATUS VENDOR_ERR", num_args = 0..=2)]
    completion: Vec<String>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce explain error fr0              the last errors of a device
  ferroce explain error 12 0x81          a completion's status and vendor_err
  ferroce explain error RETRY_EXC_ERR"
);

/// Whether a word is meant as a status: a number, or a name in capitals.
fn is_status(word: &str) -> bool {
    word.starts_with(|it: char| it.is_ascii_digit() || it.is_ascii_uppercase())
        && !word.contains(['.', ':'])
        || parse_status(word).is_ok()
}

/// A word behind a device, where a status may stand instead.
fn not_both(device: &str, word: &str) -> Failure {
    Failure::input(format_args!(
        "unexpected {word:?} behind the device {device:?}; write a device, or a status such as 12"
    ))
}

impl Error {
    pub(crate) fn run(mut self, to: &mut Output<'_>) -> Result<(), Failure> {
        let device = mem::take(&mut self.device);
        let completion = mem::take(&mut self.completion);
        let (device, completion) = device.before(completion, is_status);
        let (status, vendor_err) = match (&device, completion.as_slice()) {
            (Some(device), []) => return seen::explain(device, self.json, to),
            (None, []) => return self.list(CAUSES.iter(), to),
            (Some(device), [word, ..]) => return Err(not_both(device, word)),
            (None, [status]) => (status, None),
            (None, [status, vendor_err]) => (status, Some(vendor_err)),
            (None, [.., word]) => {
                return Err(Failure::input(format_args!(
                    "unexpected {word:?}: write a status and a vendor_err"
                )));
            }
        };
        let status = parse_status(status)?;
        let vendor_err = vendor_err.map(|it| parse_vendor_err(it)).transpose()?;
        let mut found: Vec<_> = causes::of(status, vendor_err).collect();
        if found.is_empty() {
            // A card may have more of them than are known.
            found = causes::of(status, None).collect();
            let known: Vec<_> = found.iter().map(|it| hex(it.vendor_err)).collect();
            to.remark(format_args!(
                "vendor error {} is not known with {}; known: {}",
                hex(vendor_err.unwrap_or_default()),
                short_name(status),
                known.join(", ")
            ))?;
        }
        match &found[..] {
            [cause] if !self.json => to.text(&in_words(cause)),
            _ => self.list(found.into_iter(), to),
        }
    }

    fn list(
        &self,
        causes: impl Iterator<Item = &'static Cause>,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if self.json {
            let causes = causes.map(json::Cause::from).collect();
            return to.document(&json::Causes { causes });
        }
        let mut table = Table::new(&[">status", "name", ">vendor_err", "means"]);
        for cause in causes {
            table.row(vec![
                (cause.status as u32).to_string(),
                short_name(cause.status).to_owned(),
                hex(cause.vendor_err),
                cause.summary.to_owned(),
            ]);
        }
        to.text(&table.to_string())
    }
}

impl From<&'static Cause> for json::Cause {
    fn from(it: &'static Cause) -> Self {
        Self {
            status: it.status as u32,
            name: it.status.name(),
            vendor_err: it.vendor_err,
            summary: it.summary,
            cause: it.cause,
            requester: (&it.requester).into(),
            responder: (&it.responder).into(),
            next: it.next.to_vec(),
        }
    }
}

impl From<&Signs> for json::Signs {
    fn from(it: &Signs) -> Self {
        let counter = |(counter, rises): &(ferroce_device::Counter, &'static str)| json::Rise {
            name: counter.name(),
            rises,
        };
        Self {
            counters: it.counters.iter().map(counter).collect(),
            shows: it.shows,
        }
    }
}

fn in_words(cause: &Cause) -> String {
    let mut lines = Lines::default();
    let (status, name) = (cause.status as u32, cause.status.name());
    let vendor_err = hex(cause.vendor_err);
    lines.add(
        "error",
        &format!("{status} {name}, vendor_err {vendor_err}"),
    );
    add_cause(&mut lines, cause, [None, None]);
    lines.text
}

/// The cause, and what both sides show. A device is named where it is known, of the requester first.
fn add_cause(lines: &mut Lines, cause: &Cause, devices: [Option<&str>; 2]) {
    lines.add("cause", cause.cause);
    for (side, signs, device) in [
        (REQUESTER, &cause.requester, devices[0]),
        (RESPONDER, &cause.responder, devices[1]),
    ] {
        lines.add("", "");
        let device = device.map_or_else(String::new, |name| format!("{name}: "));
        lines.add(side, &format!("{device}shows {}", signs.shows));
        for (counter, rises) in signs.counters {
            lines.named(counter.name(), rises);
        }
    }
    lines.add("", "");
    for (i, look) in cause.next.iter().enumerate() {
        lines.add(if i == 0 { "next" } else { "" }, look);
    }
}

/// The name without its prefix.
fn short_name(status: WcStatus) -> &'static str {
    let name = status.name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn hex(vendor_err: u32) -> String {
    match vendor_err {
        0 => "0".to_owned(),
        other => format!("{other:#x}"),
    }
}

const PREFIX: &str = "IBV_WC_";
const REQUESTER: &str = "requester";
const RESPONDER: &str = "responder";

/// Statuses of verbs that no queue pair of this device has.
const OTHERS: [(u32, &str); 11] = [
    (3, "LOC_EEC_OP_ERR"),
    (14, "LOC_RDD_VIOL_ERR"),
    (15, "REM_INV_RD_REQ_ERR"),
    (16, "REM_ABORT_ERR"),
    (17, "INV_EECN_ERR"),
    (18, "INV_EEC_STATE_ERR"),
    (19, "FATAL_ERR"),
    (20, "RESP_TIMEOUT_ERR"),
    (21, "GENERAL_ERR"),
    (22, "TM_ERR"),
    (23, "TM_RNDV_INCOMPLETE"),
];

fn parse_status(text: &str) -> Result<WcStatus, Failure> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix(PREFIX).unwrap_or(&upper);
    let number = number(text);
    let status = WcStatus::ALL
        .into_iter()
        .find(|it| short_name(*it) == name || number == Some(*it as u32));
    match status {
        Some(WcStatus::Success) => Err(Failure::input(format_args!(
            "status {text}: a success is not an error; write 1 to 13 or a name, as in 12 or \
             RETRY_EXC_ERR"
        ))),
        Some(status) => Ok(status),
        None => {
            let other = OTHERS
                .iter()
                .find(|(code, other)| *other == name || number == Some(*code));
            Err(match other {
                Some((code, name)) => Failure::input(format_args!(
                    "status {text}: {code} {PREFIX}{name} is of a service that this device lacks; \
                     `ferroce explain error` lists those that it reports"
                )),
                None => Failure::input(format_args!(
                    "unknown status {text:?}; write 1 to 13 or a name, as in 12 or RETRY_EXC_ERR"
                )),
            })
        }
    }
}

fn parse_vendor_err(text: &str) -> Result<u32, Failure> {
    number(text).ok_or_else(|| {
        Failure::input(format_args!(
            "vendor_err {text:?}: must be a number of 32 bits, as in 0x81 or 129"
        ))
    })
}

/// A decimal number, or a hexadecimal one with its prefix.
fn number(text: &str) -> Option<u32> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
