//! Many queue pairs that send into one receive buffer: nothing is lost, and each gets its turn.

mod bound;
mod link;
mod processes;
mod share;
mod silent;
mod slow;
mod turns;
