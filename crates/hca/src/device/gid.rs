//! The host's addresses as the device's GIDs. The host decides which ones exist.

use super::Hca;
use crate::event::Event;

impl Hca {
    /// The port's GIDs are others. If the device's own address was lost, every queue pair that is
    /// bound to it stays so though the address comes back: it sends into nowhere, hears nothing, and
    /// fails when its retries are over (F21). A new path binds it anew.
    pub fn handle_gid_change(&mut self, is_own_lost: bool) {
        self.common.events.push_back(Event::GidChange);
        if !is_own_lost {
            return;
        }
        for entry in self.qps.iter_mut() {
            entry.is_severed |= entry.path.is_some();
        }
    }
}
