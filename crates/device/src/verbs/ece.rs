//! Enhanced connection establishment: options that both ends of a connection agree on.

use ferroce_transport::QpState;
use ferroce_wire::Qpn;
use ferroce_wire::cm::{Rep, Req};

use crate::card::Feature;
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::verbs::no_such;

/// Options of a queue pair, as mlx5 cards and their programs encode them (`ibv_ece`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ece {
    /// Who gives the options their meaning; 0: nobody, there are none.
    pub vendor_id: u32,
    /// The version of the options in the upper four bits, and the options.
    pub options: u32,
}

impl Ece {
    /// The vendor of the cards.
    pub const VENDOR: u32 = 0x15b3;
    /// The version of its options.
    const VERSION: u32 = 3 << 28;
    /// Option of version 2 and later: the queue pair repeats selectively.
    const SELECTIVE_REPEAT: u32 = 1;
    const VERSION_SINCE: u32 = 2;

    fn new(selective_repeat: bool) -> Self {
        let option = match selective_repeat {
            true => Self::SELECTIVE_REPEAT,
            false => 0,
        };
        Self {
            vendor_id: Self::VENDOR,
            options: Self::VERSION | option,
        }
    }

    fn selective_repeat(self) -> bool {
        self.vendor_id == Self::VENDOR
            && self.options >> 28 >= Self::VERSION_SINCE
            && self.options & Self::SELECTIVE_REPEAT != 0
    }
}

impl From<&Req> for Ece {
    fn from(req: &Req) -> Self {
        Self {
            vendor_id: req.vendor_id.value(),
            options: req.vendor_options,
        }
    }
}

impl From<&Rep> for Ece {
    fn from(rep: &Rep) -> Self {
        let id = [0, rep.vendor_id_high, rep.vendor_id_middle, rep.vendor_id_low];
        Self {
            vendor_id: u32::from_be_bytes(id),
            options: rep.vendor_options,
        }
    }
}

impl Hca {
    /// The options that a queue pair can have before it is connected; then those that it has.
    pub fn query_ece(&self, qpn: Qpn) -> Result<Ece, VerbsError> {
        let entry = self.qp_entry(qpn);
        let entry = entry.ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        let is_open = matches!(entry.qp.state(), QpState::Reset | QpState::Init) && !entry.has_ece;
        Ok(Ece::new(match is_open {
            true => entry.qp.can_repeat_selectively() && self.can_repeat_selectively(),
            false => entry.qp.repeats_selectively(),
        }))
    }

    /// Sets the options of a queue pair that cannot send yet to those of `ece` that it can have, which its
    /// peer offers or has chosen. Options of another vendor are none.
    pub fn set_ece(&mut self, qpn: Qpn, ece: Ece) -> Result<(), VerbsError> {
        let can = self.can_repeat_selectively();
        let entry = self.qp_entry_mut(qpn);
        let entry = entry.ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        let state = entry.qp.state();
        if !matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(VerbsError::EceTooLate { qpn, state });
        }
        entry.has_ece = true;
        let agreed = can && ece.selective_repeat();
        entry.qp.agree_on_selective_repeat(agreed);
        Ok(())
    }

    fn can_repeat_selectively(&self) -> bool {
        self.state()
            .identity()
            .features()
            .has(Feature::SelectiveRepeat)
    }
}
