//! ROCE_ACCL: what this device has of it, what its fields stand for, queries and writes.

use ferroce_adp::{AckTimeoutFloor, PolicyKind, Profile};
use ferroce_prm::roce_accl as reg;
use ferroce_prm::{Field, Image};

use super::Personality;
use crate::card::{Feature, Features};
use crate::error::RegisterError;
use crate::identity::{Function, Identity};

/// Bytes of ROCE_ACCL.
pub const ROCE_ACCL_BYTES: usize = reg::ROCE_ACCL.size();

/// What devices have, unless their card does not have it: each does what it says, except IFA2, whose
/// packets no device makes; its field is kept, for tools that set what a card's query shows. The others
/// are told to be missing, and refused.
const FEATURES: [(&Field, Feature); 11] = [
    (
        &reg::ROCE_ADP_RETRANS_FIELD_SELECT,
        Feature::AdaptiveRetransmission,
    ),
    (
        &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
        Feature::MinAckTimeout,
    ),
    (
        &reg::SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT,
        Feature::SelectiveRepeat,
    ),
    (
        &reg::ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT,
        Feature::AdaptiveRouting,
    ),
    (&reg::ACK_DSCP_FORCE_FIELD_SELECT, Feature::AckDscp),
    (
        &reg::ROCE_TX_WINDOW_FIELD_SELECT,
        Feature::TransmissionWindow,
    ),
    (&reg::ROCE_SLOW_RESTART_FIELD_SELECT, Feature::SlowRestart),
    (
        &reg::ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
        Feature::SlowRestartIdle,
    ),
    (&reg::CC_BURST_SIZE_SELECT, Feature::BurstSize),
    (&reg::IFA2_TURN_AROUND_SELECT, Feature::Ifa2TurnAround),
    (PROFILE, Feature::Profiles),
];
/// What a register without profiles does not show, besides the fields that the select bit opens.
const ABOUT_PROFILES: [&Field; 3] = [
    &reg::ADP_RETX_BASE_TIMEOUT_MIN,
    &reg::ADP_RETX_PROFILE_MAX_ID,
    &reg::ADP_RETX_PROFILE_MAX_RANGE_NUM,
];
const PROFILE: &Field = &reg::ADP_RETX_PROFILE_SELECT;
const PROFILE_END: usize = reg::PROFILE_OFFSET + reg::PROFILE_SIZE;

/// The register of a card: values, which profile is active, and what is each function's own.
#[derive(Clone, Debug)]
pub(crate) struct Accelerations {
    /// As all functions see it, with `min_ack_timeout_limit_disabled` left out.
    image: Image<[u8; ROCE_ACCL_BYTES]>,
    /// The active one, parsed when it was written.
    profile: Option<Profile>,
    /// `min_ack_timeout_limit_disabled` of each function: bit n is that of vhca_id n.
    floor_disabled: u128,
}

impl PartialEq for Accelerations {
    fn eq(&self, other: &Self) -> bool {
        let values = |it: &Self| (*it.bytes(), it.floor_disabled);
        values(self) == values(other)
    }
}

impl Accelerations {
    /// The register after a reset: adaptive retransmission and slow restart on unless the personality
    /// says otherwise, no profile.
    pub(crate) fn reset(personality: &Personality) -> Self {
        let mut register = Self::from_parts([0; ROCE_ACCL_BYTES], 0);
        register.put(&reg::ROCE_ADP_RETRANS_EN, personality.adaptive.into());
        register.put(&reg::ROCE_SLOW_RESTART_EN, personality.slow_restart.into());
        register.put(&reg::ADP_RETX_BASE_TIMEOUT_MIN, 4000);
        register.put(&reg::ADP_RETX_PROFILE_MAX_ID, 1);
        register.put(
            &reg::ADP_RETX_PROFILE_MAX_RANGE_NUM,
            reg::RANGE_NUM_MAX as u32,
        );
        for (select, _) in FEATURES {
            register.put(select, 1);
        }
        register
    }

    /// The register that has these bytes. A profile that no device can run counts as none.
    pub(crate) fn from_parts(bytes: [u8; ROCE_ACCL_BYTES], floor_disabled: u128) -> Self {
        let image = Image::new(&reg::ROCE_ACCL, bytes).expect("a whole register");
        let is_active = image.get(&reg::ADP_RETX_PROFILE_ID) != 0;
        let profile = is_active.then(|| profile_bytes(&bytes)).flatten();
        let profile = profile.and_then(|bytes| Profile::from_register(bytes).ok());
        Self {
            image,
            profile,
            floor_disabled,
        }
    }

    /// The bytes of the first of [`Self::from_parts`].
    pub(crate) fn bytes(&self) -> &[u8; ROCE_ACCL_BYTES] {
        self.image.as_inner()
    }

    /// The second of [`Self::from_parts`].
    pub(crate) fn floors_disabled(&self) -> u128 {
        self.floor_disabled
    }

    /// The register of a card that has these features: nothing of the others is set or shown.
    pub(crate) fn of_card(&self, features: Features) -> Self {
        let mut own = self.clone();
        for (select, _) in FEATURES.iter().filter(|(_, it)| !features.has(*it)) {
            let opened = |field: &&Field| reg::select_of(field) == Some(select);
            let fields = reg::ROCE_ACCL.fields().iter().copied().filter(opened);
            fields.chain([*select]).for_each(|field| own.put(field, 0));
        }
        if !features.has(Feature::Profiles) {
            ABOUT_PROFILES
                .into_iter()
                .for_each(|field| own.put(field, 0));
            own.profile = None;
        }
        if !features.has(Feature::MinAckTimeout) {
            own.floor_disabled = 0;
        }
        own
    }

    /// What a function reads at an index. Index 0 shows the active profile and its number (D20).
    pub(crate) fn query(
        &self,
        function: &Function,
        index: u32,
    ) -> Result<[u8; ROCE_ACCL_BYTES], RegisterError> {
        let mut shown = self.clone();
        let is_disabled = self.floor_disabled & bit(function) != 0;
        shown.put(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED, is_disabled.into());
        match index {
            // Without profiles, the bits of the index mean nothing.
            _ if !shown.image.is_set(PROFILE) => {}
            0 => {}
            1 => shown.put(&reg::ADP_RETX_PROFILE_ID, 1),
            _ => return Err(RegisterError::BadIndex { index }),
        }
        Ok(*shown.bytes())
    }

    /// What a function writes. Each select bit acts alone. An error leaves the register half changed:
    /// the caller drops it (D19).
    pub(crate) fn write(
        &mut self,
        identity: &Identity,
        function: &Function,
        request: &Image<&[u8]>,
    ) -> Result<(), RegisterError> {
        let before = *self.bytes();
        let selected = reg::SELECTS.iter().filter(|it| request.is_set(it));
        for &select in selected.clone() {
            let field = select.name();
            let Some((_, feature)) = FEATURES.iter().find(|(it, _)| *it == select) else {
                return Err(RegisterError::BadParam {
                    field,
                    value: 1,
                    reason: "this device has no such feature, and a query shows 0 here; write 0",
                });
            };
            let present = identity.require(*feature);
            present.map_err(|missing| RegisterError::NoFeature { field, missing })?;
        }
        for &select in selected.filter(|select| **select != PROFILE) {
            self.take(select, request)?;
        }
        if request.is_set(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT) {
            self.floor_disabled &= !bit(function);
            if self.image.is_set(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED) {
                self.floor_disabled |= bit(function);
            }
            self.put(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED, 0);
        }
        if request.is_set(PROFILE) && !self.is_unset_profile(request) {
            self.activate(request)?;
        }
        match function {
            Function::Vf { pf, .. } if *self.bytes() != before => Err(RegisterError::OfTheCard {
                what: "ROCE_ACCL is the card's but for min_ack_timeout_limit_disabled",
                pf: pf.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Takes over the fields that a select bit opens.
    fn take(&mut self, select: &Field, request: &Image<&[u8]>) -> Result<(), RegisterError> {
        let len = request.as_inner().len();
        let fields = reg::ROCE_ACCL.fields().iter().copied();
        for field in fields.filter(|field| reg::select_of(field) == Some(select)) {
            if field.offset() >= len {
                return Err(RegisterError::BadLength {
                    register: reg::ROCE_ACCL.name(),
                    len,
                    needs: format!("{} lies beyond its end; send 64 or 128", field.name()),
                });
            }
            let value = request.get(field);
            if *field == reg::CC_BURST_SIZE && burst_bytes(value).is_none() {
                return Err(RegisterError::BadParam {
                    field: field.name(),
                    value,
                    reason: "reserved; write 0 (4 KB), 1 (8 KB), 2 (16 KB) or 7 (1.5 KB)",
                });
            }
            self.put(field, value);
        }
        Ok(())
    }

    /// Whether the request carries what a query of index 0 returned while no profile is active: the
    /// number 0 and an empty profile. mlxreg sets one field by reading the whole register and
    /// writing it back, select bits and all; that must not fail for the profile that was never set. A
    /// request that selects nothing else asks for number 0, which is refused as beside a profile.
    fn is_unset_profile(&self, request: &Image<&[u8]>) -> bool {
        let is_whole = FEATURES
            .iter()
            .any(|(select, _)| *select != PROFILE && request.is_set(select));
        let profile = request.as_inner().get(reg::PROFILE_OFFSET..);
        is_whole
            && self.image.get(&reg::ADP_RETX_PROFILE_ID) == 0
            && request.get(&reg::ADP_RETX_PROFILE_ID) == 0
            && profile.is_none_or(|rest| rest.iter().all(|byte| *byte == 0))
    }

    /// A good profile is active at once, for the whole device (D19), under its only number.
    fn activate(&mut self, request: &Image<&[u8]>) -> Result<(), RegisterError> {
        match request.get(&reg::ADP_RETX_PROFILE_ID) {
            0 => {
                return Err(RegisterError::BadParam {
                    field: "adp_retx_profile_id",
                    value: 0,
                    reason: "0 stands for the firmware's own timeouts and cannot be written; \
                             write profile 1; `ferroce adp reset` goes back to them",
                });
            }
            1 => {}
            index => return Err(RegisterError::BadIndex { index }),
        }
        let bytes = request.as_inner();
        let profile = profile_bytes(bytes).ok_or_else(|| RegisterError::BadLength {
            register: reg::ROCE_ACCL.name(),
            len: bytes.len(),
            needs: "the profile ends at byte 64; send 64 or 128".to_owned(),
        })?;
        let profile = Profile::from_register(profile)?;
        let mut own = *self.bytes();
        own[reg::PROFILE_OFFSET..PROFILE_END].copy_from_slice(&profile.to_register());
        self.image = Image::new(&reg::ROCE_ACCL, own).expect("a whole register");
        self.put(&reg::ADP_RETX_PROFILE_ID, 1);
        self.profile = Some(profile);
        Ok(())
    }

    /// A value that is known to fit, outside of the profile.
    fn put(&mut self, field: &Field, value: u32) {
        self.image
            .set(field, value)
            .expect("a value that fits its field");
    }

    /// Functions above this number are no more.
    pub(crate) fn forget_vfs(&mut self, from: u8) {
        let kept = u32::from(from) + 1;
        self.floor_disabled &= 1u128.checked_shl(kept).map_or(u128::MAX, |bit| bit - 1);
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

    /// The smallest ACK timeout of a function's queue pairs.
    pub(crate) fn ack_timeout_floor(
        &self,
        function: &Function,
        personality: &Personality,
    ) -> AckTimeoutFloor {
        if self.floor_disabled & bit(function) != 0 {
            AckTimeoutFloor::Disabled
        } else {
            AckTimeoutFloor::Enforced(personality.min_ack_timeout)
        }
    }

    /// The DSCP with which acknowledgements leave, if it is not that of their queue pair.
    pub(crate) fn ack_dscp(&self) -> Option<u8> {
        let is_forced = self.image.is_set(&reg::ACK_DSCP_FORCE);
        is_forced.then(|| self.image.get(&reg::ACK_DSCP) as u8)
    }

    /// Whether queue pairs that are created now repeat selectively.
    pub(crate) fn selective_repeat(&self) -> bool {
        self.image.is_set(&reg::SELECTIVE_REPEAT_FORCED_EN)
    }

    /// Whether packets of queue pairs that are created now take many paths.
    pub(crate) fn adaptive_routing(&self) -> bool {
        self.image.is_set(&reg::ADAPTIVE_ROUTING_FORCED_EN)
    }

    /// Whether each queue pair has a window of its own that follows losses.
    pub(crate) fn transmission_window(&self) -> bool {
        self.image.is_set(&reg::ROCE_TX_WINDOW_EN)
    }

    /// Whether what has to be sent again counts as a CNP.
    pub(crate) fn slow_restart(&self) -> bool {
        self.image.is_set(&reg::ROCE_SLOW_RESTART_EN)
    }

    /// Whether the end of a silence counts as a CNP.
    pub(crate) fn slow_restart_idle(&self) -> bool {
        self.image.is_set(&reg::ROCE_SLOW_RESTART_IDLE_EN)
    }

    /// Bytes that a queue pair sends back to back while congestion control limits it.
    pub(crate) fn burst_bytes(&self) -> u16 {
        let code = self.image.get(&reg::CC_BURST_SIZE);
        burst_bytes(code).unwrap_or(BURST_BYTES[0])
    }

    /// Whether a DCI sends to a target before that has accepted the connection.
    pub(crate) fn dc_half_handshake(&self) -> bool {
        self.image.is_set(&reg::DC_HALF_HANDSHAKE_EN)
    }
}

/// Bytes of the codes 0, 1 and 2 of `cc_burst_size`.
const BURST_BYTES: [u16; 3] = [4 << 10, 8 << 10, 16 << 10];

/// Bytes of a code of `cc_burst_size`; `None` if it is reserved.
fn burst_bytes(code: u32) -> Option<u16> {
    match code {
        7 => Some(3 << 9),
        code => BURST_BYTES.get(code as usize).copied(),
    }
}

/// The function's place in [`Accelerations::floor_disabled`].
fn bit(function: &Function) -> u128 {
    1 << function.vhca_id()
}

/// Where a register of that length, or longer, has its profile.
fn profile_bytes(bytes: &[u8]) -> Option<&[u8; reg::PROFILE_SIZE]> {
    bytes.get(reg::PROFILE_OFFSET..PROFILE_END)?.try_into().ok()
}
