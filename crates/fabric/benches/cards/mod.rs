//! Cards of 100 Gb/s on a network, to be measured.

use std::sync::Arc;

use ferroce_device::{Hca, HcaConfig, HostProfile, Mtu, Personality, QpAttr, Settings};
use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{
    Fabric, FabricConfig, JobConfig, OnError, Player, Rate, Simulation, Span, SwitchConfig, Time,
    Topology, Workload, card,
};

const RATE: Rate = Rate::from_mbps(100_000);

/// All cables.
pub(crate) const CABLE: CableSpec = CableSpec::new(RATE, Span::from_micros(1));

/// How queue pairs are used.
pub(crate) struct Use {
    /// Messages that one may have outstanding.
    pub(crate) depth: u32,
    /// Each message has one of its own.
    pub(crate) qp_per_transfer: bool,
}

/// A workload of one job, with DCQCN and timers, at an MTU of 4,096 bytes.
pub(crate) fn simulation(
    topology: Topology,
    switch: SwitchConfig,
    workload: Workload,
    qps: Use,
) -> Simulation {
    let settings = Arc::new(Settings::new(Personality::default()));
    let devices = (0..topology.hosts).map(|host| {
        let config = HcaConfig {
            host: HostProfile::card(RATE).into(),
            speed: RATE,
            ..card(host.into())
        };
        Hca::with_settings(config, Arc::clone(&settings))
    });
    let config = FabricConfig {
        topology,
        switch,
        seed: 1,
    };
    let fabric = Fabric::new(config, devices).unwrap();
    let job = JobConfig {
        attr: QpAttr {
            path_mtu: Mtu::Mtu4096,
            timeout: 14,
            retry_cnt: 7,
            ..QpAttr::default()
        },
        traffic_class: 2,
        sl: 0,
        depth: qps.depth,
        qp_per_transfer: qps.qp_per_transfer,
        qps_per_connection: 1,
        split_data: false,
        on_error: OnError::Abort,
    };
    let player = Player::new(workload, vec![job]);
    Simulation::new(fabric, player, Vec::new(), None, Time::NEVER)
}
