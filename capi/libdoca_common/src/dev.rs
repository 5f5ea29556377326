//! `doca_dev.h`, and the libraries' own queries about devices.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_abi::border;
use ferroce_doca::devices::{self, Info};
use ferroce_doca::pointer::{check, put, put_text, text};
use ferroce_doca::{Code, Handles, Refusal};

use crate::log::answer;

/// Bytes of a PCI address and the zero at its end.
const PCI_ADDR_SIZE: usize = 13;

static INFOS: Handles<Info> = Handles::new("devinfo");
static DEVICES: Handles<Opened> = Handles::new("dev");
/// The lists that programs have, by their address: the entries of each.
static LISTS: Mutex<BTreeMap<usize, Vec<usize>>> = Mutex::new(BTreeMap::new());

/// An open device.
struct Opened {
    /// Its `devinfo`, which lives as long.
    info: usize,
}

/// The user's devices, and cards.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_create_list(
    dev_list: *mut *mut usize,
    nb_devs: *mut u32,
) -> Code {
    let create = || {
        check("dev_list", dev_list)?;
        check("nb_devs", nb_devs)?;
        let devices = devices::list()?;
        // SAFETY: `calloc` takes any sizes; one entry more, so that there is a list of none.
        let list: *mut usize =
            unsafe { libc::calloc(devices.len() + 1, size_of::<usize>()) }.cast();
        if list.is_null() {
            return Err(Refusal::new(
                Code::NoMemory,
                "there is no memory for the list",
            ));
        }
        let infos: Vec<usize> = devices.into_iter().map(|info| INFOS.insert(info)).collect();
        for (index, info) in infos.iter().enumerate() {
            // SAFETY: the list has room for all of them.
            unsafe { list.add(index).write(*info) };
        }
        let count = u32::try_from(infos.len()).unwrap_or(u32::MAX);
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        lists.insert(list.addr(), infos);
        // SAFETY: null or variables of the program that may be written to.
        unsafe {
            put("dev_list", dev_list, list)?;
            put("nb_devs", nb_devs, count)
        }
    };
    answer("doca_devinfo_create_list", create())
}

/// Ends a list.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_destroy_list(dev_list: *mut usize) -> Code {
    let destroy = || {
        check("dev_list", dev_list)?;
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        let infos = lists.remove(&dev_list.addr()).ok_or_else(|| {
            let what = "dev_list is not a list, or was destroyed";
            Refusal::new(Code::InvalidValue, what)
        })?;
        for info in infos {
            INFOS.remove(info, |_| Ok(()))?;
        }
        // SAFETY: it came from `calloc`, and is not freed twice: it was in the table.
        unsafe { libc::free(dev_list.cast()) };
        Ok(())
    };
    answer("doca_devinfo_destroy_list", destroy())
}

/// Opens a device.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_dev_open(devinfo: usize, dev: *mut usize) -> Code {
    let open = || {
        check("dev", dev)?;
        let info = INFOS.get(devinfo)?;
        info.check()?;
        let info = INFOS.insert_shared(info);
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("dev", dev, DEVICES.insert(Opened { info })) }
    };
    answer("doca_dev_open", open())
}

/// Closes a device.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_dev_close(dev: usize) -> Code {
    let closed = DEVICES.remove(dev, |_| Ok(()));
    let closed = closed.and_then(|dev| INFOS.remove(dev.info, |_| Ok(())));
    answer("doca_dev_close", closed.map(drop))
}

/// What is known of an open device.
#[unsafe(no_mangle)]
#[border(value)]
pub extern "C" fn doca_dev_as_devinfo(dev: usize) -> usize {
    match DEVICES.get(dev) {
        Ok(dev) => dev.info,
        Err(refusal) => {
            answer("doca_dev_as_devinfo", Err(refusal));
            0
        }
    }
}

/// A call about a device.
fn about(call: &str, devinfo: usize, what: impl FnOnce(Arc<Info>) -> Result<(), Refusal>) -> Code {
    answer(call, INFOS.get(devinfo).and_then(what))
}

/// The PCI address.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_get_pci_addr_str(
    devinfo: usize,
    pci_addr_str: *mut c_char,
) -> Code {
    about("doca_devinfo_get_pci_addr_str", devinfo, |info| {
        let pci = info.pci().to_string();
        // SAFETY: null or a buffer of that size that may be written to.
        unsafe { put_text("pci_addr_str", pci_addr_str, PCI_ADDR_SIZE, &pci) }
    })
}

/// Whether a device has this PCI address.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_is_equal_pci_addr(
    devinfo: usize,
    pci_addr_str: *const c_char,
    is_equal: *mut u8,
) -> Code {
    about("doca_devinfo_is_equal_pci_addr", devinfo, |info| {
        // SAFETY: null, or a C string and a variable that may be written to.
        unsafe {
            let has = info.has_pci(text("pci_addr_str", pci_addr_str)?)?;
            put("is_equal", is_equal, has.into())
        }
    })
}

/// The network interface.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_get_iface_name(
    devinfo: usize,
    iface_name: *mut c_char,
    size: u32,
) -> Code {
    about("doca_devinfo_get_iface_name", devinfo, |info| {
        let name = info.interface()?;
        // SAFETY: null or a buffer of that size that may be written to.
        unsafe { put_text("iface_name", iface_name, size as usize, &name) }
    })
}

/// The name as a device of verbs.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_get_ibdev_name(
    devinfo: usize,
    ibdev_name: *mut c_char,
    size: u32,
) -> Code {
    about("doca_devinfo_get_ibdev_name", devinfo, |info| {
        // SAFETY: null or a buffer of that size that may be written to.
        unsafe { put_text("ibdev_name", ibdev_name, size as usize, info.ibdev()?) }
    })
}

/// The number of the function.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_get_vhca_id(devinfo: usize, vhca_id: *mut u16) -> Code {
    about("doca_devinfo_get_vhca_id", devinfo, |info| {
        check("vhca_id", vhca_id)?;
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("vhca_id", vhca_id, info.vhca_id()?) }
    })
}

/// What the device is on its bus.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_get_pci_func_type(
    devinfo: usize,
    pci_func_type: *mut u32,
) -> Code {
    const PF: u32 = 0;
    const VF: u32 = 1;
    about("doca_devinfo_get_pci_func_type", devinfo, |info| {
        let kind = if info.is_virtual() { VF } else { PF };
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("pci_func_type", pci_func_type, kind) }
    })
}

/// Not supported: the devices are no SFs.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_devinfo_get_sf_index(devinfo: usize, sf_index: *mut u32) -> Code {
    about("doca_devinfo_get_sf_index", devinfo, |_| {
        check("sf_index", sf_index)?;
        Err(Refusal::new(Code::NotSupported, "the device is not an SF"))
    })
}

/// What leads to a device's registers, for the library that reads and writes them.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn ferroce_doca_locator(
    devinfo: usize,
    locator: *mut c_char,
    size: usize,
) -> Code {
    about("ferroce_doca_locator", devinfo, |info| {
        // SAFETY: our own library's buffer.
        unsafe { put_text("locator", locator, size, &info.locator()) }
    })
}
