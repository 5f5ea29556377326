//! The parameters of a new device.

use std::sync::Arc;

use ferroce_dcqcn::{Rate, Switches};
use ferroce_transport::Mtu;

use crate::credit::Window;
use crate::host_profile::HostProfile;
use crate::limits::Limits;
use crate::secret::Secret;
use crate::settings::Personality;

/// What a device is made with.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)] // what packets need stands first
pub struct HcaConfig {
    /// Bytes of responses to READs that may be on their way here, as a receive buffer counts them.
    pub response_bytes: u32,
    /// What the host makes of the device. Devices of many hosts that are alike share it.
    pub host: Arc<HostProfile>,
    /// Seed of everything random in the device (D26).
    pub seed: u64,
    /// Upper 8 bits of the numbers of queue pairs and shared receive queues, and of the connection
    /// manager's names. Devices that share an address have different slots.
    pub slot: u8,
    /// Key of all that a stranger must not guess: the lower bits of these numbers and names, tags of
    /// keys, first PSNs. If each owner of a slot has another one, late packets for the last one meet
    /// nobody. `None` leaves it to the host, which takes a random one; without a host it is zero.
    pub secret: Option<Secret>,
    /// Objects at a time, at most [`Limits::MAX`].
    pub limits: Limits,
    /// MTU of the port: the longest datagram, and the largest path MTU.
    pub port_mtu: Mtu,
    /// Bytes that each queue pair keeps in flight at most.
    pub window_bytes: u32,
    /// Bytes that all of them together keep in flight to one peer, as a receive buffer counts them.
    /// If its buffer takes as much, nothing is lost for want of room.
    pub total_window_bytes: u32,
    /// How much of that a path gets.
    pub window: Window,
    /// Speed of the port, above which congestion control limits nobody. Nothing else keeps to it. Of a
    /// host whose port has a rate it is that rate.
    pub speed: Rate,
    /// Firmware behaviour.
    pub personality: Personality,
    /// What congestion control does where sources disagree.
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
            total_window_bytes: 2 << 20,
            window: Window::Auto,
            response_bytes: 2 << 20,
            speed: Rate::from_mbps(100_000),
            host: HostProfile::sockets(),
            personality: Personality::default(),
            switches: Switches::default(),
            trace_timers: false,
        }
    }
}
