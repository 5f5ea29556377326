//! Access to a device's registers, which is all that telemetry needs of it.

use std::fmt;
use std::io;

use ferroce_device::{DeviceState, Method, RegisterError, Status};
use ferroce_fwctl::card::{Card, CardError};
use ferroce_registry::{Registry, RegistryError};
use nix::errno::Errno;

use crate::error::{Code, Refusal};

/// Access to the registers of one device; each kind of device has its own.
pub trait Registers: fmt::Debug + Send + Sync {
    /// Reads or writes an access register; `data` is its content.
    ///
    /// # Errors
    ///
    /// - [`Code::NotFound`]: there is no such device, or no more.
    /// - [`Code::OperatingSystem`]: the user may not access it.
    /// - [`Code::NotSupported`]: the device has no such register.
    /// - [`Code::InvalidValue`]: a field has a value that the device does not accept.
    /// - [`Code::Driver`]: anything else.
    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal>;
}

/// The registers of what [`Info::locator`](crate::devices::Info::locator) leads to: the name of a device in
/// software, or the PCI address or the node of a card.
///
/// # Errors
///
/// See [`Registers::access`].
pub fn open(locator: &str) -> Result<Box<dyn Registers>, Refusal> {
    // No device has such a name.
    match locator.contains([':', '/']) {
        true => Ok(Box::new(
            Card::open(locator).map_err(|error| failed(&error))?,
        )),
        false => Ok(Box::new(SoftwareDevice::open(locator)?)),
    }
}

/// The registers of one of Ferroce's devices.
///
/// Looks the device up at each access: it may have gone, or another one may have its name.
#[derive(Debug)]
pub struct SoftwareDevice {
    registry: Registry,
    name: String,
}

impl SoftwareDevice {
    /// The registers of the device of this name.
    ///
    /// # Errors
    ///
    /// See [`Registers::access`].
    pub fn open(name: &str) -> Result<Self, Refusal> {
        let registry = Registry::open().map_err(refused)?;
        Self::of(registry, name)
    }

    /// The same in a registry.
    ///
    /// # Errors
    ///
    /// See [`Registers::access`].
    pub fn of(registry: Registry, name: &str) -> Result<Self, Refusal> {
        registry.observe(name).map_err(refused)?;
        let name = name.to_owned();
        Ok(Self { registry, name })
    }
}

impl Registers for SoftwareDevice {
    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        let observer = self.registry.observe(&self.name).map_err(refused)?;
        observer.state().access(id, method, data)
    }
}

impl Registers for DeviceState {
    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        let code = |error: &RegisterError| match error.status() {
            Status::NOT_SUPPORTED => Code::NotSupported,
            Status::BAD_PARAMETER => Code::InvalidValue,
            _ => Code::Driver,
        };
        let done = self.access_register(id, method, data);
        done.map_err(|error| Refusal::new(code(&error), &error))
    }
}

impl Registers for Card {
    fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
        let done = Self::access(self, id, method, data);
        done.map_err(|error| failed(&error))
    }
}

/// Why a card cannot be used.
fn failed(error: &CardError) -> Refusal {
    let code = match error {
        CardError::Find(_) => Code::NotFound,
        CardError::Permission { .. } => Code::OperatingSystem,
        CardError::OtherKind { .. } => Code::NotSupported,
        CardError::Kernel { errno, .. } => match *errno {
            Errno::ENODEV => Code::NotFound,
            Errno::EPERM => Code::OperatingSystem,
            _ => Code::Driver,
        },
        CardError::Refused { status, .. } => match *status {
            Status::NOT_SUPPORTED => Code::NotSupported,
            Status::BAD_PARAMETER => Code::InvalidValue,
            _ => Code::Driver,
        },
        _ => Code::Driver,
    };
    Refusal::new(code, error)
}

/// Why the user's devices cannot be used.
pub(crate) fn refused(error: RegistryError) -> Refusal {
    let code = match &error {
        RegistryError::NoSuchDevice { .. } => Code::NotFound,
        RegistryError::Directory { source, .. } | RegistryError::File { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Code::OperatingSystem
        }
        _ => Code::Driver,
    };
    Refusal::new(code, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_cards_and_kernel_map_to_header_codes() {
        let kernel = |errno| CardError::Kernel {
            path: "/dev/fwctl/fwctl0".into(),
            errno,
        };
        let refused = |status| CardError::Refused {
            path: "/dev/fwctl/fwctl0".into(),
            register_id: 0xc01d,
            status,
            syndrome: 0,
            info: ferroce_fwctl::uapi::Mlx5Info::default(),
        };
        let permission = CardError::Permission {
            path: "/dev/fwctl/fwctl0".into(),
        };
        for (error, code) in [
            (permission, Code::OperatingSystem),
            (kernel(Errno::ENODEV), Code::NotFound),
            (kernel(Errno::EPERM), Code::OperatingSystem),
            (kernel(Errno::EBADMSG), Code::Driver),
            (refused(Status::NOT_SUPPORTED), Code::NotSupported),
            (refused(Status::BAD_PARAMETER), Code::InvalidValue),
            (refused(Status::INTERNAL_ERROR), Code::Driver),
        ] {
            let refusal = failed(&error);
            assert_eq!(refusal.code(), code, "{error}");
            assert_eq!(refusal.to_string(), error.to_string());
        }
    }

    /// No machine has a function there.
    #[test]
    fn a_card_without_a_node_is_told_with_what_gives_it_one() {
        let error = open("10fe:ff:1f.7").unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        let text = error.to_string();
        assert!(
            text.contains("modprobe") || text.contains("there are"),
            "{text}"
        );
    }
}
