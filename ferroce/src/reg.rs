//! `ferroce reg`: access registers by name.

mod change;
mod show;

use clap::{Args, Subcommand};
use ferroce_base::names::instead;
use ferroce_device::Method;
use ferroce_prm::adp_retx_histogram::ADP_RETX_HISTOGRAM;
use ferroce_prm::{REGISTERS, Register, by_id, by_name, mlxreg};

use crate::naming::{self, DeviceArg};
use crate::output::exit_codes;
use crate::output::{Failure, Output};
use crate::registers::{Access, DryRun, REGISTER_LEN_MAX, registers_of};
use crate::spelling;

/// List, show, read and write the access registers of a device
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Reg {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the registers
    List {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Explain the fields of a register: position, access, meaning
    #[command(alias = "fields")]
    Explain(Explain),
    /// What `ferroce reg explain` was called
    #[command(hide = true)]
    Show(Explain),
    /// Read a register
    #[command(override_usage = "ferroce reg get [OPTIONS] [DEV] REGISTER")]
    Get {
        #[command(flatten)]
        device: DeviceArg,
        /// Name or number of a register, as `ferroce reg list` shows them
        #[arg(value_name = "REGISTER")]
        words: Vec<String>,
        /// Which profile of ROCE_ACCL to read; 0 is the active one
        #[arg(short, long, value_name = "N", default_value_t = 0)]
        index: u32,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
        /// Print the bytes that would be sent to a card, and send nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Write fields of a register; other fields keep their values, except in the command MFRL, where
    /// they are 0
    #[command(after_help = EXAMPLES)]
    #[command(override_usage = "ferroce reg set [OPTIONS] [DEV] REGISTER FIELD VALUE...")]
    Set {
        #[command(flatten)]
        device: DeviceArg,
        /// Name or number of a register, then its fields by name, values as numbers or by name,
        /// FIELD VALUE or FIELD=VALUE. In ROCE_ACCL, the select bits of named fields are set automatically
        #[arg(value_name = "REGISTER FIELD VALUE")]
        words: Vec<String>,
        /// Print the bytes that would be sent to a card, and write nothing
        #[arg(long)]
        dry_run: bool,
        /// Print JSON: what the register holds afterwards, or with --dry-run the bytes
        #[arg(short, long)]
        json: bool,
    },
}

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce reg get fr0 ROCE_ACCL
  ferroce reg set fr0 ROCE_ACCL roce_adp_retrans_en 1
  ferroce reg set fwctl0 ROCE_ACCL roce_adp_retrans_en=1 --dry-run"
);

#[derive(Args, Clone, Debug)]
struct Explain {
    /// Name or number of a register, as `ferroce reg list` shows them
    #[arg(value_name = "REGISTER", value_parser = register)]
    register: &'static Register,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Reg {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::List { json } => show::list(json, to),
            Verb::Explain(Explain { register, json }) => show::fields(register, json, to),
            Verb::Show(Explain { register, json }) => {
                let newer = format!("ferroce reg explain {}", register.name());
                spelling::old(&newer, to)?;
                show::fields(register, json, to)
            }
            Verb::Get {
                device,
                words,
                index,
                json,
                dry_run,
            } => {
                let (device, register, rest) = named(device, words)?;
                if let Some(word) = rest.first() {
                    return Err(Failure::input(format_args!(
                        "unexpected {word:?}: write one register"
                    )));
                }
                if dry_run {
                    let bytes = change::question(register, index)?;
                    let call = Access::new(register.id(), Method::Query, &bytes);
                    return Access::print(&[call], json, to);
                }
                let device = registers_of(device.as_deref(), to)?;
                let bytes = change::read(&*device, register, index)?;
                match json {
                    true => show::document(device.name(), register, &bytes, to),
                    false => show::content(register, &bytes, to),
                }
            }
            Verb::Set {
                device,
                words,
                json,
                dry_run,
            } => {
                let (device, register, fields) = named(device, words)?;
                let fields = naming::assignments(&fields, |_| false)?;
                if fields.is_empty() {
                    return Err(Failure::input(format_args!(
                        "no field given; write FIELD VALUE; `ferroce reg explain {}` lists fields",
                        register.name()
                    )));
                }
                if dry_run {
                    let dry = DryRun::on(device.as_deref(), to)?;
                    change::write(&dry, register, &fields)?;
                    return Access::print(&dry.into_calls(), json, to);
                }
                let device = registers_of(device.as_deref(), to)?;
                change::write(&*device, register, &fields)?;
                if !json {
                    return Ok(());
                }
                let bytes = change::read(&*device, register, 0)?;
                show::document(device.name(), register, &bytes, to)
            }
        }
    }
}

/// The device that is named, if one is, the register behind it, and what stands behind that.
fn named(
    device: DeviceArg,
    words: Vec<String>,
) -> Result<(Option<String>, &'static Register, Vec<String>), Failure> {
    let (device, mut words) = device.before(words, |word| register(word).is_ok());
    if words.is_empty() {
        return Err(match device {
            Some(word) => Failure::input(format_args!(
                "missing register; write [DEV] REGISTER. If {word:?} is to be one: {}",
                register(&word).err().unwrap_or_default()
            )),
            None => Failure::input("missing register; `ferroce reg list` lists them"),
        });
    }
    let name = words.remove(0);
    let register = register(&name)
        .map_err(|error| Failure::input(format_args!("invalid register {name:?}: {error}")))?;
    Ok((device, register, words))
}

/// A register by its name in any case, or by its number.
fn register(text: &str) -> Result<&'static Register, String> {
    let by_number = || {
        mlxreg::number(text)
            .ok()
            .and_then(|id| by_id(id.try_into().ok()?))
    };
    by_name(&text.to_ascii_uppercase())
        .or_else(by_number)
        .ok_or_else(|| {
            let names = REGISTERS.iter().map(|register| register.name());
            format!("no such register; {}", instead(text, names))
        })
}

/// As many bytes as the register has on any device, if a card takes as many at once.
fn room(register: &Register) -> usize {
    if register.id() == ADP_RETX_HISTOGRAM.id() {
        register.max_size().min(REGISTER_LEN_MAX)
    } else {
        register.size()
    }
}
