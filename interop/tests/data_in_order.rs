//! The order in which messages land in memory, as programs ask for it.

use ferroce_interop::lab::Lab;

const LIBMLX5: &str = "-Wl,--no-as-needed -lmlx5";
const ORDERED: &str = "0 before it is connected, then 1, in bits 3, device only 1, unknown flag 0";
const ANY_ORDER: &str =
    "0 before it is connected, then 0, in bits 0, device only 0, unknown flag 0";

/// What `data_in_order` finds on a card.
fn found(lab: &Lab, card: &str) -> String {
    let program = lab.compile_with("data_in_order", LIBMLX5);
    lab.run_with(["--card", card], [program.to_str().unwrap()])
        .success()
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "other processors change the order of writes"
)]
fn a_queue_pair_of_any_order_says_so() {
    let lab = Lab::new("data-in-order");
    let expected = format!(
        "asked: 0x14000, at most 32768, DC reads 16\n\
         not asked: 0, at most 0, DC reads 0\n\
         garbage: 0, at most 0, DC reads 0\n\
         plain: {ORDERED}\n\
         any order: {ANY_ORDER}\n\
         datagrams: EOPNOTSUPP\n\
         a flag of raw packets: EOPNOTSUPP\n"
    );
    assert_eq!(found(&lab, "cx7"), expected);

    let expected = format!(
        "asked: 0x4000, at most 0, DC reads 16\n\
         not asked: 0, at most 0, DC reads 0\n\
         garbage: 0, at most 0, DC reads 0\n\
         plain: {ORDERED}\n\
         any order: EOPNOTSUPP\n\
         datagrams: EOPNOTSUPP\n\
         a flag of raw packets: EOPNOTSUPP\n"
    );
    assert_eq!(found(&lab, "cx6dx"), expected);
}

#[test]
fn the_variable_and_the_register_are_seen() {
    let relaxed = format!("plain: {ANY_ORDER}\n");
    let mut lab = Lab::new("relaxed-order");
    lab.set("MLX5_RELAXED_PACKET_ORDERING_ON", "1");
    let answer = found(&lab, "cx7");
    assert!(answer.contains(&relaxed), "{answer}");

    let lab = Lab::new("routed-order");
    lab.ferroce("reg set fr0 ROCE_ACCL adaptive_routing_forced_en=1")
        .success();
    let answer = found(&lab, "cx7");
    assert!(answer.contains(&relaxed), "{answer}");
}
