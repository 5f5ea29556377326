//! The run: queue pairs that send as fast as they are allowed to, and samples of it.

use std::time::Duration;

use ferroce_adp::QpTimeouts;
use ferroce_device::{
    Completion, Counter, Direction, FlowLook, HcaConfig, Impairment, Personality, Secret, SendOp,
    SendWr, Time, WcStatus, WriteLockError, impair::Bottleneck,
};
use ferroce_runtime::{DeviceConfig, Tandem};

use super::course::{Course, FlowSample, Phase, Sample};
use super::plan::{PACKET_PAYLOAD, Plan};
use crate::demo::error::Error;
use crate::demo::rig::{End, Layout, connect};
use crate::demo::run::TAKE;
use crate::demo::workload::{MESSAGE_MAX, Message, Op, Pattern};

/// The most messages that each queue pair keeps in flight; see [`depth`].
const DEPTH: usize = 32;
/// All queue pairs together keep no more in flight than the bottleneck passes in this time, but at
/// least two messages each: with more, the queue of a slow one is longer than the retransmission
/// timers.
const IN_FLIGHT_MS: u64 = 50;
/// Messages are short enough that the bottleneck passes this number in a second, but at least a
/// packet long.
const MESSAGES_PER_SECOND: u64 = 1_000;
/// Samples of a run.
const SAMPLES: u64 = 1_200;
/// Longest sleep, so that samples are taken in time.
const NAP: Duration = Duration::from_millis(1);
/// How long messages in flight may take after the end.
const PATIENCE_NS: u64 = 30_000_000_000;
/// What the run is made under, for errors.
pub(super) const UNDER: &str = "congestion control";

/// What the run reports while it goes on: how much of it is over, 0 to 1.
pub(super) type OnProgress<'a> = dyn FnMut(f64) + 'a;

/// Makes the run.
pub(super) fn run(plan: &Plan, on_progress: &mut OnProgress<'_>) -> Result<Course, Error> {
    let layout = Layout {
        qps: plan.flows,
        places: DEPTH,
        message: MESSAGE_MAX as usize,
        sends: DEPTH,
        receives: 1,
    };
    // One after the other: of two demos that want the same addresses, one gets both.
    let sender = End::open(config(plan, 0), layout)?;
    let receiver = End::open(config(plan, 1), layout)?;
    connect(
        &sender,
        &receiver,
        plan.seed,
        QpTimeouts {
            timeout: 18,
            retry_cnt: 7,
        },
    )?;
    for end in [&sender, &receiver] {
        let set = end.device.state().change_congestion(|params| {
            *params = plan.params.clone();
            Ok::<_, WriteLockError>(())
        });
        set.map_err(internal)?;
    }
    let impairment = Impairment {
        bottleneck: Some(Bottleneck {
            red: Some(plan.red),
            ..Bottleneck::new(plan.bottleneck)
        }),
        ..Impairment::default()
    };
    sender
        .device
        .with(|hca| hca.set_impairment(Direction::Egress, impairment))
        .map_err(internal)?;
    Run::new(plan, [&sender, &receiver]).drive(on_progress)
}

/// How long messages are: what has arrived is counted by them, so on a slow bottleneck they are
/// short, but no shorter than a packet.
fn message_bytes(plan: &Plan) -> u32 {
    const PACKET: u64 = PACKET_PAYLOAD as u64;
    let bytes = plan.bottleneck.bps() / 8 / MESSAGES_PER_SECOND;
    let whole_packets = bytes / PACKET * PACKET;
    // At most `MESSAGE_MAX`.
    whole_packets.clamp(PACKET, MESSAGE_MAX.into()) as u32
}

/// How many messages each queue pair keeps on their way.
fn depth(plan: &Plan) -> usize {
    let bytes = plan.bottleneck.bps() / 8 * IN_FLIGHT_MS / 1_000;
    let messages = bytes / u64::from(message_bytes(plan)) / plan.flows as u64;
    messages.clamp(2, DEPTH as u64) as usize
}

fn config(plan: &Plan, which: usize) -> DeviceConfig {
    DeviceConfig {
        hca: HcaConfig {
            seed: plan.seed.wrapping_mul(2).wrapping_add(which as u64),
            secret: Some(Secret::new(plan.seed.into()).derive(0, which as u64)),
            // The first adaptive timers are shorter than a slow queue is long; what they would send
            // again is not what this demo is about.
            personality: Personality {
                adaptive: false,
                // What the report calls a CNP was one (F13).
                slow_restart: false,
                ..Personality::default()
            },
            ..HcaConfig::default()
        },
        tap: plan.tap.clone(),
        // One thread drives both: two that wait for each other pass too little on a busy machine.
        helper: false,
        ..DeviceConfig::new(plan.addresses[which])
    }
}

fn internal(error: impl ToString) -> Error {
    Error::Internal(error.to_string())
}

/// Both ends, and what has been seen so far.
struct Run<'a> {
    plan: &'a Plan,
    sender: &'a End,
    receiver: &'a End,
    pattern: Pattern,
    message_bytes: u32,
    depth: usize,
    start: Time,
    flows: Vec<Flow>,
    messages: u64,
    course: Course,
}

/// A queue pair of the sender.
#[derive(Clone, Default)]
struct Flow {
    /// What is on its way, by place.
    pending: [Option<Message>; DEPTH],
    /// Bytes that have arrived since the last sample.
    bytes: u64,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, [sender, receiver]: [&'a End; 2]) -> Self {
        Self {
            plan,
            sender,
            receiver,
            pattern: Pattern::new(plan.seed),
            message_bytes: message_bytes(plan),
            depth: depth(plan),
            start: sender.device.now(),
            flows: vec![Flow::default(); plan.flows],
            messages: 0,
            course: Course {
                phases: Phase::plan(plan.flows, plan.length_ns),
                samples: Vec::new(),
                marked: 0,
                dropped: 0,
                cnps: 0,
                verified: true,
            },
        }
    }

    fn drive(mut self, on_progress: &mut OnProgress<'_>) -> Result<Course, Error> {
        let every_ns = (self.plan.length_ns / SAMPLES).max(1);
        let mut next_ns = every_ns;
        let mut completions = Vec::with_capacity(TAKE);
        let mut tandem =
            Tandem::new([&self.sender.device, &self.receiver.device]).map_err(internal)?;
        loop {
            let now_ns = self.sender.device.now().since(self.start).as_nanos();
            if now_ns >= next_ns && now_ns <= self.plan.length_ns {
                self.sample(now_ns);
                on_progress(now_ns as f64 / self.plan.length_ns as f64);
                next_ns = now_ns - now_ns % every_ns + every_ns;
            }
            if !self.course.verified || now_ns >= self.plan.length_ns && self.is_idle() {
                return Ok(self.finished());
            }
            if now_ns > self.plan.length_ns + PATIENCE_NS {
                return Err(Error::Stuck {
                    under: UNDER.to_owned(),
                    seconds: PATIENCE_NS / 1_000_000_000,
                });
            }
            for flow in 0..self.flows.len() {
                if self.course.sends(flow, now_ns) {
                    self.post(flow)?;
                }
            }
            tandem.drive(NAP);
            self.sender.take(&mut completions)?;
            for completion in completions.drain(..) {
                self.complete(&completion)?;
            }
        }
    }

    fn is_idle(&self) -> bool {
        let pending = self.flows.iter().flat_map(|flow| &flow.pending);
        pending.flatten().next().is_none()
    }

    /// Fills every place of a queue pair that is free.
    fn post(&mut self, qp: usize) -> Result<(), Error> {
        let mut requests = Vec::new();
        for place in 0..self.depth {
            if self.flows[qp].pending[place].is_some() {
                continue;
            }
            let message = Message {
                number: self.messages,
                op: Op::Write,
                len: self.message_bytes,
            };
            self.messages += 1;
            let (here, there) = (self.sender.place(qp, place), self.receiver.place(qp, place));
            self.sender.buffer.write(here, self.pattern.of(&message));
            let (va, rkey) = self.receiver.remote(there);
            let op = SendOp::Write {
                va,
                rkey,
                imm: None,
            };
            self.flows[qp].pending[place] = Some(message);
            requests.push(SendWr::new(
                place as u64,
                op,
                self.sender.sge(here, message.len),
            ));
        }
        if !requests.is_empty() {
            let qpn = self.sender.qps[qp];
            self.sender.device.post_send(qpn, requests)?;
        }
        Ok(())
    }

    /// A message is done: looks at its bytes where they had to go, and books it.
    fn complete(&mut self, completion: &Completion) -> Result<(), Error> {
        if completion.status != WcStatus::Success {
            return Err(Error::Status {
                under: UNDER.to_owned(),
                status: completion.status.name(),
            });
        }
        let (qp, place) = (
            self.sender.index_of(completion.qpn),
            completion.wr_id as usize,
        );
        let pending = self.flows[qp].pending.get_mut(place).and_then(Option::take);
        let Some(message) = pending else {
            self.course.verified = false;
            return Ok(());
        };
        let mut arrived = [0; MESSAGE_MAX as usize];
        let arrived = &mut arrived[..message.len as usize];
        let there = self.receiver.place(qp, place);
        self.receiver.buffer.read(there, arrived);
        self.course.verified &= arrived == self.pattern.of(&message);
        self.flows[qp].bytes += u64::from(message.len);
        Ok(())
    }

    fn sample(&mut self, at_ns: u64) {
        let (sender, now) = (self.sender, self.sender.device.now());
        let queue_bytes = sender.device.state().queue_bytes(Direction::Egress, now);
        let looks: Vec<FlowLook> = sender.device.with(|hca| hca.look_at_flows(now).collect());
        let flows = self.flows.iter_mut().zip(&sender.qps).map(|(flow, &qpn)| {
            let look = looks.iter().find(|look| look.qpn == qpn);
            let limit = look.and_then(|look| look.limit);
            FlowSample {
                bytes: std::mem::take(&mut flow.bytes),
                limit_bps: limit.map(|limit| limit.rate.bps()),
                alpha: limit.map_or(0.0, |limit| limit.alpha),
            }
        });
        let before_ns = self.course.samples.last().map_or(0, |sample| sample.at_ns);
        self.course.samples.push(Sample {
            at_ns,
            since_ns: at_ns - before_ns,
            queue_bytes: queue_bytes.unwrap_or(0),
            flows: flows.collect(),
        });
    }

    fn finished(mut self) -> Course {
        let count = |counter| self.sender.device.state().counter(counter);
        self.course.marked = count(Counter::ImpairEcnMarked);
        self.course.dropped = count(Counter::ImpairQueueFull);
        self.course.cnps = count(Counter::RpCnpHandled);
        self.course
    }
}
