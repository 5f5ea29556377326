//! The counters that every InfiniBand or RoCE port has, computed from the device's own.

use ferroce_transport::Counter;

/// Bytes in which ports count data (IBA vol 1, 16.1.3.5).
const WORD: u64 = 4;

/// A counter in `/sys/class/infiniband/DEV/ports/1/counters/`.
#[derive(Clone, Copy, Debug)]
pub struct PortCounter {
    /// Name of the file.
    pub name: &'static str,
    /// Name of node_exporter's metric without `_total`.
    pub metric: &'static str,
    /// What one of the file's count is in the metric's unit.
    pub scale: u64,
    /// One sentence for help texts and exporters.
    pub help: &'static str,
    counts: Counts,
}

/// What a port counter is made of.
#[derive(Clone, Copy, Debug)]
enum Counts {
    /// What cannot happen to a software device.
    Nothing,
    Sum(&'static [Counter]),
    Words(Counter),
    Difference(Counter, Counter),
    /// How often the port went down, which no counter of a process says.
    LinkDowned,
}

impl PortCounter {
    /// Its value, given the device's counters, and how often the port went down.
    pub fn value(&self, counter: impl Fn(Counter) -> u64, link_downed: u64) -> u64 {
        match self.counts {
            Counts::Nothing => 0,
            Counts::Sum(counters) => counters.iter().map(|&each| counter(each)).sum(),
            Counts::Words(bytes) => counter(bytes) / WORD,
            // Both move while they are read.
            Counts::Difference(all, some) => counter(all).saturating_sub(counter(some)),
            Counts::LinkDowned => link_downed,
        }
    }

    /// Every counter of a port, in the order of their names.
    pub const TABLE: &'static [Self] = &[
        Self::row(
            "VL15_dropped",
            "node_infiniband_vl15_dropped",
            NOTHING,
            "Subnet management packets dropped.",
        ),
        Self::row(
            "excessive_buffer_overrun_errors",
            "node_infiniband_excessive_buffer_overrun_errors",
            NOTHING,
            "Buffer overruns of the link.",
        ),
        Self::row(
            "link_downed",
            "node_infiniband_link_downed",
            Counts::LinkDowned,
            "Times the link went down.",
        ),
        Self::row(
            "link_error_recovery",
            "node_infiniband_link_error_recovery",
            NOTHING,
            "Times the link recovered from an error.",
        ),
        Self::row(
            "local_link_integrity_errors",
            "node_infiniband_local_link_integrity_errors",
            NOTHING,
            "Errors of the local link.",
        ),
        Self::row(
            "multicast_rcv_packets",
            "node_infiniband_multicast_packets_received",
            Counts::Sum(&[Counter::RxMulticastPackets]),
            "Multicast packets received.",
        ),
        Self::row(
            "multicast_xmit_packets",
            "node_infiniband_multicast_packets_transmitted",
            Counts::Sum(&[Counter::TxMulticastPackets]),
            "Multicast packets sent.",
        ),
        Self::row(
            "port_rcv_constraint_errors",
            "node_infiniband_port_constraint_errors_received",
            NOTHING,
            "Packets a switch port discarded.",
        ),
        Self::data(
            "port_rcv_data",
            "node_infiniband_port_data_received_bytes",
            Counter::RdmaRxBytes,
            "Payload received; the file counts words of four bytes.",
        ),
        Self::row(
            "port_rcv_errors",
            "node_infiniband_port_errors_received",
            Counts::Sum(&[Counter::RxIcrcEncapsulated, Counter::RxMalformed]),
            "Packets received with an error.",
        ),
        Self::row(
            "port_rcv_packets",
            "node_infiniband_port_packets_received",
            Counts::Sum(&[Counter::RdmaRxPackets]),
            "Packets received.",
        ),
        Self::row(
            "port_rcv_remote_physical_errors",
            "node_infiniband_port_receive_remote_physical_errors",
            NOTHING,
            "Packets marked bad.",
        ),
        Self::row(
            "port_rcv_switch_relay_errors",
            "node_infiniband_port_receive_switch_relay_errors",
            NOTHING,
            "Packets a switch could not relay.",
        ),
        Self::row(
            "port_xmit_constraint_errors",
            "node_infiniband_port_constraint_errors_transmitted",
            NOTHING,
            "Packets a switch port did not send.",
        ),
        Self::data(
            "port_xmit_data",
            "node_infiniband_port_data_transmitted_bytes",
            Counter::RdmaTxBytes,
            "Payload sent; the file counts words of four bytes.",
        ),
        Self::row(
            "port_xmit_discards",
            "node_infiniband_port_discards_transmitted",
            Counts::Sum(&[Counter::TxDropped]),
            "Packets the link refused to take.",
        ),
        Self::row(
            "port_xmit_packets",
            "node_infiniband_port_packets_transmitted",
            Counts::Sum(&[Counter::RdmaTxPackets]),
            "Packets sent.",
        ),
        Self::row(
            "port_xmit_wait",
            "node_infiniband_port_transmit_wait",
            NOTHING,
            "Ticks in which the port had data and could not send.",
        ),
        Self::row(
            "symbol_error",
            "node_infiniband_symbol_error",
            NOTHING,
            "Symbol errors.",
        ),
        Self::row(
            "unicast_rcv_packets",
            "node_infiniband_unicast_packets_received",
            Counts::Difference(Counter::RdmaRxPackets, Counter::RxMulticastPackets),
            "Unicast packets received.",
        ),
        Self::row(
            "unicast_xmit_packets",
            "node_infiniband_unicast_packets_transmitted",
            Counts::Difference(Counter::RdmaTxPackets, Counter::TxMulticastPackets),
            "Unicast packets sent.",
        ),
    ];

    const fn row(
        name: &'static str,
        metric: &'static str,
        counts: Counts,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            metric,
            scale: 1,
            help,
            counts,
        }
    }

    const fn data(
        name: &'static str,
        metric: &'static str,
        bytes: Counter,
        help: &'static str,
    ) -> Self {
        Self {
            scale: WORD,
            ..Self::row(name, metric, Counts::Words(bytes), help)
        }
    }
}

const NOTHING: Counts = Counts::Nothing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_metrics_differ() {
        let table = PortCounter::TABLE;
        assert!(table.is_sorted_by_key(|row| row.name));
        for (index, row) in table.iter().enumerate() {
            let twice = |other: &PortCounter| other.metric == row.metric;
            assert!(!table[..index].iter().any(twice), "{}", row.name);
        }
    }

    #[test]
    fn unicast_is_what_is_not_multicast_and_data_are_words() {
        let counters = |counter| match counter {
            Counter::RdmaTxPackets => 10,
            Counter::TxMulticastPackets => 3,
            Counter::RdmaTxBytes => 4003,
            _ => 0,
        };
        let value = |name| {
            let row = PortCounter::TABLE
                .iter()
                .find(|row| row.name == name)
                .unwrap();
            (row.value(counters, 7), row.scale)
        };
        assert_eq!(value("unicast_xmit_packets"), (7, 1));
        assert_eq!(value("multicast_xmit_packets"), (3, 1));
        assert_eq!(value("port_xmit_data"), (1000, 4));
        assert_eq!(value("unicast_rcv_packets"), (0, 1));
        assert_eq!(value("link_downed"), (7, 1));
    }
}
