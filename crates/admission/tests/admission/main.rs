//! Many queue pairs that send into one receive buffer: nothing is lost, all get their turn.

mod bound;
mod link;
mod processes;
mod share;
mod silent;
mod slow;
mod turns;
