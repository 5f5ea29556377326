//! Loom's atomics in place of the product's, with orders that can be weakened, and its threads.

use std::fmt;
use std::sync::atomic;

use loom::thread;

pub use std::sync::atomic::Ordering;

/// What is weakened: an index into [`Weakness::ALL`], or beyond it nothing.
static WEAKENED: atomic::AtomicUsize = atomic::AtomicUsize::new(usize::MAX);

/// A kind of order that is left out, to show that a model notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weakness {
    /// Loads that acquire.
    Acquire,
    /// Stores that release.
    Release,
    /// Fences that acquire.
    AcquireFence,
    /// Fences that release.
    ReleaseFence,
    /// Sequentially consistent fences.
    Fence,
}

impl Weakness {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Acquire,
        Self::Release,
        Self::AcquireFence,
        Self::ReleaseFence,
        Self::Fence,
    ];

    /// Leaves this kind of order out from now on.
    pub fn apply(self) {
        let index = Self::ALL.iter().position(|it| *it == self);
        WEAKENED.store(index.unwrap(), Ordering::Relaxed);
    }

    fn is_applied(self) -> bool {
        Self::ALL.get(WEAKENED.load(Ordering::Relaxed)) == Some(&self)
    }
}

/// Whether the second of two threads begins in what loom explores first.
static SWAPPED: atomic::AtomicBool = atomic::AtomicBool::new(false);

/// Explores a model with both orders in which [`concurrently`] can begin.
///
/// Loom looks at each access again whose place could be before one that another thread has made, but
/// remembers only the last one to each atomic. It does not see that a store may come before a load by another
/// thread if the storing thread loads in between. If that thread begins, it does.
pub fn explore(model: fn()) {
    for swapped in [false, true] {
        SWAPPED.store(swapped, Ordering::Relaxed);
        loom::model(model);
    }
}

/// Runs both at the same time, each in a thread of its own.
pub fn concurrently<A: 'static, B: 'static>(
    one: impl FnOnce() -> A + 'static,
    other: impl FnOnce() -> B + 'static,
) -> (A, B) {
    let (one, other) = match SWAPPED.load(Ordering::Relaxed) {
        false => {
            let one = thread::spawn(one);
            (one, thread::spawn(other))
        }
        true => {
            let other = thread::spawn(other);
            (thread::spawn(one), other)
        }
    };
    (one.join().unwrap(), other.join().unwrap())
}

/// The order, unless it is the one that is left out.
fn order(order: Ordering) -> Ordering {
    let weakness = match order {
        Ordering::Acquire => Weakness::Acquire,
        Ordering::Release => Weakness::Release,
        Ordering::Relaxed => return order,
        _ => panic!("loom does not model accesses in the order {order:?}; use a fence"),
    };
    match weakness.is_applied() {
        true => Ordering::Relaxed,
        false => order,
    }
}

/// A fence, unless it is of the kind that is left out.
pub fn fence(order: Ordering) {
    let weakness = match order {
        Ordering::Acquire => Weakness::AcquireFence,
        Ordering::Release => Weakness::ReleaseFence,
        _ => Weakness::Fence,
    };
    if !weakness.is_applied() {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// Loom's, with the operations that the product uses.
        #[derive(Default)]
        pub struct $name(loom::sync::atomic::$name);

        #[allow(dead_code, reason = "not all types need all operations")]
        impl $name {
            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(self::order(order))
            }

            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, self::order(order));
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, self::order(order))
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let orders = (self::order(success), self::order(failure));
                self.0.compare_exchange(current, new, orders.0, orders.1)
            }
        }

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self(value.into())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU64, u64);

impl AtomicU64 {
    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, self::order(order))
    }
}
