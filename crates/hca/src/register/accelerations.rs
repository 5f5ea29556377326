use ferroce_adp::{AckTimeoutFloor, Policy, PolicyKind, Profile};
use ferroce_prm::roce_accl as reg;
use ferroce_prm::{Field, Image};

use super::{RegisterError, answer, parse};
use crate::device::Personality;

/// Bytes of ROCE_ACCL.
pub(crate) const ROCE_ACCL_BYTES: usize = reg::ROCE_ACCL.size();

/// The fields that a select bit opens.
struct Feature {
    select: &'static Field,
    values: &'static [&'static Field],
}

/// What this device has, beside profiles: each does what it says. The others are told to be
/// missing, and refused.
const FEATURES: &[Feature] = &[
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

fn has(select: &Field) -> bool {
    *select == reg::ADP_RETX_PROFILE_SELECT
        || FEATURES.iter().any(|feature| feature.select == select)
}

const PROFILE_END: usize = reg::PROFILE_OFFSET + reg::PROFILE_SIZE;

/// The ROCE_ACCL register: values, and which profile is active.
#[derive(Clone, Debug)]
pub(crate) struct Accelerations(Image<[u8; ROCE_ACCL_BYTES]>);

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

    pub(crate) fn from_bytes(bytes: [u8; ROCE_ACCL_BYTES]) -> Self {
        Self(Image::new(&reg::ROCE_ACCL, bytes).expect("a whole register"))
    }

    pub(crate) fn into_bytes(self) -> [u8; ROCE_ACCL_BYTES] {
        self.0.into_inner()
    }

    /// Fields and values that are known to fit.
    fn put(&mut self, field: &Field, value: u32) {
        self.0
            .set(field, value)
            .expect("a value that fits its field");
    }

    fn profile_bytes(bytes: &[u8]) -> Option<&[u8; reg::PROFILE_SIZE]> {
        bytes.get(reg::PROFILE_OFFSET..PROFILE_END)?.try_into().ok()
    }

    /// GET into `data`, which carries the index. Index 0 shows the active profile and its number
    /// (D20).
    pub(crate) fn query(&self, data: &mut [u8]) -> Result<(), RegisterError> {
        let request = parse(&reg::ROCE_ACCL, data)?;
        let index = request.get(&reg::ADP_RETX_PROFILE_ID);
        if index > 1 {
            return Err(RegisterError::BadIndex { index });
        }
        let mut shown = self.clone();
        if index != 0 {
            shown.put(&reg::ADP_RETX_PROFILE_ID, index);
        }
        answer(data, &shown.into_bytes());
        Ok(())
    }

    /// SET from `data`. Each select bit acts alone; all of it happens or nothing (D19).
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), RegisterError> {
        let request = parse(&reg::ROCE_ACCL, data)?;
        for &select in reg::SELECTS {
            if request.is_set(select) && !has(select) {
                return Err(RegisterError::BadParam {
                    field: select.name(),
                    value: 1,
                    reason: "this device has no such feature, and a query shows 0 here; write 0",
                });
            }
        }
        let mut next = self.clone();
        for feature in FEATURES {
            if request.is_set(feature.select) {
                for &field in feature.values {
                    if field.offset() >= data.len() {
                        return Err(RegisterError::BadLength {
                            register: reg::ROCE_ACCL.name(),
                            len: data.len(),
                            needs: format!("{} lies beyond its end; send 64 or 128", field.name()),
                        });
                    }
                    next.put(field, request.get(field));
                }
            }
        }
        if request.is_set(&reg::ADP_RETX_PROFILE_SELECT) && !next.is_unset_profile(&request) {
            next.set_profile(&request)?;
        }
        *self = next;
        Ok(())
    }

    /// Whether the request carries what a query of index 0 returned while no profile is active: the
    /// number 0 and an empty profile. mlxreg sets one field by reading the whole register and
    /// writing it back, select bits and all; that must not fail for the profile nobody set.
    fn is_unset_profile(&self, request: &Image<&[u8]>) -> bool {
        let profile = request.clone().into_inner().get(reg::PROFILE_OFFSET..);
        [
            self.0.get(&reg::ADP_RETX_PROFILE_ID),
            request.get(&reg::ADP_RETX_PROFILE_ID),
        ] == [0, 0]
            && profile.is_none_or(|rest| rest.iter().all(|byte| *byte == 0))
    }

    /// A good profile is active at once, for the whole device (D19).
    fn set_profile(&mut self, request: &Image<&[u8]>) -> Result<(), RegisterError> {
        match request.get(&reg::ADP_RETX_PROFILE_ID) {
            0 => {
                let reason = "0 stands for the firmware's own timeouts and cannot be written; \
                              write profile 1, or reset the device to go back to them";
                let field = "adp_retx_profile_id";
                return Err(RegisterError::BadParam {
                    field,
                    value: 0,
                    reason,
                });
            }
            1 => {}
            index => return Err(RegisterError::BadIndex { index }),
        }
        let bytes = request.clone().into_inner();
        let bytes = Self::profile_bytes(bytes).ok_or_else(|| RegisterError::BadLength {
            register: reg::ROCE_ACCL.name(),
            len: bytes.len(),
            needs: "the profile ends at byte 64; send 64 or 128".to_owned(),
        })?;
        let profile = Profile::from_register(bytes)?;
        let mut own = self.clone().into_bytes();
        own[reg::PROFILE_OFFSET..PROFILE_END].copy_from_slice(&profile.to_register());
        *self = Self::from_bytes(own);
        self.put(&reg::ADP_RETX_PROFILE_ID, 1);
        Ok(())
    }

    /// The policy that the register's values stand for (D23).
    fn policy_kind(&self, personality: &Personality) -> PolicyKind {
        if !self.0.is_set(&reg::ROCE_ADP_RETRANS_EN) {
            return PolicyKind::Ib {
                multiplier: personality.ib_multiplier,
            };
        }
        let firmware = PolicyKind::Firmware {
            quantiser: personality.quantiser,
            initial_exponent: personality.initial_exponent,
        };
        if self.0.get(&reg::ADP_RETX_PROFILE_ID) == 0 {
            return firmware;
        }
        let bytes = self.clone().into_bytes();
        // The bytes were checked when they were written.
        let profile = Self::profile_bytes(&bytes).map(Profile::from_register);
        profile
            .and_then(Result::ok)
            .map_or(firmware, PolicyKind::Profile)
    }

    /// `min_ack_timeout_limit_disabled`.
    pub(crate) fn floor_disabled(&self) -> bool {
        self.0.is_set(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED)
    }

    pub(crate) fn set_floor_disabled(&mut self, disabled: bool) {
        self.put(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED, disabled.into());
    }

    fn floor(&self, personality: &Personality) -> AckTimeoutFloor {
        if self.floor_disabled() {
            AckTimeoutFloor::Disabled
        } else {
            AckTimeoutFloor::Enforced(personality.min_ack_timeout)
        }
    }

    /// The DSCP with which acknowledgements leave, if it is not that of their queue pair.
    pub(crate) fn ack_dscp(&self) -> Option<u8> {
        let is_forced = self.0.is_set(&reg::ACK_DSCP_FORCE);
        is_forced.then(|| self.0.get(&reg::ACK_DSCP) as u8)
    }

    /// Brings `policy` up to what the register says.
    pub(crate) fn apply(&self, personality: &Personality, policy: &mut Policy) {
        policy.change(self.policy_kind(personality), self.floor(personality));
    }
}
