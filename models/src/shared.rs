//! Words that processes hand each other in shared memory.

#[path = "../../crates/registry/src/shared/asleep.rs"]
mod asleep;
#[path = "../../crates/registry/src/shared/published.rs"]
mod published;

/// In place of mapped memory: a value of its own, all zero.
mod map {
    use crate::sync::AtomicU64;

    pub(super) trait Zero {
        fn zero() -> Self;
    }

    impl Zero for AtomicU64 {
        fn zero() -> Self {
            Self::default()
        }
    }

    impl<T: Zero, const N: usize> Zero for [T; N] {
        fn zero() -> Self {
            std::array::from_fn(|_| T::zero())
        }
    }

    macro_rules! shareable {
        (
            $(#[$about:meta])*
            $vis:vis struct $name:ident $(<const $n:ident: usize>)? {
                $($(#[$doc:meta])* $field:ident: $type:ty,)*
            }
        ) => {
            $(#[$about])*
            $vis struct $name $(<const $n: usize>)? {
                $($(#[$doc])* $field: $type,)*
            }

            impl $(<const $n: usize>)? $crate::shared::map::Zero for $name $(<$n>)? {
                fn zero() -> Self {
                    Self { $($field: $crate::shared::map::Zero::zero(),)* }
                }
            }
        };
    }
    pub(super) use shareable;
}

use std::sync::Arc;

use loom::sync::Mutex;

use self::asleep::Asleep;
use self::map::Zero;
use self::published::Published;
use crate::ring;
use crate::sync::{AtomicU64, Ordering, concurrently};

/// A reader sees one of the contents as a whole, with its generation, and none that is older than the
/// one before.
pub fn settings_are_read_in_one_piece() {
    let block: Arc<Published<2>> = Arc::new(Zero::zero());
    let (written, read) = (Arc::clone(&block), Arc::clone(&block));
    let writer = move || (1..=2).for_each(|n| written.store(&[n; 2]));
    let reader = move || {
        let mut last = 0;
        for _ in 0..2 {
            let (generation, words) = read.load();
            assert_eq!(words, [generation; 2]);
            assert!(generation >= last);
            last = generation;
        }
    };
    concurrently(writer, reader);
    assert_eq!(block.load(), (2, [2; 2]));
}

/// Two writers change the contents, each with the lock that all writers take: no change is lost, and a thread
/// that reads without the lock sees one of the contents as a whole.
pub fn no_writer_undoes_the_change_of_another() {
    let block: Arc<(Published<2>, Mutex<()>)> = Arc::new((Zero::zero(), Mutex::new(())));
    let writer = |by: u64| {
        let block = Arc::clone(&block);
        move || {
            let (generation, [one, other]) = block.0.load();
            assert_eq!(one, other);
            assert_eq!(generation, (one & 0xff) + (one >> 32));
            let _locked = block.1.lock().unwrap();
            let (_, words) = block.0.load();
            block.0.store(&words.map(|word| word + by));
        }
    };
    let (one, other) = (writer(1), writer(1 << 32));
    concurrently(move || (0..2).for_each(|_| one()), other);
    assert_eq!(block.0.load(), (3, [2 | 1 << 32; 2]));
}

/// A packet is put into a ring while its reader goes to sleep: the reader sees it, or is woken.
pub fn a_ring_wakes_its_reader() {
    let (mut producer, consumer) = ring::ends();
    let asleep = Arc::new(<Asleep as Zero>::zero());
    let seen = Arc::clone(&asleep);
    let writer = move || {
        assert!(ring::push(&mut producer, 0, 8));
        producer.publish();
        seen.is_to_be_woken()
    };
    let reader = move || {
        asleep.set();
        consumer.has_some()
    };
    let (wakes, sees) = concurrently(writer, reader);
    assert!(sees || wakes, "it sleeps, and a packet is there");
}

/// A reader of rings goes to sleep while a writer writes: it sees what is there, or is woken.
pub fn a_sleeping_reader_is_woken() {
    let shared = Arc::new((<Asleep as Zero>::zero(), AtomicU64::zero()));
    let (written, read) = (Arc::clone(&shared), shared);
    let writer = move || {
        written.1.store(1, Ordering::Release);
        written.0.is_to_be_woken()
    };
    let reader = move || {
        read.0.set();
        let sees = read.1.load(Ordering::Acquire) == 1;
        if sees {
            read.0.clear();
        }
        sees
    };
    let (wakes, sees) = concurrently(writer, reader);
    assert!(sees || wakes, "it sleeps, and something is there");
}

/// Of two writers one wakes the reader.
pub fn one_writer_wakes_the_reader() {
    let asleep = Arc::new(<Asleep as Zero>::zero());
    asleep.set();
    let (one, other) = (Arc::clone(&asleep), asleep);
    let (one, other) = concurrently(move || one.is_to_be_woken(), move || other.is_to_be_woken());
    assert_ne!(one, other);
}
