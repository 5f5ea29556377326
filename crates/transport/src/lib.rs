//! Queue pairs of a RoCEv2 device, sans-IO.
//!
//! A [`Qp`] is a deterministic state machine. It owns no clock, socket, thread or random source:
//! time comes in as an argument, and everything it needs from the device around it (memory,
//! completion queues, counters, the retransmission policy) comes in as a [`Host`].
//!
//! The calls fall into four kinds, in the order every host uses them:
//!
//! * verbs: [`Qp::modify`], [`Qp::post_send`], [`Qp::post_recv`];
//! * input: [`Qp::handle_packet`], [`Qp::handle_timeout`];
//! * output, drained to the end after each of the above: [`Qp::poll_transmit`], then
//!   [`Qp::poll_timeout`] for the next deadline;
//! * getters.
//!
//! The rooms inside follow the reliable-connection protocol (IBA vol 1, chapter 9.7):
//!
//! | module | does |
//! |---|---|
//! | `requester` | decides which WQE sends when; windows, fences, credits, go-back-N |
//! | `window` | how much may be on the wire |
//! | `request` | turns a send WQE into request packets |
//! | `completer` | takes acknowledgements and responses, completes WQEs, decides about retries |
//! | `recovery` | what a timeout made it send again, and whether it had to |
//! | `responder` | executes requests, recognises duplicates |
//! | `answers` | what the responder has still to say |
//! | `owed` | which requests wait for their first answer |
//! | `serial` | sequence numbers that are remembered for longer than packets are under way |
//! | `unreliable`, `datagram` | what is different for UC and UD receives |
//! | `packet`, `bytes` | packets to send, as values |
//! | `service` | queue pair types, and whom they talk to |
//! | `audit` | checks and shortcuts for tests and simulators |
//! | `attr` | the state table and attribute rules of `ibv_modify_qp` |
#![forbid(unsafe_code)]

mod answers;
mod attr;
mod audit;
mod bytes;
mod completer;
mod counter;
mod datagram;
mod host;
mod owed;
mod packet;
mod qp;
mod recovery;
mod recv;
mod request;
mod requester;
mod resource;
mod responder;
mod serial;
mod service;
mod transition;
mod unreliable;
mod window;
mod work;

pub use attr::{AccessFlags, Attr, ModifyError, Mtu, QpAttr, QpModify, QpState};
pub use bytes::Bytes;
pub use counter::{Counter, CounterInfo};
pub use ferroce_time::{Span, Time};
pub use host::{AccessError, AtomicOp, Data, Host, Key, MemoryRef, QpEvent, Segment, TimerExpiry};
pub use packet::{Outgoing, Payload, frame_bytes};
pub use qp::{Qp, QpCap, QpConfig};
pub use recv::{ReceiveQueue, RecvWqe};
pub use service::{GRH_BYTES, Grh, Path, QpType, SendTo, UdAddress};
pub use window::{Allowance, HeldBack};
pub use work::{
    Completion, MwBind, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Sges, WcFlags, WcOpcode,
    WcStatus, WorkQueue,
};

/// Largest message of the RC service: 2^31 bytes (IBA vol 1, 9.7.2).
pub const MAX_MESSAGE_BYTES: u64 = 1 << 31;
