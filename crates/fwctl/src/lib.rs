//! Access registers through `/dev/fwctl`, from both sides.
//!
//! Linux 6.15 and newer let tools talk to the firmware of a card through a device node: a command
//! goes in as bytes, and its answer comes back. This crate has both the tool's side, for real
//! cards, and the node's side, for software devices that present themselves as cards.
//!
//! | module | purpose |
//! |---|---|
//! | [`mailbox`] | ACCESS_REG, the firmware's command for registers, and its answers |
//! | [`uapi`] | the structures of the node's two ioctls |
//! | [`card`] | real cards: find them, open them, read and write their registers |
//! | [`node`] | handling of a node's ioctls |
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
