//! The DSCP that a register gives acknowledgements.

use ferroce_device::{AccessFlags, SendOp, SendWr};
use ferroce_prm::roce_accl as reg;
use ferroce_wire::Qpn;

use ferroce_testing::register::{image, write};
use ferroce_testing::{A, B, World};

/// Traffic classes of what B sends in answer to a WRITE and a READ: acknowledgements, and READ
/// responses.
fn answers(pair: &mut World, qpn: Qpn) -> [Vec<u32>; 2] {
    let source = pair.sides[A].register(64, AccessFlags::all());
    let target = pair.sides[B].register(64, AccessFlags::all());
    pair.trace = Some(Vec::new());
    let read = SendOp::Read {
        va: target.info.va,
        rkey: target.info.key.rkey(),
    };
    for op in [target.write(), read] {
        pair.post(A, qpn, SendWr::new(1, op, source.whole()));
        pair.run();
    }
    let lines = pair.trace.take().unwrap();
    ["RcAcknowledge", "RcReadResponse"].map(|opcode| {
        let is_it = |line: &&String| line.contains(&format!(" {B} ")) && line.contains(opcode);
        let class = |line: &String| {
            let (_, rest) = line.split_once("traffic_class: ").unwrap();
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
            rest[..end].parse().unwrap()
        };
        lines.iter().filter(is_it).map(class).collect()
    })
}

#[test]
fn the_forced_dscp_applies_to_acknowledgements_and_not_to_data() {
    let (mut pair, qpns) = World::connected();
    // The ECN bits, which do not change, say that the queue pair reacts to congestion.
    assert_eq!(answers(&mut pair, qpns[A]), [[2], [2]]);
    for (forced, dscp, expected) in [(1, 26, 0x6a), (1, 63, 0xfe), (0, 63, 2)] {
        let register = image(&[
            (&reg::ACK_DSCP_FORCE_FIELD_SELECT, 1),
            (&reg::ACK_DSCP_FORCE, forced),
            (&reg::ACK_DSCP, dscp),
        ]);
        write(&mut pair.sides[B].hca, &register).unwrap();
        assert_eq!(answers(&mut pair, qpns[A]), [[expected], [2]]);
    }
}
