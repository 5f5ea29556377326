//! The files of all devices.

use std::collections::BTreeMap;

use ferroce_device::Function;

use crate::card::{Card, Role, guid};
use crate::{fwctl, port};

/// Name of the file that marks a directory as one whose content may be replaced.
pub(crate) const MARK: &str = ".ferroce-sysfs";

/// PCI root of the devices below `devices/`: that of a domain that no machine uses for its own,
/// whatever the devices' addresses are.
pub const PCI_ROOT: &str = "pci10fe:00";

/// Below it, the functions as the directories of classes that are in them, by PCI address.
const CLASSES: &str = "classes";

/// Below it, the functions as the other functions of their cards see them, by PCI address.
const FUNCTIONS: &str = "functions";

/// The driver of real cards, without them.
const DRIVER: &str = "bus/pci/drivers/mlx5_core";

/// Where devices lie that are nothing but software.
const VIRTUAL: &str = "devices/virtual";

/// What programs read of an interface by way of its device.
const NETDEV_FILES: [&str; 10] = [
    "address",
    "carrier",
    "dev_id",
    "dev_port",
    "flags",
    "ifindex",
    "mtu",
    "operstate",
    "speed",
    "type",
];

/// Version of the kernel's verbs interface that programs look for.
const UVERBS_ABI: &str = "6";

/// A file or a link; directories follow from the paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    /// A file with this content.
    File(String),
    /// A directory, for those that may have nothing in them.
    Directory,
    /// A symbolic link to this target.
    Link(String),
}

impl Node {
    /// A file with one line.
    pub(crate) fn file(line: &str) -> Self {
        Self::File(format!("{line}\n"))
    }
}

/// The files of `/sys` that show these devices: paths from there, and what they are.
///
/// As in the kernel's tree the files lie below `devices/`, and `class/` leads to them by relative
/// links, so that the tree works wherever it is.
///
/// Programs that follow links come to an end in it, which they do not in the kernel's: the tree may
/// lie where they look for something else. Where the kernel has a link back to a directory further up,
/// a function has several directories, each of whose last component is its PCI address:
///
/// | below the PCI root | leads to | from |
/// |---|---|---|
/// | `classes/PCI` | the next | `class/*` |
/// | `PCI`: the function's own files | the next, of other functions | `device` |
/// | `functions/PCI` | nothing but files | `virtfnN`, `physfn` |
pub(crate) fn sys_tree(cards: &[Card]) -> Vec<(String, Node)> {
    let mut tree = vec![
        ("class/fwctl".to_owned(), Node::Directory),
        ("class/infiniband".to_owned(), Node::Directory),
        (
            "class/infiniband_verbs/abi_version".to_owned(),
            Node::file(UVERBS_ABI),
        ),
        (format!("devices/{PCI_ROOT}"), Node::Directory),
    ];
    if cards.iter().any(Card::has_driver) {
        tree.push((DRIVER.to_owned(), Node::Directory));
    }
    for (index, card) in cards.iter().enumerate() {
        match card.is_on_pci() {
            true => on_pci(&mut tree, index, card),
            false => virtual_device(&mut tree, index, card),
        }
    }
    tree
}

/// A device below its PCI function.
fn on_pci(tree: &mut Vec<(String, Node)>, index: usize, card: &Card) {
    let (pci, name) = (card.pci, &card.name);
    let function = format!("devices/{PCI_ROOT}/{pci}");
    let classes = format!("devices/{PCI_ROOT}/{CLASSES}/{pci}");
    let mut own = function_files(&function, card);
    let mut leading = vec![classes.clone()];
    if card.role.has_others() {
        let seen = format!("devices/{PCI_ROOT}/{FUNCTIONS}/{pci}");
        let class = |class| link(&seen, class, format!("../../{pci}/{class}"));
        tree.extend(["fwctl", "infiniband", "infiniband_verbs"].map(class));
        leading.push(seen);
    }
    for at in &leading {
        tree.extend(leading_to(&own, &function, at, &format!("../../{pci}")));
    }
    if card.has_driver() {
        let driver = |at, up| link(at, "driver", format!("{up}/{DRIVER}"));
        own.push(driver(&function, "../../.."));
        own.extend(leading.iter().map(|at| driver(at, "../../../..")));
    }
    tree.extend(own);
    tree.extend(sriov_links(&function, &card.role));

    let device = format!("infiniband/{name}");
    let mut files = device_files(&format!("{classes}/{device}"), card);
    files.extend(
        [
            ("board_id", card.board_id.clone()),
            ("hca_type", format!("MT{}", card.vendor_part_id)),
            ("hw_rev", format!("{:x}", card.hw_ver)),
        ]
        .map(|(file, text)| (format!("{classes}/{device}/{file}"), Node::file(&text))),
    );
    class_directory(tree, card, &device, files);
    let uverbs = format!("infiniband_verbs/uverbs{index}");
    let files = uverbs_files(&format!("{classes}/{uverbs}"), index, card);
    class_directory(tree, card, &uverbs, files.into());
    // Tools take the PCI address from the link itself or from where it leads.
    class_directory(tree, card, &format!("fwctl/fwctl{index}"), Vec::new());
}

/// The directory of a function in a class, `CLASS/NAME`, with these files in it: it leads to the
/// function, which has the files again.
fn class_directory(
    tree: &mut Vec<(String, Node)>,
    card: &Card,
    path: &str,
    files: Vec<(String, Node)>,
) {
    let pci = card.pci;
    let at = format!("devices/{PCI_ROOT}/{CLASSES}/{pci}/{path}");
    let again = format!("devices/{PCI_ROOT}/{pci}/{path}");
    tree.push((again.clone(), Node::Directory));
    let back = format!("../../../{CLASSES}/{pci}/{path}");
    tree.extend(leading_to(&files, &at, &again, &back));
    tree.extend(files);
    tree.push(link(&at, "device", format!("../../../../{pci}")));
    tree.push((format!("class/{path}"), Node::Link(format!("../../{at}"))));
}

/// Links in the directory `at` to what these files below `from` begin with there, by `back`.
fn leading_to(
    files: &[(String, Node)],
    from: &str,
    at: &str,
    back: &str,
) -> BTreeMap<String, Node> {
    let entry = |(path, _): &(String, Node)| {
        let below = path.strip_prefix(from)?.strip_prefix('/')?;
        let name = below.split('/').next()?;
        Some(link(at, name, format!("{back}/{name}")))
    };
    files.iter().filter_map(entry).collect()
}

fn link(at: &str, name: &str, target: String) -> (String, Node) {
    (format!("{at}/{name}"), Node::Link(target))
}

/// A device that is nothing but software, as Linux shows its own.
fn virtual_device(tree: &mut Vec<(String, Node)>, index: usize, card: &Card) {
    let name = &card.name;
    let device = format!("{VIRTUAL}/infiniband/{name}");
    tree.extend(device_files(&device, card));
    tree.push((
        format!("{device}/parent"),
        Node::file(card.netdevs().next().unwrap_or_default()),
    ));
    link_from_class(tree, "infiniband", name, &device);
    let uverbs = format!("{VIRTUAL}/infiniband_verbs/uverbs{index}");
    tree.extend(uverbs_files(&uverbs, index, card));
    link_from_class(tree, "infiniband_verbs", &format!("uverbs{index}"), &uverbs);
}

fn link_from_class(tree: &mut Vec<(String, Node)>, class: &str, name: &str, to: &str) {
    tree.push((
        format!("class/{class}/{name}"),
        Node::Link(format!("../../{to}")),
    ));
}

fn uverbs_files(at: &str, index: usize, card: &Card) -> [(String, Node); 3] {
    let file = |name: &str, text: &str| (format!("{at}/{name}"), Node::file(text));
    [
        file("ibdev", &card.name),
        file("abi_version", "1"),
        file("dev", &format!("231:{}", 192 + index)),
    ]
}

/// The files of `/dev`: paths from there, and what they are.
///
/// Nothing ever reads or writes those of verbs, programs only ask whether they are character
/// devices that they may open. Those of fwctl are files, see [`fwctl`].
pub(crate) fn dev_tree(cards: &[Card]) -> Vec<(String, Node)> {
    let null = || Node::Link("/dev/null".to_owned());
    let mut tree = vec![("infiniband/rdma_cm".to_owned(), null())];
    tree.push(("fwctl".to_owned(), Node::Directory));
    for (index, card) in cards.iter().enumerate() {
        tree.push((format!("infiniband/uverbs{index}"), null()));
        if card.is_on_pci() {
            let node = Node::file(&fwctl::node(&card.name));
            tree.push((format!("fwctl/fwctl{index}"), node));
        }
    }
    tree
}

fn function_files(at: &str, card: &Card) -> Vec<(String, Node)> {
    let file = |name: &str, text: &str| (format!("{at}/{name}"), Node::file(text));
    let mut files = vec![
        file("class", "0x020000"),
        file("current_link_speed", "16.0 GT/s PCIe"),
        file("current_link_width", "16"),
        file("device", &format!("0x{:04x}", card.vendor_part_id)),
        file("enable", "1"),
        file("local_cpulist", &cpu_list()),
        file("local_cpus", &cpu_mask()),
        file("max_link_speed", "16.0 GT/s PCIe"),
        file("max_link_width", "16"),
        file("numa_node", "-1"),
        file("revision", &format!("0x{:02x}", card.hw_ver)),
        file("subsystem_device", "0x0000"),
        file("subsystem_vendor", "0x15b3"),
        file("vendor", "0x15b3"),
        (format!("{at}/net"), Node::Directory),
    ];
    files.extend(sriov_files(at, &card.role));
    for netdev in card.netdevs() {
        // Not the interface's own directory, which leads all over the system.
        let of_system = |file| format!("/sys/class/net/{netdev}/{file}");
        let at = format!("{at}/net/{netdev}");
        files.extend(NETDEV_FILES.map(|file| link(&at, file, of_system(file))));
    }
    files
}

/// What makes a function a PF: Documentation/ABI/testing/sysfs-bus-pci.
fn sriov_files(at: &str, role: &Role) -> Vec<(String, Node)> {
    let file = |name: &str, text: String| (format!("{at}/{name}"), Node::file(&text));
    match role {
        Role::Pf {
            vfs, vf_part_id, ..
        } => vec![
            file("sriov_numvfs", vfs.to_string()),
            file("sriov_totalvfs", Function::VFS_MAX.to_string()),
            file("sriov_offset", "1".to_owned()),
            file("sriov_stride", "1".to_owned()),
            file("sriov_vf_device", format!("{vf_part_id:x}")),
        ],
        Role::Vf(_) => Vec::new(),
    }
}

/// The links between a PF and its VFs.
fn sriov_links(at: &str, role: &Role) -> Vec<(String, Node)> {
    let to = |name: &str, pci| link(at, name, format!("../{FUNCTIONS}/{pci}"));
    match role {
        Role::Pf { shown, .. } => {
            let virtfn = |(index, pci): &(u8, _)| to(&format!("virtfn{index}"), *pci);
            shown.iter().map(virtfn).collect()
        }
        Role::Vf(pf) => pf.iter().map(|pci| to("physfn", *pci)).collect(),
    }
}

fn device_files(at: &str, card: &Card) -> Vec<(String, Node)> {
    let file = |name: &str, text: &str| (format!("{at}/{name}"), Node::file(text));
    let mut files = vec![
        file("fw_ver", &card.fw_ver),
        file("node_desc", &card.description()),
        file("node_guid", &guid(card.node_guid)),
        file("node_type", "1: CA"),
        file("sys_image_guid", &guid(card.node_guid)),
    ];
    for (number, port) in (1..).zip(&card.ports) {
        let at = format!("{at}/ports/{number}");
        files.extend(port::files(&at, port, card.speed));
    }
    files
}

/// How many CPUs the process may use; the device is equally near to all of them.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn cpu_list() -> String {
    match cpus() {
        1 => "0".to_owned(),
        cpus => format!("0-{}", cpus - 1),
    }
}

/// Bit mask of the CPUs in groups of 32 bits, the highest first.
fn cpu_mask() -> String {
    let cpus = cpus();
    let group = |first: usize| match cpus - first {
        32.. => u32::MAX,
        bits => (1 << bits) - 1,
    };
    let groups: Vec<_> = (0..cpus)
        .step_by(32)
        .rev()
        .map(|first| format!("{:08x}", group(first)))
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ferroce_registry::Emulation;

    use super::*;
    use crate::card::example;

    #[test]
    fn links_lead_to_what_is_in_the_tree() {
        let [mut pf, mut vf] = [example("mlx5_7", 1), example("mlx5_7v0", 2)];
        vf.role = Role::Vf(Some(pf.pci));
        pf.role = Role::Pf {
            vfs: 1,
            shown: vec![(0, vf.pci)],
            vf_part_id: 0x101e,
        };
        let tree = sys_tree(&[example("fr0", 0), pf, vf]);
        let paths: BTreeMap<_, _> = tree.iter().cloned().collect();
        assert_eq!(paths.len(), tree.len(), "a path is given twice");
        for (path, node) in &tree {
            let Node::Link(target) = node else { continue };
            if target.starts_with('/') {
                continue;
            }
            let mut at: Vec<_> = Path::new(path).parent().unwrap().iter().collect();
            for step in Path::new(target) {
                if step == ".." {
                    at.pop().expect("a link stays in the tree");
                } else {
                    at.push(step);
                }
            }
            let target = at.join("/".as_ref()).into_string().unwrap();
            let prefix = format!("{target}/");
            assert!(
                paths.contains_key(&target) || paths.keys().any(|it| it.starts_with(&prefix)),
                "{path} leads to {target}"
            );
        }
    }

    #[test]
    fn a_device_looks_as_the_hardware_that_it_is_to_look_like() {
        let mut card = example("mlx5_0", 0);
        card.emulation = Some(Emulation::Mlx5);
        let mut soft = example("rxe0", 1);
        soft.emulation = Some(Emulation::Rxe);
        let tree: BTreeMap<_, _> = sys_tree(&[card, soft]).into_iter().collect();
        let at = "devices/pci10fe:00/classes/10fe:00:00.0/infiniband/mlx5_0";
        assert_eq!(tree[&format!("{at}/node_desc")], Node::file("host mlx5_0"));
        assert_eq!(tree[&format!("{at}/hca_type")], Node::file("MT4129"));
        let at = "devices/virtual/infiniband/rxe0";
        assert_eq!(tree[&format!("{at}/node_desc")], Node::file("rxe"));
        assert_eq!(tree[&format!("{at}/parent")], Node::file("lo"));
        assert_eq!(
            tree["class/infiniband/rxe0"],
            Node::Link(format!("../../{at}"))
        );
        for absent in ["board_id", "hca_type", "hw_rev", "device"] {
            assert!(!tree.contains_key(&format!("{at}/{absent}")), "{absent}");
        }
        assert!(!tree.keys().any(|path| path.contains("10fe:00:00.1")));
    }

    #[test]
    fn every_device_has_its_node() {
        let cards = [example("fr0", 0), example("fr1", 1)];
        let names: Vec<_> = dev_tree(&cards).into_iter().map(|(path, _)| path).collect();
        assert_eq!(
            names,
            [
                "infiniband/rdma_cm",
                "fwctl",
                "infiniband/uverbs0",
                "fwctl/fwctl0",
                "infiniband/uverbs1",
                "fwctl/fwctl1"
            ]
        );
        let tree: BTreeMap<_, _> = sys_tree(&cards).into_iter().collect();
        let ibdev = "devices/pci10fe:00/classes/10fe:00:00.1/infiniband_verbs/uverbs1/ibdev";
        assert_eq!(tree[ibdev], Node::file("fr1"));
    }
}
