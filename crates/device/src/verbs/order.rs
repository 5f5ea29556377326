//! The order in which what peers send lands in memory.

use ferroce_transport::{QpState, QpType};
use ferroce_wire::Qpn;

use crate::card::Feature;
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::verbs::no_such;

impl Hca {
    /// Returns whether the packets for a queue pair are written in the order in which its peer has sent them.
    /// Before it is connected, that is not known.
    pub fn lands_in_order(&self, qpn: Qpn) -> Result<bool, VerbsError> {
        let entry = self.qp_entry(qpn);
        let entry = entry.ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        let connected = match entry.qp.config().qp_type {
            QpType::Dct => QpState::Rtr,
            _ => QpState::Rts,
        };
        Ok(entry.qp.state() == connected && entry.qp.lands_in_order())
    }

    /// Returns whether packets of queue pairs of this type can take many paths on this card.
    pub fn can_route_adaptively(&self, qp_type: QpType) -> bool {
        let features = self.state().identity().features();
        qp_type == QpType::Rc && features.has(Feature::AdaptiveRouting)
    }

    /// Has packets of a queue pair that is not connected yet take many paths, whatever the register says,
    /// if it [can](Self::can_route_adaptively).
    pub fn route_adaptively(&mut self, qpn: Qpn) -> Result<(), VerbsError> {
        let entry = self.qp_entry_mut(qpn);
        let entry = entry.ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        entry.qp.route_adaptively();
        Ok(())
    }
}
