//! A list that can be read without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A list that only grows, for the life of the process. No reader ever waits for it: it can be read by
/// a child of `fork`, whatever the parent's threads were doing.
#[derive(Debug)]
pub struct List<T: Send + Sync + 'static> {
    head: AtomicPtr<Node<T>>,
}

struct Node<T> {
    value: T,
    next: *mut Self,
}

impl<T: Send + Sync + 'static> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> List<T> {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Adds a value that stays for the life of the process.
    pub fn push(&self, value: T) -> &'static T {
        let node = Box::into_raw(Box::new(Node {
            value,
            next: self.head.load(Ordering::Relaxed),
        }));
        loop {
            // SAFETY: the node is this function's alone until the exchange below succeeds.
            let next = unsafe { (*node).next };
            let published =
                self.head
                    .compare_exchange(next, node, Ordering::Release, Ordering::Relaxed);
            match published {
                // SAFETY: a node in the list is neither changed nor freed any more.
                Ok(_) => return unsafe { &(*node).value },
                // SAFETY: as above.
                Err(head) => unsafe { (*node).next = head },
            }
        }
    }

    /// The values, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static T> {
        let mut next = self.head.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a node of the list, which is neither changed nor freed any more; what
            // it points to was published before it.
            let node: &'static Node<T> = unsafe { next.as_ref() }?;
            next = node.next.cast_const();
            Some(&node.value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;

    #[test]
    fn everything_that_was_put_in_is_there() {
        static LIST: List<usize> = List::new();
        thread::scope(|scope| {
            for first in [0, 1000, 2000, 3000] {
                scope.spawn(move || {
                    for value in first..first + 1000 {
                        assert_eq!(*LIST.push(value), value);
                    }
                });
            }
            scope.spawn(|| {
                while LIST.iter().count() < 4000 {
                    thread::yield_now();
                }
            });
        });
        let seen: BTreeSet<_> = LIST.iter().copied().collect();
        assert_eq!((seen.len(), LIST.iter().count()), (4000, 4000));
        assert!(seen.into_iter().eq(0..4000));
    }
}
