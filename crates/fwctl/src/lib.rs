//! Access registers through `/dev/fwctl`, from both ends.
//!
//! Linux 6.15 and newer let tools talk to the firmware of a card through a device node: a command
//! goes in as bytes, its answer comes back. Here is the tool's end, for real cards, and the node's
//! end, for devices in software that show themselves as cards.
//!
//! | module | does |
//! |---|---|
//! | [`mailbox`] | ACCESS_REG, the firmware's command for registers, and its answers |
//! | [`uapi`] | the structures of the node's two ioctls |
//! | [`card`] | real cards: finding, opening, reading and writing registers |
//! | [`node`] | what a node does with an ioctl |
//! | `ioctl` | the system call |
//!
//! Sources: the kernel's `include/uapi/fwctl/` and `Documentation/userspace-api/fwctl/`, and the
//! ACCESS_REG command of the Adapters' Programmer's Reference Manual.
#![deny(unsafe_code)]

pub mod card;
#[allow(unsafe_code)]
mod ioctl;
pub mod mailbox;
pub mod node;
pub mod uapi;
