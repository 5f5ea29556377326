//! Lazy evaluation against a reference that ticks: bit for bit, on random trains of CNPs, bytes and
//! questions, with random parameters and switches.

use ferroce_base::time::Time;
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, PaperConfig, PaperParams, PaperRp, ReactionPoint};
use ferroce_dcqcn::{
    AlphaPrecision, AlphaWeight, ByteResetUnit, FirstCnp, FullRate, HyperIncrease, MinDecFac,
    Param, Params, Rate, StageComparison, Switches, Tie,
};
use proptest::prelude::*;
use proptest::sample::select;

/// NVIDIA's algorithm as a firmware with timers would run it: every period has its tick, and each
/// rule is written out as the documentation gives it.
struct Ticking {
    params: Params,
    switches: Switches,
    line: u64,
    /// `None` = no limiter.
    flow: Option<Limited>,
}

struct Limited {
    current: u64,
    target: u64,
    alpha: u64,
    alpha_cnp: bool,
    cut_cnp: bool,
    next_alpha: u64,
    next_cut: u64,
    /// `None` = stopped at full rate.
    next_timer: Option<u64>,
    time_stage: u64,
    byte_stage: u64,
    bytes: u64,
}

impl Ticking {
    fn get(&self, param: Param) -> u64 {
        u64::from(self.params.get(param))
    }

    fn rate_of(&self, param: Param) -> u64 {
        match (param, self.get(param)) {
            (Param::MaxRate | Param::RateToSetOnFirstCnp, 0) => self.line,
            (_, mbps) => (mbps * 1_000_000).min(self.line),
        }
    }

    fn us(&self, param: Param) -> u64 {
        self.get(param) * 1_000
    }

    /// Alpha counts in 1/scale.
    fn scale(&self) -> u64 {
        match self.switches.alpha_precision {
            AlphaPrecision::Bits10 => 1 << 10,
            AlphaPrecision::Bits26 => 1 << 26,
        }
    }

    fn run_to(&mut self, now: u64) {
        while let Some(flow) = &self.flow {
            let timer = flow.next_timer.unwrap_or(u64::MAX);
            let next = flow.next_alpha.min(flow.next_cut).min(timer);
            if next > now {
                return;
            }
            let alpha_first = self.switches.tie == Tie::AlphaFirst;
            if next == flow.next_alpha && (alpha_first || next != flow.next_cut) {
                self.tick_alpha();
            } else if next == flow.next_cut {
                self.tick_cut();
            } else {
                self.tick_timer();
            }
            self.settle();
        }
    }

    fn tick_alpha(&mut self) {
        let (period, g) = (self.us(Param::DceTcpRtt), self.get(Param::DceTcpG));
        let keep = match self.switches.alpha_weight {
            AlphaWeight::Keeps => g,
            AlphaWeight::Takes => 1024 - g,
        };
        let scale = self.scale();
        let flow = self.flow.as_mut().unwrap();
        flow.alpha = flow.alpha * keep / 1024;
        if flow.alpha_cnp {
            flow.alpha = (flow.alpha + (1024 - keep) * (scale / 1024)).min(scale - 1);
        }
        flow.alpha_cnp = false;
        flow.next_alpha += period;
    }

    fn tick_cut(&mut self) {
        let period = self.us(Param::RateReduceMonitorPeriod);
        let flow = self.flow.as_mut().unwrap();
        let now = flow.next_cut;
        flow.next_cut += period;
        if flow.cut_cnp {
            flow.cut_cnp = false;
            self.cut(now);
        }
    }

    fn cut(&mut self, now: u64) {
        let always = self.get(Param::ClampTgtRate) == 1;
        let after_time = self.get(Param::ClampTgtRateAfterTimeInc) == 1;
        let leaves = match (self.switches.min_dec_fac, self.get(Param::MinDecFac)) {
            (MinDecFac::Leaves, percent) => percent,
            (MinDecFac::Takes, percent) => 100 - percent,
        };
        let whole = u128::from(self.scale()) << (self.get(Param::AlphaToRateShift) - 10);
        let (min, timer) = (self.rate_of(Param::MinRate), self.us(Param::TimeReset));
        let flow = self.flow.as_mut().unwrap();
        if always || flow.byte_stage != 0 || after_time && flow.time_stage != 0 {
            flow.target = flow.current;
        }
        let left = u128::from(flow.current) * (whole - u128::from(flow.alpha)) / whole;
        let floor = (flow.current * leaves / 100).max(min);
        flow.current = u64::try_from(left).unwrap().max(floor);
        flow.time_stage = 0;
        flow.byte_stage = 0;
        flow.bytes = 0;
        flow.next_timer = Some(now + timer);
    }

    fn is_hyper(&self, time: u64, bytes: u64) -> bool {
        let f = self.get(Param::Threshold);
        let left = |stage: u64| match self.switches.stage_comparison {
            StageComparison::AfterEventAtMost => stage > f,
            StageComparison::BeforeEvent | StageComparison::AfterEventBelow => stage >= f,
        };
        match self.switches.hyper_increase {
            HyperIncrease::AfterOneStep => {
                let most = time.max(bytes);
                most > 0 && left(most - 1)
            }
            HyperIncrease::BothCounters | HyperIncrease::Growing => left(time) && left(bytes),
        }
    }

    fn speedup(&self) -> u64 {
        let flow = self.flow.as_ref().unwrap();
        let is_fast = self.switches.qau_extras && self.is_hyper(flow.time_stage, flow.byte_stage);
        if is_fast { 2 } else { 1 }
    }

    fn tick_timer(&mut self) {
        let flow = self.flow.as_mut().unwrap();
        let now = flow.next_timer.unwrap();
        flow.time_stage += 1;
        self.increase(1, 0);
        let period = self.us(Param::TimeReset) / self.speedup();
        self.flow.as_mut().unwrap().next_timer = Some(now + period);
    }

    fn increase(&mut self, by_timer: u64, by_bytes: u64) {
        let f = self.get(Param::Threshold);
        let flow = self.flow.as_ref().unwrap();
        let (time, bytes) = match self.switches.stage_comparison {
            StageComparison::BeforeEvent => {
                (flow.time_stage - by_timer, flow.byte_stage - by_bytes)
            }
            _ => (flow.time_stage, flow.byte_stage),
        };
        let first =
            f + u64::from(self.switches.stage_comparison == StageComparison::AfterEventAtMost);
        let step = if time.max(bytes) < first {
            0
        } else if self.is_hyper(time, bytes) {
            let factor = match self.switches.hyper_increase {
                HyperIncrease::Growing => time.min(bytes) - first + 1,
                _ => 1,
            };
            self.rate_of(Param::HaiRate) * factor
        } else {
            self.rate_of(Param::AiRate)
        };
        let floor = match self.switches.target_floor {
            true => self.rate_of(Param::MinRate) * 2,
            false => 0,
        };
        let (line, extras) = (self.line, self.switches.qau_extras);
        let flow = self.flow.as_mut().unwrap();
        if extras && flow.time_stage.max(flow.byte_stage) == 1 && flow.target / 10 > flow.current {
            flow.target /= 8;
        }
        flow.target = (flow.target + step).max(floor).min(line).max(flow.current);
        flow.current = (flow.current + flow.target).div_ceil(2);
    }

    /// What full rate means, after any change.
    fn settle(&mut self) {
        let full = self.rate_of(Param::MaxRate);
        let releases = self.switches.full_rate == FullRate::Releases;
        let flow = self.flow.as_mut().unwrap();
        if flow.current >= full {
            flow.next_timer = None;
            if releases && !flow.cut_cnp {
                self.flow = None;
            }
        }
    }

    fn cnp(&mut self, now: u64) {
        self.run_to(now);
        if let Some(flow) = &mut self.flow {
            flow.alpha_cnp = true;
            flow.cut_cnp = true;
            return;
        }
        let rate = self.rate_of(Param::RateToSetOnFirstCnp);
        let rate = rate.max(self.rate_of(Param::MinRate));
        let first = self.switches.first_cnp;
        self.flow = Some(Limited {
            current: rate,
            target: rate,
            alpha: self.get(Param::InitialAlphaValue) * (self.scale() / 1024),
            alpha_cnp: first == FirstCnp::CutsLaterAndCounts,
            cut_cnp: first != FirstCnp::CutsAtOnce,
            next_alpha: now + self.us(Param::DceTcpRtt),
            next_cut: now + self.us(Param::RateReduceMonitorPeriod),
            next_timer: Some(now + self.us(Param::TimeReset)),
            time_stage: 0,
            byte_stage: 0,
            bytes: 0,
        });
        if first == FirstCnp::CutsAtOnce {
            self.cut(now);
        }
        self.settle();
    }

    fn sent(&mut self, now: u64, bytes: u32) {
        self.run_to(now);
        let unit = match self.switches.byte_reset_unit {
            ByteResetUnit::Bytes64 => 64,
            ByteResetUnit::Bytes => 1,
        };
        let full = self.rate_of(Param::MaxRate);
        let Some(flow) = &mut self.flow else { return };
        flow.bytes += u64::from(bytes);
        loop {
            let limit = (self.get(Param::ByteReset) * unit).div_ceil(self.speedup());
            let flow = self.flow.as_mut().unwrap();
            if limit == 0 || flow.bytes < limit || flow.current >= full {
                break;
            }
            flow.bytes -= limit;
            flow.byte_stage += 1;
            self.increase(0, 1);
        }
        self.settle();
    }

    fn rate(&mut self, now: u64) -> u64 {
        self.run_to(now);
        self.flow
            .as_ref()
            .map_or(self.line, |flow| flow.current.min(self.line))
    }
}

fn any_switches() -> impl Strategy<Value = Switches> {
    let first = (
        select(vec![
            StageComparison::BeforeEvent,
            StageComparison::AfterEventBelow,
            StageComparison::AfterEventAtMost,
        ]),
        select(vec![ByteResetUnit::Bytes64, ByteResetUnit::Bytes]),
        select(vec![Tie::AlphaFirst, Tie::CutFirst]),
        select(vec![
            FirstCnp::CutsLater,
            FirstCnp::CutsLaterAndCounts,
            FirstCnp::CutsAtOnce,
        ]),
        select(vec![
            HyperIncrease::BothCounters,
            HyperIncrease::Growing,
            HyperIncrease::AfterOneStep,
        ]),
        select(vec![AlphaWeight::Keeps, AlphaWeight::Takes]),
    );
    let second = (
        select(vec![AlphaPrecision::Bits10, AlphaPrecision::Bits26]),
        select(vec![MinDecFac::Leaves, MinDecFac::Takes]),
        select(vec![FullRate::Releases, FullRate::Keeps]),
        any::<bool>(),
        any::<bool>(),
    );
    (first, second).prop_map(|(first, second)| Switches {
        stage_comparison: first.0,
        byte_reset_unit: first.1,
        tie: first.2,
        first_cnp: first.3,
        hyper_increase: first.4,
        alpha_weight: first.5,
        alpha_precision: second.0,
        min_dec_fac: second.1,
        full_rate: second.2,
        qau_extras: second.3,
        target_floor: second.4,
    })
}

/// Parameters whose periods meet often, on 1 Gb/s, so that full rate is in reach.
fn any_params() -> impl Strategy<Value = Params> {
    let small = (0..1024_u32, 1..6_u32, 1..1024_u32, 0..1200_u32, 0..=100_u32);
    let rates = (1..1200_u32, 10..=11_u32, 1..9_u32, 0..=1_u32, 0..=1_u32);
    let steps = (
        1..60_u32,
        0..2000_u32,
        1..6_u32,
        0..1200_u32,
        1..200_u32,
        1..400_u32,
    );
    let exact = prop_oneof![Just(1019_u32), Just(1020), 0..1024_u32];
    (small, rates, steps, exact).prop_map(|(small, rates, steps, g)| {
        let values = [
            (Param::DceTcpG, if small.0 % 2 == 0 { g } else { small.0 }),
            (Param::DceTcpRtt, small.1),
            (Param::InitialAlphaValue, small.2),
            (Param::RateToSetOnFirstCnp, small.3),
            (Param::MinDecFac, small.4),
            (Param::MinRate, rates.0 % 300 + 1),
            (Param::AlphaToRateShift, rates.1),
            (Param::RateReduceMonitorPeriod, rates.2),
            (Param::ClampTgtRate, rates.3),
            (Param::ClampTgtRateAfterTimeInc, rates.4),
            (Param::TimeReset, steps.0),
            (Param::ByteReset, steps.1),
            (Param::Threshold, steps.2),
            (Param::MaxRate, if steps.3 < 600 { 0 } else { steps.3 }),
            (Param::AiRate, steps.4),
            (Param::HaiRate, steps.5),
        ];
        let firmware = Params::default();
        values.iter().fold(firmware, |params, &(param, value)| {
            params.with(param, value)
        })
    })
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Cnp,
    Sent(u32),
    Rate,
}

/// A call, and how long after the last one. Gaps are often whole microseconds, where periods meet,
/// and sometimes long.
fn any_calls() -> impl Strategy<Value = Vec<(u64, Call)>> {
    let gap = prop_oneof![
        4 => (0..6_u64).prop_map(|us| us * 1_000),
        3 => 0..5_000_u64,
        2 => 0..100_000_u64,
        1 => 0..3_000_000_u64,
    ];
    let call = prop_oneof![
        3 => Just(Call::Cnp),
        2 => (0..5_000_u32).prop_map(Call::Sent),
        2 => Just(Call::Rate),
    ];
    prop::collection::vec((gap, call), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nvidias_lazy_evaluation_equals_ticking(
        params in any_params(),
        switches in any_switches(),
        calls in any_calls(),
        begin in 0..10_000_u64,
    ) {
        let line = Rate::from_mbps(1_000);
        let config = NvidiaConfig::new(&params, &switches, line);
        let mut lazy = NvidiaRp::new(&config);
        let mut ticking = Ticking { params, switches, line: line.bps(), flow: None };
        let scale = ticking.scale() as f64;
        let mut now = begin;
        for (gap, call) in calls {
            now += gap;
            match call {
                Call::Cnp => {
                    lazy.on_cnp(&config, at(now));
                    ticking.cnp(now);
                }
                Call::Sent(bytes) => {
                    lazy.on_bytes_sent(&config, at(now), bytes);
                    ticking.sent(now, bytes);
                }
                Call::Rate => {}
            }
            prop_assert_eq!(lazy.rate(&config, at(now)).bps(), ticking.rate(now), "at {}", now);
            let flow = ticking.flow.as_ref();
            prop_assert_eq!(lazy.is_limited(), flow.is_some());
            if let Some(flow) = flow {
                prop_assert_eq!(lazy.target(&config).bps(), flow.target.min(line.bps()));
                prop_assert_eq!(lazy.alpha(&config, at(now)) * scale, flow.alpha as f64);
                let cut = flow.cut_cnp.then_some(flow.next_cut);
                let next = [cut, flow.next_timer].into_iter().flatten().min();
                prop_assert_eq!(lazy.next_event(), next.map(at));
            }
        }
    }

    /// Asking for the rate at any time in between changes nothing.
    #[test]
    fn queries_do_not_change_the_state(
        gaps in prop::collection::vec((0..300_000_u64, 0..2_000_000_u64), 1..40),
        quick in any::<bool>(),
    ) {
        let line = Rate::from_mbps(40_000);
        let nvidia = NvidiaConfig::new(&Params::default(), &Switches::default(), line);
        let timer_ns = if quick { 1_000 } else { 55_000 };
        let params = PaperParams { timer_ns, ..PaperParams::default() };
        let paper = PaperConfig::new(&params, line).unwrap();
        same_with_questions::<NvidiaRp>(&nvidia, &gaps)?;
        same_with_questions::<PaperRp>(&paper, &gaps)?;
    }
}

fn same_with_questions<R: ReactionPoint>(
    config: &R::Config,
    gaps: &[(u64, u64)],
) -> Result<(), TestCaseError> {
    let (mut asked, mut silent) = (R::new(config), R::new(config));
    let mut now = 0;
    for &(until_cnp, after) in gaps {
        now += until_cnp;
        asked.on_cnp(config, at(now));
        silent.on_cnp(config, at(now));
        for part in 0..50 {
            asked.rate(config, at(now + after * part / 50));
        }
        now += after;
        prop_assert_eq!(asked.rate(config, at(now)), silent.rate(config, at(now)));
        prop_assert_eq!(asked.target(config), silent.target(config));
        prop_assert_eq!(
            asked.alpha(config, at(now)).to_bits(),
            silent.alpha(config, at(now)).to_bits()
        );
    }
    Ok(())
}

/// A year of silence in one question, and with it the end of time, which comes after 213 days.
#[test]
fn a_long_silence_is_answered_at_once() {
    const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;
    let params = Params::default()
        .with(Param::RateToSetOnFirstCnp, 1_000)
        .with(Param::TimeReset, 1)
        .with(Param::AiRate, 1);
    let line = Rate::from_mbps(800_000);
    let config = NvidiaConfig::new(&params, &Switches::default(), line);
    let mut flow = NvidiaRp::new(&config);
    flow.on_cnp(&config, at(0));
    // 1 Mb/s in each microsecond, except in the first few.
    let rate_mbps = flow.rate(&config, at(200_000_000)).bps() / 1_000_000;
    assert!((200_990..200_999).contains(&rate_mbps), "{rate_mbps}");
    assert_eq!(flow.rate(&config, at(YEAR_NS)), line);
    assert!(!flow.is_limited());
}

/// A point in time, from nanoseconds.
fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}
