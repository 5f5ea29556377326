//! Congestion control by the priority that a port trusts, and the priority of CNPs.

use ferroce_device::{
    AccessFlags, Counter, HcaConfig, Mtu, Path, Qos, QpAttr, QpType, SendWr, Trust, VlanId,
};
use ferroce_testing::{A, B, World, attr};
use ferroce_wire::Opcode;

use super::{mark, set};

/// Of data packets: ECN-capable, and of priority 1.
const CLASS: u8 = 1 << 5 | 2;
/// Of data packets.
const SL: u8 = 3;

/// The consequences of a marked WRITE.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    /// The priority in the tag of the data, or 0.
    data: u8,
    /// That of the CNP, if there was one.
    cnp: Option<u8>,
    /// Whether the sender has reacted to it.
    is_limited: bool,
}

fn send_marked(trust: Trust, vlan: u16, assignments: &[&str]) -> Seen {
    let vlan = VlanId::new(vlan);
    let mut pair = World::pair(HcaConfig {
        qos: Qos { trust, vlan },
        ..HcaConfig::default()
    });
    pair.log = Some(Vec::new());
    let [from, to] = [A, B].map(|side| pair.sides[side].register(4096, AccessFlags::all()));
    let qpns = [A, B].map(|side| pair.sides[side].create_qp());
    for own in [A, B] {
        let attr = QpAttr {
            path_mtu: Mtu::Mtu4096,
            dest_qpn: qpns[1 - own],
            ..attr()
        };
        let path = Path {
            dest: pair.sides[1 - own].address,
            traffic_class: CLASS,
            sl: SL,
            port: 1,
        };
        pair.sides[own].ready(qpns[own], QpType::Rc, attr, Some(path));
        set(&pair.sides[own].hca, assignments);
    }
    mark(&mut pair, B, 1.0);
    pair.post(A, qpns[A], SendWr::new(0, to.write(), from.whole()));
    pair.run_for(100_000);
    let log = pair.log.as_ref().unwrap();
    let is_cnp = |opcode| opcode == Opcode::Cnp;
    let find = |side, cnp| {
        let it = log
            .iter()
            .find(|sent| (sent.from, is_cnp(sent.headers.opcode())) == (side, cnp));
        it.map(|sent| sent.sl)
    };
    Seen {
        data: find(A, false).unwrap(),
        cnp: find(B, true),
        is_limited: pair.count(A, Counter::RpCnpHandled) > 0,
    }
}

#[test]
fn a_cnp_has_the_parameter_s_priority_or_the_marked_packet_s() {
    for (vlan, assignments, data, cnp) in [
        (0, &["cnp_802p_prio=5"][..], 0, 0),
        (100, &[], SL, 6),
        (100, &["cnp_802p_prio=5"], SL, 5),
        (100, &["np_cnp_prio_mode=1"], SL, SL),
        // Writing the priority selects it.
        (100, &["np_cnp_prio_mode=1", "cnp_802p_prio=5"], SL, 5),
    ] {
        for trust in Trust::ALL {
            let expected = Seen {
                data,
                cnp: Some(cnp),
                is_limited: true,
            };
            let seen = send_marked(trust, vlan, assignments);
            assert_eq!(
                seen, expected,
                "trust {trust}, VLAN {vlan}, {assignments:?}"
            );
        }
    }
}

#[test]
fn each_point_is_enabled_for_priorities_of_the_trusted_field() {
    // The priority of the packets under each trust: that of the DSCP, the PCP, or 0 without a tag.
    for (trust, vlan, own) in [
        (Trust::Dscp, 0, 1),
        (Trust::Dscp, 100, 1),
        (Trust::Pcp, 0, 0),
        (Trust::Pcp, 100, SL),
    ] {
        for priority in [0, 1, SL] {
            let off = |point| {
                let assignment = format!("{point}/enable/{priority}=0");
                send_marked(trust, vlan, &[&assignment])
            };
            let context = format!("trust {trust}, VLAN {vlan}, priority {priority}");
            let is_own = priority == own;
            assert_eq!(off("roce_np").cnp.is_none(), is_own, "{context}");
            let seen = off("roce_rp");
            assert!(seen.cnp.is_some(), "{context}");
            assert_eq!(seen.is_limited, !is_own, "{context}");
        }
    }
}
