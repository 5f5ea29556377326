//! Collective operations: all-reduce and related ones.

mod algorithm;

use std::ops::Range;

use ferroce_base::time::{Span, Time};

pub(super) use self::algorithm::Algorithm;
use self::algorithm::Step;
use super::plan::{MESSAGE_BYTES_MAX, Message, Plan, Sending, distinct, share, within};
use super::{Workload, WorkloadError};

/// A collective operation of some hosts on a number of bytes each, once or repeatedly.
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

    /// All-reduce by recursive halving and doubling, 2 log2 N steps; N is a power of two. Ranks exchange
    /// half of the buffer, then a quarter, and so on, and then all of it back.
    pub fn halving_doubling_all_reduce(&self) -> Result<Workload, WorkloadError> {
        self.build("halving-doubling all-reduce", Algorithm::HalvingDoubling)
    }

    /// All-reduce on a binary tree, up and then down; the children of rank r are 2r + 1 and 2r + 2. With
    /// several chunks all levels work at the same time.
    pub fn tree_all_reduce(&self) -> Result<Workload, WorkloadError> {
        self.build("tree all-reduce", Algorithm::Tree)
    }

    /// Every rank sends an N-th to each of the others, all at once.
    pub fn all_to_all(&self) -> Result<Workload, WorkloadError> {
        self.build("all-to-all", Algorithm::AllToAll)
    }

    /// Every rank sends an N-th to each of the others, one after the other: in step s to the rank that is
    /// s further, when what it was sent in the step before has arrived.
    pub fn all_to_all_in_shifts(&self) -> Result<Workload, WorkloadError> {
        self.build("all-to-all in shifts", Algorithm::Shifts)
    }

    /// Every rank, a worker, sends the buffer to servers, an equal part to each; what a server got from
    /// all workers it sends back to all of them.
    pub fn parameter_server(&self, servers: &[u32]) -> Result<Workload, WorkloadError> {
        distinct("servers", servers, 1)?;
        distinct("ranks", &self.ranks, 1)?;
        let all = Self {
            ranks: [servers, &self.ranks].concat(),
            ..self.clone()
        };
        let servers = servers.len() as u32;
        all.build("parameter server", Algorithm::ParameterServer { servers })
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
        let messages = shape.sends * chunks * rounds;
        let between = chunks.saturating_mul(chunks).saturating_mul(shape.carried);
        let waits = (chunks * shape.waits)
            .saturating_mul(rounds)
            .saturating_add(between.saturating_mul(rounds - 1));
        let chunk_max = share(self.bytes, self.chunks, 0);
        let largest = algorithm.message_max(ranks, chunk_max);
        let mut plan = Plan::new(job, messages, largest, waits)?;
        self.fill(&mut plan, algorithm)?;
        Ok(plan.finish())
    }

    fn fill(&self, plan: &mut Plan, algorithm: Algorithm) -> Result<(), WorkloadError> {
        let ranks = self.ranks.len();
        let steps = 0..algorithm.steps(ranks as u32);
        // What each rank has received and not yet answered: it waits for that before it sends.
        let mut received: Vec<Vec<Message>> = vec![Vec::new(); ranks];
        for _ in 0..self.rounds {
            let mut after_chunks: Vec<Vec<Message>> = vec![Vec::new(); ranks];
            for chunk in 0..self.chunks {
                let bytes = share(self.bytes, self.chunks, chunk);
                let mut state = State {
                    started: vec![None; ranks],
                    computes: received.iter().map(|it| !it.is_empty()).collect(),
                    received: received.clone(),
                    answered: vec![Vec::new(); ranks],
                };
                self.run(plan, algorithm, steps.clone(), bytes, &mut state)?;
                for (all, last) in after_chunks.iter_mut().zip(state.received) {
                    all.extend(last);
                }
            }
            received = after_chunks;
        }
        Ok(())
    }

    /// Some steps with this many bytes.
    pub(super) fn run(
        &self,
        plan: &mut Plan,
        algorithm: Algorithm,
        steps: Range<u32>,
        bytes: u64,
        state: &mut State,
    ) -> Result<(), WorkloadError> {
        for step in steps {
            let sends = algorithm.sends(step, self.ranks.len() as u32, bytes);
            self.step(plan, &sends, state)?;
        }
        Ok(())
    }

    /// What ranks send waits for what they received in earlier steps.
    fn step(
        &self,
        plan: &mut Plan,
        sends: &[Step],
        state: &mut State,
    ) -> Result<(), WorkloadError> {
        let mut arriving = Vec::with_capacity(sends.len());
        for send in sends {
            let src = send.src as usize;
            let received = &state.received[src];
            let think = match received.is_empty() {
                true => Span::ZERO,
                false if state.computes[src] => self.compute,
                false => self.think,
            };
            let sending = Sending {
                src: self.ranks[src],
                dst: self.ranks[send.dst as usize],
                bytes: send.bytes,
                at: self.at,
                think,
            };
            let message = match state.started[src] {
                None => plan.add(sending, received)?,
                Some(started) => plan.add(sending, &[&[started], &received[..]].concat())?,
            };
            arriving.push((send.dst, message));
        }
        for send in sends {
            let src = send.src as usize;
            state.computes[src] = false;
            if !state.received[src].is_empty() {
                state.answered[src] = std::mem::take(&mut state.received[src]);
            }
        }
        for (dst, message) in arriving {
            state.received[dst as usize].push(message);
        }
        Ok(())
    }
}

/// Where the ranks are in a chunk of a round.
pub(super) struct State {
    /// What each waits for whenever it sends.
    started: Vec<Option<Message>>,
    /// What each has received and not yet answered.
    received: Vec<Vec<Message>>,
    /// What each had received when it last sent something on.
    answered: Vec<Vec<Message>>,
    /// Whether what each sends next is the first thing it computes from the round before.
    computes: Vec<bool>,
}

impl State {
    /// Ranks that begin at different times.
    pub(super) fn after(started: Vec<Option<Message>>) -> Self {
        let ranks = started.len();
        Self {
            started,
            received: vec![Vec::new(); ranks],
            answered: vec![Vec::new(); ranks],
            computes: vec![false; ranks],
        }
    }

    /// What a rank waits for until it has all that it gets.
    pub(super) fn end(&self, rank: usize) -> Vec<Message> {
        let last = match self.received[rank].is_empty() {
            true => &self.answered[rank],
            false => &self.received[rank],
        };
        self.started[rank].iter().chain(last).copied().collect()
    }
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
            "invalid ranks list of 1: must be 2 to 65536 hosts"
        );
        assert_eq!(
            error(Collective {
                bytes: 2,
                ..good.clone()
            }),
            "invalid bytes 2: must be 3 to 68719476736"
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

    #[test]
    fn others_send_what_theory_says() {
        let ranks: Vec<u32> = (0..8).collect();
        let it = Collective::new(ranks.clone(), 8_000);
        let each = |bytes| {
            ranks
                .iter()
                .map(|rank| (*rank, bytes))
                .collect::<BTreeMap<_, _>>()
        };

        let halving = it.halving_doubling_all_reduce().unwrap();
        assert_eq!(halving.transfers.len(), 8 * 6);
        assert_eq!(sent(&halving), each(2 * 7_000));
        let sizes: Vec<_> = halving
            .transfers
            .iter()
            .step_by(8)
            .map(|it| it.bytes)
            .collect();
        assert_eq!(sizes, [4_000, 2_000, 1_000, 1_000, 2_000, 4_000]);
        let partners: Vec<_> = halving
            .transfers
            .iter()
            .step_by(8)
            .map(|it| it.dst)
            .collect();
        assert_eq!(partners, [4, 2, 1, 1, 2, 4]);

        assert_eq!(sent(&it.all_to_all().unwrap()), each(7_000));
        assert!(it.all_to_all().unwrap().edges.is_empty());
        let shifts = it.all_to_all_in_shifts().unwrap();
        assert_eq!(sent(&shifts), each(7_000));
        assert_eq!(shifts.edges.len(), 6 * 8);

        let tree = it.tree_all_reduce().unwrap();
        assert_eq!(tree.transfers.len(), 2 * 7);
        let ends: Vec<_> = tree.transfers.iter().map(|it| (it.src, it.dst)).collect();
        assert_eq!(
            ends[..7],
            [(7, 3), (3, 1), (4, 1), (5, 2), (6, 2), (1, 0), (2, 0)]
        );
        assert_eq!(
            ends[7..],
            [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6), (3, 7)]
        );

        let server = it.parameter_server(&[100, 101]).unwrap();
        assert_eq!(server.transfers.len(), 2 * 2 * 8);
        assert_eq!(server.edges.len(), 2 * 8 * 8);
        let mut expected = each(8_000);
        expected.extend([(100, 32_000), (101, 32_000)]);
        assert_eq!(sent(&server), expected);

        let error = Collective::new(vec![0, 1, 2], 9).halving_doubling_all_reduce();
        assert_eq!(
            error.unwrap_err().to_string(),
            "invalid number of ranks 3: must be a power of two for halving-doubling, for example 4"
        );
        let error = it.parameter_server(&[100, 7]).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid ranks: host 7 is listed twice; list each host once"
        );
    }

    #[test]
    fn reserved_room_suffices() {
        for ranks in [2, 3, 4, 7, 8, 16] {
            for (chunks, rounds) in [(1, 1), (2, 3), (3, 2)] {
                let it = Collective {
                    chunks,
                    rounds,
                    ..Collective::new((0..ranks).collect(), 1_000)
                };
                let mut all = vec![
                    (Algorithm::RingAllReduce, it.ring_all_reduce()),
                    (Algorithm::RingHalf, it.ring_all_gather()),
                    (Algorithm::Tree, it.tree_all_reduce()),
                    (Algorithm::AllToAll, it.all_to_all()),
                    (Algorithm::Shifts, it.all_to_all_in_shifts()),
                ];
                if ranks.is_power_of_two() {
                    all.push((Algorithm::HalvingDoubling, it.halving_doubling_all_reduce()));
                }
                for (algorithm, workload) in all {
                    let workload = workload.unwrap();
                    let shape = algorithm.shape(ranks);
                    let (chunks, rounds) = (u128::from(chunks), u128::from(rounds));
                    let edges = chunks * rounds * shape.waits
                        + (rounds - 1) * chunks * chunks * shape.carried;
                    assert_eq!(
                        workload.transfers.len() as u128,
                        shape.sends * chunks * rounds
                    );
                    assert!(
                        workload.edges.len() as u128 <= edges,
                        "{algorithm:?} of {ranks}"
                    );
                }
            }
        }
    }
}
