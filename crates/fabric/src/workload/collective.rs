//! What groups of hosts do together: all-reduce and its relatives.

mod algorithm;

use ferroce_time::{Span, Time};

use self::algorithm::{Algorithm, Step};
use super::plan::{MESSAGE_BYTES_MAX, Message, Plan, Sending, distinct, within};
use super::{Workload, WorkloadError};

/// A collective operation of some hosts on so many bytes each, perhaps again and again.
///
/// A host sends what the next step needs when all it needs for it has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collective {
    /// The hosts, in the order of their ranks. Rings go along this order.
    pub ranks: Vec<u32>,
    /// The size of the buffer that every rank begins or ends with, at least a byte for each rank and
    /// chunk.
    pub bytes: u64,
    /// When the first round begins.
    pub at: Time,
    /// How long a rank needs between what it receives and what it then sends.
    pub think: Span,
    /// In how many equal pieces the buffer is worked on, each on its own and all at the same time;
    /// 1 or more.
    pub chunks: u32,
    /// How often it is done; 1 or more.
    pub rounds: u32,
    /// How long a rank computes between the end of a round and its part in the next.
    pub compute: Span,
}

impl Collective {
    /// One round in one chunk, at time zero.
    #[must_use]
    pub const fn new(ranks: Vec<u32>, bytes: u64) -> Self {
        Self {
            ranks,
            bytes,
            at: Time::ZERO,
            think: Span::ZERO,
            chunks: 1,
            rounds: 1,
            compute: Span::ZERO,
        }
    }

    /// All-reduce on a ring: 2(N-1) steps, in each of which every rank sends an N-th to the next rank.
    pub fn ring_all_reduce(&self) -> Result<Workload, WorkloadError> {
        self.build("ring all-reduce", Algorithm::RingAllReduce)
    }

    /// Reduce-scatter on a ring: N-1 steps, in each of which every rank sends an N-th to the next rank.
    pub fn ring_reduce_scatter(&self) -> Result<Workload, WorkloadError> {
        self.build("ring reduce-scatter", Algorithm::RingHalf)
    }

    /// All-gather on a ring: N-1 steps, in each of which every rank sends an N-th to the next rank.
    /// `bytes` is the size of what is gathered.
    pub fn ring_all_gather(&self) -> Result<Workload, WorkloadError> {
        self.build("ring all-gather", Algorithm::RingHalf)
    }

    fn build(&self, job: &str, algorithm: Algorithm) -> Result<Workload, WorkloadError> {
        distinct("ranks", &self.ranks, 2)?;
        let ranks = self.ranks.len() as u32;
        within("chunks", self.chunks.into(), 1, u32::MAX.into())?;
        within("rounds", self.rounds.into(), 1, u32::MAX.into())?;
        algorithm.check(ranks)?;
        let bytes_min = u64::from(ranks) * u64::from(self.chunks);
        within("bytes", self.bytes, bytes_min, MESSAGE_BYTES_MAX)?;
        let shape = algorithm.shape(ranks);
        let (chunks, rounds) = (u128::from(self.chunks), u128::from(self.rounds));
        let per_round = chunks.saturating_mul(shape.waits);
        let between = chunks.saturating_mul(chunks).saturating_mul(shape.carried);
        let waits = per_round
            .saturating_mul(rounds)
            .saturating_add(between.saturating_mul(rounds - 1));
        let messages = shape.sends.saturating_mul(chunks).saturating_mul(rounds);
        let chunk_max = share(self.bytes, self.chunks, 0);
        let largest = algorithm.message_max(ranks, chunk_max);
        let mut plan = Plan::new(job, messages, largest, waits)?;
        self.fill(&mut plan, algorithm);
        Ok(plan.finish())
    }

    fn fill(&self, plan: &mut Plan, algorithm: Algorithm) {
        let ranks = self.ranks.len();
        // What each rank received last: it waits for that before it sends.
        let mut received: Vec<Vec<Message>> = vec![Vec::new(); ranks];
        for round in 0..self.rounds {
            let mut after_chunks: Vec<Vec<Message>> = vec![Vec::new(); ranks];
            for chunk in 0..self.chunks {
                let bytes = share(self.bytes, self.chunks, chunk);
                let mut received = received.clone();
                // Whoever has sent in this round has computed.
                let mut is_fresh = vec![round > 0; ranks];
                for step in 0..algorithm.steps(ranks as u32) {
                    let sends = algorithm.sends(step, ranks as u32, bytes);
                    self.step(plan, &sends, &mut received, &mut is_fresh);
                }
                for (all, last) in after_chunks.iter_mut().zip(received) {
                    all.extend(last);
                }
            }
            received = after_chunks;
        }
    }

    /// What ranks send waits for what they received in earlier steps.
    fn step(
        &self,
        plan: &mut Plan,
        sends: &[Step],
        received: &mut [Vec<Message>],
        is_fresh: &mut [bool],
    ) {
        let mut arriving = Vec::with_capacity(sends.len());
        for send in sends {
            let src = send.src as usize;
            let think = match received[src].is_empty() {
                true => Span::ZERO,
                false if is_fresh[src] => self.compute,
                false => self.think,
            };
            let sending = Sending {
                src: self.ranks[src],
                dst: self.ranks[send.dst as usize],
                bytes: send.bytes,
                at: self.at,
                think,
            };
            arriving.push((send.dst, plan.send(sending, &received[src])));
        }
        for send in sends {
            is_fresh[send.src as usize] = false;
            received[send.src as usize].clear();
        }
        for (dst, message) in arriving {
            received[dst as usize].push(message);
        }
    }
}

/// The size of one of so many pieces: they differ by a byte at most, the larger ones come first.
fn share(bytes: u64, pieces: u32, piece: u32) -> u64 {
    let (even, rest) = (bytes / u64::from(pieces), bytes % u64::from(pieces));
    even + u64::from(u64::from(piece) < rest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// How many bytes each host sends.
    fn sent(workload: &Workload) -> BTreeMap<u32, u64> {
        let mut sent = BTreeMap::new();
        for it in &workload.transfers {
            *sent.entry(it.src).or_default() += u64::from(it.bytes);
        }
        sent
    }

    #[test]
    fn a_ring_sends_two_n_minus_one_nths() {
        let ring = Collective::new(vec![4, 2, 9, 7], 4_000);
        let all_reduce = ring.ring_all_reduce().unwrap();
        assert_eq!(all_reduce.transfers.len(), 6 * 4);
        assert_eq!(all_reduce.edges.len(), 5 * 4);
        assert_eq!(
            sent(&all_reduce),
            [(2, 6_000), (4, 6_000), (7, 6_000), (9, 6_000)].into()
        );
        let half = ring.ring_all_gather().unwrap();
        assert_eq!(
            sent(&half),
            [(2, 3_000), (4, 3_000), (7, 3_000), (9, 3_000)].into()
        );
        // Each waits for what its sender received in the step before.
        for (before, after) in &all_reduce.edges {
            assert_eq!(before.0 / 4 + 1, after.0 / 4);
            let [before, after] = [before, after].map(|it| &all_reduce.transfers[it.0 as usize]);
            assert_eq!(before.dst, after.src);
        }
    }

    #[test]
    fn rounds_and_chunks_multiply() {
        let training = Collective {
            chunks: 3,
            rounds: 2,
            think: Span::from_nanos(5),
            compute: Span::from_micros(9),
            ..Collective::new(vec![0, 1, 2, 3], 1_000)
        };
        let workload = training.ring_all_reduce().unwrap();
        assert_eq!(workload.transfers.len(), 2 * 3 * 24);
        // The first step of each chunk waits for the last steps of all chunks.
        assert_eq!(workload.edges.len(), 2 * 3 * 20 + 3 * 3 * 4);
        assert_eq!(workload.bytes(), 2 * 2 * 3 * 1_000);
        let computing = workload
            .transfers
            .iter()
            .filter(|it| it.think == training.compute);
        assert_eq!(computing.count(), 3 * 4);
        assert_eq!(workload.transfers[0].think, Span::ZERO);
        assert_eq!(workload.transfers[4].think, training.think);
    }

    #[test]
    fn bad_parameters_are_named() {
        let error = |it: Collective| it.ring_all_reduce().unwrap_err().to_string();
        let good = Collective::new(vec![0, 1, 2], 300);
        assert_eq!(
            error(Collective {
                ranks: vec![7],
                ..good.clone()
            }),
            "invalid ranks list: must be at least 2 hosts"
        );
        assert_eq!(
            error(Collective {
                bytes: 2,
                ..good.clone()
            }),
            "invalid bytes 2: must be 3 to 1125899906842624"
        );
        assert_eq!(
            error(Collective {
                chunks: 0,
                ..good.clone()
            }),
            "invalid chunks 0: must be 1 to 4294967295"
        );
        let endless = Collective {
            rounds: u32::MAX,
            ..good.clone()
        };
        assert_eq!(
            error(endless),
            "the workload has 51539607540 transfers: must be at most 134217728; \
             use fewer hosts, chunks or rounds, or a shorter time"
        );
    }
}
