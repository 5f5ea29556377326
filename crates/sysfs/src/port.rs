//! The files of a port.

use ferroce_hca::{Counter, PortCounter};
use ferroce_udp::PortSpeed;

use crate::card::{Card, gid};
use crate::tree::Node;

/// GIDs 0 and 1 are the device's address, so that both habitual indexes work.
const GIDS: usize = 2;

/// How long a counter file may be behind, in milliseconds.
const LIFESPAN_MS: u32 = 10;

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
        file("rate", &rate(card.speed)),
        file("sm_lid", "0x0"),
        file("sm_sl", "0"),
        file("state", "4: ACTIVE"),
    ];
    for index in 0..GIDS {
        files.push(file(&format!("gids/{index}"), &gid(card.address)));
        files.push(file(&format!("gid_attrs/types/{index}"), "RoCE v2"));
        files.push(file(&format!("gid_attrs/ndevs/{index}"), &card.netdev));
    }
    for counter in PortCounter::TABLE {
        let value = counter.value(|each| card.count(each)).to_string();
        files.push(file(&format!("counters/{}", counter.name), &value));
    }
    let lifespan = LIFESPAN_MS.to_string();
    files.push(file("hw_counters/lifespan", &lifespan));
    for info in Counter::TABLE {
        let value = card.count(info.counter).to_string();
        files.push(file(&format!("hw_counters/{}", info.name), &value));
    }
    files
}

/// As the kernel writes it.
fn rate(speed: PortSpeed) -> String {
    let (lanes, lane) = speed.lanes();
    format!("{} Gb/sec ({lanes}X {})", speed.gbps(), lane.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::example;

    fn text(name: &str) -> String {
        let files = files("p", &example("fr0", 0));
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
    fn the_rate_is_that_of_the_lanes() {
        assert_eq!(text("rate"), "100 Gb/sec (4X EDR)\n");
        assert_eq!(rate(PortSpeed::G25), "25 Gb/sec (1X EDR)");
        assert_eq!(rate(PortSpeed::G400), "400 Gb/sec (4X NDR)");
    }

    #[test]
    fn port_counters_count_words_and_packets() {
        let card = example("fr0", 0);
        let bytes = card.count(Counter::RdmaTxBytes);
        assert_eq!(text("counters/port_xmit_data"), format!("{}\n", bytes / 4));
        let packets = card.count(Counter::RdmaRxPackets);
        assert_eq!(text("counters/port_rcv_packets"), format!("{packets}\n"));
    }
}
