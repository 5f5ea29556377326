//! UC receives.

use ferroce_wire::{BthFlags, Headers, NakCode};

use crate::counter::Counter;
use crate::memory::Data;
use crate::responder::{Context, Failed, Refusal, Responder};
use crate::services::Services;

/// A packet up to this number of PSNs late was repeated or overtaken on its way. One from further back
/// belongs to a peer that went on while nothing arrived.
const LATE_PACKETS_MAX: u32 = 1 << 16;

/// What is different for UC: lost packets are not asked for again (IBA vol 1, 9.8.2.2).
impl Responder {
    /// Takes a request packet. A message that misses one is given up, and its receive WQE serves
    /// the next message.
    pub(crate) fn handle_unreliable<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        cx: &mut Context<'_, H>,
    ) -> Result<(), Failed> {
        let psn = headers.psn;
        let late = self.expected_psn().since(psn);
        if (1..=LATE_PACKETS_MAX).contains(&late) {
            cx.host.count(Counter::DuplicateRequest, 1);
            return Ok(());
        }
        if late != 0 {
            cx.host.count(Counter::OutOfSequence, 1);
            self.abandon(cx);
        }
        if headers.opcode().starts_message() {
            self.abandon(cx); // the peer has given it up, too
        }
        if !self.in_message() && !headers.opcode().starts_message() {
            self.expect(psn.next());
            return Ok(()); // the rest of a message given up
        }
        // Nothing of it shall be answered.
        let mut headers = *headers;
        headers.flags.remove(BthFlags::ACK_REQ);
        self.expect(psn);
        let executed = self.execute(&headers, data, cx);
        self.expect(psn.next());
        match executed {
            Ok(()) => Ok(()),
            Err(Refusal::NotReady) => {
                cx.host.count(Counter::OutOfBuffer, 1);
                self.abandon(cx);
                Ok(())
            }
            Err(Refusal::Receive(fault)) => {
                self.fail_receive(fault, cx);
                Err(Failed)
            }
            Err(Refusal::Fatal(NakCode::RemoteAccess, event)) => {
                cx.count_refusal(NakCode::RemoteAccess, headers.opcode());
                self.fail_refused(NakCode::RemoteAccess, cx);
                cx.host.event(event);
                Err(Failed)
            }
            Err(Refusal::Fatal(..) | Refusal::Invalidation) => {
                self.abandon(cx);
                Ok(())
            }
        }
    }
}
