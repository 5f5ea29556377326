//! The payload that connections deliver between one look and the next.

use std::collections::BTreeMap;

use super::ConnectionLook;
use super::crew::Crew;
use super::plan::{Connection, Plan};
use crate::fabric::Fabric;
use crate::workload::TransferId;

/// What connections that have something to send had delivered at the last look, bytes. Looking takes no time for
/// those that are idle.
#[derive(Default, Debug)]
pub(super) struct Goodput {
    delivered: BTreeMap<u32, u64>,
}

impl Goodput {
    /// A transfer has started.
    pub(super) fn note_started(&mut self, plan: &Plan, id: TransferId) {
        for (connection, _) in plan.parts(id) {
            // An idle one has delivered what is acknowledged.
            let idle = || plan.connections[connection as usize].look.bytes;
            self.delivered.entry(connection).or_insert_with(idle);
        }
    }

    /// Bytes are left out that a connection would have delivered, and are not told.
    pub(super) fn leave_out(&mut self, connection: u32, bytes: u64) {
        if let Some(delivered) = self.delivered.get_mut(&connection) {
            *delivered += bytes;
        }
    }

    /// Calls `tell` with each connection that has delivered something since the last look, and how much.
    pub(super) fn look(
        &mut self,
        plan: &Plan,
        crews: &[Crew],
        fabric: &Fabric,
        mut tell: impl FnMut(&ConnectionLook, u64),
    ) {
        self.delivered.retain(|number, before| {
            let connection = &plan.connections[*number as usize];
            let crew = &crews[fabric.part_of(connection.look.ends[0])];
            let bytes =
                connection.look.bytes + unacknowledged(plan, crew, fabric, (*number, connection));
            // What a connection that was made anew sends again is not new.
            let since = bytes.saturating_sub(*before);
            *before = bytes.max(*before);
            if since > 0 {
                tell(&connection.look, since);
            }
            crew.is_busy(*number)
        });
    }
}

/// The payload that a connection has delivered without gaps and that is not acknowledged, bytes.
fn unacknowledged(
    plan: &Plan,
    crew: &Crew,
    fabric: &Fabric,
    (number, it): (u32, &Connection),
) -> u64 {
    let ([_, dst], [_, qpn]) = (it.look.ends, it.look.qpns);
    let receiver = fabric.host(dst).hca.qp(qpn).filter(|_| it.is_made);
    let mut packets = receiver.map_or(0, |qp| qp.expected_psn().since(it.una));
    let mtu = plan.jobs[usize::from(it.look.job)].attr.path_mtu;
    let mut delivered = 0;
    for share in crew.outstanding(number) {
        let whole = share.packets(mtu);
        if packets < whole {
            return delivered + u64::from((packets + share.left_out) * mtu.bytes());
        }
        delivered += u64::from(share.bytes);
        packets -= whole;
    }
    delivered
}
