//! Thread domains, and parent domains: protection domains with hints on how their objects are used.
//! A software device has no use for the hints, and no object memory that the program's allocators
//! could supply.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_abi::border;
use ferroce_abi::pointer::read;

use crate::abi::{
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, ibv_context,
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};
use crate::arena::{Arena, Object};
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};
use crate::pd::{self, Pd};

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
    pub(crate) fn release(&self) {
        self.pd.own().parents.fetch_sub(1, Ordering::Relaxed);
        if let Some(td) = self.td {
            td.own().parents.fetch_sub(1, Ordering::Relaxed);
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
    let base = pd::find(attr.pd)?;
    context::check_same("protection domain", &base.own().context, &owner)?;
    if base.own().parent.is_some() {
        return Err(Error::Refused {
            errno: libc::EINVAL,
            what: "pd is a parent domain itself; give the domain that it was made of".into(),
        });
    }
    let td = match attr.td.is_null() {
        true => None,
        false => Some(TDS.find(attr.td)?),
    };
    if let Some(td) = td {
        context::check_same("thread domain", &td.own().context, &owner)?;
    }
    let parent = Parent::new(base, td);
    Ok(pd::insert_parent(context, base.own(), parent))
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

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for td in TDS.all() {
        if Arc::ptr_eq(&td.own().context, context) {
            TDS.remove(td.abi());
        }
    }
}
