//! The registers that a command accesses: those of a software device or of a real card.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;

use ferroce_device::{Method, RegisterError, Status};
use ferroce_fwctl::card::{Call, Card, CardError, Places};
pub(crate) use ferroce_fwctl::card::{REGISTER_LEN_MAX, is_card_name};
use ferroce_prm::mgir::MGIR;
use ferroce_prm::{Register, by_id};
use ferroce_registry::{DeviceSpec, Observer, PciAddress, Registry};

use crate::json::reg as json;
use crate::json::shared::hex;
use crate::naming;
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

    /// Tools for cards do not even send it.
    pub(crate) fn too_long(len: usize) -> Self {
        Self {
            status: Status::LIMIT,
            text: format!("{len} bytes: cards take up to {REGISTER_LEN_MAX} at once"),
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

/// Why no registers were opened.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// There is no such device, or it cannot be used.
    Device(Failure),
    /// The same of a card.
    Card(CardError),
    /// The name is a PCI address, and neither a device nor a card has it.
    Nowhere(CardError),
}

impl Unopened {
    /// How the system says it.
    pub(crate) fn in_short(&self) -> &'static str {
        match self {
            Self::Card(CardError::Permission { .. }) => "Permission denied",
            _ => "No such file or directory",
        }
    }
}

impl From<Unopened> for Failure {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Device(failure) => failure,
            Unopened::Card(error @ (CardError::Find(_) | CardError::Permission { .. })) => {
                Self::input(error)
            }
            Unopened::Card(error) => Self::broken(error),
            Unopened::Nowhere(error) => Self::input(format_args!(
                "no device of Ferroce's has this PCI address (`ferroce dev --details` shows theirs), and \
                 for a card: {error}"
            )),
        }
    }
}

/// The registers of a device of the user's, by its name or PCI address, or by a card's name of that
/// card. A card with the address of a device comes after that device.
pub(crate) fn open(name: &str, to: &mut Output<'_>) -> Result<Box<dyn Registers>, Unopened> {
    if !is_card_name(name) {
        let registry = naming::registry(to).map_err(Unopened::Device)?;
        let spec = registry.device(name).map_err(Failure::from);
        let spec = spec.map_err(Unopened::Device)?;
        return Ok(Box::new(Software { registry, spec }));
    }
    // Without devices there may be cards.
    let software = match Software::at(name, to) {
        Ok(Some(software)) => return Ok(Box::new(software)),
        none => none,
    };
    let card = Card::open(name).map_err(|error| match (error, software) {
        (CardError::Find(_), Err(failure)) => Unopened::Device(failure),
        (error @ CardError::Find(_), _) if name.parse::<PciAddress>().is_ok() => {
            Unopened::Nowhere(error)
        }
        (error, _) => Unopened::Card(error),
    })?;
    let name = name.to_owned();
    Ok(Box::new(Opened { name, card }))
}

/// The registers of a device, or of a real card by its name; of the only device if none is named.
pub(crate) fn registers_of(
    name: Option<&str>,
    to: &mut Output<'_>,
) -> Result<Box<dyn Registers>, Failure> {
    match name {
        Some(card) if is_card_name(card) => Ok(open(card, to)?),
        name => {
            let spec = naming::find(&naming::registry(to)?, name)?;
            Ok(open(&spec.name, to)?)
        }
    }
}

/// The registers of a device in software. The device is looked up at each access: it may have been
/// removed meanwhile, and its file may be gone.
struct Software {
    registry: Registry,
    spec: DeviceSpec,
}

impl Software {
    /// The device of a PCI address. A device that `ferroce run --fwctl` shows as a card is reached
    /// by its node, as by tools for cards.
    fn at(address: &str, to: &mut Output<'_>) -> Result<Option<Self>, Failure> {
        // The nodes of cards are not plain files.
        let is_shown = |node: PathBuf| node.is_file();
        let is_address = address.parse::<PciAddress>().is_ok();
        if !is_address || Places::default().node(address).is_ok_and(is_shown) {
            return Ok(None);
        }
        let registry = naming::registry(to)?;
        let spec = naming::at_pci(&registry, address)?;
        Ok(spec.map(|spec| Self { registry, spec }))
    }
}

impl Registers for Software {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        let name = self.name();
        let observer = self.registry.observe(name).map_err(|error| Refusal {
            status: Status::INTERNAL_ERROR,
            text: error.to_string(),
        })?;
        Observed(&observer).access(id, method, data)
    }
}

/// The registers of a device that is being looked at.
pub(crate) struct Observed<'a>(pub(crate) &'a Observer);

impl Registers for Observed<'_> {
    fn name(&self) -> &str {
        &self.0.spec().name
    }

    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        let result = self.0.state().access_register(id, method, data);
        result.map_err(|error| Refusal {
            status: error.status(),
            text: format!("{}: {error}{}", self.name(), next_step(&error)),
        })
    }
}

/// What the device's own word about a refusal lacks: the command that helps.
fn next_step(error: &RegisterError) -> &'static str {
    match error {
        RegisterError::NotSupported { .. } => "; `ferroce reg list` shows those that are",
        RegisterError::NotOnCard { .. } | RegisterError::NoFeature { .. } => {
            "; `ferroce dev set` with another `card` changes that"
        }
        RegisterError::ReadOnly { register, .. } if *register == MGIR.name() => {
            "; `ferroce dev set` changes that"
        }
        _ => "",
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
        self.card.access(id, method, data).map_err(|error| Refusal {
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
    calls: RefCell<Vec<Access>>,
}

impl DryRun {
    /// A dry run on a device or a card, which need not be there.
    pub(crate) fn on(name: Option<&str>, to: &mut Output<'_>) -> Result<Self, Failure> {
        let card = name.filter(|it| is_card_name(it));
        let of = match (registers_of(name, to), card) {
            (Ok(of), _) => Some(of),
            (Err(unopened), Some(name)) => {
                let reason = unopened.to_string();
                let reason = reason.trim_start_matches("error: ").trim_end();
                to.remark(format_args!(
                    "note: what is not named is shown as 0, since {name} cannot be read: {reason}"
                ))?;
                None
            }
            (Err(unopened), None) => return Err(unopened),
        };
        let calls = RefCell::default();
        Ok(Self { of, calls })
    }

    /// What would be sent.
    pub(crate) fn into_calls(self) -> Vec<Access> {
        self.calls.into_inner()
    }
}

impl Registers for DryRun {
    fn name(&self) -> &str {
        self.of.as_ref().map_or("the card", |of| of.name())
    }

    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        self.calls.borrow_mut().push(Access::new(id, method, data));
        match (&self.of, method) {
            (Some(of), Method::Query) => of.access(id, method, data),
            _ => Ok(()),
        }
    }
}

/// What is sent to a card to read or write a register.
pub(crate) struct Access {
    id: u16,
    method: Method,
    data: Vec<u8>,
}

impl Access {
    pub(crate) fn new(id: u16, method: Method, data: &[u8]) -> Self {
        let data = data.to_vec();
        Self { id, method, data }
    }

    fn call(&self) -> Call {
        Call::new(self.id, self.method, &self.data)
    }

    fn json(&self) -> json::Call {
        json::Call {
            register: by_id(self.id).map(Register::name),
            register_id: self.id,
            method: match self.method {
                Method::Query => "read",
                Method::Write => "write",
            },
            payload: hex(&self.data),
            input: hex(&self.call().input),
        }
    }

    /// Prints accesses, in words and bytes or for programs.
    pub(crate) fn print(all: &[Self], json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        if json {
            let calls = all.iter().map(Self::json).collect();
            return to.document(&json::Calls { calls });
        }
        let calls = all.iter().map(|it| it.call().dump());
        to.text(&calls.collect::<String>())
    }
}
