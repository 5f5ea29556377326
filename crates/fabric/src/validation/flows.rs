//! N flows through one port of a star: the part of a network that congestion control sees, without
//! devices.
//!
//! A flow is a reaction point that always has packets to send, on a host of its own. The last host
//! receives them, and answers marks with CNPs. This makes it possible to observe any reaction
//! point, including one that no device has. Nothing is lost: the port's queue is unlimited, as with
//! flow control.

use std::collections::VecDeque;

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::np::{Arrival, CnpTimer, NotificationPoint, Timers};
use ferroce_dcqcn::rp::ReactionPoint;
use ferroce_dcqcn::{CongestionPoint, RangeError, Rate};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::frame::{Ecn, Frame, Parcel};
use crate::network::{FabricConfig, Network, Stations};
use crate::switch::SwitchConfig;
use crate::topology::{CableSpec, Topology};

/// An experiment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How many flows, all of them with packets to send all the time; 1..=4096.
    pub flows: u32,
    /// Speed of all cables; at least 1 Mb/s.
    pub line: Rate,
    /// Bytes of a packet's frame; 64..=9216.
    pub packet_bytes: u32,
    /// Of each cable, ns; at most a second.
    pub delay_ns: u64,
    /// The queue's marking.
    pub red: CongestionPoint,
    /// The receiver's parameters of the notification point.
    pub np: NotificationPoint,
    /// How long it takes, ns; a millisecond to a minute. The second half is observed.
    pub duration_ns: u64,
    /// When the later half of the flows begins, ns; at most `duration_ns`.
    pub late_ns: u64,
    /// Of the marks, and of first packets within a microsecond.
    pub seed: u64,
}

/// What was seen in the second half.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Mean length of the queue, bytes.
    pub queue: f64,
    /// Its standard deviation, bytes.
    pub queue_deviation: f64,
    /// The longest, bytes, first half included.
    pub queue_max: u64,
    /// Mean of the flows' alpha.
    pub alpha: f64,
    /// CNPs per second and flow.
    pub cnps: f64,
    /// Share of the port's time in use.
    pub utilisation: f64,
    /// What each flow got, bit/s.
    pub rates_bps: Vec<f64>,
}

impl Observed {
    /// Jain's index of fairness, 1/N to 1.
    #[must_use]
    pub fn jain(&self) -> f64 {
        let sum: f64 = self.rates_bps.iter().sum();
        let squares: f64 = self.rates_bps.iter().map(|rate| rate * rate).sum();
        sum * sum / (self.rates_bps.len() as f64 * squares)
    }
}

impl Scenario {
    fn check(&self) -> Result<(), RangeError> {
        let second_ns = 1_000_000_000;
        let duration_ns = self.duration_ns;
        RangeError::check("flows", self.flows.into(), 1, 4_096)?;
        let line_bps = (1_000_000, Rate::MAX.bps());
        RangeError::check("line", self.line.bps(), line_bps.0, line_bps.1)?;
        RangeError::check("packet_bytes", self.packet_bytes.into(), 64, 9_216)?;
        RangeError::check("delay_ns", self.delay_ns, 0, second_ns)?;
        RangeError::check("duration_ns", duration_ns, 1_000_000, 60 * second_ns)?;
        RangeError::check("late_ns", self.late_ns, 0, duration_ns)
    }

    /// Host 0 receives, the others have a flow each.
    fn network(&self) -> Network<Packet> {
        let cable = CableSpec::new(self.line, Span::from_nanos(self.delay_ns));
        Network::new(FabricConfig {
            topology: Topology::star(self.flows + 1, cable).expect("it was checked"),
            switch: SwitchConfig {
                buffer_bytes: 1 << 40,
                ecn: Some(self.red),
                ..SwitchConfig::default()
            },
            seed: self.seed,
        })
    }

    fn end(&self) -> Time {
        Time::from_nanos(self.duration_ns)
    }
}

/// Plays the scenario with flows that all have this configuration.
///
/// # Errors
/// Returns an error if a value of the scenario is out of range.
pub fn run<R: ReactionPoint>(
    scenario: &Scenario,
    config: &R::Config,
) -> Result<Observed, RangeError> {
    let (network, flows, watch) = play::<R>(scenario, config, |_| false)?;
    Ok(watch.finish(&network, &flows))
}

/// How long after the later half of the flows began the two halves were first within a tenth of the
/// fair share of each other, in mean rates of two milliseconds; `None` if they never were.
///
/// # Errors
/// Returns an error if a value of the scenario is out of range.
pub fn converges_after<R: ReactionPoint>(
    scenario: &Scenario,
    config: &R::Config,
) -> Result<Option<Span>, RangeError> {
    let (_, _, watch) = play::<R>(scenario, config, |watch| watch.converged.is_some())?;
    Ok(watch.converged)
}

type Played<'a, R> = (Network<Packet>, Flows<'a, R>, Watch<'a>);

/// Plays a scenario to its end, or until enough was seen.
fn play<'a, R: ReactionPoint>(
    scenario: &'a Scenario,
    config: &'a R::Config,
    is_enough: impl Fn(&Watch<'_>) -> bool,
) -> Result<Played<'a, R>, RangeError> {
    scenario.check()?;
    let (mut network, mut flows) = (scenario.network(), Flows::<R>::new(scenario, config));
    for host in 1..=scenario.flows {
        network.kick(&mut flows, host);
    }
    let mut watch = Watch::new(scenario);
    while let Some(next) = network.next_event()
        && next <= scenario.end()
        && !is_enough(&watch)
    {
        watch.pass(next, &network, &flows);
        network.run(&mut flows, Time::NEVER, &mut 1);
    }
    watch.pass(scenario.end(), &network, &flows);
    Ok((network, flows, watch))
}

const ALPHA_SAMPLE: Span = Span::from_micros(10);
const WINDOW: Span = Span::from_millis(2);
/// A CNP's frame.
const CNP_BYTES: u16 = 78;
/// The cable of the receiver, and the end of it at the switch.
const PORT: (usize, usize) = (0, 1);

/// What crosses the network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packet {
    Data,
    Cnp,
}

impl Parcel for Packet {
    fn empty() -> Self {
        Self::Data
    }

    fn corrupt(&mut self, _bit: u32) {}
}

struct Flow<R> {
    rp: R,
    np: CnpTimer,
    /// When it sends next.
    sends_at: Time,
    /// Bytes that have arrived, and CNPs for them.
    bytes: u64,
    cnps: u64,
}

struct Flows<'a, R: ReactionPoint> {
    scenario: &'a Scenario,
    config: &'a R::Config,
    np: NotificationPoint,
    port: CnpTimer,
    flows: Vec<Flow<R>>,
    /// Those that the receiver has a CNP for.
    cnps: VecDeque<u32>,
    now: Time,
}

impl<'a, R: ReactionPoint> Flows<'a, R> {
    fn new(scenario: &'a Scenario, config: &'a R::Config) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(scenario.seed);
        let flow = |number: u32| {
            let is_late = number >= scenario.flows.div_ceil(2);
            let begin = Time::from_nanos(if is_late { scenario.late_ns } else { 0 });
            let first = Span::from_picos(rng.random_range(1..1_000_000));
            Flow {
                rp: R::new(config),
                np: CnpTimer::default(),
                sends_at: begin.after(first),
                bytes: 0,
                cnps: 0,
            }
        };
        Self {
            scenario,
            config,
            np: scenario.np.clone(),
            port: CnpTimer::default(),
            flows: (0..scenario.flows).map(flow).collect(),
            cnps: VecDeque::new(),
            now: Time::ZERO,
        }
    }

    fn flow(&self, host: u32) -> Option<&Flow<R>> {
        self.flows.get(host.checked_sub(1)? as usize)
    }
}

impl<R: ReactionPoint> Stations<Packet> for Flows<'_, R> {
    fn transmit(&mut self, now: Time, host: u32, _: u8, packet: &mut Packet) -> Option<Frame> {
        self.now = now;
        let Some(index) = host.checked_sub(1) else {
            *packet = Packet::Cnp;
            return Some(Frame::new(0, self.cnps.pop_front()?, CNP_BYTES));
        };
        let flow = &mut self.flows[index as usize];
        if flow.sends_at > now {
            return None;
        }
        *packet = Packet::Data;
        let bytes = self.scenario.packet_bytes;
        let rate = flow.rp.rate(self.config, now);
        flow.sends_at = now.after(rate.transmission(bytes));
        flow.rp.on_bytes_sent(self.config, now, bytes);
        Some(Frame {
            ecn: Ecn::Capable,
            ..Frame::new(host, 0, bytes as u16) // at most 9216
        })
    }

    fn receive(&mut self, now: Time, host: u32, frame: &Frame, packet: &Packet) {
        let sender = if host == 0 { frame.source } else { host };
        let flow = &mut self.flows[sender as usize - 1];
        if *packet == Packet::Cnp {
            return flow.rp.on_cnp(self.config, now);
        }
        flow.bytes += u64::from(self.scenario.packet_bytes);
        let arrival = Arrival {
            ce: frame.ecn == Ecn::Marked,
            ..Arrival::default()
        };
        let timers = Timers {
            port: &self.port,
            flow: &flow.np,
        };
        let answer = self.np.on_packet(now, arrival, timers);
        if answer.is_some() {
            flow.cnps += 1;
            self.cnps.push_back(sender);
        }
    }

    fn expire(&mut self, _: Time, _: u32) {}

    fn set_paused(&mut self, _: Time, _: u32, _: u8, _: u8) {}

    fn collect(&mut self, now: Time, _: u32) {
        self.now = now;
    }

    fn next(&self, now: Time, host: u32) -> Option<Time> {
        let at = self.flow(host)?.sends_at;
        (at > now).then_some(at)
    }

    fn wants_transmit(&self, host: u32, _: u8) -> bool {
        match self.flow(host) {
            Some(flow) => flow.sends_at <= self.now,
            None => !self.cnps.is_empty(),
        }
    }
}

/// What is looked at while time passes.
struct Watch<'a> {
    scenario: &'a Scenario,
    now: Time,
    begin: Time,
    /// What had arrived at the beginning, on the port's line and of each flow.
    before: Option<(u64, Vec<(u64, u64)>)>,
    area: f64,
    area_squares: f64,
    alphas: f64,
    samples: u64,
    next_sample: Time,
    window: Vec<u64>,
    next_window: Time,
    converged: Option<Span>,
}

impl<'a> Watch<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let begin = Time::from_nanos(scenario.duration_ns / 2);
        Self {
            scenario,
            now: Time::ZERO,
            begin,
            before: None,
            area: 0.0,
            area_squares: 0.0,
            alphas: 0.0,
            samples: 0,
            next_sample: begin,
            window: vec![0; scenario.flows as usize],
            next_window: Time::from_nanos(scenario.late_ns),
            converged: None,
        }
    }

    /// Nothing happens until `next`.
    fn pass<R: ReactionPoint>(
        &mut self,
        next: Time,
        network: &Network<Packet>,
        flows: &Flows<'_, R>,
    ) {
        let from = self.now.max(self.begin);
        if next > from {
            let (length, _) = network.queue(PORT.0, PORT.1);
            let (length, time) = (length as f64, next.since(from).as_picos() as f64);
            self.area += length * time;
            self.area_squares += length * length * time;
        }
        self.now = next;
        if next >= self.begin && self.before.is_none() {
            let of_flow = |flow: &Flow<R>| (flow.bytes, flow.cnps);
            let carried = network.line(PORT.0, PORT.1).bytes;
            self.before = Some((carried, flows.flows.iter().map(of_flow).collect()));
        }
        if next >= self.next_sample {
            let alpha = |flow: &Flow<R>| flow.rp.alpha(flows.config, next);
            self.alphas += flows.flows.iter().map(alpha).sum::<f64>();
            self.samples += u64::from(self.scenario.flows);
            self.next_sample = self.next_sample.after(ALPHA_SAMPLE);
        }
        if next >= self.next_window {
            let bytes: Vec<_> = flows.flows.iter().map(|flow| flow.bytes).collect();
            self.close_window(bytes);
        }
    }

    fn close_window(&mut self, bytes: Vec<u64>) {
        let scenario = self.scenario;
        let since: Vec<_> = bytes
            .iter()
            .zip(&self.window)
            .map(|(it, was)| it - was)
            .collect();
        let (early, late) = since.split_at(since.len().div_ceil(2));
        let mean = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
        let window_s = WINDOW.as_picos() as f64 / 1e12;
        let fair = scenario.line.bps() as f64 / 8.0 * window_s / f64::from(scenario.flows);
        let is_close = (mean(early) - mean(late)).abs() < fair / 10.0;
        // What came before the later half began belongs to no window.
        let late_begin = Time::from_nanos(scenario.late_ns);
        if self.next_window > late_begin && is_close && self.converged.is_none() {
            self.converged = Some(self.now.since(late_begin));
        }
        self.window = bytes;
        self.next_window = self.next_window.after(WINDOW);
    }

    fn finish<R: ReactionPoint>(self, network: &Network<Packet>, flows: &Flows<'_, R>) -> Observed {
        let observed_ps = self.scenario.end().since(self.begin).as_picos() as f64;
        let seconds = observed_ps / 1e12;
        let mean = self.area / observed_ps;
        let variance = self.area_squares / observed_ps - mean * mean;
        let (carried, before) = self.before.unwrap_or_default();
        let carried = network.line(PORT.0, PORT.1).bytes - carried;
        let since = flows.flows.iter().zip(&before);
        let rate = |(flow, (bytes, _)): (&Flow<R>, &(u64, u64))| {
            (flow.bytes - bytes) as f64 * 8.0 / seconds
        };
        let cnps: u64 = since
            .clone()
            .map(|(flow, (_, cnps))| flow.cnps - cnps)
            .sum();
        Observed {
            queue: mean,
            queue_deviation: variance.max(0.0).sqrt(),
            queue_max: network.queue(PORT.0, PORT.1).1,
            alpha: self.alphas / self.samples as f64,
            cnps: cnps as f64 / seconds / f64::from(self.scenario.flows),
            utilisation: carried as f64 * 8.0 / seconds / self.scenario.line.bps() as f64,
            rates_bps: since.map(rate).collect(),
        }
    }
}
