//! The place of a drill: devices that only its processes see.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process;

use ferroce_adp::Profile;
use ferroce_designer::command;
use ferroce_device::{Counter, Method};
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_registry::{DeviceSpec, Observer, Registry, RegistryError};
use tempfile::TempDir;

use super::plan::Rail;
use super::record::Look;
use crate::output::Failure;
use crate::run;

/// A directory of devices that goes with the drill. The user's own devices do not come into it.
#[derive(Debug)]
pub(super) struct Site {
    directory: TempDir,
    registry: Registry,
    hosts: Vec<Host>,
}

#[derive(Debug)]
struct Host {
    cards: Vec<DeviceSpec>,
    rails: Vec<Observer>,
}

/// How many ports each card has; each port is a rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ports {
    One,
    Two,
}

impl Ports {
    fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// A rail as programs name it: device and port.
    pub(super) fn name(self, rail: Rail) -> String {
        let port = rail.rail % self.count();
        let first = Rail {
            rail: rail.rail - port,
            ..rail
        };
        format!("{first}:{}", port + 1)
    }
}

impl Site {
    /// Adds a device for each rail of each host, or for each two of them.
    pub(super) fn new(hosts: usize, rails: usize, ports: Ports) -> Result<Self, Failure> {
        let base = match Path::new("/dev/shm") {
            memory if memory.is_dir() => memory.to_owned(),
            _ => std::env::temp_dir(),
        };
        let directory = tempfile::Builder::new()
            .prefix("ferroce-drill-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&base);
        let directory = directory.map_err(|error| {
            Failure::broken(format_args!(
                "cannot make a directory in {}: {error}",
                base.display()
            ))
        })?;
        let registry = Registry::within(directory.path())?;
        let hosts = (0..hosts).map(|host| {
            let cards = (0..rails).step_by(ports.count()).map(|rail| {
                let rail = Rail { host, rail };
                let spec = DeviceSpec::new(&rail.to_string(), address(rail));
                let second_address = spec.next_address().filter(|_| ports == Ports::Two);
                let spec = DeviceSpec {
                    second_address,
                    ..spec
                };
                registry.add(&spec)?;
                Ok::<_, RegistryError>(spec)
            });
            let cards = cards.collect::<Result<Vec<_>, _>>()?;
            let links = cards.iter().flat_map(DeviceSpec::links);
            let rails = links.map(|link| registry.observe_device(link));
            let rails = rails.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, RegistryError>(Host { cards, rails })
        });
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            directory,
            registry,
            hosts,
        })
    }

    /// Writes a profile into all devices.
    pub(super) fn set_profile(&self, profile: &Profile) -> Result<(), Failure> {
        for observer in self.observers() {
            let mut payload = command::payload(profile);
            let state = observer.state();
            state
                .access_register(ROCE_ACCL.id(), Method::Write, &mut payload)
                .map_err(|error| {
                    Failure::input(format_args!("{}: {error}", observer.spec().name))
                })?;
        }
        Ok(())
    }

    /// The variables of a host's process.
    pub(super) fn variables(&self, host: usize) -> Result<Vec<(&'static str, String)>, Failure> {
        let mut variables = run::variables(&self.registry, &self.hosts[host].cards)?;
        let directory = self.directory.path().display().to_string();
        variables.push(("FERROCE_DIR", directory));
        Ok(variables)
    }

    pub(super) fn rail(&self, rail: Rail) -> &Observer {
        &self.hosts[rail.host].rails[rail.rail]
    }

    fn observers(&self) -> impl Iterator<Item = &Observer> {
        self.hosts.iter().flat_map(|host| &host.rails)
    }

    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// All rails, those of each host together.
    pub(super) fn rails(&self) -> impl Iterator<Item = Rail> + use<> {
        let rails = self.hosts[0].rails.len();
        (0..self.hosts.len()).flat_map(move |host| (0..rails).map(move |rail| Rail { host, rail }))
    }

    /// What each rail has done so far.
    pub(super) fn look(&self) -> Vec<Look> {
        self.observers().map(look).collect()
    }
}

fn look(observer: &Observer) -> Look {
    let counter = |counter| observer.state().counter(counter);
    let timeouts = [
        Counter::TimeoutsIb,
        Counter::TimeoutsFirmware,
        Counter::TimeoutsProfile,
    ];
    Look {
        sent: counter(Counter::RdmaTxBytes),
        timeouts: timeouts.into_iter().map(counter).sum(),
        retransmitted: counter(Counter::RetransmittedPackets),
        failures: counter(Counter::ReqTransportRetriesExceeded),
        is_up: !observer.is_set_down(),
    }
}

/// A loopback address that no other drill of this machine has at the same time.
fn address(rail: Rail) -> IpAddr {
    let [_, _, high, low] = process::id().to_be_bytes();
    let last = 16 * rail.host + rail.rail + 1;
    Ipv4Addr::new(127, 128 | high, low, u8::try_from(last).unwrap_or(u8::MAX)).into()
}
