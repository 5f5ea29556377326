//! The kernel's notifications about interfaces and addresses (rtnetlink(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ferroce_os::NotInherited;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, recv, send, socket_with};

use crate::gids::Address;

/// Of a netlink message, of a link and of an address in it, of an attribute.
const HEADER: usize = 16;
const LINK: usize = 16;
const ADDRESS: usize = 8;
const ATTRIBUTE: usize = 4;

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// NLM_F_REQUEST and NLM_F_DUMP.
const DUMP: u16 = 0x1 | 0x300;
/// IFF_UP and IFF_LOWER_UP.
const UP: u32 = 0x1 | 0x1_0000;
/// Bytes that one message has at most: what the kernel makes of a dump.
const ROOM: usize = 32 << 10;
/// Messages of an answer. An interface that has more addresses than fit is not worth the wait.
const MESSAGES_MAX: usize = 1 << 12;

/// Something new of an interface, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// It has a carrier and is up, or not.
    Link {
        /// The interface's number.
        index: u32,
        /// It has a carrier and is up.
        is_up: bool,
    },
    /// The interface is gone.
    Gone {
        /// The interface's number.
        index: u32,
    },
    /// It has an address, or has lost it.
    Address {
        /// The interface's number.
        index: u32,
        /// The address.
        address: Address,
        /// It has the address from now on.
        is_there: bool,
    },
    /// There was more than is told: ask how things are.
    Missed,
}

/// Who hears news of the host's interfaces and addresses.
#[derive(Debug)]
pub struct Subscription {
    socket: NotInherited<OwnedFd>,
    buffer: Vec<u8>,
}

impl Subscription {
    /// Subscribes to news of links and addresses.
    ///
    /// # Errors
    /// Returns an error where the kernel has no rtnetlink, or the process no file descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            socket: NotInherited::new(open(GROUPS)?),
            buffer: vec![0; ROOM],
        })
    }

    /// The news that wait, in order; none if there are none.
    pub fn take(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        loop {
            match recv(&*self.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok((_, len)) => news.extend(Messages(self.buffer.get(..len).unwrap_or(&[])).news()),
                Err(rustix::io::Errno::NOBUFS) => news.push(News::Missed),
                Err(_) => return news,
            }
        }
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The addresses of the interface of a device, its own first, if it has that.
///
/// The loopback interface has every address of 127.0.0.0/8, and so all that devices are on: there each
/// has only its own.
pub fn addresses(own: IpAddr, index: Option<u32>) -> Vec<Address> {
    if own.is_loopback() {
        return vec![(own, 0)];
    }
    // Where the kernel does not tell, it is as if there was nothing else.
    let found = match index {
        Some(index) => addresses_of(index).unwrap_or_else(|_| vec![(own, 0)]),
        None => Vec::new(),
    };
    let (mut all, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(it, _)| *it == own);
    all.extend(others);
    all
}

/// The addresses of an interface, as the kernel lists them.
fn addresses_of(index: u32) -> io::Result<Vec<Address>> {
    const GETADDR: u16 = 22;
    let socket = open(0)?;
    let mut request = Vec::with_capacity(HEADER + ADDRESS);
    request.extend(((HEADER + ADDRESS) as u32).to_ne_bytes());
    request.extend(GETADDR.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.resize(HEADER + ADDRESS, 0);
    send(&socket, &request, SendFlags::empty())?;
    let mut found = Vec::new();
    let mut buffer = vec![0; ROOM];
    for _ in 0..MESSAGES_MAX {
        let (_, len) = recv(&socket, &mut buffer, RecvFlags::empty())?;
        let messages = Messages(buffer.get(..len).unwrap_or(&[]));
        for news in messages.news() {
            if let News::Address {
                index: on, address, ..
            } = news
                && on == index
            {
                found.push(address);
            }
        }
        if Messages(&buffer[..len]).ends() {
            break;
        }
    }
    Ok(found)
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    // NETLINK_ROUTE is protocol 0.
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Messages of the kernel, one after the other.
#[derive(Clone, Copy)]
struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    fn news(self) -> impl Iterator<Item = News> + 'a {
        self.filter_map(|(kind, body)| news(kind, body))
    }

    /// Whether an answer ends here.
    fn ends(mut self) -> bool {
        const ERROR: u16 = 2;
        const DONE: u16 = 3;
        self.any(|(kind, _)| kind == ERROR || kind == DONE)
    }
}

impl<'a> Iterator for Messages<'a> {
    /// Type and content.
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = word(self.0, 0)? as usize;
        let kind = half(self.0, 4)?;
        let body = self.0.get(HEADER..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, body))
    }
}

fn news(kind: u16, body: &[u8]) -> Option<News> {
    match kind {
        16 | 17 => link(kind == 16, body),
        20 | 21 => address(kind == 20, body),
        _ => None,
    }
}

fn link(is_there: bool, body: &[u8]) -> Option<News> {
    let (index, flags) = (word(body, 4)?, word(body, 8)?);
    // Ports of bridges are told of in the same words.
    let is_interface = body.len() >= LINK && body[0] == 0;
    is_interface.then_some(match is_there {
        true => News::Link {
            index,
            is_up: flags & UP == UP,
        },
        false => News::Gone { index },
    })
}

fn address(is_there: bool, body: &[u8]) -> Option<News> {
    const REMOTE: u16 = 1;
    const LOCAL: u16 = 2;
    const CACHE: u16 = 6;
    let index = word(body, 4)?;
    let attributes = || Attributes(body.get(ADDRESS..).unwrap_or(&[]));
    let find = |wanted| attributes().find(|(kind, _)| *kind == wanted);
    // On links from one point to another the first is the other end.
    let (_, bytes) = find(LOCAL).or_else(|| find(REMOTE))?;
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    // When it was given, in hundredths of a second since the machine's start.
    let born = find(CACHE).and_then(|(_, bytes)| word(bytes, 8));
    Some(News::Address {
        index,
        address: (ip, born.unwrap_or(0)),
        is_there,
    })
}

/// Attributes of a message, one after the other.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    /// Type and content.
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (len, kind) = (half(self.0, 0)?.into(), half(self.0, 2)?);
        let content = self.0.get(ATTRIBUTE..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, content))
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let len = (ATTRIBUTE + content.len()) as u16;
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<News> {
        Messages(bytes).news().collect()
    }

    #[test]
    fn links_are_up_with_a_carrier() {
        let link = |family: u8, flags: u32| {
            let mut body = vec![family, 0, 0, 0];
            body.extend(7_u32.to_ne_bytes());
            body.extend(flags.to_ne_bytes());
            body.extend([0; 4]);
            body
        };
        let all = [
            message(16, &link(0, 0x1_0043)),
            message(16, &link(0, 0x1003)),
            message(16, &link(7, 0)),
            message(17, &link(0, 0)),
        ];
        let expected = [
            News::Link {
                index: 7,
                is_up: true,
            },
            News::Link {
                index: 7,
                is_up: false,
            },
            News::Gone { index: 7 },
        ];
        assert_eq!(read(&all.concat()), expected);
    }

    #[test]
    fn addresses_tell_since_when() {
        let mut body = vec![2, 24, 0, 0];
        body.extend(7_u32.to_ne_bytes());
        body.extend(attribute(1, &[10, 0, 0, 2]));
        body.extend(attribute(2, &[10, 0, 0, 1]));
        let cache: Vec<u8> = [1_u32, 2, 3, 4]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        body.extend(attribute(6, &cache));
        let expected = News::Address {
            index: 7,
            address: ([10, 0, 0, 1].into(), 3),
            is_there: false,
        };
        assert_eq!(read(&message(21, &body)), [expected]);
    }

    #[test]
    fn the_kernel_lists_the_loopback_interface() {
        let lo = ferroce_os::Interface::of([127, 0, 0, 1].into()).unwrap();
        let found = addresses_of(lo.index).unwrap();
        assert!(
            found
                .iter()
                .any(|(ip, _)| *ip == IpAddr::from([127, 0, 0, 1]))
        );
        assert_eq!(Subscription::new().unwrap().take(), []);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
            news(20, &bytes);
            news(16, &bytes);
        }
    }
}
