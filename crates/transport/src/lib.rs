//! Queue pairs of a RoCEv2 device, sans-IO.
//!
//! A [`Qp`] is a deterministic state machine. It owns no clock, socket, thread or random source:
//! time is an argument, and everything it needs from its device (memory, completion queues,
//! counters, the retransmission policy) is provided by its [`Services`].
//!
//! There are four kinds of calls, which every host of a device uses in this order:
//!
//! * verbs: [`Qp::modify`], [`Qp::post_send`], [`Qp::post_recv`];
//! * input: [`Qp::handle_packet`], [`Qp::handle_timeout`];
//! * output, drained completely after each of the above: [`Qp::poll_transmit`], then
//!   [`Qp::poll_timeout`] for the next deadline;
//! * getters.
//!
//! The modules follow the reliable-connection protocol (IBA vol 1, chapter 9.7):
//!
//! | module | purpose |
//! |---|---|
//! | `requester` | decides when each WQE is sent; windows, fences, credits, go-back-N |
//! | `config` | the parameters of a queue pair |
//! | `window` | how much may be in flight |
//! | `request` | turns a send WQE into request packets |
//! | `completer` | handles acknowledgements and responses, completes WQEs, decides about retries |
//! | `recovery` | what to retransmit after a timeout, and whether it was necessary |
//! | `selective`, `repair`, `missing` | selective repeat: what is known of the peer and of each packet, and what is sent again |
//! | `responder` | executes requests, recognises duplicates |
//! | `answers` | the responder's pending answers |
//! | `kept` | packets that came before their turn |
//! | `owed` | requests that wait for their first answer |
//! | `serial` | sequence numbers that are stored for longer than packets are in flight |
//! | `dc` | the initiator of the dynamically connected transport |
//! | `unreliable`, `datagram` | UC and UD receives |
//! | `packet`, `bytes` | packets to send, as values |
//! | `service` | queue pair types and their peers |
//! | `audit`, `shorten` | checks and shortcuts for tests and simulators |
//! | `attr` | the state table and attribute rules of `ibv_modify_qp` |
#![forbid(unsafe_code)]

mod answers;
mod attr;
mod audit;
mod bytes;
mod completer;
mod config;
mod counter;
mod datagram;
mod dc;
mod fault;
mod kept;
mod memory;
mod missing;
mod owed;
mod packet;
mod qp;
mod recovery;
mod recv;
mod reorder;
mod repair;
mod request;
mod requester;
mod resource;
mod responder;
mod selective;
mod serial;
mod service;
mod services;
mod shorten;
mod unreliable;
mod window;
mod work;

pub use attr::{AccessFlags, Attr, ModifyError, Mtu, QpAttr, QpModify, QpState};
pub use bytes::Bytes;
pub use config::{Allowance, HeldBack, QpCap, QpConfig};
pub use counter::{Counter, CounterInfo};
pub use ferroce_base::time::{Span, Time};
pub use memory::{AccessError, AtomicOp, Data, Key, MemoryRef, Segment};
pub use packet::{Outgoing, Payload, frame_bytes};
pub use qp::Qp;
pub use recv::ReceiveQueue;
pub use service::{DctAddress, GRH_BYTES, Grh, Path, QpType, SendTo, UdAddress};
pub use services::{QpEvent, Services, TimerExpiry};
pub use shorten::UnsentWrite;
pub use work::{
    Completion, MAX_MESSAGE_BYTES, MwBind, PostError, RecvWqe, RecvWr, SendFlags, SendOp, SendWr,
    Sge, Sges, WcFlags, WcOpcode, WcStatus, WorkQueue,
};
