//! Protection domains.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_abi::border;
use ferroce_hca::PdId;

use crate::abi::{ibv_context, ibv_pd};
use crate::ah;
use crate::arena::{Arena, Object};
use crate::context::{self, ContextRef};
use crate::domain::Parent;
use crate::error::{Error, pointer, status};

pub(crate) struct Pd {
    pub(crate) context: ContextRef,
    pub(crate) id: PdId,
    /// What a parent domain keeps.
    pub(crate) parent: Option<Parent>,
    /// It belongs to another context.
    imported: bool,
    /// Parent domains of this one.
    pub(crate) parents: AtomicU32,
}

static PDS: Arena<ibv_pd, Pd> = Arena::new("protection domain");

pub(crate) fn find(pd: *const ibv_pd) -> Result<&'static Object<ibv_pd, Pd>, Error> {
    PDS.find(pd)
}

/// A protection domain of the context.
pub(crate) fn find_in(pd: *const ibv_pd, context: &ContextRef) -> Result<&'static Pd, Error> {
    let pd = find(pd)?.own();
    context::check_same("protection domain", &pd.context, context)?;
    Ok(pd)
}

/// A parent domain of the context.
pub(crate) fn find_parent(pd: *const ibv_pd, context: &ContextRef) -> Result<(), Error> {
    match find_in(pd, context)?.parent {
        Some(_) => Ok(()),
        None => Err(Error::Handle("parent domain")),
    }
}

/// Makes a protection domain (ibv_alloc_pd(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let made = context::find(context).and_then(|own| {
        let id = own.adapter.live()?.with(|hca| hca.alloc_pd())?;
        let abi = ibv_pd {
            context,
            handle: id.0,
        };
        let pd = Pd {
            context: own,
            id,
            parent: None,
            imported: false,
            parents: AtomicU32::new(0),
        };
        Ok(PDS.insert(abi, pd))
    });
    pointer("ibv_alloc_pd", made)
}

/// Makes a parent domain of `base`.
pub(crate) fn insert_parent(context: *mut ibv_context, base: &Pd, parent: Parent) -> *mut ibv_pd {
    let pd = Pd {
        context: Arc::clone(&base.context),
        id: base.id,
        parent: Some(parent),
        imported: false,
        parents: AtomicU32::new(0),
    };
    let handle = pd.id.0;
    PDS.insert(ibv_pd { context, handle }, pd)
}

/// The domain of a handle, for another context of the device.
pub(crate) fn import(
    context: *mut ibv_context,
    own: ContextRef,
    handle: u32,
) -> Result<*mut ibv_pd, Error> {
    let id = PdId(handle);
    let known = PDS.all().into_iter().any(|pd| {
        let pd = pd.own();
        pd.id == id && Arc::ptr_eq(&pd.context.adapter, &own.adapter)
    });
    if !known {
        return Err(Error::Handle("pd_handle"));
    }
    let pd = Pd {
        context: own,
        id,
        parent: None,
        imported: true,
        parents: AtomicU32::new(0),
    };
    Ok(PDS.insert(ibv_pd { context, handle }, pd))
}

/// Ends an object whose domain stays.
pub(crate) fn forget(pointer: *mut ibv_pd) -> Result<(), Error> {
    let pd = find(pointer)?.own();
    if pd.parents.load(Ordering::Relaxed) > 0 {
        return Err(Error::Busy("parent domains are built on the domain"));
    }
    if let Some(parent) = &pd.parent {
        parent.release();
    }
    PDS.remove(pointer);
    Ok(())
}

/// Destroys a protection domain, or parent domain, that nothing uses (ibv_alloc_pd(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status("ibv_dealloc_pd", dealloc(pd))
}

fn dealloc(pointer: *mut ibv_pd) -> Result<(), Error> {
    let pd = PDS.find(pointer)?.own();
    if pd.parents.load(Ordering::Relaxed) > 0 {
        return Err(Error::Busy("parent domains are built on the domain"));
    }
    match &pd.parent {
        Some(parent) => parent.release(),
        None if ah::any_of(&pd.context, pd.id) => {
            return Err(Error::Busy("the protection domain has address handles"));
        }
        None => {
            pd.context.adapter.end(|hca| hca.dealloc_pd(pd.id))?;
        }
    }
    PDS.remove(pointer);
    Ok(())
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    let mut domains = PDS.all();
    // Those that others build on go last.
    domains.sort_by_key(|pd| pd.own().parent.is_none());
    for pd in domains {
        if Arc::ptr_eq(&pd.own().context, context) {
            // In use by another context: it goes when that one does.
            let _ = match pd.own().imported {
                true => forget(pd.abi()),
                false => dealloc(pd.abi()),
            };
        }
    }
}
