//! The files of a port.

use std::net::Ipv6Addr;

use ferroce_device::port_attr::{self, Gid};
use ferroce_device::{Counter, PortCounter};
use ferroce_registry::PortSpeed;

use crate::card::Port;
use crate::tree::Node;

/// Entries of the GID table that have a file though they are empty.
const GIDS_SHOWN: u32 = 8;

/// How long a counter file may be behind, in milliseconds.
const LIFESPAN_MS: u32 = 10;

/// Files of the port at `at`; those that change are in `counters` and `hw_counters`.
pub(crate) fn files(at: &str, port: &Port, speed: PortSpeed) -> Vec<(String, Node)> {
    let file = |name: &str, text: &str| (format!("{at}/{name}"), Node::file(text));
    let mut files = vec![
        file("cap_mask", &format!("{:#010x}", port_attr::CAPABILITIES)),
        file("lid", &format!("{:#x}", port_attr::LID)),
        file("lid_mask_count", "0"),
        file("link_layer", port_attr::LINK_LAYER.name),
        file("phys_state", &named(port_attr::physical_state(port.is_up))),
        file("rate", &rate(speed)),
        file("sm_lid", &format!("{:#x}", port_attr::LID)),
        file("sm_sl", "0"),
        file("state", &named(port_attr::state(port.is_up))),
    ];
    for (index, pkey) in port_attr::PKEYS.iter().enumerate() {
        files.push(file(&format!("pkeys/{index}"), &format!("{pkey:#06x}")));
    }
    let table = &port.gids;
    let shown = table.used().map(|(index, _)| index + 1).max().unwrap_or(0);
    for index in 0..shown.max(GIDS_SHOWN) {
        let known = table.get(index).unwrap_or(Gid([0; 16]));
        files.push(file(&format!("gids/{index}"), &gid(known)));
    }
    // Kernels have these files of empty entries, too, but cannot read them; and the files above of all
    // that there might be.
    for (index, _) in table.used() {
        files.push(file(&format!("gid_attrs/types/{index}"), "RoCE v2"));
        files.push(file(&format!("gid_attrs/ndevs/{index}"), &port.netdev));
    }
    for counter in PortCounter::TABLE {
        let value = counter.value(|each| port.count(each), port.link_downed);
        let value = value.to_string();
        files.push(file(&format!("counters/{}", counter.name), &value));
    }
    let lifespan = LIFESPAN_MS.to_string();
    files.push(file("hw_counters/lifespan", &lifespan));
    for info in Counter::TABLE {
        let value = port.count(info.counter).to_string();
        files.push(file(&format!("hw_counters/{}", info.name), &value));
    }
    files
}

/// As the kernel writes it.
fn named(it: port_attr::Named) -> String {
    format!("{}: {}", it.value, it.name)
}

/// Without abbreviation, as the kernel writes it.
fn gid(gid: Gid) -> String {
    let groups = Ipv6Addr::from(gid.0).segments();
    groups.map(|group| format!("{group:04x}")).join(":")
}

/// As the kernel writes it.
fn rate(speed: PortSpeed) -> String {
    let (lanes, lane) = speed.lanes();
    format!("{} Gb/sec ({lanes}X {})", speed.gbps(), lane.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::{Card, example};

    fn text(name: &str) -> String {
        text_of(&example("fr0", 0), name)
    }

    fn text_of(card: &Card, name: &str) -> String {
        let files = files("p", &card.ports[0], card.speed);
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
    fn the_port_is_told_as_kernels_tell_it() {
        for (name, content) in [
            ("state", "4: ACTIVE\n"),
            ("phys_state", "5: LinkUp\n"),
            ("link_layer", "Ethernet\n"),
            ("cap_mask", "0x04010000\n"),
            ("lid", "0x0\n"),
            ("sm_lid", "0x0\n"),
            ("pkeys/0", "0xffff\n"),
            ("gids/1", "0000:0000:0000:0000:0000:ffff:7f10:0001\n"),
            ("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("gids/7", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ] {
            assert_eq!(text(name), content, "{name}");
        }
        let v6 = std::net::IpAddr::V6("2001:db8::1".parse().unwrap());
        assert_eq!(gid(v6.into()), "2001:0db8:0000:0000:0000:0000:0000:0001");
    }

    #[test]
    fn a_port_that_is_down_says_so() {
        let mut card = example("fr0", 0);
        card.ports[0].is_up = false;
        card.ports[0].link_downed = 3;
        assert_eq!(text_of(&card, "state"), "1: DOWN\n");
        assert_eq!(text_of(&card, "phys_state"), "3: Disabled\n");
        assert_eq!(text_of(&card, "counters/link_downed"), "3\n");
    }

    #[test]
    fn the_rate_is_that_of_the_lanes() {
        assert_eq!(text("rate"), "100 Gb/sec (4X EDR)\n");
        assert_eq!(rate(PortSpeed::G25), "25 Gb/sec (1X EDR)");
        assert_eq!(rate(PortSpeed::G400), "400 Gb/sec (4X NDR)");
    }

    #[test]
    fn port_counters_count_words_and_packets() {
        let port = &example("fr0", 0).ports[0];
        let bytes = port.count(Counter::RdmaTxBytes);
        assert_eq!(text("counters/port_xmit_data"), format!("{}\n", bytes / 4));
        let packets = port.count(Counter::RdmaRxPackets);
        assert_eq!(text("counters/port_rcv_packets"), format!("{packets}\n"));
    }
}
