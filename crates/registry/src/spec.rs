//! A device's properties, as in its file.

mod emulation;
mod error;
mod functions;
mod guid;
mod identity;
mod link;
mod links;
mod nvconfig;
mod pci;
mod priority;
mod speed;
mod window;

use std::net::{IpAddr, Ipv4Addr};

use ferroce_adp::DecTrigger;
use ferroce_dcqcn::Params;
use ferroce_device::{Personality, Settings};
use ferroce_prm::PciAddress;
use ferroce_wire::ROCE_V2_PORT;
use serde::{Deserialize, Serialize};

pub use self::emulation::Emulation;
pub use self::error::SpecError;
pub use self::functions::Vf;
pub use self::link::LinkSetting;
pub use self::priority::TrustSetting;
pub use self::speed::{LaneSpeed, PortSpeed};
pub use self::window::WindowSetting;

/// A device that several processes can attach to: its name, address and identity.
///
/// Written as TOML in a file that bears the device's name. Only the address must be there:
///
/// ```
/// use ferroce_registry::DeviceSpec;
///
/// let spec = DeviceSpec::from_toml("mlx5_0", "address = '127.0.0.2'").unwrap();
/// assert_eq!((spec.name.as_str(), spec.port), ("mlx5_0", 4791));
/// assert_eq!(spec.vendor_part_id, 4129);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Name, as `ibv_get_device_name` and `rdma dev` show it: letters, digits, `_` and `-`, 1 to
    /// [`Self::NAME_MAX`] of them.
    #[serde(skip)]
    pub name: String,
    /// Its address, and that of GID 0 and 1.
    pub address: IpAddr,
    /// UDP port of the device and of its peers.
    #[serde(default = "default::port")]
    pub port: u16,
    /// Node and system image GUID; made from the address if it is not there. In the file four groups
    /// of four hexadecimal digits.
    #[serde(default, with = "guid", skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<u64>,
    /// PCI address; that of its place among the devices if it is not there, see [`Self::pci_at`].
    #[serde(default, with = "pci", skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciAddress>,
    /// `vendor_id`, 24 bits. NVIDIA's unless set, because programs look their settings up by it.
    #[serde(default = "default::vendor_id")]
    pub vendor_id: u32,
    /// `vendor_part_id`. That of a ConnectX-7 unless set.
    #[serde(default = "default::vendor_part_id")]
    pub vendor_part_id: u32,
    /// `hw_ver`.
    #[serde(default)]
    pub hw_ver: u32,
    /// `fw_ver`, at most 63 bytes. High enough for all that tools ask of a ConnectX-7 unless set.
    #[serde(default = "default::fw_ver")]
    pub fw_ver: String,
    /// `board_id` (PSID), at most 63 bytes.
    #[serde(default = "default::board_id")]
    pub board_id: String,
    /// Packet lifetime code of a path, from which the connection manager computes a QP's timeout:
    /// 18 as in most kernels (default timeout 19), or 16 as in newer ones (18). 0 to 31.
    #[serde(default = "default::packet_lifetime")]
    pub packet_lifetime: u8,
    /// `local_ca_ack_delay`, 0 to 31.
    #[serde(default = "default::ca_ack_delay")]
    pub ca_ack_delay: u8,
    /// Speed of the port.
    #[serde(default)]
    pub speed: PortSpeed,
    /// How much is kept on the wire to one peer.
    #[serde(default, skip_serializing_if = "WindowSetting::is_auto")]
    pub window: WindowSetting,
    /// What carries packets to its peers.
    #[serde(default, skip_serializing_if = "LinkSetting::is_default")]
    pub link: LinkSetting,
    /// The header field that gives a packet its priority, of the device and its VFs.
    #[serde(default, skip_serializing_if = "TrustSetting::is_default")]
    pub trust: TrustSetting,
    /// The VLAN with whose tag the device and its VFs send, 1 to 4094; without it packets have no
    /// tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Seed of everything random in the device. 0, the default, leaves its numbers (queue pairs,
    /// keys, names of connections, first PSNs) to the system's randomness; with any other seed they
    /// are the same each time, and as easy to guess as the seed.
    #[serde(default)]
    pub seed: u32,
    /// How many VFs the card has, 0 to 127. They are devices, too, see [`Self::functions`].
    #[serde(default)]
    pub vfs: u8,
    /// Address of the first VF, from which those of the others count up; the one behind the
    /// device's own if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vf_address: Option<IpAddr>,
    /// Address of the card's second port, if it has one. A device with VFs has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_address: Option<IpAddr>,
    /// Whether both ports make a bond: programs see one port, with the device's address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bond: bool,
    /// If the device is itself a VF, of which card. Not in the file: VFs have none.
    #[serde(skip)]
    pub vf: Option<Vf>,
    /// The hardware that it looks like to this process. Not in the file.
    #[serde(skip)]
    pub emulation: Option<Emulation>,
    /// Behaviour of the firmware that no register controls.
    #[serde(default, with = "PersonalityFile")]
    pub personality: Personality,
    /// The parameters of congestion control with which the firmware starts. In the file by the names
    /// of mlxconfig without a port's suffix, and only those that differ from the firmware's defaults.
    #[serde(
        default,
        with = "nvconfig",
        skip_serializing_if = "nvconfig::is_default"
    )]
    pub nvconfig: Params,
}

mod default {
    use super::ROCE_V2_PORT;

    pub(super) fn port() -> u16 {
        ROCE_V2_PORT
    }
    pub(super) fn vendor_id() -> u32 {
        0x02c9
    }
    pub(super) fn vendor_part_id() -> u32 {
        4129
    }
    pub(super) fn fw_ver() -> String {
        "28.48.1000".to_owned()
    }
    pub(super) fn board_id() -> String {
        "FRC0000000001".to_owned()
    }
    pub(super) fn packet_lifetime() -> u8 {
        18
    }
    pub(super) fn ca_ack_delay() -> u8 {
        ferroce_device::limits::LOCAL_CA_ACK_DELAY
    }
}

/// [`Personality`] in the file; what is not there is the default.
#[derive(Serialize, Deserialize)]
#[serde(
    remote = "Personality",
    default = "Personality::default",
    deny_unknown_fields
)]
struct PersonalityFile {
    adaptive: bool,
    ib_multiplier: u8,
    min_ack_timeout: u8,
    quantiser: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_exponent: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_retry_count: Option<u8>,
    #[serde(with = "DecTriggerFile")]
    dec_trigger: DecTrigger,
    range_bound_exclusive: bool,
    rnr_ticks: bool,
    slow_restart: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DecTrigger", rename_all = "snake_case")]
enum DecTriggerFile {
    #[serde(alias = "per-progress")]
    PerProgress,
    #[serde(alias = "per-recovery")]
    PerRecovery,
}

impl DeviceSpec {
    /// The longest name: what `ibv_device` has room for.
    pub const NAME_MAX: usize = 63;
    /// The name of the device that is there without having been defined.
    pub const DEFAULT_NAME: &'static str = "fr0";

    /// A device with everything at its default.
    pub fn new(name: &str, address: IpAddr) -> Self {
        Self {
            name: name.to_owned(),
            address,
            port: default::port(),
            node_guid: None,
            pci: None,
            vendor_id: default::vendor_id(),
            vendor_part_id: default::vendor_part_id(),
            hw_ver: 0,
            fw_ver: default::fw_ver(),
            board_id: default::board_id(),
            packet_lifetime: default::packet_lifetime(),
            ca_ack_delay: default::ca_ack_delay(),
            speed: PortSpeed::default(),
            window: WindowSetting::default(),
            link: LinkSetting::default(),
            trust: TrustSetting::default(),
            vlan: None,
            seed: 0,
            vfs: 0,
            vf_address: None,
            second_address: None,
            bond: false,
            vf: None,
            emulation: None,
            personality: Personality::default(),
            nvconfig: Params::default(),
        }
    }

    /// The keys of a device's file, and of `ferroce dev set`.
    pub const KEYS: [&'static str; 23] = [
        "address",
        "port",
        "node_guid",
        "pci",
        "vendor_id",
        "vendor_part_id",
        "hw_ver",
        "fw_ver",
        "board_id",
        "packet_lifetime",
        "ca_ack_delay",
        "speed",
        "window",
        "link",
        "trust",
        "vlan",
        "seed",
        "vfs",
        "vf_address",
        "second_address",
        "bond",
        "personality",
        "nvconfig",
    ];

    /// Those of [`Self::KEYS`] that have parts, written `personality.adaptive`.
    pub const GROUPS: [&'static str; 2] = ["personality", "nvconfig"];

    /// What the card is set to after power-on.
    pub fn after_power_on(&self) -> Settings {
        Settings::new(self.personality).with_nvconfig(self.nvconfig.clone())
    }

    /// `fr0` on 127.0.0.1.
    pub fn default_device() -> Self {
        Self::new(Self::DEFAULT_NAME, Ipv4Addr::LOCALHOST.into())
    }

    /// A device from its file's content.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, SpecError> {
        let mut spec: Self = toml::from_str(text).map_err(|error| error::refused(text, &error))?;
        spec.name = name.to_owned();
        spec.check()?;
        Ok(spec)
    }

    /// The content of the device's file.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        self.check()?;
        Ok(toml::to_string(self).expect("a device's fields have a form in TOML"))
    }

    /// Node and system image GUID.
    pub fn guid(&self) -> u64 {
        self.node_guid.unwrap_or_else(|| guid::of(self.address))
    }

    /// PCI address of the device if this is its place in [`Registry::devices`], from 0.
    ///
    /// [`Registry::devices`]: crate::Registry::devices
    pub fn pci_at(&self, place: usize) -> PciAddress {
        self.pci.unwrap_or_else(|| pci::of_place(place))
    }

    /// Whether a device can be like this.
    pub fn check(&self) -> Result<(), SpecError> {
        let bad = |field, value: &dyn ToString, allowed| {
            let value = value.to_string();
            Err(SpecError::BadValue {
                field,
                value,
                allowed,
            })
        };
        check_name(&self.name)?;
        if self.address.is_unspecified() || self.address.is_multicast() {
            let allowed = "an address of this machine, for example 127.0.0.2";
            return bad("address", &self.address, allowed);
        }
        if self.port == 0 {
            return bad("port", &self.port, "1 to 65535; RoCEv2 has 4791");
        }
        if let Some(pci) = self.pci.filter(|pci| pci::is_given_out(*pci)) {
            let allowed = "any domain but 10fe, whose addresses devices get by themselves";
            return bad("pci", &pci, allowed);
        }
        if self.vendor_id >> 24 != 0 {
            return bad("vendor_id", &self.vendor_id, "0 to 0xffffff");
        }
        for (field, text) in [("fw_ver", &self.fw_ver), ("board_id", &self.board_id)] {
            if text.len() > 63 || text.chars().any(|c| c.is_control()) {
                return bad(field, text, "a text of at most 63 bytes in one line");
            }
        }
        let personality = &self.personality;
        let exponent = personality.initial_exponent.unwrap_or(0);
        for (field, value) in [
            ("packet_lifetime", self.packet_lifetime),
            ("ca_ack_delay", self.ca_ack_delay),
            ("personality.min_ack_timeout", personality.min_ack_timeout),
            ("personality.initial_exponent", exponent),
        ] {
            if value > 31 {
                return bad(field, &value, "0 to 31");
            }
        }
        if !(1..=4).contains(&personality.ib_multiplier) {
            let multiplier = personality.ib_multiplier;
            return bad("personality.ib_multiplier", &multiplier, "1 to 4");
        }
        self.check_vlan()?;
        self.check_links()?;
        self.check_vfs()
    }
}

/// Whether a device can have this name, which is also a file's.
pub(crate) fn check_name(name: &str) -> Result<(), SpecError> {
    let first = |c: char| c.is_ascii_alphanumeric();
    let other = |c: char| first(c) || matches!(c, '_' | '-');
    let is_name = (1..=DeviceSpec::NAME_MAX).contains(&name.len())
        && name.starts_with(first)
        && name.chars().all(other);
    if is_name {
        return Ok(());
    }
    Err(SpecError::BadValue {
        field: "name",
        value: name.to_owned(),
        allowed: "1 to 63 letters, digits, _ and -, a letter or digit first; for example mlx5_0",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_survives_its_file() {
        let mut spec = DeviceSpec::new("rxe-7", "fd00::7".parse().unwrap());
        let again = |spec: &DeviceSpec| DeviceSpec::from_toml(&spec.name, &spec.to_toml().unwrap());
        assert_eq!(again(&spec), Ok(spec.clone()));
        spec.node_guid = Some(u64::MAX);
        spec.pci = Some("1a:00.0".parse().unwrap());
        spec.speed = PortSpeed::G25;
        spec.window = "256KiB".parse().unwrap();
        spec.personality.initial_exponent = Some(3);
        spec.personality.dec_trigger = DecTrigger::PerRecovery;
        spec.nvconfig.assign("rpg_ai_rate=20").unwrap();
        assert_eq!(again(&spec), Ok(spec.clone()));
        // Both spellings, of which D17 has this one.
        let text = spec.to_toml().unwrap();
        assert!(text.contains("dec_trigger = \"per_recovery\""), "{text}");
        let text = text.replace("per_recovery", "per-recovery");
        assert_eq!(DeviceSpec::from_toml(&spec.name, &text), Ok(spec));
    }

    #[test]
    fn errors_name_their_cause() {
        let error = |text: &str| DeviceSpec::from_toml("a", text).unwrap_err().to_string();
        for (text, told) in [
            ("", "line 1: missing address"),
            ("address = '0.0.0.0'", "address is \"0.0.0.0\"; allowed:"),
            ("address = '::1'\nport = 0", "port is \"0\"; allowed: 1"),
            (
                "address = '::1'\ncolour = 1",
                "line 2: colour = 1: unknown key colour",
            ),
            ("address = '::1'\nspeed = '1G'", "expected one of 10G, 25G"),
            ("address = '::1'\npci = '10fe:00:00.0'", "any domain but"),
            ("address = '::1'\npci = '1a'", "pci is \"1a\""),
            ("address = '::1'\nca_ack_delay = 32", "allowed: 0 to 31"),
            ("address = '::1'\nnode_guid = '1'", "node_guid is \"1\""),
            (
                "address = '::1'\n[personality]\nadaptiv = 1",
                "unknown key adaptiv",
            ),
            (
                "address = '::1'\n[nvconfig]\nRPG_GD = 9",
                "invalid rpg_gd 9: must be 10 to 11",
            ),
            (
                "address = '::1'\n[nvconfig]\nrpg_gd = 10",
                "mlxconfig has no parameter rpg_gd; write RPG_GD",
            ),
            (
                "address = '::1'\n[nvconfig]\nRPG_GG = 10",
                "unknown parameter \"RPG_GG\"; did you mean RPG_GD?",
            ),
        ] {
            assert!(error(text).contains(told), "{text}: {}", error(text));
        }
        for name in ["", ".", "a/b", "-a", "a.b", "ü", &"a".repeat(64)] {
            let spec = DeviceSpec::new(name, Ipv4Addr::LOCALHOST.into());
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains("name is"), "{name}: {error}");
        }
    }
}
