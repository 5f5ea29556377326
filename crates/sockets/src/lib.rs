//! Packets on UDP sockets.
//!
//! | module | purpose |
//! |---|---|
//! | `socket` | one UDP socket with segmentation, coalescing, traffic class; the only system calls on the packet path |
//! | `stage` | turns packets into bytes with ICRC and collects them into batches of one system call |
//! | `trailers` | which peers take trailers behind packets, which make those of a batch equally long |
//! | `exits` | the sockets that packets of adaptive routing leave by |
//! | `foreign` | packets that other users of this host have forged |
//! | `fault` | errors on the sending path, each reported once |
//! | `groups` | the multicast groups that the host has joined for the device |
//! | `overflow` | packets that the kernel has dropped |
//!
//! `unsafe` is denied everywhere except in `socket`, which makes system calls.
#![deny(unsafe_code)]

mod exits;
mod fault;
mod foreign;
mod groups;
mod overflow;
#[allow(unsafe_code, reason = "system calls")]
mod socket;
mod stage;
mod trailers;

pub use exits::{Exit, Exits};
pub use fault::Faults;
pub use foreign::ForeignPorts;
pub use groups::Groups;
pub use overflow::Overflow;
pub use socket::{
    BindError, Datagram, Datagrams, Granted, Message, Messages, Options, PAYLOAD_BYTES_MAX, PROBE,
    RecvBuffers, Routes, SEGMENTS_MAX, SendError, Sent, Socket,
};
pub use stage::{Refused, Stage, WouldBlock};
pub use trailers::Trailers;
