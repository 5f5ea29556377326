//! Turns work requests into packets.

use std::ops::Deref;

use ferroce_wire::{AtomicEth, BthFlags, Connection, Deth, Headers, Place, Psn, Reth};

use crate::attr::QpAttr;
use crate::config::QpConfig;
use crate::fault::Fault;
use crate::memory::{AccessError, Key, Segment};
use crate::packet::{Outgoing, Payload};
use crate::recv::pieces;
use crate::serial::Serial;
use crate::service::{QpType, SendTo};
use crate::services::Services;
use crate::work::{SendFlags, SendOp, SendWr};

/// A send WQE: the work request and where it stands on the wire.
#[derive(Clone, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr: SendWr,
    pub(crate) length: u32,
    /// PSN of the first packet; set when the WQE starts.
    pub(crate) first_psn: Psn,
    /// PSNs it takes: request packets, or response packets of a READ. None for local operations.
    pub(crate) packets: u32,
    /// Send sequence number of its first request, for end-to-end credits.
    pub(crate) ssn: Serial,
}

impl Default for SendWqe {
    /// A request that is still to be written.
    #[inline]
    fn default() -> Self {
        Self {
            wr: SendWr::default(),
            length: 0,
            first_psn: Psn::ZERO,
            packets: 0,
            ssn: Serial::first(Psn::ZERO),
        }
    }
}

impl Deref for SendWqe {
    type Target = SendWr;

    #[inline]
    fn deref(&self) -> &SendWr {
        &self.wr
    }
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

    /// Sets the memory that it sends these bytes from.
    #[inline]
    fn open_read<H: Services>(
        &self,
        host: &H,
        offset: u32,
        len: u32,
        out: &mut Payload,
    ) -> Result<(), AccessError> {
        let mut segments = pieces(&self.sges, Key::Local, offset, len);
        *out = match segments.next() {
            Some(first) if first.len == len => Payload::Memory(host.open_read(&first)?),
            first => open_pieces(host, first.into_iter().chain(segments))?,
        };
        Ok(())
    }
}

#[cold]
fn open_pieces<H: Services>(
    host: &H,
    segments: impl Iterator<Item = Segment>,
) -> Result<Payload, AccessError> {
    let open = |it: Segment| Ok((host.open_read(&it)?, it.len));
    segments
        .map(open)
        .collect::<Result<_, _>>()
        .map(Payload::Pieces)
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
    #[inline]
    fn len(&self) -> u32 {
        (self.span * self.attr.path_mtu.bytes()).min(self.wqe.length - self.offset())
    }

    /// Writes the packet to `out`. On an error there is none.
    ///
    /// Its parts are written to their places: the memory takes longer to copy a value that has just been written in
    /// pieces than to write it.
    pub(crate) fn build<H: Services>(&self, host: &H, out: &mut Outgoing) -> Result<(), Fault> {
        let Self {
            wqe, attr, config, ..
        } = *self;
        let mut dest_qp = attr.dest_qpn;
        let headers = match wqe.to {
            SendTo::Datagram(to) => {
                (dest_qp, out.path) = (to.qpn, to.path);
                self.datagram(to.qkey)
            }
            SendTo::Peer if config.qp_type == QpType::Uc => self.headers(Connection::Uc),
            // A DCI adds its own header to the packet.
            SendTo::Peer | SendTo::Dct(_) => self.headers(Connection::Rc),
            SendTo::Srq(srqn) => self.headers(Connection::Xrc(srqn)),
        };
        out.set_headers(headers);
        let headers = &mut out.headers;
        (headers.dest_qp, headers.psn) = (dest_qp, self.psn);
        if self.ack_req && config.qp_type.is_reliable() {
            headers.flags.insert(BthFlags::ACK_REQ);
        }
        if wqe.op.needs_response() {
            return Ok(());
        }
        if wqe.flags.contains(SendFlags::SOLICITED) && self.psn == wqe.last_psn() {
            headers.flags.insert(BthFlags::SOLICITED);
        }
        let len = self.len();
        out.payload_len = len as u16; // at most an MTU
        self.set_payload(host, len, &mut out.payload)
            .map_err(Fault::send)
    }

    /// Sets what it sends, if the memory is there. Where the response to a READ or atomic goes is looked at
    /// when that arrives, as cards do: it may be registered meanwhile, or not any more.
    #[inline]
    fn set_payload<H: Services>(
        &self,
        host: &H,
        len: u32,
        out: &mut Payload,
    ) -> Result<(), AccessError> {
        if len > 0 {
            match &self.wqe.inline {
                Some(bytes) => *out = Payload::Carried(bytes.part(self.offset(), len)),
                None => self.wqe.open_read(host, self.offset(), len, out)?,
            }
        }
        Ok(())
    }

    /// Headers of a request to a connected queue pair. READs and atomics are not posted to UC.
    #[inline]
    fn headers(&self, connection: Connection) -> Headers {
        let wqe = self.wqe;
        let place = Place::new(self.psn == wqe.first_psn, self.psn == wqe.last_psn());
        let srqn = match connection {
            Connection::Xrc(srqn) => Some(srqn),
            Connection::Rc | Connection::Uc => None,
        };
        match wqe.op {
            SendOp::Write { va, rkey, imm } => {
                let length = wqe.length;
                Headers::write(connection, place, Reth { va, rkey, length }, imm)
            }
            SendOp::Send { imm } => Headers::send(connection, place, imm),
            SendOp::SendInvalidate { rkey } => Headers::send_invalidate(srqn, place, rkey),
            SendOp::Read { va, rkey } => {
                let va = va.wrapping_add(self.offset().into());
                let length = self.len();
                Headers::read(srqn, Reth { va, rkey, length })
            }
            SendOp::CompareSwap {
                va,
                rkey,
                compare,
                swap,
            } => Headers::compare_swap(
                srqn,
                AtomicEth {
                    va,
                    rkey,
                    swap_or_add: swap,
                    compare,
                },
            ),
            SendOp::FetchAdd { va, rkey, add } => Headers::fetch_add(
                srqn,
                AtomicEth {
                    va,
                    rkey,
                    swap_or_add: add,
                    compare: 0,
                },
            ),
            SendOp::Connect { dceth, connect } => Headers::connect(dceth, connect),
            SendOp::BindMw(_) | SendOp::LocalInvalidate { .. } => {
                unreachable!(
                    "the requester executes local operations, it sends no packets for them"
                )
            }
        }
    }

    /// Headers of a datagram. Nothing but SENDs is posted to UD.
    fn datagram(&self, qkey: u32) -> Headers {
        let own = qkey & OWN_QKEY != 0;
        let deth = Deth {
            qkey: if own { self.attr.qkey } else { qkey },
            src_qp: self.config.qpn,
        };
        let imm = match self.wqe.op {
            SendOp::Send { imm } => imm,
            _ => None,
        };
        Headers::datagram(deth, imm)
    }
}
