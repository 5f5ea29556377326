//! The parameters of a new device.

use std::sync::Arc;

use ferroce_dcqcn::{Rate, Switches};
use ferroce_transport::Mtu;

use crate::host_profile::HostProfile;
use crate::limits::Limits;
use crate::qos::Qos;
use crate::secret::Secret;
use crate::settings::Personality;

/// The configuration of a new device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)] // what packets need stands first
pub struct HcaConfig {
    /// The parameters set by the host. Devices of many similar hosts share them.
    pub host: Arc<HostProfile>,
    /// Seed of everything random in the device (D26).
    pub seed: u64,
    /// Upper 8 bits of the numbers of queue pairs and shared receive queues, and of connection IDs.
    /// Devices that share an address have different slots.
    pub slot: u8,
    /// Key for everything that outsiders must not guess: the lower bits of these numbers and IDs,
    /// key tags, first PSNs. If each owner of a slot has a different one, late packets for the last
    /// owner match nothing. `None` lets the host choose a random one; without a host it is zero.
    pub secret: Option<Secret>,
    /// Maximum numbers of objects, at most [`Limits::MAX`].
    pub limits: Limits,
    /// MTU of the port: the longest datagram, and the largest path MTU.
    pub port_mtu: Mtu,
    /// Maximum bytes that each queue pair keeps in flight.
    pub window_bytes: u32,
    /// Speed of the port, above which congestion control does not limit. It limits nothing else. If
    /// the host's port has a rate, it is that rate.
    pub speed: Rate,
    /// How packets get their priority, and the VLAN of the port.
    pub qos: Qos,
    /// Firmware behaviour.
    pub personality: Personality,
    /// Congestion control options where sources disagree.
    pub switches: Switches,
    /// Report every timer expiry as [`crate::Event::TimerExpired`].
    pub trace_timers: bool,
}

impl Default for HcaConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            slot: 0,
            secret: None,
            limits: Limits::MAX,
            port_mtu: Mtu::Mtu4096,
            window_bytes: 1 << 20,
            speed: Rate::from_mbps(100_000),
            qos: Qos::default(),
            host: HostProfile::sockets(),
            personality: Personality::default(),
            switches: Switches::default(),
            trace_timers: false,
        }
    }
}
