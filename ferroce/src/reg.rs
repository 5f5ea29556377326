//! `ferroce reg`: access registers in words.

mod change;
mod show;

use clap::{Args, Subcommand};
use ferroce_hca::Method;
use ferroce_prm::adp_retx_histogram::ADP_RETX_HISTOGRAM;
use ferroce_prm::{REGISTERS, Register, by_id, by_name, mlxreg};
use ferroce_udp::Observer;

use crate::device;
use crate::output::{Failure, Output};

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
    /// Show the fields of a register: where they lie, who writes them, what they mean
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
    },
    /// Write fields of a register; all others keep their values
    Set {
        #[command(flatten)]
        register: RegisterArg,
        #[command(flatten)]
        device: DeviceArg,
        /// Fields by name, values as numbers or by name. In ROCE_ACCL the select bits of what is
        /// named are set by themselves
        #[arg(value_name = "FIELD=VALUE", required = true)]
        fields: Vec<String>,
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
    /// The device
    #[arg(short, long, value_name = "DEV")]
    device: String,
}

impl DeviceArg {
    /// A hand on the device.
    pub(crate) fn observe(&self, to: &mut Output<'_>) -> Result<Observer, Failure> {
        let registry = device::registry(to)?;
        registry.observe(&self.device).map_err(Failure::input)
    }
}

impl Reg {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.verb {
            Verb::List { json } => show::list(json, to),
            Verb::Show { register, json } => show::fields(register.register, json, to),
            Verb::Get {
                register: RegisterArg { register },
                device,
                index,
                json,
            } => {
                let observer = device.observe(to)?;
                let bytes = change::read(&observer, register, index)?;
                show::content(register, &bytes, json, to)
            }
            Verb::Set {
                register,
                device,
                fields,
            } => {
                let observer = device.observe(to)?;
                change::write(&observer, register.register, &fields)
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

/// As many bytes as the register of any device has.
fn room(register: &Register) -> usize {
    if register.id() == ADP_RETX_HISTOGRAM.id() {
        register.max_size()
    } else {
        register.size()
    }
}

/// Reads or writes a register.
fn access(
    observer: &Observer,
    register: &Register,
    method: Method,
    bytes: &mut [u8],
) -> Result<(), Failure> {
    let result = observer
        .state()
        .access_register(register.id(), method, bytes);
    result.map_err(|error| {
        let name = &observer.spec().name;
        Failure::input(format_args!("{name}: {error}"))
    })
}
