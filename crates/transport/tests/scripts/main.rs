//! Packet scripts: exchanges between two queue pairs, one file per topic.

#[path = "../common/mod.rs"]
mod common;

mod acknowledge;
mod after_a_timeout;
mod bounds;
mod credits;
mod distance;
mod duplicates;
mod errors;
mod forged;
mod local;
mod loss;
mod operations;
mod order;
mod receiver_not_ready;
mod resources;
mod retransmissions;
mod retry_budget;
mod routing;
mod selective;
mod shorten;
mod stalls;
mod states;
mod timeouts;
mod unreliable;
mod xrc;
