//! Calls that must be refused, and change nothing.

use ferroce_device::{
    DctAddress, MwBind, Path, PostError, QpAttr, QpCap, QpState, QpType, Qpn, RecvWr, SendFlags,
    SendOp, SendTo, SendWr, Sge, Sges, Srqn, UdAddress, VerbsError,
};

use super::Play;
use super::host::Host;
use crate::coverage::Verb;
use crate::network::address;
use crate::rules::{Reason, against_receive, against_send};

/// What of a queue pair a call that was refused must not have changed.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Standing {
    pub(super) state: QpState,
    pub(super) cap: QpCap,
    attr: QpAttr,
    path: Option<Path>,
    /// Places that are taken in its send queue.
    used: usize,
    receives: usize,
    /// Receives that are not complete, as far as the program knows.
    unfinished: usize,
    in_flight: u32,
}

/// A shared receive queue that does not exist.
pub(super) const NO_SRQ: Srqn = Srqn::new(0xff_fffe);

/// How many operations of requests a script can name.
pub(crate) const OPERATIONS: u64 = 9;
/// How many faults of requests; 0 is that of the place alone.
pub(crate) const FAULTS: u64 = 7;

const TOO_MANY: u64 = 1;
const INLINE_TOO_LONG: u64 = 2;
const INLINE_WITHOUT_BYTES: u64 = 3;
const BYTES_WITHOUT_INLINE: u64 = 4;
const ELSEWHERE: u64 = 5;
const TOO_LONG: u64 = 6;

/// The queue pair of a call that is to be refused.
struct Odd {
    qpn: Qpn,
    kind: QpType,
    is_shared: bool,
    /// `None` if it was destroyed.
    before: Option<Standing>,
}

impl Odd {
    fn cap(&self) -> QpCap {
        self.before.as_ref().map_or(QpCap::NONE, |it| it.cap)
    }
}

impl Host {
    /// How a queue pair stands; `None` if it does not exist.
    pub(super) fn standing(&self, qpn: Qpn) -> Option<Standing> {
        let (state, attr, path) = self.hca.query_qp(qpn).ok()?;
        let qp = self.hca.qp(qpn)?;
        let own = self.qpns.get(&qpn);
        Some(Standing {
            state,
            cap: qp.config().cap,
            attr,
            path,
            used: self.hca.send_queue_used(qpn),
            receives: qp.recv_queue_len(),
            unfinished: own.map_or(0, |own| self.qps[*own].receives.len()),
            in_flight: qp.in_flight(),
        })
    }
}

impl Play {
    /// Posts a send request that is to be refused. One for which there is no reason is not posted.
    pub(super) fn post_odd_send(&mut self, host: usize, qp: u64, op: u64, fault: u64) {
        let Some(odd) = self.odd(host, qp) else {
            return;
        };
        let wr = odd_request(op, fault, odd.kind, &odd.cap());
        let mut reasons = match &odd.before {
            None => vec![Reason::NoSuch],
            Some(it) => against_send(&wr, odd.kind, it.state, &it.cap),
        };
        if matches!(wr.op, SendOp::BindMw(_)) {
            reasons.push(Reason::NoSuch); // there is no such window
        }
        if reasons.is_empty() {
            return;
        }
        let verb = Verb::of(&wr.op);
        let outcome = self.host(host).hca.post_send(odd.qpn, wr);
        self.refused_odd(host, &odd, verb, outcome, &reasons);
    }

    /// The same for a receive request.
    pub(super) fn post_odd_recv(&mut self, host: usize, qp: u64, fault: u64) {
        let Some(odd) = self.odd(host, qp) else {
            return;
        };
        let wr = RecvWr {
            wr_id: u64::MAX,
            sges: elements(fault, odd.cap().max_recv_sge),
        };
        let reasons = match &odd.before {
            None => vec![Reason::NoSuch],
            Some(it) => against_receive(wr.sges.len(), odd.kind, it.state, odd.is_shared, &it.cap),
        };
        if reasons.is_empty() {
            return;
        }
        let outcome = self.host(host).hca.post_recv(odd.qpn, wr);
        self.refused_odd(host, &odd, Verb::Recv, outcome, &reasons);
    }

    fn odd(&mut self, host: usize, qp: u64) -> Option<Odd> {
        let it = self.host(host);
        let own = &it.qps[*it.ids.get(&qp)?];
        let before = match own.gone {
            true if it.qpns.contains_key(&own.qpn) => return None, // another one has its number
            true => None,
            false => it.standing(own.qpn),
        };
        Some(Odd {
            qpn: own.qpn,
            kind: own.kind,
            is_shared: own.srq.is_some(),
            before,
        })
    }

    fn refused_odd(
        &mut self,
        host: usize,
        odd: &Odd,
        verb: Verb,
        outcome: Result<(), VerbsError>,
        reasons: &[Reason],
    ) {
        if let Some(before) = &odd.before {
            self.coverage.verb(odd.kind, before.state, verb);
        }
        self.refused(host, odd.qpn, outcome, reasons, odd.before.as_ref());
    }

    /// A call must have been refused for one of these reasons, or because a queue is full that is, and have changed
    /// nothing.
    pub(super) fn refused(
        &mut self,
        host: usize,
        qpn: Qpn,
        outcome: Result<(), VerbsError>,
        reasons: &[Reason],
        before: Option<&Standing>,
    ) {
        // Completions that were not polled take places as well.
        let is_full = before.is_some_and(|it| {
            it.used >= it.cap.max_send_wr as usize || it.unfinished >= it.cap.max_recv_wr as usize
        });
        let is_right = match &outcome {
            Ok(()) => false,
            Err(VerbsError::Post(PostError::QueueFull { .. })) if is_full => true,
            Err(error) => Reason::of(error).is_some_and(|it| reasons.contains(&it)),
        };
        self.coverage.outcome("refused");
        if !is_right {
            return self.found("refused", || {
                format!("host {host}, {qpn}: {outcome:?}, but should be refused: {reasons:?}")
            });
        }
        self.unchanged(host, qpn, before);
    }

    /// A call that was refused has changed nothing.
    pub(super) fn unchanged(&mut self, host: usize, qpn: Qpn, before: Option<&Standing>) {
        let after = self.host(host).standing(qpn);
        if after.as_ref() != before {
            self.found("unchanged", || {
                format!("host {host}, {qpn}: a refused call has changed {before:?} to {after:?}")
            });
        }
    }
}

/// Elements of no bytes: more than a queue takes, or one.
fn elements(fault: u64, max: u32) -> Sges {
    let none = Sge {
        addr: 0,
        length: 0,
        lkey: 0,
    };
    let count = match fault % FAULTS {
        TOO_MANY => max as usize + 1,
        _ => 1,
    };
    Sges::from_elem(none, count)
}

fn odd_request(number: u64, fault: u64, kind: QpType, cap: &QpCap) -> SendWr {
    let fault = fault % FAULTS;
    let (va, rkey) = (0, 0);
    let bind = MwBind {
        rkey,
        lkey: 0,
        va,
        length: 0,
        access: Default::default(),
        zero_based: false,
    };
    let op = match number % OPERATIONS {
        0 => SendOp::Send { imm: None },
        1 => SendOp::SendInvalidate { rkey },
        2 => SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        3 => SendOp::Read { va, rkey },
        4 => SendOp::CompareSwap {
            va,
            rkey,
            compare: 0,
            swap: 0,
        },
        5 => SendOp::FetchAdd { va, rkey, add: 1 },
        6 => SendOp::BindMw(bind),
        7 => SendOp::LocalInvalidate { rkey },
        _ => SendOp::Connect {
            dceth: Default::default(),
            connect: Default::default(),
        },
    };
    let mut sges = elements(fault, cap.max_send_sge);
    if fault == TOO_LONG {
        let long = Sge {
            addr: 0,
            length: u32::MAX,
            lkey: 0,
        };
        sges = Sges::from_elem(long, 1);
    }
    let inline = match fault {
        INLINE_TOO_LONG => Some(cap.max_inline_data as usize + 1),
        BYTES_WITHOUT_INLINE => Some(1),
        _ => None,
    };
    let has_flag = matches!(fault, INLINE_TOO_LONG | INLINE_WITHOUT_BYTES);
    let to = match fault {
        ELSEWHERE => other_address(kind),
        _ => usual_address(kind),
    };
    SendWr {
        wr_id: u64::MAX,
        op,
        flags: if has_flag {
            SendFlags::INLINE
        } else {
            SendFlags::empty()
        },
        sges,
        inline: inline.map(|len| vec![0; len].as_slice().into()),
        to,
    }
}

/// An address as requests of a type have it.
pub(super) fn usual_address(kind: QpType) -> SendTo {
    let path = Path::to(address(0));
    let qpn = Qpn::new(0xff_fffe);
    match kind {
        QpType::Ud => SendTo::Datagram(UdAddress { path, qpn, qkey: 0 }),
        QpType::XrcSend => SendTo::Srq(NO_SRQ),
        QpType::Dci => SendTo::Dct(DctAddress { path, qpn, key: 0 }),
        _ => SendTo::Peer,
    }
}

/// One that they do not have.
fn other_address(kind: QpType) -> SendTo {
    match kind {
        QpType::Ud => SendTo::Peer,
        QpType::XrcSend => usual_address(QpType::Dci),
        QpType::Dci => usual_address(QpType::Ud),
        _ => usual_address(QpType::XrcSend),
    }
}
