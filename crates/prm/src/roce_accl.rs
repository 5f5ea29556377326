//! ROCE_ACCL, the register that switches RoCE accelerations and carries the adaptive
//! retransmission profile.
//!
//! A query returns ones in the select bits of features that can be configured. A set writes only
//! the features whose select bits are set.

use crate::{Access, Field, Register};

/// The maximum number of timeout ranges in a profile.
pub const RANGE_NUM_MAX: usize = 4;

/// Offset of the profile in the register, bytes.
pub const PROFILE_OFFSET: usize = 0x10;

/// Size of the profile in bytes.
pub const PROFILE_SIZE: usize = 0x30;

/// The register and its fields, in the order in which tools print them.
pub const ROCE_ACCL: Register = Register::new("ROCE_ACCL", 0x402c, 0x80, FIELDS)
    .about("RoCE accelerations, and the adaptive retransmission profile.");

/// The select bits of a set: each one selects a feature for writing.
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

/// Returns the select bit that a set needs to write `field`, or `None` if the field is read-only or
/// is itself a select bit.
#[must_use]
pub fn select_of(field: &Field) -> Option<&'static Field> {
    let by_values = [
        (&ROCE_ADP_RETRANS_FIELD_SELECT, &ROCE_ADP_RETRANS_EN),
        (&ROCE_TX_WINDOW_FIELD_SELECT, &ROCE_TX_WINDOW_EN),
        (&ROCE_SLOW_RESTART_FIELD_SELECT, &ROCE_SLOW_RESTART_EN),
        (
            &ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
            &ROCE_SLOW_RESTART_IDLE_EN,
        ),
        (
            &MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
            &MIN_ACK_TIMEOUT_LIMIT_DISABLED,
        ),
        (
            &ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT,
            &ADAPTIVE_ROUTING_FORCED_EN,
        ),
        (
            &SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT,
            &SELECTIVE_REPEAT_FORCED_EN,
        ),
        (&DC_HALF_HANDSHAKE_EN_FIELD_SELECT, &DC_HALF_HANDSHAKE_EN),
        (&CC_PER_PLANE_EN_FIELD_SELECT, &CC_PER_PLANE_EN),
        (&ACK_DSCP_FORCE_FIELD_SELECT, &ACK_DSCP_FORCE),
        (&ACK_DSCP_FORCE_FIELD_SELECT, &ACK_DSCP),
        (&CC_BURST_SIZE_SELECT, &CC_BURST_SIZE),
        (&CC_PROBE_MP_MODE_FIELD_SELECT, &CC_PROBE_MP_MODE),
        (&IFA2_TURN_AROUND_SELECT, &IFA2_TURN_AROUND_EN),
        (&ADP_RETX_PROFILE_SELECT, &ADP_RETX_PROFILE_ID),
    ];
    if field.offset() >= PROFILE_OFFSET {
        return Some(&ADP_RETX_PROFILE_SELECT);
    }
    let found = by_values.iter().find(|(_, value)| *value == field);
    found.map(|(select, _)| *select)
}

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

define_fields! {
    /// Query: adaptive retransmission can be configured. Set: it is written.
    ROCE_ADP_RETRANS_FIELD_SELECT = "roce_adp_retrans_field_select", (0x0, 0, 1), Rw;
    /// Query: the transmission window can be configured. Set: it is written.
    ROCE_TX_WINDOW_FIELD_SELECT = "roce_tx_window_field_select", (0x0, 1, 1), Rw;
    /// Query: slow restart can be configured. Set: it is written.
    ROCE_SLOW_RESTART_FIELD_SELECT = "roce_slow_restart_field_select", (0x0, 2, 1), Rw;
    /// Query: slow restart after idle can be configured. Set: it is written.
    ROCE_SLOW_RESTART_IDLE_FIELD_SELECT = "roce_slow_restart_idle_field_select", (0x0, 3, 1), Rw;
    /// Query: the minimum ACK timeout can be configured. Set: it is written.
    MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT =
        "min_ack_timeout_limit_disabled_field_select", (0x0, 4, 1), Rw;
    /// Query: forced adaptive routing can be configured. Set: it is written.
    ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT =
        "adaptive_routing_forced_en_field_select", (0x0, 5, 1), Rw;
    /// Query: forced selective repeat can be configured. Set: it is written.
    SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT =
        "selective_repeat_forced_en_field_select", (0x0, 6, 1), Rw;
    /// Query: the DC half handshake can be configured. Set: it is written.
    DC_HALF_HANDSHAKE_EN_FIELD_SELECT = "dc_half_handshake_en_field_select", (0x0, 7, 1), Rw;
    /// Query: congestion control per plane can be configured. Set: it is written.
    CC_PER_PLANE_EN_FIELD_SELECT = "cc_per_plane_en_field_select", (0x0, 8, 1), Rw;
    /// Query: the forced DSCP of ACKs can be configured. Set: it is written.
    ACK_DSCP_FORCE_FIELD_SELECT = "ack_dscp_force_field_select", (0x0, 9, 1), Rw;
    /// Query: the congestion control burst size can be configured. Set: it is written.
    CC_BURST_SIZE_SELECT = "cc_burst_size_select", (0x0, 10, 1), Rw;
    /// Query: the multi-path mode of congestion control probes can be configured. Set: it is
    /// written.
    CC_PROBE_MP_MODE_FIELD_SELECT = "cc_probe_mp_mode_field_select", (0x0, 11, 1), Rw;
    /// Query: IFA2 turn-around can be configured. Set: it is written.
    IFA2_TURN_AROUND_SELECT = "ifa2_turn_around_select", (0x0, 27, 1), Rw;
    /// Query: profiles are supported, id and profile are valid. Set: the profile is written.
    ADP_RETX_PROFILE_SELECT = "adp_retx_profile_select", (0x0, 28, 1), Rw;
    /// Adaptive retransmission is on.
    ROCE_ADP_RETRANS_EN = "roce_adp_retrans_en", (0x4, 0, 1), Rw;
    /// The transmission window is on.
    ROCE_TX_WINDOW_EN = "roce_tx_window_en", (0x4, 1, 1), Rw;
    /// Slow restart upon congestion is on.
    ROCE_SLOW_RESTART_EN = "roce_slow_restart_en", (0x4, 2, 1), Rw;
    /// Slow restart after the QP was idle is on.
    ROCE_SLOW_RESTART_IDLE_EN = "roce_slow_restart_idle_en", (0x4, 3, 1), Rw;
    /// The minimum ACK timeout is not enforced.
    MIN_ACK_TIMEOUT_LIMIT_DISABLED = "min_ack_timeout_limit_disabled", (0x4, 4, 1), Rw;
    /// QPs are created with adaptive routing.
    ADAPTIVE_ROUTING_FORCED_EN = "adaptive_routing_forced_en", (0x4, 5, 1), Rw;
    /// QPs are created with selective repeat.
    SELECTIVE_REPEAT_FORCED_EN = "selective_repeat_forced_en", (0x4, 6, 1), Rw;
    /// The DC half handshake is on.
    DC_HALF_HANDSHAKE_EN = "dc_half_handshake_en", (0x4, 7, 1), Rw;
    /// Congestion control works per plane.
    CC_PER_PLANE_EN = "cc_per_plane_en", (0x4, 8, 1), Rw;
    /// The notification point sends ACKs with ack_dscp.
    ACK_DSCP_FORCE = "ack_dscp_force", (0x4, 9, 1), Rw;
    /// DSCP of ACKs when ack_dscp_force is set.
    ACK_DSCP = "ack_dscp", (0x4, 10, 6), Rw;
    /// Burst size of congestion control.
    CC_BURST_SIZE =
        "cc_burst_size", (0x4, 24, 3), Rw,
        values &[(0, "BURST_4KB"), (1, "BURST_8KB"), (2, "BURST_16KB"), (7, "BURST_1_5KB")];
    /// IFA2 turn-around is on.
    IFA2_TURN_AROUND_EN = "ifa2_turn_around_en", (0x4, 27, 1), Rw;
    /// The profile to query or write; 0 stands for the firmware's own timeouts.
    ADP_RETX_PROFILE_ID = "adp_retx_profile_id", (0x4, 28, 3), Index;
    /// The smallest time_base a profile may have, in nanoseconds.
    ADP_RETX_BASE_TIMEOUT_MIN = "adp_retx_base_timeout_min", (0x8, 0, 20), Ro;
    /// What multi-path congestion control probes meet.
    CC_PROBE_MP_MODE =
        "cc_probe_mp_mode", (0x8, 20, 2), Rw, values &[(0, "PROBE_ACCEPT"), (1, "PROBE_DISCARD")];
    /// The largest adp_retx_profile_id.
    ADP_RETX_PROFILE_MAX_ID = "adp_retx_profile_max_id", (0x8, 24, 3), Ro;
    /// How many timeout ranges a profile may have.
    ADP_RETX_PROFILE_MAX_RANGE_NUM = "adp_retx_profile_max_range_num", (0x8, 28, 3), Ro;
    /// Base of all durations of the profile, in time_unit.
    TIME_BASE = "time_base", (0x10, 0, 16), Rw, at "adp_retx_profile.time_base";
    /// Unit of time_base.
    TIME_UNIT =
        "time_unit", (0x10, 22, 2), Rw, at "adp_retx_profile.time_unit", values &[(1, "TIME_USEC")];
    /// The range that follows an initial timeout outside every range.
    START_RANGE_INDEX =
        "start_range_index", (0x10, 24, 3), Rw, at "adp_retx_profile.start_range_index";
    /// How many entries of timeout_range are in use.
    RANGE_NUM = "range_num", (0x10, 28, 3), Rw, at "adp_retx_profile.range_num";
    /// The QP's own timeout times its retry count limits an outage, not retx_total_timeout.
    QP_TOTAL_TIMEOUT =
        "qp_total_timeout", (0x10, 31, 1), Rw, at "adp_retx_profile.qp_total_timeout";
    /// How many exponents the initial timeout is drawn from.
    TIMEOUT_INIT_RANGE_SIZE =
        "timeout_init_range_size", (0x14, 0, 8), Rw, at "adp_retx_profile.timeout_init_range_size";
    /// The smallest exponent of the initial timeout.
    TIMEOUT_INIT_LOW_BOUND =
        "timeout_init_low_bound", (0x14, 8, 8), Rw, at "adp_retx_profile.timeout_init_low_bound";
    /// Exponent of the longest outage, when qp_total_timeout is 0.
    RETX_TOTAL_TIMEOUT =
        "retx_total_timeout", (0x14, 24, 8), Rw, at "adp_retx_profile.retx_total_timeout";
}

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
    use super::*;

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

    #[test]
    fn every_field_that_can_be_written_has_its_select_bit() {
        for field in FIELDS {
            let is_value = field.offset() > 0 && field.access() != Access::Ro;
            assert_eq!(select_of(field).is_some(), is_value, "{}", field.name());
        }
        for select in SELECTS {
            assert!(FIELDS.iter().any(|field| select_of(field) == Some(select)));
        }
        let select = select_of(&ACK_DSCP).unwrap();
        assert_eq!(select.name(), "ack_dscp_force_field_select");
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
