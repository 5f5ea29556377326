//! Cards of 100 Gb/s on a network, to be measured.

use std::sync::Arc;

use ferroce_device::{Hca, HcaConfig, HostProfile, Mtu, Personality, QpAttr, Settings};
use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{
    Fabric, FabricConfig, JobConfig, OnError, Player, Rate, Simulation, Span, SwitchConfig, Time,
    Topology, Workload, card,
};
use rayon::ThreadPoolBuilder;

const RATE: Rate = Rate::from_mbps(100_000);

/// All cables.
pub(crate) const CABLE: CableSpec = CableSpec::new(RATE, Span::from_micros(1));

/// How queue pairs and threads are used.
pub(crate) struct Use {
    /// Messages that one may have outstanding.
    pub(crate) depth: u32,
    /// Each message has one of its own.
    pub(crate) qp_per_transfer: bool,
    /// Threads that work on it, at most.
    pub(crate) threads: usize,
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
    let fabric = Fabric::in_parts(config, devices, qps.threads).unwrap();
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
    let player = Player::new(Arc::new(workload.into()), vec![job]);
    let threads = fabric.parts();
    let mut simulation = Simulation::new(fabric, player, Vec::new(), None, Time::NEVER);
    if threads > 1 {
        let pool = ThreadPoolBuilder::new().num_threads(threads);
        simulation.use_threads(pool.build().unwrap(), 1_000);
    }
    simulation
}
