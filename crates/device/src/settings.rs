//! All settings of a card, as one immutable value. To change a setting, replace the value. Any
//! number of devices can share one.

mod accelerations;
mod personality;

use ferroce_adp::{AckTimeoutFloor, PolicyKind};
use ferroce_dcqcn::Params;
use ferroce_transport::Time;

use self::accelerations::Accelerations;
pub use self::accelerations::ROCE_ACCL_BYTES;
pub use self::personality::Personality;
use crate::card::Features;
use crate::carrier::{Outages, Outlook, Schedule};
use crate::identity::Function;
use crate::impair::{Direction, Impairment};

/// All settings of a card at one time: registers, personality, impairments, congestion control.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    pub(crate) roce_accl: Accelerations,
    personality: Personality,
    egress: Impairment,
    ingress: Impairment,
    pub(crate) congestion: Params,
    nvconfig: Params,
    pub(crate) schedule: Schedule,
}

/// What [`Settings`] consist of, for hosts that keep them elsewhere than in memory of their own.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names say what they are")]
pub struct SettingsParts {
    pub roce_accl: [u8; ROCE_ACCL_BYTES],
    pub floor_disabled: u128,
    pub personality: Personality,
    pub egress: Impairment,
    pub ingress: Impairment,
    pub congestion: Params,
    pub nvconfig: Params,
    pub schedule: Schedule,
}

/// What a function's queue pairs do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    /// How their timeouts follow each other.
    pub(crate) policy: PolicyKind,
    /// Their smallest ACK timeout.
    pub(crate) floor: AckTimeoutFloor,
    /// The DSCP with which acknowledgements leave, if it is not that of their queue pair.
    pub(crate) ack_dscp: Option<u8>,
    /// Whether those that are created now repeat selectively.
    pub(crate) selective_repeat: bool,
    /// Whether their packets take many paths.
    pub(crate) adaptive_routing: bool,
    /// Whether each has a window of its own that follows losses.
    pub(crate) transmission_window: bool,
    /// Whether what has to be sent again counts as a CNP.
    pub(crate) slow_restart: bool,
    /// Whether the end of a silence counts as a CNP.
    pub(crate) slow_restart_idle: bool,
    /// Bytes that they send back to back while congestion control limits them.
    pub(crate) burst_bytes: u16,
}

impl Settings {
    /// After power-on.
    pub fn new(personality: Personality) -> Self {
        let personality = personality.clipped();
        Self {
            roce_accl: Accelerations::reset(&personality),
            personality,
            egress: Impairment::default(),
            ingress: Impairment::default(),
            congestion: Params::default(),
            nvconfig: Params::default(),
            schedule: Schedule::default(),
        }
    }

    /// The same after power-on of a card with these persistent parameters of congestion control.
    #[must_use]
    pub fn with_nvconfig(self, nvconfig: Params) -> Self {
        Self {
            congestion: nvconfig.clone(),
            nvconfig,
            ..self
        }
    }

    /// Decodes settings. What makes no sense is replaced by something that does: a profile by none,
    /// an impairment by none, numbers by the nearest.
    pub fn from_parts(parts: SettingsParts) -> Self {
        let legal = |it: Impairment| match it.check() {
            Ok(()) => it,
            Err(_) => Impairment::default(),
        };
        Self {
            roce_accl: Accelerations::from_parts(parts.roce_accl, parts.floor_disabled),
            personality: parts.personality.clipped(),
            egress: legal(parts.egress),
            ingress: legal(parts.ingress),
            congestion: parts.congestion,
            nvconfig: parts.nvconfig,
            schedule: parts.schedule,
        }
    }

    /// The inverse of [`Self::from_parts`].
    pub fn to_parts(&self) -> SettingsParts {
        SettingsParts {
            roce_accl: *self.roce_accl.bytes(),
            floor_disabled: self.roce_accl.floors_disabled(),
            personality: self.personality,
            egress: self.egress.clone(),
            ingress: self.ingress.clone(),
            congestion: self.congestion.clone(),
            nvconfig: self.nvconfig.clone(),
            schedule: self.schedule.clone(),
        }
    }

    /// Behaviour of the firmware that no register controls.
    pub fn personality(&self) -> &Personality {
        &self.personality
    }

    pub(crate) fn set_personality(&mut self, personality: Personality) {
        self.personality = personality.clipped();
    }

    /// What the link does to packets in one direction. Blackouts are points in the host's time.
    pub fn impairment(&self, direction: Direction) -> &Impairment {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// `impairment` has been checked.
    pub(crate) fn set_impairment(&mut self, direction: Direction, impairment: Impairment) {
        match direction {
            Direction::Egress => self.egress = impairment,
            Direction::Ingress => self.ingress = impairment,
        }
    }

    /// When the port is down: by its schedule, and in blackouts that it notices.
    pub(crate) fn outages(&self) -> impl Iterator<Item = Outages> + Clone {
        let links = [&self.egress, &self.ingress].into_iter();
        let noticed = links.filter(|it| it.carrier).flat_map(|it| &it.blackouts);
        let noticed = noticed.map(|it| Outages::once(it.from, it.length));
        self.schedule.outages().iter().copied().chain(noticed)
    }

    /// These with the schedule of others.
    pub(crate) fn with_schedule_of(&self, other: &Self) -> Self {
        let mut own = self.clone();
        own.schedule.clone_from(&other.schedule);
        own
    }

    /// Whether the port is ever down.
    pub(crate) fn has_outages(&self) -> bool {
        self.outages().next().is_some()
    }

    /// How the port is at a point in time.
    pub(crate) fn outlook(&self, at: Time) -> Outlook {
        Outlook::of(self.outages(), at)
    }

    /// The parameters of congestion control.
    pub fn congestion(&self) -> &Params {
        &self.congestion
    }

    /// The parameters of congestion control with which the firmware starts. They are persistent, as
    /// those that mlxconfig sets on a card.
    pub fn nvconfig(&self) -> &Params {
        &self.nvconfig
    }

    pub(crate) fn set_nvconfig(&mut self, nvconfig: Params) {
        self.nvconfig = nvconfig;
    }

    /// What the firmware forgets when it restarts: ROCE_ACCL, and the parameters of congestion control
    /// that were set since it started.
    pub(crate) fn restart_firmware(&mut self) {
        self.reset_registers();
        self.congestion = self.nvconfig.clone();
    }

    /// ROCE_ACCL after power-on, for all functions.
    pub(crate) fn reset_registers(&mut self) {
        self.roce_accl = Accelerations::reset(&self.personality);
    }

    /// What queue pairs do on a card that has these features.
    pub(crate) fn in_force(&self, features: Features, function: &Function) -> InForce {
        let registers = self.roce_accl.of_card(features);
        InForce {
            policy: registers.policy_kind(&self.personality),
            floor: registers.ack_timeout_floor(function, &self.personality),
            ack_dscp: registers.ack_dscp(),
            selective_repeat: registers.selective_repeat(),
            adaptive_routing: registers.adaptive_routing(),
            transmission_window: registers.transmission_window(),
            slow_restart: registers.slow_restart(),
            slow_restart_idle: registers.slow_restart_idle(),
            burst_bytes: registers.burst_bytes(),
        }
    }

    /// Whether a DCI sends to a target before that has accepted the connection.
    pub(crate) fn dc_half_handshake(&self) -> bool {
        self.roce_accl.dc_half_handshake()
    }
}
