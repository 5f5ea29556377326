//! Requests for the queue pair of a datagram service (IBA vol 1, 12.11).

use ferroce_wire::cm::{SidrRep, SidrReq};

use super::connection::{Connection, Origin};
use super::request::duration;
use super::sender::Sender;
use super::{Cm, CmEventKind, CmState, CommId, ConnectRequest};

impl Cm {
    pub(super) fn handle_sidr_req(&mut self, from: Sender, req: &SidrReq) {
        let origin = Origin::datagram(from.source, req.request_id);
        if self.is_repeated(from, origin) {
            return;
        }
        let Some(listener) = self.listeners.get(&req.service_id) else {
            self.refuse_lookup(from, req, SidrRep::NOT_SUPPORTED);
            return;
        };
        let has_room = listener.has_room_for(from.source);
        if let Err(cause) = self.admit(from.source, has_room) {
            self.drop_request(from.source, req.service_id, cause); // it will be asked again
            return;
        }
        let wait = duration(ConnectRequest::RESPONSE_TIMEOUT.into());
        let comm = self.insert(Connection {
            time_wait: wait * 2,
            ..Connection::asked(
                CmState::SidrReqReceived,
                origin,
                from.path,
                req.service_id,
                from.tid,
                wait,
            )
        });
        self.begin_waiting(comm);
        let (source, req) = (from.source, Box::new(*req));
        self.tell(comm, CmEventKind::SidrRequest { source, req });
    }

    pub(super) fn refuse_lookup(&mut self, from: Sender, req: &SidrReq, status: u8) {
        let rep = SidrRep {
            request_id: req.request_id,
            status,
            service_id: req.service_id,
            ..SidrRep::default()
        };
        self.answer(from.path, from.tid, rep);
    }

    pub(super) fn handle_sidr_rep(&mut self, from: Sender, rep: &SidrRep) -> bool {
        let comm = CommId(rep.request_id);
        let Some(connection) = self.of_peer(from, comm) else {
            return false;
        };
        if connection.state == CmState::SidrReqSent && connection.tid == from.tid {
            if rep.status == SidrRep::NOT_SUPPORTED && self.ask_again_soon(from.now, comm) {
                return true;
            }
            self.give_up(comm);
            let rep = Box::new(*rep);
            self.tell(comm, CmEventKind::SidrReply { rep });
        }
        true
    }
}
