//! ROCE_ACCL, the register that switches RoCE accelerations and carries the adaptive
//! retransmission profile.
//!
//! A query returns ones in the select bits of what can be configured; a set writes only what its
//! select bits name.

use crate::{Access, Field, Register};

/// How many timeout ranges a profile has room for.
pub const RANGE_NUM_MAX: usize = 4;

/// Where the profile lies inside the register.
pub const PROFILE_OFFSET: usize = 0x10;

/// Size of the profile in bytes.
pub const PROFILE_SIZE: usize = 0x30;

/// The register and its fields, in the order in which tools print them.
pub const ROCE_ACCL: Register = Register::new("ROCE_ACCL", 0x402c, 0x80, FIELDS);

/// The select bits of a set: each says that one feature is written.
pub const SELECTS: &[&Field] = &[
    &ROCE_ADP_RETRANS_FIELD_SELECT,
    &ROCE_TX_WINDOW_FIELD_SELECT,
    &ROCE_SLOW_RESTART_FIELD_SELECT,
    &ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
    &MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
    &ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT,
    &SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT,
    &DC_HALF_HANDSHAKE_EN_FIELD_SELECT,
    &CC_PER_PLANE_EN_FIELD_SELECT,
    &ACK_DSCP_FORCE_FIELD_SELECT,
    &CC_BURST_SIZE_SELECT,
    &CC_PROBE_MP_MODE_FIELD_SELECT,
    &IFA2_TURN_AROUND_SELECT,
    &ADP_RETX_PROFILE_SELECT,
];

const DEC_MODES: &[(u32, &str)] = &[(0, "TO_DIV_4"), (1, "TO_DIV_2"), (2, "TO_LOW_BOUND")];

/// One field of `timeout_range[i]` for each of the four ranges.
macro_rules! ranges {
    ($name:literal, ($lsb:literal, $width:literal), $doc:literal, $values:expr) => {
        [
            ranges!(@ 0, 0x18, $name, $lsb, $width, $doc, $values),
            ranges!(@ 1, 0x1c, $name, $lsb, $width, $doc, $values),
            ranges!(@ 2, 0x20, $name, $lsb, $width, $doc, $values),
            ranges!(@ 3, 0x24, $name, $lsb, $width, $doc, $values),
        ]
    };
    (@ $i:literal, $offset:literal, $name:literal, $lsb:literal, $width:literal, $doc:literal,
     $values:expr) => {
        Field::new(concat!($name, "_", $i), ($offset, $lsb, $width), Access::Rw, $doc)
            .at(concat!("adp_retx_profile.timeout_range[", $i, "].", $name))
            .with_values($values)
    };
}

/// Query: adaptive retransmission can be configured. Set: it is written.
pub const ROCE_ADP_RETRANS_FIELD_SELECT: Field = Field::new(
    "roce_adp_retrans_field_select",
    (0x0, 0, 1),
    Access::Rw,
    "Query: adaptive retransmission can be configured. Set: it is written.",
);

/// Query: the transmission window can be configured. Set: it is written.
pub const ROCE_TX_WINDOW_FIELD_SELECT: Field = Field::new(
    "roce_tx_window_field_select",
    (0x0, 1, 1),
    Access::Rw,
    "Query: the transmission window can be configured. Set: it is written.",
);

/// Query: slow restart can be configured. Set: it is written.
pub const ROCE_SLOW_RESTART_FIELD_SELECT: Field = Field::new(
    "roce_slow_restart_field_select",
    (0x0, 2, 1),
    Access::Rw,
    "Query: slow restart can be configured. Set: it is written.",
);

/// Query: slow restart after idle can be configured. Set: it is written.
pub const ROCE_SLOW_RESTART_IDLE_FIELD_SELECT: Field = Field::new(
    "roce_slow_restart_idle_field_select",
    (0x0, 3, 1),
    Access::Rw,
    "Query: slow restart after idle can be configured. Set: it is written.",
);

/// Query: the minimum ACK timeout can be configured. Set: it is written.
pub const MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT: Field = Field::new(
    "min_ack_timeout_limit_disabled_field_select",
    (0x0, 4, 1),
    Access::Rw,
    "Query: the minimum ACK timeout can be configured. Set: it is written.",
);

/// Query: forced adaptive routing can be configured. Set: it is written.
pub const ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT: Field = Field::new(
    "adaptive_routing_forced_en_field_select",
    (0x0, 5, 1),
    Access::Rw,
    "Query: forced adaptive routing can be configured. Set: it is written.",
);

/// Query: forced selective repeat can be configured. Set: it is written.
pub const SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT: Field = Field::new(
    "selective_repeat_forced_en_field_select",
    (0x0, 6, 1),
    Access::Rw,
    "Query: forced selective repeat can be configured. Set: it is written.",
);

/// Query: the DC half handshake can be configured. Set: it is written.
pub const DC_HALF_HANDSHAKE_EN_FIELD_SELECT: Field = Field::new(
    "dc_half_handshake_en_field_select",
    (0x0, 7, 1),
    Access::Rw,
    "Query: the DC half handshake can be configured. Set: it is written.",
);

/// Query: congestion control per plane can be configured. Set: it is written.
pub const CC_PER_PLANE_EN_FIELD_SELECT: Field = Field::new(
    "cc_per_plane_en_field_select",
    (0x0, 8, 1),
    Access::Rw,
    "Query: congestion control per plane can be configured. Set: it is written.",
);

/// Query: the forced DSCP of ACKs can be configured. Set: it is written.
pub const ACK_DSCP_FORCE_FIELD_SELECT: Field = Field::new(
    "ack_dscp_force_field_select",
    (0x0, 9, 1),
    Access::Rw,
    "Query: the forced DSCP of ACKs can be configured. Set: it is written.",
);

/// Query: the congestion control burst size can be configured. Set: it is written.
pub const CC_BURST_SIZE_SELECT: Field = Field::new(
    "cc_burst_size_select",
    (0x0, 10, 1),
    Access::Rw,
    "Query: the congestion control burst size can be configured. Set: it is written.",
);

/// Query: the multi-path mode of congestion control probes can be configured. Set: it is written.
pub const CC_PROBE_MP_MODE_FIELD_SELECT: Field = Field::new(
    "cc_probe_mp_mode_field_select",
    (0x0, 11, 1),
    Access::Rw,
    "Query: the multi-path mode of congestion control probes can be configured. Set: it is written.",
);

/// Query: IFA2 turn-around can be configured. Set: it is written.
pub const IFA2_TURN_AROUND_SELECT: Field = Field::new(
    "ifa2_turn_around_select",
    (0x0, 27, 1),
    Access::Rw,
    "Query: IFA2 turn-around can be configured. Set: it is written.",
);

/// Query: profiles are supported, id and profile are valid. Set: the profile is written.
pub const ADP_RETX_PROFILE_SELECT: Field = Field::new(
    "adp_retx_profile_select",
    (0x0, 28, 1),
    Access::Rw,
    "Query: profiles are supported, id and profile are valid. Set: the profile is written.",
);

/// Adaptive retransmission is on.
pub const ROCE_ADP_RETRANS_EN: Field = Field::new(
    "roce_adp_retrans_en",
    (0x4, 0, 1),
    Access::Rw,
    "Adaptive retransmission is on.",
);

/// The transmission window is on.
pub const ROCE_TX_WINDOW_EN: Field = Field::new(
    "roce_tx_window_en",
    (0x4, 1, 1),
    Access::Rw,
    "The transmission window is on.",
);

/// Slow restart upon congestion is on.
pub const ROCE_SLOW_RESTART_EN: Field = Field::new(
    "roce_slow_restart_en",
    (0x4, 2, 1),
    Access::Rw,
    "Slow restart upon congestion is on.",
);

/// Slow restart after the QP was idle is on.
pub const ROCE_SLOW_RESTART_IDLE_EN: Field = Field::new(
    "roce_slow_restart_idle_en",
    (0x4, 3, 1),
    Access::Rw,
    "Slow restart after the QP was idle is on.",
);

/// The minimum ACK timeout is not enforced.
pub const MIN_ACK_TIMEOUT_LIMIT_DISABLED: Field = Field::new(
    "min_ack_timeout_limit_disabled",
    (0x4, 4, 1),
    Access::Rw,
    "The minimum ACK timeout is not enforced.",
);

/// QPs are created with adaptive routing.
pub const ADAPTIVE_ROUTING_FORCED_EN: Field = Field::new(
    "adaptive_routing_forced_en",
    (0x4, 5, 1),
    Access::Rw,
    "QPs are created with adaptive routing.",
);

/// QPs are created with selective repeat.
pub const SELECTIVE_REPEAT_FORCED_EN: Field = Field::new(
    "selective_repeat_forced_en",
    (0x4, 6, 1),
    Access::Rw,
    "QPs are created with selective repeat.",
);

/// The DC half handshake is on.
pub const DC_HALF_HANDSHAKE_EN: Field = Field::new(
    "dc_half_handshake_en",
    (0x4, 7, 1),
    Access::Rw,
    "The DC half handshake is on.",
);

/// Congestion control works per plane.
pub const CC_PER_PLANE_EN: Field = Field::new(
    "cc_per_plane_en",
    (0x4, 8, 1),
    Access::Rw,
    "Congestion control works per plane.",
);

/// The notification point sends ACKs with ack_dscp.
pub const ACK_DSCP_FORCE: Field = Field::new(
    "ack_dscp_force",
    (0x4, 9, 1),
    Access::Rw,
    "The notification point sends ACKs with ack_dscp.",
);

/// DSCP of ACKs when ack_dscp_force is set.
pub const ACK_DSCP: Field = Field::new(
    "ack_dscp",
    (0x4, 10, 6),
    Access::Rw,
    "DSCP of ACKs when ack_dscp_force is set.",
);

/// Burst size of congestion control.
pub const CC_BURST_SIZE: Field = Field::new(
    "cc_burst_size",
    (0x4, 24, 3),
    Access::Rw,
    "Burst size of congestion control.",
)
.with_values(&[(0, "4KB"), (1, "8KB"), (2, "16KB"), (7, "1.5KB")]);

/// IFA2 turn-around is on.
pub const IFA2_TURN_AROUND_EN: Field = Field::new(
    "ifa2_turn_around_en",
    (0x4, 27, 1),
    Access::Rw,
    "IFA2 turn-around is on.",
);

/// The profile to query or write; 0 stands for the firmware's own timeouts.
pub const ADP_RETX_PROFILE_ID: Field = Field::new(
    "adp_retx_profile_id",
    (0x4, 28, 3),
    Access::Index,
    "The profile to query or write; 0 stands for the firmware's own timeouts.",
);

/// The smallest time_base a profile may have, in nanoseconds.
pub const ADP_RETX_BASE_TIMEOUT_MIN: Field = Field::new(
    "adp_retx_base_timeout_min",
    (0x8, 0, 20),
    Access::Ro,
    "The smallest time_base a profile may have, in nanoseconds.",
);

/// What multi-path congestion control probes meet.
pub const CC_PROBE_MP_MODE: Field = Field::new(
    "cc_probe_mp_mode",
    (0x8, 20, 2),
    Access::Rw,
    "What multi-path congestion control probes meet.",
)
.with_values(&[(0, "ACCEPT"), (1, "DISCARD")]);

/// The largest adp_retx_profile_id.
pub const ADP_RETX_PROFILE_MAX_ID: Field = Field::new(
    "adp_retx_profile_max_id",
    (0x8, 24, 3),
    Access::Ro,
    "The largest adp_retx_profile_id.",
);

/// How many timeout ranges a profile may have.
pub const ADP_RETX_PROFILE_MAX_RANGE_NUM: Field = Field::new(
    "adp_retx_profile_max_range_num",
    (0x8, 28, 3),
    Access::Ro,
    "How many timeout ranges a profile may have.",
);

/// Base of all durations of the profile, in time_unit.
pub const TIME_BASE: Field = Field::new(
    "time_base",
    (0x10, 0, 16),
    Access::Rw,
    "Base of all durations of the profile, in time_unit.",
)
.at("adp_retx_profile.time_base");

/// Unit of time_base.
pub const TIME_UNIT: Field =
    Field::new("time_unit", (0x10, 22, 2), Access::Rw, "Unit of time_base.")
        .at("adp_retx_profile.time_unit")
        .with_values(&[(1, "TIME_USEC")]);

/// The range that follows an initial timeout outside every range.
pub const START_RANGE_INDEX: Field = Field::new(
    "start_range_index",
    (0x10, 24, 3),
    Access::Rw,
    "The range that follows an initial timeout outside every range.",
)
.at("adp_retx_profile.start_range_index");

/// How many entries of timeout_range are in use.
pub const RANGE_NUM: Field = Field::new(
    "range_num",
    (0x10, 28, 3),
    Access::Rw,
    "How many entries of timeout_range are in use.",
)
.at("adp_retx_profile.range_num");

/// The QP's own timeout times its retry count limits an outage, not retx_total_timeout.
pub const QP_TOTAL_TIMEOUT: Field = Field::new(
    "qp_total_timeout",
    (0x10, 31, 1),
    Access::Rw,
    "The QP's own timeout times its retry count limits an outage, not retx_total_timeout.",
)
.at("adp_retx_profile.qp_total_timeout");

/// How many exponents the initial timeout is drawn from.
pub const TIMEOUT_INIT_RANGE_SIZE: Field = Field::new(
    "timeout_init_range_size",
    (0x14, 0, 8),
    Access::Rw,
    "How many exponents the initial timeout is drawn from.",
)
.at("adp_retx_profile.timeout_init_range_size");

/// The smallest exponent of the initial timeout.
pub const TIMEOUT_INIT_LOW_BOUND: Field = Field::new(
    "timeout_init_low_bound",
    (0x14, 8, 8),
    Access::Rw,
    "The smallest exponent of the initial timeout.",
)
.at("adp_retx_profile.timeout_init_low_bound");

/// Exponent of the longest outage, when qp_total_timeout is 0.
pub const RETX_TOTAL_TIMEOUT: Field = Field::new(
    "retx_total_timeout",
    (0x14, 24, 8),
    Access::Rw,
    "Exponent of the longest outage, when qp_total_timeout is 0.",
)
.at("adp_retx_profile.retx_total_timeout");

/// How far the range reaches above its low bound, in exponents. One entry per range.
pub const RANGE_SIZE: [Field; RANGE_NUM_MAX] = ranges!(
    "range_size",
    (0, 8),
    "How far the range reaches above its low bound, in exponents.",
    &[]
);

/// The smallest exponent of the range. One entry per range.
pub const RANGE_LOW_BOUND: [Field; RANGE_NUM_MAX] = ranges!(
    "range_low_bound",
    (8, 8),
    "The smallest exponent of the range.",
    &[]
);

/// How many times each timeout of the range is used before it doubles. One entry per range.
pub const TIMEOUT_RETRY_NUM: [Field; RANGE_NUM_MAX] = ranges!(
    "timeout_retry_num",
    (16, 10),
    "How many times each timeout of the range is used before it doubles.",
    &[]
);

/// How the timeout shrinks inside the range. One entry per range.
pub const DEC_MODE: [Field; RANGE_NUM_MAX] = ranges!(
    "dec_mode",
    (26, 2),
    "How the timeout shrinks inside the range.",
    DEC_MODES
);

/// The range that follows downwards, below the low bound. One entry per range.
pub const PREV_RANGE_INDEX: [Field; RANGE_NUM_MAX] = ranges!(
    "prev_range_index",
    (28, 3),
    "The range that follows downwards, below the low bound.",
    &[]
);

const FIELDS: &[&Field] = &[
    &ROCE_ADP_RETRANS_FIELD_SELECT,
    &ROCE_TX_WINDOW_FIELD_SELECT,
    &ROCE_SLOW_RESTART_FIELD_SELECT,
    &ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
    &MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
    &ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT,
    &SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT,
    &DC_HALF_HANDSHAKE_EN_FIELD_SELECT,
    &CC_PER_PLANE_EN_FIELD_SELECT,
    &ACK_DSCP_FORCE_FIELD_SELECT,
    &CC_BURST_SIZE_SELECT,
    &CC_PROBE_MP_MODE_FIELD_SELECT,
    &IFA2_TURN_AROUND_SELECT,
    &ADP_RETX_PROFILE_SELECT,
    &ROCE_ADP_RETRANS_EN,
    &ROCE_TX_WINDOW_EN,
    &ROCE_SLOW_RESTART_EN,
    &ROCE_SLOW_RESTART_IDLE_EN,
    &MIN_ACK_TIMEOUT_LIMIT_DISABLED,
    &ADAPTIVE_ROUTING_FORCED_EN,
    &SELECTIVE_REPEAT_FORCED_EN,
    &DC_HALF_HANDSHAKE_EN,
    &CC_PER_PLANE_EN,
    &ACK_DSCP_FORCE,
    &ACK_DSCP,
    &CC_BURST_SIZE,
    &IFA2_TURN_AROUND_EN,
    &ADP_RETX_PROFILE_ID,
    &ADP_RETX_BASE_TIMEOUT_MIN,
    &CC_PROBE_MP_MODE,
    &ADP_RETX_PROFILE_MAX_ID,
    &ADP_RETX_PROFILE_MAX_RANGE_NUM,
    &TIME_BASE,
    &TIME_UNIT,
    &START_RANGE_INDEX,
    &RANGE_NUM,
    &QP_TOTAL_TIMEOUT,
    &TIMEOUT_INIT_RANGE_SIZE,
    &TIMEOUT_INIT_LOW_BOUND,
    &RETX_TOTAL_TIMEOUT,
    &RANGE_SIZE[0],
    &RANGE_LOW_BOUND[0],
    &TIMEOUT_RETRY_NUM[0],
    &DEC_MODE[0],
    &PREV_RANGE_INDEX[0],
    &RANGE_SIZE[1],
    &RANGE_LOW_BOUND[1],
    &TIMEOUT_RETRY_NUM[1],
    &DEC_MODE[1],
    &PREV_RANGE_INDEX[1],
    &RANGE_SIZE[2],
    &RANGE_LOW_BOUND[2],
    &TIMEOUT_RETRY_NUM[2],
    &DEC_MODE[2],
    &PREV_RANGE_INDEX[2],
    &RANGE_SIZE[3],
    &RANGE_LOW_BOUND[3],
    &TIMEOUT_RETRY_NUM[3],
    &DEC_MODE[3],
    &PREV_RANGE_INDEX[3],
];

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_paths_are_unique() {
        let names: BTreeSet<_> = FIELDS.iter().map(|field| field.name()).collect();
        let paths: BTreeSet<_> = FIELDS.iter().map(|field| field.path()).collect();
        assert_eq!(names.len(), FIELDS.len());
        assert_eq!(paths.len(), FIELDS.len());
    }

    #[test]
    fn every_select_bit_is_listed() {
        let in_table = FIELDS.iter().filter(|field| field.offset() == 0).count();
        assert_eq!(in_table, SELECTS.len());
    }

    #[test]
    fn a_field_answers_to_short_name_path_and_suffix() {
        let size = ROCE_ACCL.field("range_size_0").unwrap();
        assert_eq!(size.offset(), 0x18);
        let by_path = ROCE_ACCL.field("adp_retx_profile.timeout_range[0].range_size");
        assert_eq!(by_path, Some(size));
        assert_eq!(ROCE_ACCL.field("timeout_range[0].range_size"), Some(size));
        assert_eq!(ROCE_ACCL.field("range_size"), None, "four fields end so");
        assert_eq!(ROCE_ACCL.field("time_base"), Some(&TIME_BASE));
        assert_eq!(
            ROCE_ACCL.field("adp_retx_profile.time_base"),
            Some(&TIME_BASE)
        );
        assert_eq!(ROCE_ACCL.field("e_base"), None);
    }

    /// The raw tokens that the real tools take for the profile.
    #[test]
    fn bit_positions_are_the_published_ones() {
        for (name, offset, lsb, width) in [
            ("adp_retx_profile_select", 0x0, 28, 1),
            ("roce_adp_retrans_field_select", 0x0, 0, 1),
            ("adp_retx_profile_id", 0x4, 28, 3),
            ("roce_adp_retrans_en", 0x4, 0, 1),
            ("adp_retx_profile_max_range_num", 0x8, 28, 3),
            ("adp_retx_profile_max_id", 0x8, 24, 3),
            ("adp_retx_base_timeout_min", 0x8, 0, 20),
            ("qp_total_timeout", 0x10, 31, 1),
            ("range_num", 0x10, 28, 3),
            ("start_range_index", 0x10, 24, 3),
            ("time_unit", 0x10, 22, 2),
            ("time_base", 0x10, 0, 16),
            ("retx_total_timeout", 0x14, 24, 8),
            ("timeout_init_low_bound", 0x14, 8, 8),
            ("timeout_init_range_size", 0x14, 0, 8),
            ("prev_range_index_3", 0x24, 28, 3),
            ("dec_mode_3", 0x24, 26, 2),
            ("timeout_retry_num_3", 0x24, 16, 10),
            ("range_low_bound_3", 0x24, 8, 8),
            ("range_size_3", 0x24, 0, 8),
        ] {
            let field = ROCE_ACCL.field(name).unwrap();
            assert_eq!(
                (field.offset(), field.lsb(), field.width()),
                (offset, lsb, width)
            );
        }
    }
}
