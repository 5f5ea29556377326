//! A queue pair, and what the device knows about it.

use std::net::IpAddr;

use ferroce_dcqcn::np::CnpTimer;
use ferroce_dcqcn::rp::NvidiaConfig;
use ferroce_transport::{Path, Qp, QpType, Span, Time};

use crate::admission::{Applicant, Seat};
use crate::congestion::Limiter;
use crate::cq::Unpolled;
use crate::pairing::{LinkNumber, spread};
use crate::services::QpObjects;

/// A queue pair with nothing in flight for so long has been silent (`roce_slow_restart_idle_en`): longer
/// than round trips in a data centre, so that one that merely waits for answers is not. No source names
/// the card's.
const SILENCE: Span = Span::from_millis(1);

/// A queue pair and what the device knows about it; what packets need stands together.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QpEntry {
    /// It waits for the port, in this queue.
    pub(crate) ready: Option<u8>,
    /// It is on the list of queue pairs that have worked.
    pub(crate) used: bool,
    /// The GID that it was bound to is gone: it neither sends nor receives any more (F21).
    pub(crate) is_severed: bool,
    /// Its next packet restarts slowly: the reaction point takes it for a CNP.
    pub(crate) restarts: bool,
    /// Its ECE options have been set.
    pub(crate) has_ece: bool,
    /// The link of a bond that the program has chosen for it; 0: none.
    pub(crate) lag_port: u8,
    pub(crate) path: Option<Path>,
    pub(crate) objects: QpObjects,
    pub(crate) unpolled: Unpolled,
    /// Present while CNPs, or what counts as such, slow it down.
    pub(crate) limiter: Option<Box<Limiter>>,
    /// Its entry in the timer heap; `NEVER` if it has none.
    pub(crate) timer_at: Time,
    pub(crate) seat: Seat,
    pub(crate) qp: Qp,
    /// Of the CNPs that answer its packets.
    pub(crate) cnp_timer: CnpTimer,
    /// CNPs of its peers that it has handled.
    pub(crate) cnps: u32,
    /// How many times it is open (`ibv_open_qp`).
    pub(crate) handles: u32,
    /// The address from which its own multicasts come back, if it wants none of them.
    pub(crate) blocked_echo: Option<Box<IpAddr>>,
}

const _: () = {
    // Its place in the table, and two entries in the timer heap.
    let around = size_of::<usize>() + 2 * size_of::<(Time, u32)>();
    assert!(size_of::<QpEntry>() + around <= 1024, "a QP at rest");
};

impl QpEntry {
    pub(crate) fn new(qp: Qp, objects: QpObjects) -> Self {
        Self {
            qp,
            objects,
            unpolled: Unpolled::default(),
            path: None,
            seat: Seat::default(),
            handles: 1,
            blocked_echo: None,
            cnp_timer: CnpTimer::default(),
            cnps: 0,
            limiter: None,
            timer_at: Time::NEVER,
            ready: None,
            used: false,
            is_severed: false,
            restarts: false,
            lag_port: 0,
            has_ece: false,
        }
    }

    /// The link of a bond that its packets belong on; see [`Hca::set_lag_port`](crate::Hca::set_lag_port).
    pub(crate) fn lag_link(&self, index: u32) -> LinkNumber {
        match self.lag_port {
            0 => spread(index),
            port => port,
        }
    }

    /// As its device's admission sees it.
    #[inline]
    pub(crate) fn applicant(&mut self, index: u32) -> Applicant<'_> {
        Applicant {
            index,
            sleeps: self.sleeps(),
            qp: &mut self.qp,
            seat: &mut self.seat,
        }
    }

    /// Has congestion control slow it down: a CNP has come, or something that counts as one.
    pub(crate) fn slow_down(&mut self, config: &NvidiaConfig, now: Time) {
        match &mut self.limiter {
            Some(limiter) => limiter.on_cnp(config, now),
            None => self.limiter = Some(Box::new(Limiter::new(config, now))),
        }
    }

    /// Whether its next packet is the first after a silence: it has sent before, all of that has been
    /// answered, and the last answer came long ago.
    pub(crate) fn ends_silence(&self, now: Time) -> bool {
        let since = self.qp.retry().silent_since();
        since > Time::ZERO
            && now.since(since) >= SILENCE
            && self.qp.in_flight() == 0
            && self.qp.has_unsent()
    }

    /// Whether it is a target of the dynamically connected transport.
    pub(crate) fn is_target(&self) -> bool {
        self.qp.config().qp_type == QpType::Dct
    }

    /// Whether programs know it.
    pub(crate) fn is_shown(&self) -> bool {
        self.qp.config().qp_type != QpType::DcResponder
    }

    /// Whether it waits for the port.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// The path of its next packet: its own, or that of the datagram that is next.
    pub(crate) fn next_path(&self) -> Option<Path> {
        let datagram = || self.qp.next_datagram().map(|to| to.path);
        self.path.or_else(datagram)
    }

    /// Whether its limiter makes it wait.
    pub(crate) fn sleeps(&self) -> bool {
        let limiter = self.limiter.as_ref();
        limiter.is_some_and(|it| it.wait_until().is_some())
    }

    /// Its deadline, if that is earlier than its entry in the timer heap. It is to get another one.
    #[inline]
    pub(crate) fn next_deadline(&mut self) -> Option<Time> {
        let deadline = self.deadline()?;
        if self.timer_at <= deadline {
            return None;
        }
        self.timer_at = deadline;
        Some(deadline)
    }

    /// When it wants to be looked at: a timeout, or the end of a limiter's wait.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let turn = self.limiter.as_ref().and_then(|it| it.wait_until());
        earlier(self.qp.poll_timeout(), turn)
    }

    /// Whether it has nothing to send, and waits for no room to send it.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.qp.is_quiet() && !self.seat.waits()
    }
}

/// The earlier of two deadlines.
#[inline]
pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (either, None) | (None, either) => either,
    }
}
