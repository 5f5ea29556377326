//! The device's capabilities: the table behind `ibv_query_device` and `ibv_query_device_ex`.
//!
//! The numbers apply to the whole device, in the units of `ibv_device_attr`. Anything not listed
//! here is 0 there: reliable datagrams, raw packets, fast memory regions, TSO, RSS, tag matching,
//! packet pacing, completion moderation (`ibv_modify_cq`).

use crate::numbers;

/// Bytes of a memory region (`max_mr_size`): all there are.
pub const MAX_MR_SIZE: u64 = u64::MAX;
/// Page sizes, a bit each (`page_size_cap`): 4 KiB and every larger power of two.
pub const PAGE_SIZE_CAP: u64 = 0xffff_ffff_ffff_f000;
/// Protection domains.
pub const MAX_PD: u32 = 1 << 16;
/// XRC domains.
pub const MAX_XRCD: u32 = 1 << 16;
/// Memory regions.
pub const MAX_MR: u32 = 1 << 23;
/// Memory windows.
pub const MAX_MW: u32 = 1 << 22;
/// Completion queues.
pub const MAX_CQ: u32 = 1 << 20;
/// Entries of a completion queue.
pub const MAX_CQE: u32 = 1 << 22;
/// Shared receive queues: those that a slot has numbers for.
pub const MAX_SRQ: u32 = numbers::COUNT;
/// Outstanding requests of a shared receive queue.
pub const MAX_SRQ_WR: u32 = 1 << 15;
/// Queue pairs: those that a slot has numbers for.
pub const MAX_QP: u32 = numbers::COUNT;
/// Outstanding work requests of a queue.
pub const MAX_WR: u32 = 1 << 15;
/// Elements of a scatter/gather list, for every operation (`max_sge`, `max_sge_rd`,
/// `max_srq_sge`).
pub const MAX_SGE: u32 = 30;
/// Elements that every queue pair takes, whatever it was created for; some programs rely on two.
pub const MIN_SGE: u32 = 2;
/// Bytes of inline data that every queue pair takes, whatever it was created for: rdma_xclient posts
/// 16 without having asked for any, as cards let it.
pub const MIN_INLINE: u32 = 32;
/// Bytes of inline data.
pub const MAX_INLINE: u32 = 1024;
/// READs and atomics outstanding of a queue pair, in either direction (`max_qp_rd_atom`,
/// `max_qp_init_rd_atom`).
pub const MAX_RD_ATOMIC: u8 = 16;
/// Multicast groups.
pub const MAX_MCAST_GRP: u32 = 1 << 13;
/// Queue pairs attached to a multicast group.
pub const MAX_MCAST_QP_ATTACH: u32 = 1 << 13;
/// Address handles; they live with the program.
pub const MAX_AH: u32 = 1 << 20;
/// Partition keys: the default one.
pub const MAX_PKEYS: u16 = 1;
/// Bytes of device memory (`max_dm_size`).
pub const MAX_DM_SIZE: u64 = 256 << 10;
/// How long the device may take to answer, as an exponent: 4.096 µs · 2^16 = 268 ms, what
/// ConnectX cards report.
pub const LOCAL_CA_ACK_DELAY: u8 = 16;
/// `IBV_ATOMIC_GLOB`: atomics of the device and of the processor exclude each other, because the
/// device uses those of the processor.
pub const ATOMIC_CAP: u32 = 2;
/// `IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT`.
pub const ODP_GENERAL_CAPS: u64 = 0b11;
/// On-demand paging with RC and XRC: SEND, receive, WRITE, READ, atomics, SRQ.
pub const ODP_RC_CAPS: u32 = 0b11_1111;
/// On-demand paging with UC: SEND, receive, WRITE, SRQ.
pub const ODP_UC_CAPS: u32 = 0b10_0111;
/// On-demand paging with UD: SEND, receive, SRQ.
pub const ODP_UD_CAPS: u32 = 0b10_0011;
/// The clock of completion timestamps counts nanoseconds (`hca_core_clock`, in kHz).
pub const CORE_CLOCK_KHZ: u64 = 1_000_000;
/// Valid bits of a timestamp (`completion_timestamp_mask`).
pub const TIMESTAMP_MASK: u64 = u64::MAX;

/// How many objects of each kind a device holds: what it reports, and what it refuses to exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// XRC domains.
    pub max_xrcd: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Multicast groups with queue pairs attached to them.
    pub max_mcast_grp: u32,
    /// Queue pairs attached to a multicast group.
    pub max_mcast_qp_attach: u32,
}

impl Limits {
    /// What every device has room for.
    pub const MAX: Self = Self {
        max_qp: MAX_QP,
        max_pd: MAX_PD,
        max_xrcd: MAX_XRCD,
        max_mr: MAX_MR,
        max_mw: MAX_MW,
        max_cq: MAX_CQ,
        max_srq: MAX_SRQ,
        max_mcast_grp: MAX_MCAST_GRP,
        max_mcast_qp_attach: MAX_MCAST_QP_ATTACH,
    };

    /// READs and atomics outstanding of all queue pairs (`max_res_rd_atom`).
    pub fn max_res_rd_atomic(&self) -> u32 {
        self.max_qp.saturating_mul(MAX_RD_ATOMIC.into())
    }

    /// Attachments to multicast groups (`max_total_mcast_qp_attach`).
    pub fn max_total_mcast_qp_attach(&self) -> u32 {
        self.max_mcast_grp.saturating_mul(self.max_mcast_qp_attach)
    }

    /// None above [`Self::MAX`].
    pub(crate) fn capped(self) -> Self {
        Self {
            max_qp: self.max_qp.min(MAX_QP),
            max_pd: self.max_pd.min(MAX_PD),
            max_xrcd: self.max_xrcd.min(MAX_XRCD),
            max_mr: self.max_mr.min(MAX_MR),
            max_mw: self.max_mw.min(MAX_MW),
            max_cq: self.max_cq.min(MAX_CQ),
            max_srq: self.max_srq.min(MAX_SRQ),
            max_mcast_grp: self.max_mcast_grp.min(MAX_MCAST_GRP),
            max_mcast_qp_attach: self.max_mcast_qp_attach.min(MAX_MCAST_QP_ATTACH),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::MAX
    }
}

/// `device_cap_flags`, bits of `ibv_device_cap_flags`.
pub const DEVICE_CAP_FLAGS: u32 = cap::BAD_PKEY_CNTR
    | cap::BAD_QKEY_CNTR
    | cap::CURR_QP_STATE_MOD
    | cap::PORT_ACTIVE_EVENT
    | cap::SYS_IMAGE_GUID
    | cap::RC_RNR_NAK_GEN
    | cap::SRQ_RESIZE
    | cap::MEM_WINDOW
    | cap::XRC
    | cap::MEM_MGT_EXTENSIONS
    | cap::MEM_WINDOW_TYPE_2B;

mod cap {
    pub(super) const BAD_PKEY_CNTR: u32 = 1 << 1;
    pub(super) const BAD_QKEY_CNTR: u32 = 1 << 2;
    pub(super) const CURR_QP_STATE_MOD: u32 = 1 << 7;
    pub(super) const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    pub(super) const SYS_IMAGE_GUID: u32 = 1 << 11;
    pub(super) const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub(super) const SRQ_RESIZE: u32 = 1 << 13;
    pub(super) const MEM_WINDOW: u32 = 1 << 17;
    pub(super) const XRC: u32 = 1 << 20;
    /// LOCAL_INV and SEND with invalidate.
    pub(super) const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    pub(super) const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
}
