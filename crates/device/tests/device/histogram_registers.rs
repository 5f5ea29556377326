//! ADP_RETX_HISTOGRAM_CONFIG and ADP_RETX_HISTOGRAM through the device.

use ferroce_device::{
    BinWidthMode, DeviceState, HistogramConfig, Method, Personality, RegisterError, Status,
    TimeUnit,
};
use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};
use ferroce_prm::adp_retx_histogram_config::{self as reg, ADP_RETX_HISTOGRAM_CONFIG};
use ferroce_prm::{Field, Image};

fn device() -> DeviceState {
    DeviceState::new(Personality::default())
}

fn get(state: &DeviceState, id: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    state
        .access_register(id, Method::Query, &mut bytes)
        .unwrap();
    bytes
}

fn config_image(state: &DeviceState) -> Vec<u8> {
    get(state, ADP_RETX_HISTOGRAM_CONFIG.id(), 0x80)
}

fn with(bytes: &[u8], fields: &[(&Field, u32)]) -> Vec<u8> {
    let mut image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, bytes.to_vec()).unwrap();
    for (field, value) in fields {
        image.set(field, *value).unwrap();
    }
    image.into_inner()
}

fn set(state: &DeviceState, bytes: &[u8]) -> Result<(), RegisterError> {
    let mut sent = bytes.to_vec();
    let result = state.access_register(ADP_RETX_HISTOGRAM_CONFIG.id(), Method::Write, &mut sent);
    assert_eq!(sent, bytes, "a set answers nothing");
    result
}

#[test]
fn a_query_shows_the_configuration_and_what_is_possible() {
    let state = device();
    let bytes = config_image(&state);
    // Double, milliseconds, counting; 16 of 64 bins; 1 and 1.
    assert_eq!(bytes[..12], [0x8d, 0xf0, 0, 0, 16, 64, 0, 0, 0, 1, 0, 1]);
    assert_eq!(bytes[12..], [0; 0x74]);
    for len in (4..=0x80).step_by(4) {
        let short = get(&state, ADP_RETX_HISTOGRAM_CONFIG.id(), len);
        assert_eq!(short, bytes[..len]);
    }
}

#[test]
fn the_published_example_is_taken_as_it_is() {
    let state = device();
    let mut bytes = [0; 0x80];
    bytes[..12].copy_from_slice(&[0x8d, 0, 0, 0, 5, 0, 0, 0, 0, 0x32, 0, 0x64]);
    set(&state, &bytes).unwrap();
    assert_eq!(
        state.histogram_config(),
        HistogramConfig {
            bins: 5,
            mode: BinWidthMode::Double,
            unit: TimeUnit::Msec,
            bin0_width: 50,
            bin1_width: 100,
            enabled: true,
            clear_on_read: false,
            vhca_id: None,
        }
    );
    // What is read can be written back.
    let read = config_image(&state);
    set(&state, &read).unwrap();
    assert_eq!(config_image(&state), read);
}

#[test]
fn every_field_is_kept() {
    let state = device();
    for (unit, mode) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        let fields = [
            (&reg::BIN_WIDTH_MODE, mode),
            (&reg::TIME_UNIT, unit),
            (&reg::VHCA_ID_VALID, mode),
            (&reg::CLEAR_ON_READ, unit & 1),
            (&reg::COUNT_ENABLE, mode),
            (&reg::BIN_NUM, 64 - unit),
            (&reg::BIN1_WIDTH, 0xffff),
            (&reg::BIN0_WIDTH, 0x1234 + unit),
        ];
        let expected = with(&config_image(&state), &fields);
        set(&state, &expected).unwrap();
        assert_eq!(config_image(&state), expected);
    }
}

#[test]
fn a_bad_configuration_is_refused_by_name_and_changes_nothing() {
    let state = device();
    let before = config_image(&state);
    for (field, value, text) in [
        (
            &reg::BIN_WIDTH_MODE,
            2,
            "bin_width_mode = 2: must be 0 (fixed) or 1 (double)",
        ),
        (
            &reg::BIN_WIDTH_MODE,
            3,
            "bin_width_mode = 3: must be 0 (fixed) or 1 (double)",
        ),
        (&reg::BIN_NUM, 0, "bin_num is 0; allowed: 1 to 64"),
        (&reg::BIN_NUM, 65, "bin_num is 65; allowed: 1 to 64"),
        (&reg::BIN0_WIDTH, 0, "bin0_width is 0; allowed: 1 to 65535"),
        (&reg::BIN1_WIDTH, 0, "bin1_width is 0; allowed: 1 to 65535"),
    ] {
        let error = set(&state, &with(&before, &[(field, value)])).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(error.status(), Status::BAD_PARAMETER);
    }
    let other = with(&before, &[(&reg::VHCA_ID_VALID, 1), (&reg::VHCA_ID, 7)]);
    let error = set(&state, &other).unwrap_err();
    assert_eq!(error.to_string(), "vhca_id is 7; allowed: 0");
    for len in [4, 8] {
        let error = set(&state, &before[..len]).unwrap_err();
        assert_eq!(error.status(), Status::BAD_INPUT_LENGTH, "{error}");
    }
    assert_eq!(config_image(&state), before);
    // There is no bin 1 whose width could be invalid.
    set(
        &state,
        &with(&before, &[(&reg::BIN_NUM, 1), (&reg::BIN1_WIDTH, 0)]),
    )
    .unwrap();
}

#[test]
fn counts_are_read_with_their_number_and_never_written() {
    let state = device();
    let bytes = get(&state, ADP_RETX_HISTOGRAM.id(), 0x808);
    assert_eq!(bytes[0], 16);
    assert!(bytes[1..].iter().all(|byte| *byte == 0));
    let mut sent = vec![0; 0x18];
    let error = state
        .access_register(ADP_RETX_HISTOGRAM.id(), Method::Write, &mut sent)
        .unwrap_err();
    assert_eq!(error.status(), Status::BAD_OPERATION);
    assert!(error.to_string().contains("clear_on_read"), "{error}");
}

#[test]
fn a_short_read_returns_the_first_bins_unless_reads_clear() {
    let state = device();
    for len in (4..=counts::size(16)).step_by(4) {
        let bytes = get(&state, ADP_RETX_HISTOGRAM.id(), len);
        assert_eq!(bytes[0], 16);
    }
    let clearing = with(&config_image(&state), &[(&reg::CLEAR_ON_READ, 1)]);
    set(&state, &clearing).unwrap();
    let mut short = vec![0; counts::size(16) - 4];
    let error = state
        .access_register(ADP_RETX_HISTOGRAM.id(), Method::Query, &mut short)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ADP_RETX_HISTOGRAM: 140 bytes of data; clear_on_read takes all bins at once; send 144"
    );
    get(&state, ADP_RETX_HISTOGRAM.id(), counts::size(16));
}
