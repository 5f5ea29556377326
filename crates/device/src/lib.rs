//! The device, sans-IO: protection domains, memory regions, completion queues, shared receive
//! queues, queue pairs, registers, counters, the timeout histogram and link impairments.
//!
//! An [`Hca`] has no clock, socket, thread or global random source. Its host (real sockets, or a
//! fabric simulator) first calls it with an input ([`Hca::handle_packet`], [`Hca::handle_timeout`],
//! or a verb), then drains the outputs ([`Hca::poll_transmit`], [`Hca::poll_completion`],
//! [`Hca::poll_event`]) and asks for the next deadline ([`Hca::poll_timeout`]).
//!
//! This example host has no network at all, so a SEND fails when its retries are used up:
//!
//! ```
//! use ferroce_device::{
//!     Hca, HcaConfig, Path, QpAttr, QpInit, QpModify, QpState, QpType, SendOp, SendWr, Sge, Sges,
//!     Time, WcStatus,
//! };
//! use ferroce_wire::Qpn;
//!
//! let mut hca = Hca::new(HcaConfig::default());
//! let (pd, cq) = (hca.alloc_pd()?, hca.create_cq(16)?);
//! let qpn = hca.create_qp(&QpInit::new(QpType::Rc, pd, cq))?;
//! let attr = QpAttr {
//!     dest_qpn: Qpn::new(0x11),
//!     timeout: 16, // 4.096 us << 16
//!     retry_cnt: 2,
//!     ..QpAttr::default()
//! };
//! let peer = Path::to([192, 0, 2, 1].into());
//! let steps = [
//!     (QpState::Reset, QpState::Init, None),
//!     (QpState::Init, QpState::Rtr, Some(peer)),
//!     (QpState::Rtr, QpState::Rts, None),
//! ];
//! for (from, to, path) in steps {
//!     hca.modify_qp(qpn, &QpModify::step(QpType::Rc, from, to, attr), path)?;
//! }
//! let nothing = SendWr {
//!     sges: Sges::new(),
//!     ..SendWr::new(7, SendOp::Send { imm: None }, Sge { addr: 0, length: 0, lkey: 0 })
//! };
//! hca.post_send(qpn, nothing)?;
//!
//! let mut now = Time::ZERO;
//! let completion = loop {
//!     while hca.poll_transmit(now).is_some() {} // lost
//!     if let Some(completion) = hca.poll_completion(cq)? {
//!         break completion;
//!     }
//!     now = hca.poll_timeout().expect("a timer runs");
//!     hca.handle_timeout(now);
//! };
//! assert_eq!((completion.wr_id, completion.status), (7, WcStatus::RetryExcErr));
//! # Ok::<(), ferroce_device::VerbsError>(())
//! ```
//!
//! `unsafe` is denied everywhere except in `memory`, the one module that accesses registered
//! memory.
#![deny(unsafe_code)]

mod admission;
mod card;
pub mod carrier;
pub mod cm;
mod congestion;
mod counters;
mod cq;
mod datagram_timers;
mod dc;
mod device;
mod ece;
mod error;
mod error_log;
mod event;
mod grh;
mod group;
mod histogram;
mod host_profile;
mod identity;
mod ids;
pub mod impair;
mod impairer;
pub mod limits;
#[allow(unsafe_code, reason = "the module that touches registered memory")]
mod memory;
mod mr;
mod numbers;
mod packet;
mod pairing;
pub mod port_attr;
mod port_counter;
mod posted;
mod qos;
mod queue_pair;
mod register;
mod remainder;
mod scheduler;
mod secret;
mod serializer;
mod services;
mod settings;
mod srq;
mod state;
mod table;
mod tx_window;
mod verbs;

pub use admission::{Admission, Applicant, Audited, Called, PathLook, Seat, Signal};
pub use card::{Card, CardError, Feature, Features, Firmware, Missing, Model};
pub use counters::CounterSlab;
pub use cq::{CqId, CqInit, Notify};
pub use device::{FlowLook, Hca, HcaConfig, LimitLook, Shape, damage};
pub use ece::Ece;
pub use error::{Object, RegisterError, VerbsError, WriteLockError};
pub use error_log::{Connection, ERRORS_MAX, ErrorLog, ErrorRecord};
pub use event::{Event, Refusal};
pub use ferroce_dcqcn::Rate;
pub use ferroce_dcqcn::rp::Phase;
pub use ferroce_transport::{
    AccessError, AccessFlags, Attr, Bytes, Completion, Counter, CounterInfo, Data, DctAddress,
    GRH_BYTES, MemoryRef, ModifyError, Mtu, MwBind, Outgoing, Path, Payload, PostError, QpAttr,
    QpCap, QpEvent, QpModify, QpState, QpType, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge,
    Sges, Span, Time, TimerExpiry, UdAddress, WcFlags, WcOpcode, WcStatus, WorkQueue,
};
pub use ferroce_wire::ethernet::{VlanId, VlanTag};
pub use ferroce_wire::{Psn, Qpn, Srqn};
pub use group::group_of_mgid;
pub use histogram::{BinWidthMode, HistogramConfig, HistogramError, TimeUnit};
pub use host_profile::HostProfile;
pub use identity::{Function, Identity};
pub use ids::{PdId, XrcdId};
pub use impair::{Direction, Impairment};
pub use limits::Limits;
pub use memory::{Borrowed, Buffer, Checked, CheckedAccess, Memory, RECOVERS, landing};
pub use mr::{MrInfo, MrKey, MwId, MwInfo, MwType};
pub use packet::Received;
pub use pairing::Pairing;
pub use port_counter::PortCounter;
pub use posted::Posted;
pub use qos::{Qos, Trust};
pub use register::{Method, Status};
pub use remainder::Remainder;
pub use secret::Secret;
pub use settings::{Personality, ROCE_ACCL_BYTES, Settings, SettingsParts};
pub use srq::{SrqAttr, SrqId, SrqModify, XrcObjects};
pub use state::{
    DeviceState, LocalSettings, MappedState, SettingError, SettingsStore, StateBlock, VfBlock,
};
pub use verbs::{CqLook, MrModify, MwBindWr, QpInit, QpLook, RegFlags, SrqLook};
