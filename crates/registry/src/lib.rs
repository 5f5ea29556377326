//! The devices of a user: which exist, the state that the processes of a device share, and what these
//! report. Programs that only read or change devices need nothing else.
//!
//! | module | purpose |
//! |---|---|
//! | `spec`, `registry` | the devices of a user, each a TOML file |
//! | [`impairment`] | link impairments as text |
//! | `shared` | the file that the processes of a device map: settings, counters, slots, mailboxes |
//! | `netlink`, [`gids`](GidTable) | the host's interfaces and addresses: ports that go down, GIDs |
//! | `resource` | the rows of `ferroce res` |
//! | `question` | queries a process for them, and answers |
//! | [`FaultTable`] | the fault rules that processes share |
//! | [`Inquiry`] | queries many processes at a time |
//! | [`Observer`] | a view of a device from outside |
//!
//! `unsafe` is denied everywhere except in `shared::map`, which maps the file.
#![deny(unsafe_code)]

mod gids;
pub mod impairment;
mod inquiry;
mod netlink;
mod observer;
mod question;
mod registry;
mod resource;
mod shared;
mod spec;
mod sync;

pub use ferroce_prm::PciAddress;
pub use gids::{Address, GidTable};
pub use inquiry::{Answer, Inquiry};
pub use netlink::{News, Subscription, addresses};
pub use observer::{Observer, PortLook};
pub use question::{QueryError, Question};
pub use registry::{Registry, RegistryError};
pub use resource::{
    CmIdRow, Counts, CqRow, FlowRow, Form, KINDS, Key, Kind, LimitRow, MrRow, PdRow, PeerLink,
    PeerLinks, PeerRow, QpRow, QpStates, Query, Resource, ResourceRow, SrqRow, rows,
};
pub use shared::{
    ATTENTION, Asking, FaultError, FaultRow, FaultTable, Mailbox, Membership, Peer, PeerFile,
    Place, Presence, Process, Reader, Round, SLOT_MAX, ServiceClaim, ServiceError, ServiceScope,
    SharedFile, Undelivered, file_name, settings_from_bytes, settings_to_bytes,
};
pub use spec::{
    DeviceSpec, Emulation, LaneSpeed, LinkSetting, PortSpeed, SpecError, TrustSetting, Vf,
    WindowSetting,
};
