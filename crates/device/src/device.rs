//! The device and its parts. Verbs are in [`crate::verbs`]; everything else is in these modules:
//!
//! | module | content |
//! |---|---|
//! | `config` | the parameters of a new device |
//! | `control` | registers and settings, read and written from outside |
//! | `receive` | incoming packets: the impaired link, their destination, and permission checks |
//! | `transmit` | outgoing packets: the order of queue pairs, and the impaired link |
//! | `payload`, `shape` | the bytes of those packets |
//! | `timers` | deadlines: when the host must call again, and what happens then |
//! | `queue_pair` | a queue pair in its device |
//! | `rest` | releases memory that an idle device does not need |
//! | `link` | the links, of which a card with two ports or a bond has two |
//! | `carrier` | the state of a link's carrier, and the events for it |
//! | `congestion`, `flows` | congestion control, and its state for display |
//! | `dc` | packets for targets of the dynamically connected transport |
//! | `cm` | the connection manager's packets |
//! | `audit` | consistency checks |

mod audit;
mod carrier;
mod cm;
mod config;
mod congestion;
mod control;
mod dc;
mod flows;
mod link;
mod payload;
mod queue_pair;
mod receive;
mod rest;
mod shape;
mod timers;
mod transmit;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;

use ferroce_adp::{Policy, PolicyKind};
use ferroce_transport::Time;

use self::carrier::Carrier;
pub use self::config::HcaConfig;
pub use self::flows::{FlowLook, LimitLook};
use self::link::{Link, Second};
pub(crate) use self::queue_pair::Found;
pub use self::shape::{Shape, damage};
use crate::admission::Admission;
use crate::cm::Cm;
use crate::congestion::Congestion;
use crate::dc::Connections;
use crate::event::Event;
use crate::group::Groups;
use crate::identity::Identity;
use crate::mr::KeyTable;
use crate::numbers::Numbers;
use crate::posted::Posted;
use crate::qos::Qos;
use crate::queue_pair::QpEntry;
use crate::remainder::Remainder;
use crate::scheduler::{Port, Scheduler};
use crate::serializer::Serializer;
use crate::services::{Common, SlowRestart};
use crate::settings::Settings;
use crate::state::DeviceState;
use crate::table::Table;

/// A RoCE device; see the crate's documentation for the order of calls.
///
/// Fields are in the order in which packets need them, those that every packet needs first. In a
/// simulation, nothing of the next device is in the processor's caches.
#[derive(Debug)]
#[repr(C)]
pub struct Hca {
    pub(crate) common: Common,
    /// The present settings among those of the device's state.
    generation: u64,
    pub(crate) qps: Table<Box<QpEntry>>,
    /// See [`Hca::departure`].
    departure: Time,
    first: Link,
    /// Of a card with two ports, or of a bond.
    second: Option<Box<Second>>,
    /// See [`Hca::take_posted`].
    pub(crate) posted: Posted,
    /// See [`Hca::remainder`].
    remainder: Remainder,
    /// Made when first needed.
    pub(crate) cm: OnceCell<Box<Cm>>,
    /// [`Event::ConnectionManager`] was told and its events not yet all taken.
    pub(crate) cm_told: bool,
    /// The DSCP of acknowledgements, if the settings say one.
    ack_dscp: Option<u8>,
    /// New queue pairs repeat selectively.
    pub(crate) selective_repeat: bool,
    /// Their packets take many paths.
    pub(crate) adaptive_routing: bool,
    pub(crate) scheduler: Scheduler,
    pub(crate) congestion: Congestion,
    pub(crate) config: HcaConfig,
    /// Settings in force.
    settings: Arc<Settings>,
    /// Users of each protection domain.
    pub(crate) pds: Table<u32>,
    /// Users of each XRC domain.
    pub(crate) xrcds: Table<u32>,
    pub(crate) groups: Groups,
    /// Of its targets of the dynamically connected transport.
    pub(crate) connections: Connections,
}

const _: () = {
    let device = size_of::<Hca>() + DeviceState::LOCAL_BYTES;
    assert!(
        device <= 2048,
        "a device without objects, beside its settings"
    );
};

impl Hca {
    /// Creates a device in its power-on state, for one process.
    pub fn new(config: HcaConfig) -> Self {
        let state = DeviceState::new(config.personality);
        Self::with_state(config, state)
    }

    /// The quality of service settings of its port.
    #[inline]
    pub fn qos(&self) -> Qos {
        self.config.qos
    }

    /// Creates a device for one process, with settings that other devices may share; the
    /// configuration's personality is not used.
    pub fn with_settings(config: HcaConfig, settings: Arc<Settings>) -> Self {
        let state = DeviceState::local(settings, Identity::default());
        Self::with_state(config, state)
    }

    /// Creates a device with its registers, personality, impairments and counters in `state`; the
    /// configuration's personality is not used.
    pub fn with_state(mut config: HcaConfig, state: DeviceState) -> Self {
        config.limits = config.limits.capped();
        config.speed = config.host.port_rate.unwrap_or(config.speed);
        let limits = config.limits;
        let mut policy = Policy::new(PolicyKind::FIRMWARE);
        policy.seed = config.seed;
        let (generation, settings) = state.load();
        let secret = config.secret.unwrap_or_default();
        let carrier = settings.has_outages().then(|| Carrier::unseen(&state));
        let scheduler = Scheduler::new(Port::new(&config.host, config.qos));
        let mut hca = Self {
            common: Common {
                now: Time::ZERO,
                state,
                second: None,
                port: 1,
                link: 1,
                kept_bytes: 0,
                slow_restart: SlowRestart::default(),
                routed_packets: 0,
                serializer: Serializer::new(config.host.port_rate, config.qos.tag_len()),
                keys: KeyTable::new(limits.max_mr, limits.max_mw, secret),
                cqs: Table::new(limits.max_cq),
                srqs: Table::new(limits.max_srq),
                events: VecDeque::new(),
                numbers: Numbers::new(config.slot, secret),
                policy,
                trace_timers: config.trace_timers,
            },
            generation,
            ack_dscp: None,
            selective_repeat: false,
            adaptive_routing: false,
            pds: Table::new(limits.max_pd),
            xrcds: Table::new(limits.max_xrcd),
            qps: Table::new(limits.max_qp),
            groups: Groups::default(),
            connections: Connections::default(),
            scheduler,
            departure: Time::ZERO,
            first: Link::new(config.seed, carrier),
            second: None,
            congestion: Congestion::new(
                Arc::clone(&settings),
                config.qos,
                config.speed,
                config.switches,
            ),
            settings: Arc::clone(&settings),
            cm: OnceCell::new(),
            cm_told: false,
            posted: Posted::default(),
            remainder: Remainder::None,
            config,
        };
        hca.enforce(settings);
        hca
    }

    /// Gives a device without queue pairs an admission, which decides how much all of them may have in
    /// flight. Without one, only their own windows limit them.
    #[must_use]
    pub fn with_admission(mut self, admission: Box<dyn Admission>) -> Self {
        debug_assert_eq!(self.qps.len(), 0, "queue pairs that are not admitted");
        self.scheduler.set_admission(admission);
        self
    }

    /// Returns the configuration that the device was created with.
    pub fn config(&self) -> &HcaConfig {
        &self.config
    }

    /// Returns the registers, personality, impairments, histogram and counters, for observers.
    pub fn state(&self) -> &DeviceState {
        &self.common.state
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the retransmission policy in force.
    pub fn policy(&self) -> &Policy {
        &self.common.policy
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        // What the program has polled meanwhile may have been in the way of one.
        self.tell_cm();
        self.common.events.pop_front()
    }
}
