//! Reading and writing parameters in the words of the tools.

use ferroce_dcqcn::{Param, ParamError, Params, Rate, Target, Unit, Vocabulary};
use proptest::prelude::*;

#[test]
fn the_defaults_are_the_firmwares() {
    let params = Params::default();
    for (name, value) in [
        ("dce_tcp_g", 1019),
        ("dce_tcp_rtt", 1),
        ("initial_alpha_value", 1023),
        ("rate_to_set_on_first_cnp", 0),
        ("rpg_min_dec_fac", 50),
        ("rpg_min_rate", 1),
        ("rpg_gd", 11),
        ("rate_reduce_monitor_period", 4),
        ("clamp_tgt_rate", 0),
        ("clamp_tgt_rate_after_time_inc", 1),
        ("rpg_time_reset", 300),
        ("rpg_byte_reset", 32767),
        ("rpg_threshold", 1),
        ("rpg_max_rate", 0),
        ("rpg_ai_rate", 5),
        ("rpg_hai_rate", 50),
        ("cnp_dscp", 48),
        ("cnp_802p_prio", 6),
        ("np_cnp_prio_mode", 0),
        ("min_time_between_cnps", 4),
        ("ROCE_CC_PRIO_MASK_P1", 255),
    ] {
        assert_eq!(params.read(Target::parse(name).unwrap()), value, "{name}");
    }
}

#[test]
fn one_parameter_has_four_names() {
    for name in [
        "rpg_hai_rate",
        "/sys/class/net/eth0/ecn/roce_rp/rpg_hai_rate",
        "rp_hai_rate",
        "cc_params/rp_hai_rate",
        "RPG_HAI_RATE",
        "RPG_HAI_RATE_P2",
        "DcQcnHAIRate",
        "dcqcnhairate",
    ] {
        let target = Target::parse(name).unwrap();
        assert_eq!((target.param, target.priority), (Param::HaiRate, None));
    }
}

#[test]
fn each_point_has_its_own_priority_mask() {
    let mut params = Params::default();
    let mut masks = |assignment: &str| {
        params.assign(assignment).unwrap();
        (params.get(Param::PrioMask), params.get(Param::NpPrioMask))
    };
    assert_eq!(masks("enable=0x0f"), (0b1111, 0b1111));
    assert_eq!(masks("ecn/roce_np/enable/0=0"), (0b1111, 0b1110));
    assert_eq!(
        masks("/sys/class/net/eth0/ecn/roce_rp/enable/1=0"),
        (0b1101, 0b1110)
    );
    assert_eq!(masks("DcQcnEnablePrio3 = 0"), (0b0101, 0b0110));
    assert_eq!(masks("enable/7=1"), (0b1000_0101, 0b1000_0110));
    assert_eq!(masks("roce_np/enable=3"), (0b1000_0101, 0b0011));
    assert_eq!(masks("ROCE_CC_PRIO_MASK_P1=4"), (0b0100, 0b0100));
    assert!(params.heeds_cnps(2) && !params.heeds_cnps(3) && !params.heeds_cnps(8));
    assert!(params.answers_marks(2) && !params.answers_marks(3) && !params.answers_marks(8));
}

#[test]
fn a_priority_written_to_a_file_is_used() {
    for (name, mode) in [
        ("cnp_802p_prio", 0),
        ("np_cnp_prio", 0),
        ("CNP_802P_PRIO_P1", 1),
        ("DcQcnCnp802pPrio", 1),
    ] {
        let mut params = Params::default().with(Param::CnpPrioMode, 1);
        params.assign(&format!("{name}=5")).unwrap();
        assert_eq!(params.get(Param::Cnp802pPrio), 5);
        assert_eq!(params.get(Param::CnpPrioMode), mode, "{name}");
    }
}

#[test]
fn every_set_survives_printing_in_the_vocabularies_that_have_it() {
    let mut params = Params::default();
    for &param in Param::ALL {
        params
            .set(param, param.max().min(77).max(param.min()))
            .unwrap();
    }
    for vocabulary in Vocabulary::ALL {
        let mut read = Params::default();
        for line in params.display(vocabulary).to_string().lines() {
            read.assign(line).unwrap();
        }
        for &param in Param::ALL
            .iter()
            .filter(|p| p.name_in(vocabulary).is_some())
        {
            assert_eq!(read.get(param), params.get(param), "{vocabulary:?} {param}");
        }
    }
}

#[test]
fn values_are_numbers_of_any_base_or_words() {
    let mut params = Params::default();
    for (text, value) in [("0x10", 16), ("010", 8), ("10", 10), ("0", 0), ("True", 1)] {
        params.assign(&format!("cnp_dscp={text}")).unwrap();
        assert_eq!(params.get(Param::CnpDscp), value, "{text}");
    }
}

#[test]
fn errors_name_the_field_the_value_the_range_and_the_remedy() {
    let message = |text| Params::default().assign(text).unwrap_err().to_string();
    for (text, expected) in [
        ("rpg_gd", "missing value: write rpg_gd=VALUE"),
        (
            "rpg_ai_rat=1",
            "unknown parameter \"rpg_ai_rat\"; did you mean rpg_ai_rate?",
        ),
        (
            "enable/8=1",
            "roce_rp/enable: \"8\" is not a priority; use roce_rp/enable/0 to roce_rp/enable/7",
        ),
        (
            "rpg_gd=+10",
            "invalid rpg_gd \"+10\": must be a number from 10 to 11",
        ),
        (
            "DCE_TCP_G=1024",
            "invalid dce_tcp_g 1024: must be 0 to 1023",
        ),
        ("CNP_DSCP_MODE=3", "invalid CNP_DSCP_MODE 3: must be 0 to 2"),
        ("enable/1=2", "invalid roce_rp/enable 2: must be 0 to 1"),
    ] {
        assert_eq!(message(text), expected);
    }
}

#[test]
fn the_device_clips_where_the_tools_refuse() {
    for &param in Param::ALL {
        let below = param.min().checked_sub(1);
        let above = param.max().checked_add(1);
        for (bad, nearest) in [(below, param.min()), (above, param.max())] {
            let Some(bad) = bad else { continue };
            let mut params = Params::default();
            let refused = params.set(param, bad);
            assert!(matches!(refused, Err(ParamError::OutOfRange { .. })));
            assert_eq!(
                params,
                Params::default(),
                "{param}: a refusal changes nothing"
            );
            assert_eq!(params.set_clipped(param, bad), nearest);
            assert_eq!(params.get(param), nearest);
        }
    }
}

#[test]
fn rates_above_the_ports_speed_are_found() {
    let line = Rate::from_mbps(100_000);
    assert_eq!(Params::default().check(line), Ok(()));
    for &param in Param::ALL.iter().filter(|p| p.unit() == Unit::Mbps) {
        let params = Params::default().with(param, 100_001);
        let expected = ParamError::OutOfRange {
            param,
            value: 100_001,
            min: param.min(),
            max: 100_000,
        };
        assert_eq!(params.check(line), Err(expected));
    }
}

proptest! {
    #[test]
    fn arbitrary_text_neither_panics_nor_leaves_a_range(text in "\\PC{0,40}", number in any::<u32>()) {
        let mut params = Params::default();
        let _ = params.assign(&text);
        for &param in Param::ALL {
            let _ = params.assign(&format!("{param}={number}"));
            let value = params.get(param);
            prop_assert!((param.min()..=param.max()).contains(&value));
        }
    }
}
