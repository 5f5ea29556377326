//! Documents of `ferroce dev`, `link`, `stat`, `impair` and `status`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_registry::PeerRow;
use serde::Serialize;

use super::shared::{Bin, Named, Policy};

/// Devices.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Devices {
    /// Each of them.
    pub(crate) devices: Vec<Device>,
}

/// A device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Device {
    /// Its name.
    pub(crate) device: String,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// Its address.
    pub(crate) address: IpAddr,
    /// The address of the card's second port, if it has one.
    pub(crate) second_address: Option<IpAddr>,
    /// Whether both ports make a bond.
    pub(crate) bond: bool,
    /// The UDP port of it and its peers.
    pub(crate) port: u16,
    /// What carries packets: auto, udp or shm.
    pub(crate) link: String,
    /// Virtual functions of the card.
    pub(crate) vfs: u8,
    /// The address of the first of them, if it was set.
    pub(crate) vf_address: Option<IpAddr>,
    /// The card that it is a virtual function of; null if it is none.
    pub(crate) parent: Option<String>,
    /// The function's number on its card: 0 is the card itself, 1 its first virtual function.
    pub(crate) vhca_id: u16,
    /// PCI address.
    pub(crate) pci: String,
    /// Node and system image GUID.
    pub(crate) node_guid: String,
    /// Vendor, 24 bits.
    pub(crate) vendor_id: u32,
    /// Number of the vendor's part.
    pub(crate) vendor_part_id: u32,
    /// Version of the hardware.
    pub(crate) hw_ver: u32,
    /// Version of the firmware.
    pub(crate) fw_ver: String,
    /// The card that these numbers are those of, such as cx7:28.48.1000; null if it is none that is known.
    pub(crate) card: Option<String>,
    /// Board, also called PSID.
    pub(crate) board_id: String,
    /// Packet lifetime of a path, as a code: 4.096 us times two to the power of the code.
    pub(crate) packet_lifetime: u8,
    /// local_ca_ack_delay, as a code: 4.096 us times two to the power of the code.
    pub(crate) ca_ack_delay: u8,
    /// Speed of the port, such as 25G.
    pub(crate) speed: String,
    /// What is kept on the wire to one peer, such as 256KiB; auto if the device finds that out itself.
    pub(crate) window: String,
    /// The header field that gives a packet its priority: dscp or pcp.
    pub(crate) trust: String,
    /// VLAN with whose tag it sends; null if packets have no tag.
    pub(crate) vlan: Option<u16>,
    /// Seed of everything random in it; 0 leaves that to the system.
    pub(crate) seed: u32,
    /// Behaviour of the firmware that no register controls: the parts of `personality`.
    pub(crate) personality: Settings,
    /// Parameters of congestion control with which the firmware starts, by mlxconfig's names: those that
    /// differ from the firmware's defaults.
    pub(crate) nvconfig: Settings,
    /// Processes that have it open.
    pub(crate) processes: usize,
    /// What carries packets from these to their peers.
    pub(crate) peers: Vec<PeerRow>,
}

/// Settings by name.
type Settings = BTreeMap<String, serde_json::Value>;

/// Cards that a device can be.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cards {
    /// Each generation, the oldest first.
    pub(crate) cards: Vec<Card>,
}

/// A generation of cards.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Card {
    /// Its name, as --card takes it.
    pub(crate) card: &'static str,
    /// Its name in documents.
    pub(crate) name: &'static str,
    /// Number of the vendor's part, also the PCI device id.
    pub(crate) vendor_part_id: u32,
    /// The same of its virtual functions.
    pub(crate) vf_part_id: u32,
    /// The number of the chip in MGIR.
    pub(crate) hw_dev_id: u32,
    /// local_ca_ack_delay, which is also the minimum ACK timeout: 4.096 us * 2^ca_ack_delay.
    pub(crate) ca_ack_delay: u8,
    /// The oldest firmware that is known.
    pub(crate) oldest_firmware: String,
    /// The newest firmware that is known, which the card has unless another is named.
    pub(crate) newest_firmware: String,
    /// The first firmware with each feature; null if the card never has it.
    pub(crate) since: BTreeMap<&'static str, Option<String>>,
}

/// Devices that were removed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Removed {
    /// Their names: the device, and its virtual functions.
    pub(crate) removed: Vec<String>,
}

/// Ports.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ports {
    /// The port of each device.
    pub(crate) ports: Vec<Port>,
}

/// The port of a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Port {
    /// The device.
    pub(crate) device: String,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// Number of the port, or of the link of a bond, from 1.
    pub(crate) port: u8,
    /// up or down.
    pub(crate) state: &'static str,
    /// How long until that is set to change; null if it is not.
    pub(crate) changes_in_ns: Option<u64>,
    /// How often it went down.
    pub(crate) link_downed: u64,
    /// The interface of the host that has its address.
    pub(crate) netdev: String,
}

/// What devices have counted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counted {
    /// Each device.
    pub(crate) devices: Vec<DeviceCounters>,
}

/// What a device has counted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceCounters {
    /// The device.
    pub(crate) device: String,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// Number of the port, or of the link of a bond, from 1.
    pub(crate) port: u8,
    /// Every counter by its name, as in /sys; `ferroce stat explain` explains them.
    pub(crate) counters: Named<u64>,
    /// Timeouts of adaptive retransmission, by wait.
    pub(crate) histogram: Histogram,
}

/// A histogram of timeouts.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Histogram {
    /// Whether it counts.
    pub(crate) counting: bool,
    /// Its bins, from the shortest waits to the longest.
    pub(crate) bins: Vec<Bin>,
}

/// How fast counters grow.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rates {
    /// The time between the two looks.
    pub(crate) elapsed_s: f64,
    /// Each device.
    pub(crate) devices: Vec<DeviceRates>,
}

/// How fast the counters of a device grow.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceRates {
    /// The device.
    pub(crate) device: String,
    /// Number of the port, or of the link of a bond, from 1.
    pub(crate) port: u8,
    /// By how much each counter has grown in a second.
    pub(crate) rates: Named<f64>,
    /// What each counter is now.
    pub(crate) counters: Named<u64>,
}

/// What counters mean.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CounterNames {
    /// Each counter.
    pub(crate) counters: Vec<CounterName>,
}

/// A counter.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CounterName {
    /// Where its file is below /sys/class/infiniband/DEV/ports/1.
    pub(crate) directory: &'static str,
    /// Its name, and that of the file.
    pub(crate) name: &'static str,
    /// What Prometheus gets it as.
    pub(crate) metric: String,
    /// What the kernel's software RoCE calls it; null if it has no such counter.
    pub(crate) rxe: Option<&'static str>,
    /// What it counts.
    pub(crate) meaning: &'static str,
}

/// A read of the histogram of timeouts.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HistogramRead {
    /// The device, as it was named.
    pub(crate) device: String,
    /// Which read it is, counted from 1.
    pub(crate) iteration: u32,
    /// The bins, from the shortest waits to the longest.
    pub(crate) bins: Vec<Bin>,
}

/// The fault rules in force.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Faults {
    /// In the order in which they apply.
    pub(crate) rules: Vec<Fault>,
}

/// A fault rule, and what it has done.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fault {
    /// What `ferroce fault clear` calls it.
    pub(crate) number: u64,
    /// The rule as `ferroce fault add` takes it.
    pub(crate) rule: String,
    /// How often programs came to what the rule is about.
    pub(crate) met: u64,
    /// How often its effect was injected.
    pub(crate) injected: u64,
}

/// What links do to packets.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Impaired {
    /// The link of each device.
    pub(crate) devices: Vec<DeviceImpairment>,
}

/// What the link of a device does to packets.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceImpairment {
    /// The device.
    pub(crate) device: String,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// Number of the port, or of the link of a bond, from 1.
    pub(crate) port: u8,
    /// To packets that it sends.
    pub(crate) egress: Impairment,
    /// To packets that it receives.
    pub(crate) ingress: Impairment,
}

/// What a link does to packets of one direction. Probabilities are 0 to 1.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Impairment {
    /// The impairment as `ferroce impair` takes it; null if there is none.
    pub(crate) spec: Option<String>,
    /// Probability that a packet is lost.
    pub(crate) loss: f64,
    /// Bursts of losses, on top; null if there are none.
    pub(crate) burst: Option<Burst>,
    /// Probability that a packet arrives twice.
    pub(crate) duplicate: f64,
    /// Probability that a bit of a packet is flipped.
    pub(crate) corrupt: f64,
    /// Probability that a packet is marked for congestion.
    pub(crate) ecn: f64,
    /// The queue that all packets share; null if there is none.
    pub(crate) queue: Option<Queue>,
    /// Delay of every packet.
    pub(crate) delay_ns: u64,
    /// Random delay on top, at most.
    pub(crate) jitter_ns: u64,
    /// Probability that a packet is held back until others have overtaken it.
    pub(crate) reorder: f64,
    /// How long it is held back.
    pub(crate) reorder_by_ns: u64,
    /// Outages that are not over.
    pub(crate) down: Vec<Outage>,
    /// Whether the port notices outages, and is down meanwhile.
    pub(crate) carrier: bool,
}

/// Bursts of losses.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Burst {
    /// Probability that one begins with a packet.
    pub(crate) probability: f64,
    /// Packets that it loses, mean.
    pub(crate) mean_packets: f64,
}

/// A queue.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Queue {
    /// How fast it drains.
    pub(crate) rate_bps: u64,
    /// What it holds.
    pub(crate) limit_bytes: u32,
    /// Which packets it marks; null if none.
    pub(crate) red: Option<Red>,
    /// How long it is now.
    pub(crate) length_bytes: u64,
}

/// Which packets a queue marks for congestion.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Red {
    /// Queue length from which some packets are marked.
    pub(crate) min_bytes: u32,
    /// Queue length at which packets are marked with `probability`; longer queues mark every packet.
    pub(crate) max_bytes: u32,
    /// Probability of marking at `max_bytes`.
    pub(crate) probability: f64,
}

/// An outage.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Outage {
    /// When it begins, counted from now.
    pub(crate) from_ns: u64,
    /// How long it still lasts from then on.
    pub(crate) length_ns: u64,
}

/// Devices, programs, rates and warnings.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Status {
    /// The time that rates are of.
    pub(crate) elapsed_s: f64,
    /// Each device.
    pub(crate) devices: Vec<DeviceStatus>,
    /// Each program on a device.
    pub(crate) programs: Vec<Program>,
    /// The machine.
    pub(crate) machine: Machine,
    /// What deserves attention, the worst first.
    pub(crate) warnings: Vec<String>,
}

/// A device. If it cannot be read, `error` says why, and what is not known is null.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceStatus {
    /// Its name.
    pub(crate) device: String,
    /// Its address.
    pub(crate) address: IpAddr,
    /// Why it cannot be read; null if it can.
    pub(crate) error: Option<String>,
    /// Of its port: up or down.
    pub(crate) state: Option<&'static str>,
    /// How long until that is set to change; null if it is not.
    pub(crate) changes_in_ns: Option<u64>,
    /// How often the port went down.
    pub(crate) link_downed: Option<u64>,
    /// How it retransmits.
    pub(crate) policy: Option<Policy>,
    /// The impairment of what it sends, in which `down` stands for all outages; null if there is none.
    pub(crate) egress: Option<String>,
    /// The same of what it receives.
    pub(crate) ingress: Option<String>,
    /// Queue pairs that congestion control holds back.
    pub(crate) slowed_queue_pairs: u64,
    /// Packets sent again.
    pub(crate) retransmitted: Option<Count>,
    /// Retransmission timers that expired.
    pub(crate) timeouts: Option<Count>,
    /// Queue pairs that gave up.
    pub(crate) failed_queue_pairs: Option<Count>,
    /// Congestion notifications that were handled.
    pub(crate) cnps: Option<Count>,
    /// Packets that the kernel dropped because the receive buffer was full.
    pub(crate) kernel_drops: Option<Count>,
    /// Packets from programs on this host that were dropped because the receiving program did not take
    /// them from shared memory.
    pub(crate) ring_drops: Option<Count>,
}

/// What was counted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Count {
    /// Since the device was added.
    pub(crate) total: u64,
    /// In a second.
    pub(crate) per_second: f64,
}

/// A program on a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Program {
    /// The device.
    pub(crate) device: String,
    /// Its process.
    pub(crate) pid: u32,
    /// The name of that.
    pub(crate) comm: String,
    /// running, stopped (by a signal or a debugger) or silent (it has not answered in time).
    pub(crate) condition: &'static str,
    /// Its queue pairs by state, in lower case.
    pub(crate) queue_pairs: Named<u64>,
}

/// Whether the machine is too busy to trust times.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Machine {
    /// Processors.
    pub(crate) cores: usize,
    /// The mean of a minute, if the kernel says.
    pub(crate) load: Option<f64>,
    /// The share of time that the hypervisor took, 0 to 1, if the kernel says.
    pub(crate) steal: Option<f64>,
    /// By how much a short sleep ended too late, at most.
    pub(crate) late_ns: u64,
}
