//! All settings of a card, as one immutable value. To change a setting, replace the value. Any
//! number of devices can share one.

mod personality;

use ferroce_adp::{AckTimeoutFloor, InvalidProfile, PolicyKind, Profile};
use ferroce_dcqcn::Params;
use ferroce_prm::roce_accl as reg;
use ferroce_prm::{Field, Image};
use ferroce_transport::Time;

pub use self::personality::Personality;
use crate::carrier::{Outages, Outlook, Schedule};
use crate::identity::Function;
use crate::impair::{Direction, Impairment};

/// All settings of a card at one time: registers, personality, impairments, congestion control.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// All functions' part of the register; see [`Self::accelerations`].
    roce_accl: Accelerations,
    /// `min_ack_timeout_limit_disabled` of each function: bit n is that of vhca_id n.
    floor_disabled: u128,
    personality: Personality,
    egress: Impairment,
    ingress: Impairment,
    pub(crate) congestion: Params,
    pub(crate) schedule: Schedule,
}

/// What [`Settings`] consist of, for hosts that keep them elsewhere than in memory of their own.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names say what they are")]
pub struct SettingsParts {
    pub roce_accl: [u8; ROCE_ACCL_BYTES],
    pub floor_disabled: u128,
    pub personality: Personality,
    pub egress: Impairment,
    pub ingress: Impairment,
    pub congestion: Params,
    pub schedule: Schedule,
}

impl Settings {
    /// After power-on.
    pub fn new(personality: Personality) -> Self {
        let personality = personality.clipped();
        Self {
            roce_accl: Accelerations::reset(personality.adaptive),
            floor_disabled: 0,
            personality,
            egress: Impairment::default(),
            ingress: Impairment::default(),
            congestion: Params::default(),
            schedule: Schedule::default(),
        }
    }

    /// Decodes settings. What makes no sense is replaced by something that does: a profile by none,
    /// an impairment by none, numbers by the nearest.
    pub fn from_parts(parts: SettingsParts) -> Self {
        let legal = |it: Impairment| match it.check() {
            Ok(()) => it,
            Err(_) => Impairment::default(),
        };
        Self {
            roce_accl: Accelerations::from_bytes(parts.roce_accl),
            floor_disabled: parts.floor_disabled,
            personality: parts.personality.clipped(),
            egress: legal(parts.egress),
            ingress: legal(parts.ingress),
            congestion: parts.congestion,
            schedule: parts.schedule,
        }
    }

    /// The inverse of [`Self::from_parts`].
    pub fn to_parts(&self) -> SettingsParts {
        SettingsParts {
            roce_accl: *self.roce_accl.bytes(),
            floor_disabled: self.floor_disabled,
            personality: self.personality,
            egress: self.egress.clone(),
            ingress: self.ingress.clone(),
            congestion: self.congestion.clone(),
            schedule: self.schedule.clone(),
        }
    }

    /// Behaviour of the firmware that no register controls.
    pub fn personality(&self) -> &Personality {
        &self.personality
    }

    pub(crate) fn set_personality(&mut self, personality: Personality) {
        self.personality = personality.clipped();
    }

    /// What the link does to packets in one direction. Blackouts are points in the host's time.
    pub fn impairment(&self, direction: Direction) -> &Impairment {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// `impairment` has been checked.
    pub(crate) fn set_impairment(&mut self, direction: Direction, impairment: Impairment) {
        match direction {
            Direction::Egress => self.egress = impairment,
            Direction::Ingress => self.ingress = impairment,
        }
    }

    /// When the port is down: by its schedule, and in blackouts that it notices.
    pub(crate) fn outages(&self) -> impl Iterator<Item = Outages> + Clone {
        let links = [&self.egress, &self.ingress].into_iter();
        let noticed = links.filter(|it| it.carrier).flat_map(|it| &it.blackouts);
        let noticed = noticed.map(|it| Outages::once(it.from, it.length));
        self.schedule.outages().iter().copied().chain(noticed)
    }

    /// These with the schedule of others.
    pub(crate) fn with_schedule_of(&self, other: &Self) -> Self {
        let mut own = self.clone();
        own.schedule.clone_from(&other.schedule);
        own
    }

    /// Whether the port is ever down.
    pub(crate) fn has_outages(&self) -> bool {
        self.outages().next().is_some()
    }

    /// How the port is at a point in time.
    pub(crate) fn outlook(&self, at: Time) -> Outlook {
        Outlook::of(self.outages(), at)
    }

    /// The parameters of congestion control.
    pub fn congestion(&self) -> &Params {
        &self.congestion
    }

    /// ROCE_ACCL after power-on, for all functions.
    pub(crate) fn reset_registers(&mut self) {
        self.roce_accl = Accelerations::reset(self.personality.adaptive);
        self.floor_disabled = 0;
    }

    pub(crate) fn forget_vfs(&mut self, from: u8) {
        let kept = u32::from(from) + 1;
        self.floor_disabled &= 1u128.checked_shl(kept).map_or(u128::MAX, |bit| bit - 1);
    }

    /// ROCE_ACCL as a function sees it: one register for the card, but for the bit that is each
    /// function's own.
    pub(crate) fn accelerations(&self, function: &Function) -> Accelerations {
        let mut register = self.roce_accl.clone();
        register.set_floor_disabled(self.floor_disabled & bit(function) != 0);
        register
    }

    /// Takes over ROCE_ACCL as a function has changed it. Whether that has changed it for others.
    pub(crate) fn set_accelerations(
        &mut self,
        function: &Function,
        mut register: Accelerations,
    ) -> bool {
        self.floor_disabled &= !bit(function);
        if register.floor_disabled() {
            self.floor_disabled |= bit(function);
        }
        register.set_floor_disabled(false);
        let differs = self.roce_accl != register;
        self.roce_accl = register;
        differs
    }

    /// How the timeouts of queue pairs follow each other.
    pub fn policy_kind(&self) -> PolicyKind {
        self.roce_accl.policy_kind(&self.personality)
    }

    /// The smallest ACK timeout of a function's queue pairs.
    pub(crate) fn ack_timeout_floor(&self, function: &Function) -> AckTimeoutFloor {
        if self.floor_disabled & bit(function) != 0 {
            AckTimeoutFloor::Disabled
        } else {
            AckTimeoutFloor::Enforced(self.personality.min_ack_timeout)
        }
    }

    /// The DSCP with which acknowledgements leave, if it is not that of their queue pair.
    pub(crate) fn ack_dscp(&self) -> Option<u8> {
        self.roce_accl.ack_dscp()
    }
}

/// The function's place in [`Settings::floor_disabled`].
fn bit(function: &Function) -> u128 {
    1 << function.vhca_id()
}

/// Bytes of ROCE_ACCL.
pub const ROCE_ACCL_BYTES: usize = reg::ROCE_ACCL.size();

const PROFILE_END: usize = reg::PROFILE_OFFSET + reg::PROFILE_SIZE;

/// The fields that a select bit opens.
pub(crate) struct Feature {
    pub(crate) select: &'static Field,
    pub(crate) values: &'static [&'static Field],
}

/// What this device has, beside profiles: each does what it says. The others are told to be
/// missing, and refused.
pub(crate) const FEATURES: &[Feature] = &[
    Feature {
        select: &reg::ROCE_ADP_RETRANS_FIELD_SELECT,
        values: &[&reg::ROCE_ADP_RETRANS_EN],
    },
    Feature {
        select: &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
        values: &[&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED],
    },
    Feature {
        select: &reg::ACK_DSCP_FORCE_FIELD_SELECT,
        values: &[&reg::ACK_DSCP_FORCE, &reg::ACK_DSCP],
    },
];

/// The ROCE_ACCL register: values, and which profile is active.
#[derive(Clone, Debug)]
pub(crate) struct Accelerations {
    image: Image<[u8; ROCE_ACCL_BYTES]>,
    /// The active one, parsed when it was written.
    profile: Option<Profile>,
}

impl PartialEq for Accelerations {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Accelerations {
    /// The register after a reset: adaptive retransmission on unless the personality says
    /// otherwise, no profile.
    pub(crate) fn reset(adaptive: bool) -> Self {
        let mut image = Self::from_bytes([0; ROCE_ACCL_BYTES]);
        image.put(&reg::ROCE_ADP_RETRANS_EN, adaptive.into());
        image.put(&reg::ADP_RETX_BASE_TIMEOUT_MIN, 4000);
        image.put(&reg::ADP_RETX_PROFILE_MAX_ID, 1);
        image.put(
            &reg::ADP_RETX_PROFILE_MAX_RANGE_NUM,
            reg::RANGE_NUM_MAX as u32,
        );
        for feature in FEATURES {
            image.put(feature.select, 1);
        }
        image.put(&reg::ADP_RETX_PROFILE_SELECT, 1);
        image
    }

    /// The register that has these bytes. A profile that no device can run counts as none.
    pub(crate) fn from_bytes(bytes: [u8; ROCE_ACCL_BYTES]) -> Self {
        let image = Image::new(&reg::ROCE_ACCL, bytes).expect("a whole register");
        let is_active = image.get(&reg::ADP_RETX_PROFILE_ID) != 0;
        let profile = is_active.then(|| profile_bytes(&bytes)).flatten();
        let profile = profile.and_then(|bytes| Profile::from_register(bytes).ok());
        Self { image, profile }
    }

    pub(crate) fn bytes(&self) -> &[u8; ROCE_ACCL_BYTES] {
        self.image.as_inner()
    }

    pub(crate) fn get(&self, field: &Field) -> u32 {
        self.image.get(field)
    }

    /// Fields and values that are known to fit, outside of the profile.
    pub(crate) fn put(&mut self, field: &Field, value: u32) {
        self.image
            .set(field, value)
            .expect("a value that fits its field");
    }

    /// Parses the profile that `bytes` of a whole register hold and makes it the active one, under
    /// its only number.
    pub(crate) fn activate(
        &mut self,
        bytes: &[u8; reg::PROFILE_SIZE],
    ) -> Result<(), InvalidProfile> {
        let profile = Profile::from_register(bytes)?;
        let mut own = *self.bytes();
        own[reg::PROFILE_OFFSET..PROFILE_END].copy_from_slice(&profile.to_register());
        self.image = Image::new(&reg::ROCE_ACCL, own).expect("a whole register");
        self.put(&reg::ADP_RETX_PROFILE_ID, 1);
        self.profile = Some(profile);
        Ok(())
    }

    /// The policy that the register's values stand for (D23).
    pub(crate) fn policy_kind(&self, personality: &Personality) -> PolicyKind {
        if !self.image.is_set(&reg::ROCE_ADP_RETRANS_EN) {
            return PolicyKind::Ib {
                multiplier: personality.ib_multiplier,
            };
        }
        let firmware = PolicyKind::Firmware {
            quantiser: personality.quantiser,
            initial_exponent: personality.initial_exponent,
        };
        self.profile.map_or(firmware, PolicyKind::Profile)
    }

    /// `min_ack_timeout_limit_disabled`.
    pub(crate) fn floor_disabled(&self) -> bool {
        self.image.is_set(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED)
    }

    pub(crate) fn set_floor_disabled(&mut self, disabled: bool) {
        self.put(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED, disabled.into());
    }

    /// The DSCP with which acknowledgements leave, if it is not that of their queue pair.
    pub(crate) fn ack_dscp(&self) -> Option<u8> {
        let is_forced = self.image.is_set(&reg::ACK_DSCP_FORCE);
        is_forced.then(|| self.image.get(&reg::ACK_DSCP) as u8)
    }
}

/// Where a register of that length, or longer, has its profile.
pub(crate) fn profile_bytes(bytes: &[u8]) -> Option<&[u8; reg::PROFILE_SIZE]> {
    bytes.get(reg::PROFILE_OFFSET..PROFILE_END)?.try_into().ok()
}
