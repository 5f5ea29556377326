use std::sync::Arc;

use ferroce_wire::{AtomicEth, Bth, Deth, Headers, Opcode, Psn, Reth};

use crate::recv::pieces;
use crate::serial::Serial;
use crate::work::Fault;
use crate::{
    Host, Key, Payload, QpAttr, QpConfig, Segment, SendFlags, SendOp, SendTo, Sges, Transmit,
    UdAddress,
};

/// A send WQE: the work request and where it stands on the wire.
#[derive(Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) sges: Sges,
    pub(crate) inline: Option<Arc<[u8]>>,
    pub(crate) to: SendTo,
    pub(crate) length: u32,
    /// PSN of the first packet; set when the WQE starts.
    pub(crate) first_psn: Psn,
    /// PSNs it takes: request packets, or response packets of a READ. None for local operations.
    pub(crate) packets: u32,
    /// Send sequence number of its first request, for end-to-end credits.
    pub(crate) ssn: Serial,
}

impl SendWqe {
    pub(crate) fn last_psn(&self) -> Psn {
        self.first_psn.wrapping_add(self.packets - 1)
    }

    pub(crate) fn covers(&self, psn: Psn) -> bool {
        psn.since(self.first_psn) < self.packets
    }

    /// Whether the packet at `psn` makes the peer take a receive WQE, or needs that it has.
    pub(crate) fn needs_receive(&self, psn: Psn) -> bool {
        match self.op {
            SendOp::Write { .. } => self.op.consumes_receive() && psn == self.last_psn(),
            _ => self.op.consumes_receive(),
        }
    }

    fn segments(&self, offset: u32, len: u32) -> impl Iterator<Item = Segment> + '_ {
        pieces(&self.sges, Key::Local, offset, len)
    }
}

/// A request packet about to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) wqe: &'a SendWqe,
    pub(crate) psn: Psn,
    /// PSNs it stands for: 1, or the responses that a READ request asks for.
    pub(crate) span: u32,
    /// Whether the peer must answer at once.
    pub(crate) ack_req: bool,
    pub(crate) attr: &'a QpAttr,
    pub(crate) config: &'a QpConfig,
}

/// The highest bit of a Q_Key in a work request: the sender's own Q_Key is meant.
const OWN_QKEY: u32 = 1 << 31;

impl Request<'_> {
    /// Where it begins in its message.
    fn offset(&self) -> u32 {
        self.psn.since(self.wqe.first_psn) * self.attr.path_mtu.bytes()
    }

    /// Bytes of the message that it is about: its payload, or the responses to it.
    fn len(&self) -> u32 {
        (self.span * self.attr.path_mtu.bytes()).min(self.wqe.length - self.offset())
    }

    /// Whether the memory that it sends is there. Where the response to a READ or atomic goes is
    /// looked at when that arrives, as cards do: it may be registered meanwhile, or not any more.
    pub(crate) fn check<H: Host>(&self, host: &H) -> Result<(), Fault> {
        if self.wqe.op.needs_response() {
            return Ok(());
        }
        let mut segments = self.wqe.segments(self.offset(), self.len());
        segments
            .try_for_each(|segment| host.check_read(&segment))
            .map_err(Fault::send)
    }

    /// Writes the packet to `out`, if [`Self::check`] passed.
    pub(crate) fn build(&self, out: &mut Transmit) {
        if self.wqe.op.needs_response() {
            self.build_read_or_atomic(out);
        } else {
            self.build_send_or_write(out);
        }
    }

    #[inline]
    fn begin<'a>(&self, opcode: Opcode, out: &'a mut Transmit) -> &'a mut Headers {
        let qp_type = self.config.qp_type;
        let mut bth = Bth::request(qp_type.opcode(opcode), self.attr.dest_qpn, self.psn);
        bth.ack_req = self.ack_req && qp_type.is_reliable();
        out.set_headers(Headers::new(bth));
        let headers = &mut out.headers;
        match self.wqe.to {
            SendTo::Peer => {}
            SendTo::Srq(srqn) => headers.xrceth = Some(srqn),
            SendTo::Datagram(UdAddress { path, qpn, qkey }) => {
                out.path = Some(path);
                let own = qkey & OWN_QKEY != 0;
                headers.bth.dest_qp = qpn;
                headers.deth = Some(Deth {
                    qkey: if own { self.attr.qkey } else { qkey },
                    src_qp: self.config.qpn,
                });
            }
        }
        headers
    }

    fn build_send_or_write(&self, out: &mut Transmit) {
        let wqe = self.wqe;
        let (offset, len) = (self.offset(), self.len());
        let (first, last) = (self.psn == wqe.first_psn, self.psn == wqe.last_psn());
        let headers = self.begin(opcode(&wqe.op, first, last), out);
        headers.bth.pad = ferroce_wire::pad_len(len as usize);
        headers.bth.solicited = last && wqe.flags.contains(SendFlags::SOLICITED);
        match wqe.op {
            SendOp::Write { va, rkey, imm } => {
                headers.reth = first.then_some(Reth {
                    va,
                    rkey,
                    length: wqe.length,
                });
                headers.imm = imm.filter(|_| last);
            }
            SendOp::Send { imm } => headers.imm = imm.filter(|_| last),
            SendOp::SendInvalidate { rkey } => headers.ieth = Some(rkey).filter(|_| last),
            // Built elsewhere, or not at all.
            SendOp::Read { .. }
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. }
            | SendOp::BindMw(_)
            | SendOp::LocalInvalidate { .. } => {}
        }
        out.payload_len = len;
        out.payload = match &wqe.inline {
            _ if len == 0 => Payload::Empty,
            Some(bytes) if wqe.packets == 1 => Payload::Inline(bytes.clone()),
            Some(bytes) => Payload::Inline(bytes[offset as usize..][..len as usize].into()),
            None => Payload::Memory(wqe.segments(offset, len).collect()),
        };
    }

    fn build_read_or_atomic(&self, out: &mut Transmit) {
        let wqe = self.wqe;
        let headers = self.begin(opcode(&wqe.op, true, true), out);
        match wqe.op {
            SendOp::Read { va, rkey } => {
                headers.reth = Some(Reth {
                    va: va.wrapping_add(self.offset().into()),
                    rkey,
                    length: self.len(),
                });
            }
            SendOp::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            } => {
                headers.atomic = Some(AtomicEth {
                    va,
                    rkey,
                    swap_or_add: swap,
                    compare,
                });
            }
            SendOp::FetchAdd { va, rkey, add } => {
                headers.atomic = Some(AtomicEth {
                    va,
                    rkey,
                    swap_or_add: add,
                    compare: 0,
                });
            }
            SendOp::Send { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::Write { .. }
            | SendOp::BindMw(_)
            | SendOp::LocalInvalidate { .. } => {}
        }
    }
}

/// The opcode of a request packet by its place in the message, as of RC.
fn opcode(op: &SendOp, first: bool, last: bool) -> Opcode {
    use Opcode::*;
    let [only, first_of, middle, last_of] = match op {
        SendOp::Send { imm: None } => [RcSendOnly, RcSendFirst, RcSendMiddle, RcSendLast],
        SendOp::Send { imm: Some(_) } => [RcSendOnlyImm, RcSendFirst, RcSendMiddle, RcSendLastImm],
        SendOp::SendInvalidate { .. } => [
            RcSendOnlyInvalidate,
            RcSendFirst,
            RcSendMiddle,
            RcSendLastInvalidate,
        ],
        SendOp::Write { imm: None, .. } => [RcWriteOnly, RcWriteFirst, RcWriteMiddle, RcWriteLast],
        SendOp::Write { imm: Some(_), .. } => {
            [RcWriteOnlyImm, RcWriteFirst, RcWriteMiddle, RcWriteLastImm]
        }
        SendOp::Read { .. } => [RcReadRequest; 4],
        SendOp::CompareSwap { .. } => [RcCompareSwap; 4],
        SendOp::FetchAdd { .. } => [RcFetchAdd; 4],
        SendOp::BindMw(_) | SendOp::LocalInvalidate { .. } => {
            unreachable!("the requester executes local operations, it sends no packets for them")
        }
    };
    match (first, last) {
        (true, true) => only,
        (true, false) => first_of,
        (false, false) => middle,
        (false, true) => last_of,
    }
}
