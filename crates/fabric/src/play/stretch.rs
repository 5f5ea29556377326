//! Stretches of time in which the same happens again and again, and how they are left out.
//!
//! Messages get shorter by the packets of that time, and whatever is to happen later happens earlier: fabric and
//! devices do not notice.

use ferroce_base::time::Span;
use ferroce_device::Qpn;
use ferroce_transport::{Qp, UnsentWrite};
use ferroce_wire::Psn;

use super::Player;
use crate::fabric::Fabric;

/// A connection that is sending a message, at one moment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Flow {
    /// The connection, as an index into [all connections](Player::connections).
    pub(crate) connection: u32,
    /// The sender's queue pair.
    qpn: Qpn,
    /// What is sent next, what is to arrive next, and what is to be acknowledged next.
    pub(crate) sent: Psn,
    pub(crate) arrived: Psn,
    pub(crate) acknowledged: Psn,
    /// The message.
    pub(crate) write: UnsentWrite,
    /// The timeout of the sender: its exponent, range, and the retries that are left.
    timeout: (u16, Option<u8>, u8),
}

impl Flow {
    fn of(connection: u32, sender: &Qp, receiver: &Qp) -> Option<Self> {
        let write = sender.unsent_write()?;
        let (sent, arrived) = (sender.next_psn(), receiver.expected_psn());
        // Its first packet has arrived: both ends are in the same message.
        let is_arriving = arrived.is_after(write.first);
        is_arriving.then(|| Self {
            connection,
            qpn: sender.config().qpn,
            sent,
            arrived,
            acknowledged: sent.wrapping_sub(sender.in_flight()),
            write,
            timeout: (
                sender.retry().exponent(),
                sender.retry().range(),
                sender.retry().retries_left(),
            ),
        })
    }

    /// Whether it is the same message on the same queue pair, whose timeout has not changed, and some of it has
    /// arrived and has been acknowledged meanwhile.
    pub(crate) fn goes_on(&self, earlier: &Self) -> bool {
        self.connection == earlier.connection
            && self.qpn == earlier.qpn
            && self.write.first == earlier.write.first
            && self.timeout == earlier.timeout
            && self.arrived != earlier.arrived
            && self.acknowledged != earlier.acknowledged
    }
}

impl Player {
    /// Returns all connections that have something to send, in order; `None` if one of them is not in the middle of
    /// a message, is to be made or ended, or is slowed down by congestion control, which makes rates wander.
    pub(crate) fn flows(&self, fabric: &Fabric) -> Option<Vec<Flow>> {
        if !self.acts.is_empty() || !self.broken.is_empty() {
            return None;
        }
        let mut busy: Vec<_> = self.crews.iter().flat_map(|crew| crew.busy()).collect();
        busy.sort_unstable();
        let flow = |connection: u32| {
            let look = &self.plan.connections[connection as usize].look;
            let ([src, dst], [sender, receiver]) = (look.ends, look.qpns);
            let hca = &fabric.host(src).hca;
            let is_limited = hca.is_limited(sender, fabric.now());
            let sender = hca.qp(sender).filter(|_| !is_limited)?;
            Flow::of(connection, sender, fabric.host(dst).hca.qp(receiver)?)
        };
        busy.into_iter().map(flow).collect()
    }

    /// Leaves out a stretch of time, in which nothing begins or ends, and as many packets of each message.
    pub(crate) fn leave_out<'a>(
        &mut self,
        fabric: &mut Fabric,
        stretch: Span,
        packets: impl Iterator<Item = (&'a Flow, u32)>,
    ) {
        for (flow, packets) in packets {
            let connection = &self.plan.connections[flow.connection as usize];
            let ([src, dst], [sender, receiver]) = (connection.look.ends, connection.look.qpns);
            let mtu = self.plan.jobs[usize::from(connection.look.job)]
                .attr
                .path_mtu;
            let crew = &mut self.crews[fabric.part_of(src)];
            crew.shorten(
                flow.connection,
                flow.write.first.since(connection.una),
                packets,
                mtu,
            );
            let is_sent = fabric.host_mut(src).hca.shorten_write(sender, packets);
            let hca = &mut fabric.host_mut(dst).hca;
            let is_taken = hca.shorten_arriving(receiver, packets);
            if let Some(goodput) = &mut self.goodput {
                goodput.leave_out(flow.connection, u64::from(packets * mtu.bytes()));
            }
            debug_assert!(
                is_sent && is_taken,
                "both ends are in the message: {flow:?}"
            );
        }
        for crew in &mut self.crews {
            crew.hasten(stretch);
        }
        self.plan.left_out += stretch;
    }

    /// Returns how much time has been left out so far.
    pub(crate) fn left_out(&self) -> Span {
        self.plan.left_out
    }
}
