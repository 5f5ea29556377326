//! The device from outside: registers, objects, queues, drops, and what survives what.

#[path = "../common/mod.rs"]
mod common;

mod datagram;
mod drops;
mod lifetime;
mod mr;
mod mw;
mod objects;
mod phantom;
mod policy;
mod queues;
mod registers;
mod window;
mod xrc;
