//! Protection domains; parent domains, which give hints on how the objects of one are used; and thread
//! domains, which these hints name. A software device has no use for the hints, and no object memory
//! that the program's allocators could supply.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_abi::border;
use ferroce_abi::pointer::read;
use ferroce_device::PdId;

use crate::abi::{
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, ibv_context,
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};
use crate::arena::{Arena, Object};
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};

pub(crate) struct Pd {
    pub(crate) context: ContextRef,
    pub(crate) id: PdId,
    /// What a parent domain keeps.
    parent: Option<Parent>,
    /// It belongs to another context.
    imported: bool,
    /// Parent domains of this one.
    parents: AtomicU32,
    /// Address handles in the domain, of all contexts.
    pub(crate) handles: Arc<AtomicU32>,
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

struct Td {
    context: ContextRef,
    /// Parent domains that name it.
    parents: AtomicU32,
}

static TDS: Arena<ibv_td, Td> = Arena::new("thread domain");

/// What a parent domain is built on.
pub(crate) struct Parent {
    pd: &'static Object<ibv_pd, Pd>,
    td: Option<&'static Object<ibv_td, Td>>,
}

// SAFETY: only atomic counters are accessed through the references.
unsafe impl Send for Parent {}
// SAFETY: as above.
unsafe impl Sync for Parent {}

impl Parent {
    fn new(pd: &'static Object<ibv_pd, Pd>, td: Option<&'static Object<ibv_td, Td>>) -> Self {
        pd.own().parents.fetch_add(1, Ordering::Relaxed);
        if let Some(td) = td {
            td.own().parents.fetch_add(1, Ordering::Relaxed);
        }
        Self { pd, td }
    }

    /// The parent domain is gone.
    fn release(&self) {
        self.pd.own().parents.fetch_sub(1, Ordering::Relaxed);
        if let Some(td) = self.td {
            td.own().parents.fetch_sub(1, Ordering::Relaxed);
        }
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
            handles: Arc::default(),
        };
        Ok(PDS.insert(abi, pd))
    });
    pointer("ibv_alloc_pd", made)
}

/// Makes a parent domain of `base`.
fn insert_parent(context: *mut ibv_context, base: &Pd, parent: Parent) -> *mut ibv_pd {
    let pd = Pd {
        context: Arc::clone(&base.context),
        id: base.id,
        parent: Some(parent),
        imported: false,
        parents: AtomicU32::new(0),
        handles: Arc::clone(&base.handles),
    };
    let handle = pd.id.0;
    PDS.insert(ibv_pd { context, handle }, pd)
}

/// The domain of a handle, for another context of the device.
fn import(context: *mut ibv_context, own: ContextRef, handle: u32) -> Result<*mut ibv_pd, Error> {
    let id = PdId(handle);
    let known = PDS.all().into_iter().find(|pd| {
        let pd = pd.own();
        pd.id == id && Arc::ptr_eq(&pd.context.adapter, &own.adapter)
    });
    let original = known.ok_or(Error::Handle("pd_handle"))?.own();
    let pd = Pd {
        handles: Arc::clone(&original.handles),
        context: own,
        id,
        parent: None,
        imported: true,
        parents: AtomicU32::new(0),
    };
    Ok(PDS.insert(ibv_pd { context, handle }, pd))
}

/// Ends an object whose domain stays.
fn forget(pointer: *mut ibv_pd) -> Result<(), Error> {
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

/// A protection domain by its handle (ibv_import_pd(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    let found = context::find(context).and_then(|own| {
        own.check_same_process()?;
        import(context, own, handle)
    });
    pointer("ibv_import_pd", found)
}

/// Ends the use of a protection domain, which stays (ibv_import_pd(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    status("ibv_unimport_pd", forget(pd));
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
        None if pd.handles.load(Ordering::Relaxed) > 0 => {
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

/// Makes a parent domain (ibv_alloc_parent_domain(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: null or a structure of the program, valid during the call.
    let attr = unsafe { read("attr", attr) }.map_err(Error::from);
    let made = attr.and_then(|attr| build(context, attr));
    pointer("ibv_alloc_parent_domain", made)
}

fn build(
    context: *mut ibv_context,
    attr: &ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, Error> {
    const KNOWN: u32 =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if attr.comp_mask & !KNOWN != 0 {
        return Err(Error::Unsupported("an attribute in comp_mask"));
    }
    let owner = context::find(context)?;
    let base = find(attr.pd)?;
    context::check_same("protection domain", &base.own().context, &owner)?;
    if base.own().parent.is_some() {
        return Err(Error::refused(
            libc::EINVAL,
            "pd is a parent domain itself; give the domain that it was made of",
        ));
    }
    let td = match attr.td.is_null() {
        true => None,
        false => Some(TDS.find(attr.td)?),
    };
    if let Some(td) = td {
        context::check_same("thread domain", &td.own().context, &owner)?;
    }
    let parent = Parent::new(base, td);
    Ok(insert_parent(context, base.own(), parent))
}

/// Makes a thread domain (ibv_alloc_td(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    init: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    let made = context::find(context).and_then(|own| {
        // SAFETY: null or a structure of the program, valid during the call.
        if unsafe { read("init_attr", init)? }.comp_mask != 0 {
            return Err(Error::Unsupported("an attribute in comp_mask"));
        }
        let td = Td {
            context: own,
            parents: AtomicU32::new(0),
        };
        Ok(TDS.insert(ibv_td { context }, td))
    });
    pointer("ibv_alloc_td", made)
}

/// Destroys a thread domain that no parent domain names (ibv_alloc_td(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    let result = TDS.find(td).and_then(|object| {
        if object.own().parents.load(Ordering::Relaxed) > 0 {
            return Err(Error::Busy("parent domains name the thread domain"));
        }
        TDS.remove(td);
        Ok(())
    });
    status("ibv_dealloc_td", result)
}

/// Destroys the thread domains that a closing context has left.
pub(crate) fn close_threads(context: &ContextRef) {
    for td in TDS.all() {
        if Arc::ptr_eq(&td.own().context, context) {
            TDS.remove(td.abi());
        }
    }
}
