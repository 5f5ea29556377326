//! Contexts: a device as one opener sees it.
//!
//! A kernel knows the objects of all processes; here each process has its own. Handles of another
//! process's context are therefore invalid, although the device itself can be opened with it.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;

use crate::abi::{ibv_context, verbs_context};
use crate::adapter::Adapter;
use crate::arena::Arena;
use crate::error::Error;
use crate::events::AsyncQueue;

/// What belongs to a context.
pub(crate) struct Context {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) events: Arc<AsyncQueue>,
    /// It was made by a command descriptor of another process.
    pub(crate) foreign: bool,
    pub(crate) async_fd: c_int,
}

/// The context that an object was made in.
pub(crate) type ContextRef = Arc<Context>;

pub(crate) static CONTEXTS: Arena<verbs_context, ContextRef> = Arena::new("context");

/// The context behind a program's pointer.
pub(crate) fn find(context: *const ibv_context) -> Result<ContextRef, Error> {
    CONTEXTS
        .find(around(context))
        .map(|object| Arc::clone(object.own()))
}

/// Refuses an object, called `name` in the message, of another context than the one it is to be used
/// in: the numbers of objects mean something on their own device only.
#[inline]
pub(crate) fn check_same(
    name: &'static str,
    of_object: &ContextRef,
    used_in: &ContextRef,
) -> Result<(), Error> {
    match Arc::ptr_eq(of_object, used_in) {
        true => Ok(()),
        false => Err(Error::OtherContext(name)),
    }
}

/// The structure whose last field a program points to.
pub(crate) fn around(context: *const ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast_mut()
        .cast()
}

impl Context {
    /// Whether handles that a program imports into this context are of this process.
    pub(crate) fn check_same_process(&self) -> Result<(), Error> {
        if self.foreign {
            return Err(Error::Unsupported("an object of another process"));
        }
        Ok(())
    }
}
