//! One queue pair in one train of outages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_adp::{Endurance, Policy, QpTimeouts};
use ferroce_base::random::{mix, share};
use ferroce_base::time::{Span, Time};
use ferroce_device::{
    Completion, Counter, Event, Hca, Path, QpAttr, Qpn, Settings, VerbsError, WcStatus,
};
use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{
    Fabric, FabricConfig, Fate as PacketFate, Host, Loss, Rate, SwitchConfig, Topology, address,
    card,
};
use ferroce_scenario::settings_of;
use thiserror::Error;

use crate::outages::Train;
use crate::times::Times;

/// Messages after each outage, sent one after another: enough to return to the first wait of any
/// policy, and to experience losses.
pub const MESSAGES: u32 = 32;
/// Packets of a message.
const PACKETS: u32 = 4;
/// The device that requests.
const A: u32 = 0;
/// The device that responds.
const B: u32 = 1;
/// Before the first outage.
const PAUSE: Span = Span::from_millis(1);
/// One way along the cable.
const DELAY: Span = Span::from_nanos(500);
/// The rate of the cable, Mbit/s.
const RATE_MBPS: u32 = 100_000;
/// Retransmissions of one queue pair that are worth simulating.
const RETRANSMISSIONS_MAX: u64 = 200_000;

/// The link while it is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The share of packets lost in each direction, in units of 2^-32.
    pub loss: u32,
    /// How long an acknowledgement takes.
    pub round_trip: Times,
}

impl Default for Link {
    /// Nothing is lost, and the network is loaded: round trips of 20 us, one in a hundred longer than
    /// 200 us.
    fn default() -> Self {
        Self {
            loss: 0,
            round_trip: Times::Lognormal {
                median: Span::from_micros(20),
                p99: Span::from_micros(200),
            },
        }
    }
}

/// The result of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Whether the queue pair never gave up.
    pub survived: bool,
    /// How much longer its messages took in total than without outages and losses.
    pub lost: Span,
    /// The longest time that the link had been up again before the QP retransmitted.
    pub resumed_after: Span,
    /// Requests that it sent, including retransmissions.
    pub packets: u64,
    /// How often it retransmitted a packet.
    pub retransmissions: u64,
    /// Retransmissions of packets that the receiver had already executed, although no answer was
    /// lost.
    pub spurious: u64,
}

/// The reason why a trial cannot be run.
#[derive(Clone, Copy, PartialEq, Eq, Error, Debug)]
pub enum TrialError {
    /// The devices have no room for its objects.
    #[error("the devices have no room: {0}")]
    Verbs(#[from] VerbsError),
    /// The policy retransmits too often.
    #[error(
        "{0} retransmissions in an outage of {1} are more than can be simulated: must be at most \
         {RETRANSMISSIONS_MAX}"
    )]
    Flood(u64, Span),
    /// The QP has no timer.
    #[error("timeout 0 turns the timer off: nothing is sent again after an outage")]
    NoTimer,
}

/// Runs a queue pair through a train of outages. The seed determines what it draws, how long round
/// trips take and which packets are lost.
///
/// # Errors
/// Returns an error if the policy retransmits more often than can be simulated, or not at all.
pub fn fate(
    policy: &Policy,
    qp: QpTimeouts,
    link: &Link,
    train: &Train,
    seed: u64,
) -> Result<Fate, TrialError> {
    let endurance = Endurance::within(policy, qp, train.down).ok_or(TrialError::NoTimer)?;
    let times = endurance.retransmissions.saturating_mul(train.count.into());
    if times > RETRANSMISSIONS_MAX {
        return Err(TrialError::Flood(times, train.down));
    }
    let mut pair = Pair::new(policy, qp, link, seed)?;
    pair.live_through(train)?;
    Ok(pair.found())
}

/// Two devices on a cable, a queue pair on each, and a job that they do.
struct Pair<'a> {
    fabric: Fabric,
    qpns: [Qpn; 2],
    link: &'a Link,
    seed: u64,
    /// How many nanoseconds later answers to the current message arrive than by the cable alone.
    late: Arc<AtomicU64>,
    /// How long a message takes without disturbance.
    ideal: Span,
    /// When the current message was posted.
    posted: Option<Time>,
    /// The number of messages after it.
    left: u32,
    /// The number of messages so far.
    messages: u64,
    /// When the link returned, as long as nothing has been retransmitted since.
    up_since: Option<Time>,
    /// The number of retransmissions when it was last read.
    repeated: u64,
    fate: Fate,
}

impl<'a> Pair<'a> {
    fn new(policy: &Policy, qp: QpTimeouts, link: &'a Link, seed: u64) -> Result<Self, VerbsError> {
        let settings = Arc::new(Settings::from_parts(settings_of(policy)));
        // The requester's is the policy's, for its draws to be those of the policy's traces.
        let seeds = [policy.seed, mix(policy.seed, 1)];
        let devices = seeds.map(|seed| Hca::with_settings(card(seed), Arc::clone(&settings)));
        let cable = CableSpec::new(Rate::from_mbps(RATE_MBPS), DELAY);
        let config = FabricConfig {
            topology: Topology::pair(cable).expect("two hosts make a topology"),
            switch: SwitchConfig::default(),
            seed,
        };
        let mut fabric = Fabric::new(config, devices)?;
        let depth = 2;
        let qpns = [
            fabric.host_mut(A).create_qp(depth)?,
            fabric.host_mut(B).create_qp(depth)?,
        ];
        let attr = QpAttr {
            timeout: qp.timeout,
            retry_cnt: qp.retry_cnt,
            min_rnr_timer: 1,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        let [a, b] = qpns;
        let [to_a, to_b] = [A, B].map(|host| Path::to(address(host)));
        fabric.host_mut(A).connect(a, b, to_b, attr)?;
        fabric.host_mut(B).connect(b, a, to_a, attr)?;
        let late = Arc::new(AtomicU64::new(0));
        let lateness = Arc::clone(&late);
        fabric.rules(A).add(move |packet| {
            let is_response = packet.headers.opcode().is_response();
            is_response.then(|| PacketFate::Late(lateness.load(Ordering::Relaxed)))
        });
        Ok(Self {
            fabric,
            qpns,
            link,
            seed,
            late,
            ideal: Span::ZERO,
            posted: None,
            left: 0,
            messages: 0,
            up_since: None,
            repeated: 0,
            fate: Fate {
                survived: true,
                lost: Span::ZERO,
                resumed_after: Span::ZERO,
                packets: 0,
                retransmissions: 0,
                spurious: 0,
            },
        })
    }

    fn live_through(&mut self, train: &Train) -> Result<(), TrialError> {
        self.measure()?;
        let first = self.fabric.now().after(PAUSE);
        let period = train.down + train.up;
        for flap in 0..u64::from(train.count) {
            let down = first.after(period * flap);
            self.live_until(down)?;
            self.fabric.set_up(0, false);
            self.up_since = None;
            self.left = MESSAGES;
            if self.posted.is_none() {
                self.post()?;
            }
            let up = down.after(train.down);
            self.live_until(up)?;
            self.fabric.set_up(0, true);
            self.up_since = Some(up);
        }
        self.live_until(Time::NEVER)
    }

    /// Sends the first message, to see how long one takes.
    fn measure(&mut self) -> Result<(), TrialError> {
        self.post()?;
        self.live_until(Time::NEVER)?;
        (self.ideal, self.fate.lost) = (self.fate.lost, Span::ZERO);
        if self.link.loss > 0 {
            self.fabric.set_loss(0, Loss::random(self.link.loss));
        }
        Ok(())
    }

    /// Lives until then, or until there is nothing to do if that is never, or to the queue pair's end.
    fn live_until(&mut self, until: Time) -> Result<(), TrialError> {
        loop {
            self.take()?;
            let is_idle = until == Time::NEVER && self.posted.is_none();
            if !self.fate.survived || is_idle {
                return Ok(());
            }
            if self.fabric.next_event().is_none_or(|next| next >= until) {
                if until != Time::NEVER {
                    self.fabric.advance(until);
                }
                return Ok(());
            }
            let mut events = u64::MAX;
            self.fabric.run(until, &mut events);
        }
    }

    /// Posts the next message.
    fn post(&mut self) -> Result<(), TrialError> {
        let [sender, receiver] = self.qpns;
        let drawn = match self.messages {
            0 => Span::ZERO, // nothing in its way
            number => {
                let quantile = share(mix(mix(self.seed, 2), number));
                self.link.round_trip.quantile(quantile) - DELAY * 2
            }
        };
        self.late.store(drawn.as_nanos(), Ordering::Relaxed);
        let fabric = &mut self.fabric;
        let bytes = PACKETS * QpAttr::default().path_mtu.bytes();
        let to = *fabric.host(B).memory();
        let receive = Host::receive(self.messages);
        fabric.host_mut(B).hca.post_recv(receiver, receive)?;
        let write = fabric.host(A).write(&to, bytes, self.messages);
        fabric.host_mut(A).hca.post_send(sender, write)?;
        fabric.kick(A);
        self.posted = Some(fabric.now());
        self.messages += 1;
        Ok(())
    }

    /// Takes what has come out of the devices.
    fn take(&mut self) -> Result<(), TrialError> {
        for (host, event) in self.fabric.take_told() {
            if let Event::TimerExpired { at, .. } = event
                && host == A
            {
                self.note_timer(at);
            }
        }
        let completions = self.fabric.take_completions();
        for (_, completion) in completions.iter().filter(|(host, _)| *host == A) {
            self.complete(completion)?;
        }
        Ok(())
    }

    /// A timer of the requester ran out: whether anything was sent again.
    fn note_timer(&mut self, at: Time) {
        let repeated = self.count(Counter::RetransmittedPackets);
        if std::mem::replace(&mut self.repeated, repeated) == repeated {
            return;
        }
        if let Some(up) = self.up_since.take() {
            self.fate.resumed_after = self.fate.resumed_after.max(at.since(up));
        }
    }

    fn complete(&mut self, completion: &Completion) -> Result<(), TrialError> {
        if completion.status != WcStatus::Success {
            self.fate.survived = false;
            return Ok(());
        }
        let Some(posted) = self.posted.take() else {
            return Ok(());
        };
        // Progress without a timer: a receiver that has missed a packet says so.
        self.up_since = None;
        let took = self.fabric.now().since(posted);
        let late = Span::from_nanos(self.late.load(Ordering::Relaxed));
        self.fate.lost += took - self.ideal - late;
        if self.left > 0 {
            self.left -= 1;
            self.post()?;
        }
        Ok(())
    }

    fn count(&self, counter: Counter) -> u64 {
        self.fabric.host(A).hca.counter(counter)
    }

    fn found(&self) -> Fate {
        let retransmissions = self.count(Counter::RetransmittedPackets);
        Fate {
            packets: self.messages * u64::from(PACKETS) + retransmissions,
            retransmissions,
            spurious: self.fabric.spurious(),
            ..self.fate
        }
    }
}
