//! Adds the addresses of devices to those of interfaces.
//!
//! libfabric and others look for devices at the addresses of interfaces other than loopback. If all
//! devices are on loopback, as the default one is, they would find none, so the devices' addresses
//! are reported as those of an interface that is not loopback. If a device has an address on
//! another interface, it is found there, and the list stays unchanged.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::{mem, ptr};

use ferroce_abi::border::cross;
use ferroce_registry::Registry;
use libc::{IFF_LOOPBACK, ifaddrs, sockaddr, sockaddr_in, sockaddr_in6};

use crate::next::next;

type List = unsafe extern "C-unwind" fn(*mut *mut ifaddrs) -> c_int;
type Free = unsafe extern "C-unwind" fn(*mut ifaddrs);

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    let next = next!(getifaddrs);
    // SAFETY: the C library's function has this type; the caller vouches for the argument.
    let got = unsafe { mem::transmute::<*mut c_void, List>(next)(list) };
    if got == 0 {
        // SAFETY: the C library has just made this list.
        cross(|| unsafe { show(*list, &on_loopback()) });
    }
    got
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freeifaddrs(list: *mut ifaddrs) {
    let next = next!(freeifaddrs);
    // SAFETY: the C library's function has this type; the caller vouches for the list, of which what
    // was added is taken off first.
    unsafe {
        drop(cut(list));
        mem::transmute::<*mut c_void, Free>(next)(list);
    }
}

/// The addresses of the devices if all are on loopback.
fn on_loopback() -> Vec<IpAddr> {
    let devices = Registry::open().and_then(|registry| registry.devices());
    let addresses: Vec<IpAddr> = devices
        .unwrap_or_default()
        .into_iter()
        .map(|device| device.address)
        .collect();
    match addresses.iter().all(IpAddr::is_loopback) {
        true => addresses,
        false => Vec::new(),
    }
}

/// An entry that is not the C library's.
#[repr(C)]
struct Added {
    entry: ifaddrs,
    address: Address,
    netmask: Address,
    name: [u8; 3],
    /// What was added before it.
    rest: Option<Box<Self>>,
}

#[repr(C)]
union Address {
    any: sockaddr,
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

/// Marks the entries that are [`Added`]: their `ifa_data` leads here.
static MARK: u8 = 0;

fn mark() -> *mut c_void {
    (&raw const MARK).cast_mut().cast()
}

/// Shows devices' addresses, which the loopback interface has: some are in the list, and all others of
/// 127.0.0.0/8 belong to it, too.
///
/// # Safety
/// A list of the C library.
unsafe fn show(list: *mut ifaddrs, devices: &[IpAddr]) {
    let mut missing = devices.to_vec();
    let mut flags = 0;
    let mut entry = list;
    let mut last = list;
    while !entry.is_null() {
        // SAFETY: an entry of the list.
        let this = unsafe { &mut *entry };
        let is_loopback = this.ifa_flags & IFF_LOOPBACK as u32 != 0;
        // SAFETY: null, or an address of the family it names.
        let address = unsafe { read(this.ifa_addr) };
        if let Some(address) = address.filter(|_| is_loopback) {
            flags = this.ifa_flags & !(IFF_LOOPBACK as u32);
            if devices.contains(&address) {
                this.ifa_flags = flags;
                missing.retain(|device| *device != address);
            }
        }
        (last, entry) = (entry, this.ifa_next);
    }
    if last.is_null() || flags == 0 {
        return; // the interface is down
    }
    let added = missing.into_iter().fold(None, |rest, address| {
        Some(Box::new(Added::new(address, flags, rest)))
    });
    if let Some(added) = added {
        // SAFETY: the last entry of the list.
        unsafe { (*last).ifa_next = link(Box::into_raw(added)) };
    }
}

/// Has the entries point to their own parts, now that they stay where they are, and to each other.
fn link(first: *mut Added) -> *mut ifaddrs {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: made by `show`, and owned by the list from here on.
        unsafe {
            let added = &mut *next;
            next = added
                .rest
                .as_deref_mut()
                .map_or(ptr::null_mut(), ptr::from_mut);
            added.entry.ifa_next = next.cast();
            added.entry.ifa_name = added.name.as_mut_ptr().cast();
            added.entry.ifa_addr = (&raw mut added.address).cast();
            added.entry.ifa_netmask = (&raw mut added.netmask).cast();
        }
    }
    first.cast()
}

/// Takes off what was added to a list.
///
/// # Safety
/// A list of `getifaddrs`, or null.
unsafe fn cut(list: *mut ifaddrs) -> Option<Box<Added>> {
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: an entry of the list; one with the mark is the first of those added.
        unsafe {
            let next = (*entry).ifa_next;
            if !next.is_null() && ptr::eq((*next).ifa_data, mark()) {
                (*entry).ifa_next = ptr::null_mut();
                return Some(Box::from_raw(next.cast()));
            }
            entry = next;
        }
    }
    None
}

impl Added {
    fn new(address: IpAddr, flags: u32, rest: Option<Box<Self>>) -> Self {
        let netmask = match address {
            IpAddr::V4(_) => IpAddr::from([255, 0, 0, 0]),
            IpAddr::V6(_) => IpAddr::from([0xff; 16]),
        };
        Self {
            entry: ifaddrs {
                ifa_next: ptr::null_mut(),
                ifa_name: ptr::null_mut(),
                ifa_flags: flags,
                ifa_addr: ptr::null_mut(),
                ifa_netmask: ptr::null_mut(),
                ifa_ifu: ptr::null_mut(),
                ifa_data: mark(),
            },
            address: Address::of(address),
            netmask: Address::of(netmask),
            name: *b"lo\0",
            rest,
        }
    }
}

impl Address {
    fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self {
                v4: sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: 0,
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    sin_zero: [0; 8],
                },
            },
            IpAddr::V6(ip) => Self {
                v6: sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: 0,
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    sin6_scope_id: 0,
                },
            },
        }
    }
}

/// The address that a structure holds, if it is one of IP.
///
/// # Safety
/// Null, or an address of the family it names.
unsafe fn read(address: *const sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    unsafe {
        match c_int::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = &*address.cast::<sockaddr_in>();
                Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let v6 = &*address.cast::<sockaddr_in6>();
                Some(IpAddr::from(v6.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a list shows: address, whether it is loopback.
    fn listed(list: *mut ifaddrs) -> Vec<(IpAddr, bool)> {
        let mut shown = Vec::new();
        let mut entry = list;
        while !entry.is_null() {
            // SAFETY: an entry of the list.
            unsafe {
                let flags = (*entry).ifa_flags as c_int;
                let address = read((*entry).ifa_addr);
                shown.extend(address.map(|address| (address, flags & IFF_LOOPBACK != 0)));
                entry = (*entry).ifa_next;
            }
        }
        shown
    }

    fn list_of(addresses: &[(IpAddr, u32)]) -> *mut ifaddrs {
        let added = addresses.iter().rev().fold(None, |rest, (address, flags)| {
            let mut added = Added::new(*address, *flags, rest);
            added.entry.ifa_data = ptr::null_mut();
            Some(Box::new(added))
        });
        link(Box::into_raw(added.expect("addresses")))
    }

    #[test]
    fn devices_are_shown_and_others_left_as_they_are() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let loopback = (libc::IFF_UP | IFF_LOOPBACK) as u32;
        let (own, other, v6) = (ip("127.0.0.1"), ip("192.0.2.1"), ip("::1"));
        let system = [
            (own, loopback),
            (other, libc::IFF_UP as u32),
            (v6, loopback),
        ];
        let list = list_of(&system);
        // SAFETY: the list is one of `getifaddrs` as far as it goes.
        unsafe {
            show(list, &[ip("127.0.0.2"), own]);
            let mut expected = vec![(own, false), (other, false), (v6, true)];
            expected.push((ip("127.0.0.2"), false));
            assert_eq!(listed(list), expected);
            drop(cut(list));
            expected.pop();
            assert_eq!(listed(list), expected);
            drop(Box::from_raw(list.cast::<Added>()));
        }
    }

    #[test]
    fn without_a_device_or_an_interface_nothing_changes() {
        let up = libc::IFF_UP as u32;
        let other = IpAddr::from([192, 0, 2, 1]);
        let list = list_of(&[(other, up)]);
        // SAFETY: as above.
        unsafe {
            show(list, &[]);
            show(list, &[IpAddr::from([127, 0, 0, 2])]);
            assert!(cut(list).is_none());
            show(ptr::null_mut(), &[other]);
            assert_eq!(listed(list), [(other, false)]);
            drop(Box::from_raw(list.cast::<Added>()));
        }
    }
}
