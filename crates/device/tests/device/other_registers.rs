//! NIC_CAP_REG, MGIR and MFRL through the device.

use std::sync::Arc;

use ferroce_device::Direction;
use ferroce_device::{
    DeviceState, HistogramConfig, Identity, Impairment, Method, Personality, RegisterError,
    Settings, Status,
};
use ferroce_prm::mfrl::{self, MFRL};
use ferroce_prm::mgir::{self, MGIR};
use ferroce_prm::nic_cap_reg::NIC_CAP_REG;
use ferroce_prm::roce_accl::{self, ROCE_ACCL};
use ferroce_prm::{Access, Field, Image, Register};

fn device() -> DeviceState {
    DeviceState::new(Personality::default())
}

fn get(state: &DeviceState, register: &Register, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    state
        .access_register(register.id(), Method::Query, &mut bytes)
        .unwrap();
    bytes
}

fn set(state: &DeviceState, register: &Register, bytes: &[u8]) -> Result<(), RegisterError> {
    state.access_register(register.id(), Method::Write, &mut bytes.to_vec())
}

fn field(register: &'static Register, bytes: &[u8], field: &Field) -> u32 {
    Image::new(register, bytes).unwrap().get(field)
}

fn with(register: &'static Register, bytes: &[u8], field: &Field, value: u32) -> Vec<u8> {
    let mut image = Image::new(register, bytes.to_vec()).unwrap();
    image.set(field, value).unwrap();
    image.into_inner()
}

#[test]
fn the_only_capability_is_the_histogram() {
    let state = device();
    let bytes = get(&state, &NIC_CAP_REG, 0x80);
    assert_eq!(bytes[..4], [0, 2, 0, 0]);
    assert_eq!(bytes[4..], [0; 0x7c]);
    set(&state, &NIC_CAP_REG, &bytes).unwrap();
    for writable in NIC_CAP_REG.fields() {
        let result = set(
            &state,
            &NIC_CAP_REG,
            &with(&NIC_CAP_REG, &bytes, writable, 1),
        );
        match writable.access() {
            Access::Rw => {
                let error = result.unwrap_err();
                assert_eq!(error.status(), Status::BAD_PARAMETER);
                assert!(error.to_string().starts_with(writable.name()), "{error}");
            }
            _ => result.unwrap(),
        }
        assert_eq!(get(&state, &NIC_CAP_REG, 0x80), bytes);
    }
}

#[test]
fn tools_find_a_connectx_7_unless_the_device_is_something_else() {
    let bytes = get(&device(), &MGIR, 0x400);
    let get_field = |of: &Field| field(&MGIR, &bytes, of);
    assert_eq!(get_field(&mgir::HW_DEV_ID), 0x218);
    assert_eq!(get_field(&mgir::DEVICE_ID), 4129);
    assert_eq!(get_field(&mgir::NUM_PORTS), 1);
    assert_eq!(get_field(&mgir::EXTENDED_MAJOR), 28);
    assert_eq!(get_field(&mgir::EXTENDED_MINOR), 48);
    assert_eq!(get_field(&mgir::EXTENDED_SUB_MINOR), 1000);
    assert_eq!(&bytes[0x30..0x40], b"FRC0000000001\0\0\0");
    assert_eq!(bytes[0xa0..], [0; 0x360]);
    let identity = Identity {
        device_id: 0x1023,
        hw_revision: 2,
        firmware: "40.47.1026".parse().unwrap(),
        psid: *b"MT_0000000001\0\0\0",
    };
    let settings = Arc::new(Settings::new(Personality::default()));
    let state = DeviceState::local(settings, identity);
    let bytes = get(&state, &MGIR, 0xa0);
    assert_eq!(bytes[..12], [0, 2, 0x10, 0x23, 0, 1, 0, 0, 0, 0, 2, 0x1e]);
    assert_eq!(get(&state, &MGIR, 12), bytes[..12]);
    let error = set(&state, &MGIR, &bytes).unwrap_err();
    assert_eq!(error.status(), Status::BAD_OPERATION);
}

/// A state in which every setting is changed.
fn changed() -> DeviceState {
    let state = device();
    let mut payload = vec![0; 0x80];
    payload[..8].copy_from_slice(&[0x10, 0, 0, 0x10, 0x10, 0, 0, 0x10]);
    let profile = [
        0xa0, 0x40, 0, 4, 0, 0, 0x10, 1, 4, 2, 0x10, 1, 0, 1, 0x12, 2,
    ];
    payload[0x10..0x20].copy_from_slice(&profile);
    set(&state, &ROCE_ACCL, &payload).unwrap();
    let config = HistogramConfig {
        bins: 3,
        enabled: false,
        ..HistogramConfig::default()
    };
    state.configure_histogram(config).unwrap();
    state
}

//= D21: a reset is the only way back to the firmware's own timeouts.
#[test]
fn a_reset_brings_registers_and_histogram_back_and_nothing_else() {
    let state = changed();
    let impairment = Impairment {
        loss: 0.01,
        ..Impairment::default()
    };
    state
        .set_impairment(Direction::Egress, impairment.clone())
        .unwrap();
    let accelerations = get(&state, &ROCE_ACCL, 0x80);
    assert_eq!(
        field(&ROCE_ACCL, &accelerations, &roce_accl::ADP_RETX_PROFILE_ID),
        1
    );
    let asked = get(&state, &MFRL, 8);
    assert_eq!(asked, [0, 0, 0, 0, 0, 0, 1, 8], "a trigger, a kind, idle");
    set(&state, &MFRL, &asked).unwrap();
    assert_eq!(
        get(&state, &ROCE_ACCL, 0x80),
        get(&device(), &ROCE_ACCL, 0x80)
    );
    assert_eq!(state.histogram_config(), HistogramConfig::default());
    assert_eq!(state.impairment(Direction::Egress), impairment);
    assert_eq!(get(&state, &MFRL, 8), asked);
}

#[test]
fn a_reset_of_another_kind_is_refused_and_nothing_happens() {
    let state = changed();
    let asked = get(&state, &MFRL, 8);
    let before = state.settings();
    for (of, value) in [
        (&mfrl::RESET_TRIGGER, 0),
        (&mfrl::RESET_TRIGGER, 1),
        (&mfrl::RESET_TRIGGER, 9),
        (&mfrl::RESET_TRIGGER, 0x40),
        (&mfrl::RST_TYPE_SEL, 1),
        (&mfrl::PCI_RESET_REQ_METHOD, 2),
        (&mfrl::PCI_SYNC_FOR_FW_UPDATE_RESP, 1),
        (&mfrl::PCI_SYNC_FOR_FW_UPDATE_START, 3),
    ] {
        let error = set(&state, &MFRL, &with(&MFRL, &asked, of, value)).unwrap_err();
        let expected = format!("{} = {value}: ", of.name());
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(error.status(), Status::BAD_PARAMETER);
    }
    let error = set(&state, &MFRL, &asked[..4]).unwrap_err();
    assert_eq!(error.status(), Status::BAD_INPUT_LENGTH);
    assert_eq!(state.settings(), before);
    assert_eq!(state.histogram_config().bins, 3);
}
