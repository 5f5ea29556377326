//! Objects by index, which is used again late: a stale handle rarely meets a new object.

use std::collections::VecDeque;

/// Freed indices that wait before the first of them is used again, in a large table.
const REST_MAX: u32 = 4096;

/// Objects by index. A freed index is used again only after many others, so that a late packet or a
/// stale handle rarely meets a new object under an old number.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Option<T>>,
    /// Freed indices, made with the first one.
    free: Option<Box<Free>>,
    max: u32,
}

/// Oldest first.
#[derive(Debug, Default)]
struct Free(VecDeque<u32>);

impl<T> Table<T> {
    /// A table for at most `max` objects at a time.
    pub(crate) fn new(max: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: None,
            max,
        }
    }

    /// Puts in the object that `make` makes for its index; `None` if the table is full.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let next = u32::try_from(self.slots.len()).ok()?;
        let resting = self.resting() as u32; // at most as many as there are indices
        let recycle = next >= self.max || resting > (self.max / 4).min(REST_MAX);
        let index = if recycle {
            self.free.as_mut()?.0.pop_front()?
        } else {
            next
        };
        let object = make(index);
        match self.slots.get_mut(index as usize) {
            Some(slot) => *slot = Some(object),
            None => self.slots.push(Some(object)),
        }
        Some(index)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let object = self.slots.get_mut(index as usize)?.take()?;
        self.free.get_or_insert_default().0.push_back(index);
        Some(object)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.resting()
    }

    /// Freed indices that wait.
    fn resting(&self) -> usize {
        self.free.as_ref().map_or(0, |free| free.0.len())
    }

    /// Indices that have ever been used: never more than objects at a time and freed ones at rest.
    pub(crate) fn indices(&self) -> usize {
        self.slots.len()
    }

    /// Checks the books of the table.
    ///
    /// # Panics
    /// If they are wrong.
    pub(crate) fn audit(&self) {
        assert!(self.slots.len() <= self.max as usize);
        let free = self.slots.iter().filter(|slot| slot.is_none()).count();
        assert_eq!(free, self.resting(), "indices without an object");
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.slots)
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
            table.slots.len() <= 2 * REST_MAX as usize,
            "{}",
            table.slots.len()
        );
        assert_eq!(table.len(), 0);
    }
}
