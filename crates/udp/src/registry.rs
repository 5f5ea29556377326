//! The devices of a user in a network namespace.

mod directory;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::observer::Observer;
use crate::shared::SharedFile;
use crate::spec::{DeviceSpec, SpecError, check_name};

/// Says which devices a process sees, in place of all: `NAME` or `NAME@ADDRESS`, with commas.
const DEVICES: &str = "FERROCE_DEVICES";

/// The user's directory of devices for the network namespace of this process.
///
/// It holds a TOML file for each device somebody defined, and for each address that was in use the
/// state that its processes share. Nobody but the user may look inside.
#[derive(Clone, Debug)]
pub struct Registry {
    directory: PathBuf,
    /// The value of `FERROCE_DEVICES`.
    devices: Option<String>,
}

/// Why the registry could not do something. Nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The directory cannot be used.
    #[error(
        "{path}: {source}; name a directory of your own by FERROCE_DIR", path = path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// A file cannot be used.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// A device's file says something that cannot be.
    #[error("{path}: {source}", path = path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SpecError,
    },
    /// A device cannot be like this.
    #[error(transparent)]
    BadSpec(#[from] SpecError),
    /// `FERROCE_DEVICES` says something that cannot be.
    #[error(
        "FERROCE_DEVICES: {part:?} is no device: allowed are NAME and NAME@ADDRESS, with commas; \
         for example fr0,fr1@127.0.0.2"
    )]
    BadVariable {
        /// The part that is wrong.
        part: String,
    },
    /// There is no such device.
    #[error("no device {name:?}; there are: {known}. `ferroce dev add NAME ADDRESS` makes one")]
    NoSuchDevice {
        /// The name given.
        name: String,
        /// The names of those that are.
        known: String,
    },
    /// The name is taken.
    #[error("the device {name} exists already")]
    Exists {
        /// The name given.
        name: String,
    },
    /// Another device has the address and port.
    #[error("the device {name} has this address and port already; choose another address")]
    AddressTaken {
        /// The device that has it.
        name: String,
    },
    /// Another device has the PCI address.
    #[error("the device {name} has this PCI address already; choose another one")]
    PciTaken {
        /// The device that has it.
        name: String,
    },
    /// Processes have the device open.
    #[error("the device {name} is in use; end the programs that `ferroce res show` names")]
    InUse {
        /// The device.
        name: String,
    },
}

impl RegistryError {
    pub(crate) fn state(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::File { path, source }
    }
}

impl Registry {
    /// The registry of this user and network namespace. It lies in the first of these that exists:
    /// `$FERROCE_DIR`, `/dev/shm/ferroce-UID`, `$XDG_RUNTIME_DIR/ferroce`, `/tmp/ferroce-UID`, and
    /// is made if need be.
    pub fn open() -> Result<Self, RegistryError> {
        let directory = directory::find()?;
        let devices = env::var(DEVICES).ok().filter(|value| !value.is_empty());
        Ok(Self { directory, devices })
    }

    /// The registry in a directory, which is made if need be, whatever the environment says.
    pub fn at(directory: &Path) -> Result<Self, RegistryError> {
        Ok(Self {
            directory: directory::private(directory)?,
            devices: None,
        })
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether `FERROCE_DEVICES` says which devices there are.
    pub fn is_narrowed(&self) -> bool {
        self.devices.is_some()
    }

    /// The devices by name: those with a file and, unless somebody removed it, the default one on
    /// 127.0.0.1. `FERROCE_DEVICES` narrows that down, and its `NAME@ADDRESS` are devices, too.
    pub fn devices(&self) -> Result<Vec<DeviceSpec>, RegistryError> {
        match &self.devices {
            None => self.defined(),
            Some(list) => list.split(',').map(|part| self.listed(part)).collect(),
        }
    }

    fn defined(&self) -> Result<Vec<DeviceSpec>, RegistryError> {
        let failed = |source| RegistryError::Directory {
            path: self.directory.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let file = entry.map_err(failed)?.file_name();
            names.extend(name_in(&file).map(str::to_owned));
        }
        let default = DeviceSpec::DEFAULT_NAME;
        if !names.iter().any(|name| name == default) && !self.default_removed() {
            names.push(default.to_owned());
        }
        names.sort();
        let specs = names.iter().map(|name| self.defined_as(name));
        specs.filter_map(Result::transpose).collect()
    }

    /// The device of a name without regard to `FERROCE_DEVICES`.
    fn defined_as(&self, name: &str) -> Result<Option<DeviceSpec>, RegistryError> {
        check_name(name)?;
        let path = self.spec_path(name);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let spec = DeviceSpec::from_toml(name, &text);
                spec.map(Some)
                    .map_err(|source| RegistryError::Spec { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_default = name == DeviceSpec::DEFAULT_NAME && !self.default_removed();
                Ok(is_default.then(DeviceSpec::default_device))
            }
            Err(source) => Err(RegistryError::File { path, source }),
        }
    }

    /// A device of `FERROCE_DEVICES`.
    fn listed(&self, part: &str) -> Result<DeviceSpec, RegistryError> {
        let part = part.trim();
        let bad = || RegistryError::BadVariable {
            part: part.to_owned(),
        };
        let (name, address) = match part.split_once('@') {
            None => (part, None),
            Some((name, address)) => (name, Some(address.parse::<IpAddr>().map_err(|_| bad())?)),
        };
        check_name(name).map_err(|_| bad())?;
        match (self.defined_as(name)?, address) {
            (Some(spec), None) => Ok(spec),
            (Some(spec), Some(address)) => {
                let spec = DeviceSpec { address, ..spec };
                spec.check().map_err(|_| bad())?;
                Ok(spec)
            }
            (None, Some(address)) => {
                let spec = DeviceSpec::new(name, address);
                spec.check().map_err(|_| bad())?;
                Ok(spec)
            }
            (None, None) => Err(self.no_such(name, self.defined()?)),
        }
    }

    /// The device of a name.
    pub fn device(&self, name: &str) -> Result<DeviceSpec, RegistryError> {
        let devices = self.devices()?;
        let found = devices.iter().find(|spec| spec.name == name).cloned();
        found.ok_or_else(|| self.no_such(name, devices))
    }

    fn no_such(&self, name: &str, known: Vec<DeviceSpec>) -> RegistryError {
        let known: Vec<String> = known.into_iter().map(|spec| spec.name).collect();
        RegistryError::NoSuchDevice {
            name: name.to_owned(),
            known: if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            },
        }
    }

    /// Defines a device.
    pub fn add(&self, spec: &DeviceSpec) -> Result<(), RegistryError> {
        spec.check()?;
        if self.defined_as(&spec.name)?.is_some() {
            let name = spec.name.clone();
            return Err(RegistryError::Exists { name });
        }
        self.check_addresses(spec)?;
        self.write(spec)
    }

    /// Changes a device. Its personality changes at once, the rest for programs that open it from
    /// now on; an address can only change while nobody has it open.
    pub fn replace(&self, spec: &DeviceSpec) -> Result<(), RegistryError> {
        spec.check()?;
        let Some(old) = self.defined_as(&spec.name)? else {
            return Err(self.no_such(&spec.name, self.defined()?));
        };
        self.check_addresses(spec)?;
        if (old.address, old.port) != (spec.address, spec.port) {
            self.remove_state(&old)?;
        }
        self.write(spec)?;
        let state = SharedFile::open(self, spec)?.state(0);
        state
            .set_personality(spec.personality)
            .map_err(|error| RegistryError::File {
                path: self.state_path(spec),
                source: io::Error::from_raw_os_error(error.errno),
            })
    }

    /// Removes a device that nobody has open, with its counters.
    pub fn remove(&self, name: &str) -> Result<(), RegistryError> {
        let Some(spec) = self.defined_as(name)? else {
            return Err(self.no_such(name, self.defined()?));
        };
        self.remove_state(&spec)?;
        if name == DeviceSpec::DEFAULT_NAME {
            self.write_file(&self.removed_path(), "")?;
        }
        let path = self.spec_path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|source| RegistryError::File { path, source }),
        }
    }

    fn remove_state(&self, spec: &DeviceSpec) -> Result<(), RegistryError> {
        let path = self.state_path(spec);
        SharedFile::remove(&path).map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => RegistryError::InUse {
                name: spec.name.clone(),
            },
            _ => RegistryError::File { path, source },
        })
    }

    /// Looks at a device without opening it for traffic.
    pub fn observe(&self, name: &str) -> Result<Observer, RegistryError> {
        self.observe_device(self.device(name)?)
    }

    /// The same of one that [`Self::devices`] has told of: its file is not read again, nor those of
    /// all others.
    pub fn observe_device(&self, spec: DeviceSpec) -> Result<Observer, RegistryError> {
        Observer::open(self, spec)
    }

    fn check_addresses(&self, spec: &DeviceSpec) -> Result<(), RegistryError> {
        for other in self.defined()? {
            if other.name == spec.name {
                continue;
            }
            let name = other.name;
            if (other.address, other.port) == (spec.address, spec.port) {
                return Err(RegistryError::AddressTaken { name });
            }
            if spec.pci.is_some() && other.pci == spec.pci {
                return Err(RegistryError::PciTaken { name });
            }
        }
        Ok(())
    }

    fn write(&self, spec: &DeviceSpec) -> Result<(), RegistryError> {
        self.write_file(&self.spec_path(&spec.name), &spec.to_toml()?)?;
        if spec.name == DeviceSpec::DEFAULT_NAME {
            // Its own file says that it is there.
            let _ = fs::remove_file(self.removed_path());
        }
        Ok(())
    }

    /// Writes a file all at once.
    fn write_file(&self, path: &Path, text: &str) -> Result<(), RegistryError> {
        let mut new = OsString::from(path);
        new.push(format!(".{}", std::process::id()));
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
        written.map_err(|source| {
            let _ = fs::remove_file(&new);
            let path = path.to_owned();
            RegistryError::File { path, source }
        })
    }

    fn spec_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.toml"))
    }

    fn removed_path(&self) -> PathBuf {
        let name = DeviceSpec::DEFAULT_NAME;
        self.directory.join(format!("{name}.removed"))
    }

    fn default_removed(&self) -> bool {
        self.removed_path().exists()
    }

    /// Where the processes of a device find what they share. By address, since that is what they
    /// share, whatever name each of them has for it.
    pub(crate) fn state_path(&self, spec: &DeviceSpec) -> PathBuf {
        let (address, port) = (spec.address, spec.port);
        self.directory.join(format!("{address}-{port}.state"))
    }
}

/// The device whose file this is.
fn name_in(file: &OsString) -> Option<&str> {
    let name = file.to_str()?.strip_suffix(".toml")?;
    check_name(name).ok().map(|()| name)
}
