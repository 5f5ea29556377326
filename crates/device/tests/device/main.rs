//! The device from outside: registers, objects, queues, drops, and lifetimes.

mod ack_dscp;
mod cards;
mod datagram;
mod dc;
mod drops;
mod histogram_registers;
mod lifetime;
mod mr;
mod mw;
mod objects;
mod other_registers;
mod outage;
mod phantom;
mod policy;
mod queues;
mod registers;
mod routing;
mod selective;
mod xrc;
