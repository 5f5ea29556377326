//! Options that queue pairs agree on (`ibv_set_ece`), and what becomes of lost packets with them.

use ferroce_interop::lab::Lab;
use ferroce_testing::has;
use serde_json::Value;

#[test]
fn the_calls_answer_as_the_cards_library_does() {
    for (card, can) in [("cx5", 0), ("cx7", 1)] {
        let lab = Lab::new("ece-calls");
        let program = lab.compile("ece");
        let words = [program.to_str().unwrap(), "calls"];
        let finished = lab.run_with(["--card", card], words).finish();
        let expected = format!(
            "offered: 0x3000000{can} of vendor 0x15b3\n\
             offered by UD: 0x30000000 of vendor 0x15b3\n\
             another field: EINVAL\n\
             another vendor: EINVAL\n\
             still offered: 0x3000000{can} of vendor 0x15b3\n\
             unknown options: ok\n\
             accepted: 0x3000000{can} of vendor 0x15b3\n\
             set: 0x3000000{can} of vendor 0x15b3\n\
             after RTS: EINVAL\n\
             connected: 0x3000000{can} of vendor 0x15b3\n\
             reset: 0x3000000{can} of vendor 0x15b3\n"
        );
        assert_eq!(finished.stdout, expected, "{card}: {finished}");
        has(
            &finished.stderr,
            [
                "ibv_set_ece: comp_mask is 1; allowed: 0",
                "ibv_set_ece: vendor_id is 7640 (0x1dd8); allowed: 0x15b3",
                "is in state Rts: set its ECE options before RTS",
            ],
        );
    }
}

/// How often receivers asked for packets again, from the first missing one on.
fn gaps(lab: &Lab) -> u64 {
    let shown = lab.ferroce("-j stat show fr0 packet_seq_err").success();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let counters = &shown["devices"][0]["counters"];
    counters["packet_seq_err"].as_u64().unwrap()
}

#[test]
fn both_ends_repeat_lost_packets_as_agreed() {
    for (card, case, agreed) in [
        ("cx7", "agree", 1),
        ("cx7", "connect", 0),
        ("cx5", "agree", 0),
    ] {
        let lab = Lab::new("ece");
        let program = lab.compile("ece");
        lab.ferroce("impair set fr0 loss=5%").success();
        let words = [program.to_str().unwrap(), case];
        let output = lab.run_with(["--card", card], words).success();
        let options = format!("active end: 0x3000000{agreed} of vendor 0x15b3");
        has(&output, [options.as_str(), "every byte is right"]);
        assert_eq!(gaps(&lab) == 0, agreed == 1, "{card} {case}");
    }
}

#[test]
fn rdma_cm_carries_and_sets_options() {
    for (card, can) in [("cx5", 0), ("cx7", 1)] {
        let lab = Lab::new("ece-cm");
        let (program, address) = (lab.compile("cm_ece"), lab.address());
        let words = [program.to_str().unwrap(), &address];
        let output = lab.run_with(["--card", card], words).success();
        let expected = format!(
            "client offers: 0x3000000{can} of vendor 0x15b3\n\
             server sees: 0x3000000{can} of vendor 0x15b3\n\
             client has: 0x3000000{can} of vendor 0x15b3\n\
             server has: 0x3000000{can} of vendor 0x15b3\n\
             with a queue pair: EINVAL\n\
             vendor 0: EINVAL\n\
             another field: EINVAL\n\
             before: 0 of vendor 0\n\
             server sees: 0xfedcba98 of vendor 0x123456\n\
             client sees: 0x98 of vendor 0x123456\n"
        );
        assert_eq!(output, expected, "{card}");
    }
}
