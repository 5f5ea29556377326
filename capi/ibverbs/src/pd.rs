//! Protection domains.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_hca::PdId;

use crate::abi::{ibv_context, ibv_pd};
use crate::arena::{Arena, Object};
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};

pub(crate) struct Pd {
    pub(crate) context: ContextRef,
    pub(crate) id: PdId,
}

static PDS: Arena<ibv_pd, Pd> = Arena::new("protection domain");

pub(crate) fn find(pd: *const ibv_pd) -> Result<&'static Object<ibv_pd, Pd>, Error> {
    PDS.find(pd)
}

/// Makes a protection domain (ibv_alloc_pd(3)).
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let made = context::find(context).and_then(|own| {
        let id = own.adapter.device.with(|hca| hca.alloc_pd())?;
        let abi = ibv_pd {
            context,
            handle: id.0,
        };
        Ok(PDS.insert(abi, Pd { context: own, id }))
    });
    pointer("ibv_alloc_pd", made)
}

/// Destroys a protection domain that nothing uses (ibv_alloc_pd(3)).
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status("ibv_dealloc_pd", dealloc(pd))
}

fn dealloc(pointer: *mut ibv_pd) -> Result<(), Error> {
    let pd = PDS.find(pointer)?.own();
    pd.context
        .adapter
        .device
        .with(|hca| hca.dealloc_pd(pd.id))?;
    PDS.remove(pointer);
    Ok(())
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for pd in PDS.all() {
        if Arc::ptr_eq(&pd.own().context, context) {
            // In use by another context: it goes when that one does.
            let _ = dealloc(pd.abi());
        }
    }
}
