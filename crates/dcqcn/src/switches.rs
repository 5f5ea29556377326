//! Questions about the reaction point on which the sources disagree or are silent.
//!
//! NVIDIA publishes parameters, not the algorithm. Each type here is one question, its variants are
//! the answers given by published sources, and the default is what Ferroce assumes of the firmware.

/// One answer to each question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Switches {
    /// What "below the threshold" means.
    pub stage_comparison: StageComparison,
    /// What `rpg_byte_reset` counts.
    pub byte_reset_unit: ByteResetUnit,
    /// Which happens first if an update of alpha and a cut coincide.
    pub tie: Tie,
    /// The effect of a flow's first CNP.
    pub first_cnp: FirstCnp,
    /// When and by how much hyper increase raises the target.
    pub hyper_increase: HyperIncrease,
    /// Whether `dce_tcp_g` is the weight of the old alpha or of the new value.
    pub alpha_weight: AlphaWeight,
    /// The resolution of alpha between updates.
    pub alpha_precision: AlphaPrecision,
    /// Whether `rpg_min_dec_fac` limits what a cut leaves or what it takes.
    pub min_dec_fac: MinDecFac,
    /// What happens to a flow that is back at full rate.
    pub full_rate: FullRate,
    /// Two rules of 802.1Qau that some simulators keep: the timer and the byte counter run twice as
    /// fast in hyper increase, and a target above ten times the rate is divided by eight at the
    /// first increase.
    pub qau_extras: bool,
    /// The target stays at twice the minimum rate or above, as in Pensando's data path.
    pub target_floor: bool,
}

/// When a stage counter has left fast recovery, F being `rpg_threshold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StageComparison {
    /// The counters before the event are compared: F steps of recovery. HPCC's simulator.
    #[default]
    BeforeEvent,
    /// The counters after the event are compared, `< F` recovers: F - 1 steps. 802.1Qau, Microsoft's
    /// simulator. With the firmware's F = 1 there is no recovery at all.
    AfterEventBelow,
    /// The counters after the event are compared, `<= F` recovers: F steps. htsim, Pensando.
    AfterEventAtMost,
}

/// What `rpg_byte_reset` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteResetUnit {
    /// Units of 64 bytes. NVIDIA's parameter page.
    #[default]
    Bytes64,
    /// Bytes. The help texts of mlxconfig and of FreeBSD's driver.
    Bytes,
}

/// Which happens first if an update of alpha and a cut coincide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tie {
    /// The update, so that the cut sees the new alpha. HPCC's simulator.
    #[default]
    AlphaFirst,
    /// The cut, as in the paper.
    CutFirst,
}

/// The effect of a flow's first CNP, besides starting the timers and setting alpha and the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FirstCnp {
    /// The cut follows one monitor period later, and the first update of alpha does not count it.
    /// HPCC's simulator.
    #[default]
    CutsLater,
    /// The cut follows one monitor period later, and the first update of alpha counts it, as for any
    /// other CNP.
    CutsLaterAndCounts,
    /// It causes an immediate cut with the initial alpha, and neither period counts it.
    CutsAtOnce,
}

/// When hyper increase begins and how large its steps are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HyperIncrease {
    /// Both counters have left fast recovery; each step is `rpg_hai_rate`.
    #[default]
    BothCounters,
    /// The same; steps grow with the smaller counter. 802.1Qau, htsim.
    Growing,
    /// The larger counter is one step further: one additive step, then hyper increase. HPCC's
    /// simulator, which has no byte counter.
    AfterOneStep,
}

/// Whether `dce_tcp_g` is the weight of the old alpha or of the new value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AlphaWeight {
    /// `alpha <- G * alpha + (1 - G) * cnp`. NVIDIA's note DOC-2790, version 19.
    #[default]
    Keeps,
    /// `alpha <- (1 - G) * alpha + G * cnp`. Version 13 of that note and mlxconfig's help.
    Takes,
}

/// The resolution of alpha between updates. Each update rounds down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AlphaPrecision {
    /// In 1/1024, as its parameters. Below 1024/(1024 - G) it then falls by one at each update and
    /// reaches zero.
    #[default]
    Bits10,
    /// In 2^-26, which is close to the exact exponential of simulators with floating point.
    Bits26,
}

/// Whether `rpg_min_dec_fac` limits what a cut leaves or what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MinDecFac {
    /// The minimum that a cut leaves: 25 allows a cut of 75 %. 802.1Qau, NVIDIA's example.
    #[default]
    Leaves,
    /// The maximum that a cut takes: 25 allows a cut of 25 %. NVIDIA's parameter page, read
    /// literally.
    Takes,
}

/// What happens to a flow that is back at full rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FullRate {
    /// Its limiter is released and its state forgotten: the next CNP is a first one. mlxconfig's
    /// help for `RPG_MAX_RATE`.
    #[default]
    Releases,
    /// Its timers stop until the next CNP, alpha continues. Pensando, the paper.
    Keeps,
}
