use ferroce_adp::{AckTimeoutFloor, InvalidProfile, Policy, PolicyKind, Profile};
use ferroce_prm::roce_accl as reg;
use ferroce_prm::{Field, Image};
use thiserror::Error;

use crate::device::Personality;
use crate::state::WriteLockError;

/// Bytes of ROCE_ACCL.
pub(crate) const ROCE_ACCL_BYTES: usize = 0x80;

/// What an access register is asked to do; the numbers of the ACCESS_REG command's `op_mod`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Method {
    /// SET.
    Write = 0,
    /// GET.
    Query = 1,
}

/// Why a register access was refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device has no such register.
    #[error("register {id:#06x} is not supported")]
    NotSupported {
        /// The number given.
        id: u16,
    },
    /// The data is shorter than what is written, or not a multiple of 4, or too long.
    #[error("{len} bytes of register data; {needs}")]
    BadLength {
        /// Bytes given.
        len: usize,
        /// What is needed.
        needs: &'static str,
    },
    /// A field has a value the device does not accept (`BAD_PARAM`).
    #[error("{field} = {value}: {reason}")]
    BadParam {
        /// Name of the field.
        field: &'static str,
        /// Value given.
        value: u32,
        /// What would be right.
        reason: &'static str,
    },
    /// The profile is not one the device can run (`BAD_PARAM`).
    #[error(transparent)]
    BadProfile(#[from] InvalidProfile),
    /// No profile has this index (`BAD_INDEX`).
    #[error("adp_retx_profile_id = {index}: this device has profile 1 only")]
    BadIndex {
        /// The index given.
        index: u32,
    },
    /// See [`WriteLockError`].
    #[error(transparent)]
    Lock(#[from] WriteLockError),
}

/// The feature that a select bit opens: it can be read back, and where the device acts on it the
/// field is looked up by [`Accelerations::policy_kind`] and [`Accelerations::floor`].
struct Feature {
    select: &'static Field,
    values: &'static [&'static Field],
}

/// What this device lets be configured. The features it does not model keep their values, so that
/// tools see what they wrote; those a query of a real card marks unsupported are not here.
const FEATURES: &[Feature] = &[
    Feature {
        select: &reg::ROCE_ADP_RETRANS_FIELD_SELECT,
        values: &[&reg::ROCE_ADP_RETRANS_EN],
    },
    Feature {
        select: &reg::ROCE_TX_WINDOW_FIELD_SELECT,
        values: &[&reg::ROCE_TX_WINDOW_EN],
    },
    Feature {
        select: &reg::ROCE_SLOW_RESTART_FIELD_SELECT,
        values: &[&reg::ROCE_SLOW_RESTART_EN],
    },
    Feature {
        select: &reg::ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
        values: &[&reg::ROCE_SLOW_RESTART_IDLE_EN],
    },
    Feature {
        select: &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
        values: &[&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED],
    },
    Feature {
        select: &reg::SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT,
        values: &[&reg::SELECTIVE_REPEAT_FORCED_EN],
    },
    Feature {
        select: &reg::ACK_DSCP_FORCE_FIELD_SELECT,
        values: &[&reg::ACK_DSCP_FORCE, &reg::ACK_DSCP],
    },
    Feature {
        select: &reg::CC_BURST_SIZE_SELECT,
        values: &[&reg::CC_BURST_SIZE],
    },
    Feature {
        select: &reg::IFA2_TURN_AROUND_SELECT,
        values: &[&reg::IFA2_TURN_AROUND_EN],
    },
];

const PROFILE_END: usize = reg::PROFILE_OFFSET + reg::PROFILE_SIZE;

/// The ROCE_ACCL register: values, and which profile is active.
#[derive(Clone, Debug)]
pub(crate) struct Accelerations(Image<[u8; ROCE_ACCL_BYTES]>);

impl Accelerations {
    /// The register after a reset: adaptive retransmission and slow restart on, no profile
    /// (measured on ConnectX-6).
    pub(crate) fn reset(adaptive: bool) -> Self {
        let mut image = Self::from_bytes([0; ROCE_ACCL_BYTES]);
        image.put(&reg::ROCE_ADP_RETRANS_EN, adaptive.into());
        image.put(&reg::ROCE_SLOW_RESTART_EN, 1);
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
        let request = parse(data)?;
        let index = request.get(&reg::ADP_RETX_PROFILE_ID);
        if index > 1 {
            return Err(RegisterError::BadIndex { index });
        }
        let mut answer = self.clone();
        if index != 0 {
            answer.put(&reg::ADP_RETX_PROFILE_ID, index);
        }
        let len = data.len();
        data.copy_from_slice(&answer.into_bytes()[..len]);
        Ok(())
    }

    /// SET from `data`. Each select bit acts alone; all of it happens or nothing (D19).
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), RegisterError> {
        let request = parse(data)?;
        let mut next = self.clone();
        for feature in FEATURES {
            if request.is_set(feature.select) {
                for &field in feature.values {
                    if field.offset() >= data.len() {
                        let needs = "the selected values lie beyond its end";
                        return Err(RegisterError::BadLength {
                            len: data.len(),
                            needs,
                        });
                    }
                    next.put(field, request.get(field));
                }
            }
        }
        let burst = next.0.get(&reg::CC_BURST_SIZE);
        if !matches!(burst, 0..=2 | 7) {
            let reason = "allowed are 0 (4 KB), 1 (8 KB), 2 (16 KB) and 7 (1.5 KB)";
            return Err(RegisterError::BadParam {
                field: "cc_burst_size",
                value: burst,
                reason,
            });
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
        let needs = "a profile ends at byte 64";
        let bytes = Self::profile_bytes(bytes).ok_or(RegisterError::BadLength {
            len: bytes.len(),
            needs,
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

    fn floor(&self, personality: &Personality) -> AckTimeoutFloor {
        if self.0.is_set(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED) {
            AckTimeoutFloor::Disabled
        } else {
            AckTimeoutFloor::Enforced(personality.min_ack_timeout)
        }
    }

    /// Brings `policy` up to what the register says. Its epoch rises if the kind of policy
    /// changes, so that queue pairs draw again (D22).
    pub(crate) fn apply(&self, personality: &Personality, policy: &mut Policy) {
        policy.floor = self.floor(personality);
        let kind = self.policy_kind(personality);
        if kind != policy.kind {
            policy.kind = kind;
            policy.epoch = policy.epoch.wrapping_add(1);
        }
    }
}

fn parse(data: &[u8]) -> Result<Image<&[u8]>, RegisterError> {
    let needs = "ROCE_ACCL takes 4 to 128 bytes in multiples of 4";
    Image::new(&reg::ROCE_ACCL, data).map_err(|e| RegisterError::BadLength { len: e.len, needs })
}
