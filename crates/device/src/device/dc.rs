//! Packets for targets of the dynamically connected transport (DCT). Each initiator has a responder of
//! its own there, a queue pair that no program sees.

use ferroce_transport::{Counter, Path, Qp, QpAttr, QpConfig, QpType};
use ferroce_wire::{Dceth, Headers, Opcode, Qpn};

use super::Hca;
use super::receive::check_target;
use crate::dc::{Call, Caller};
use crate::limits;
use crate::packet::Received;
use crate::queue_pair::QpEntry;

impl Hca {
    /// Hands a request on to the responder of its initiator.
    #[cold]
    pub(super) fn deliver_to_target(&mut self, packet: &Received<'_>, dceth: Dceth) {
        if let Err(cause) = self.answer_initiator(packet, dceth) {
            self.common.count(cause, 1);
        }
    }

    fn answer_initiator(&mut self, packet: &Received<'_>, dceth: Dceth) -> Result<(), Counter> {
        let headers = packet.headers;
        let target = self.qp_entry(headers.dest_qp).ok_or(Counter::RxUnknownQp)?;
        check_target(target, packet)?;
        let caller = Caller {
            target: headers.dest_qp,
            address: packet.source,
            initiator: dceth.initiator,
        };
        if let Some(connect) = headers.dc_connect() {
            let index = self.connect(caller, dceth, connect.incarnation, headers, connect.key)?;
            self.deliver_at(Some(index), packet);
            return Ok(());
        }
        let index = self.connections.hear(caller, dceth, self.common.now);
        let index = index.ok_or(Counter::RxDcUnconnected)?;
        if headers.opcode() == Opcode::DcDisconnect {
            self.hear_disconnect(caller, index, headers);
        } else {
            self.deliver_at(Some(index), packet);
        }
        Ok(())
    }

    /// Ends a connection that has no request after this disconnect: a late one is of no consequence.
    fn hear_disconnect(&mut self, caller: Caller, index: u32, headers: &Headers) {
        let expected = self.qps.get(index).map(|entry| entry.qp.expected_psn());
        if expected == Some(headers.psn)
            && let Some(index) = self.connections.leave(caller)
        {
            self.remove_responder(index);
        }
    }

    /// The responder for a connect request: a new one, or that which it has had before.
    fn connect(
        &mut self,
        caller: Caller,
        dceth: Dceth,
        incarnation: u32,
        headers: &Headers,
        key: u64,
    ) -> Result<u32, Counter> {
        match self.connections.call(caller, dceth, incarnation) {
            Call::Again { index } => return Ok(index),
            Call::Stale => return Err(Counter::DuplicateRequest),
            Call::New { replaces: Some(_) } => self.disconnect(caller),
            Call::New { replaces: None } => {}
        }
        let target = self.qp_entry(caller.target);
        let is_right = target.is_some_and(|target| target.objects.dc_key == Some(key));
        let now = self.common.now;
        let ended = match is_right {
            true => self.connections.make_room(now),
            false => Some(self.connections.refuse(caller)),
        };
        if let Some(ended) = ended.ok_or(Counter::RxDcTableFull)? {
            self.disconnect(ended);
        }
        let index = self.insert_responder(caller, headers);
        let index = index.ok_or(Counter::RxDcTableFull)?;
        self.connections
            .insert(caller, index, dceth, incarnation, now);
        Ok(index)
    }

    fn insert_responder(&mut self, caller: Caller, connect: &Headers) -> Option<u32> {
        let target = self.qp_entry(caller.target)?;
        let (objects, path) = (target.objects, target.path?);
        // It speaks and completes in the target's name.
        let config = QpConfig {
            qp_type: QpType::DcResponder,
            ..*target.qp.config()
        };
        let attr = QpAttr {
            dest_qpn: caller.initiator,
            max_dest_rd_atomic: limits::MAX_RD_ATOMIC,
            ..*target.qp.attr()
        };
        let qp = Qp::answering(config, &self.common.policy, attr, connect);
        let mut entry = Box::new(QpEntry::new(qp, objects));
        entry.path = Some(Path {
            dest: caller.address,
            ..path
        });
        let index = self.qps.insert_with(|_| entry)?;
        self.count_users(objects, 1).ok()?;
        Some(index)
    }

    /// Ends a connection of a target.
    fn disconnect(&mut self, caller: Caller) {
        if let Some(index) = self.connections.remove(caller) {
            self.remove_responder(index);
        }
    }

    /// Ends all connections of a target.
    pub(crate) fn disconnect_all(&mut self, target: Qpn) {
        while let Some(caller) = self.connections.caller_of(target) {
            self.disconnect(caller);
        }
    }
}
