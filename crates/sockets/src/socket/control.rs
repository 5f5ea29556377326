//! Control messages: the metadata of one socket call.

use std::mem;

/// Room for the control messages of one call: the two that go out (segment size, traffic class)
/// or the two that come in, and one to spare.
const BYTES: usize = 72;

/// A control buffer, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Control {
    align: [libc::cmsghdr; 0],
    bytes: [u8; BYTES],
}

impl Control {
    pub(super) const BYTES: usize = BYTES;

    pub(super) const EMPTY: Self = Self {
        align: [],
        bytes: [0; BYTES],
    };

    /// Appends a message with one integer at offset `at` and returns the offset after it.
    pub(super) fn push<T: Integer>(&mut self, at: usize, level: i32, kind: i32, value: T) -> usize {
        let data = size_of::<T>() as u32;
        // SAFETY: these compute lengths and touch no memory.
        let (head, len, space) = unsafe {
            (
                libc::CMSG_LEN(0) as usize,
                libc::CMSG_LEN(data),
                libc::CMSG_SPACE(data) as usize,
            )
        };
        assert!(at + space <= BYTES, "control buffer too small");
        // SAFETY: `cmsghdr` is made of integers, for which all zeroes is a value.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = len as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: the assertion keeps header and data inside the buffer. The buffer is aligned
        // for `cmsghdr` and every message takes a multiple of that alignment; the data is written
        // without an alignment requirement.
        unsafe {
            let start = self.bytes.as_mut_ptr().add(at);
            start.cast::<libc::cmsghdr>().write(header);
            start.add(head).cast::<T>().write_unaligned(value);
        }
        at + space
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        (&raw mut *self).cast()
    }
}

/// What a control message may carry here.
pub(super) trait Integer: Copy {}
impl Integer for u16 {}
impl Integer for libc::c_int {}

/// What the kernel said about one received message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Facts {
    /// DSCP and ECN bits of the IP header.
    pub(super) tos: u8,
    /// Size of the coalesced datagrams, if the message holds several.
    pub(super) segment: Option<usize>,
}

impl Facts {
    /// Reads the control messages in the first `len` bytes of `control`.
    pub(super) fn read(control: &Control, len: usize) -> Self {
        // SAFETY: `msghdr` is made of integers and pointers, for which all zeroes is a value.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_control = (&raw const *control).cast_mut().cast();
        header.msg_controllen = len.min(BYTES) as _;
        let mut facts = Self::default();
        // SAFETY: these functions stay within the control buffer, which is aligned for them and
        // borrowed, and only read. `push` and the kernel write whole messages, so the data of a
        // message that fits is inside, too.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&raw const header);
            while let Some(message) = next.as_ref() {
                let data = libc::CMSG_DATA(message);
                match (message.cmsg_level, message.cmsg_type) {
                    // One byte for IPv4 and an int for IPv6.
                    (libc::IPPROTO_IP, libc::IP_TOS) => facts.tos = *data,
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        facts.tos = data.cast::<libc::c_int>().read_unaligned() as u8;
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let size = data.cast::<libc::c_int>().read_unaligned();
                        facts.segment = usize::try_from(size).ok().filter(|&size| size > 0);
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(&raw const header, message);
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_messages_are_read_back() {
        let mut control = Control::EMPTY;
        let mut len = control.push(0, libc::SOL_UDP, libc::UDP_GRO, 4112 as libc::c_int);
        len = control.push(
            len,
            libc::IPPROTO_IPV6,
            libc::IPV6_TCLASS,
            0x6a as libc::c_int,
        );
        let facts = Facts::read(&control, len);
        assert_eq!(
            facts,
            Facts {
                tos: 0x6a,
                segment: Some(4112)
            }
        );
    }
}
