//! Every rule of NVIDIA's reaction point, and every answer to what the sources leave open.

use ferroce_base::time::Time;
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, ReactionPoint};
use ferroce_dcqcn::{
    AlphaPrecision, AlphaWeight, ByteResetUnit, FirstCnp, FullRate, HyperIncrease, MinDecFac,
    Param, Params, Rate, StageComparison, Switches, Tie,
};

const US: u64 = 1_000;
const LINE_MBPS: u32 = 100_000;
const LINE: u64 = 100_000_000_000;
const MBPS: u64 = 1_000_000;

/// A flow with its configuration.
struct Flow {
    config: NvidiaConfig,
    rp: NvidiaRp,
}

impl Flow {
    fn new(changes: &[(Param, u32)], switches: Switches) -> Self {
        let mut params = Params::default();
        for &(param, value) in changes {
            params.set(param, value).unwrap();
        }
        let config = NvidiaConfig::new(&params, &switches, Rate::from_mbps(LINE_MBPS));
        let rp = NvidiaRp::new(&config);
        Self { config, rp }
    }

    fn with(changes: &[(Param, u32)]) -> Self {
        Self::new(changes, Switches::default())
    }

    fn cnp(&mut self, at_ns: u64) {
        self.rp.on_cnp(&self.config, time(at_ns));
    }

    fn send(&mut self, at_ns: u64, bytes: u32) {
        self.rp.on_bytes_sent(&self.config, time(at_ns), bytes);
    }

    fn rate(&mut self, at_ns: u64) -> u64 {
        self.rp.rate(&self.config, time(at_ns)).bps()
    }

    fn target(&mut self, at_ns: u64) -> u64 {
        self.rate(at_ns);
        self.rp.target(&self.config).bps()
    }

    /// In 1/1024.
    fn next_event(&self) -> Option<u64> {
        self.rp.next_event().map(Time::as_nanos)
    }

    fn alpha(&self, at_ns: u64) -> f64 {
        self.rp.alpha(&self.config, time(at_ns)) * 1024.0
    }
}

/// A flow that its first CNP sets to `mbps`, and whose first cut takes nothing, so that increases
/// can be watched from there. Target and current rate are 40 000 and 10 000 Mb/s at 8 us.
fn recovering(changes: &[(Param, u32)], switches: Switches) -> Flow {
    let mut all = vec![
        (Param::RateToSetOnFirstCnp, 40_000),
        (Param::MinDecFac, 25),
        (Param::AlphaToRateShift, 10),
        (Param::TimeReset, 100),
        (Param::ByteReset, 0),
        (Param::AiRate, 10),
        (Param::HaiRate, 1_000),
    ];
    all.extend_from_slice(changes);
    let mut flow = Flow::new(&all, switches);
    flow.cnp(0);
    assert_eq!(flow.rate(8 * US), 10_000 * MBPS);
    assert_eq!(flow.target(8 * US), 40_000 * MBPS);
    flow
}

/// The cut of `recovering` restarts the timer here.
const CUT: u64 = 4 * US;
const T: u64 = 100 * US;

// Rule 1: before and at the first CNP.

#[test]
fn a_new_flow_has_the_ports_speed_and_no_deadline() {
    let mut flow = Flow::with(&[]);
    assert_eq!(flow.rate(u64::MAX), LINE);
    assert_eq!(flow.next_event(), None);
    assert!(!flow.rp.is_limited());
    flow.send(0, u32::MAX);
    assert_eq!(flow.rp, NvidiaRp::new(&flow.config), "bytes leave no trace");
}

#[test]
fn the_first_cnp_sets_alpha_and_the_cut_follows_a_period_later() {
    let mut flow = Flow::with(&[(Param::InitialAlphaValue, 512)]);
    flow.cnp(10 * US);
    assert_eq!(flow.alpha(10 * US), 512.0);
    assert_eq!(flow.next_event(), Some(14 * US));
    assert_eq!(flow.rate(14 * US - 1), LINE);
    // 512 falls by 3, 3, 3 and 3.
    assert_eq!(flow.rate(14 * US), LINE * (2048 - 500) / 2048);
}

#[test]
fn the_first_cnp_sets_the_rate_if_one_is_configured() {
    let mut flow = Flow::with(&[(Param::RateToSetOnFirstCnp, 30_000)]);
    flow.cnp(0);
    assert_eq!(
        (flow.rate(0), flow.target(0)),
        (30_000 * MBPS, 30_000 * MBPS)
    );
    flow.cnp(50 * US);
    assert!(
        flow.rate(60 * US) < 30_000 * MBPS,
        "only the first one sets it"
    );
    let mut fast = Flow::with(&[(Param::RateToSetOnFirstCnp, 400_000)]);
    fast.cnp(0);
    assert_eq!(fast.rate(0), LINE, "clipped to the port's speed");
}

#[test]
fn switch_first_cnp() {
    // Without a cut in between: a long monitor period.
    let alpha = |first_cnp, at| {
        let changes = [
            (Param::InitialAlphaValue, 512),
            (Param::RateReduceMonitorPeriod, 100),
        ];
        let switches = Switches {
            first_cnp,
            ..Switches::default()
        };
        let mut flow = Flow::new(&changes, switches);
        flow.cnp(0);
        (flow.alpha(at), flow.rate(at), flow.next_event().unwrap())
    };
    let cut = LINE * (2048 - 512) / 2048;
    assert_eq!(alpha(FirstCnp::CutsLater, US), (509.0, LINE, 100 * US));
    assert_eq!(
        alpha(FirstCnp::CutsLaterAndCounts, US),
        (514.0, LINE, 100 * US)
    );
    assert_eq!(alpha(FirstCnp::CutsAtOnce, US), (509.0, cut, 300 * US));
    assert_eq!(alpha(FirstCnp::CutsAtOnce, 0), (512.0, cut, 300 * US));
}

// Rule 2: alpha.

#[test]
fn alpha_rises_once_per_period_with_cnps_and_falls_otherwise() {
    let mut flow = Flow::with(&[(Param::InitialAlphaValue, 100)]);
    flow.cnp(0);
    assert_eq!(flow.alpha(US), 99.0);
    for at in [1_000, 1_001, 1_999] {
        flow.cnp(at);
        assert_eq!(flow.alpha(at), 99.0, "not before the period's end");
    }
    assert_eq!(flow.alpha(2 * US), 103.0, "99 * 1019/1024 + 5");
    assert_eq!(flow.alpha(3 * US), 102.0);
    // A CNP at the very end of a period belongs to the next one.
    flow.cnp(4 * US);
    assert_eq!(flow.alpha(4 * US), 101.0);
    assert_eq!(flow.alpha(5 * US), 105.0);
}

#[test]
fn alpha_saturates() {
    let mut flow = Flow::with(&[(Param::DceTcpG, 0), (Param::TimeReset, 100_000)]);
    flow.cnp(0);
    flow.cnp(1_500);
    assert_eq!(flow.alpha(2 * US), 1023.0);
    assert_eq!(flow.alpha(3 * US), 0.0);
}

#[test]
fn switch_alpha_weight() {
    let alpha = |alpha_weight| {
        let switches = Switches {
            alpha_weight,
            ..Switches::default()
        };
        let mut flow = Flow::new(&[(Param::InitialAlphaValue, 1000)], switches);
        flow.cnp(0);
        flow.alpha(US)
    };
    assert_eq!(alpha(AlphaWeight::Keeps), 995.0);
    assert_eq!(alpha(AlphaWeight::Takes), 4.0);
}

#[test]
fn switch_alpha_precision() {
    let alpha = |alpha_precision| {
        let switches = Switches {
            alpha_precision,
            ..Switches::default()
        };
        let mut flow = Flow::new(&[(Param::InitialAlphaValue, 100)], switches);
        flow.cnp(0);
        flow.alpha(100 * US)
    };
    assert_eq!(alpha(AlphaPrecision::Bits10), 0.0);
    let exact = 100.0 * (1019.0_f64 / 1024.0).powi(100);
    assert!((alpha(AlphaPrecision::Bits26) - exact).abs() < 0.01);
}

// Rule 3: cuts.

#[test]
fn many_cnps_in_a_monitor_period_make_one_cut_at_its_end() {
    let mut flow = Flow::with(&[(Param::DceTcpRtt, 100_000), (Param::InitialAlphaValue, 512)]);
    for at in 0..=3_999 {
        flow.cnp(at);
    }
    assert_eq!(flow.rate(3_999), LINE);
    let once = LINE * 1536 / 2048;
    assert_eq!(flow.rate(4_000), once);
    // The period from 4 us to 8 us has none, that from 8 us to 12 us has one.
    flow.cnp(9_000);
    assert_eq!(flow.rate(11_999), once);
    assert_eq!(flow.rate(12_000), once * 1536 / 2048);
}

#[test]
fn a_cnp_between_periods_waits_for_the_grid_of_the_first_cnp() {
    let mut flow = Flow::with(&[(Param::TimeReset, 1_000)]);
    flow.cnp(1_234);
    flow.rate(100 * US);
    flow.cnp(101_000);
    assert_eq!(flow.next_event(), Some(1_234 + 25 * 4 * US));
    flow.rate(200 * US);
    // A CNP at the end of a period belongs to the next one.
    flow.cnp(1_234 + 50 * 4 * US);
    assert_eq!(flow.next_event(), Some(1_234 + 51 * 4 * US));
}

#[test]
fn switch_tie() {
    let cut = |tie| {
        let switches = Switches {
            tie,
            ..Switches::default()
        };
        let mut flow = Flow::new(&[], switches);
        flow.cnp(0);
        flow.rate(4 * US)
    };
    assert_eq!(cut(Tie::AlphaFirst), LINE * (2048 - 1003) / 2048);
    assert_eq!(cut(Tie::CutFirst), LINE * (2048 - 1008) / 2048);
}

#[test]
fn gd_sets_how_much_of_alpha_a_cut_takes() {
    let cut = |gd| {
        let changes = [
            (Param::AlphaToRateShift, gd),
            (Param::InitialAlphaValue, 256),
            (Param::DceTcpRtt, 100),
            (Param::MinDecFac, 0),
        ];
        let mut flow = Flow::with(&changes);
        flow.cnp(0);
        flow.rate(4 * US)
    };
    assert_eq!(cut(10), LINE * 3 / 4);
    assert_eq!(cut(11), LINE * 7 / 8);
}

#[test]
fn a_cut_leaves_the_minimum_factor_and_the_minimum_rate() {
    let cut = |changes: &[(Param, u32)]| {
        let mut all = vec![(Param::AlphaToRateShift, 10), (Param::DceTcpRtt, 100)];
        all.extend_from_slice(changes);
        let mut flow = Flow::with(&all);
        flow.cnp(0);
        flow.rate(4 * US)
    };
    assert_eq!(cut(&[(Param::MinDecFac, 25)]), LINE / 4);
    assert_eq!(cut(&[(Param::MinDecFac, 100)]), LINE);
    assert_eq!(cut(&[(Param::MinDecFac, 0)]), LINE / 1024);
    assert_eq!(
        cut(&[(Param::MinDecFac, 0), (Param::MinRate, 70_000)]),
        70_000 * MBPS
    );
    let above_line = [(Param::MinDecFac, 0), (Param::MinRate, 400_000)];
    assert_eq!(cut(&above_line), LINE, "clipped to the port's speed");
}

#[test]
fn the_first_cnp_leaves_the_minimum_rate() {
    let mut flow = Flow::with(&[(Param::RateToSetOnFirstCnp, 10), (Param::MinRate, 50)]);
    flow.cnp(0);
    assert_eq!((flow.rate(0), flow.target(0)), (50 * MBPS, 50 * MBPS));
}

#[test]
fn a_minimum_rate_that_is_set_later_lifts_flows_below_it() {
    // Recovery takes more events than a flow sees here, so nothing else raises it.
    let slow = [
        (Param::RateToSetOnFirstCnp, 10),
        (Param::TimeReset, 100_000),
        (Param::Threshold, 31),
    ];
    let mut flow = Flow::with(&slow);
    flow.cnp(0);
    assert!(flow.rate(4 * US) < 10 * MBPS);
    let lifted = Flow::with(&[slow[1], slow[2], (Param::MinRate, 50)]).config;
    let rates =
        |rp: &mut NvidiaRp, at| (rp.rate(&lifted, time(at)).bps(), rp.target(&lifted).bps());
    assert_eq!(rates(&mut { flow.rp }, 5 * US), (50 * MBPS, 50 * MBPS));
    // A cut that falls due at the same time must not leave the target behind.
    flow.cnp(5 * US);
    assert_eq!(rates(&mut flow.rp, 8 * US), (50 * MBPS, 50 * MBPS));
}

#[test]
fn switch_min_dec_fac() {
    let cut = |min_dec_fac| {
        let switches = Switches {
            min_dec_fac,
            ..Switches::default()
        };
        let changes = [(Param::AlphaToRateShift, 10), (Param::MinDecFac, 25)];
        let mut flow = Flow::new(&changes, switches);
        flow.cnp(0);
        flow.rate(4 * US)
    };
    assert_eq!(cut(MinDecFac::Leaves), LINE / 4);
    assert_eq!(cut(MinDecFac::Takes), LINE / 4 * 3);
}

// Rule 4: the target at a cut.

#[test]
fn the_clamp_flags_say_when_a_cut_moves_the_target() {
    // Cuts at 4 us, 8 us, after an increase by the timer, and after one by bytes.
    let targets = |always, after_time| {
        let changes = [
            (Param::ClampTgtRate, always),
            (Param::ClampTgtRateAfterTimeInc, after_time),
            (Param::TimeReset, 100),
            (Param::ByteReset, 100),
        ];
        let mut flow = Flow::with(&changes);
        let mut moved = Vec::new();
        let mut cut_after = |flow: &mut Flow, at| {
            flow.cnp(at);
            let cut_ns = flow.next_event().unwrap();
            let before = flow.rate(cut_ns - 1);
            let old_target = flow.target(cut_ns - 1);
            let new_target = flow.target(cut_ns);
            assert!(before < old_target);
            assert!(new_target == before || new_target == old_target);
            moved.push(new_target == before);
        };
        flow.cnp(0);
        flow.rate(4 * US);
        cut_after(&mut flow, 5 * US);
        cut_after(&mut flow, 110 * US);
        flow.send(120 * US, 6_400);
        cut_after(&mut flow, 121 * US);
        cut_after(&mut flow, 125 * US);
        moved
    };
    assert_eq!(targets(0, 0), [false, false, true, false]);
    assert_eq!(targets(0, 1), [false, true, true, false]);
    assert_eq!(targets(1, 0), [true; 4]);
    assert_eq!(targets(1, 1), [true; 4]);
}

#[test]
fn a_cut_restarts_timer_and_byte_counter() {
    let mut flow = recovering(&[(Param::ByteReset, 100)], Switches::default());
    flow.send(50 * US, 6_399);
    flow.cnp(60 * US);
    let rate = flow.rate(64 * US);
    assert_eq!(flow.next_event(), Some(64 * US + T));
    flow.send(65 * US, 6_399);
    assert_eq!(flow.rate(65 * US), rate, "the bytes before do not count");
    flow.send(65 * US, 1);
    assert!(flow.rate(65 * US) > rate);
}

// Rule 5: increases.

/// Both rates in Mb/s after each of the first events of the timer.
fn by_timer(flow: &mut Flow, events: u64) -> Vec<(u64, u64)> {
    let after = |n| CUT + n * T;
    (1..=events)
        .map(|n| (flow.target(after(n)) / MBPS, flow.rate(after(n)) / MBPS))
        .collect()
}

#[test]
fn switch_stage_comparison() {
    let steps = |stage_comparison, threshold| {
        let switches = Switches {
            stage_comparison,
            ..Switches::default()
        };
        let mut flow = recovering(&[(Param::Threshold, threshold)], switches);
        by_timer(&mut flow, 4)
    };
    // F = 3: three steps of recovery, or two.
    let three = [
        (40_000, 25_000),
        (40_000, 32_500),
        (40_000, 36_250),
        (40_010, 38_130),
    ];
    let two = [
        (40_000, 25_000),
        (40_000, 32_500),
        (40_010, 36_255),
        (40_020, 38_137),
    ];
    assert_eq!(steps(StageComparison::BeforeEvent, 3), three);
    assert_eq!(steps(StageComparison::AfterEventAtMost, 3), three);
    assert_eq!(steps(StageComparison::AfterEventBelow, 3), two);
    // F = 1: one, or none at all.
    assert_eq!(
        steps(StageComparison::BeforeEvent, 1)[..2],
        [(40_000, 25_000), (40_010, 32_505)]
    );
    assert_eq!(
        steps(StageComparison::AfterEventBelow, 1)[0],
        (40_010, 25_005)
    );
}

/// Events of both counters in turn; at F = 1 with bytes first.
fn targets_by_both(stage_comparison: StageComparison, hyper_increase: HyperIncrease) -> Vec<u64> {
    let switches = Switches {
        stage_comparison,
        hyper_increase,
        ..Switches::default()
    };
    let mut flow = recovering(&[(Param::ByteReset, 1)], switches);
    let mut targets = Vec::new();
    for n in 1..=3 {
        let at = CUT + n * T;
        flow.send(at - 1, 64);
        targets.push(flow.target(at - 1) / MBPS);
        targets.push(flow.target(at) / MBPS);
    }
    targets
}

#[test]
fn switch_hyper_increase() {
    use HyperIncrease::{AfterOneStep, BothCounters, Growing};
    let before = |hyper| targets_by_both(StageComparison::BeforeEvent, hyper);
    // Events: bytes 1, timer 1, bytes 2, timer 2, bytes 3, timer 3.
    assert_eq!(
        before(BothCounters),
        [40_000, 40_010, 41_010, 42_010, 43_010, 44_010]
    );
    assert_eq!(
        before(Growing),
        [40_000, 40_010, 41_010, 42_010, 44_010, 46_010]
    );
    assert_eq!(
        before(AfterOneStep),
        [40_000, 40_010, 40_020, 41_020, 42_020, 43_020]
    );
    let below = |hyper| targets_by_both(StageComparison::AfterEventBelow, hyper);
    assert_eq!(
        below(BothCounters),
        [40_010, 41_010, 42_010, 43_010, 44_010, 45_010]
    );
    assert_eq!(
        below(Growing),
        [40_010, 41_010, 42_010, 44_010, 46_010, 49_010]
    );
    let at_most = |hyper| targets_by_both(StageComparison::AfterEventAtMost, hyper);
    assert_eq!(
        at_most(BothCounters),
        [40_000, 40_000, 40_010, 41_010, 42_010, 43_010]
    );
}

#[test]
fn the_timer_alone_never_leads_to_hyper_increase() {
    let mut flow = recovering(&[], Switches::default());
    let targets: Vec<_> = by_timer(&mut flow, 5)
        .into_iter()
        .map(|(target, _)| target)
        .collect();
    assert_eq!(targets, [40_000, 40_010, 40_020, 40_030, 40_040]);
}

#[test]
fn switch_byte_reset_unit() {
    let rises = |byte_reset_unit, bytes| {
        let switches = Switches {
            byte_reset_unit,
            ..Switches::default()
        };
        let mut flow = recovering(&[(Param::ByteReset, 10)], switches);
        flow.send(10 * US, bytes);
        flow.rate(10 * US) > 10_000 * MBPS
    };
    assert!(!rises(ByteResetUnit::Bytes64, 639));
    assert!(rises(ByteResetUnit::Bytes64, 640));
    assert!(!rises(ByteResetUnit::Bytes, 9));
    assert!(rises(ByteResetUnit::Bytes, 10));
}

#[test]
fn a_byte_reset_of_zero_turns_the_counter_off() {
    let mut flow = recovering(&[(Param::ByteReset, 0)], Switches::default());
    flow.send(10 * US, u32::MAX);
    assert_eq!(flow.rate(10 * US), 10_000 * MBPS);
}

#[test]
fn bytes_beyond_the_limit_count_for_the_next_event() {
    let mut flow = recovering(&[(Param::ByteReset, 10)], Switches::default());
    flow.send(10 * US, 1_279);
    assert_eq!(flow.rate(10 * US), 25_000 * MBPS, "one event");
    flow.send(10 * US, 1);
    assert!(flow.rate(10 * US) > 25_000 * MBPS, "and the second");
}

#[test]
fn the_target_stops_at_the_ports_speed() {
    let mut flow = recovering(&[(Param::AiRate, 35_000)], Switches::default());
    let targets: Vec<_> = by_timer(&mut flow, 4)
        .into_iter()
        .map(|(target, _)| target)
        .collect();
    assert_eq!(targets, [40_000, 75_000, 100_000, 100_000]);
}

#[test]
fn switch_qau_extras() {
    let run = |qau_extras| {
        let switches = Switches {
            qau_extras,
            ..Switches::default()
        };
        // To 1/16 of the target in two cuts.
        let mut flow = recovering(&[(Param::ByteReset, 1)], switches);
        flow.cnp(9 * US);
        assert_eq!(flow.rate(12 * US), 2_500 * MBPS);
        flow.send(13 * US, 64);
        let target = flow.target(13 * US) / MBPS;
        // Into hyper increase.
        flow.rate(12 * US + T);
        flow.send(12 * US + T, 64);
        (target, flow.next_event().unwrap() - (12 * US + T))
    };
    assert_eq!(run(false), (40_000, T));
    assert_eq!(run(true), (5_000, T / 2));
}

#[test]
fn switch_target_floor() {
    let target = |target_floor| {
        let switches = Switches {
            target_floor,
            ..Switches::default()
        };
        let changes = [
            (Param::ClampTgtRate, 1),
            (Param::MinRate, 10_000),
            (Param::RateToSetOnFirstCnp, 10_000),
            (Param::TimeReset, 100),
        ];
        let mut flow = Flow::new(&changes, switches);
        flow.cnp(0);
        flow.target(CUT + T) / MBPS
    };
    assert_eq!(target(false), 10_000);
    assert_eq!(target(true), 20_000);
}

// Rule 6: release.

#[test]
fn a_flow_at_full_rate_is_released_and_starts_anew() {
    let mut flow = recovering(&[(Param::MaxRate, 30_000)], Switches::default());
    assert!(flow.rate(CUT + T) < 30_000 * MBPS);
    assert!(flow.rp.is_limited());
    assert_eq!(flow.rate(CUT + 2 * T), LINE, "32.5 Gb/s is above the limit");
    assert_eq!(flow.rp, NvidiaRp::new(&flow.config));
    flow.cnp(CUT + 3 * T);
    assert_eq!(flow.rate(CUT + 3 * T), 40_000 * MBPS, "a first CNP again");
}

#[test]
fn with_no_maximum_the_ports_speed_releases() {
    let mut flow = recovering(&[(Param::AiRate, 100_000)], Switches::default());
    // 40 halvings of the distance to 100 Gb/s leave less than a bit per second.
    assert!(flow.rate(CUT + 20 * T) < LINE);
    assert_eq!(flow.rate(CUT + 40 * T), LINE);
    assert!(!flow.rp.is_limited());
}

#[test]
fn a_pending_cut_keeps_the_limiter() {
    let changes = [
        (Param::MaxRate, 24_000),
        (Param::RateReduceMonitorPeriod, 200),
    ];
    let mut flow = Flow::with(&changes);
    flow.cnp(0);
    flow.rate(200 * US);
    flow.cnp(201 * US);
    assert!(flow.rp.is_limited(), "above the maximum, and to be cut");
}

#[test]
fn switch_full_rate() {
    let alpha = |full_rate| {
        let switches = Switches {
            full_rate,
            alpha_precision: AlphaPrecision::Bits26,
            ..Switches::default()
        };
        let mut flow = recovering(&[(Param::MaxRate, 30_000)], switches);
        flow.rate(CUT + 5 * T);
        assert_eq!(flow.next_event(), None, "no timer runs");
        flow.cnp(CUT + 6 * T);
        (
            flow.alpha(CUT + 6 * T) > 1_000.0,
            flow.rate(CUT + 6 * T) / MBPS,
        )
    };
    assert_eq!(alpha(FullRate::Releases), (true, 40_000));
    assert_eq!(alpha(FullRate::Keeps), (false, 32_505));
}

// Time.

#[test]
fn a_clock_that_goes_back_keeps_the_rate_between_its_limits() {
    let mut flow = recovering(&[(Param::MinRate, 100)], Switches::default());
    for at in (0..100).rev().map(|n| n * 7 * US) {
        flow.cnp(at);
        flow.send(at, 1_000_000);
        let rate = flow.rate(at);
        assert!((100 * MBPS..=LINE).contains(&rate), "{rate}");
    }
}

#[test]
fn the_largest_times_do_not_overflow() {
    let mut flow = Flow::with(&[]);
    for at in [u64::MAX - 5_000, u64::MAX - 1, u64::MAX] {
        flow.cnp(at);
        flow.send(at, u32::MAX);
        assert!(flow.rate(at) <= LINE);
    }
}

#[test]
fn a_port_that_slows_down_slows_its_flows() {
    let mut flow = Flow::with(&[]);
    flow.cnp(0);
    let slow = NvidiaConfig::new(
        &Params::default(),
        &Switches::default(),
        Rate::from_mbps(10_000),
    );
    assert_eq!(flow.rp.rate(&slow, time(1)).bps(), 10_000 * MBPS);
    let mut fresh = NvidiaRp::new(&flow.config);
    assert_eq!(fresh.rate(&slow, time(1)).bps(), 10_000 * MBPS);
}

#[test]
fn parameters_and_switches_may_change_under_a_flow() {
    let line = Rate::from_mbps(LINE_MBPS);
    let fine = Switches {
        alpha_precision: AlphaPrecision::Bits26,
        hyper_increase: HyperIncrease::Growing,
        ..Switches::default()
    };
    let quick = Params::default()
        .with(Param::TimeReset, 1)
        .with(Param::RateReduceMonitorPeriod, 1)
        .with(Param::DceTcpRtt, 100_000)
        .with(Param::MinDecFac, 0)
        .with(Param::Threshold, 31);
    let configs = [
        NvidiaConfig::new(&Params::default(), &fine, line),
        NvidiaConfig::new(&quick, &Switches::default(), Rate::from_mbps(10_000)),
        NvidiaConfig::new(&Params::default(), &Switches::default(), line),
    ];
    let mut flow = NvidiaRp::new(&configs[0]);
    for step in 0..1_000_u64 {
        let config = &configs[step as usize * 7 % 10 % 3];
        let at = step * 1_711;
        if step % 3 == 0 {
            flow.on_cnp(config, time(at));
        }
        flow.on_bytes_sent(config, time(at), 100_000);
        let rate = flow.rate(config, time(at));
        assert!(
            rate >= Rate::from_mbps(1) && rate <= config.line(),
            "{step}: {rate}"
        );
    }
}

/// A point in time, from nanoseconds.
fn time(ns: u64) -> Time {
    Time::from_nanos(ns)
}
