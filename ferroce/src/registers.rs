//! Whose registers a command reads and writes: those of a device in software, or a real card's.

use std::cell::RefCell;
use std::fmt;

use ferroce_fwctl::card::{Call, Card, CardError};
pub(crate) use ferroce_fwctl::card::{REGISTER_LEN_MAX, is_card_name};
use ferroce_fwctl::mailbox::{self, Status};
use ferroce_hca::Method;
use ferroce_udp::Observer;

use crate::device;
use crate::output::{Failure, Output};

/// Something with registers.
pub(crate) trait Registers {
    /// What the user calls it.
    fn name(&self) -> &str;

    /// Reads or writes a register. `data` is its content, and for a read carries its index, too;
    /// what was refused has changed neither the register nor `data`.
    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal>;
}

/// Why a register was not read or written.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// What the device says; an internal error if it was not reached.
    pub(crate) status: Status,
    text: String,
}

impl Refusal {
    /// No register can have this number.
    pub(crate) fn no_register(id: u32) -> Self {
        Self {
            status: Status::NOT_SUPPORTED,
            text: format!("register {id:#x}: numbers of registers end at 0xffff"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::input(refusal)
    }
}

/// The registers of a device of the user's or, by a card's name, of that card.
pub(crate) fn open(name: &str, to: &mut Output<'_>) -> Result<Box<dyn Registers>, Failure> {
    if is_card_name(name) {
        let card = Card::open(name).map_err(|error| match error {
            CardError::Find(_) | CardError::Permission { .. } => Failure::input(error),
            _ => Failure::broken(error),
        })?;
        return Ok(Box::new(Opened {
            name: name.to_owned(),
            card,
        }));
    }
    let registry = device::registry(to)?;
    Ok(Box::new(registry.observe(name).map_err(Failure::input)?))
}

impl Registers for Observer {
    fn name(&self) -> &str {
        &self.spec().name
    }

    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        let result = self.state().access_register(id, method, data);
        result.map_err(|error| Refusal {
            status: Status(error.status() as u8),
            text: format!("{}: {error}", self.name()),
        })
    }
}

/// A card under the name it was opened by.
struct Opened {
    name: String,
    card: Card,
}

impl Registers for Opened {
    fn name(&self) -> &str {
        &self.name
    }

    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        self.card
            .access(id, of_mailbox(method), data)
            .map_err(|error| Refusal {
                status: match error {
                    CardError::Refused { status, .. } => status,
                    _ => Status::INTERNAL_ERROR,
                },
                text: error.to_string(),
            })
    }
}

/// Notes what would be sent, and writes nothing. Reads are made, since it depends on them what is
/// written.
pub(crate) struct DryRun {
    of: Option<Box<dyn Registers>>,
    calls: RefCell<String>,
}

impl DryRun {
    /// A dry run on a device or a card, which need not be there.
    pub(crate) fn on(name: &str, to: &mut Output<'_>) -> Result<Self, Failure> {
        let of = match open(name, to) {
            Ok(of) => Some(of),
            Err(failure) if is_card_name(name) => {
                let reason = failure.to_string();
                let reason = reason.trim_start_matches("error: ").trim_end();
                to.remark(format_args!(
                    "note: what is not named is shown as 0, since {name} cannot be read: {reason}"
                ))?;
                None
            }
            Err(failure) => return Err(failure),
        };
        let calls = RefCell::default();
        Ok(Self { of, calls })
    }

    /// The calls, in words and bytes.
    pub(crate) fn into_calls(self) -> String {
        self.calls.into_inner()
    }
}

impl Registers for DryRun {
    fn name(&self) -> &str {
        self.of.as_ref().map_or("the card", |of| of.name())
    }

    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        *self.calls.borrow_mut() += &dump(id, method, data);
        match (&self.of, method) {
            (Some(of), Method::Query) => of.access(id, method, data),
            _ => Ok(()),
        }
    }
}

/// What is sent to a card to read or write a register, in words and bytes.
pub(crate) fn dump(id: u16, method: Method, data: &[u8]) -> String {
    Call::new(id, of_mailbox(method), data).dump()
}

fn of_mailbox(method: Method) -> mailbox::Method {
    match method {
        Method::Write => mailbox::Method::Write,
        Method::Query => mailbox::Method::Read,
    }
}
