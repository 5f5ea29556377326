//! Work requests: what the device is given, and what the model remembers of it.

use std::ops::Deref;

use ferroce_adp::PolicyKind;
use ferroce_device::{
    PdId, PostError, QpState, QpType, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge, Sges, Span,
    UdAddress, VerbsError,
};
use ferroce_fault::Target;

use super::Play;
use super::host::{Host, clamped};
use crate::coverage::Verb;
use crate::model::{Kind, Lonely, Outcome, RECEIVE, Receive, Remote, Request};
use crate::pattern;
use crate::script::Step;

/// What `timeout` doubles.
const ACK_TIMEOUT: Span = Span::from_nanos(4_096);
/// An invalid key.
const BAD_KEY: u32 = 0xdead_be00;

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
    /// Of a datagram: host, queue pair, Q_Key.
    to: Option<(u64, u64, u64)>,
}

impl Post {
    fn of(step: &Step) -> Option<Self> {
        let post = |kind, qp, len, flags| Self {
            kind,
            qp,
            len,
            flags,
            region: 0,
            at: 0,
            imm: 0,
            lkey: 0,
            to: None,
        };
        Some(match *step {
            Step::Send {
                qp,
                len,
                imm,
                flags,
                lkey,
            } => Self {
                imm,
                lkey,
                ..post(Kind::Send, qp, len, flags)
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
                to: Some((peer, to, qkey)),
                ..post(Kind::Datagram, qp, len, flags)
            },
            Step::Write {
                qp,
                len,
                region,
                at,
                imm,
                flags,
                lkey,
            } => Self {
                region,
                at,
                imm,
                lkey,
                ..post(Kind::Write, qp, len, flags)
            },
            Step::Read {
                qp,
                len,
                region,
                at,
                flags,
                lkey,
            } => Self {
                region,
                at,
                lkey,
                ..post(Kind::Read, qp, len, flags)
            },
            Step::Add {
                qp,
                region,
                at,
                flags,
            } => Self {
                region,
                at,
                ..post(Kind::Add, qp, 8, flags)
            },
            Step::Swap {
                qp,
                region,
                at,
                flags,
            } => Self {
                region,
                at,
                ..post(Kind::Swap, qp, 8, flags)
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
    fn receive(&mut self, pd: PdId, len: usize, lkey: u64, reliable: bool) -> Posted {
        let (landing, sge) = self.land(pd, len);
        self.receive_into(landing, sge, lkey, reliable)
    }

    /// A receive request into a place.
    pub(super) fn receive_into(
        &self,
        landing: usize,
        mut sge: Sge,
        lkey: u64,
        reliable: bool,
    ) -> Posted {
        if lkey != 0 {
            sge.lkey = BAD_KEY;
        }
        let receive = Receive {
            incarnation: self.incarnation,
            len: sge.length as usize,
            landing,
            reliable,
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
        if self.call_fails(host, Target::PostRecv, Some(qp)) {
            return;
        }
        let it = self.host(host);
        let (qpn, pd, kind) = (it.qps[qp].qpn, it.qps[qp].pd, it.qps[qp].kind);
        let is_shared = it.qps[qp].srq.is_some();
        let receive = it.receive(pd, clamped(len), lkey, kind == QpType::Rc);
        let state = it
            .hca
            .query_qp(qpn)
            .map_or(QpState::Reset, |(state, ..)| state);
        self.coverage.verb(kind, state, Verb::Recv);
        let it = self.host(host);
        let queued = it.qps[qp].receives.len();
        match it.hca.post_recv(qpn, receive.work_request(id)) {
            Ok(()) if state == QpState::Reset || is_shared => {
                return self.found("post receive", || {
                    format!("host {host}: {qpn} took a receive in {state:?}")
                });
            }
            Ok(()) => it.qps[qp].receives.push_back(id),
            Err(VerbsError::Post(PostError::UsesSrq)) if is_shared => return,
            Err(VerbsError::Post(PostError::WrongState { .. })) if state == QpState::Reset => {
                return;
            }
            Err(VerbsError::Post(PostError::QueueFull { max })) if queued >= max as usize => return,
            Err(error) => {
                return self.found("post receive", || format!("host {host}, {qpn}: {error}"));
            }
        }
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
        let receive = it.receive(pd, clamped(len), lkey, false);
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
        if self.call_fails(host, Target::PostSend, Some(qp)) {
            return;
        }
        let it = self.host(host);
        let (qpn, pd, kind) = (it.qps[qp].qpn, it.qps[qp].pd, it.qps[qp].kind);
        let (connection, incarnation) = (it.qps[qp].connection, it.incarnation);
        let len = clamped(post.len);
        let source = pattern::start(id);
        let needs_response = matches!(post.kind, Kind::Read | Kind::Add | Kind::Swap);
        let (landing, mut sge) = match needs_response {
            true => it.land(pd, len),
            false => (0, it.source(pd, source, len)),
        };
        if post.lkey != 0 {
            sge.lkey = BAD_KEY;
        }
        let remote = self.remote(connection, &post);
        let request = Request {
            kind: post.kind,
            host,
            incarnation,
            len,
            source,
            remote,
            landing,
            imm: u32::try_from(post.imm).ok().filter(|imm| *imm > 0),
            signaled: post.flags & 2 != 0,
            solicited: post.flags & 4 != 0,
            bad_lkey: post.lkey != 0 && len > 0 && !is_inline(&post, len),
            posted: now,
            ended: now,
            connection,
            to: post
                .to
                .map(|(peer, to, qkey)| self.destination(qpn, peer, to, qkey)),
            outcome: Outcome::Pending,
        };
        let wr = self.work_request(&request, id, &post, sge);
        let it = self.host(host);
        let state = it
            .hca
            .query_qp(qpn)
            .map_or(QpState::Reset, |(state, ..)| state);
        let outcome = it.hca.post_send(qpn, wr);
        self.coverage.verb(kind, state, Verb::post(post.kind));
        let it = self.host(host);
        let accepts = matches!(
            state,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
        );
        let is_datagram = post.kind == Kind::Datagram;
        let supported = match kind {
            QpType::Rc => true,
            QpType::Uc => !needs_response,
            _ => !needs_response && post.kind != Kind::Write,
        };
        let addressed = is_datagram == (kind == QpType::Ud);
        match outcome {
            Ok(()) if accepts && supported && addressed => it.qps[qp].sends.push_back(id),
            Err(VerbsError::Post(PostError::WrongState { .. })) if !accepts => return,
            Err(VerbsError::Post(PostError::Unsupported { .. })) if !supported => return,
            Err(VerbsError::Post(PostError::WrongAddress { .. })) if !addressed => return,
            Err(VerbsError::Post(PostError::QueueFull { max }))
                if it.qps[qp].sends.len() >= max as usize =>
            {
                return;
            }
            other => {
                return self.found("post send", || {
                    format!(
                        "host {host}, {qpn} in {state:?}, {:?}: {other:?}",
                        post.kind
                    )
                });
            }
        }
        if let Some((connection, end)) = connection
            && request.consumes_receive()
        {
            self.connections[connection].ends[end].consuming.push(id);
        }
        if let Some(remote) = remote {
            let region = &mut self.regions[remote.region];
            match post.kind {
                Kind::Write => region.writes.push(id),
                Kind::Add | Kind::Swap => region.atomics.push(id),
                Kind::Send | Kind::Datagram | Kind::Read => {}
            }
        }
        self.requests.push(request);
        self.note_lonely(host, qp);
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
    fn remote(&self, connection: Option<(usize, usize)>, post: &Post) -> Option<Remote> {
        let (connection, end) = connection?;
        let host = self.connections[connection].ends[1 - end].host;
        let region = *self.hosts[host].as_ref()?.regions.get(&post.region)?;
        (post.kind != Kind::Send).then_some(Remote {
            region,
            at: post.at,
        })
    }

    fn work_request(&self, request: &Request, id: usize, post: &Post, sge: Sge) -> SendWr {
        let (va, rkey) = match request.remote {
            Some(remote) => {
                let info = &self.regions[remote.region].info;
                (info.va.wrapping_add(post.at), info.key.rkey())
            }
            None => (post.at, BAD_KEY),
        };
        let op = match post.kind {
            Kind::Send | Kind::Datagram => SendOp::Send { imm: request.imm },
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
            to: request.to.map_or(SendTo::Peer, |it| {
                SendTo::Datagram(UdAddress {
                    path: it.path,
                    qpn: it.qpn,
                    qkey: it.qkey,
                })
            }),
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
