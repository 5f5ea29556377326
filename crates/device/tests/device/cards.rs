//! Each card with each firmware that differs, through its registers.

use std::sync::Arc;

use ferroce_adp::{AckTimeoutFloor, PolicyKind, builtin};
use ferroce_device::{
    Card, DeviceState, Feature, Firmware, Hca, HcaConfig, Method, Model, Personality,
    RegisterError, Settings, Status,
};
use ferroce_prm::adp_retx_histogram::ADP_RETX_HISTOGRAM;
use ferroce_prm::adp_retx_histogram_config::ADP_RETX_HISTOGRAM_CONFIG;
use ferroce_prm::mfrl::MFRL;
use ferroce_prm::mgir::{self, MGIR};
use ferroce_prm::nic_cap_reg::{self, NIC_CAP_REG};
use ferroce_prm::roce_accl::{self as reg, ROCE_ACCL};
use ferroce_prm::{Field, Image, Register};

const SELECTS: [(&Field, Feature); 11] = [
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
    (&reg::ADP_RETX_PROFILE_SELECT, Feature::Profiles),
];

/// Each card with all firmware that differs and the versions just before.
fn all() -> Vec<Card> {
    let versions = |model: Model| {
        let before = |firmware: &Firmware| Firmware {
            sub_minor: firmware.sub_minor - 1,
            ..*firmware
        };
        let known = model.firmware();
        let older: Vec<_> = known.iter().skip(1).map(before).collect();
        let cards = known.into_iter().chain(older);
        cards.map(move |firmware| Card { model, firmware })
    };
    Model::ALL.into_iter().flat_map(versions).collect()
}

fn state(card: Card) -> DeviceState {
    let settings = Arc::new(Settings::new(Personality::default()));
    DeviceState::local(settings, card.into())
}

fn get(state: &DeviceState, register: &Register) -> Result<Vec<u8>, RegisterError> {
    let mut bytes = vec![0; register.size()];
    state.access_register(register.id(), Method::Query, &mut bytes)?;
    Ok(bytes)
}

fn set(state: &DeviceState, register: &Register, bytes: &[u8]) -> Result<(), RegisterError> {
    state.access_register(register.id(), Method::Write, &mut bytes.to_vec())
}

fn field(register: &'static Register, bytes: &[u8], field: &Field) -> u32 {
    Image::new(register, bytes).unwrap().get(field)
}

/// ROCE_ACCL with ones in these fields.
fn request(ones: &[&Field]) -> Vec<u8> {
    let mut request = Image::new(&ROCE_ACCL, vec![0; ROCE_ACCL.size()]).unwrap();
    ones.iter().for_each(|field| request.set(field, 1).unwrap());
    request.into_inner()
}

fn with_profile() -> Vec<u8> {
    let mut bytes = request(&[&reg::ADP_RETX_PROFILE_SELECT, &reg::ADP_RETX_PROFILE_ID]);
    let profile = builtin::all()[0].profile.to_register();
    bytes[reg::PROFILE_OFFSET..][..reg::PROFILE_SIZE].copy_from_slice(&profile);
    bytes
}

#[test]
fn a_card_has_the_registers_and_select_bits_of_its_firmware() {
    for card in all() {
        let (state, features) = (state(card), card.features());
        let identity = get(&state, &MGIR).unwrap();
        for (of, value) in [
            (&mgir::DEVICE_ID, card.model.device_id().into()),
            (&mgir::HW_DEV_ID, card.model.chip_id()),
            (&mgir::EXTENDED_MAJOR, card.firmware.major),
            (&mgir::EXTENDED_MINOR, card.firmware.minor),
            (&mgir::EXTENDED_SUB_MINOR, card.firmware.sub_minor),
        ] {
            assert_eq!(field(&MGIR, &identity, of), value, "{card} {}", of.name());
        }
        get(&state, &MFRL).unwrap();
        let has_histogram = features.has(Feature::Histogram);
        let capabilities = get(&state, &NIC_CAP_REG).unwrap();
        let histogram = field(
            &NIC_CAP_REG,
            &capabilities,
            &nic_cap_reg::ADP_RETX_HISTOGRAM,
        );
        assert_eq!(histogram == 1, has_histogram, "{card}");
        for register in [&ADP_RETX_HISTOGRAM_CONFIG, &ADP_RETX_HISTOGRAM] {
            let status = get(&state, register).map_err(|error| error.status()).err();
            let refused = (!has_histogram).then_some(Status::NOT_SUPPORTED);
            assert_eq!(status, refused, "{card} {}", register.name());
        }
        let accelerations = get(&state, &ROCE_ACCL).unwrap();
        for select in reg::SELECTS {
            let own = SELECTS.iter().find(|(it, _)| it == select);
            let is_had = own.is_some_and(|(_, feature)| features.has(*feature));
            let shown = field(&ROCE_ACCL, &accelerations, select);
            assert_eq!(shown == 1, is_had, "{card} {}", select.name());
        }
        let max = field(&ROCE_ACCL, &accelerations, &reg::ADP_RETX_PROFILE_MAX_ID);
        assert_eq!(max == 1, features.has(Feature::Profiles), "{card}");
    }
}

#[test]
fn missing_features_are_refused_with_the_firmware_that_has_them() {
    for card in all() {
        let (state, features) = (state(card), card.features());
        // What a query returns can be written back, as tools do that set one field.
        let shown = get(&state, &ROCE_ACCL).unwrap();
        set(&state, &ROCE_ACCL, &shown).unwrap_or_else(|error| panic!("{card}: {error}"));
        for (select, feature) in SELECTS {
            let bytes = match feature {
                Feature::Profiles => with_profile(),
                _ => request(&[select]),
            };
            let result = set(&state, &ROCE_ACCL, &bytes);
            if features.has(feature) {
                result.unwrap();
                continue;
            }
            let error = result.unwrap_err();
            assert_eq!(error.status(), Status::BAD_PARAMETER, "{card}");
            let text = error.to_string();
            assert!(text.starts_with(select.name()), "{card}: {text}");
            let since = card.model.since(feature);
            assert!(
                since.is_none_or(|it| text.contains(&it.to_string())),
                "{card}: {text}"
            );
        }
        let config = [0x8d, 0, 0, 0, 5, 0, 0, 0, 0, 0x32, 0, 0x64];
        let result = set(&state, &ADP_RETX_HISTOGRAM_CONFIG, &config);
        assert_eq!(result.is_ok(), features.has(Feature::Histogram), "{card}");
    }
}

/// The settings belong to the device, and a program may see it as an older card.
#[test]
fn a_profile_is_not_in_force_on_a_card_without_profiles() {
    let newest = state(Card::default());
    set(&newest, &ROCE_ACCL, &with_profile()).unwrap();
    assert!(matches!(newest.policy_kind(), PolicyKind::Profile(_)));
    let card: Card = "cx7:28.44.1036".parse().unwrap();
    let older = DeviceState::local(newest.settings(), card.into());
    assert!(matches!(older.policy_kind(), PolicyKind::Firmware { .. }));
    let hca = Hca::with_state(HcaConfig::default(), older.clone());
    assert_eq!(hca.policy().kind, older.policy_kind());
    let mut with_index = request(&[&reg::ADP_RETX_PROFILE_ID]);
    older
        .access_register(ROCE_ACCL.id(), Method::Query, &mut with_index)
        .unwrap();
    assert_eq!(with_index, get(&state(card), &ROCE_ACCL).unwrap());
}

#[test]
fn older_cards_enforce_the_minimum_ack_timeout() {
    let newest = state(Card::default());
    let lifted = request(&[
        &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
        &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED,
    ]);
    set(&newest, &ROCE_ACCL, &lifted).unwrap();
    let floor = |card: &str| {
        let card: Card = card.parse().unwrap();
        let state = DeviceState::local(newest.settings(), card.into());
        Hca::with_state(HcaConfig::default(), state).policy().floor
    };
    assert_eq!(floor("cx5:16.35.1012"), AckTimeoutFloor::Disabled);
    assert_eq!(floor("cx5:16.34.1002"), AckTimeoutFloor::Enforced(16));
}
