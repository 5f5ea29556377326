//! Words in shared memory that are replaced as a whole.

use super::map::shareable;
use crate::sync::{AtomicU64, Ordering, fence};

shareable! {
    /// Words that one writer at a time replaces as a whole and any process reads as a whole.
    ///
    /// Two copies; the lowest bit of the generation says which one counts. A writer fills the other copy
    /// and then raises the generation, so a writer that is killed half-way has changed nothing, and no
    /// reader ever waits for one. All zero is a valid content, as a new file has it. The generation never
    /// wraps: a reader that has missed any number of writes sees that there were some.
    #[derive(Debug)]
    pub(crate) struct Published<const N: usize> {
        generation: AtomicU64,
        copies: [[AtomicU64; N]; 2],
    }
}

impl<const N: usize> Published<N> {
    /// [`Self::generation`], for code that looks at it often.
    pub(crate) fn generation_cell(&self) -> &AtomicU64 {
        &self.generation
    }

    /// Differs from an earlier value if there was a write in between.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The content and its generation.
    pub(crate) fn load(&self) -> (u64, [u64; N]) {
        loop {
            let generation = self.generation();
            let copy = &self.copies[(generation & 1) as usize];
            let words = copy.each_ref().map(|word| word.load(Ordering::Relaxed));
            // This copy is written again only after the generation has moved on. If one of the
            // loads saw such a write, the fences make the next line see the generation, too.
            fence(Ordering::Acquire);
            if self.generation.load(Ordering::Relaxed) == generation {
                return (generation, words);
            }
        }
    }

    /// Replaces the content. The caller sees to it that no other thread or process is here.
    pub(crate) fn store(&self, words: &[u64; N]) {
        let next = self.generation().wrapping_add(1);
        fence(Ordering::Release);
        let copy = &self.copies[(next & 1) as usize];
        for (cell, word) in copy.iter().zip(words) {
            cell.store(*word, Ordering::Relaxed);
        }
        self.generation.store(next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::*;

    impl<const N: usize> Published<N> {
        fn new() -> Self {
            Self {
                generation: AtomicU64::default(),
                copies: [(); 2].map(|()| array::from_fn(|_| AtomicU64::default())),
            }
        }
    }

    #[test]
    fn readers_never_see_half_a_write() {
        let block = Published::<64>::new();
        let last = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=last).for_each(|n| block.store(&[n; 64])));
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < last {
                        let (generation, words) = block.load();
                        assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                        assert_eq!(words[0], generation);
                        assert!(words[0] >= seen, "{} after {seen}", words[0]);
                        seen = words[0];
                    }
                });
            }
        });
    }

    /// A device that has looked at the settings 2^32 writes ago.
    #[test]
    fn the_generation_does_not_come_round_with_a_word() {
        let block = Published::<1>::new();
        block.store(&[1]);
        let (seen, _) = block.load();
        block
            .generation
            .store(u64::from(u32::MAX) + seen, Ordering::Relaxed);
        block.store(&[2]);
        assert_ne!(block.generation(), seen);
        assert_eq!(block.load(), (seen + (1 << 32), [2]));
    }

    #[test]
    fn a_writer_that_dies_half_way_has_changed_nothing() {
        let block = Published::<4>::new();
        block.store(&[1; 4]);
        block.copies[0][2].store(9, Ordering::Relaxed);
        assert_eq!(block.load(), (1, [1; 4]));
        block.store(&[2; 4]);
        assert_eq!(block.load(), (2, [2; 4]));
    }
}
