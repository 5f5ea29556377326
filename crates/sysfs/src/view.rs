//! The devices of a registry, shown in a directory.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use ferroce_registry::{DeviceSpec, Observer, PciAddress, Registry, RegistryError};
use thiserror::Error;

use crate::card::{Card, Port, Role};
use crate::tree::{Node, dev_tree, sys_tree};
use crate::write::{WriteError, Writer};
use crate::{congestion, netdev};

/// Why devices cannot be shown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ViewError {
    /// See [`RegistryError`].
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// See [`WriteError`].
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Devices that are shown in a directory.
#[derive(Debug)]
pub struct View {
    root: PathBuf,
    writer: Writer,
    devices: Vec<Device>,
    host: String,
    layout: Layout,
}

#[derive(Debug)]
struct Device {
    observer: Observer,
    /// Of its ports, each with the name of its interface.
    ports: Vec<(Observer, String)>,
    pci: PciAddress,
    role: Role,
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    /// What is in `/sys`.
    Sys,
    /// `sys` and `dev`.
    Root,
}

impl View {
    /// Shows these devices to programs that are led to it: the directory is the registry's own, one
    /// for each choice of devices, and has `sys` and `dev` in it.
    ///
    /// # Errors
    ///
    /// Returns an error if a device cannot be read, or the directory cannot be written.
    pub fn open(registry: &Registry, devices: &[DeviceSpec]) -> Result<Self, ViewError> {
        let mut hasher = DefaultHasher::new();
        for spec in devices {
            (&spec.name, spec.address, spec.port, spec.emulation).hash(&mut hasher);
            (spec.second_address, spec.bond).hash(&mut hasher);
            (spec.vendor_part_id, &spec.fw_ver).hash(&mut hasher);
        }
        let root = registry
            .directory()
            .join(format!("view-{:016x}", hasher.finish()));
        Self::with(root, registry, devices, Layout::Root)
    }

    /// Shows these devices in a directory as `/sys` does.
    ///
    /// # Errors
    ///
    /// Returns an error if a device cannot be read, or the directory cannot be written.
    pub fn sys(
        root: &Path,
        registry: &Registry,
        devices: &[DeviceSpec],
    ) -> Result<Self, ViewError> {
        Self::with(root.to_owned(), registry, devices, Layout::Sys)
    }

    fn with(
        root: PathBuf,
        registry: &Registry,
        devices: &[DeviceSpec],
        layout: Layout,
    ) -> Result<Self, ViewError> {
        let port = |spec: DeviceSpec| {
            let netdev = netdev::of(spec.address);
            Ok::<_, ViewError>((registry.observe_device(spec)?, netdev))
        };
        let device = |(place, spec): (usize, &DeviceSpec)| {
            Ok::<_, ViewError>(Device {
                observer: registry.observe_device(spec.clone())?,
                ports: spec.ports_of_card().map(port).collect::<Result<_, _>>()?,
                pci: spec.pci_at(place),
                role: role(spec, devices),
            })
        };
        let view = Self {
            writer: Writer::open(&root)?,
            devices: devices
                .iter()
                .enumerate()
                .map(device)
                .collect::<Result<_, _>>()?,
            root,
            host: host(),
            layout,
        };
        view.refresh()?;
        Ok(view)
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Removes all that was written; the directory stays, with nothing in it.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be written.
    pub fn clear(&self) -> Result<(), WriteError> {
        self.writer.clear()
    }

    /// Writes what has changed since the last time.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be written.
    pub fn refresh(&self) -> Result<(), WriteError> {
        self.writer.write(|| {
            let cards: Vec<_> = self.devices.iter().map(|it| it.card(&self.host)).collect();
            match self.layout {
                Layout::Sys => sys_tree(&cards),
                Layout::Root => {
                    let (sys, dev) = (
                        below("sys", program_tree(&cards)),
                        below("dev", dev_tree(&cards)),
                    );
                    sys.chain(dev).collect()
                }
            }
        })
    }
}

/// The files of `/sys` for programs, which set things, too. Exporters do not, and look into every
/// directory of `class/net`.
fn program_tree(cards: &[Card]) -> Vec<(String, Node)> {
    let mut tree = sys_tree(cards);
    // Soft-RoCE has none.
    let with_parameters = || cards.iter().filter(|card| card.is_on_pci());
    tree.extend(with_parameters().flat_map(congestion::files));
    tree.extend(congestion::links(with_parameters()));
    tree
}

/// This host's name.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

fn below(
    directory: &'static str,
    tree: Vec<(String, Node)>,
) -> impl Iterator<Item = (String, Node)> {
    let under = move |(path, node)| (format!("{directory}/{path}"), node);
    tree.into_iter().map(under)
}

/// What a device is among those that are shown.
fn role(spec: &DeviceSpec, devices: &[DeviceSpec]) -> Role {
    let placed = || devices.iter().enumerate();
    if spec.vf.is_some() {
        let pf = placed().find(|(_, other)| other.vf.is_none() && other.name == spec.pf().name);
        return Role::Vf(pf.map(|(place, pf)| pf.pci_at(place)));
    }
    let vf = |(place, other): (usize, &DeviceSpec)| {
        let vf = other.vf.as_ref().filter(|vf| vf.pf.name == spec.name)?;
        Some((vf.index, other.pci_at(place)))
    };
    Role::Pf {
        vfs: spec.vfs,
        shown: placed().filter_map(vf).collect(),
        vf_part_id: spec.vf_part_id(),
    }
}

impl Device {
    fn card(&self, host: &str) -> Card {
        let spec = self.observer.spec();
        Card {
            name: spec.name.clone(),
            pci: self.pci,
            role: self.role.clone(),
            emulation: spec.emulation,
            host: host.to_owned(),
            node_guid: spec.guid(),
            vendor_part_id: spec.vendor_part_id,
            hw_ver: spec.hw_ver,
            fw_ver: spec.fw_ver.clone(),
            board_id: spec.board_id.clone(),
            ports: self.ports.iter().map(port_of).collect(),
            speed: spec.speed,
            congestion: self.observer.state().congestion(),
        }
    }
}

fn port_of((observer, netdev): &(Observer, String)) -> Port {
    let look = observer.port();
    Port {
        gids: observer.gids(),
        netdev: netdev.clone(),
        is_up: look.is_up,
        link_downed: look.downed,
        counters: observer.counters(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;

    use ferroce_registry::Emulation;

    use super::*;
    use crate::card::example;

    /// A PF with two VFs, and a card of its own.
    fn with_vfs(emulation: Option<Emulation>) -> Vec<Card> {
        let mut cards: Vec<_> = ["fr0", "fr0v0", "fr0v1", "fr1"]
            .iter()
            .enumerate()
            .map(|(place, name)| example(name, place))
            .collect();
        let pci: Vec<_> = cards.iter().map(|card| card.pci).collect();
        for card in &mut cards[1..3] {
            card.role = Role::Vf(Some(pci[0]));
        }
        cards[0].role = Role::Pf {
            vfs: 2,
            shown: vec![(0, pci[1]), (1, pci[2])],
            vf_part_id: 0x101e,
        };
        for card in &mut cards {
            card.emulation = emulation;
        }
        cards
    }

    /// Visits all directories that links lead to, from one that is `inside` those given.
    fn walk(at: &Path, inside: &mut Vec<PathBuf>, seen: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let real = at.canonicalize()?;
        assert!(!inside.contains(&real), "{} is in itself", at.display());
        seen.insert(real.clone());
        inside.push(real);
        for entry in fs::read_dir(at)? {
            let path = entry?.path();
            if path.is_dir() {
                walk(&path, inside, seen)?;
            }
        }
        inside.pop();
        Ok(())
    }

    #[test]
    fn links_stay_in_the_tree_and_end() {
        let alone = vec![example("fr0", 0), example("fr1", 1)];
        let mut soft = alone.clone();
        soft[0].emulation = Some(Emulation::Rxe);
        let as_cards = with_vfs(Some(Emulation::Mlx5));
        for cards in [Vec::new(), alone, soft, with_vfs(None), as_cards] {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().canonicalize().unwrap();
            let writer = Writer::open(&root).unwrap();
            writer
                .write(|| {
                    let (sys, dev) = (program_tree(&cards), dev_tree(&cards));
                    below("sys", sys).chain(below("dev", dev)).collect()
                })
                .unwrap();
            let mut seen = BTreeSet::new();
            walk(&root, &mut Vec::new(), &mut seen).unwrap();
            let outside: Vec<_> = seen.iter().filter(|it| !it.starts_with(&root)).collect();
            assert!(outside.is_empty(), "{outside:?}");
        }
    }

    #[test]
    fn links_of_a_card_lead_to_the_pci_addresses_of_its_functions() {
        let cards = with_vfs(None);
        let place = tempfile::tempdir().unwrap();
        let writer = Writer::open(place.path()).unwrap();
        writer.write(|| program_tree(&cards)).unwrap();
        let class = place.path().join("class");
        let device = |name: &str| class.join("infiniband").join(name).join("device");
        for (link, card) in [
            (device("fr0"), 0),
            (device("fr0").join("virtfn1"), 2),
            (device("fr0v1").join("physfn"), 0),
            (class.join("fwctl/fwctl3/device"), 3),
            (class.join("infiniband_verbs/uverbs1/device"), 1),
        ] {
            let pci = cards[card].pci.to_string();
            let (text, real) = (fs::read_link(&link).unwrap(), link.canonicalize().unwrap());
            for path in [text, real] {
                assert_eq!(path.file_name().unwrap(), &*pci, "{}", link.display());
            }
            let name = &cards[card].name;
            for file in [
                "vendor".to_owned(),
                "net/lo/mtu".to_owned(),
                format!("infiniband/{name}/node_guid"),
                format!("infiniband/{name}/ports/1/state"),
            ] {
                let path = link.join(&file);
                assert!(path.is_file(), "{}", path.display());
            }
        }
        let up = class.join("infiniband/fr0").canonicalize().unwrap();
        let function = up.ancestors().nth(2).unwrap();
        assert_eq!(function.file_name().unwrap(), &*cards[0].pci.to_string());
        assert!(function.join("local_cpus").is_file());
    }
}
