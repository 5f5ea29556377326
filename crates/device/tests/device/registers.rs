//! ROCE_ACCL through the device.

use ferroce_adp::{PolicyKind, Profile};
use ferroce_device::{Hca, HcaConfig, Method, Personality, RegisterError, Status};
use ferroce_prm::Field;
use ferroce_prm::roce_accl::{self as reg, ROCE_ACCL};
use serde_json::Value;

use ferroce_testing::register::{field, image, query, write};

fn device() -> Hca {
    Hca::new(HcaConfig::default())
}

/// The register after power-on.
fn after_reset() -> Vec<u8> {
    image(&[
        (&reg::ROCE_ADP_RETRANS_FIELD_SELECT, 1),
        (&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT, 1),
        (&reg::SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT, 1),
        (&reg::ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT, 1),
        (&reg::ACK_DSCP_FORCE_FIELD_SELECT, 1),
        (&reg::ROCE_TX_WINDOW_FIELD_SELECT, 1),
        (&reg::ROCE_SLOW_RESTART_FIELD_SELECT, 1),
        (&reg::ROCE_SLOW_RESTART_IDLE_FIELD_SELECT, 1),
        (&reg::CC_BURST_SIZE_SELECT, 1),
        (&reg::IFA2_TURN_AROUND_SELECT, 1),
        (&reg::ADP_RETX_PROFILE_SELECT, 1),
        (&reg::ROCE_ADP_RETRANS_EN, 1),
        (&reg::ROCE_SLOW_RESTART_EN, 1),
        (&reg::ADP_RETX_BASE_TIMEOUT_MIN, 4000),
        (&reg::ADP_RETX_PROFILE_MAX_ID, 1),
        (&reg::ADP_RETX_PROFILE_MAX_RANGE_NUM, 4),
    ])
}

/// Name and SET payload of each vector.
fn payloads() -> Vec<(String, Vec<u8>)> {
    let text = include_str!("../../../adp/tests/vectors/adp.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    };
    let all = vectors.as_array().unwrap().iter().map(|vector| {
        let name = vector["name"].as_str().unwrap().to_owned();
        (name, bytes(vector["set_payload"].as_str().unwrap()))
    });
    all.collect()
}

fn with(bytes: &[u8], fields: &[(&'static Field, u32)]) -> Vec<u8> {
    let mut image = ferroce_prm::Image::new(&ROCE_ACCL, bytes.to_vec()).unwrap();
    for (field, value) in fields {
        image.set(field, *value).unwrap();
    }
    image.into_inner()
}

/// A write that must be refused and change nothing.
#[track_caller]
fn refused(hca: &mut Hca, bytes: &[u8]) -> RegisterError {
    let (before, policy) = (query(hca, 0), *hca.policy());
    let mut sent = bytes.to_vec();
    let result = hca.access_register(ROCE_ACCL.id(), Method::Write, &mut sent);
    let error = result.expect_err("must be refused");
    assert_eq!(sent, bytes, "an error answers nothing");
    assert_eq!(query(hca, 0), before, "an error changes nothing");
    assert_eq!(*hca.policy(), policy);
    error
}

#[test]
fn a_query_after_power_on_shows_what_can_be_set_and_what_is() {
    let mut hca = device();
    assert_eq!(query(&mut hca, 0), after_reset());
    let mut plain = Hca::new(HcaConfig {
        personality: Personality {
            adaptive: false,
            slow_restart: false,
            ..Personality::default()
        },
        ..HcaConfig::default()
    });
    let off = [
        (&reg::ROCE_ADP_RETRANS_EN, 0),
        (&reg::ROCE_SLOW_RESTART_EN, 0),
    ];
    assert_eq!(query(&mut plain, 0), with(&after_reset(), &off));
}

#[test]
fn reserved_burst_sizes_are_refused() {
    let mut hca = device();
    for code in 0..8 {
        let request = image(&[(&reg::CC_BURST_SIZE_SELECT, 1), (&reg::CC_BURST_SIZE, code)]);
        if [0, 1, 2, 7].contains(&code) {
            write(&mut hca, &request).unwrap();
            assert_eq!(field(&query(&mut hca, 0), &reg::CC_BURST_SIZE), code);
        } else {
            let error = refused(&mut hca, &request);
            assert_eq!(error.status(), Status::BAD_PARAMETER);
            assert!(error.to_string().starts_with("cc_burst_size = "), "{error}");
        }
    }
}

type Values = &'static [(&'static Field, u32)];

/// The fields that each select bit opens, with values that differ from those after power-on.
const FEATURES: &[(&Field, Values)] = &[
    (
        &reg::ROCE_ADP_RETRANS_FIELD_SELECT,
        &[(&reg::ROCE_ADP_RETRANS_EN, 0)],
    ),
    (
        &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
        &[(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED, 1)],
    ),
    (
        &reg::SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT,
        &[(&reg::SELECTIVE_REPEAT_FORCED_EN, 1)],
    ),
    (
        &reg::ACK_DSCP_FORCE_FIELD_SELECT,
        &[(&reg::ACK_DSCP_FORCE, 1), (&reg::ACK_DSCP, 26)],
    ),
    (
        &reg::ROCE_TX_WINDOW_FIELD_SELECT,
        &[(&reg::ROCE_TX_WINDOW_EN, 1)],
    ),
    (
        &reg::ROCE_SLOW_RESTART_FIELD_SELECT,
        &[(&reg::ROCE_SLOW_RESTART_EN, 0)],
    ),
    (
        &reg::ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
        &[(&reg::ROCE_SLOW_RESTART_IDLE_EN, 1)],
    ),
    (
        &reg::ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT,
        &[(&reg::ADAPTIVE_ROUTING_FORCED_EN, 1)],
    ),
    (
        &reg::IFA2_TURN_AROUND_SELECT,
        &[(&reg::IFA2_TURN_AROUND_EN, 1)],
    ),
    (&reg::CC_BURST_SIZE_SELECT, &[(&reg::CC_BURST_SIZE, 7)]),
];

/// Select bits of features that this device does not have, with values.
const OTHERS: &[(&Field, Values)] = &[
    (
        &reg::DC_HALF_HANDSHAKE_EN_FIELD_SELECT,
        &[(&reg::DC_HALF_HANDSHAKE_EN, 1)],
    ),
    (
        &reg::CC_PER_PLANE_EN_FIELD_SELECT,
        &[(&reg::CC_PER_PLANE_EN, 1)],
    ),
    (
        &reg::CC_PROBE_MP_MODE_FIELD_SELECT,
        &[(&reg::CC_PROBE_MP_MODE, 1)],
    ),
];

#[test]
fn unsupported_parameters_are_refused_as_a_whole() {
    assert_eq!(FEATURES.len() + OTHERS.len() + 1, reg::SELECTS.len());
    for (select, values) in OTHERS {
        let mut hca = device();
        assert_eq!(field(&query(&mut hca, 0), select), 0);
        let mut request = with(&payloads().remove(0).1, values);
        request = with(&request, &[(select, 1)]);
        let error = refused(&mut hca, &request);
        assert_eq!(error.status(), Status::BAD_PARAMETER);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{} = 1: ", select.name())),
            "{text}"
        );
    }
}

//= D19: each select acts alone.
#[test]
fn a_select_bit_opens_its_own_fields_and_no_others() {
    let profile = payloads().remove(1).1;
    let every_value: Vec<_> = FEATURES
        .iter()
        .chain(OTHERS)
        .flat_map(|(_, values)| values.iter().copied())
        .chain([
            (&reg::ADP_RETX_BASE_TIMEOUT_MIN, 1),
            (&reg::ADP_RETX_PROFILE_MAX_ID, 7),
        ])
        .collect();
    let request = with(&profile, &every_value);
    let request = with(&request, &[(&reg::ADP_RETX_PROFILE_SELECT, 0)]);
    let mut hca = device();
    write(&mut hca, &request).unwrap();
    assert_eq!(query(&mut hca, 0), after_reset(), "nothing is selected");
    for (select, values) in FEATURES {
        let mut hca = device();
        write(&mut hca, &with(&request, &[(select, 1)])).unwrap();
        let expected = with(&after_reset(), values);
        assert_eq!(query(&mut hca, 0), expected, "{}", select.name());
    }
    let selected = with(&request, &[(&reg::ADP_RETX_PROFILE_SELECT, 1)]);
    let mut hca = device();
    write(&mut hca, &selected).unwrap();
    let answer = query(&mut hca, 0);
    assert_eq!(
        answer[reg::PROFILE_OFFSET..],
        profile[reg::PROFILE_OFFSET..]
    );
    let head = with(&after_reset(), &[(&reg::ADP_RETX_PROFILE_ID, 1)]);
    assert_eq!(answer[..reg::PROFILE_OFFSET], head[..reg::PROFILE_OFFSET]);
}

#[test]
fn several_selects_act_together() {
    let mut hca = device();
    let profile = payloads().remove(0).1;
    let request = with(
        &profile,
        &[
            (&reg::ROCE_ADP_RETRANS_FIELD_SELECT, 1),
            (&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT, 1),
            (&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED, 1),
        ],
    );
    write(&mut hca, &request).unwrap();
    let answer = query(&mut hca, 0);
    assert_eq!(field(&answer, &reg::ROCE_ADP_RETRANS_EN), 0);
    assert_eq!(field(&answer, &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED), 1);
    assert_eq!(field(&answer, &reg::ADP_RETX_PROFILE_ID), 1);
    // The profile takes effect when adaptive retransmission is switched on.
    assert_eq!(hca.policy().kind, PolicyKind::IB);
}

/// mlxreg sets a field by writing back everything that it has read.
#[test]
fn a_read_register_can_be_written_with_one_change() {
    let mut hca = device();
    let read = query(&mut hca, 0);
    let policy = *hca.policy();
    write(&mut hca, &read).unwrap();
    assert_eq!(query(&mut hca, 0), read);
    assert_eq!(
        *hca.policy(),
        policy,
        "no draw for a write without a change"
    );

    let request = with(&read, &[(&reg::ROCE_ADP_RETRANS_EN, 0)]);
    write(&mut hca, &request).unwrap();
    assert_eq!(query(&mut hca, 0), request);
    assert_eq!(hca.policy().kind, PolicyKind::IB);
    write(&mut hca, &read).unwrap();

    write(&mut hca, &payloads().remove(2).1).unwrap();
    let read = query(&mut hca, 0);
    let policy = *hca.policy();
    write(&mut hca, &read).unwrap();
    assert_eq!(*hca.policy(), policy);
    let request = with(&read, &[(&reg::TIME_BASE, 4), (&reg::ACK_DSCP, 26)]);
    write(&mut hca, &request).unwrap();
    assert_eq!(query(&mut hca, 0), request);
    assert_eq!(hca.policy().epoch, policy.epoch + 1);
}

#[test]
fn the_vectors_are_taken_and_active_at_once() {
    for (name, payload) in payloads() {
        let mut hca = device();
        let epoch = hca.policy().epoch;
        write(&mut hca, &payload).unwrap();
        let bytes = payload[reg::PROFILE_OFFSET..][..reg::PROFILE_SIZE]
            .try_into()
            .unwrap();
        let profile = Profile::from_register(bytes).unwrap();
        assert_eq!(hca.policy().kind, PolicyKind::Profile(profile), "{name}");
        assert_eq!(hca.policy().epoch, epoch + 1);
        write(&mut hca, &payload).unwrap();
        assert_eq!(hca.policy().epoch, epoch + 1, "the same profile again");
        // Older tools write only the part that they know.
        let mut hca = device();
        write(&mut hca, &payload[..0x40]).unwrap();
        assert_eq!(hca.policy().kind, PolicyKind::Profile(profile), "{name}");
    }
}

//= D20: index 0 shows the number of the active profile, and the profile.
#[test]
fn index_0_is_the_active_profile_and_index_1_the_first() {
    let mut hca = device();
    let expected = with(&after_reset(), &[(&reg::ADP_RETX_PROFILE_ID, 1)]);
    assert_eq!(query(&mut hca, 1), expected, "an empty profile 1");
    let payload = payloads().remove(3).1;
    write(&mut hca, &payload).unwrap();
    for index in [0, 1] {
        let answer = query(&mut hca, index);
        assert_eq!(field(&answer, &reg::ADP_RETX_PROFILE_ID), 1);
        assert_eq!(
            answer[reg::PROFILE_OFFSET..],
            payload[reg::PROFILE_OFFSET..]
        );
    }
    for index in 2..8 {
        let mut bytes = image(&[(&reg::ADP_RETX_PROFILE_ID, index)]);
        let before = bytes.clone();
        let result = hca.access_register(ROCE_ACCL.id(), Method::Query, &mut bytes);
        assert_eq!(result, Err(RegisterError::BadIndex { index }));
        assert_eq!(bytes, before);
    }
}

#[test]
fn a_query_takes_as_many_bytes_as_it_is_given() {
    let mut hca = device();
    write(&mut hca, &payloads().remove(0).1).unwrap();
    let whole = query(&mut hca, 0);
    for len in (4..=0x80).step_by(4) {
        let mut bytes = vec![0; len];
        hca.access_register(ROCE_ACCL.id(), Method::Query, &mut bytes)
            .unwrap();
        assert_eq!(bytes, whole[..len]);
    }
}

#[test]
fn profile_numbers_other_than_1_are_refused() {
    let mut hca = device();
    let payload = payloads().remove(0).1;
    let numbered = |id| with(&payload, &[(&reg::ADP_RETX_PROFILE_ID, id)]);
    for _ in 0..2 {
        let error = refused(&mut hca, &numbered(0));
        let is_bad = matches!(error, RegisterError::BadParam { value: 0, .. });
        assert!(is_bad, "{error}");
        for index in 2..8 {
            let error = refused(&mut hca, &numbered(index));
            assert_eq!(error, RegisterError::BadIndex { index });
        }
        let nothing = image(&[(&reg::ADP_RETX_PROFILE_SELECT, 1)]);
        let error = refused(&mut hca, &nothing);
        assert!(matches!(error, RegisterError::BadParam { value: 0, .. }));
        // The same again with an active profile, which only a reset removes (D21).
        write(&mut hca, &payload).unwrap();
    }
}

#[test]
fn a_write_with_an_invalid_value_changes_nothing() {
    let mut hca = device();
    let good = payloads().remove(1).1;
    write(&mut hca, &payloads().remove(0).1).unwrap();
    let also = with(&good, &[(&reg::ROCE_ADP_RETRANS_FIELD_SELECT, 1)]);
    for (bad, value, name) in [
        (&reg::TIME_BASE, 0, "time_base"),
        (&reg::TIME_BASE, 3, "time_base"),
        (&reg::TIME_BASE, 6, "time_base"),
        (&reg::TIME_UNIT, 2, "time_unit"),
        (&reg::RANGE_NUM, 0, "range_num"),
        (&reg::RANGE_NUM, 5, "range_num"),
        (&reg::START_RANGE_INDEX, 4, "start_range_index"),
        (&reg::RANGE_LOW_BOUND[1], 8, "range_low_bound"),
        (&reg::DEC_MODE[2], 3, "dec_mode"),
        (&reg::PREV_RANGE_INDEX[0], 1, "prev_range_index"),
        (&reg::PREV_RANGE_INDEX[3], 3, "prev_range_index"),
    ] {
        let error = refused(&mut hca, &with(&also, &[(bad, value)]));
        assert!(matches!(error, RegisterError::BadProfile(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    write(&mut hca, &also).unwrap();
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let mut hca = device();
    let payload = payloads().remove(0).1;
    let mut long = payload.clone();
    long.resize(0x84, 0);
    for bytes in [&[][..], &payload[..1], &payload[..0x7f], &long] {
        let error = refused(&mut hca, bytes);
        assert!(matches!(error, RegisterError::BadLength { .. }), "{error}");
        let mut asked = bytes.to_vec();
        let result = hca.access_register(ROCE_ACCL.id(), Method::Query, &mut asked);
        assert!(matches!(result, Err(RegisterError::BadLength { .. })));
        assert_eq!(asked, bytes);
    }
    // A truncated profile.
    for len in (8..0x40).step_by(4) {
        let error = refused(&mut hca, &payload[..len]);
        assert!(
            matches!(error, RegisterError::BadLength { .. }),
            "{len}: {error}"
        );
    }
    // A selected value that is cut off must not count as zero.
    let select = image(&[(&reg::ROCE_ADP_RETRANS_FIELD_SELECT, 1)]);
    let error = refused(&mut hca, &select[..4]);
    assert!(
        matches!(error, RegisterError::BadLength { len: 4, .. }),
        "{error}"
    );
    write(&mut hca, &select[..8]).unwrap();
    assert_eq!(field(&query(&mut hca, 0), &reg::ROCE_ADP_RETRANS_EN), 0);
}

#[test]
fn unknown_registers_are_refused() {
    let mut hca = device();
    for id in [0, 0x402b, 0x402d, 0x9021, u16::MAX] {
        for method in [Method::Query, Method::Write] {
            let mut bytes = [0xa5; 0x80];
            let result = hca.access_register(id, method, &mut bytes);
            assert_eq!(result, Err(RegisterError::NotSupported { id }));
            assert_eq!(bytes, [0xa5; 0x80]);
        }
    }
}

//= D21: a reset is the only way back to the firmware's own timeouts.
#[test]
fn a_reset_brings_back_what_was_there_after_power_on() {
    let mut hca = device();
    let before = *hca.policy();
    for (_, payload) in payloads() {
        let everything: Vec<_> = FEATURES
            .iter()
            .flat_map(|(select, values)| values.iter().copied().chain([(*select, 1)]))
            .collect();
        write(&mut hca, &with(&payload, &everything)).unwrap();
        hca.reset_registers().unwrap();
        assert_eq!(query(&mut hca, 0), after_reset());
        assert_eq!(hca.policy().kind, before.kind);
        assert_eq!(hca.policy().floor, before.floor);
    }
    let epoch = hca.policy().epoch;
    assert!(epoch > before.epoch);
    hca.reset_registers().unwrap();
    assert_eq!(hca.policy().epoch, epoch, "nothing to reset");
}
