//! Objects that programs hold pointers to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Code, Refusal};

/// The live objects of one kind.
///
/// The pointers are numbers that lead nowhere and are never given out twice: a program that uses an
/// object after its end, or something else in its place, gets an error.
#[derive(Debug)]
pub struct Handles<T> {
    kind: &'static str,
    live: Mutex<Live<T>>,
}

#[derive(Debug)]
struct Live<T> {
    given_out: usize,
    objects: BTreeMap<usize, Arc<T>>,
}

impl<T> Handles<T> {
    /// No objects yet; `kind` is their name in refusals, for example `adp_retx`.
    #[must_use]
    pub const fn new(kind: &'static str) -> Self {
        let live = Live {
            given_out: 0,
            objects: BTreeMap::new(),
        };
        Self {
            kind,
            live: Mutex::new(live),
        }
    }

    fn live(&self) -> MutexGuard<'_, Live<T>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an object and gives out its pointer.
    pub fn insert(&self, object: T) -> usize {
        self.insert_shared(Arc::new(object))
    }

    /// The same for one that something else holds, too.
    pub fn insert_shared(&self, object: Arc<T>) -> usize {
        let mut live = self.live();
        live.given_out += 1;
        // Aligned, as what a program takes for a pointer should be.
        let pointer = live.given_out << 4;
        live.objects.insert(pointer, object);
        pointer
    }

    /// The object of a pointer.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`]: null, or no live object.
    pub fn get(&self, pointer: usize) -> Result<Arc<T>, Refusal> {
        let found = self.live().objects.get(&pointer).cloned();
        found.ok_or_else(|| self.unknown(pointer))
    }

    /// Ends an object unless `may_end` refuses; no other thread ends it meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `may_end`, and [`Code::InvalidValue`]: null, or no live object.
    pub fn remove(
        &self,
        pointer: usize,
        may_end: impl FnOnce(&T) -> Result<(), Refusal>,
    ) -> Result<Arc<T>, Refusal> {
        let mut live = self.live();
        let object = live.objects.get(&pointer).cloned();
        let object = object.ok_or_else(|| self.unknown(pointer))?;
        may_end(&object)?;
        live.objects.remove(&pointer);
        Ok(object)
    }

    /// Ends all objects.
    pub fn clear(&self) {
        self.live().objects.clear();
    }

    fn unknown(&self, pointer: usize) -> Refusal {
        if pointer == 0 {
            return Refusal::null(self.kind);
        }
        let what = format_args!("{} is not an object, or was destroyed", self.kind).to_string();
        Refusal::new(Code::InvalidValue, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_means_one_object_and_after_its_end_none() {
        let handles = Handles::new("thing");
        let first = handles.insert(1);
        assert_eq!(*handles.get(first).unwrap(), 1);
        let busy = |_: &i32| Err(Refusal::state("it runs", "stop it"));
        assert_eq!(
            handles.remove(first, busy).unwrap_err().code(),
            Code::BadState
        );
        assert_eq!(*handles.remove(first, |_| Ok(())).unwrap(), 1);
        let second = handles.insert(2);
        assert_ne!(first, second);
        for gone in [0, first, second + 1] {
            assert_eq!(handles.get(gone).unwrap_err().code(), Code::InvalidValue);
        }
        assert!(
            handles
                .get(0)
                .unwrap_err()
                .to_string()
                .contains("thing is a null")
        );
    }
}
