//! Objects that programs hold pointers to.
//!
//! A pointer from a program is only followed after it was found among the live objects of its kind,
//! or, on the data path, after its mark was read. The mark is read from memory that may belong to a
//! destroyed object, so that memory is kept for the next object of the kind and never freed.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::gate::{self, Pass};

/// An object: what the header shows of it, and behind that what is the library's own.
#[derive(Debug)]
#[repr(C)]
pub struct Object<A, T> {
    abi: UnsafeCell<A>,
    /// [`Arena::mark`] while the object lives.
    mark: AtomicUsize,
    own: UnsafeCell<MaybeUninit<T>>,
}

impl<A, T> Object<A, T> {
    /// The part that the header shows, and the program may write to.
    pub fn abi(&self) -> *mut A {
        self.abi.get()
    }

    /// The library's own part.
    pub fn own(&self) -> &T {
        // SAFETY: references to objects come from `Arena::get` and `Arena::find` only, while the
        // object lives and `own` is initialised. A program that destroys an object while another of
        // its threads is in a call on it breaks the contract of the verbs.
        unsafe { (*self.own.get()).assume_init_ref() }
    }
}

/// All objects of a kind.
#[derive(Debug)]
pub struct Arena<A: 'static, T: 'static> {
    name: &'static str,
    state: Mutex<State>,
    _kind: std::marker::PhantomData<fn() -> (A, T)>,
}

/// Dropped in this order.
struct Locked<'a> {
    state: MutexGuard<'a, State>,
    _pass: Pass,
}

#[derive(Debug)]
struct State {
    /// Addresses of live objects.
    live: BTreeSet<usize>,
    /// Addresses of memory that was one.
    free: Vec<usize>,
}

impl<A, T: Send + Sync> Arena<A, T> {
    /// No objects of a kind, which is called `name` in messages.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            state: Mutex::new(State {
                live: BTreeSet::new(),
                free: Vec::new(),
            }),
            _kind: std::marker::PhantomData,
        }
    }

    /// Makes an object; the program gets the pointer.
    pub fn insert(&self, abi: A, own: T) -> *mut A {
        let mut locked = self.state();
        let state = &mut locked.state;
        let address = state.free.pop().unwrap_or_else(|| {
            let memory: Box<MaybeUninit<Object<A, T>>> = Box::new_uninit();
            Box::into_raw(memory) as usize
        });
        let object = address as *mut Object<A, T>;
        // SAFETY: the memory has the object's size and alignment and no other code uses it: it is
        // fresh, or was given back by `remove`.
        unsafe {
            object.write(Object {
                abi: UnsafeCell::new(abi),
                mark: AtomicUsize::new(self.mark(address)),
                own: UnsafeCell::new(MaybeUninit::new(own)),
            });
        }
        state.live.insert(address);
        object.cast()
    }

    /// The object behind a pointer from the program, if it is one of this kind.
    pub fn find(&self, pointer: *const A) -> Result<&'static Object<A, T>, Error> {
        if !self.state().state.live.contains(&(pointer as usize)) {
            return Err(Error::Handle(self.name));
        }
        // SAFETY: `live` holds addresses of initialised objects, whose memory is never freed.
        Ok(unsafe { &*pointer.cast() })
    }

    /// [`Self::find`] for the data path: the pointer is or was an object of this kind, or null.
    #[inline]
    pub fn get(&self, pointer: *const A) -> Result<&'static Object<A, T>, Error> {
        let address = pointer as usize;
        if address == 0 || !address.is_multiple_of(align_of::<Object<A, T>>()) {
            return Err(Error::Handle(self.name));
        }
        let object: *const Object<A, T> = pointer.cast();
        // SAFETY: the program got here through the operations of a live context or object, with a
        // pointer that this arena handed out; its memory is never freed.
        let mark = unsafe { &(*object).mark };
        if mark.load(Ordering::Acquire) != self.mark(address) {
            return Err(Error::Handle(self.name));
        }
        // SAFETY: the mark is there only while the object lives.
        Ok(unsafe { &*object })
    }

    /// Ends an object and returns the library's part of it. `None` if another thread was faster.
    pub fn remove(&self, pointer: *const A) -> Option<T> {
        let mut locked = self.state();
        let state = &mut locked.state;
        let address = pointer as usize;
        if !state.live.remove(&address) {
            return None;
        }
        let object: *const Object<A, T> = pointer.cast();
        // SAFETY: the memory of an object is never freed.
        let object = unsafe { &*object };
        object.mark.store(0, Ordering::Release);
        // SAFETY: initialised while live, and moved out once, since the address left `live`.
        let own = unsafe { (*object.own.get()).assume_init_read() };
        state.free.push(address);
        Some(own)
    }

    /// The live objects.
    pub fn all(&self) -> Vec<&'static Object<A, T>> {
        let locked = self.state();
        let state = &locked.state;
        let object = |address: &usize| {
            // SAFETY: as in `find`.
            unsafe { &*(*address as *const Object<A, T>) }
        };
        state.live.iter().map(object).collect()
    }

    fn mark(&self, address: usize) -> usize {
        address ^ (self as *const Self as usize)
    }

    fn state(&self) -> Locked<'_> {
        let pass = gate::pass();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { state, _pass: pass }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NUMBERS: Arena<u64, String> = Arena::new("number");
    static OTHERS: Arena<u64, String> = Arena::new("other");

    #[test]
    fn stale_handles_are_invalid_even_if_their_memory_is_reused() {
        let first = NUMBERS.insert(7, "seven".into());
        assert_eq!(NUMBERS.find(first).unwrap().own(), "seven");
        assert_eq!(NUMBERS.get(first).unwrap().own(), "seven");
        assert_eq!(NUMBERS.remove(first).as_deref(), Some("seven"));
        assert!(NUMBERS.find(first).is_err());
        assert!(NUMBERS.get(first).is_err());
        assert!(NUMBERS.remove(first).is_none());
        let second = NUMBERS.insert(8, "eight".into());
        assert_eq!(second, first);
        assert_eq!(NUMBERS.all().len(), 1);
        assert!(NUMBERS.remove(second).is_some());
    }

    #[test]
    fn an_object_of_another_kind_is_no_handle() {
        let other = OTHERS.insert(1, String::new());
        assert!(NUMBERS.find(other).is_err());
        assert!(NUMBERS.get(other).is_err());
        assert!(NUMBERS.find(std::ptr::null()).is_err());
        assert!(NUMBERS.get(std::ptr::null()).is_err());
        let own = 5_u64;
        assert!(NUMBERS.find(&own).is_err());
        OTHERS.remove(other);
    }
}
