//! Compares a port's queue with the formulas for queues with random arrivals.

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_transport::Outgoing;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{FabricConfig, Network, Stations};
use crate::frame::Frame;
use crate::sizes::AROUND_FRAME;
use crate::switch::SwitchConfig;
use crate::topology::{CableSpec, Topology};

const RATE: Rate = Rate::from_mbps(100_000);
const ARRIVALS: u32 = 100_000;

/// Hosts that do nothing.
struct Nobody;

impl Stations<Outgoing> for Nobody {
    fn transmit(&mut self, _: Time, _: u32, _: u8, _: &mut Outgoing) -> Option<Frame> {
        None
    }

    fn receive(&mut self, _: Time, _: u32, _: &Frame, _: &Outgoing) {}

    fn expire(&mut self, _: Time, _: u32) {}

    fn set_paused(&mut self, _: Time, _: u32, _: u8, _: u8) {}

    fn collect(&mut self, _: Time, _: u32) {}

    fn next(&self, _: Time, _: u32) -> Option<Time> {
        None
    }

    fn wants_transmit(&self, _: u32, _: u8) -> bool {
        false
    }
}

/// A switch that drops nothing, with two hosts.
fn network() -> Network<Outgoing> {
    let cable = CableSpec::new(RATE, Span::ZERO);
    Network::new(FabricConfig {
        topology: Topology::star(2, cable).expect("a small topology"),
        switch: SwitchConfig {
            buffer_bytes: 1 << 40,
            ..SwitchConfig::default()
        },
        seed: 1,
    })
}

/// A frame comes to the switch from nowhere, for host 0.
fn inject(network: &mut Network<Outgoing>, bytes: u16) {
    let packet = network.packets.take();
    let frame = Frame {
        packet,
        ingress: 1,
        ..Frame::new(1, 0, bytes)
    };
    network.forward(2, frame);
}

/// How many frames wait on average, without the one that is leaving, if they come independently of each
/// other and keep the cable busy for `load` of the time.
fn mean_waiting(load: f64, mean_bytes: f64, mut bytes: impl FnMut(f64) -> f64) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut network = network();
    let gap_ps = mean_bytes * 80.0 / load;
    let (mut at_ps, mut area) = (0.0, 0.0);
    for _ in 0..ARRIVALS {
        at_ps += -gap_ps * (1.0 - rng.random::<f64>()).ln();
        let at = Time::from_picos(at_ps as u64);
        while network.now < at {
            let (before, waiting) = (network.now, network.switches[0].frames());
            if network.next_event().is_some_and(|next| next < at) {
                network.run(&mut Nobody, at, &mut 1);
            } else {
                network.advance(at);
            }
            area += waiting as f64 * network.now.since(before).as_picos() as f64;
        }
        let on_wire = bytes(rng.random::<f64>()).max(AROUND_FRAME.into());
        inject(&mut network, on_wire as u16 - AROUND_FRAME as u16);
    }
    area / at_ps
}

/// Five standard deviations of the mean of an M/M/1 queue over this many services, which is more than
/// that of one with constant services (Whitt, Planning queueing simulations, 1989).
fn band(load: f64) -> f64 {
    let services = f64::from(ARRIVALS) / load;
    5.0 * (2.0 * load * (1.0 + load) / ((1.0 - load).powi(4) * services)).sqrt()
}

#[test]
fn frames_of_one_length_wait_as_in_m_d_1() {
    for load in [0.3, 0.8] {
        let expected = load * load / (2.0 * (1.0 - load));
        let seen = mean_waiting(load, 1_000.0, |_| 1_000.0);
        let off = (seen - expected).abs();
        assert!(off < band(load), "load {load}: {seen}, not {expected}");
    }
}

#[test]
fn frames_of_random_length_wait_as_in_m_m_1() {
    for load in [0.3, 0.8] {
        let expected = load * load / (1.0 - load);
        let seen = mean_waiting(load, 5_000.0, |random| -5_000.0 * (1.0 - random).ln());
        let off = (seen - expected).abs();
        assert!(off < band(load), "load {load}: {seen}, not {expected}");
    }
}
