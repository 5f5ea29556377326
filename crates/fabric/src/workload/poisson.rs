//! Random arrivals.

use ferroce_base::time::{Span, Time};
use ferroce_base::units::Probability;
use ferroce_dcqcn::Rate;

use super::plan::{MESSAGE_BYTES_MAX, Message, Plan, Sending, distinct, within};
use super::random::Stream;
use super::{Cdf, TRANSFERS_MAX, Workload, WorkloadError};

/// Messages of random sizes between random pairs of hosts, at random times (a Poisson process).
#[derive(Clone, PartialEq, Debug)]
pub struct Poisson {
    /// Who sends and receives, all pairs equally likely.
    pub hosts: Vec<u32>,
    /// How large messages are.
    pub sizes: Cdf,
    /// The rate of a host's cable.
    pub rate: Rate,
    /// The share of it that the bytes of the messages take in the mean, headers not counted.
    pub load: Probability,
    /// When arrivals begin.
    pub at: Time,
    /// How long they go on.
    pub duration: Span,
    /// It decides everything that is random.
    pub seed: u64,
}

impl Poisson {
    /// The workload. Its transfers are in the order of their times.
    pub fn build(&self) -> Result<Workload, WorkloadError> {
        distinct("hosts", &self.hosts, 2)?;
        let gap = self.mean_gap_ps()?;
        let end = self.at.after(self.duration);
        if self.duration == Span::ZERO || end == Time::NEVER {
            return Err(WorkloadError::Field {
                field: "duration",
                value: self.duration.to_string(),
                allowed: "more than 0 and less than 213 days".into(),
            });
        }
        let expected = self.duration.as_picos() as f64 / gap;
        if expected > f64::from(TRANSFERS_MAX) {
            let transfers = expected as u128;
            return Err(WorkloadError::Transfers { transfers });
        }
        let mut plan = Plan::begin("poisson");
        let mut random = Stream::new(self.seed);
        let mut at = self.at;
        loop {
            at = at.after(Span::from_picos((random.exponential() * gap).round() as u64));
            if at >= end {
                return Ok(plan.finish());
            }
            let sending = self.sending(&mut random, at);
            plan.allow(sending.bytes)?;
            plan.send(sending, &[]);
        }
    }

    /// The mean time between two messages of all hosts together, in picoseconds.
    fn mean_gap_ps(&self) -> Result<f64, WorkloadError> {
        let (load, rate) = (self.load.as_f64(), self.rate.bps() as f64);
        let (field, value) = match (load > 0.0, rate > 0.0) {
            (false, _) => ("load", self.load.to_string()),
            (_, false) => ("rate", self.rate.to_string()),
            _ => {
                let bits = self.sizes.mean() as f64 * 8.0;
                return Ok(bits * 1e12 / (rate * load * self.hosts.len() as f64));
            }
        };
        Err(WorkloadError::Field {
            field,
            value,
            allowed: "more than 0".into(),
        })
    }

    fn sending(&self, random: &mut Stream, at: Time) -> Sending {
        let hosts = self.hosts.len() as u32;
        let src = random.below(hosts);
        // One of the others.
        let dst = (src + 1 + random.below(hosts - 1)) % hosts;
        Sending {
            src: self.hosts[src as usize],
            dst: self.hosts[dst as usize],
            bytes: self.sizes.draw(random),
            at,
            think: Span::ZERO,
        }
    }
}

/// Clients that ask storage servers, each so often one after the other, and for several things at a
/// time.
#[derive(Clone, PartialEq, Debug)]
pub struct Requests {
    /// Who asks.
    pub clients: Vec<u32>,
    /// Who answers: each request goes to a random one.
    pub servers: Vec<u32>,
    /// The size of a request.
    pub request_bytes: u64,
    /// How large answers are.
    pub answers: Cdf,
    /// How many requests of a client are under way at a time.
    pub outstanding: u32,
    /// How often a client asks for each of these.
    pub rounds: u32,
    /// When clients begin.
    pub at: Time,
    /// How long a server needs for an answer.
    pub think: Span,
    /// It decides everything that is random.
    pub seed: u64,
}

impl Requests {
    /// The workload: requests, and answers that wait for them.
    pub fn build(&self) -> Result<Workload, WorkloadError> {
        distinct("clients", &self.clients, 1)?;
        distinct("servers", &self.servers, 1)?;
        distinct(
            "clients or servers",
            &[&*self.clients, &self.servers].concat(),
            2,
        )?;
        within("request_bytes", self.request_bytes, 1, MESSAGE_BYTES_MAX)?;
        within("outstanding", self.outstanding.into(), 1, u32::MAX.into())?;
        within("rounds", self.rounds.into(), 1, u32::MAX.into())?;
        let chains = self.clients.len() as u128 * u128::from(self.outstanding);
        let messages = chains.saturating_mul(2 * u128::from(self.rounds));
        let largest = self.answers.quantile(u32::MAX).max(self.request_bytes);
        let mut plan = Plan::new("requests", messages, largest, messages)?;
        let mut random = Stream::new(self.seed);
        for &client in &self.clients {
            for _ in 0..self.outstanding {
                let mut answer = None;
                for _ in 0..self.rounds {
                    answer = Some(self.round(&mut plan, &mut random, client, answer));
                }
            }
        }
        Ok(plan.finish())
    }

    /// A request, after the answer to the one before, and its answer.
    fn round(
        &self,
        plan: &mut Plan,
        random: &mut Stream,
        client: u32,
        before: Option<Message>,
    ) -> Message {
        let server = self.servers[random.below(self.servers.len() as u32) as usize];
        let request = Sending {
            src: client,
            dst: server,
            bytes: self.request_bytes,
            at: self.at,
            think: Span::ZERO,
        };
        let answer = Sending {
            src: server,
            dst: client,
            bytes: self.answers.draw(random),
            think: self.think,
            ..request
        };
        let request = plan.send(request, before.as_slice());
        plan.send(answer, &[request])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poisson() -> Poisson {
        Poisson {
            hosts: (0..16).collect(),
            sizes: Cdf::published("FbHdp").unwrap(),
            rate: Rate::from_mbps(100_000),
            load: "30%".parse().unwrap(),
            at: Time::from_nanos(1_000),
            duration: Span::from_millis(20),
            seed: 7,
        }
    }

    #[test]
    fn the_load_is_met() {
        let it = Poisson {
            duration: Span::from_millis(400),
            ..poisson()
        };
        let workload = it.build().unwrap();
        // 16 hosts * 100 Gb/s * 30 % for 0.4 s.
        let share = workload.bytes() as f64 / 24e9;
        assert!((0.96..1.04).contains(&share), "{share}");
        // Messages a second: the rate by the mean size.
        let count = workload.transfers.len() as f64 / (24e9 / 120_421.0);
        assert!((0.99..1.01).contains(&count), "{count}");
        assert!(workload.transfers.is_sorted_by_key(|it| it.at));
        let ends = |it: &super::super::Transfer| it.src != it.dst && it.src < 16 && it.dst < 16;
        assert!(workload.transfers.iter().all(ends));
        let to_last = workload.transfers.iter().filter(|it| it.dst == 15).count() as f64;
        let even = workload.transfers.len() as f64 / 16.0;
        assert!((0.97..1.03).contains(&(to_last / even)));
    }

    #[test]
    fn bad_parameters_are_named() {
        let error = |it: Poisson| it.build().unwrap_err().to_string();
        assert_eq!(
            error(Poisson {
                load: Probability::ZERO,
                ..poisson()
            }),
            "invalid load 0%: must be more than 0"
        );
        assert_eq!(
            error(Poisson {
                rate: Rate::default(),
                ..poisson()
            }),
            "invalid rate 0 bit/s: must be more than 0"
        );
        assert_eq!(
            error(Poisson {
                duration: Span::ZERO,
                ..poisson()
            }),
            "invalid duration 0 ns: must be more than 0 and less than 213 days"
        );
        let long = Poisson {
            duration: Span::from_secs(10_000),
            ..poisson()
        };
        let error = error(long);
        assert!(
            error.starts_with("the workload has 4982519660 transfers"),
            "{error}"
        );
    }

    #[test]
    fn answers_wait_for_requests() {
        let it = Requests {
            clients: vec![5, 6],
            servers: vec![1, 2, 3],
            request_bytes: 64,
            answers: Cdf::published("Solar2022").unwrap(),
            outstanding: 2,
            rounds: 3,
            at: Time::ZERO,
            think: Span::from_micros(10),
            seed: 1,
        };
        let workload = it.build().unwrap();
        assert_eq!(workload.transfers.len(), 2 * 2 * 3 * 2);
        assert_eq!(workload.edges.len(), 2 * 2 * (3 + 2));
        for (before, after) in &workload.edges {
            let [before, after] = [before, after].map(|it| &workload.transfers[it.0 as usize]);
            assert_eq!(before.dst, after.src);
            let is_answer = before.bytes == 64 && before.dst < 5;
            assert_eq!(after.think, if is_answer { it.think } else { Span::ZERO });
        }
        let both = Requests {
            servers: vec![1, 5],
            ..it
        };
        assert_eq!(
            both.build().unwrap_err().to_string(),
            "invalid clients or servers: host 5 is listed twice; list each host once"
        );
    }
}
