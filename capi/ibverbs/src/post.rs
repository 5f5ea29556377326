//! Posting work requests: the way of the data.

use std::ffi::c_int;

use ferroce_border::border;
use ferroce_hca::{
    Bytes, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Sges, VerbsError, limits,
};

use crate::abi::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge,
};
use crate::error::{Error, status};
use crate::{mw, qp};

/// Walks a chain of work requests and remembers where it stands.
pub(crate) struct Chain<W> {
    next: *mut W,
    /// The request given out last.
    current: *mut W,
    /// Requests that may follow. In ERR nothing fills a queue, and a chain may be a circle.
    left: u32,
    refused: Option<Error>,
}

impl<W> Chain<W> {
    pub(crate) fn new(first: *mut W) -> Self {
        Self {
            next: first,
            current: first,
            left: limits::MAX_WR,
            refused: None,
        }
    }

    /// The chain's work requests as those of the device, up to one that makes no sense.
    pub(crate) fn requests<R>(
        &mut self,
        following: impl Fn(&W) -> *mut W,
        mut convert: impl FnMut(&W) -> Result<R, Error>,
    ) -> impl Iterator<Item = R> {
        std::iter::from_fn(move || {
            if self.next.is_null() {
                return None;
            }
            self.current = self.next;
            if self.left == 0 {
                let max = limits::MAX_WR;
                self.refused = Some(VerbsError::from(PostError::QueueFull { max }).into());
                return None;
            }
            self.left -= 1;
            // SAFETY: the program's own structure.
            let request = unsafe { &*self.current };
            self.next = following(request);
            convert(request)
                .map_err(|error| self.refused = Some(error))
                .ok()
        })
    }

    /// The chain's outcome; tells the program which request was refused.
    ///
    /// # Safety
    /// `bad` can be written to.
    pub(crate) unsafe fn finish(
        self,
        call: &str,
        posted: Result<(), Error>,
        bad: *mut *mut W,
    ) -> c_int {
        let result = posted.and_then(|()| self.refused.map_or(Ok(()), Err));
        if result.is_err() {
            // SAFETY: as the caller promises.
            unsafe { bad.write(self.current) };
        }
        status(call, result)
    }
}

/// Posts send requests (ibv_post_send(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut chain = Chain::new(wr);
    let posted = qp::get(qp).and_then(|object| {
        let own = object.own();
        let requests = chain.requests(|wr| wr.next, |wr| send_request(own, wr));
        Ok(own.context.adapter.live()?.post_send(own.qpn, requests)?)
    });
    // SAFETY: the program's own variable.
    unsafe { chain.finish("ibv_post_send", posted, bad_wr) }
}

/// Posts receive requests (ibv_post_recv(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut chain = Chain::new(wr);
    let posted = qp::get(qp).and_then(|object| {
        let own = object.own();
        let requests = chain.requests(|wr| wr.next, recv_request);
        Ok(own.context.adapter.live()?.post_recvs(own.qpn, requests)?)
    });
    // SAFETY: the program's own variable.
    unsafe { chain.finish("ibv_post_recv", posted, bad_wr) }
}

pub(crate) fn recv_request(wr: &ibv_recv_wr) -> Result<RecvWr, Error> {
    Ok(RecvWr {
        wr_id: wr.wr_id,
        // SAFETY: the program's own array.
        sges: unsafe { sges(wr.sg_list, wr.num_sge)? },
    })
}

fn send_request(own: &qp::Qp, wr: &ibv_send_wr) -> Result<SendWr, Error> {
    let flags = SendFlags::from_bits_truncate(wr.send_flags);
    // SAFETY: the program's own array.
    let (sges, inline) = unsafe {
        if flags.contains(SendFlags::INLINE) {
            let pieces = elements(wr.sg_list, wr.num_sge)?;
            let pieces = pieces.map(|sge| (sge.addr as *const u8, sge.length as usize));
            let bytes = inline(pieces, limits::MAX_INLINE as usize)?;
            (Sges::new(), Some(bytes))
        } else {
            (sges(wr.sg_list, wr.num_sge)?, None)
        }
    };
    let op = operation(own, wr)?;
    let to = own.destination(&op, wr)?;
    Ok(SendWr {
        wr_id: wr.wr_id,
        to,
        op,
        flags,
        sges,
        inline,
    })
}

fn operation(own: &qp::Qp, wr: &ibv_send_wr) -> Result<SendOp, Error> {
    let imm = Some(u32::from_be(wr.imm_data));
    // SAFETY: all members of the union are numbers, or pointers that are not followed here.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let (va, rkey) = (rdma.remote_addr, rdma.rkey);
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send { imm: None },
        IBV_WR_SEND_WITH_IMM => SendOp::Send { imm },
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate { rkey: wr.imm_data },
        IBV_WR_RDMA_WRITE => SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::Write { va, rkey, imm },
        IBV_WR_RDMA_READ => SendOp::Read { va, rkey },
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            va: atomic.remote_addr,
            rkey: atomic.rkey,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
            va: atomic.remote_addr,
            rkey: atomic.rkey,
            add: atomic.compare_add,
        },
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate { rkey: wr.imm_data },
        IBV_WR_BIND_MW => mw::bind_request(own, &wr.bind_mw)?,
        other => {
            let allowed = "the operations of ibv_wr_opcode that the queue pair has";
            return Err(Error::invalid("opcode", other, allowed));
        }
    })
}

/// The elements of a list. It need not be aligned, as with cards: libiscsi has it in a packed structure.
///
/// # Safety
/// `list` points to `count` elements, if `count` is one that the device takes.
unsafe fn elements(
    list: *const ibv_sge,
    count: c_int,
) -> Result<impl Iterator<Item = ibv_sge> + Clone, Error> {
    if count > 0 && list.is_null() {
        return Err(Error::Null("sg_list"));
    }
    let count = match usize::try_from(count) {
        Ok(count) if count <= limits::MAX_SGE as usize => count,
        _ => {
            let allowed = "0 to max_sge of the queue pair";
            return Err(Error::invalid("num_sge", count, allowed));
        }
    };
    // SAFETY: as the caller promises.
    Ok((0..count).map(move |index| unsafe { list.add(index).read_unaligned() }))
}

/// # Safety
/// As for [`elements`].
unsafe fn sges(list: *const ibv_sge, count: c_int) -> Result<Sges, Error> {
    // SAFETY: as the caller promises.
    let elements = unsafe { elements(list, count)? };
    Ok(elements.map(sge).collect())
}

pub(crate) fn sge(sge: ibv_sge) -> Sge {
    Sge {
        addr: sge.addr,
        length: sge.length,
        lkey: sge.lkey,
    }
}

/// The bytes themselves of inline data, at most `max`: copied once, to where they stay until they are
/// sent.
///
/// # Safety
/// The pieces are memory of the program.
pub(crate) unsafe fn inline(
    pieces: impl Iterator<Item = (*const u8, usize)> + Clone,
    max: usize,
) -> Result<Bytes, Error> {
    let lengths = pieces.clone().map(|(_, length)| length);
    let length = lengths.fold(0, usize::saturating_add);
    if length > max {
        let allowed = "0 to max_inline_data of the queue pair";
        return Err(Error::invalid("inline bytes", length, allowed));
    }
    Ok(Bytes::filled(length, |mut rest| {
        for (start, length) in pieces.filter(|(_, length)| *length > 0) {
            let (piece, tail) = rest.split_at_mut(length);
            // SAFETY: as the caller promises.
            piece.copy_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
            rest = tail;
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_need_not_be_aligned() {
        #[repr(C, packed)]
        struct Packed {
            before: u8,
            list: [ibv_sge; 2],
        }
        let sge = |addr| ibv_sge {
            addr,
            length: 3,
            lkey: 4,
        };
        let packed = Packed {
            before: 0,
            list: [sge(1), sge(2)],
        };
        // SAFETY: two elements.
        let sges = unsafe { sges((&raw const packed.list).cast(), 2) }
            .ok()
            .unwrap();
        assert_eq!(sges.iter().map(|it| it.addr).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(packed.before, 0);
    }
}
