//! What rules are about.

/// A call, completions, or an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names of verbs.h and rdma_cma.h")]
pub enum Target {
    PostSend,
    PostRecv,
    PollCq,
    RegMr,
    ModifyQp,
    CreateQp,
    RdmaCreateId,
    RdmaBindAddr,
    RdmaResolveAddr,
    RdmaResolveRoute,
    RdmaCreateQp,
    RdmaListen,
    RdmaConnect,
    RdmaAccept,
    RdmaGetCmEvent,
    RdmaDisconnect,
    /// A completion that a program takes.
    Completion,
    CqErr,
    QpFatal,
    QpReqErr,
    QpAccessErr,
    CommEst,
    SqDrained,
    DeviceFatal,
    PortActive,
    PortErr,
    SrqLimitReached,
    QpLastWqeReached,
    GidChange,
}

/// Which effects a target can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A call on a queue pair.
    QpCall,
    /// Another call on a device.
    Call,
    /// A call that is made before a device is chosen.
    EarlyCall,
    /// A completion.
    Completion,
    /// An event of a queue pair.
    QpEvent,
    /// An event of another object or of the whole device.
    Event,
    /// An event that names a port.
    PortEvent,
}

impl Target {
    /// Every target with its name and kind, in the order of their numbers.
    pub const ALL: &[(Self, &str, Kind)] = &[
        (Self::PostSend, "post_send", Kind::QpCall),
        (Self::PostRecv, "post_recv", Kind::QpCall),
        (Self::PollCq, "poll_cq", Kind::Call),
        (Self::RegMr, "reg_mr", Kind::Call),
        (Self::ModifyQp, "modify_qp", Kind::QpCall),
        (Self::CreateQp, "create_qp", Kind::Call),
        (Self::RdmaCreateId, "rdma_create_id", Kind::EarlyCall),
        (Self::RdmaBindAddr, "rdma_bind_addr", Kind::EarlyCall),
        (Self::RdmaResolveAddr, "rdma_resolve_addr", Kind::EarlyCall),
        (Self::RdmaResolveRoute, "rdma_resolve_route", Kind::Call),
        (Self::RdmaCreateQp, "rdma_create_qp", Kind::Call),
        (Self::RdmaListen, "rdma_listen", Kind::EarlyCall),
        (Self::RdmaConnect, "rdma_connect", Kind::Call),
        (Self::RdmaAccept, "rdma_accept", Kind::Call),
        (Self::RdmaGetCmEvent, "rdma_get_cm_event", Kind::EarlyCall),
        (Self::RdmaDisconnect, "rdma_disconnect", Kind::Call),
        (Self::Completion, "completion", Kind::Completion),
        (Self::CqErr, "CQ_ERR", Kind::Event),
        (Self::QpFatal, "QP_FATAL", Kind::QpEvent),
        (Self::QpReqErr, "QP_REQ_ERR", Kind::QpEvent),
        (Self::QpAccessErr, "QP_ACCESS_ERR", Kind::QpEvent),
        (Self::CommEst, "COMM_EST", Kind::QpEvent),
        (Self::SqDrained, "SQ_DRAINED", Kind::QpEvent),
        (Self::DeviceFatal, "DEVICE_FATAL", Kind::Event),
        (Self::PortActive, "PORT_ACTIVE", Kind::PortEvent),
        (Self::PortErr, "PORT_ERR", Kind::PortEvent),
        (Self::SrqLimitReached, "SRQ_LIMIT_REACHED", Kind::Event),
        (Self::QpLastWqeReached, "QP_LAST_WQE_REACHED", Kind::QpEvent),
        (Self::GidChange, "GID_CHANGE", Kind::PortEvent),
    ];

    /// The names of all targets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(_, name, _)| *name)
    }

    /// The target of a name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, other, _)| *other == name);
        found.map(|(target, ..)| *target)
    }

    /// Its name: that of the call without `ibv_`, or of the event without `IBV_EVENT_`.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Which effects it can have.
    pub fn kind(self) -> Kind {
        Self::ALL[self as usize].2
    }
}

impl Kind {
    /// Whether a device belongs to it, by which rules can select.
    pub fn has_device(self) -> bool {
        self != Self::EarlyCall
    }

    /// Whether a queue pair belongs to it, by which rules can select.
    pub fn has_qp(self) -> bool {
        matches!(self, Self::QpCall | Self::Completion | Self::QpEvent)
    }
}

/// A set of targets: one bit for each, in the order of their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Targets(pub u64);

impl Targets {
    /// Whether a target is in the set.
    #[inline]
    pub const fn contains(self, target: Target) -> bool {
        self.0 >> target as u8 & 1 != 0
    }
}

impl FromIterator<Target> for Targets {
    fn from_iter<I: IntoIterator<Item = Target>>(targets: I) -> Self {
        let bits = targets.into_iter().map(|target| 1 << target as u8);
        Self(bits.fold(0, |all, bit: u64| all | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_listed_in_order_of_their_numbers() {
        for (index, (target, name, kind)) in Target::ALL.iter().enumerate() {
            assert_eq!(*target as usize, index);
            assert_eq!(Target::named(name), Some(*target));
            assert_eq!((target.name(), target.kind()), (*name, *kind));
        }
        assert!(Target::ALL.len() <= 64);
    }

    #[test]
    fn sets_contain_what_was_put_in() {
        let set: Targets = [Target::PostSend, Target::GidChange].into_iter().collect();
        for (target, ..) in Target::ALL {
            let expected = [Target::PostSend, Target::GidChange].contains(target);
            assert_eq!(set.contains(*target), expected, "{target:?}");
        }
    }
}
