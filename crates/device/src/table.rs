//! Objects by index. Indexes are reused late, so that a stale handle rarely refers to a new object.

use std::collections::VecDeque;

/// The number of freed indices, in a large table, before the first of them is used again.
const REST_MAX: u32 = 4096;

/// Objects by index. A freed index is used again only after many others, so that a late packet or a
/// stale handle rarely meets a new object under an old number.
///
/// The first object is stored in the table itself: most devices of a simulation have one of each
/// kind, and none of them is in the processor's caches when it is the device's turn.
#[derive(Debug)]
pub(crate) struct Table<T> {
    first: Option<T>,
    /// Those from index 1 on.
    others: Vec<Option<T>>,
    /// How many indices have ever been used.
    indices: u32,
    max: u32,
    /// Freed indices, made with the first one.
    free: Option<Box<Free>>,
}

/// Oldest first.
#[derive(Debug, Default)]
struct Free(VecDeque<u32>);

impl<T> Table<T> {
    /// A table for at most `max` objects at a time.
    pub(crate) fn new(max: u32) -> Self {
        Self {
            first: None,
            others: Vec::new(),
            indices: 0,
            max,
            free: None,
        }
    }

    /// Puts in the object that `make` makes for its index; `None` if the table is full.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let resting = self.resting() as u32; // at most as many as there are indices
        let recycle = self.indices >= self.max || resting > (self.max / 4).min(REST_MAX);
        let index = if recycle {
            self.free.as_mut()?.0.pop_front()?
        } else {
            self.indices
        };
        let object = make(index);
        match self.slot_mut(index) {
            Some(slot) => *slot = Some(object),
            None => self.others.push(Some(object)),
        }
        self.indices = self.indices.max(index + 1);
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let object = self.slot_mut(index)?.take()?;
        self.free.get_or_insert_default().0.push_back(index);
        Some(object)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        match index.checked_sub(1) {
            None => self.first.as_ref(),
            Some(other) => self.others.get(other as usize)?.as_ref(),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.as_mut()
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Option<T>> {
        match index.checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.get_mut(other as usize),
        }
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.indices() - self.resting()
    }

    /// Freed indices that wait.
    fn resting(&self) -> usize {
        self.free.as_ref().map_or(0, |free| free.0.len())
    }

    /// Indices that have ever been used: never more than objects at a time and freed ones at rest.
    pub(crate) fn indices(&self) -> usize {
        self.indices as usize
    }

    /// Checks the books of the table.
    ///
    /// # Panics
    /// Panics if they are wrong.
    pub(crate) fn audit(&self) {
        assert!(self.indices <= self.max);
        assert!(self.others.len() <= self.indices());
        assert_eq!(self.iter().count(), self.len(), "indices without an object");
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first
            .iter_mut()
            .chain(self.others.iter_mut().flatten())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(std::iter::once(&self.first).chain(&self.others))
            .filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_reused_late_and_the_limit_holds() {
        let mut table = Table::new(4);
        let a = table.insert_with(|i| i).unwrap();
        table.remove(a).unwrap();
        assert_ne!(table.insert_with(|i| i), Some(a), "not at once");
        let mut more = 0;
        while table.insert_with(|i| i).is_some() {
            more += 1;
        }
        assert_eq!(more, 3, "four at a time");
        assert!(
            table.get(a).is_some(),
            "in the end the freed index serves again"
        );
        assert_eq!(table.len(), 4);
        assert_eq!(table.remove(9), None);
    }

    #[test]
    fn objects_that_come_and_go_do_not_use_up_memory() {
        let mut table = Table::new(1 << 23);
        let mut before = None;
        for _ in 0..100_000 {
            let index = table.insert_with(|i| i).unwrap();
            assert_ne!(before, Some(index));
            before = Some(index);
            table.remove(index).unwrap();
        }
        assert!(
            table.indices() <= 2 * REST_MAX as usize,
            "{}",
            table.indices()
        );
        assert_eq!(table.len(), 0);
    }
}
