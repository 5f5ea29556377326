//! The messages of a run and their contents. Both depend only on the seed.

use ferroce_base::random::mix;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bytes of the largest message: four packets of the largest path MTU.
pub(crate) const MESSAGE_MAX: u32 = 16 << 10;

/// Where in the pattern a message's bytes can begin.
const PATTERN_STARTS: u64 = 1 << 20;

/// The three operations, which take turns in random order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Write,
    Send,
    Read,
}

/// A message of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// Counts the messages of all queue pairs; the seed and it decide the bytes.
    pub(crate) number: u64,
    pub(crate) op: Op,
    pub(crate) len: u32,
}

/// The messages of one queue pair, in order.
#[derive(Clone, Debug)]
pub(crate) struct Messages {
    rng: Xoshiro256PlusPlus,
    bytes_left: u64,
    /// Operations of the present turn, last one first.
    turn: Vec<Op>,
    next_number: u64,
    number_step: u64,
}

impl Messages {
    /// The messages of queue pair `index` of `count`, which share `bytes` evenly.
    pub(crate) fn new(seed: u64, bytes: u64, index: usize, count: usize) -> Self {
        let (index, count) = (index as u64, count as u64);
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(mix(seed, index)),
            bytes_left: bytes / count + u64::from(index < bytes % count),
            turn: Vec::new(),
            next_number: index,
            number_step: count,
        }
    }

    /// Whether none is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes_left == 0
    }

    fn next_op(&mut self) -> Op {
        if self.turn.is_empty() {
            self.turn.extend([Op::Write, Op::Send, Op::Read]);
            self.turn.shuffle(&mut self.rng);
        }
        self.turn.pop().unwrap_or(Op::Write)
    }
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.bytes_left == 0 {
            return None;
        }
        let len = self.rng.random_range(1..=MESSAGE_MAX);
        // At most `len`.
        let len = self.bytes_left.min(len.into()) as u32;
        self.bytes_left -= u64::from(len);
        let number = self.next_number;
        self.next_number += self.number_step;
        let op = self.next_op();
        Some(Message { number, op, len })
    }
}

/// The bytes of all messages: each is another piece of one long random text.
#[derive(Debug)]
pub(crate) struct Pattern {
    seed: u64,
    text: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        let mut text = vec![0; PATTERN_STARTS as usize + MESSAGE_MAX as usize];
        Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut text);
        Self { seed, text }
    }

    /// What is in a message.
    pub(crate) fn of(&self, message: &Message) -> &[u8] {
        let start = mix(self.seed, message.number) % PATTERN_STARTS;
        &self.text[start as usize..][..message.len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(seed: u64, bytes: u64) -> Vec<Message> {
        (0..8)
            .flat_map(|index| Messages::new(seed, bytes, index, 8))
            .collect()
    }

    #[test]
    fn the_messages_add_up_and_the_operations_share_evenly() {
        for bytes in [1, 7, 1_000_003, 64 << 20] {
            let messages = all(1, bytes);
            let sum: u64 = messages.iter().map(|m| u64::from(m.len)).sum();
            assert_eq!(sum, bytes);
            assert!(messages.iter().all(|m| (1..=MESSAGE_MAX).contains(&m.len)));
            for op in [Op::Write, Op::Send, Op::Read] {
                let share = messages.iter().filter(|m| m.op == op).count();
                assert!(share.abs_diff(messages.len() / 3) <= 8);
            }
            let mut numbers: Vec<u64> = messages.iter().map(|m| m.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), messages.len());
        }
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(all(5, 1 << 20), all(5, 1 << 20));
        assert_ne!(all(5, 1 << 20), all(6, 1 << 20));
        let message = all(5, 1 << 20)[3];
        assert_eq!(Pattern::new(5).of(&message), Pattern::new(5).of(&message));
        assert_ne!(Pattern::new(5).of(&message), Pattern::new(6).of(&message));
    }
}
