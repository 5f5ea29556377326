//! The options of queue pairs.

use ferroce_transport::QpState;
use ferroce_wire::Qpn;

use crate::card::Feature;
use crate::device::Hca;
use crate::ece::Ece;
use crate::error::{Object, VerbsError};
use crate::verbs::no_such;

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
