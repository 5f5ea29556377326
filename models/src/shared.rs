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

use loom::thread;

use self::asleep::Asleep;
use self::map::Zero;
use self::published::Published;
use crate::sync::{AtomicU64, Ordering};

/// A reader sees one of the contents as a whole, with its generation, and none that is older than the
/// one before.
pub fn settings_are_read_in_one_piece() {
    let block: Arc<Published<2>> = Arc::new(Zero::zero());
    let writer = {
        let block = Arc::clone(&block);
        thread::spawn(move || (1..=3).for_each(|n| block.store(&[n; 2])))
    };
    let mut last = 0;
    for _ in 0..2 {
        let (generation, words) = block.load();
        assert_eq!(words, [generation; 2]);
        assert!(generation >= last);
        last = generation;
    }
    writer.join().unwrap();
    assert_eq!(block.load(), (3, [3; 2]));
}

/// A reader of rings goes to sleep while a writer writes: it sees what is there, or is woken.
pub fn a_sleeping_reader_is_woken() {
    let shared = Arc::new((<Asleep as Zero>::zero(), AtomicU64::zero()));
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            shared.1.store(1, Ordering::Release);
            shared.0.is_to_be_woken()
        })
    };
    shared.0.set();
    let sees = shared.1.load(Ordering::Acquire) == 1;
    if sees {
        shared.0.clear();
    }
    let wakes = writer.join().unwrap();
    assert!(sees || wakes, "it sleeps, and something is there");
}

/// Of two writers one wakes the reader.
pub fn one_writer_wakes_the_reader() {
    let asleep = Arc::new(<Asleep as Zero>::zero());
    asleep.set();
    let other = {
        let asleep = Arc::clone(&asleep);
        thread::spawn(move || asleep.is_to_be_woken())
    };
    let wakes = [asleep.is_to_be_woken(), other.join().unwrap()];
    assert_eq!(wakes.into_iter().filter(|wakes| *wakes).count(), 1);
}
