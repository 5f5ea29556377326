//! Parameters in configuration records and commands.

use ferroce_dcqcn::{DecodeError, Param, ParamError, Params, Vocabulary};
use ferroce_prm::Register;
use ferroce_prm::cong::{CONG_CONTROL_NP, CONG_CONTROL_RP, LAYOUTS, NV_ROCE_CC, NV_ROCE_CC_ECN};
use proptest::prelude::*;

/// Bits of `field_select`.
const ALL: u32 = u32::MAX;
const MIN_DEC_FAC: u32 = 1 << 9;
const GD: u32 = 1 << 16;

fn encoded(params: &Params, layout: &'static Register) -> Vec<u8> {
    let mut bytes = vec![0; layout.size()];
    params.encode(layout, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_records_hold_every_parameter_that_mlxconfig_names() {
    let mut params = Params::default();
    for &param in Param::ALL {
        params.set_clipped(param, 1 + param.min());
    }
    let mut read = Params::default();
    for layout in [&NV_ROCE_CC, &NV_ROCE_CC_ECN] {
        let bytes = encoded(&params, layout);
        read.decode(layout, &bytes, 0).unwrap();
    }
    assert_eq!(read, params);
}

#[test]
fn the_commands_hold_every_file_of_debugfs() {
    let mut params = Params::default();
    for &param in Param::ALL {
        params.set_clipped(param, 1 + param.min());
    }
    let mut read = Params::default();
    for layout in [&CONG_CONTROL_RP, &CONG_CONTROL_NP] {
        let bytes = encoded(&params, layout);
        read.decode(layout, &bytes, ALL).unwrap();
    }
    for &param in Param::ALL {
        let in_debugfs = param.name_in(Vocabulary::Debugfs).is_some();
        let expected = if in_debugfs {
            params.get(param)
        } else {
            param.default_value()
        };
        assert_eq!(read.get(param), expected, "{param}");
    }
}

#[test]
fn a_command_changes_what_it_selects() {
    let wanted = Params::default()
        .with(Param::MinDecFac, 80)
        .with(Param::AlphaToRateShift, 10);
    let bytes = encoded(&wanted, &CONG_CONTROL_RP);
    for (select, factor, gd) in [
        (0, 50, 11),
        (MIN_DEC_FAC, 80, 11),
        (GD, 50, 10),
        (ALL, 80, 10),
    ] {
        let mut params = Params::default();
        params.decode(&CONG_CONTROL_RP, &bytes, select).unwrap();
        assert_eq!(params.get(Param::MinDecFac), factor);
        assert_eq!(params.get(Param::AlphaToRateShift), gd);
    }
}

#[test]
fn values_out_of_range_are_refused_whole_or_clipped_one_by_one() {
    let mut bytes = encoded(
        &Params::default().with(Param::MinDecFac, 80),
        &CONG_CONTROL_RP,
    );
    bytes[0x2f] = 15;
    let mut params = Params::default();
    let refused = params.decode(&CONG_CONTROL_RP, &bytes, ALL);
    let expected = ParamError::OutOfRange {
        param: Param::AlphaToRateShift,
        value: 15,
        min: 10,
        max: 11,
    };
    assert_eq!(refused, Err(DecodeError::Value(expected)));
    assert_eq!(params, Params::default());
    params
        .decode_clipped(&CONG_CONTROL_RP, &bytes, ALL)
        .unwrap();
    assert_eq!(params.get(Param::AlphaToRateShift), 11);
    assert_eq!(params.get(Param::MinDecFac), 80);
}

#[test]
fn a_short_record_leaves_missing_parameters_unchanged() {
    let bytes = encoded(
        &Params::default().with(Param::TimeReset, 77),
        &NV_ROCE_CC_ECN,
    );
    let mut params = Params::default().with(Param::AiRate, 9);
    params.decode(&NV_ROCE_CC_ECN, &bytes[..8], 0).unwrap();
    assert_eq!(params.get(Param::TimeReset), 77);
    assert_eq!(params.get(Param::AiRate), 9);
    for bad in [0, 6, 0x48] {
        let bytes = vec![0; bad];
        let refused = params.decode(&NV_ROCE_CC_ECN, &bytes, 0);
        assert!(matches!(refused, Err(DecodeError::Length(_))), "{bad}");
    }
}

proptest! {
    /// Encoding changes no bit that belongs to no parameter; what it wrote is what was read.
    #[test]
    fn any_bytes_are_clipped_into_range_and_come_back(
        fill in prop::collection::vec(any::<u8>(), 0x100),
        select in any::<u32>(),
    ) {
        for layout in LAYOUTS {
            let bytes = &fill[..layout.size()];
            let mut params = Params::default();
            params.decode_clipped(layout, bytes, select).unwrap();
            for &param in Param::ALL {
                prop_assert_eq!(params.get(param), param.clip(params.get(param)));
            }
            let mut copy = bytes.to_vec();
            params.encode(layout, &mut copy).unwrap();
            let mut both = params.clone();
            both.decode(layout, &copy, ALL).unwrap();
            prop_assert_eq!(&both, &params);
            let known = layout.fields().iter().filter(|f| f.name() != "CWND_NP_COUNT");
            let mut masks = vec![0_u32; layout.size() / 4];
            known.for_each(|field| masks[field.offset() / 4] |= field.mask());
            for (index, mask) in masks.into_iter().enumerate() {
                let dword = |bytes: &[u8]| {
                    u32::from_be_bytes(bytes[index * 4..][..4].try_into().unwrap())
                };
                prop_assert_eq!(dword(&copy) & !mask, dword(bytes) & !mask);
            }
        }
    }
}
