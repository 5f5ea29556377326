//! `ferroce reg`: access registers by name.

mod change;
mod show;

use clap::{Args, Subcommand};
use ferroce_hca::Method;
use ferroce_prm::adp_retx_histogram::ADP_RETX_HISTOGRAM;
use ferroce_prm::{REGISTERS, Register, by_id, by_name, mlxreg};

use crate::output::{Failure, Output};
use crate::registers::{self, Access, DryRun, REGISTER_LEN_MAX, Registers};

/// List, show, read and write the access registers of a device
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES, infer_subcommands = true)]
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
    /// Show the fields of a register: position, access, meaning
    Show {
        #[command(flatten)]
        register: RegisterArg,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Read a register
    Get {
        #[command(flatten)]
        register: RegisterArg,
        #[command(flatten)]
        device: DeviceArg,
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
    /// Write fields of a register; other fields keep their values, except in the command MFRL,
    /// where they are 0
    Set {
        #[command(flatten)]
        register: RegisterArg,
        #[command(flatten)]
        device: DeviceArg,
        /// Fields by name, values as numbers or by name. In ROCE_ACCL, the select bits of named
        /// fields are set automatically
        #[arg(value_name = "FIELD=VALUE", required = true)]
        fields: Vec<String>,
        /// Print the bytes that would be sent to a card, and write nothing
        #[arg(long)]
        dry_run: bool,
        /// Print JSON: what the register holds afterwards, or with --dry-run the bytes
        #[arg(short, long)]
        json: bool,
    },
}

/// A register on the command line.
#[derive(Args, Clone, Debug)]
struct RegisterArg {
    /// Name or number of a register, as `ferroce reg list` shows them
    #[arg(value_name = "REGISTER", value_parser = register)]
    register: &'static Register,
}

/// A device on the command line.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArg {
    /// The device, by its name or PCI address, or a real card: fwctl0, 0000:1a:00.0 or
    /// /dev/mst/mt4129_pciconf0
    #[arg(short, long, value_name = "DEV")]
    device: String,
}

impl DeviceArg {
    /// A hand on the registers.
    pub(crate) fn open(&self, to: &mut Output<'_>) -> Result<Box<dyn Registers>, Failure> {
        Ok(registers::open(&self.device, to)?)
    }
}

impl Reg {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::List { json } => show::list(json, to),
            Verb::Show { register, json } => show::fields(register.register, json, to),
            Verb::Get {
                register: RegisterArg { register },
                index,
                dry_run: true,
                json,
                ..
            } => {
                let bytes = change::question(register, index)?;
                let call = Access::new(register.id(), Method::Query, &bytes);
                Access::print(&[call], json, to)
            }
            Verb::Get {
                register: RegisterArg { register },
                device,
                index,
                json,
                dry_run: false,
            } => {
                let device = device.open(to)?;
                let bytes = change::read(&*device, register, index)?;
                match json {
                    true => show::document(device.name(), register, &bytes, to),
                    false => show::content(register, &bytes, to),
                }
            }
            Verb::Set {
                register: RegisterArg { register },
                device,
                fields,
                json,
                dry_run: false,
            } => {
                let device = device.open(to)?;
                change::write(&*device, register, &fields)?;
                if !json {
                    return Ok(());
                }
                let bytes = change::read(&*device, register, 0)?;
                show::document(device.name(), register, &bytes, to)
            }
            Verb::Set {
                register,
                device,
                fields,
                json,
                dry_run: true,
            } => {
                let dry = DryRun::on(&device.device, to)?;
                change::write(&dry, register.register, &fields)?;
                Access::print(&dry.into_calls(), json, to)
            }
        }
    }
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
            let names: Vec<_> = REGISTERS.iter().map(|register| register.name()).collect();
            format!("no such register; there are {}", names.join(", "))
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
