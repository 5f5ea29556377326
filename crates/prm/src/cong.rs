//! Layouts of the RoCE congestion control (DCQCN) parameters: in the configuration records that
//! survive a reset, and in the commands that change a running port.
//!
//! These are not access registers, so [`REGISTERS`](crate::REGISTERS) does not list them. What is
//! called their id here is the type of the record, or the `cong_protocol` of the command.
//!
//! Sources: mlxconfig's database for the records, `mlx5_ifc.h` of Linux for the commands.

use crate::{Access, Field, Register};

macro_rules! fields {
    ($($name:literal $at:tt $doc:literal;)*) => {
        &[$(&Field::new($name, $at, Access::Rw, $doc),)*]
    };
}

/// Configuration record: priorities, moderation, algorithm.
pub const NV_ROCE_CC: Register = Register::new(
    "nv_roce_cc",
    0x107,
    0x4,
    fields! {
        "ROCE_CC_ALGORITHM" (0x0, 31, 1) "0 = ECN (DCQCN), 1 = QCN.";
        "ROCE_CC_SHAPER_COALESCE" (0x0, 24, 3) "What flows share a limiter by.";
        "CWND_NP_COUNT" (0x0, 11, 2) "Not a parameter of DCQCN.";
        "ROCE_CC_CNP_MODERATION" (0x0, 8, 3) "What CNPs are moderated by.";
        "ROCE_CC_PRIO_MASK" (0x0, 0, 8) "Priorities with congestion control.";
    },
);

/// Configuration record: the parameters of reaction and notification point.
pub const NV_ROCE_CC_ECN: Register = Register::new(
    "nv_roce_cc_ecn",
    0x108,
    0x44,
    fields! {
        "CLAMP_TGT_RATE" (0x0, 31, 1) "Every cut sets the target rate.";
        "CLAMP_TGT_RATE_AFTER_TIME_INC" (0x0, 30, 1) "So does one after an increase by the timer.";
        "RPG_TIME_RESET" (0x4, 0, 17) "Time between increases, us.";
        "RPG_BYTE_RESET" (0x8, 0, 32) "Data between increases.";
        "RPG_THRESHOLD" (0xc, 0, 5) "Increases before the next phase.";
        "RPG_MAX_RATE" (0x10, 0, 32) "Rate at which a flow is released, Mb/s.";
        "RPG_AI_RATE" (0x14, 0, 32) "Additive increase, Mb/s.";
        "RPG_HAI_RATE" (0x18, 0, 32) "Hyper increase, Mb/s.";
        "RPG_GD" (0x1c, 0, 4) "Logarithm of what divides alpha in a cut.";
        "RPG_MIN_DEC_FAC" (0x20, 0, 8) "The least that a cut leaves, percent.";
        "RPG_MIN_RATE" (0x24, 0, 32) "Minimum rate, Mb/s.";
        "RATE_TO_SET_ON_FIRST_CNP" (0x28, 0, 32) "Rate at the first CNP, Mb/s.";
        "DCE_TCP_G" (0x2c, 0, 10) "What alpha keeps at an update, 1/1024.";
        "DCE_TCP_RTT" (0x30, 0, 17) "Time between updates of alpha, us.";
        "RATE_REDUCE_MONITOR_PERIOD" (0x34, 0, 17) "Time between cuts, us.";
        "INITIAL_ALPHA_VALUE" (0x38, 0, 10) "Alpha at the first CNP, 1/1024.";
        "MIN_TIME_BETWEEN_CNPS" (0x3c, 0, 17) "Time between CNPs, us.";
        "CNP_DSCP" (0x40, 8, 6) "DSCP of CNPs.";
        "CNP_DSCP_MODE" (0x40, 4, 2) "Where the DSCP of CNPs comes from.";
        "CNP_RES_PRIO_MODE" (0x40, 3, 1) "Where the priority of CNPs comes from.";
        "CNP_802P_PRIO" (0x40, 0, 3) "Priority of CNPs.";
    },
);

/// Parameters of the reaction point in `QUERY_CONG_PARAMS` and `MODIFY_CONG_PARAMS`.
pub const CONG_CONTROL_RP: Register = Register::new(
    "cong_control_r_roce_ecn_rp",
    1,
    0x100,
    fields! {
        "clamp_tgt_rate" (0xc, 27, 1) "Every cut sets the target rate.";
        "clamp_tgt_rate_after_time_inc" (0xc, 23, 1) "So does one after an increase by the timer.";
        "rpg_time_reset" (0x14, 0, 32) "Time between increases, us.";
        "rpg_byte_reset" (0x18, 0, 32) "Data between increases.";
        "rpg_threshold" (0x1c, 0, 32) "Increases before the next phase.";
        "rpg_max_rate" (0x20, 0, 32) "Rate at which a flow is released, Mb/s.";
        "rpg_ai_rate" (0x24, 0, 32) "Additive increase, Mb/s.";
        "rpg_hai_rate" (0x28, 0, 32) "Hyper increase, Mb/s.";
        "rpg_gd" (0x2c, 0, 32) "Logarithm of what divides alpha in a cut.";
        "rpg_min_dec_fac" (0x30, 0, 32) "The least that a cut leaves, percent.";
        "rpg_min_rate" (0x34, 0, 32) "Minimum rate, Mb/s.";
        "rate_to_set_on_first_cnp" (0x54, 0, 32) "Rate at the first CNP, Mb/s.";
        "dce_tcp_g" (0x58, 0, 32) "What alpha keeps at an update, 1/1024.";
        "dce_tcp_rtt" (0x5c, 0, 32) "Time between updates of alpha, us.";
        "rate_reduce_monitor_period" (0x60, 0, 32) "Time between cuts, us.";
        "initial_alpha_value" (0x68, 0, 32) "Alpha at the first CNP, 1/1024.";
    },
);

/// Parameters of the notification point in the same commands.
pub const CONG_CONTROL_NP: Register = Register::new(
    "cong_control_r_roce_ecn_np",
    2,
    0x100,
    fields! {
        "min_time_between_cnps" (0x14, 0, 32) "Time between CNPs, us.";
        "cnp_dscp" (0x18, 8, 6) "DSCP of CNPs.";
        "cnp_prio_mode" (0x18, 3, 1) "Where the priority of CNPs comes from.";
        "cnp_802p_prio" (0x18, 0, 3) "Priority of CNPs.";
    },
);

/// Every layout of this module.
pub const LAYOUTS: &[&Register] = &[
    &NV_ROCE_CC,
    &NV_ROCE_CC_ECN,
    &CONG_CONTROL_RP,
    &CONG_CONTROL_NP,
];

/// Returns the bit of `field_select` in `MODIFY_CONG_PARAMS` that selects a field for writing, or
/// `None` for fields of the configuration records, which are always written.
#[must_use]
pub fn select_bit(field: &Field) -> Option<u32> {
    let bit = match field.name() {
        "clamp_tgt_rate" => 1,
        "clamp_tgt_rate_after_time_inc" => 2,
        "rpg_time_reset" => 3,
        "rpg_byte_reset" => 4,
        "rpg_threshold" => 5,
        "rpg_max_rate" => 6,
        "rpg_ai_rate" => 7,
        "rpg_hai_rate" => 8,
        "rpg_min_dec_fac" => 9,
        "rpg_min_rate" => 10,
        "rate_to_set_on_first_cnp" => 11,
        "dce_tcp_g" => 12,
        "dce_tcp_rtt" => 13,
        "rate_reduce_monitor_period" => 14,
        "initial_alpha_value" => 15,
        "rpg_gd" => 16,
        "min_time_between_cnps" => 2,
        "cnp_dscp" => 3,
        "cnp_802p_prio" | "cnp_prio_mode" => 4,
        _ => return None,
    };
    Some(1 << bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of a command count from its first bit, as `mlx5_ifc.h` writes them.
    #[test]
    fn fields_of_commands_lie_at_the_published_bits() {
        let bit = |layout: &Register, name: &str| {
            let field = layout.field(name).unwrap();
            field.offset() * 8 + 32 - usize::from(field.lsb() + field.width())
        };
        for (name, at) in [
            ("clamp_tgt_rate", 0x64),
            ("clamp_tgt_rate_after_time_inc", 0x68),
            ("rpg_time_reset", 0xa0),
            ("rpg_byte_reset", 0xc0),
            ("rpg_threshold", 0xe0),
            ("rpg_max_rate", 0x100),
            ("rpg_ai_rate", 0x120),
            ("rpg_hai_rate", 0x140),
            ("rpg_gd", 0x160),
            ("rpg_min_dec_fac", 0x180),
            ("rpg_min_rate", 0x1a0),
            ("rate_to_set_on_first_cnp", 0x2a0),
            ("dce_tcp_g", 0x2c0),
            ("dce_tcp_rtt", 0x2e0),
            ("rate_reduce_monitor_period", 0x300),
            ("initial_alpha_value", 0x340),
        ] {
            assert_eq!(bit(&CONG_CONTROL_RP, name), at, "{name}");
        }
        for (name, at) in [
            ("min_time_between_cnps", 0xa0),
            ("cnp_dscp", 0xd2),
            ("cnp_prio_mode", 0xdc),
            ("cnp_802p_prio", 0xdd),
        ] {
            assert_eq!(bit(&CONG_CONTROL_NP, name), at, "{name}");
        }
    }

    #[test]
    fn command_fields_have_select_bits_and_record_fields_do_not() {
        for layout in [&CONG_CONTROL_RP, &CONG_CONTROL_NP] {
            let mut seen = 0;
            for field in layout.fields() {
                let bit = select_bit(field).unwrap();
                let is_shared = field.name() == "cnp_802p_prio";
                assert!(seen & bit == 0 || is_shared, "{}", field.name());
                seen |= bit;
            }
        }
        for layout in [&NV_ROCE_CC, &NV_ROCE_CC_ECN] {
            assert!(
                layout
                    .fields()
                    .iter()
                    .all(|field| select_bit(field).is_none())
            );
        }
    }
}
