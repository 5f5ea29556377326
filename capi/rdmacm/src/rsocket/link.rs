//! The queue pair of a stream and its buffers.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ferroce_ibverbs::abi::{
    IBV_QPT_RC, IBV_SEND_INLINE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, WrRdma, WrTarget,
    ibv_qp, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
};

use super::completions::{BATCH, Completions};
use super::flow::{End, Flow, Parts, Place, Sizes};
use super::maps::{Maps, Window};
use super::region::Region;
use super::result::Result;
use super::source::Source;
use super::wire::{Hello, Mapping, Message, OFFERS, Target};
use crate::id::Id;
use crate::qp;

/// Where writes of nothing go.
const NOWHERE: Place = (0, 0);
/// `IBV_WC_WITH_IMM`
const WITH_NUMBER: u32 = 1 << 1;
/// Marks the completions of receives.
const RECEIVE: u64 = 1 << 63;
/// Marks the completions of controls. Those of other writes count their bytes.
const CONTROL: u64 = 1 << 62;

pub(super) struct Link {
    id: Arc<Id>,
    qp: *mut ibv_qp,
    pub(super) completions: Completions,
    pub(super) flow: Flow,
    sizes: Sizes,
    send: Region,
    recv: Region,
    /// Written by the peer: what it offers, then what it has mapped.
    table: Region,
    maps: Maps,
}

// SAFETY: its pointers are handles that any thread may use.
unsafe impl Send for Link {}

impl Link {
    pub(super) fn new(id: &Arc<Id>, sizes: Sizes) -> Result<Self> {
        // SAFETY: a live object, bound to a device.
        let (context, pd) = unsafe { ((*id.abi()).verbs, (*id.abi()).pd) };
        let table = OFFERS * Target::LEN as usize + usize::from(sizes.maps) * Mapping::LEN as usize;
        let send = Region::new(pd, sizes.send_buffer as usize, false)?;
        let recv = Region::new(pd, sizes.recv_buffer as usize, true)?;
        let table = Region::new(pd, table, true)?;
        let entries = c_int::from(sizes.send_queue) + c_int::from(sizes.receives());
        // SAFETY: a live context.
        let completions = unsafe { Completions::new(context, entries) }?;
        let mut link = Self {
            id: Arc::clone(id),
            qp: null_mut(),
            completions,
            flow: Flow::new(sizes),
            sizes,
            send,
            recv,
            table,
            maps: Maps::default(),
        };
        link.create_queue_pair()?;
        for _ in 0..sizes.receives() {
            link.post_receive()?;
        }
        Ok(link)
    }

    fn create_queue_pair(&mut self) -> Result<()> {
        // SAFETY: zero is a value of all fields.
        let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
        init.send_cq = self.completions.cq();
        init.recv_cq = self.completions.cq();
        init.qp_type = IBV_QPT_RC;
        init.sq_sig_all = 1;
        init.cap.max_send_wr = self.sizes.send_queue.into();
        init.cap.max_recv_wr = self.sizes.receives().into();
        init.cap.max_send_sge = 2;
        init.cap.max_recv_sge = 1;
        // Offers have no buffer to be in until they are sent.
        init.cap.max_inline_data = u32::from(self.sizes.inline).max(Target::LEN);
        // SAFETY: live handles.
        unsafe {
            qp::create_plain(&self.id, null_mut(), &mut init).map_err(|error| error.errno())?;
            self.qp = (*self.id.abi()).qp;
        }
        Ok(())
    }

    /// What this end says of itself.
    pub(super) fn hello(&self) -> Hello {
        Hello {
            is_big_endian: cfg!(target_endian = "big"),
            limit: self.sizes.recv_queue,
            maps: self.sizes.maps,
            offers: Target {
                addr: self.table.address(0),
                key: self.table.rkey(),
                length: OFFERS as u32,
            },
            buffer: Target {
                addr: self.recv.address(0),
                key: self.recv.rkey(),
                length: self.sizes.recv_buffer / 2,
            },
        }
    }

    fn post_receive(&self) -> Result<()> {
        let request = ibv_recv_wr {
            wr_id: RECEIVE,
            next: null_mut(),
            sg_list: null_mut(),
            num_sge: 0,
        };
        // SAFETY: a live queue pair; there is no memory.
        unsafe { self.completions.post_receive(self.qp, request) }
    }

    /// Posts a write, with a number for the peer or without; `mark` comes back with its completion.
    fn post_write(
        &self,
        message: Option<Message>,
        mark: u64,
        pieces: &mut [ibv_sge],
        to: Place,
        is_inline: bool,
    ) -> Result<()> {
        // SAFETY: zero is a value of all fields.
        let mut request: ibv_send_wr = unsafe { mem::zeroed() };
        request.wr_id = mark;
        request.sg_list = pieces.as_mut_ptr();
        request.num_sge = pieces.len() as c_int;
        request.send_flags = if is_inline { IBV_SEND_INLINE } else { 0 };
        request.opcode = match message {
            Some(message) => {
                request.imm_data = message.encode().to_be();
                IBV_WR_RDMA_WRITE_WITH_IMM
            }
            None => IBV_WR_RDMA_WRITE,
        };
        let (remote_addr, rkey) = to;
        request.wr = WrTarget {
            rdma: WrRdma { remote_addr, rkey },
        };
        // SAFETY: a live queue pair, and memory that stays until the completion.
        unsafe { self.completions.post_send(self.qp, request) }
    }

    /// Posts a write of bytes that are in the send buffer.
    fn post_parts(&self, message: Option<Message>, parts: Parts, to: Place) -> Result<()> {
        let piece = |offset, length| ibv_sge {
            addr: self.send.address(offset),
            length,
            lkey: self.send.lkey(),
        };
        let mut pieces = [piece(parts.offset, parts.first), piece(0, parts.second)];
        let used = if parts.second > 0 { 2 } else { 1 };
        let is_inline = parts.length() <= self.sizes.inline.into();
        let mark = parts.length().into();
        self.post_write(message, mark, &mut pieces[..used], to, is_inline)
    }

    /// Copies bytes to parts of the send buffer.
    ///
    /// # Safety
    /// The source's pieces are there, and hold so much.
    unsafe fn gather(&self, source: &mut Source<'_>, parts: Parts) {
        for (offset, length) in [(parts.offset, parts.first), (0, parts.second)] {
            // SAFETY: as the caller promises.
            unsafe { source.copy_to(&self.send, offset, length as usize) };
        }
    }

    /// Sends what there is room for, at least a byte, and answers how much: only if
    /// [`Flow::can_send`].
    ///
    /// # Safety
    /// The source's pieces are there.
    pub(super) unsafe fn send(&mut self, source: &mut Source<'_>) -> Result<usize> {
        let (parts, to) = self.flow.send_data(source.left_u32());
        self.look_for_offer();
        // SAFETY: as the caller promises, and the parts are in the buffer.
        unsafe { self.gather(source, parts) };
        self.post_parts(Some(Message::Data(parts.length())), parts, to)?;
        Ok(parts.length() as usize)
    }

    /// Takes the peer's next offer if it is wanted and there. The peer writes none to that place
    /// again before its data has come.
    fn look_for_offer(&mut self) {
        let Some(index) = self.flow.wanted_offer() else {
            return;
        };
        let place = self.table.place::<Target>(0).wrapping_add(index);
        // SAFETY: a place of the table. The length, which the peer writes last, is read first.
        let offer = unsafe {
            let length = (&raw const (*place).length).read_volatile();
            if length == 0 {
                return;
            }
            fence(Ordering::Acquire);
            let offer = place.read_volatile();
            place.write_volatile(Target::default());
            offer
        };
        self.flow.take_offer(offer);
    }

    /// Copies what has arrived to the program, and takes it unless `keep` is set.
    ///
    /// # Safety
    /// There is room for `room` bytes at `to`.
    pub(super) unsafe fn receive(&mut self, to: *mut u8, room: usize, keep: bool) -> usize {
        let parts = self.flow.peek(u32::try_from(room).unwrap_or(u32::MAX));
        let (first, second) = (parts.first as usize, parts.second as usize);
        // SAFETY: as the caller promises, and the parts are in the buffer.
        unsafe {
            self.recv.read(parts.offset, to, first);
            self.recv.read(0, to.wrapping_add(first), second);
        }
        if !keep {
            self.flow.take(parts.length());
        }
        first + second
    }

    /// Tells the peer of what it may send.
    pub(super) fn give_credit(&mut self) -> Result<()> {
        while let Some(credit) = self.flow.credit() {
            let message = Some(Message::Limit(credit.limit));
            let Some(offer) = credit.offer else {
                self.post_write(message, CONTROL, &mut [], NOWHERE, false)?;
                continue;
            };
            let target = self.flow.for_peer(Target {
                addr: self.recv.address(offer.offset),
                key: self.recv.rkey(),
                length: offer.length,
            });
            let mut piece = [ibv_sge {
                addr: &raw const target as u64,
                length: Target::LEN,
                lkey: 0,
            }];
            self.post_write(message, CONTROL, &mut piece, offer.to, true)?;
        }
        Ok(())
    }

    /// Tells the peer something: only if [`Flow::has_control_slot`].
    pub(super) fn tell(&mut self, message: Message) -> Result<()> {
        self.flow.take_control_slot();
        self.post_write(Some(message), CONTROL, &mut [], NOWHERE, false)
    }

    /// Takes completions. Answers how the link has ended, if it has.
    pub(super) fn progress(&mut self) -> Option<End> {
        let ended = self.take_completions();
        self.look_for_offer();
        ended
    }

    fn take_completions(&mut self) -> Option<End> {
        let mut ended = None;
        loop {
            // SAFETY: zero is a value of all fields.
            let mut done: [ibv_wc; BATCH] = unsafe { mem::zeroed() };
            let Ok(count) = self.completions.take(&mut done) else {
                return Some(End::Broken);
            };
            for completion in &done[..count] {
                match self.complete(completion) {
                    // What fails after that fails because of it.
                    Some(End::Disconnected) => return Some(End::Disconnected),
                    end => ended = end.or(ended),
                }
            }
            if count < BATCH {
                return ended;
            }
        }
    }

    fn complete(&mut self, completion: &ibv_wc) -> Option<End> {
        let failed = completion.status != 0;
        if completion.wr_id & RECEIVE != 0 {
            if failed {
                return None; // the queue pair has ended, which its sends or the peer tell
            }
            if self.post_receive().is_err() {
                return Some(End::Broken);
            }
            return match completion.wc_flags & WITH_NUMBER {
                0 => None,
                _ => self
                    .flow
                    .hear(Message::decode(u32::from_be(completion.imm_data))),
            };
        }
        match completion.wr_id {
            CONTROL => self.flow.control_is_done(),
            length => self.flow.data_is_done(length as u32),
        }
        failed.then_some(End::Broken)
    }

    /// Maps memory of the program for the peer, or only for this end.
    pub(super) fn map(&mut self, window: Window) -> Result<()> {
        // SAFETY: the memory of an object is never freed.
        let pd = unsafe { (*self.id.abi()).pd };
        self.maps.add(pd, window, self.flow.peer_maps())
    }

    pub(super) fn unmap(&mut self, start: *mut c_void, length: usize) -> Result<()> {
        self.maps.remove(start, length)
    }

    /// Whether there is mapped memory that the peer has not heard of.
    pub(super) fn has_maps_to_tell(&self) -> bool {
        self.maps.has_untold()
    }

    /// Tells the peer of mapped memory: only if [`Flow::can_send`].
    pub(super) fn tell_map(&mut self) -> Result<()> {
        let Some((index, mapping)) = self.maps.next_untold() else {
            return Ok(());
        };
        let mapping = self.flow.mapping_for_peer(mapping);
        let bytes = [libc::iovec {
            iov_base: (&raw const mapping).cast_mut().cast(),
            iov_len: Mapping::LEN as usize,
        }];
        let (parts, to) = self.flow.send_mapping(index);
        // SAFETY: a local variable of that size, and the parts are in the buffer.
        unsafe { self.gather(&mut Source::new(&bytes), parts) };
        self.post_parts(Some(Message::Mapped(index)), parts, to)
    }

    /// Writes to memory that the peer has mapped at an offset: only if [`Flow::can_send`]. Answers how
    /// much.
    ///
    /// # Errors
    /// `EFAULT` if nothing is mapped there.
    ///
    /// # Safety
    /// The source's pieces are there.
    pub(super) unsafe fn write_mapped(
        &mut self,
        source: &mut Source<'_>,
        offset: u64,
    ) -> Result<usize> {
        let (target, into) = self.mapped_at(offset).ok_or(libc::EFAULT)?;
        let wanted = source.left_u32().min(target.length - into);
        let parts = self.flow.send_silently(wanted);
        // SAFETY: as the caller promises, and the parts are in the buffer.
        unsafe { self.gather(source, parts) };
        let to = (target.addr.wrapping_add(into.into()), target.key);
        self.post_parts(None, parts, to)?;
        Ok(parts.length() as usize)
    }

    /// The memory that the peer has mapped at an offset, and how far into it that is.
    fn mapped_at(&self, offset: u64) -> Option<(Target, u32)> {
        let first = self.table.place::<Target>(OFFERS).cast::<Mapping>();
        (0..usize::from(self.sizes.maps)).find_map(|index| {
            // SAFETY: an entry of the table, which the peer may write to.
            let mapping = unsafe { first.wrapping_add(index).read_volatile() };
            let into = u32::try_from(offset.checked_sub(mapping.offset)?).ok()?;
            (into < mapping.target.length).then_some((mapping.target, into))
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Before its completion queue.
        qp::destroy(&self.id);
    }
}
