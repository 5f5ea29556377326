//! `[device]`.

use std::num::NonZeroU8;
use std::sync::Arc;

use ferroce_adp::builtin;
use ferroce_adp::file::Document;
use ferroce_adp::{AckTimeoutFloor, Policy, PolicyKind, Profile, QpTimeouts};
use ferroce_base::names::instead;
use ferroce_base::random::mix;
use ferroce_base::time::Span;
use ferroce_base::toml_file::{Reader, Section, plain_table};
use ferroce_base::units::TIME;
use ferroce_dcqcn::{Rate, Switches};
use ferroce_device::{
    Hca, HcaConfig, HostProfile, Mtu, Personality, Qos, Settings, SettingsParts, Trust, VlanId,
};
use ferroce_fabric::{NodeId, Topology, card};
use ferroce_prm::{Field, Image, roce_accl as reg};
use toml::de::DeValue;

use super::{congestion, keys};
use crate::files::{Resolver, resolve_text};

/// The NIC of every host.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// Registers, personality and congestion control.
    pub settings: Arc<Settings>,
    /// The name of the retransmission policy.
    pub policy_name: String,
    policy: Policy,
    /// Path MTU of all queue pairs.
    pub mtu: Mtu,
    /// Maximum bytes that a queue pair keeps in flight.
    pub window_bytes: u32,
    /// The same of one that congestion control limits: what it may send in this time.
    pub paced_window: Span,
    /// Packets of a message after which an acknowledgement is requested; `None` = a quarter of the window.
    pub ack_every: Option<NonZeroU8>,
    /// How packets get their priority, and the VLAN of all hosts.
    pub qos: Qos,
    /// Options of congestion control on which sources disagree.
    pub switches: Switches,
}

impl Device {
    /// Returns how long a queue pair tolerates a silent peer at most; `None` = forever.
    #[must_use]
    pub fn total_timeout(&self, qp: QpTimeouts) -> Option<Span> {
        self.policy.total(QpTimeouts {
            retry_cnt: self.extended_retry_count().unwrap_or(qp.retry_cnt),
            ..qp
        })
    }

    /// Returns whether packets take many paths.
    pub(super) fn routes_adaptively(&self) -> bool {
        let register = self.settings.to_parts().roce_accl;
        get(&register, &reg::ADAPTIVE_ROUTING_FORCED_EN) != 0
    }

    fn extended_retry_count(&self) -> Option<u8> {
        self.settings.personality().extended_retry_count
    }

    /// Sets another retransmission policy for all queue pairs, instead of the file's.
    pub fn set_policy(&mut self, name: &str, policy: Policy) {
        let mut parts = settings_of(&policy);
        let own = self.settings.to_parts();
        parts.congestion = own.congestion;
        for field in SWITCHES.map(|(_, field)| field).into_iter().chain([
            &reg::CC_BURST_SIZE,
            &reg::ACK_DSCP_FORCE,
            &reg::ACK_DSCP,
        ]) {
            set(&mut parts.roce_accl, field, get(&own.roce_accl, field));
        }
        parts.personality.extended_retry_count = self.extended_retry_count();
        self.settings = Arc::new(Settings::from_parts(parts));
        name.clone_into(&mut self.policy_name);
        self.policy = policy;
    }

    /// A device for each host of a topology.
    pub(super) fn devices(&self, topology: &Topology, seed: u64) -> impl Iterator<Item = Hca> {
        let mut rates = vec![Rate::default(); topology.hosts as usize];
        for cable in &topology.cables {
            for NodeId(node) in cable.ends {
                if let Some(rate) = rates.get_mut(node as usize) {
                    *rate = cable.rate.max(*rate);
                }
            }
        }
        let seed = mix(seed, 2);
        let mut profile = HostProfile::sockets();
        (0..).zip(rates).map(move |(host, rate)| {
            if profile.port_rate != Some(rate) {
                let card = HostProfile {
                    paced_window: self.paced_window,
                    ack_every: self.ack_every,
                    ..HostProfile::card(rate)
                };
                profile = card.into();
            }
            let config = HcaConfig {
                host: Arc::clone(&profile),
                speed: rate,
                window_bytes: self.window_bytes,
                qos: self.qos,
                switches: self.switches,
                ..card(mix(seed, host))
            };
            Hca::with_settings(config, Arc::clone(&self.settings))
        })
    }
}

pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    resolve: &mut Resolver<'_>,
) -> Device {
    let section = reader.section(root, "device", keys::DEVICE);
    let is_free = reader.flag(&section, "min_ack_timeout_limit_disabled") == Some(true);
    let mut personality = Personality::default();
    let profile = profile(reader, &section, resolve);
    let policy_name = match &profile {
        Some((name, _)) => {
            let idle = ["personality", "ib_multiplier"];
            let idle = [&idle[..], &OF_FIRMWARE].concat();
            reader.idle(&section, &idle, "has no effect under a profile");
            format!("profile {name}")
        }
        None => read_personality(reader, &section, &mut personality),
    };
    let profile = profile.and_then(|(_, profile)| profile);
    let mut policy = Policy::new(match (profile, personality.adaptive) {
        (Some(profile), _) => PolicyKind::Profile(profile),
        (None, false) => PolicyKind::Ib {
            multiplier: personality.ib_multiplier,
        },
        (None, true) => PolicyKind::Firmware {
            quantiser: personality.quantiser,
            initial_exponent: personality.initial_exponent,
        },
    });
    if is_free {
        policy.floor = AckTimeoutFloor::Disabled;
    }
    let mut parts = settings_of(&policy);
    let switches;
    (parts.congestion, switches) = congestion::read(reader, &section);
    parts.personality.extended_retry_count = personality.extended_retry_count;
    for (key, field) in SWITCHES {
        let is_on = reader.flag(&section, key) == Some(true);
        set(&mut parts.roce_accl, field, is_on.into());
    }
    let burst = reader.word(&section, "cc_burst_size", &BURSTS).unwrap_or(0);
    set(&mut parts.roce_accl, &reg::CC_BURST_SIZE, burst);
    if let Some(dscp) = reader.count8(&section, "ack_dscp", (0, 63)) {
        set(&mut parts.roce_accl, &reg::ACK_DSCP_FORCE, 1);
        set(&mut parts.roce_accl, &reg::ACK_DSCP, dscp.into());
    }
    let window = reader.size(&section, "window", (4096, 1 << 30));
    let paced_window = reader.quantity(&section, "paced_window", &TIME, (1_000, 1_000_000_000));
    let ack_every = reader.count8(&section, "ack_every", (1, 255));
    Device {
        settings: Arc::new(Settings::from_parts(parts)),
        policy_name,
        policy,
        mtu: mtu(reader, &section),
        window_bytes: window.unwrap_or(4 << 20) as u32,
        paced_window: paced_window.map_or(HostProfile::SOCKETS.paced_window, Span::from_nanos),
        ack_every: ack_every.and_then(NonZeroU8::new),
        qos: Qos {
            trust: trust(reader, &section).unwrap_or_default(),
            vlan: vlan(reader, &section),
        },
        switches,
    }
}

/// The field that the ports of a section trust, if it names one.
pub(super) fn trust<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Trust> {
    reader.word(section, "trust", &Trust::ALL.map(|it| (it.name(), it)))
}

fn vlan<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<VlanId> {
    let number = reader.count32(section, "vlan", (1, VlanId::MAX.into()))?;
    VlanId::new(number as u16)
}

/// What only the firmware's own ladder has.
const OF_FIRMWARE: [&str; 2] = ["initial_exponent", "quantiser"];

fn read_personality<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    personality: &mut Personality,
) -> String {
    let words = [("firmware", true), ("ib", false)];
    let adaptive = reader.word(section, "personality", &words);
    personality.adaptive = adaptive.unwrap_or(true);
    if let Some(multiplier) = reader.count8(section, "ib_multiplier", (1, 4)) {
        personality.ib_multiplier = multiplier;
    }
    personality.extended_retry_count = reader.count8(section, "extended_retry_count", (0, 255));
    personality.initial_exponent = reader.count8(section, "initial_exponent", (0, 31));
    if let Some(quantiser) = reader.flag(section, "quantiser") {
        personality.quantiser = quantiser;
    }
    let (idle, with): (&[&str], _) = match personality.adaptive {
        true => (&["ib_multiplier"], "goes with personality = \"ib\" only"),
        false => (&OF_FIRMWARE, "goes with personality = \"firmware\" only"),
    };
    reader.idle(section, idle, with);
    match personality.adaptive {
        true => "firmware ladder".into(),
        false => "plain InfiniBand timeouts".into(),
    }
}

fn mtu<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Mtu {
    let Some(bytes) = reader.count32(section, "mtu", (256, 4096)) else {
        return Mtu::Mtu4096;
    };
    Mtu::from_bytes(bytes).unwrap_or_else(|| {
        reader.invalid(
            section,
            "mtu",
            bytes,
            "must be 256, 512, 1024, 2048 or 4096",
        );
        Mtu::Mtu4096
    })
}

/// The profile that the file names or has, and its name; none if it is wrong.
fn profile<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    resolve: &mut Resolver<'_>,
) -> Option<(String, Option<Profile>)> {
    let value = reader.value(section, "profile")?;
    let (name, text) = match value.get_ref() {
        DeValue::Table(table) => {
            let text = plain_table(table).to_string();
            ("in the scenario".to_owned(), Some(text))
        }
        DeValue::String(name) => {
            let text = match builtin::named(name) {
                Some(built_in) => Some(built_in.toml.to_owned()),
                None => file(reader, section, name, resolve),
            };
            (name.to_string(), text)
        }
        _ => {
            reader.wrong_type(section, "profile", "a name, a file or a table", value);
            return None;
        }
    };
    let Some(text) = text else {
        return Some((name, None));
    };
    let document = match Document::parse(&text) {
        Ok(document) => document,
        Err(error) => {
            for problem in &error.problems {
                let line = problem
                    .line
                    .map_or(String::new(), |line| format!(" line {line}:"));
                reader.bad(section, "profile", format_args!("{name}:{line} {problem}"));
            }
            return Some((name, None));
        }
    };
    match document.profile() {
        Ok(profile) => Some((name, Some(profile))),
        Err(report) => {
            for violation in &report.violations {
                reader.bad(section, "profile", format_args!("{name}: {violation}"));
            }
            Some((name, None))
        }
    }
}

fn file<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    resolve: &mut Resolver<'_>,
) -> Option<String> {
    match resolve_text(resolve, name) {
        Ok(text) => Some(text),
        Err(error) => {
            let names = builtin::all().iter().map(|built_in| built_in.name);
            let instead = instead(name, names);
            let must =
                format!("cannot be read: {error}; name a file, or a built-in profile: {instead}");
            reader.invalid(section, "profile", format_args!("{name:?}"), must);
            None
        }
    }
}

/// Returns a device's settings with this policy and power-on values for everything else. The seed
/// of the policy is the device's own.
#[must_use]
pub fn settings_of(policy: &Policy) -> SettingsParts {
    let mut personality = Personality {
        dec_trigger: policy.dec_trigger,
        range_bound_exclusive: policy.range_bound_exclusive,
        ..Personality::default()
    };
    match policy.kind {
        PolicyKind::Firmware {
            quantiser,
            initial_exponent,
        } => (personality.quantiser, personality.initial_exponent) = (quantiser, initial_exponent),
        PolicyKind::Ib { multiplier } => {
            (personality.adaptive, personality.ib_multiplier) = (false, multiplier);
        }
        PolicyKind::Profile(_) => {}
    }
    if let AckTimeoutFloor::Enforced(code) = policy.floor {
        personality.min_ack_timeout = code;
    }
    let mut parts = Settings::new(personality).to_parts();
    if let PolicyKind::Profile(profile) = &policy.kind {
        activate(&mut parts.roce_accl, profile);
    }
    if policy.floor == AckTimeoutFloor::Disabled {
        parts.floor_disabled = u128::MAX;
    }
    parts
}

/// Makes a profile the active one of the register ROCE_ACCL.
fn activate(register: &mut [u8], profile: &Profile) {
    register[reg::PROFILE_OFFSET..][..reg::PROFILE_SIZE].copy_from_slice(&profile.to_register());
    set(register, &reg::ADP_RETX_PROFILE_ID, 1);
}

/// Keys that stand for a field of ROCE_ACCL, which a policy leaves alone.
const SWITCHES: [(&str, &Field); 5] = [
    ("selective_repeat", &reg::SELECTIVE_REPEAT_FORCED_EN),
    ("adaptive_routing", &reg::ADAPTIVE_ROUTING_FORCED_EN),
    ("slow_restart", &reg::ROCE_SLOW_RESTART_EN),
    ("slow_restart_idle", &reg::ROCE_SLOW_RESTART_IDLE_EN),
    ("tx_window", &reg::ROCE_TX_WINDOW_EN),
];

/// The sizes of `cc_burst_size`, by its codes.
const BURSTS: [(&str, u32); 4] = [("1.5KB", 7), ("4KB", 0), ("8KB", 1), ("16KB", 2)];

/// Writes a field of ROCE_ACCL that holds the value.
fn set(register: &mut [u8], field: &Field, value: u32) {
    if let Ok(mut image) = Image::new(&reg::ROCE_ACCL, register) {
        let set = image.set(field, value);
        debug_assert!(set.is_ok(), "{value} does not fit");
    }
}

fn get(register: &[u8], field: &Field) -> u32 {
    let image = Image::new(&reg::ROCE_ACCL, register);
    image.map_or(0, |image| image.get(field))
}
