//! ROCE_ACCL as a value: its bytes, and the profile that they hold.

use ferroce_adp::{InvalidProfile, PolicyKind, Profile};
use ferroce_prm::roce_accl as reg;
use ferroce_prm::{Field, Image};

use super::Personality;

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
