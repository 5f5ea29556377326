//! `ferroce mlxreg`: the register tool for cards, with its options, tables, prompts and error
//! messages, on Ferroce's devices. Scripts for cards run unmodified.

mod options;
mod print;

use std::io;

use clap::Args;
use ferroce_device::Method;
use ferroce_fwctl::mailbox::Status;
use ferroce_prm::adp_retx_histogram::ADP_RETX_HISTOGRAM;
use ferroce_prm::mlxreg::{TextError, apply, apply_raw};
use ferroce_prm::{REGISTERS, Register, by_name};

use self::options::{Operation, Options, Parsed};
use crate::output::{Failure, Output};
use crate::registers::{self, REGISTER_LEN_MAX, Refusal, Registers};

/// The largest register that is known by its number only.
const RAW_LEN_MAX: u32 = 0x2000;

/// Read and write access registers as mlxreg does, with its options
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Mlxreg {
    /// mlxreg's options; --help lists them
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    args: Vec<String>,
}

/// The error that the tool prints for `text`.
fn error(text: impl std::fmt::Display) -> Failure {
    Failure::Program(1, format!("-E- {text}\n"))
}

fn bad_text(complaint: TextError<'_>) -> Failure {
    error(complaint)
}

impl Mlxreg {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let options = match Options::parse(&self.args)? {
            Parsed::Help => return to.text(print::HELP),
            Parsed::Version => {
                let version = env!("CARGO_PKG_VERSION");
                return to.text(&format!("mlxreg, ferroce {version}\n"));
            }
            Parsed::Options(options) => options,
        };
        options.check()?;
        let card = match (&options.gen_cmd_buffer, &options.device) {
            (None, Some(name)) => Some(open(name, to)?),
            _ => None,
        };
        let Some(operation) = options.operation else {
            return Err(error("no operation flag, please read help"));
        };
        match operation {
            Operation::ShowRegs => to.text(&print::register_names(REGISTERS)),
            Operation::ShowReg => to.text(&print::fields(known(&options.reg_name)?, &options)),
            Operation::Get | Operation::Set if !options.reg_name.is_empty() => {
                let register = known(&options.reg_name)?;
                let target = Target::Known(register);
                Session {
                    card,
                    options: &options,
                    target,
                }
                .run(operation, to)
            }
            Operation::Get | Operation::Set => {
                let len = options.reg_len;
                if len > RAW_LEN_MAX {
                    return Err(error(format_args!(
                        "Register length: {len:#010x} is too large"
                    )));
                }
                let target = Target::Raw {
                    id: options.reg_id,
                    len: len.next_multiple_of(4) as usize,
                };
                Session {
                    card,
                    options: &options,
                    target,
                }
                .run(operation, to)
            }
        }
    }
}

fn open(name: &str, to: &mut Output<'_>) -> Result<Box<dyn Registers>, Failure> {
    registers::open(name, to).map_err(|unopened| {
        let in_short = unopened.in_short();
        let reason = Failure::from(unopened).to_string();
        let reason = reason.trim_start_matches("error: ");
        Failure::Program(
            1,
            format!("-E- Failed to open device: \"{name}\", {in_short}\nferroce: {reason}"),
        )
    })
}

fn known(name: &str) -> Result<&'static Register, Failure> {
    by_name(name).ok_or_else(|| error(format_args!("Can't find access register name: {name}")))
}

/// The register that is read or written.
#[derive(Clone, Copy)]
enum Target {
    Known(&'static Register),
    Raw { id: u32, len: usize },
}

struct Session<'a> {
    /// `None` if nothing is to be sent.
    card: Option<Box<dyn Registers>>,
    options: &'a Options,
    target: Target,
}

impl Session<'_> {
    fn run(&self, operation: Operation, to: &mut Output<'_>) -> Result<(), Failure> {
        match operation {
            Operation::Set => self.set(to),
            _ => self.get(to),
        }
    }

    fn get(&self, to: &mut Output<'_>) -> Result<(), Failure> {
        let mut bytes = self.empty();
        self.apply(&mut bytes, "")?;
        if self.card.is_none() {
            return to.text(&print::generated(
                "GET",
                self.target_id(),
                Method::Query,
                &bytes,
            ));
        }
        to.text("Sending access register...\n\n")?;
        self.send(Method::Query, &mut bytes)?;
        to.text(&self.table(&bytes))
    }

    fn set(&self, to: &mut Output<'_>) -> Result<(), Failure> {
        let mut bytes = self.empty();
        self.apply(&mut bytes, &self.options.data)?;
        if self.card.is_none() {
            return to.text(&print::generated(
                "SET",
                self.target_id(),
                Method::Write,
                &bytes,
            ));
        }
        if !self.options.overwrite {
            // All other fields are written back as they are.
            self.send(Method::Query, &mut bytes)?;
            self.apply(&mut bytes, &self.options.data)?;
        }
        let what = match self.target {
            Target::Known(register) => format!(": {}", register.name()),
            Target::Raw { id, .. } => format!(" id: {id:#x}"),
        };
        to.text(&format!(
            "You are about to send access register{what} with the following data:\n{}\n Do \
             you want to continue ? (y/n) [n] : ",
            self.table(&bytes)
        ))?;
        if !self.agreed(to)? {
            return Ok(());
        }
        to.text(" Sending access register...\n")?;
        self.send(Method::Write, &mut bytes)
    }

    fn agreed(&self, to: &mut Output<'_>) -> Result<bool, Failure> {
        if self.options.yes {
            to.text("y\n")?;
            return Ok(true);
        }
        to.out.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        let answer = answer.trim_end_matches('\n').to_ascii_lowercase();
        Ok(matches!(answer.as_str(), "y" | "yes"))
    }

    fn empty(&self) -> Vec<u8> {
        let len = match self.target {
            Target::Raw { len, .. } => len,
            Target::Known(register)
                if register.id() == ADP_RETX_HISTOGRAM.id() && !self.options.no_dynamic =>
            {
                REGISTER_LEN_MAX
            }
            Target::Known(register) => register.size(),
        };
        vec![0; len]
    }

    fn apply(&self, bytes: &mut [u8], data: &str) -> Result<(), Failure> {
        let indexes = &self.options.indexes;
        match self.target {
            Target::Known(register) => apply(register, bytes, indexes, data).map_err(bad_text),
            Target::Raw { .. } => apply_raw(bytes, indexes, data).map_err(bad_text),
        }
    }

    fn target_id(&self) -> (String, u32) {
        match self.target {
            Target::Known(register) => (register.name().to_owned(), register.id().into()),
            Target::Raw { id, .. } => (format!("{id:#x}"), id),
        }
    }

    fn send(&self, method: Method, bytes: &mut [u8]) -> Result<(), Failure> {
        let Some(card) = &self.card else {
            return Ok(());
        };
        let (_, id) = self.target_id();
        let result = match u16::try_from(id) {
            _ if bytes.len() > REGISTER_LEN_MAX => Err(Refusal::too_long(bytes.len())),
            Ok(id) => card.access(id, method, bytes),
            Err(_) => Err(Refusal::no_register(id)),
        };
        result.map_err(|reason| {
            Failure::Program(
                1,
                format!(
                    "-E- Failed to send access register: {}\nferroce: {reason}\n",
                    status_text(reason.status)
                ),
            )
        })
    }

    fn table(&self, bytes: &[u8]) -> String {
        match self.target {
            Target::Known(register) => print::content(register, bytes, self.options),
            Target::Raw { .. } => print::dwords(bytes),
        }
    }
}

/// The tool's words for what a card answers.
fn status_text(status: Status) -> &'static str {
    match status.0 {
        0x01 => "Firmware internal error",
        0x02 => "Bad Reg Access method",
        0x03 => "Register access bad parameter",
        0x04 => "Register not supported",
        0x05 | 0x0f => "Register access resource unavailable",
        0x06 => "Register access failed, device is busy",
        0x07 => "Register access not ready",
        0x08 => "Register is too large",
        0x09 => "Register access bad resource state",
        0x0a => "Register access bad index",
        0x10 => "Register access bad QP state",
        0x30 => "Register access bad packet",
        0x40 => "Register access bad size outs CQES",
        0x50 => "Register access bad input length",
        0x51 => "Register access bad output length",
        _ => "Unknown register error",
    }
}
