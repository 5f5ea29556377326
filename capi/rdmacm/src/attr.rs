//! The path of a connection, and the attributes that it gives to its queue pair.

use std::ffi::c_int;

use ferroce_device::{AccessFlags, Attr};
use ferroce_ibverbs::abi::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr};

use crate::abi::{RDMA_UDP_QKEY, ibv_sa_path_rec};
use crate::address;
use crate::device::Device;
use crate::id::State;

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
            attr.port_num = state.device.map_or(1, |device| device.port);
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
                attr.ah_attr = path_attr(address::gid(peer), state);
            }
            attr.path_mtu = terms.mtu.into();
            attr.dest_qp_num = terms.peer_qpn;
            attr.rq_psn = terms.rq_psn;
            if reliable {
                mask |= Attr::MAX_DEST_RD_ATOMIC | Attr::MIN_RNR_TIMER;
                attr.max_dest_rd_atomic = terms.responder_resources;
            }
        }
        3 => {
            mask |= Attr::SQ_PSN;
            attr.sq_psn = terms.sq_psn;
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

/// The address vector of a path from the device that an identifier is bound to.
pub(crate) fn path_attr(dgid: ibv_gid, state: &State) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid,
            sgid_index: state.device.map_or(0, Device::gid_index),
            traffic_class: state.traffic_class,
            hop_limit: 64,
            ..ibv_global_route::default()
        },
        sl: state.sl,
        is_global: 1,
        port_num: state.device.map_or(1, |device| device.port),
        ..ibv_ah_attr::default()
    }
}

/// The service level of a type of service: the priority that Linux gives a socket of that type
/// (`rt_tos2priority`), as drivers of cards take it without a mapping of their own.
pub(crate) fn sl_of_tos(tos: u8) -> u8 {
    match tos >> 3 & 3 {
        0 => 0, // best effort
        1 => 2, // bulk
        2 => 6, // interactive
        _ => 4, // interactive bulk
    }
}

/// The path from a device to the peer, as programs find it in `route.path_rec`.
pub(crate) fn path(device: &Device, state: &State) -> ibv_sa_path_rec {
    let terms = &state.terms;
    ibv_sa_path_rec {
        dgid: terms.peer.map(address::gid).unwrap_or_default(),
        sgid: address::gid(device.address()),
        hop_limit: 64,
        traffic_class: state.traffic_class,
        sl: state.sl,
        reversible: 1,
        numb_path: 1,
        pkey: ferroce_wire::PKEY_DEFAULT.to_be(),
        mtu_selector: EXACTLY,
        mtu: terms.mtu,
        rate_selector: EXACTLY,
        rate: RATE_100_GBPS,
        packet_life_time_selector: EXACTLY,
        packet_life_time: terms.packet_lifetime,
        ..ibv_sa_path_rec::default()
    }
}

/// `IBV_SA_..._SELECTOR`: the value is exact.
const EXACTLY: u8 = 2;
/// `IBV_RATE_100_GBPS`
const RATE_100_GBPS: u8 = 16;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ferroce_device::cm::{Transport, ack_timeout};
    use ferroce_wire::Psn;
    use ferroce_wire::cm::{Rep, Req};

    use super::*;
    use crate::terms::Terms;

    /// `local_ca_ack_delay` of a device that is left as it is.
    const DELAY: u8 = 16;
    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn connected(ack_timeout: Option<u8>, device: u8) -> State {
        let mut state = State {
            ack_timeout,
            ..State::default()
        };
        state.terms.packet_lifetime = packet_lifetime(&state, device);
        let rep = Rep {
            target_ack_delay: ferroce_wire::cm::Bits::saturating(DELAY.into()),
            ..Rep::default()
        };
        state.terms.take_reply(&rep, Transport::Rc);
        state
    }

    fn timeout(state: &State) -> u8 {
        step(state, false, true, 3).0.timeout
    }

    /// Linux: `rq_psn` is what it wrote into its own message, `sq_psn` what it read in the peer's.
    #[test]
    fn each_side_begins_to_send_where_the_peer_says() {
        let psns = |state: &State| {
            let attr = |to| step(state, false, true, to).0;
            (attr(2).rq_psn, attr(3).sq_psn)
        };
        let starting_psn = Psn::new(0xdd_6bc8);
        let mut active = State::default();
        active.terms.rq_psn = 0x10_8b4b;
        let rep = Rep {
            starting_psn,
            ..Rep::default()
        };
        active.terms.take_reply(&rep, Transport::Rc);
        assert_eq!(psns(&active), (0x10_8b4b, 0xdd_6bc8));

        let req = Req {
            starting_psn,
            ..Req::default()
        };
        let passive = State {
            terms: Terms::of_request(PEER, &req, Psn::new(0x10_8b4b)),
            ..State::default()
        };
        assert_eq!(psns(&passive), (0x10_8b4b, 0xdd_6bc8));
    }

    /// REQ and REP name what their sender takes and wants, each the other way round for the
    /// receiver.
    #[test]
    fn the_responders_depth_bounds_the_requester() {
        let req = Req {
            responder_resources: 3,
            initiator_depth: 5,
            ..Req::default()
        };
        let terms = Terms::of_request(PEER, &req, Psn::ZERO);
        assert_eq!((terms.responder_resources, terms.initiator_depth), (5, 3));
        let rep = Rep {
            responder_resources: 2,
            initiator_depth: 1,
            ..Rep::default()
        };
        let mut terms = Terms::default();
        terms.take_reply(&rep, Transport::Rc);
        assert_eq!((terms.responder_resources, terms.initiator_depth), (1, 2));
    }

    /// The target's queue pair of XRC replaces an end-to-end context.
    #[test]
    fn a_reply_names_an_xrc_target_elsewhere() {
        let rep = Rep {
            eecn: ferroce_wire::Qpn::new(0x222),
            ..Rep::default()
        };
        let mut terms = Terms::default();
        terms.take_reply(&rep, Transport::Xrc);
        assert_eq!(terms.peer_qpn, 0x222);
    }

    /// The table in the manuals of ConnectX drivers.
    #[test]
    fn a_type_of_service_has_the_service_level_of_linux() {
        for (tos, sl) in [(0, 0), (8, 2), (24, 4), (16, 6), (26 << 2, 2), (0xe3, 0)] {
            assert_eq!(sl_of_tos(tos), sl, "{tos}");
        }
    }

    #[test]
    fn timeouts_follow_the_packet_lifetime_of_the_device() {
        assert_eq!(timeout(&connected(None, 18)), 19);
        assert_eq!(timeout(&connected(None, 16)), 18);
    }

    #[test]
    fn an_explicit_timeout_is_kept_and_gives_the_peer_a_similar_one() {
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
