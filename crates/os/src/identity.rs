//! The identity of this process and its network namespace.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::MetadataExt;

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};

/// From the kernel's asm-generic/socket.h, which the architectures that Rust has follow.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The effective user of this process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The effective user of this process as the parent of its user namespace knows it
/// (user_namespaces(7)): `root` inside is another user outside.
pub fn outer_uid() -> u32 {
    let own = effective_uid();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    mapped(&map, own).unwrap_or(own)
}

/// What a map of users says of one.
fn mapped(map: &str, own: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let [inside, outside, count] = [(); 3].map(|()| numbers.next()?.ok());
        let nth = own.checked_sub(inside?).filter(|nth| Some(*nth) < count)?;
        outside?.checked_add(nth)
    })
}

/// A network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkNamespace {
    /// Its number in `/proc`, which another one gets when it is gone.
    pub inode: u64,
    /// Its number that no other one gets until the machine is started anew, if the kernel tells
    /// (from 5.14 on).
    pub cookie: Option<u64>,
}

impl NetworkNamespace {
    /// That of this thread; `None` without `/proc`.
    pub fn own() -> Option<Self> {
        let number = |path| fs::metadata(path).ok().map(|namespace| namespace.ino());
        Some(Self {
            inode: number("/proc/thread-self/ns/net").or_else(|| number("/proc/self/ns/net"))?,
            cookie: cookie().ok(),
        })
    }

    /// Whether it is the one that the machine started with, as far as the kernel tells.
    pub fn is_first(self) -> bool {
        // From 6.18 on its inode is part of the kernel's interface (linux/nsfs.h); before, cookies
        // of network namespaces counted from 1.
        const FIRST_INODE: u64 = 0xefff_fff9;
        self.inode == FIRST_INODE || self.cookie == Some(1)
    }
}

fn cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    Ok(getsockopt(&socket, NetnsCookie)?)
}

sockopt_impl!(
    /// Of the namespace in which the socket is.
    NetnsCookie,
    GetOnly,
    libc::SOL_SOCKET,
    SO_NETNS_COOKIE,
    u64
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_in_maps() {
        let whole = "         0          0 4294967295\n";
        assert_eq!(mapped(whole, 1000), Some(1000));
        // `unshare -r`, and a container.
        assert_eq!(mapped("0 1000 1\n", 0), Some(1000));
        let two = "0 1000 1\n1 100000 65536\n";
        assert_eq!(mapped(two, 34), Some(100_033));
        assert_eq!(mapped(two, 65537), None);
        assert_eq!(mapped("", 0), None);
        assert_eq!(mapped("0 4294967295 5\n", 4), None);
        assert_eq!(mapped("x y z\n0 7", 0), None);
    }

    #[test]
    fn a_namespace_has_an_identity() {
        let own = NetworkNamespace::own().unwrap();
        assert_eq!(NetworkNamespace::own(), Some(own));
        assert!(own.cookie != Some(0));
    }
}
