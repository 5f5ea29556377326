//! The connection manager: the messages of both sides, and what happens if they are lost.

mod bounds;
mod connect;
mod datagram;
mod end;
mod ending;
mod foreign;
mod lies;
mod linux;
mod loss;
mod net;
mod strangers;

const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;
