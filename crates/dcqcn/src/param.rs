//! The parameters: names, units, ranges, defaults.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// The tools' naming schemes for parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vocabulary {
    /// Leaves below `/sys/class/net/<if>/ecn/roce_rp` and `roce_np` (`rpg_ai_rate`).
    Sysfs,
    /// Files of `/sys/kernel/debug/mlx5/<pci>/cc_params` (`rp_ai_rate`).
    Debugfs,
    /// mlxconfig, without the port suffix `_P1` or `_P2` (`RPG_AI_RATE`).
    NvConfig,
    /// `Mlx5Cmd -QosConfig -Dcqcn` of WinOF-2 (`DcQcnAIRate`).
    WinOf,
}

impl Vocabulary {
    /// All naming schemes, in the order in which names are looked up.
    pub const ALL: [Self; 4] = [Self::Sysfs, Self::Debugfs, Self::NvConfig, Self::WinOf];
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// 0 or 1.
    Bool,
    /// One bit for each priority, bit 0 for priority 0.
    PriorityMask,
    /// A plain number.
    Number,
    /// 1/1024.
    Per1024,
    /// Percent.
    Percent,
    /// Microseconds.
    Micros,
    /// Megabits (10^6 bits) per second.
    Mbps,
    /// Base-2 logarithm.
    Log2,
    /// 64 bytes, or one: the sources disagree
    /// ([`ByteResetUnit`](crate::ByteResetUnit)).
    ByteResetUnits,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bool => "0/1",
            Self::PriorityMask => "mask",
            Self::Number => "",
            Self::Per1024 => "/1024",
            Self::Percent => "%",
            Self::Micros => "us",
            Self::Mbps => "Mb/s",
            Self::Log2 => "log2",
            Self::ByteResetUnits => "64 B",
        })
    }
}

/// One row of the table.
pub(crate) struct Row {
    /// In the order of [`Vocabulary::ALL`]; empty = the tool does not have it.
    pub(crate) names: [&'static str; 4],
    pub(crate) unit: Unit,
    pub(crate) range: (u32, u32),
    pub(crate) bits: u8,
    pub(crate) default: u32,
    pub(crate) source: &'static str,
    pub(crate) doc: &'static str,
}

/// NVIDIA's table of what its tools have in common.
const PAGE: &str = "NVIDIA, DCQCN CC parameters";
/// The database that mlxconfig and mstconfig read.
const DATABASE: &str = "mstflint, mlxconfig_host.db";
/// The driver whose files these are.
const DRIVER: &str = "MLNX_OFED, en_ecn.c";

macro_rules! parameters {
    ($($param:ident [$sysfs:literal $debugfs:literal $nvconfig:literal $winof:literal]
       $unit:ident $min:literal..$max:expr, $bits:literal bits, default $default:literal,
       $source:ident, $doc:literal;)*) => {
        /// A DCQCN parameter of NVIDIA adapters.
        ///
        /// Source: NVIDIA, "DCQCN CC parameters", and mlxconfig's configuration database for field
        /// widths and for what that page omits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Param {
            $(#[doc = $doc] $param,)*
        }

        impl Param {
            /// Every parameter: general, reaction point, notification point.
            pub const ALL: &[Self] = &[$(Self::$param,)*];
        }

        pub(crate) const TABLE: [Row; Param::ALL.len()] = [$(Row {
            names: [$sysfs, $debugfs, $nvconfig, $winof],
            unit: Unit::$unit,
            range: ($min, $max),
            bits: $bits,
            default: $default,
            source: $source,
            doc: $doc,
        },)*];
    };
}

// WinOF's names from DcQcnRateReduceMonitorPeriod on follow the pattern of the documented ones.
parameters! {
    PrioMask ["roce_rp/enable" "" "ROCE_CC_PRIO_MASK" "DcQcnEnablePrio"]
        PriorityMask 0..255, 8 bits, default 255, PAGE,
        "Priorities whose queue pairs react to CNPs. Tools with one mask set roce_np/enable as well.";
    NpPrioMask ["roce_np/enable" "" "" ""]
        PriorityMask 0..255, 8 bits, default 255, DRIVER,
        "Priorities whose marked packets are answered with CNPs.";
    Algorithm ["" "" "ROCE_CC_ALGORITHM" ""]
        Number 0..1, 1 bits, default 0, DATABASE,
        "0 = ECN (DCQCN), 1 = QCN.";
    ShaperCoalesce ["" "" "ROCE_CC_SHAPER_COALESCE" ""]
        Number 0..3, 3 bits, default 0, DATABASE,
        "Flows that share a limiter: 0 = device default, 1 = destination IP, 2 = source QP, \
         3 = 5-tuple.";

    DceTcpG ["dce_tcp_g" "rp_dce_tcp_g" "DCE_TCP_G" "DcQcnDceAlphaG"]
        Per1024 0..1023, 10 bits, default 1019, PAGE,
        "What alpha keeps of itself at an update, G.";
    DceTcpRtt ["dce_tcp_rtt" "rp_dce_tcp_rtt" "DCE_TCP_RTT" "DcQcnDceAlphaUpdatePeriod"]
        Micros 1..131_071, 17 bits, default 1, PAGE,
        "Time between updates of alpha.";
    InitialAlphaValue ["initial_alpha_value" "rp_initial_alpha_value" "INITIAL_ALPHA_VALUE"
                       "DcQcnInitialAlphaValue"]
        Per1024 1..1023, 10 bits, default 1023, PAGE,
        "Alpha at the first CNP of a flow.";
    RateToSetOnFirstCnp ["rate_to_set_on_first_cnp" "rp_rate_to_set_on_first_cnp"
                         "RATE_TO_SET_ON_FIRST_CNP" "DcQcnRateToSetOnFirstCnp"]
        Mbps 0..u32::MAX, 32 bits, default 0, PAGE,
        "Current and target rate at the first CNP; 0 = port speed. Useful up to 85 % of it.";
    MinDecFac ["rpg_min_dec_fac" "rp_min_dec_fac" "RPG_MIN_DEC_FAC" "DcQcnMinDecFac"]
        Percent 0..100, 8 bits, default 50, PAGE,
        "The least that a cut leaves of the rate.";
    MinRate ["rpg_min_rate" "rp_min_rate" "RPG_MIN_RATE" "DcQcnMinRate"]
        Mbps 1..u32::MAX, 32 bits, default 1, PAGE,
        "No flow is slower than this; up to port speed.";
    AlphaToRateShift ["rpg_gd" "rp_gd" "RPG_GD" "DcQcnAlphaToRateShift"]
        Log2 10..11, 4 bits, default 11, PAGE,
        "A cut takes alpha / 2^gd of the rate, alpha counting in 1/1024.";
    RateReduceMonitorPeriod ["rate_reduce_monitor_period" "rp_rate_reduce_monitor_period"
                             "RATE_REDUCE_MONITOR_PERIOD" "DcQcnRateReduceMonitorPeriod"]
        Micros 1..131_071, 17 bits, default 4, PAGE,
        "Time between cuts. The documentation says up to 2^32 - 1, the field has 17 bits.";
    ClampTgtRate ["clamp_tgt_rate" "rp_clamp_tgt_rate" "CLAMP_TGT_RATE" "DcQcnClampTgtRate"]
        Bool 0..1, 1 bits, default 0, PAGE,
        "Every cut sets the target rate to the current rate.";
    ClampTgtRateAfterTimeInc ["clamp_tgt_rate_after_time_inc" "rp_clamp_tgt_rate_ati"
                              "CLAMP_TGT_RATE_AFTER_TIME_INC" "DcQcnClampTgtRateAfterTimeInc"]
        Bool 0..1, 1 bits, default 1, DATABASE,
        "Without clamp_tgt_rate: also an increase by the timer lets the next cut set the target.";
    TimeReset ["rpg_time_reset" "rp_time_reset" "RPG_TIME_RESET" "DcQcnTimeReset"]
        Micros 1..131_071, 17 bits, default 300, PAGE,
        "Time between increases.";
    ByteReset ["rpg_byte_reset" "rp_byte_reset" "RPG_BYTE_RESET" "DcQcnByteReset"]
        ByteResetUnits 0..32_767, 32 bits, default 32_767, PAGE,
        "Data between increases; 0 = the byte counter is off. mlxconfig's help counts single bytes.";
    Threshold ["rpg_threshold" "rp_threshold" "RPG_THRESHOLD" "DcQcnThreshold"]
        Number 1..31, 5 bits, default 1, PAGE,
        "Increases before the next phase, F.";
    MaxRate ["rpg_max_rate" "rp_max_rate" "RPG_MAX_RATE" "DcQcnMaxRate"]
        Mbps 0..u32::MAX, 32 bits, default 0, DATABASE,
        "A flow that reaches this is limited no longer; 0 = port speed.";
    AiRate ["rpg_ai_rate" "rp_ai_rate" "RPG_AI_RATE" "DcQcnAIRate"]
        Mbps 1..u32::MAX, 32 bits, default 5, PAGE,
        "Additive increase of the target rate; up to port speed.";
    HaiRate ["rpg_hai_rate" "rp_hai_rate" "RPG_HAI_RATE" "DcQcnHAIRate"]
        Mbps 1..u32::MAX, 32 bits, default 50, PAGE,
        "Hyper increase of the target rate; up to port speed.";

    CnpModeration ["" "" "ROCE_CC_CNP_MODERATION" ""]
        Number 0..2, 3 bits, default 0, DATABASE,
        "What CNPs are moderated by: 0 = device default (port), 1 = port, 2 = flow.";
    MinTimeBetweenCnps ["min_time_between_cnps" "np_min_time_between_cnps"
                        "MIN_TIME_BETWEEN_CNPS" "DcQcnMinTimeBetweenCnps"]
        Micros 0..4_095, 17 bits, default 4, PAGE,
        "Time that must pass between two CNPs.";
    CnpDscpMode ["" "" "CNP_DSCP_MODE" ""]
        Number 0..2, 2 bits, default 0, DATABASE,
        "DSCP of CNPs: 0 = device default (cnp_dscp), 1 = cnp_dscp, 2 = the received packet's.";
    CnpDscp ["cnp_dscp" "np_cnp_dscp" "CNP_DSCP" "DcQcnCnpDscp"]
        Number 0..63, 6 bits, default 48, PAGE,
        "DSCP of CNPs.";
    Cnp802pPrio ["cnp_802p_prio" "np_cnp_prio" "CNP_802P_PRIO" "DcQcnCnp802pPrio"]
        Number 0..7, 3 bits, default 6, PAGE,
        "PCP of CNPs.";
    CnpPrioMode ["" "np_cnp_prio_mode" "CNP_RES_PRIO_MODE" "DcQcnCnpPrioMode"]
        Bool 0..1, 1 bits, default 0, PAGE,
        "PCP of CNPs: 0 = cnp_802p_prio, 1 = the received packet's.";
}

impl Param {
    pub(crate) const fn row(self) -> &'static Row {
        const ROWS: &[Row] = &TABLE;
        &ROWS[self as usize]
    }

    /// Returns a tool's name for the parameter, or `None` if the tool does not have it.
    #[must_use]
    pub fn name_in(self, vocabulary: Vocabulary) -> Option<&'static str> {
        let name = self.row().names[vocabulary as usize];
        (!name.is_empty()).then_some(name)
    }

    /// Returns its file below `/sys/class/net/<if>/ecn`, or the directory with a file for each
    /// priority.
    #[must_use]
    pub fn ecn_path(self) -> Option<String> {
        let name = self.name_in(Vocabulary::Sysfs)?;
        let in_debugfs = self.name_in(Vocabulary::Debugfs).unwrap_or_default();
        Some(match (name.contains('/'), in_debugfs.starts_with("np_")) {
            (true, _) => name.into(),
            (false, true) => format!("roce_np/{name}"),
            (false, false) => format!("roce_rp/{name}"),
        })
    }

    /// Returns the name that Ferroce prints: the name in sysfs if there is one, otherwise
    /// mlxconfig's.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.name_in(Vocabulary::Sysfs)
            .unwrap_or_else(|| self.row().names[Vocabulary::NvConfig as usize])
    }

    /// Returns the unit of its value.
    #[must_use]
    pub const fn unit(self) -> Unit {
        self.row().unit
    }

    /// Returns the smallest valid value.
    #[must_use]
    pub const fn min(self) -> u32 {
        self.row().range.0
    }

    /// Returns the largest valid value. Rates are also limited by the port's speed
    /// ([`Params::check`](crate::Params::check)).
    #[must_use]
    pub const fn max(self) -> u32 {
        self.row().range.1
    }

    /// Returns the width of the firmware's field in bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.row().bits
    }

    /// Returns the firmware's default.
    #[must_use]
    pub const fn default_value(self) -> u32 {
        self.row().default
    }

    /// Returns where its unit, range and default were published.
    #[must_use]
    pub const fn source(self) -> &'static str {
        self.row().source
    }

    /// Returns its meaning, in one or two sentences.
    #[must_use]
    pub const fn doc(self) -> &'static str {
        self.row().doc
    }

    /// Returns the valid value nearest to `value`.
    #[must_use]
    pub fn clip(self, value: u32) -> u32 {
        value.clamp(self.min(), self.max())
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for (index, &param) in Param::ALL.iter().enumerate() {
            assert_eq!(param as usize, index);
            assert_eq!(param.clip(param.default_value()), param.default_value());
            let field_max = (1_u64 << param.bits()) - 1;
            assert!(u64::from(param.max()) <= field_max, "{param} fits");
        }
    }

    #[test]
    fn a_name_means_one_parameter_in_all_vocabularies() {
        let names: Vec<_> = Vocabulary::ALL
            .iter()
            .flat_map(|&vocabulary| Param::ALL.iter().filter_map(move |p| p.name_in(vocabulary)))
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
