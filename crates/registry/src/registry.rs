//! A user's devices in a network namespace.

mod directory;
mod error;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferroce_device::Card;
use ferroce_fault::Rule;
use tempfile::NamedTempFile;

pub use self::error::RegistryError;
use crate::shared::{FaultError, FaultTable, SharedFile, file_name};
use crate::spec::{DeviceSpec, Emulation, LinkSetting, check_name};

/// Says which devices a process sees, in place of all: `NAME` or `NAME@ADDRESS`, comma-separated.
const DEVICES: &str = "FERROCE_DEVICES";
/// Says which hardware they look like: the name of a [`Emulation`].
const EMULATION: &str = "FERROCE_AS";
/// Says which card they are, in place of what their files say: a [`Card`].
const CARD: &str = "FERROCE_CARD";
/// Says what carries their packets in this process, in place of what their files say: a
/// [`LinkSetting`].
const LINK: &str = "FERROCE_LINK";

/// The user's directory of devices for the network namespace of this process.
///
/// It holds a TOML file for each device that was defined, and for each address that was in use the
/// state that its processes share. Only the user may look inside.
#[derive(Clone, Debug)]
pub struct Registry {
    directory: PathBuf,
    /// The value of `FERROCE_DEVICES`.
    devices: Option<String>,
    emulation: Option<Emulation>,
    card: Option<Card>,
    link: Option<LinkSetting>,
}

impl Registry {
    /// The registry of this user and network namespace. It is in the first of these that exists:
    /// `$FERROCE_DIR`, `/dev/shm/ferroce-UID`, `$XDG_RUNTIME_DIR/ferroce`, `/tmp/ferroce-UID`, and
    /// is made if need be.
    pub fn open() -> Result<Self, RegistryError> {
        let directory = directory::find()?;
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let emulation = variable(EMULATION).map(|name| {
            name.parse()
                .map_err(|()| RegistryError::BadEmulation { name: name.clone() })
        });
        let card = variable(CARD).map(|text| text.parse().map_err(RegistryError::BadCard));
        let link = variable(LINK).map(|name| {
            name.parse()
                .map_err(|_| RegistryError::BadLink { name: name.clone() })
        });
        Ok(Self {
            directory,
            devices: variable(DEVICES),
            emulation: emulation.transpose()?,
            card: card.transpose()?,
            link: link.transpose()?,
        })
    }

    /// The registry of this network namespace in a directory that `FERROCE_DIR` might name.
    pub fn within(directory: &Path) -> Result<Self, RegistryError> {
        Ok(Self {
            directory: directory::within(directory, false)?,
            devices: None,
            emulation: None,
            card: None,
            link: None,
        })
    }

    /// The registry in a directory, which is made if need be, whatever the environment says.
    pub fn at(directory: &Path) -> Result<Self, RegistryError> {
        Ok(Self {
            directory: directory::private(directory)?,
            devices: None,
            emulation: None,
            card: None,
            link: None,
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

    /// The devices by name: those with a file and, unless it was removed, the default one on
    /// 127.0.0.1. Behind each come its VFs. `FERROCE_DEVICES` narrows that down, and its `NAME@ADDRESS`
    /// are devices, too. They are the card that `FERROCE_CARD` says, look as `FERROCE_AS` says, and have
    /// the link that `FERROCE_LINK` says.
    pub fn devices(&self) -> Result<Vec<DeviceSpec>, RegistryError> {
        let mut devices = match &self.devices {
            None => self.defined()?,
            Some(list) => list
                .split(',')
                .map(|part| self.listed(part))
                .collect::<Result<_, _>>()?,
        };
        if let Some(link) = self.link {
            devices.iter_mut().for_each(|spec| spec.link = link);
        }
        if let Some(card) = self.card {
            let as_card = |spec: DeviceSpec| spec.as_card(card);
            devices = devices.into_iter().map(as_card).collect();
        }
        Ok(match self.emulation {
            None => devices,
            Some(emulation) => emulation.apply(devices),
        })
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
        let mut devices = Vec::new();
        for name in names {
            let card = self.defined_as(&name)?;
            devices.extend(card.iter().flat_map(DeviceSpec::functions));
        }
        Ok(devices)
    }

    /// The device that has a file under a name, without regard to `FERROCE_DEVICES`.
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
        let known = match self.defined_as(name)? {
            None => self.defined()?.into_iter().find(|spec| spec.name == name),
            card => card,
        };
        match (known, address) {
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

    /// The devices of [`Self::devices`], and behind each that has one its second link.
    pub fn links(&self) -> Result<Vec<DeviceSpec>, RegistryError> {
        let devices = self.devices()?;
        Ok(devices.iter().flat_map(DeviceSpec::links).collect())
    }

    /// The device of a name as [`Self::device`] finds it, or, for `DEVICE/2`, what is its second link's
    /// own. `DEVICE/1` is the device itself.
    pub fn link(&self, name: &str) -> Result<DeviceSpec, RegistryError> {
        let numbered = name.split_once('/');
        let numbered = numbered.and_then(|(device, link)| Some((device, link.parse().ok()?)));
        let Some((device, number)) = numbered else {
            return self.device(name);
        };
        let spec = self.device(device)?;
        let count = spec.links().count();
        let place = usize::checked_sub(number, 1);
        let found = place.and_then(|place| spec.links().nth(place));
        found.ok_or_else(|| RegistryError::NoSuchLink {
            name: name.to_owned(),
            device: device.to_owned(),
            count,
        })
    }

    /// The device of a name, if it is not a VF: those cannot be changed by themselves. Without regard
    /// to `FERROCE_DEVICES`.
    pub fn card(&self, name: &str) -> Result<DeviceSpec, RegistryError> {
        if let Some(card) = self.defined_as(name)? {
            return Ok(card);
        }
        let devices = self.defined()?;
        let found = devices.iter().find(|spec| spec.name == name);
        Err(match found.and_then(|spec| spec.vf.as_ref()) {
            Some(vf) => RegistryError::IsVf {
                name: name.to_owned(),
                pf: vf.pf.name.clone(),
            },
            None => self.no_such(name, devices),
        })
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
        if self.defined()?.iter().any(|other| other.name == spec.name) {
            let name = spec.name.clone();
            return Err(RegistryError::Exists { name });
        }
        self.check_places(spec)?;
        self.write(spec)
    }

    /// Changes a device. Its personality changes at once, `nvconfig` acts from the next start of the
    /// firmware on, the rest for programs that open the device from now on; an address can only change, and a VF only go, while no process has it open.
    pub fn replace(&self, spec: &DeviceSpec) -> Result<(), RegistryError> {
        spec.check()?;
        let old = self.card(&spec.name)?;
        self.check_places(spec)?;
        let new = places(spec);
        let place = |it: &DeviceSpec| (it.name.clone(), it.address, it.port);
        let stays = |was: &DeviceSpec| {
            old.bond == spec.bond && new.iter().any(|is| place(is) == place(was))
        };
        let mut gone = places(&old);
        gone.retain(|was| !stays(was));
        self.remove_states(&gone)?;
        self.write(spec)?;
        let state = self.share(spec)?.state(0);
        let changed = state
            .set_personality(spec.personality)
            .and_then(|()| state.set_nvconfig(spec.nvconfig.clone()))
            .and_then(|()| state.forget_vfs(spec.vfs));
        changed.map_err(|error| RegistryError::File {
            path: self.state_path(spec),
            source: io::Error::from_raw_os_error(error.errno),
        })
    }

    /// Removes a device as if its card was pulled out: processes that have it or a VF of it open lose it, and
    /// are told.
    pub fn remove_by_force(&self, name: &str) -> Result<(), RegistryError> {
        for spec in self.places(name)?.iter().rev() {
            let path = self.state_path(spec);
            if path.exists() {
                let removed = self.share(spec)?.remove_by_force();
                removed.map_err(|source| RegistryError::File { path, source })?;
            }
        }
        self.remove_definition(name)
    }

    /// Removes a device that no process has open, with its counters and its VFs.
    pub fn remove(&self, name: &str) -> Result<(), RegistryError> {
        self.remove_states(&self.places(name)?)?;
        self.remove_definition(name)
    }

    /// Everything of a card that processes share: its functions, and its links.
    fn places(&self, name: &str) -> Result<Vec<DeviceSpec>, RegistryError> {
        let card = self.card(name)?;
        Ok(places(&card))
    }

    fn remove_definition(&self, name: &str) -> Result<(), RegistryError> {
        if name == DeviceSpec::DEFAULT_NAME {
            self.write_file(&self.removed_path(), "")?;
        }
        let path = self.spec_path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|source| RegistryError::File { path, source }),
        }
    }

    /// Removes what the processes of functions share, or, if one has a function open, nothing.
    fn remove_states(&self, functions: &[DeviceSpec]) -> Result<(), RegistryError> {
        // A PF is in use with its VFs, and they know better who is.
        for spec in functions.iter().rev() {
            if self.is_used(spec)? {
                let name = spec.name.clone();
                return Err(RegistryError::InUse { name });
            }
        }
        functions
            .iter()
            .rev()
            .try_for_each(|spec| self.remove_state(spec))
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

    /// Whether a process has a device, or a VF of it, open.
    pub fn is_used(&self, spec: &DeviceSpec) -> Result<bool, RegistryError> {
        let path = self.state_path(spec);
        SharedFile::is_used(&path).map_err(|source| RegistryError::File { path, source })
    }

    /// Opens the file of a device, and of a VF that of its PF; makes what is not there.
    pub fn share(&self, spec: &DeviceSpec) -> Result<SharedFile, RegistryError> {
        let card = match &spec.vf {
            Some(vf) => Some(Arc::new(self.share(&vf.pf)?)),
            None => None,
        };
        let path = self.state_path(spec);
        let shared = SharedFile::open(&path, spec, card.as_ref());
        shared.map_err(|source| RegistryError::state(&path, source))
    }

    /// The fault rules for all programs on the devices.
    pub fn faults(&self) -> Result<FaultTable, FaultError> {
        FaultTable::live(&self.directory)
    }

    /// Fault rules for the programs that this process starts, until the result is dropped.
    pub fn faults_of_run(&self, rules: &[Rule]) -> Result<FaultTable, FaultError> {
        FaultTable::of_run(&self.directory, rules)
    }

    /// Whether the names and addresses of a device and its VFs are free.
    fn check_places(&self, spec: &DeviceSpec) -> Result<(), RegistryError> {
        let mut others = self.defined()?;
        others.retain(|other| other.pf().name != spec.name);
        let mut others: Vec<_> = others.iter().flat_map(DeviceSpec::links).collect();
        for own in places(spec) {
            for other in &others {
                let (device, name) = (own.name.clone(), other.name.clone());
                if device == name {
                    return Err(RegistryError::Exists { name });
                }
                if (own.address, own.port) == (other.address, other.port) {
                    let address = own.address;
                    return Err(RegistryError::AddressTaken {
                        device,
                        address,
                        name,
                    });
                }
                let is_same_card = own.is_second_link();
                if let Some(pci) = own.pci.filter(|_| own.pci == other.pci && !is_same_card) {
                    return Err(RegistryError::PciTaken { device, pci, name });
                }
            }
            others.push(own);
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
        let written = NamedTempFile::new_in(&self.directory).and_then(|mut new| {
            new.write_all(text.as_bytes())?;
            new.persist(path)?;
            Ok(())
        });
        written.map_err(|source| {
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

    /// Where the processes of a device find what they share.
    pub(crate) fn state_path(&self, spec: &DeviceSpec) -> PathBuf {
        self.directory.join(file_name(spec.address, spec.port))
    }
}

/// The device whose file this is.
fn name_in(file: &OsString) -> Option<&str> {
    let name = file.to_str()?.strip_suffix(".toml")?;
    check_name(name).ok().map(|()| name)
}

fn places(card: &DeviceSpec) -> Vec<DeviceSpec> {
    card.functions()
        .iter()
        .flat_map(DeviceSpec::links)
        .collect()
}
