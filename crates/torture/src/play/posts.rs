//! Work requests: what the device is given, and what the model remembers of it.

use std::ops::Deref;

use ferroce_adp::PolicyKind;
use ferroce_device::{
    PdId, PostError, QpState, QpType, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge, Sges, Span,
    UdAddress, VerbsError,
};

use super::Play;
use super::host::{Host, clamped};
use super::odd::{Standing, usual_address};
use crate::coverage::Verb;
use crate::model::{Id, Kind, Lonely, Outcome, RECEIVE, Receive, Remote, Request, Target};
use crate::pattern;
use crate::rules::{Reason, against_receive, against_send};
use crate::script::Step;

/// What `timeout` doubles.
const ACK_TIMEOUT: Span = Span::from_nanos(4_096);
/// An invalid key.
pub(super) const BAD_KEY: u32 = 0xdead_be00;

/// A send request as its line gives it.
struct Post {
    kind: Kind,
    qp: u64,
    len: u64,
    region: u64,
    at: u64,
    imm: u64,
    flags: u64,
    lkey: u64,
    window: u64,
    /// The shared receive queue of XRC or the target of DC, and whether its access key is wrong.
    to: (u64, u64),
    /// Of a datagram: host, queue pair, Q_Key.
    datagram: Option<(u64, u64, u64)>,
}

impl Post {
    fn of(step: &Step) -> Option<Self> {
        let post = |kind, qp, len, flags, to| Self {
            kind,
            qp,
            len,
            flags,
            to,
            window: 0,
            region: 0,
            at: 0,
            imm: 0,
            lkey: 0,
            datagram: None,
        };
        Some(match *step {
            Step::Send {
                qp,
                len,
                imm,
                flags,
                lkey,
                to,
                key,
            } => Self {
                imm,
                lkey,
                ..post(Kind::Send, qp, len, flags, (to, key))
            },
            Step::Datagram {
                qp,
                peer,
                to,
                len,
                imm,
                flags,
                qkey,
                lkey,
            } => Self {
                imm,
                lkey,
                datagram: Some((peer, to, qkey)),
                ..post(Kind::Datagram, qp, len, flags, (0, 0))
            },
            Step::SendInvalidate {
                qp,
                len,
                window,
                region,
                flags,
                lkey,
                to,
                key,
            } => Self {
                window,
                region,
                lkey,
                ..post(Kind::SendInvalidate, qp, len, flags, (to, key))
            },
            Step::Write {
                qp,
                len,
                region,
                at,
                imm,
                flags,
                lkey,
                to,
                key,
                window,
            } => Self {
                window,
                region,
                at,
                imm,
                lkey,
                ..post(Kind::Write, qp, len, flags, (to, key))
            },
            Step::Read {
                qp,
                len,
                region,
                at,
                flags,
                lkey,
                to,
                key,
                window,
            } => Self {
                window,
                region,
                at,
                lkey,
                ..post(Kind::Read, qp, len, flags, (to, key))
            },
            Step::Add {
                qp,
                region,
                at,
                flags,
                to,
                key,
                window,
            } => Self {
                window,
                region,
                at,
                ..post(Kind::Add, qp, 8, flags, (to, key))
            },
            Step::Swap {
                qp,
                region,
                at,
                flags,
                to,
                key,
                window,
            } => Self {
                window,
                region,
                at,
                ..post(Kind::Swap, qp, 8, flags, (to, key))
            },
            _ => return None,
        })
    }
}

/// A receive request and what it is posted with.
pub(super) struct Posted {
    pub(super) receive: Receive,
    sge: Sge,
}

impl Deref for Posted {
    type Target = Receive;

    fn deref(&self) -> &Receive {
        &self.receive
    }
}

impl Posted {
    pub(super) fn work_request(&self, id: usize) -> RecvWr {
        RecvWr {
            wr_id: RECEIVE | id as u64,
            sges: Sges::from_slice(&[self.sge]),
        }
    }
}

impl Host {
    /// A receive request with a place of its own.
    fn receive(
        &mut self,
        pd: PdId,
        len: usize,
        lkey: u64,
        reliable: bool,
        srq: Option<u64>,
    ) -> Posted {
        let (landing, sge) = self.land(pd, len);
        self.receive_into(landing, sge, lkey, reliable, srq)
    }

    /// A receive request into a place.
    pub(super) fn receive_into(
        &self,
        landing: usize,
        mut sge: Sge,
        lkey: u64,
        reliable: bool,
        srq: Option<u64>,
    ) -> Posted {
        if lkey != 0 {
            sge.lkey = BAD_KEY;
        }
        let receive = Receive {
            incarnation: self.incarnation,
            len: sge.length as usize,
            landing,
            reliable,
            srq,
            bad_lkey: lkey != 0,
            message: None,
            outcome: Outcome::Pending,
        };
        Posted { receive, sge }
    }
}

impl Play {
    pub(super) fn post_recv(&mut self, host: usize, qp: u64, len: u64, lkey: u64) {
        let id = self.receives.len();
        let Some(qp) = self.host(host).qp(qp) else {
            return;
        };
        if self.call_fails(host, ferroce_fault::Target::PostRecv, Some(qp)) {
            return;
        }
        let it = self.host(host);
        let (qpn, pd, kind) = (it.qps[qp].qpn, it.qps[qp].pd, it.qps[qp].kind);
        let is_shared = it.qps[qp].srq.is_some();
        let before = it.standing(qpn).expect("it is there");
        let receive = it.receive(pd, clamped(len), lkey, kind == QpType::Rc, None);
        self.coverage.verb(kind, before.state, Verb::Recv);
        let mut reasons = against_receive(1, kind, before.state, is_shared, &before.cap);
        let it = self.host(host);
        // That which a message is using has left the queue.
        let is_told = !it.is_deaf(qp).1;
        if is_told && it.qps[qp].receives.len() > before.cap.max_recv_wr as usize {
            reasons.push(Reason::Full);
        }
        let outcome = it.hca.post_recv(qpn, receive.work_request(id));
        if !(reasons.is_empty() && outcome.is_ok()) {
            return self.refused(host, qpn, outcome, &reasons, Some(&before));
        }
        let it = self.host(host);
        it.qps[qp].receives.push_back(id);
        if let Some((connection, end)) = it.qps[qp].connection {
            let end = &mut self.connections[connection].ends[end];
            end.shortest = end.shortest.min(receive.len);
            end.bad_receive |= lkey != 0;
        }
        self.receives.push(receive.receive);
    }

    pub(super) fn post_srq_recv(&mut self, host: usize, srq: u64, len: u64, lkey: u64) {
        let id = self.receives.len();
        let it = self.host(host);
        let Some(pd) = it.srqs.get(&srq).map(|it| it.pd) else {
            return;
        };
        // Queue pairs of any service take from it.
        let receive = it.receive(pd, clamped(len), lkey, false, Some(srq));
        let shared = it.srqs.get_mut(&srq).expect("it was looked for");
        match it.hca.post_srq_recv(shared.id, receive.work_request(id)) {
            Ok(()) => {
                shared.receives.push(id);
                shared.shortest = shared.shortest.min(receive.len);
                shared.bad_receive |= lkey != 0;
                self.receives.push(receive.receive);
            }
            Err(VerbsError::Post(PostError::QueueFull { .. })) => {}
            Err(error) => self.found("post receive", || {
                format!("host {host}, SRQ {srq}: {error}")
            }),
        }
    }

    pub(super) fn post_send(&mut self, host: usize, step: &Step) {
        let (Some(post), id, now) = (Post::of(step), self.requests.len(), self.now) else {
            return;
        };
        let Some(qp) = self.host(host).qp(post.qp) else {
            return;
        };
        if self.call_fails(host, ferroce_fault::Target::PostSend, Some(qp)) {
            return;
        }
        let it = self.host(host);
        let (qpn, pd, kind) = (it.qps[qp].qpn, it.qps[qp].pd, it.qps[qp].kind);
        let (connection, incarnation) = (it.qps[qp].connection, it.incarnation);
        let len = clamped(post.len);
        let source = pattern::start(id);
        let target = self.target(host, qp, post.to);
        let mut request = Request {
            kind: post.kind,
            host,
            by: (pd, qpn),
            incarnation,
            len,
            source,
            remote: self.remote(target, &post),
            target,
            landing: 0,
            imm: u32::try_from(post.imm).ok().filter(|imm| *imm > 0),
            signaled: post.flags & 2 != 0,
            solicited: post.flags & 4 != 0,
            bad_lkey: post.lkey != 0 && len > 0 && !is_inline(&post, len),
            posted: now,
            ended: now,
            connection,
            to: post
                .datagram
                .map(|(peer, to, qkey)| self.destination(qpn, peer, to, qkey)),
            named: None,
            told: false,
            outcome: Outcome::Pending,
        };
        if kind == QpType::Dci && request.consumes_receive() {
            self.tell_apart(id, &mut request);
        }
        let mut key = 0;
        if post.kind == Kind::SendInvalidate {
            let peer = target.map(|target| target.host);
            let (named, rkey) = self.key_of(peer, post.window, post.region);
            (request.named, key) = (Some(named), rkey);
        }
        let it = self.host(host);
        let (landing, mut sge) = match request.needs_response() {
            true => it.land(pd, len),
            false => (0, it.source(pd, source, len)),
        };
        request.landing = landing;
        if post.lkey != 0 {
            sge.lkey = BAD_KEY;
        }
        let wr = self.work_request(&request, id, &post, (sge, key), kind);
        let before = self.host(host).standing(qpn);
        let reasons = self.reasons_against(host, qp, &wr);
        let outcome = self.host(host).hca.post_send(qpn, wr);
        let (remote, named) = (request.remote, request.named);
        if !self.take_over(host, qp, request, outcome, &reasons, before) {
            return;
        }
        if let Some(named) = named {
            self.may_end(named);
        }
        if let Some(remote) = remote {
            let region = &mut self.regions[remote.region];
            match post.kind {
                Kind::Write => region.writes.push(id),
                Kind::Add | Kind::Swap => region.atomics.push(id),
                _ => {}
            }
        }
        self.note_absence(connection, target);
        self.note_lonely(host, qp);
    }

    /// What a queue pair has against a request.
    pub(super) fn reasons_against(&mut self, host: usize, qp: usize, wr: &SendWr) -> Vec<Reason> {
        let it = self.hosts[host].as_ref().expect("it was looked for");
        let own = &it.qps[qp];
        let standing = it.standing(own.qpn).expect("it is there");
        let mut reasons = against_send(wr, own.kind, standing.state, &standing.cap);
        let waits = |id: &&Id| self.requests[**id].signaled;
        let waiting = own.sends.iter().filter(waits).count();
        if waiting >= standing.cap.max_send_wr as usize && !it.is_deaf(qp).0 {
            reasons.push(Reason::Full);
        }
        self.coverage
            .verb(own.kind, standing.state, Verb::of(&wr.op));
        reasons
    }

    /// Takes over a request that was posted, if it is right that it was accepted; one that was refused must have been.
    pub(super) fn take_over(
        &mut self,
        host: usize,
        qp: usize,
        request: Request,
        outcome: Result<(), VerbsError>,
        reasons: &[Reason],
        before: Option<Standing>,
    ) -> bool {
        let id = self.requests.len();
        let qpn = self.host(host).qps[qp].qpn;
        if !(reasons.is_empty() && outcome.is_ok()) {
            self.refused(host, qpn, outcome, reasons, before.as_ref());
            return false;
        }
        self.host(host).qps[qp].sends.push_back(id);
        if let Some((connection, end)) = request.connection
            && request.consumes_receive()
        {
            self.connections[connection].ends[end].consuming.push(id);
        }
        self.requests.push(request);
        true
    }

    /// A request of a queue pair that nothing is sent for.
    pub(super) fn local_request(
        &mut self,
        host: usize,
        qp: usize,
        kind: Kind,
        flags: SendFlags,
    ) -> Request {
        let now = self.now;
        let it = self.host(host);
        let own = &it.qps[qp];
        Request {
            kind,
            host,
            by: (own.pd, own.qpn),
            incarnation: it.incarnation,
            len: 0,
            source: 0,
            remote: None,
            target: None,
            landing: 0,
            imm: None,
            signaled: flags.contains(SendFlags::SIGNALED),
            solicited: false,
            bad_lkey: false,
            posted: now,
            ended: now,
            connection: own.connection,
            to: None,
            named: None,
            told: false,
            outcome: Outcome::Pending,
        }
    }

    /// Notes when a queue pair begins to wait for a peer that is gone, and how long it must.
    fn note_lonely(&mut self, host: usize, qp: usize) {
        let it = self.hosts[host].as_ref().expect("it has posted");
        let own = &it.qps[qp];
        let Some((connection, end)) = own.connection.filter(|_| own.kind == QpType::Rc) else {
            return;
        };
        let peer = self.connections[connection].ends[1 - end].host;
        let is_gone = self.hosts[peer].is_none();
        let mtu = self.connections[connection].mtu;
        let is_first =
            own.sends.len() == 1 && own.sends.iter().all(|id| self.requests[*id].len <= mtu);
        let Some(device) = it
            .hca
            .qp(own.qpn)
            .filter(|_| is_gone && is_first && !it.coarse && !it.loses)
        else {
            return;
        };
        let is_new = device.state() == QpState::Rts
            && device.in_flight() == 0
            && device.send_queue_len() == 1;
        let sends = match it.hca.policy().kind {
            // Without adaptive retransmission each timeout is the same, and sends it once more.
            PolicyKind::Ib { .. } => Some(u32::from(own.attr.retry_cnt) + 1),
            _ => None,
        };
        let total = match sends {
            Some(sends) => Some(
                ACK_TIMEOUT
                    .doubled(own.attr.timeout.into())
                    .times(sends.into()),
            ),
            None => device.retry().total(it.hca.policy()),
        };
        let peer = device.attr().dest_qpn;
        // A profile without a total gives up at the first expiry.
        let lonely = total
            .filter(|total| is_new && *total > Span::ZERO)
            .map(|total| Lonely {
                peer,
                first: None,
                total,
                sent: 0,
                sends,
            });
        self.host(host).qps[qp].lonely = lonely;
    }

    /// The memory that a request reaches; `None` for a region that its peer does not have.
    fn remote(&self, target: Option<Target>, post: &Post) -> Option<Remote> {
        let host = self.hosts[target?.host].as_ref()?;
        if matches!(post.kind, Kind::Send | Kind::SendInvalidate) {
            return None;
        }
        if let Some(window) = host.windows.get(&post.window) {
            let binding = *self.windows[*window].bindings.last()?;
            let it = &self.bindings[binding];
            return Some(Remote {
                region: it.region?,
                at: it.at.checked_add(post.at)?,
                binding: Some(binding),
            });
        }
        Some(Remote {
            region: *host.regions.get(&post.region)?,
            at: post.at,
            binding: None,
        })
    }

    fn work_request(
        &self,
        request: &Request,
        id: usize,
        post: &Post,
        (sge, key): (Sge, u32),
        kind: QpType,
    ) -> SendWr {
        let (va, rkey) = match request.remote {
            Some(remote) => {
                let info = &self.regions[remote.region].info;
                let va = info.va.wrapping_add(remote.at);
                match remote.binding.map(|binding| &self.bindings[binding]) {
                    Some(it) if it.zero_based => (post.at, it.rkey),
                    Some(it) => (va, it.rkey),
                    None => (va, info.key.rkey()),
                }
            }
            None => (post.at, BAD_KEY),
        };
        let op = match post.kind {
            Kind::SendInvalidate => SendOp::SendInvalidate { rkey: key },
            Kind::Write => SendOp::Write {
                va,
                rkey,
                imm: request.imm,
            },
            Kind::Read => SendOp::Read { va, rkey },
            Kind::Add => SendOp::FetchAdd { va, rkey, add: 1 },
            Kind::Swap => SendOp::CompareSwap {
                va,
                rkey,
                compare: self.last_swap(request),
                swap: swapped(id),
            },
            _ => SendOp::Send { imm: request.imm },
        };
        let mut flags = SendFlags::from_bits_truncate(post.flags as u32);
        let inline = is_inline(post, request.len);
        flags.set(SendFlags::INLINE, inline);
        SendWr {
            wr_id: id as u64,
            op,
            flags,
            sges: if inline {
                Sges::new()
            } else {
                Sges::from_slice(&[sge])
            },
            inline: inline.then(|| pattern::bytes()[request.source..][..request.len].into()),
            to: match (request.to, request.target) {
                (Some(it), _) => SendTo::Datagram(UdAddress {
                    path: it.path,
                    qpn: it.qpn,
                    qkey: it.qkey,
                }),
                (None, Some(target)) => target.address,
                (None, None) => usual_address(kind),
            },
        }
    }

    /// What a compare and swap expects: the value of the last one to the same word, or what it held at first.
    fn last_swap(&self, request: &Request) -> u64 {
        let Some(remote) = request.remote else {
            return 0;
        };
        let region = &self.regions[remote.region];
        let same = region.atomics.iter().rev().find(|id| {
            let it = &self.requests[**id];
            it.kind == Kind::Swap && it.remote.is_some_and(|it| it.at == remote.at)
        });
        match same {
            Some(id) => swapped(*id),
            None => initial_word(remote.region, remote.at as usize, region.buffer.len()),
        }
    }
}

/// Whether the payload of a request is in the request, so that its key does not count.
fn is_inline(post: &Post, len: usize) -> bool {
    let flags = SendFlags::from_bits_truncate(post.flags as u32);
    let may = !matches!(post.kind, Kind::Read | Kind::Add | Kind::Swap) && len <= 256;
    may && flags.contains(SendFlags::INLINE)
}

/// The value that a compare and swap puts into its word.
pub(super) fn swapped(id: usize) -> u64 {
    0x5a5a_0000_0000_0000 | id as u64
}

/// What a word of a region holds at first.
pub(super) fn initial_word(region: usize, at: usize, len: usize) -> u64 {
    let bytes = pattern::initial(region, len);
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u64::from_ne_bytes(*word))
}
