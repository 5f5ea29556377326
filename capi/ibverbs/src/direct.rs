//! The functions of direct verbs of a queue pair: the object that `mlx5dv_qp_ex_from_ibv_qp_ex` returns.

use crate::abi::{ibv_qp_ex, mlx5dv_qp_ex};
use crate::arena::Arena;
use crate::error::Error;

/// An object of this kind, which ends with the queue pair that has it.
pub(crate) struct Direct(*mut mlx5dv_qp_ex);

// SAFETY: the pointer is only compared with those of live objects.
unsafe impl Send for Direct {}
// SAFETY: as above.
unsafe impl Sync for Direct {}

/// The queue pair of such an object.
struct Owner(*mut ibv_qp_ex);

// SAFETY: the pointer is only compared with those of live objects.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

static DIRECTS: Arena<mlx5dv_qp_ex, Owner> = Arena::new("queue pair of direct verbs");

impl Direct {
    pub(crate) fn new(functions: mlx5dv_qp_ex, qp: *mut ibv_qp_ex) -> Self {
        Self(DIRECTS.insert(functions, Owner(qp)))
    }

    /// What the program gets.
    pub(crate) fn pointer(&self) -> *mut mlx5dv_qp_ex {
        self.0
    }

    /// The queue pair of an object from a program.
    pub(crate) fn owner(pointer: *const mlx5dv_qp_ex) -> Result<*mut ibv_qp_ex, Error> {
        Ok(DIRECTS.get(pointer)?.own().0)
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        DIRECTS.remove(self.0);
    }
}
