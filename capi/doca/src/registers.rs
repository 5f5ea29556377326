//! Access to a device's registers, which is all that telemetry needs of it.

use std::fmt;
use std::io;

use ferroce_hca::{DeviceState, Method, RegisterError, Status};
use ferroce_udp::{Registry, RegistryError};

use crate::error::{Code, Refusal};

/// The way to the registers of one device; each kind of device has its own.
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
            Status::NotSupported => Code::NotSupported,
            Status::BadParameter => Code::InvalidValue,
            _ => Code::Driver,
        };
        let done = self.access_register(id, method, data);
        done.map_err(|error| Refusal::new(code(&error), &error))
    }
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
