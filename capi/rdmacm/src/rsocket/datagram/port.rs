//! The queue pair of a datagram socket on one device, and its buffers.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_ibverbs::abi::{
    IBV_QPT_UD, IBV_WR_SEND, WrTarget, WrUd, ibv_ah, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_wc,
};
use ferroce_ibverbs::{ibv_create_ah, ibv_destroy_ah};

use super::header::Head;
use crate::abi::{RDMA_PS_UDP, RDMA_UDP_QKEY};
use crate::attr::path_attr;
use crate::id::Id;
use crate::life;
use crate::rsocket::completions::{BATCH, Completions};
use crate::rsocket::region::Region;
use crate::rsocket::result::{Result, last_errno};
use crate::rsocket::source::Source;
use crate::{address, qp, resolve};

/// Bytes of a datagram with its head.
pub(super) const DATAGRAM_MAX: u32 = 2048;
/// Datagrams that are on their way at a time, and that can arrive before the program looks.
const QUEUE: u16 = 384;
/// Bytes before a received datagram.
const GRH: u32 = 40;
const SLOT: u32 = GRH + DATAGRAM_MAX;
/// Marks the completions of receives.
const RECEIVE: u64 = 1 << 63;

/// The way to a queue pair of a peer.
pub(super) struct Handle {
    ah: *mut ibv_ah,
    pub(super) qpn: u32,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: its own object; requests on the send queue do without it.
        unsafe { ibv_destroy_ah(self.ah) };
    }
}

// SAFETY: its pointer is a handle that any thread may use.
unsafe impl Send for Handle {}

/// An identifier that goes with its queue pair.
struct OwnId(Arc<Id>);

impl OwnId {
    fn new() -> Result<Self> {
        let made = life::create(null_mut(), null_mut(), RDMA_PS_UDP, IBV_QPT_UD);
        made.map(Self).map_err(|error| error.errno())
    }
}

impl Drop for OwnId {
    fn drop(&mut self) {
        qp::destroy(&self.0);
        life::destroy(&self.0);
    }
}

/// The way to an address, from a device.
pub(super) struct Way {
    id: OwnId,
}

impl Way {
    /// # Errors
    /// As rdma_resolve_addr(3).
    pub(super) fn to(address: SocketAddr) -> Result<Self> {
        let way = Self { id: OwnId::new()? };
        resolve::resolve(&way.id.0, None, address).map_err(|error| error.errno())?;
        Ok(way)
    }

    /// The address of the device.
    pub(super) fn source(&self) -> Result<IpAddr> {
        let device = self.id.0.device().map_err(|error| error.errno())?;
        Ok(device.address())
    }

    fn handle(&self, pd: *mut ibv_pd, qpn: u32) -> Result<Handle> {
        let state = self.id.0.state();
        let peer = state.terms.peer.ok_or(libc::ENETUNREACH)?;
        let mut attr = path_attr(address::gid(peer), &state);
        drop(state);
        // SAFETY: a live object and a local structure.
        let ah = unsafe { ibv_create_ah(pd, &raw mut attr) };
        match ah.is_null() {
            true => Err(last_errno()),
            false => Ok(Handle { ah, qpn }),
        }
    }
}

pub(super) struct Port {
    /// Goes before what its queue pair uses.
    id: OwnId,
    qp: *mut ibv_qp,
    pub(super) completions: Completions,
    send: Region,
    recv: Region,
    /// Slots of the send buffer that can be written to.
    free: Vec<u32>,
    /// The address of its device.
    pub(super) device: IpAddr,
    /// The address that its datagrams come from.
    pub(super) source: SocketAddr,
}

// SAFETY: its pointers are handles that any thread may use.
unsafe impl Send for Port {}

impl Port {
    /// # Errors
    /// Why there is no such queue pair.
    pub(super) fn new(device: IpAddr, source: SocketAddr) -> Result<Self> {
        let id = OwnId::new()?;
        resolve::bind(&id.0, (device, 0).into()).map_err(|error| error.errno())?;
        // SAFETY: a live object, bound to a device.
        let (context, pd) = unsafe { ((*id.0.abi()).verbs, (*id.0.abi()).pd) };
        let length = usize::from(QUEUE) * SLOT as usize;
        let send = Region::new(pd, length, false)?;
        let recv = Region::new(pd, length, false)?;
        // SAFETY: a live context.
        let completions = unsafe { Completions::new(context, 2 * i32::from(QUEUE)) }?;
        // SAFETY: zero is a value of all fields.
        let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
        init.send_cq = completions.cq();
        init.recv_cq = completions.cq();
        init.qp_type = IBV_QPT_UD;
        init.sq_sig_all = 1;
        init.cap.max_send_wr = QUEUE.into();
        init.cap.max_recv_wr = QUEUE.into();
        init.cap.max_send_sge = 1;
        init.cap.max_recv_sge = 1;
        // SAFETY: live handles.
        let qp = unsafe {
            qp::create_plain(&id.0, null_mut(), &mut init).map_err(|error| error.errno())?;
            (*id.0.abi()).qp
        };
        let port = Self {
            id,
            qp,
            completions,
            send,
            recv,
            free: (0..u32::from(QUEUE)).map(|slot| slot * SLOT).collect(),
            device,
            source,
        };
        for slot in 0..u32::from(QUEUE) {
            port.post_receive(slot * SLOT)?;
        }
        Ok(port)
    }

    pub(super) fn qpn(&self) -> u32 {
        // SAFETY: the memory of an object is never freed.
        unsafe { (*self.qp).qp_num }
    }

    /// The way to a queue pair of a peer.
    pub(super) fn handle(&self, way: &Way, qpn: u32) -> Result<Handle> {
        // SAFETY: the memory of an object is never freed.
        way.handle(unsafe { (*self.id.0.abi()).pd }, qpn)
    }

    fn post_receive(&self, offset: u32) -> Result<()> {
        let mut piece = ibv_sge {
            addr: self.recv.address(offset),
            length: SLOT,
            lkey: self.recv.lkey(),
        };
        let request = ibv_recv_wr {
            wr_id: RECEIVE | u64::from(offset),
            next: null_mut(),
            sg_list: &raw mut piece,
            num_sge: 1,
        };
        // SAFETY: a live queue pair, and memory that stays until the completion.
        unsafe { self.completions.post_receive(self.qp, request) }
    }

    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EMSGSIZE` if it is too long.
    ///
    /// # Safety
    /// The source's pieces are there.
    pub(super) unsafe fn send(&mut self, to: &Handle, source: &mut Source<'_>) -> Result<()> {
        let head = Head(self.source).encode();
        let length = head.len() + source.left();
        if length > DATAGRAM_MAX as usize {
            return Err(libc::EMSGSIZE);
        }
        let slot = self.free.pop().ok_or(libc::EAGAIN)?;
        // SAFETY: a local vector; as the caller promises; and there is room for both.
        unsafe {
            self.send.write(slot, head.as_ptr(), head.len());
            source.copy_to(&self.send, slot + head.len() as u32, source.left());
        }
        let sent = self.post_send(to, slot, length as u32);
        if sent.is_err() {
            self.free.push(slot);
        }
        sent
    }

    fn post_send(&self, to: &Handle, slot: u32, length: u32) -> Result<()> {
        let mut piece = ibv_sge {
            addr: self.send.address(slot),
            length,
            lkey: self.send.lkey(),
        };
        // SAFETY: zero is a value of all fields.
        let mut request: ibv_send_wr = unsafe { mem::zeroed() };
        request.wr_id = slot.into();
        request.sg_list = &raw mut piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_SEND;
        request.wr = WrTarget {
            ud: WrUd {
                ah: to.ah,
                remote_qpn: to.qpn,
                remote_qkey: RDMA_UDP_QKEY,
            },
        };
        // SAFETY: a live queue pair, and memory that stays until the completion.
        unsafe { self.completions.post_send(self.qp, request) }
    }

    /// Takes completions, and hands the datagrams among them to `each` with the address of their
    /// sender. Answers whether there were any.
    pub(super) fn progress(&mut self, mut each: impl FnMut(SocketAddr, &[u8])) -> Result<bool> {
        // SAFETY: zero is a value of all fields.
        let mut done: [ibv_wc; BATCH] = unsafe { mem::zeroed() };
        let count = self.completions.take(&mut done)?;
        for completion in &done[..count] {
            if completion.wr_id & RECEIVE == 0 {
                self.free.push(completion.wr_id as u32);
                continue;
            }
            let offset = (completion.wr_id & !RECEIVE) as u32;
            if completion.status == 0 {
                let length = completion.byte_len.clamp(GRH, SLOT) - GRH;
                let mut bytes = vec![0; length as usize];
                // SAFETY: a slot of the buffer, and a vector of that length.
                unsafe {
                    self.recv
                        .read(offset + GRH, bytes.as_mut_ptr(), bytes.len());
                }
                if let Some((Head(from), data)) = Head::decode(&bytes) {
                    each(from, data);
                }
            }
            self.post_receive(offset)?;
        }
        Ok(count > 0)
    }
}
