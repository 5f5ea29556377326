//! One run: the whole workload under one policy.

use std::time::Duration;

use ferroce_device::{Completion, Counter, Event, SendOp, SendWr, Span, Time, WcStatus};
use ferroce_runtime::{Spent, Tandem};
use hdrhistogram::Histogram;

use super::error::Error;
use super::figures::{Expiry, Figures, Outcome};
use super::plan::{Kind, Plan, Start};
use super::rig::{DEPTH, Outage, QPS, Rig};
use super::server::Server;
use super::workload::{Message, Messages, Op, Pattern};

/// What a run reports while it goes on.
pub(crate) type OnProgress<'a> = dyn FnMut(&Figures) + 'a;

/// Longest sleep: how late a blackout may begin, and a full send queue be noticed.
const NAP: Duration = Duration::from_millis(5);
/// Completions taken at a time.
pub(crate) const TAKE: usize = 64;
/// What a run may be silent for beyond what its timers explain.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the workload under a policy.
pub(crate) fn run(
    plan: &Plan,
    kind: Kind,
    pattern: &Pattern,
    on_progress: &mut OnProgress<'_>,
) -> Result<Figures, Error> {
    run_between(plan, kind, [pattern; 2], on_progress)
}

/// The same with what the client and the server expect to see.
fn run_between(
    plan: &Plan,
    kind: Kind,
    [sent, received]: [&Pattern; 2],
    on_progress: &mut OnProgress<'_>,
) -> Result<Figures, Error> {
    let rig = Rig::new(plan, kind)?;
    let mut server = Server::new(plan, &rig.server, received);
    server.post_all()?;
    let mut client = Client::new(plan, kind, &rig, sent);
    let outcome = client.drive(&mut server, on_progress)?;
    let mut figures = client.figures;
    figures.outcome = outcome;
    let [requester, responder] = [&rig.client, &rig.server].map(|end| end.device.state());
    figures.retransmissions = requester.counter(Counter::RetransmittedPackets);
    figures.spurious = requester.counter(Counter::SpuriousRetransmissions)
        + responder.counter(Counter::EarlyDuplicateRequest);
    Ok(figures)
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    message: Message,
    posted: Time,
}

/// The end that makes requests.
struct Client<'a> {
    rig: &'a Rig,
    pattern: &'a Pattern,
    flows: Vec<Flow>,
    plan: &'a Plan,
    start: Time,
    silence_max: Duration,
    sends_done: u64,
    figures: Figures,
    scratch: Vec<u8>,
}

/// A queue pair of the client.
struct Flow {
    messages: Messages,
    /// The next message, if it could not be posted yet.
    held: Option<Message>,
    pending: [Option<Pending>; DEPTH],
    sends_posted: u64,
    recovered: bool,
}

impl<'a> Client<'a> {
    fn new(plan: &'a Plan, kind: Kind, rig: &'a Rig, pattern: &'a Pattern) -> Self {
        let flow = |qp| Flow {
            messages: Messages::new(plan.seed, plan.bytes, qp, QPS),
            held: None,
            pending: [None; DEPTH],
            sends_posted: 0,
            recovered: false,
        };
        // How long a queue pair may be silent before it must have failed.
        let total = rig.client.device.with(|hca| hca.policy().total(plan.qp));
        let total = Duration::from(total.unwrap_or(Span::NEVER));
        Self {
            rig,
            pattern,
            flows: (0..QPS).map(flow).collect(),
            plan,
            start: rig.client.device.now(),
            silence_max: total.saturating_add(PATIENCE),
            sends_done: 0,
            figures: Figures {
                policy: kind,
                outcome: Outcome::Ok,
                bytes: 0,
                verified: true,
                elapsed_ns: 0,
                retransmissions: 0,
                spurious: 0,
                spent: Spent::default(),
                expiries: Vec::new(),
                latency: Histogram::new(3).expect("3 digits are allowed"),
                bytes_by_ms: Vec::new(),
                dark: None,
                recoveries_ns: Vec::new(),
            },
            scratch: Vec::new(),
        }
    }

    /// Makes both ends work until everything is done or nothing can be done any more.
    fn drive(
        &mut self,
        server: &mut Server<'_>,
        on_progress: &mut OnProgress<'_>,
    ) -> Result<Outcome, Error> {
        let (client, other) = (&self.rig.client, &self.rig.server);
        let mut tandem = Tandem::new([&client.device, &other.device])
            .map_err(|error| Error::Internal(error.to_string()))?;
        let mut completions = Vec::with_capacity(TAKE);
        self.start = client.device.now();
        let mut last = self.start;
        self.rig.impair(self.plan.loss, None)?;
        let outcome = loop {
            self.start_outage()?;
            for qp in 0..QPS {
                self.post(qp, server.receives(qp))?;
            }
            if self.flows.iter().all(Flow::is_done) {
                break Outcome::Ok;
            }
            tandem.drive(NAP);
            // What the client knows to be done has completed at the server before.
            self.figures.verified &= server.serve()?;
            client.take(&mut completions)?;
            let now = client.device.now();
            self.take_events();
            if !completions.is_empty() {
                last = now;
            }
            let gave_up = self.take_completions(&mut completions, now)?;
            if gave_up || !self.figures.verified {
                break match gave_up {
                    true => Outcome::RetryExceeded,
                    false => Outcome::Ok,
                };
            }
            if now.since(last) > self.silence_max.into() {
                return Err(Error::Stuck {
                    under: format!("policy {}", self.figures.policy),
                    seconds: self.silence_max.as_secs(),
                });
            }
            self.figures.elapsed_ns = now.since(self.start).as_nanos();
            on_progress(&self.figures);
        };
        self.figures.verified &= server.received() >= self.sends_done;
        self.figures.spent = tandem.spent();
        Ok(outcome)
    }

    /// Books what is done; true if a queue pair has given up.
    fn take_completions(
        &mut self,
        completions: &mut Vec<Completion>,
        now: Time,
    ) -> Result<bool, Error> {
        for completion in completions.drain(..) {
            match completion.status {
                WcStatus::Success => self.complete(&completion, now),
                WcStatus::RetryExcErr => return Ok(true),
                status => {
                    return Err(Error::Status {
                        under: format!("policy {}", self.figures.policy),
                        status: status.name(),
                    });
                }
            }
        }
        Ok(false)
    }

    /// Lets the blackout begin, or sets its time, when it can be known.
    fn start_outage(&mut self) -> Result<(), Error> {
        let Some(blackout) = self.plan.blackout else {
            return Ok(());
        };
        let now_ns = self.rig.client.device.now().since(self.start).as_nanos();
        let at_ns = match blackout.start {
            Start::Time(at_ns) => at_ns,
            Start::Percent(percent) => {
                let done = self.figures.bytes as f64 * 100.0;
                if done < self.plan.bytes as f64 * percent {
                    return Ok(());
                }
                now_ns
            }
        };
        if self.figures.dark.is_none() {
            let length_ns = blackout.length_ns;
            let in_ns = at_ns.saturating_sub(now_ns);
            self.rig
                .impair(self.plan.loss, Some(Outage { in_ns, length_ns }))?;
            self.figures.dark = Some((now_ns + in_ns, now_ns + in_ns + length_ns));
        }
        Ok(())
    }

    /// Gives a queue pair its next turn of messages, once it has done those before.
    ///
    /// So works a program that computes and communicates in turns. Behind the last packet of a turn
    /// comes nothing by which the peer could notice its loss: only a timer does.
    /// `receives`: how many the server has posted for it, ever.
    fn post(&mut self, qp: usize, receives: u64) -> Result<(), Error> {
        let (client, server) = (&self.rig.client, &self.rig.server);
        let flow = &mut self.flows[qp];
        let is_busy = flow.pending.iter().any(Option::is_some);
        if is_busy && flow.held.is_none() {
            return Ok(());
        }
        let now = client.device.now();
        let mut requests = Vec::new();
        for slot in 0..DEPTH {
            if flow.pending[slot].is_some() {
                continue;
            }
            let Some(message) = flow.held.take().or_else(|| flow.messages.next()) else {
                break;
            };
            if message.op == Op::Send && flow.sends_posted == receives {
                // The server is late with its receives; an RNR NAK would only cost time.
                flow.held = Some(message);
                break;
            }
            let (here, there) = (client.place(qp, slot), server.place(qp, slot));
            let bytes = self.pattern.of(&message);
            let (va, rkey) = server.remote(there);
            let op = match message.op {
                Op::Write => SendOp::Write {
                    va,
                    rkey,
                    imm: None,
                },
                Op::Send => SendOp::Send {
                    imm: Some(message.number as u32),
                },
                Op::Read => SendOp::Read { va, rkey },
            };
            if message.op == Op::Read {
                server.buffer.write(there, bytes);
            } else {
                client.buffer.write(here, bytes);
            }
            flow.sends_posted += u64::from(message.op == Op::Send);
            flow.pending[slot] = Some(Pending {
                message,
                posted: now,
            });
            requests.push(SendWr::new(slot as u64, op, client.sge(here, message.len)));
        }
        if !requests.is_empty() {
            client.device.post_send(client.qps[qp], requests)?;
        }
        Ok(())
    }

    /// A message is done: looks at its bytes where they had to go, and books it.
    fn complete(&mut self, completion: &Completion, now: Time) {
        let (client, server) = (&self.rig.client, &self.rig.server);
        let (qp, slot) = (client.index_of(completion.qpn), completion.wr_id as usize);
        let pending = self.flows[qp].pending.get_mut(slot).and_then(Option::take);
        let Some(Pending { message, posted }) = pending else {
            // A completion of something that was never posted, or completed already.
            self.figures.verified = false;
            return;
        };
        self.sends_done += u64::from(message.op == Op::Send);
        let found = match message.op {
            Op::Write => Some((&server.buffer, server.place(qp, slot))),
            Op::Read => Some((&client.buffer, client.place(qp, slot))),
            // The server looks.
            Op::Send => None,
        };
        if let Some((buffer, place)) = found {
            let expected = self.pattern.of(&message);
            self.scratch.resize(expected.len(), 0);
            buffer.read(place, &mut self.scratch);
            self.figures.verified &= self.scratch == expected;
        }
        self.book(qp, message, posted, now);
    }

    fn book(&mut self, qp: usize, message: Message, posted: Time, now: Time) {
        let figures = &mut self.figures;
        let at_ns = now.since(self.start).as_nanos();
        figures.bytes += u64::from(message.len);
        figures.elapsed_ns = at_ns;
        // The histogram grows with its values.
        let _ = figures.latency.record(now.since(posted).as_nanos());
        let ms = (at_ns / 1_000_000) as usize;
        if figures.bytes_by_ms.len() <= ms {
            figures.bytes_by_ms.resize(ms + 1, 0);
        }
        figures.bytes_by_ms[ms] += u64::from(message.len);
        let flow = &mut self.flows[qp];
        if let Some((_, light_ns)) = figures.dark
            && !flow.recovered
            && at_ns >= light_ns
        {
            flow.recovered = true;
            if posted.since(self.start).as_nanos() < light_ns {
                figures.recoveries_ns.push(at_ns - light_ns);
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.rig.client.device.poll_event() {
            if let Event::TimerExpired { at, expiry, .. } = event {
                self.figures.expiries.push(Expiry {
                    at_ns: at.since(self.start).as_nanos(),
                    wait_ns: expiry.wait.as_nanos(),
                });
            }
        }
    }
}

impl Flow {
    fn is_done(&self) -> bool {
        self.held.is_none() && self.pending.iter().all(Option::is_none) && self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_adp::QpTimeouts;

    fn plan(test: u8) -> Plan {
        // Other test runs on this machine take other ones.
        let [.., high, low] = std::process::id().to_be_bytes();
        Plan {
            seed: 3,
            bytes: 200_000,
            loss: 0.0,
            blackout: None,
            qp: QpTimeouts {
                timeout: 14,
                retry_cnt: 7,
            },
            profile: ferroce_adp::builtin::named("link-flap").unwrap().profile,
            addresses: [1, 2].map(|end| [127, high | 128, low, 100 + 10 * test + end].into()),
            tap: None,
        }
    }

    #[test]
    fn right_bytes_are_found_right() {
        let pattern = Pattern::new(3);
        let figures = run(&plan(1), Kind::Profile, &pattern, &mut |_| ()).unwrap();
        assert!(figures.verified);
        assert_eq!((figures.outcome, figures.bytes), (Outcome::Ok, 200_000));
        assert!(figures.latency.len() > 8);
    }

    #[test]
    fn wrong_bytes_are_found_wrong() {
        let (sent, received) = (Pattern::new(3), Pattern::new(4));
        let patterns = [&sent, &received];
        let figures = run_between(&plan(2), Kind::Ib, patterns, &mut |_| ()).unwrap();
        assert!(!figures.verified);
    }
}
