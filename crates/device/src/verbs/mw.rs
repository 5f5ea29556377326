//! Verbs of memory windows.

use ferroce_transport::{AccessFlags, MwBind, SendFlags, SendOp, SendTo, SendWr, Sges};
use ferroce_wire::Qpn;

use super::no_such;
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::ids::PdId;
use crate::mr::{KeyTable, MrKey, MwId, MwInfo, MwType};

/// A bind of a type 1 memory window (`ibv_mw_bind`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MwBindWr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// FENCE and SIGNALED.
    pub flags: SendFlags,
    /// The memory region; `None` only with a length of 0.
    pub mr: Option<MrKey>,
    /// First byte, as an address in the region.
    pub va: u64,
    /// Length in bytes; 0 unbinds the window.
    pub length: u64,
    /// What the peer may do.
    pub access: AccessFlags,
}

impl Hca {
    /// Creates an unbound memory window (ibv_alloc_mw(3)).
    pub fn alloc_mw(&mut self, pd: PdId, kind: MwType) -> Result<MwInfo, VerbsError> {
        self.pd_users(pd)?;
        let (object, max) = (Object::Mw, self.config.limits.max_mw);
        let info = self.common.keys.insert_window(pd, kind);
        let info = info.ok_or(VerbsError::TooMany { object, max })?;
        *self.pd_users(pd)? += 1;
        Ok(info)
    }

    /// Destroys a memory window, even if it is bound.
    pub fn dealloc_mw(&mut self, id: MwId) -> Result<(), VerbsError> {
        let info = self.query_mw(id)?;
        self.common.keys.remove_window(id);
        *self.pd_users(info.pd)? -= 1;
        Ok(())
    }

    /// Returns information about a memory window.
    pub fn query_mw(&self, id: MwId) -> Result<MwInfo, VerbsError> {
        self.common
            .keys
            .window(id)
            .ok_or_else(|| no_such(Object::Mw, id.0))
    }

    /// Returns the memory windows.
    pub fn mws(&self) -> impl Iterator<Item = MwInfo> {
        self.common.keys.windows()
    }

    /// Posts the bind of a type 1 window on a queue pair, and returns the key that the window has
    /// once it is executed. What is wrong with region, range or permissions shows in its
    /// completion, as `IBV_WC_MW_BIND_ERR` (ibv_bind_mw(3)).
    pub fn bind_mw(&mut self, qpn: Qpn, id: MwId, bind: &MwBindWr) -> Result<u32, VerbsError> {
        expect_kind(&self.common.keys, id, MwType::Type1)?;
        let gone = || no_such(Object::Mw, id.0);
        let rkey = self.common.keys.next_rkey(id).ok_or_else(gone)?;
        let wr = SendWr {
            wr_id: bind.wr_id,
            op: SendOp::BindMw(MwBind {
                rkey,
                lkey: bind.mr.map_or(0, MrKey::lkey),
                va: bind.va,
                length: bind.length,
                access: bind.access,
                zero_based: false,
            }),
            flags: bind.flags,
            sges: Sges::new(),
            inline: None,
            to: SendTo::Peer,
        };
        self.post_bind(qpn, wr)?;
        self.common.keys.announce(id, rkey);
        Ok(rkey)
    }
}

/// Refuses to bind a window that is not there, or not of this kind.
pub(super) fn expect_kind(keys: &KeyTable, id: MwId, kind: MwType) -> Result<(), VerbsError> {
    let window = keys.window(id).ok_or_else(|| no_such(Object::Mw, id.0))?;
    match window.kind == kind {
        true => Ok(()),
        false => Err(VerbsError::WrongMwType),
    }
}
