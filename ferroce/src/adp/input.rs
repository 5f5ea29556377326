//! Profiles and policies, from the files and flags that name them.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ferroce_adp::builtin;
use ferroce_adp::file::Document;
use ferroce_adp::file::import::{Imported, import as imported};
use ferroce_adp::{
    AckTimeoutFloor, DecTrigger, FIRMWARE_EXPONENTS, Policy, PolicyKind, Profile, QpTimeouts,
    Report,
};
use ferroce_base::names::near;
use ferroce_designer::findings::{Problem, problems};

use crate::output::Failure;
use crate::output::lines::finding;

/// What may replace the retry count of a QP.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ExtendedRetryArgs {
    /// Use the extended retry count of the QP, 0 to 255, in place of its retry count; the devices'
    /// setting personality.extended_retry_count sets it
    #[arg(long, value_name = "N")]
    pub(crate) extended_retry_count: Option<u8>,
}

impl ExtendedRetryArgs {
    /// A QP with these attributes.
    pub(crate) fn qp(self, timeout: u8, retry_cnt: u8) -> QpTimeouts {
        QpTimeouts {
            timeout,
            retry_cnt: self.extended_retry_count.unwrap_or(retry_cnt),
        }
    }
}

/// The timeout attributes of a QP.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct QpArgs {
    /// ACK timeout of the QP, a code of 5 bits: 4.096 us doubled T times, 0 = never
    #[arg(long, value_name = "T", value_parser = timeout_code)]
    timeout: u8,
    /// Retry count of the QP, 3 bits: 7 means seven
    #[arg(long, value_name = "R", value_parser = retry_count)]
    retry_cnt: u8,
    #[command(flatten)]
    extended: ExtendedRetryArgs,
}

/// The same for commands that have an answer for the commonest QP.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct CommonQpArgs {
    /// ACK timeout of the QP, a code of 5 bits: 4.096 us doubled T times, 0 = never
    #[arg(long, value_name = "T", value_parser = timeout_code, default_value = "14")]
    timeout: u8,
    /// Retry count of the QP, 3 bits: 7 means seven
    #[arg(long, value_name = "R", value_parser = retry_count, default_value = "7")]
    retry_cnt: u8,
    #[command(flatten)]
    extended: ExtendedRetryArgs,
}

impl QpArgs {
    pub(crate) fn qp(self) -> QpTimeouts {
        self.extended.qp(self.timeout, self.retry_cnt)
    }
}

impl CommonQpArgs {
    pub(crate) fn qp(self) -> QpTimeouts {
        self.extended.qp(self.timeout, self.retry_cnt)
    }
}

/// What a device imposes when no profile file does.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PersonalityArgs {
    /// Use a built-in policy instead of a profile
    #[arg(long, value_name = "P")]
    pub(crate) personality: Option<Personality>,
    /// How many times the timeout a timer runs under --personality ib, 1 to 4 [default: 1]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u8).range(1..=4))]
    multiplier: Option<u8>,
    /// First step of the ladder under --personality firmware: 4.096 us doubled E times; drawn from
    /// 10 to 14 without it
    #[arg(long, value_name = "E", value_parser = clap::value_parser!(u8).range(0..=31))]
    initial_exponent: Option<u8>,
}

/// The built-in policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Personality {
    /// Adaptive retransmission off: the same wait every time
    Ib,
    /// What real devices do when no profile is active, as measured
    Firmware,
}

/// What else of the device matters to a replay.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DeviceArgs {
    /// Take timeouts below 16 as they are, as the register field of this name does
    #[arg(long)]
    pub(crate) min_ack_timeout_limit_disabled: bool,
    /// Which of its initial timeouts the QP has drawn, counted from the smallest
    #[arg(long, value_name = "K", default_value_t = 0)]
    draw: u8,
    /// End each range below its upper bound instead of at it, for calibration
    #[arg(long)]
    range_bound_exclusive: bool,
    /// When a profile's timeout shrinks
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Trigger::PerProgress)]
    dec_trigger: Trigger,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Trigger {
    /// With every forward progress
    PerProgress,
    /// With the first forward progress after a timeout
    PerRecovery,
}

/// A policy and the draw to begin with.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) policy: Policy,
    pub(crate) draw: u8,
    /// What the policy is called in titles.
    pub(crate) name: String,
}

/// The policy that file and flags ask for. `otherwise` counts when they ask for none.
pub(crate) fn choose(
    file: Option<&Path>,
    personality: PersonalityArgs,
    device: DeviceArgs,
    otherwise: Option<Personality>,
) -> Result<Chosen, Failure> {
    let kind = match (file, personality.personality) {
        (Some(file), Some(_)) => {
            return Err(Failure::input(format_args!(
                "a profile and --personality exclude each other; leave out {} or --personality",
                file.display()
            )));
        }
        (Some(file), None) => PolicyKind::Profile(load(file)?),
        (None, chosen) => match chosen.or(otherwise) {
            Some(Personality::Ib) => PolicyKind::Ib {
                multiplier: personality.multiplier.unwrap_or(1),
            },
            Some(Personality::Firmware) => PolicyKind::Firmware {
                quantiser: false,
                initial_exponent: personality.initial_exponent,
            },
            None => {
                return Err(Failure::input(
                    "no policy; name a profile file, or --personality ib or firmware",
                ));
            }
        },
    };
    if personality.multiplier.is_some() && !matches!(kind, PolicyKind::Ib { .. }) {
        return Err(Failure::input(
            "--multiplier goes with --personality ib only; leave it out",
        ));
    }
    if personality.initial_exponent.is_some() && !matches!(kind, PolicyKind::Firmware { .. }) {
        return Err(Failure::input(
            "--initial-exponent goes with --personality firmware only; leave it out",
        ));
    }
    let mut policy = Policy::new(kind);
    policy.range_bound_exclusive = device.range_bound_exclusive;
    policy.floor = floor(device.min_ack_timeout_limit_disabled);
    policy.dec_trigger = match device.dec_trigger {
        Trigger::PerProgress => DecTrigger::PerProgress,
        Trigger::PerRecovery => DecTrigger::PerRecovery,
    };
    if device.draw >= policy.draws() {
        let from = match kind {
            PolicyKind::Profile(profile) => {
                format!(
                    "timeout_init_range_size = {}",
                    profile.raw().timeout_init_range_size
                )
            }
            PolicyKind::Firmware {
                initial_exponent: None,
                ..
            } => format!(
                "the firmware draws exponents {} to {}",
                FIRMWARE_EXPONENTS.start(),
                FIRMWARE_EXPONENTS.end()
            ),
            _ => "nothing is drawn".to_owned(),
        };
        return Err(Failure::input(format_args!(
            "--draw {} is beyond the last one; write --draw 0{} ({from})",
            device.draw,
            match policy.draws() {
                1 => String::new(),
                draws => format!(" to {}", draws - 1),
            },
        )));
    }
    let name = match (kind, file) {
        (PolicyKind::Ib { multiplier: 1 }, _) => "plain InfiniBand".to_owned(),
        (PolicyKind::Ib { multiplier }, _) => format!("plain InfiniBand, {multiplier} x timeout"),
        (PolicyKind::Firmware { .. }, _) => "the firmware's own ladder".to_owned(),
        (PolicyKind::Profile(_), file) => {
            let name = file.and_then(Path::file_name).unwrap_or_default();
            format!("profile {}", name.to_string_lossy())
        }
    };
    Ok(Chosen {
        policy,
        draw: device.draw,
        name,
    })
}

pub(crate) fn floor(disabled: bool) -> AckTimeoutFloor {
    if disabled {
        AckTimeoutFloor::Disabled
    } else {
        AckTimeoutFloor::DEFAULT
    }
}

/// The profile in a file.
pub(crate) fn load(file: &Path) -> Result<Profile, Failure> {
    profile_of(file, &read(file)?)
}

/// The profile that a file has.
pub(crate) fn profile_of(file: &Path, document: &Document) -> Result<Profile, Failure> {
    document
        .profile()
        .map_err(|report| Failure::Input(refusal(file, document, &report)))
}

/// A profile in a file, good or bad, in any of its forms.
pub(crate) fn read(file: &Path) -> Result<Document, Failure> {
    let imported = parse(file, &read_text(file)?);
    let imported = imported.map_err(|problems| Failure::Input(problems.lines))?;
    Ok(imported.document)
}

/// The text of a built-in profile, or of a file.
pub(crate) fn read_text(file: &Path) -> Result<String, Failure> {
    if let Some(built_in) = file.to_str().and_then(builtin::named) {
        return Ok(built_in.toml.to_owned());
    }
    if file.as_os_str() == "-" {
        return stdin();
    }
    let bytes = fs::read(file).map_err(|error| {
        Failure::input(format_args!(
            "cannot read {}: {error}; name a profile file, - for standard input, or a built-in profile{}",
            file.display(),
            proposal(file)
        ))
    })?;
    String::from_utf8(bytes).map_err(|error| {
        Failure::input(format_args!(
            "{} is not text: byte {} is not UTF-8; give a register dump as hex",
            file.display(),
            error.utf8_error().valid_up_to()
        ))
    })
}

/// The built-in profile that may have been meant, or how to list them.
fn proposal(file: &Path) -> String {
    let names = builtin::all().iter().map(|built_in| built_in.name);
    let given = file.to_str().filter(|name| !name.contains(['/', '.']));
    match given.and_then(|name| near(name, names)) {
        Some(name) => format!("; did you mean {name}?"),
        None => "; `ferroce adp profile list` lists those".to_owned(),
    }
}

/// What is wrong with the form of a file: on which lines, and for people.
pub(crate) struct Problems {
    pub(crate) found: Vec<Problem>,
    pub(crate) lines: String,
}

pub(crate) fn parse(file: &Path, text: &str) -> Result<Imported, Problems> {
    imported(text).map_err(|error| {
        let found = problems(&error);
        let mut lines = String::new();
        for Problem { line, text } in &found {
            let _ = writeln!(lines, "{}", finding(file, *line, "error", text));
        }
        Problems { found, lines }
    })
}

/// The lines that say why a profile is refused.
pub(crate) fn refusal(file: &Path, document: &Document, report: &Report) -> String {
    let mut lines = String::new();
    for violation in &report.violations {
        let (line, text) = (document.line(violation.field), violation.to_string());
        let _ = writeln!(lines, "{}", finding(file, line, "error", &text));
    }
    lines
}

/// A profile file on the command line.
#[derive(Args, Clone, Debug)]
pub(crate) struct FileArg {
    /// Profile file (TOML, or what import reads) or built-in profile, such as link-flap; - reads
    /// standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

pub(crate) fn timeout_code(text: &str) -> Result<u8, String> {
    match text.parse::<u64>() {
        Ok(code @ 0..=31) => Ok(u8::try_from(code).unwrap_or(0)),
        Ok(_) => Err("timeout is a field of 5 bits; write 0 to 31".to_owned()),
        Err(_) => Err("not a number; write 0 to 31, a doubling count of 4.096 us".to_owned()),
    }
}

pub(crate) fn retry_count(text: &str) -> Result<u8, String> {
    match text.parse::<u64>() {
        Ok(count @ 0..=7) => Ok(u8::try_from(count).unwrap_or(0)),
        Ok(_) => Err("retry_cnt is a field of 3 bits; write 0 to 7".to_owned()),
        Err(_) => Err("not a number; write 0 to 7".to_owned()),
    }
}

/// The most text that is read: a table of all registers there are is smaller.
const TEXT_MAX: u64 = 1 << 20;

/// Standard input, as far as it may be a profile.
pub(super) fn stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(TEXT_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        Failure::input(format_args!(
            "cannot read standard input: {error}; give a profile"
        ))
    })?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::input(
            "standard input is larger than 1 MiB, which no profile is; give the table of ROCE_ACCL \
             only",
        ));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
