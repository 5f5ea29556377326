//! Attributes that a connection gives to its queue pair.

use std::ffi::c_int;
use std::net::IpAddr;

use ferroce_hca::cm::ack_timeout;
use ferroce_hca::{AccessFlags, Attr};
use ferroce_ibverbs::abi::ibv_qp_attr;
use ferroce_wire::cm::{Rep, Req};

use crate::abi::RDMA_UDP_QKEY;
use crate::address;
use crate::event::way;
use crate::id::State;

/// What both sides have agreed on, seen from this side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) traffic_class: u8,
    /// First PSN of this side.
    pub(crate) psn: u32,
    pub(crate) peer_qpn: u32,
    pub(crate) peer_psn: u32,
    /// Path MTU as `ibv_mtu`.
    pub(crate) mtu: u8,
    /// READs and atomics that this side takes at a time.
    pub(crate) responder_resources: u8,
    /// READs and atomics that this side may have outstanding.
    pub(crate) initiator_depth: u8,
    /// Packet lifetime of the path, for the side that asks.
    pub(crate) packet_lifetime: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
}

impl Terms {
    /// What a peer asks for. An answer may change READs and atomics.
    pub(crate) fn of_request(req: &Req) -> Self {
        Self {
            peer: Some(req.local_gid.ip()),
            traffic_class: req.traffic_class,
            psn: crate::port::psn(),
            peer_qpn: req.qpn.value(),
            peer_psn: req.psn.value(),
            mtu: req.mtu.value() as u8,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            packet_lifetime: 0,
            timeout: req.ack_timeout.value() as u8,
            retry_count: req.retry_count.value() as u8,
            rnr_retry_count: req.rnr_retry_count.value() as u8,
        }
    }

    /// What a peer answers.
    pub(crate) fn take_reply(&mut self, rep: &Rep) {
        self.peer_qpn = rep.qpn.value();
        self.peer_psn = rep.psn.value();
        self.responder_resources = rep.initiator_depth;
        self.initiator_depth = rep.responder_resources;
        self.rnr_retry_count = rep.rnr_retry_count.value() as u8;
        self.timeout = ack_timeout(rep.target_ack_delay.value() as u8, self.packet_lifetime);
    }
}

/// The packet lifetime of a path, on a device that has a setting for it. A program that wants a
/// certain timeout gets half of it, as in Linux; one that wants none leaves the path as it is.
pub(crate) fn packet_lifetime(state: &State, device: u8) -> u8 {
    match state.ack_timeout {
        None | Some(0) => device,
        Some(timeout) => timeout - 1,
    }
}

/// The attributes of a step to `qp_state` and their mask, 0 for a state to which the connection
/// manager takes no queue pair.
pub(crate) fn step(
    state: &State,
    datagram: bool,
    reliable: bool,
    qp_state: c_int,
) -> (ibv_qp_attr, c_int) {
    let terms = &state.terms;
    let mut attr = ibv_qp_attr {
        qp_state,
        ..ibv_qp_attr::default()
    };
    let mut mask = Attr::STATE;
    match qp_state {
        1 => {
            mask |= Attr::PKEY_INDEX | Attr::PORT;
            attr.port_num = 1;
            if datagram {
                mask |= Attr::QKEY;
                attr.qkey = RDMA_UDP_QKEY;
            } else {
                mask |= Attr::ACCESS_FLAGS;
                let mut access = AccessFlags::REMOTE_WRITE;
                if terms.responder_resources > 0 && reliable {
                    access |= AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
                }
                attr.qp_access_flags = access.bits();
            }
        }
        2 if !datagram => {
            mask |= Attr::AV | Attr::PATH_MTU | Attr::DEST_QPN | Attr::RQ_PSN;
            if let Some(peer) = terms.peer {
                attr.ah_attr = way(address::gid(peer), state.traffic_class);
            }
            attr.path_mtu = terms.mtu.into();
            attr.dest_qp_num = terms.peer_qpn;
            attr.rq_psn = terms.peer_psn;
            if reliable {
                mask |= Attr::MAX_DEST_RD_ATOMIC | Attr::MIN_RNR_TIMER;
                attr.max_dest_rd_atomic = terms.responder_resources;
            }
        }
        3 => {
            mask |= Attr::SQ_PSN;
            attr.sq_psn = terms.psn;
            if !datagram && reliable {
                mask |= Attr::TIMEOUT | Attr::RETRY_CNT | Attr::RNR_RETRY | Attr::MAX_QP_RD_ATOMIC;
                attr.timeout = state.ack_timeout.unwrap_or(terms.timeout);
                attr.retry_cnt = terms.retry_count;
                attr.rnr_retry = terms.rnr_retry_count;
                attr.max_rd_atomic = terms.initiator_depth;
            }
        }
        _ => {}
    }
    (attr, mask.bits() as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `local_ca_ack_delay` of a device that is left as it is.
    const DELAY: u8 = 16;

    fn connected(ack_timeout: Option<u8>, device: u8) -> State {
        let mut state = State {
            ack_timeout,
            ..State::default()
        };
        state.terms.packet_lifetime = packet_lifetime(&state, device);
        state.terms.take_reply(&Rep {
            target_ack_delay: ferroce_wire::cm::Bits::saturating(DELAY.into()),
            ..Rep::default()
        });
        state
    }

    fn timeout(state: &State) -> u8 {
        step(state, false, true, 3).0.timeout
    }

    #[test]
    fn timeouts_follow_the_packet_lifetime_of_the_device() {
        assert_eq!(timeout(&connected(None, 18)), 19);
        assert_eq!(timeout(&connected(None, 16)), 18);
    }

    #[test]
    fn a_timeout_of_the_programs_own_is_kept_and_makes_about_the_same_for_the_peer() {
        for given in 0..=31 {
            let state = connected(Some(given), 18);
            assert_eq!(timeout(&state), given);
            let of_peer = ack_timeout(DELAY, state.terms.packet_lifetime);
            let expected = match given {
                // No timeout of its own says nothing of the path.
                0 => 19,
                1..=14 => 16,
                15..=17 => given.max(DELAY) + 1,
                _ => given,
            };
            assert_eq!(of_peer, expected, "{given}");
        }
    }

    #[test]
    fn only_reliable_queue_pairs_have_timeouts_and_take_reads() {
        let mut state = connected(None, 18);
        state.terms.responder_resources = 4;
        let of_steps = |reliable| {
            let steps = [1, 2, 3].map(|to| step(&state, false, reliable, to));
            let mask = steps.iter().fold(0, |mask, (_, its)| mask | its);
            (mask, steps[0].0.qp_access_flags)
        };
        let only = Attr::TIMEOUT
            | Attr::RETRY_CNT
            | Attr::RNR_RETRY
            | Attr::MAX_QP_RD_ATOMIC
            | Attr::MAX_DEST_RD_ATOMIC
            | Attr::MIN_RNR_TIMER;
        let (reliable, access) = of_steps(true);
        assert_eq!(reliable & only.bits() as c_int, only.bits() as c_int);
        assert!(access & AccessFlags::REMOTE_READ.bits() != 0);
        let (unreliable, access) = of_steps(false);
        assert_eq!(unreliable & only.bits() as c_int, 0);
        assert_eq!(access, AccessFlags::REMOTE_WRITE.bits());
    }
}
