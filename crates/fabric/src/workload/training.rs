//! What training jobs send besides collectives of all ranks: to experts, along pipelines, and to storage.

use ferroce_base::time::{Span, Time};

use super::plan::{MESSAGE_BYTES_MAX, Message, Plan, Sending, distinct, share, within};
use super::{Workload, WorkloadError};

/// Experts on all ranks: in each layer, ranks dispatch tokens to all others, compute, and send the results back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Experts {
    /// The hosts.
    pub ranks: Vec<u32>,
    /// What each rank dispatches in a layer, an equal part to each rank; at least a byte for each.
    pub bytes: u64,
    /// Layers, one after the other; 1 or more.
    pub layers: u32,
    /// How long the experts of a rank compute when they have received all their tokens.
    pub compute: Span,
    /// How long a rank computes between two layers, when it has all results.
    pub think: Span,
    /// When the first layer begins.
    pub at: Time,
}

impl Experts {
    /// Two messages between any two ranks in each layer.
    pub fn build(&self) -> Result<Workload, WorkloadError> {
        distinct("ranks", &self.ranks, 2)?;
        let ranks = self.ranks.len();
        within("layers", self.layers.into(), 1, u32::MAX.into())?;
        within("bytes", self.bytes, ranks as u64, MESSAGE_BYTES_MAX)?;
        let pairs = ranks as u128 * (ranks as u128 - 1);
        let messages = 2 * pairs * u128::from(self.layers);
        let mut plan = Plan::at_least("expert all-to-all", messages)?;
        let mut begins: Vec<Option<Message>> = vec![None; ranks];
        for layer in 1..=self.layers {
            let dispatched = self.exchange(&mut plan, &begins, false)?;
            let computed = self.after_all(&mut plan, &dispatched, self.compute)?;
            let combined = self.exchange(&mut plan, &computed, true)?;
            if layer < self.layers {
                begins = self.after_all(&mut plan, &combined, self.think)?;
            }
        }
        Ok(plan.finish())
    }

    /// Every rank sends to all others, the next one first, what belongs to their experts, or what came from them.
    /// Returns what each receives.
    fn exchange(
        &self,
        plan: &mut Plan,
        begins: &[Option<Message>],
        is_back: bool,
    ) -> Result<Vec<Vec<Message>>, WorkloadError> {
        let ranks = self.ranks.len();
        let mut received = vec![Vec::with_capacity(ranks - 1); ranks];
        for shift in 1..ranks {
            for (src, begin) in begins.iter().enumerate() {
                let dst = (src + shift) % ranks;
                let expert = if is_back { src } else { dst };
                let sending = Sending {
                    src: self.ranks[src],
                    dst: self.ranks[dst],
                    bytes: share(self.bytes, ranks as u32, expert as u32),
                    at: self.at,
                    think: Span::ZERO,
                };
                received[dst].push(plan.add(sending, begin.as_slice())?);
            }
        }
        Ok(received)
    }

    /// Work of each rank when it has received all.
    fn after_all(
        &self,
        plan: &mut Plan,
        received: &[Vec<Message>],
        takes: Span,
    ) -> Result<Vec<Option<Message>>, WorkloadError> {
        let ranks = self.ranks.iter().zip(received);
        ranks
            .map(|(host, all)| plan.work(*host, self.at, takes, all).map(Some))
            .collect()
    }
}

/// Stages of a model on different hosts, which pass microbatches on: forward, and then backward.
///
/// Each stage does one forward and one backward pass in turn as soon as the last stage has begun (1F1B), so that
/// it keeps the activations of few microbatches. A backward pass takes twice as long as a forward pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pipeline {
    /// The hosts: first those of the first stage, one for each pipeline, then those of the second, and so on.
    pub ranks: Vec<u32>,
    /// Stages, 2 or more; the number of hosts is a multiple.
    pub stages: u32,
    /// What a stage passes on for a microbatch: activations, or their gradients.
    pub bytes: u64,
    /// Microbatches of a round; 1 or more.
    pub microbatches: u32,
    /// How long a stage takes for the forward pass of a microbatch.
    pub compute: Span,
    /// How often it is done; 1 or more.
    pub rounds: u32,
    /// When the first round begins.
    pub at: Time,
}

/// One of the passes of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    Forward(u32),
    Backward(u32),
}

impl Pipeline {
    /// A message from each stage to the next for each microbatch, and one back.
    pub fn build(&self) -> Result<Workload, WorkloadError> {
        distinct("ranks", &self.ranks, 2)?;
        let ranks = self.ranks.len() as u64;
        within("stages", self.stages.into(), 2, ranks)?;
        if !ranks.is_multiple_of(self.stages.into()) {
            return Err(WorkloadError::Field {
                field: "number of ranks",
                value: ranks.to_string(),
                allowed: format!("a multiple of the {} stages", self.stages),
            });
        }
        within("bytes", self.bytes, 1, MESSAGE_BYTES_MAX)?;
        within("microbatches", self.microbatches.into(), 1, u32::MAX.into())?;
        within("rounds", self.rounds.into(), 1, u32::MAX.into())?;
        let rounds = u128::from(self.rounds);
        let work = 2 * u128::from(ranks) * u128::from(self.microbatches) * rounds;
        let mut plan = Plan::at_least("pipeline", work)?;
        let width = self.ranks.len() / self.stages as usize;
        for pipeline in 0..width {
            let hosts: Vec<_> = self.ranks.iter().skip(pipeline).step_by(width).collect();
            let mut last = vec![None; hosts.len()];
            for _ in 0..self.rounds {
                self.round(&mut plan, &hosts, &mut last)?;
            }
        }
        Ok(plan.finish())
    }

    /// All passes of all stages; `last` is the last one of each.
    fn round(
        &self,
        plan: &mut Plan,
        hosts: &[&u32],
        last: &mut [Option<Message>],
    ) -> Result<(), WorkloadError> {
        let stages = hosts.len();
        let mut next = vec![0_u64; stages];
        // Messages that have been sent to a stage: those forward and those backward, in order.
        let mut arrived = vec![[Vec::new(), Vec::new()]; stages];
        let mut progress = true;
        while progress {
            progress = false;
            for stage in 0..stages {
                while let Some(pass) = self.pass(stage as u32, next[stage]) {
                    let (number, is_back) = match pass {
                        Pass::Forward(number) => (number as usize, false),
                        Pass::Backward(number) => (number as usize, true),
                    };
                    let is_end = stage == if is_back { stages - 1 } else { 0 };
                    let of_direction = &arrived[stage][usize::from(is_back)];
                    let input: Option<Message> = of_direction.get(number).copied();
                    if input.is_none() && !is_end {
                        break;
                    }
                    let takes = self.compute.times(if is_back { 2 } else { 1 });
                    let waits_for: Vec<_> = last[stage].into_iter().chain(input).collect();
                    let work = plan.work(*hosts[stage], self.at, takes, &waits_for)?;
                    last[stage] = Some(work);
                    next[stage] += 1;
                    progress = true;
                    let to = if is_back {
                        stage.checked_sub(1)
                    } else {
                        Some(stage + 1)
                    };
                    if let Some(to) = to.filter(|to| *to < stages) {
                        let sending = Sending {
                            src: *hosts[stage],
                            dst: *hosts[to],
                            bytes: self.bytes,
                            at: self.at,
                            think: Span::ZERO,
                        };
                        let message = plan.add(sending, &[work])?;
                        arrived[to][usize::from(is_back)].push(message);
                    }
                }
            }
        }
        Ok(())
    }

    /// The pass of a stage with this number, from 0: as many forward as there are stages behind it, then one
    /// forward and one backward in turn, and then the rest backward.
    fn pass(&self, stage: u32, number: u64) -> Option<Pass> {
        let all = u64::from(self.microbatches);
        let ahead = u64::from(self.stages - 1 - stage).min(all);
        let pass = |number| number as u32;
        if number < ahead {
            return Some(Pass::Forward(pass(number)));
        }
        let after = number - ahead;
        match after {
            _ if number >= 2 * all => None,
            _ if after >= 2 * (all - ahead) => Some(Pass::Backward(pass(after - (all - ahead)))),
            _ if after.is_multiple_of(2) => Some(Pass::Forward(pass(ahead + after / 2))),
            _ => Some(Pass::Backward(pass(after / 2))),
        }
    }
}

/// Checkpoints: hosts write to storage at an interval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The hosts that write.
    pub writers: Vec<u32>,
    /// The hosts that store.
    pub servers: Vec<u32>,
    /// What each writes, an equal part to each server; at least a byte for each.
    pub bytes: u64,
    /// Between the beginnings of two checkpoints, unless one takes longer.
    pub interval: Span,
    /// How many are written; 1 or more.
    pub rounds: u32,
    /// When the first begins.
    pub at: Time,
}

impl Checkpoint {
    /// A message from each writer to each server for each checkpoint.
    pub fn build(&self) -> Result<Workload, WorkloadError> {
        distinct("servers", &self.servers, 1)?;
        distinct("ranks", &self.writers, 1)?;
        distinct("ranks", &[&self.servers[..], &self.writers].concat(), 2)?;
        within("rounds", self.rounds.into(), 1, u32::MAX.into())?;
        let servers = self.servers.len() as u32;
        within("bytes", self.bytes, servers.into(), MESSAGE_BYTES_MAX)?;
        let pairs = self.writers.len() as u128 * u128::from(servers);
        let mut plan = Plan::at_least("checkpoint", pairs * u128::from(self.rounds))?;
        let mut written: Vec<Vec<Message>> = vec![Vec::new(); self.writers.len()];
        for round in 0..self.rounds {
            let at = self.at.after(self.interval.times(round.into()));
            for (writer, written) in self.writers.iter().zip(&mut written) {
                let begins = plan.work(*writer, at, Span::ZERO, written)?;
                written.clear();
                for (number, server) in (0..).zip(&self.servers) {
                    let sending = Sending {
                        src: *writer,
                        dst: *server,
                        bytes: share(self.bytes, servers, number),
                        at,
                        think: Span::ZERO,
                    };
                    written.push(plan.add(sending, &[begins])?);
                }
            }
        }
        Ok(plan.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(workload: &Workload) -> Vec<(u32, u32, u32)> {
        let all = workload.transfers.iter().filter(|it| !it.is_work());
        all.map(|it| (it.src, it.dst, it.bytes)).collect()
    }

    fn experts(layers: u32) -> Experts {
        Experts {
            ranks: vec![4, 5, 6],
            bytes: 301,
            layers,
            compute: Span::from_micros(3),
            think: Span::from_micros(5),
            at: Time::ZERO,
        }
    }

    #[test]
    fn experts_answer_with_as_much_as_they_got() {
        let workload = experts(1).build().unwrap();
        let all = messages(&workload);
        assert_eq!(all.len(), 2 * 6);
        // Rank 0's experts have a byte more of every rank.
        assert!(
            all[..6]
                .iter()
                .all(|it| it.2 == if it.1 == 4 { 101 } else { 100 })
        );
        assert!(
            all[6..]
                .iter()
                .all(|it| it.2 == if it.0 == 4 { 101 } else { 100 })
        );
        let work: Vec<_> = workload
            .transfers
            .iter()
            .filter(|it| it.is_work())
            .collect();
        assert!(work.iter().all(|it| it.think == Span::from_micros(3)));
        assert_eq!(work.len(), 3);
        // Work waits for two messages, and two messages for it.
        assert_eq!(workload.edges.len(), 3 * 4);
        let three = experts(3).build().unwrap();
        assert_eq!(messages(&three).len(), 3 * 12);
        assert_eq!(
            three.transfers.iter().filter(|it| it.is_work()).count(),
            3 * 3 + 2 * 3
        );
    }

    fn pipeline(stages: u32, microbatches: u32) -> Pipeline {
        Pipeline {
            ranks: (0..stages).collect(),
            stages,
            bytes: 1_000,
            microbatches,
            compute: Span::from_micros(1),
            rounds: 1,
            at: Time::ZERO,
        }
    }

    #[test]
    fn stages_take_turns_forward_and_backward() {
        use Pass::{Backward, Forward};
        let of = |stage| {
            let it = pipeline(3, 4);
            (0..8)
                .map(move |at| it.pass(stage, at).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(0),
            [
                Forward(0),
                Forward(1),
                Forward(2),
                Backward(0),
                Forward(3),
                Backward(1),
                Backward(2),
                Backward(3)
            ]
        );
        assert_eq!(
            of(2)[..4],
            [Forward(0), Backward(0), Forward(1), Backward(1)]
        );
        assert_eq!(pipeline(3, 4).pass(1, 8), None);
        // Few microbatches go forward all at first.
        let few = pipeline(5, 2);
        let of_first: Vec<_> = (0..4).map(|at| few.pass(0, at).unwrap()).collect();
        assert_eq!(of_first, [Forward(0), Forward(1), Backward(0), Backward(1)]);
    }

    #[test]
    fn every_microbatch_passes_every_stage_twice() {
        for (stages, microbatches, rounds, width) in [(2, 1, 1, 1), (4, 8, 2, 1), (5, 3, 1, 3)] {
            let it = Pipeline {
                rounds,
                ranks: (0..stages * width).collect(),
                ..pipeline(stages, microbatches)
            };
            let workload = it.build().unwrap();
            let all = messages(&workload);
            let count =
                |src: u32, dst: u32| all.iter().filter(|it| it.0 == src && it.1 == dst).count();
            let each = (microbatches * rounds) as usize;
            for stage in 1..stages {
                for pipeline in 0..width {
                    let host = stage * width + pipeline;
                    assert_eq!(
                        (count(host - width, host), count(host, host - width)),
                        (each, each)
                    );
                }
            }
            assert_eq!(all.len(), 2 * each * ((stages - 1) * width) as usize);
            let work = workload.transfers.iter().filter(|it| it.is_work()).count();
            assert_eq!(work, 2 * each * (stages * width) as usize);
        }
    }

    #[test]
    fn checkpoints_begin_at_an_interval() {
        let it = Checkpoint {
            writers: vec![0, 1],
            servers: vec![7, 8],
            bytes: 5,
            interval: Span::from_millis(2),
            rounds: 3,
            at: Time::from_nanos(9),
        };
        let workload = it.build().unwrap();
        let first: Vec<_> = messages(&workload)[..4].to_vec();
        assert_eq!(first, [(0, 7, 3), (0, 8, 2), (1, 7, 3), (1, 8, 2)]);
        let last = workload.transfers.last().unwrap();
        assert_eq!(last.at, Time::from_nanos(4_000_009));
        // Messages wait for their beginning, and this for the checkpoint before.
        assert_eq!(workload.edges.len(), 3 * 4 + 2 * 4);
        let error = Checkpoint {
            servers: vec![1],
            ..it
        }
        .build()
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid ranks: host 1 is listed twice; list each host once"
        );
    }

    #[test]
    fn bad_parameters_are_named() {
        let error = |it: Pipeline| it.build().unwrap_err().to_string();
        let odd = Pipeline {
            ranks: (0..7).collect(),
            ..pipeline(3, 1)
        };
        assert_eq!(
            error(odd),
            "invalid number of ranks 7: must be a multiple of the 3 stages"
        );
        assert_eq!(
            error(Pipeline {
                stages: 1,
                ..pipeline(3, 1)
            }),
            "invalid stages 1: must be 2 to 3"
        );
        let error = Experts {
            bytes: 2,
            ..experts(1)
        }
        .build()
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid bytes 2: must be 3 to 68719476736"
        );
    }
}
