//! The files of a port.

use ferroce_hca::Counter;

use crate::card::{Card, gid};
use crate::tree::Node;

/// GIDs 0 and 1 are the device's address, so that both habitual indexes work.
const GIDS: usize = 2;

/// How long a counter file may be behind, in milliseconds.
const LIFESPAN_MS: u32 = 10;

/// A file of `counters/` and what it shows.
type PortCounter = (&'static str, fn(&Card) -> u64);

/// The counters that every InfiniBand or RoCE port has. Data is counted in words of four bytes.
const COUNTERS: &[PortCounter] = &[
    ("VL15_dropped", never),
    ("excessive_buffer_overrun_errors", never),
    ("link_downed", never),
    ("link_error_recovery", never),
    ("local_link_integrity_errors", never),
    ("multicast_rcv_packets", never),
    ("multicast_xmit_packets", never),
    ("port_rcv_constraint_errors", never),
    ("port_rcv_data", |card| card.count(Counter::RdmaRxBytes) / 4),
    ("port_rcv_errors", |card| {
        card.count(Counter::RxIcrcEncapsulated) + card.count(Counter::RxMalformed)
    }),
    ("port_rcv_packets", |card| {
        card.count(Counter::RdmaRxPackets)
    }),
    ("port_rcv_remote_physical_errors", never),
    ("port_rcv_switch_relay_errors", never),
    ("port_xmit_constraint_errors", never),
    ("port_xmit_data", |card| {
        card.count(Counter::RdmaTxBytes) / 4
    }),
    ("port_xmit_discards", |card| card.count(Counter::TxDropped)),
    ("port_xmit_packets", |card| {
        card.count(Counter::RdmaTxPackets)
    }),
    ("port_xmit_wait", never),
    ("symbol_error", never),
    ("unicast_rcv_packets", |card| {
        card.count(Counter::RdmaRxPackets)
    }),
    ("unicast_xmit_packets", |card| {
        card.count(Counter::RdmaTxPackets)
    }),
];

fn never(_: &Card) -> u64 {
    0
}

/// Files of the port at `at`; those that change are in `counters` and `hw_counters`.
pub(crate) fn files(at: &str, card: &Card) -> Vec<(String, Node)> {
    let file = |name: &str, text: &str| (format!("{at}/{name}"), Node::file(text));
    let mut files = vec![
        file("cap_mask", "0x04010000"),
        file("lid", "0x0"),
        file("lid_mask_count", "0"),
        file("link_layer", "Ethernet"),
        file("phys_state", "5: LinkUp"),
        file("pkeys/0", "0xffff"),
        file("rate", "100 Gb/sec (4X EDR)"),
        file("sm_lid", "0x0"),
        file("sm_sl", "0"),
        file("state", "4: ACTIVE"),
    ];
    for index in 0..GIDS {
        files.push(file(&format!("gids/{index}"), &gid(card.address)));
        files.push(file(&format!("gid_attrs/types/{index}"), "RoCE v2"));
        files.push(file(&format!("gid_attrs/ndevs/{index}"), &card.netdev));
    }
    for (name, value) in COUNTERS {
        files.push(file(&format!("counters/{name}"), &value(card).to_string()));
    }
    let lifespan = LIFESPAN_MS.to_string();
    files.push(file("hw_counters/lifespan", &lifespan));
    for info in Counter::TABLE {
        let value = card.count(info.counter).to_string();
        files.push(file(&format!("hw_counters/{}", info.name), &value));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::example;

    fn text(name: &str) -> String {
        let files = files("p", &example("fr0"));
        let wanted = format!("p/{name}");
        let found = files.iter().find(|(path, _)| *path == wanted);
        match &found.unwrap_or_else(|| panic!("{name} is missing")).1 {
            Node::File(text) => text.clone(),
            node => panic!("{name} is {node:?}"),
        }
    }

    #[test]
    fn every_counter_of_the_table_has_its_file() {
        for (info, value) in Counter::TABLE.iter().zip(1000..) {
            assert_eq!(
                text(&format!("hw_counters/{}", info.name)),
                format!("{value}\n")
            );
        }
    }

    #[test]
    fn port_counters_count_words_and_packets() {
        let card = example("fr0");
        let bytes = card.count(Counter::RdmaTxBytes);
        assert_eq!(text("counters/port_xmit_data"), format!("{}\n", bytes / 4));
        let packets = card.count(Counter::RdmaRxPackets);
        assert_eq!(text("counters/unicast_rcv_packets"), format!("{packets}\n"));
    }
}
