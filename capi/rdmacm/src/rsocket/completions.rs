//! A completion queue with a descriptor to sleep on, and the requests posted for it.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr::null_mut;

use ferroce_ibverbs::abi::{
    ibv_comp_channel, ibv_context, ibv_context_ops, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr,
    ibv_wc,
};
use ferroce_ibverbs::{
    ibv_ack_cq_events, ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel,
    ibv_destroy_cq, ibv_get_cq_event,
};

use super::result::{Result, last_errno, set_nonblocking};

/// Completions that are taken at a time.
pub(super) const BATCH: usize = 16;

pub(super) struct Completions {
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    is_armed: bool,
    /// Events that were not acknowledged.
    unacknowledged: u32,
}

impl Completions {
    /// # Safety
    /// A live context.
    pub(super) unsafe fn new(context: *mut ibv_context, entries: c_int) -> Result<Self> {
        // SAFETY: as the caller promises.
        let channel = unsafe { ibv_create_comp_channel(context) };
        if channel.is_null() {
            return Err(last_errno());
        }
        let mut made = Self {
            cq: null_mut(),
            channel,
            is_armed: false,
            unacknowledged: 0,
        };
        set_nonblocking(made.descriptor());
        // SAFETY: live handles.
        made.cq = unsafe { ibv_create_cq(context, entries, null_mut(), channel, 0) };
        match made.cq.is_null() {
            true => Err(last_errno()),
            false => Ok(made),
        }
    }

    pub(super) fn cq(&self) -> *mut ibv_cq {
        self.cq
    }

    fn operations(&self) -> &ibv_context_ops {
        // SAFETY: a context lives as long as its objects.
        unsafe { &(*(*self.cq).context).ops }
    }

    /// Takes completions; answers how many.
    pub(super) fn take(&self, into: &mut [ibv_wc; BATCH]) -> Result<usize> {
        let poll = self.operations().poll_cq.ok_or(libc::EOPNOTSUPP)?;
        // SAFETY: a live completion queue and room for `BATCH` entries.
        let count = unsafe { poll(self.cq, BATCH as c_int, into.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| libc::EIO)
    }

    /// # Safety
    /// A live queue pair of this context, and memory that stays until the completion.
    pub(super) unsafe fn post_receive(&self, qp: *mut ibv_qp, mut wr: ibv_recv_wr) -> Result<()> {
        let mut bad = null_mut();
        let post = self.operations().post_recv.ok_or(libc::EOPNOTSUPP)?;
        // SAFETY: as the caller promises, and local variables.
        check(unsafe { post(qp, &raw mut wr, &raw mut bad) })
    }

    /// # Safety
    /// As [`Completions::post_receive`].
    pub(super) unsafe fn post_send(&self, qp: *mut ibv_qp, mut wr: ibv_send_wr) -> Result<()> {
        let mut bad = null_mut();
        let post = self.operations().post_send.ok_or(libc::EOPNOTSUPP)?;
        // SAFETY: as the caller promises, and local variables.
        check(unsafe { post(qp, &raw mut wr, &raw mut bad) })
    }

    /// Has the next completion make [`Completions::descriptor`] readable; false if that was so
    /// already.
    pub(super) fn arm(&mut self) -> bool {
        if mem::replace(&mut self.is_armed, true) {
            return false;
        }
        if let Some(notify) = self.operations().req_notify_cq {
            // SAFETY: a live completion queue.
            unsafe { notify(self.cq, 0) };
        }
        true
    }

    pub(super) fn descriptor(&self) -> c_int {
        // SAFETY: a live channel.
        unsafe { (*self.channel).fd }
    }

    /// Takes the event, if there is one.
    pub(super) fn take_event(&mut self) {
        let (mut cq, mut context): (*mut ibv_cq, *mut c_void) = (null_mut(), null_mut());
        // SAFETY: a live channel, whose descriptor does not block, and local variables.
        if unsafe { ibv_get_cq_event(self.channel, &raw mut cq, &raw mut context) } == 0 {
            self.unacknowledged += 1;
            self.is_armed = false;
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: what was made in `new`, of which nothing is used any more.
        unsafe {
            if !self.cq.is_null() {
                if self.unacknowledged > 0 {
                    ibv_ack_cq_events(self.cq, self.unacknowledged);
                }
                ibv_destroy_cq(self.cq);
            }
            ibv_destroy_comp_channel(self.channel);
        }
    }
}

fn check(errno: c_int) -> Result<()> {
    match errno {
        0 => Ok(()),
        errno => Err(errno),
    }
}
