//! Memory of a ring in which loom sees each access.

use std::rc::Rc;

use loom::cell::UnsafeCell;

use super::layout::{DATA, DROPPED_AT, HEAD_AT, START_AT, TAIL_AT};
use super::sizes::CAPACITY;
use crate::sync::{AtomicU64, Ordering};

/// Words of the ring's packets.
const WORDS: usize = CAPACITY / 8;

/// One end's view of the memory.
#[derive(Debug)]
pub struct Memory {
    pub(super) region: Region,
}

/// In place of a mapping. All threads of a model are one to the system.
#[derive(Clone, Debug)]
pub struct Region(Rc<Words>);

#[derive(Debug, Default)]
struct Words {
    tail: AtomicU64,
    dropped: AtomicU64,
    start: AtomicU64,
    head: AtomicU64,
    packets: Vec<Word>,
}

/// A word of packets. Only headers are reached as atomics; the bytes of packets are written and read
/// plainly, and never both at a time.
#[derive(Debug, Default)]
struct Word {
    value: AtomicU64,
    plain: UnsafeCell<()>,
}

impl Memory {
    /// The memory of a new ring, for both ends.
    pub fn pair() -> [Self; 2] {
        let packets = (0..WORDS).map(|_| Word::default()).collect();
        let region = Region(Rc::new(Words {
            packets,
            ..Words::default()
        }));
        [region.clone(), region].map(|region| Self { region })
    }

    pub(super) fn tail(&self) -> &AtomicU64 {
        self.region.word(TAIL_AT)
    }

    pub(super) fn head(&self) -> &AtomicU64 {
        self.region.word(HEAD_AT)
    }

    pub(super) fn start(&self) -> &AtomicU64 {
        self.region.word(START_AT)
    }

    pub(super) fn dropped(&self) -> &AtomicU64 {
        self.region.word(DROPPED_AT)
    }
}

impl Region {
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        match offset {
            TAIL_AT => &self.0.tail,
            DROPPED_AT => &self.0.dropped,
            START_AT => &self.0.start,
            HEAD_AT => &self.0.head,
            _ => &self.0.packets[(offset - DATA) / 8].value,
        }
    }

    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        let words = &self.0.packets[(offset - DATA) / 8..];
        for (bytes, word) in out.chunks_mut(8).zip(words) {
            word.plain.with(|_| ());
            let value = word.value.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&value[..bytes.len()]);
        }
    }

    pub(super) fn write<R>(
        &mut self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut room = vec![0; len];
        let result = write(&mut room);
        let words = &self.0.packets[(offset - DATA) / 8..];
        for (bytes, word) in room.chunks(8).zip(words) {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            word.plain.with_mut(|_| ());
            word.value
                .store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        result
    }

    pub(super) fn give_back(&mut self, _offset: usize, _len: usize) {}
}
