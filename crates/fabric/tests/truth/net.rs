//! Small fabrics, their workloads, and the times they take without contention.

use std::sync::Arc;

use ferroce_dcqcn::{Param, Params, Switches};
use ferroce_device::{Hca, HcaConfig, HostProfile, Mtu, Personality, Qos, QpAttr, Settings};
use ferroce_fabric::topology::{CableSpec, Dumbbell, LeafSpine};
use ferroce_fabric::{
    Cable, Fabric, FabricConfig, Fault, JobConfig, NodeId, OnError, Outcome, Player, Rate,
    Recording, Simulation, Span, Standing, SwitchConfig, Time, Topology, Transfer, TransferId,
    Workload, card,
};
use ferroce_prm::{Field, Image, roce_accl};
pub(crate) use ferroce_testing::wire::{ACK_WIRE, PAUSE_WIRE, packets, ratio, serialization};

/// When the last of several back-to-back packets has passed this number of links of one rate, each
/// of which forwards a packet when it has arrived completely.
pub(crate) fn pipeline(packets: &[u64], links: u64, rate: Rate, delay: Span) -> Span {
    // Each link takes the same time for a packet. So the last packet is delayed most by all packets
    // on one link, and by the longest packet on the others.
    let times = packets.iter().map(|bytes| serialization(*bytes, rate));
    let (all, longest) = times.fold((Span::ZERO, Span::ZERO), |(all, longest), it| {
        (all + it, longest.max(it))
    });
    all + longest.times(links - 1) + delay.times(links)
}

pub(crate) fn gbps(gbps: u32) -> Rate {
    Rate::from_mbps(1_000 * gbps)
}

pub(crate) fn micros(us: u64) -> Time {
    Time::from_nanos(1_000 * us)
}

pub(crate) const LINK: CableSpec = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));

/// Two hosts with switches in between: cable n is the n-th on the path from host 0 to host 1.
pub(crate) fn chain(links: &[CableSpec]) -> Topology {
    let switches = links.len() as u32 - 1;
    let node = |place: u32| match place {
        0 => NodeId(0),
        last if last == switches + 1 => NodeId(1),
        switch => NodeId(switch + 1),
    };
    let cables = (0..).zip(links);
    let cables = cables.map(|(place, link)| Cable::new(node(place), node(place + 1), *link));
    Topology {
        hosts: 2,
        names: (0..2 + switches).map(|node| format!("n{node}")).collect(),
        cables: cables.collect(),
        ..Topology::default()
    }
}

/// Hosts around a switch; cable n leads from host n.
pub(crate) fn star(hosts: u32, link: CableSpec) -> Topology {
    Topology::star(hosts, link).unwrap()
}

/// Two switches with this many hosts each; cable n leads from host n, the last one is in the middle.
pub(crate) fn dumbbell(hosts_each: u32, link: CableSpec) -> Topology {
    let dumbbell = Dumbbell {
        left_hosts: hosts_each,
        right_hosts: hosts_each,
        host_cable: link,
        middle_cable: link,
    };
    dumbbell.build().unwrap()
}

/// Leaves with hosts, each connected to each spine; cable n leads from host n, then leaf by leaf.
pub(crate) fn leaf_spine(
    leaves: u32,
    spines: u32,
    hosts_per_leaf: u32,
    link: CableSpec,
) -> Topology {
    let pod = LeafSpine {
        leaves,
        spines,
        hosts_per_leaf,
        cables_per_spine: 1,
        host_cable: link,
        spine_cable: link,
    };
    pod.build().unwrap()
}

/// A fabric to be built, and its faults and settings.
#[derive(Clone)]
pub(crate) struct Net {
    pub(crate) topology: Topology,
    pub(crate) switch: SwitchConfig,
    /// Congestion control is off unless it is given parameters.
    pub(crate) congestion: Option<Params>,
    pub(crate) switches: Switches,
    /// Of hosts; switches trust the same field.
    pub(crate) qos: Qos,
    /// DSCP of acknowledgements, if it differs from that of what they answer.
    pub(crate) ack_dscp: Option<u32>,
    pub(crate) personality: Personality,
    /// Devices repeat selectively.
    pub(crate) selective: bool,
    /// Their packets take many paths.
    pub(crate) routed: bool,
    /// Other switches of ROCE_ACCL that are on.
    pub(crate) switched: Vec<&'static Field>,
    pub(crate) faults: Vec<(Time, Fault)>,
    pub(crate) until: Time,
    pub(crate) seed: u64,
    /// Into how many parts it is divided at most.
    pub(crate) parts: usize,
}

impl Net {
    /// Without marking, and with the lossless priority 0.
    pub(crate) fn new(topology: Topology) -> Self {
        Self {
            topology,
            switch: SwitchConfig {
                lossless: 1,
                ..SwitchConfig::default()
            },
            congestion: None,
            switches: Switches::default(),
            qos: Qos::default(),
            ack_dscp: None,
            personality: Personality {
                slow_restart: false,
                ..Personality::default()
            },
            selective: false,
            routed: false,
            switched: Vec::new(),
            faults: Vec::new(),
            until: Time::from_nanos(1_000_000_000_000),
            seed: 1,
            parts: 1,
        }
    }

    fn settings(&self) -> Arc<Settings> {
        let off = || {
            let params = Params::default().with(Param::PrioMask, 0);
            params.with(Param::NpPrioMask, 0)
        };
        let mut parts = Settings::new(self.personality).to_parts();
        parts.congestion = self.congestion.clone().unwrap_or_else(off);
        let mut register = Image::new(&roce_accl::ROCE_ACCL, parts.roce_accl).unwrap();
        if let Some(dscp) = self.ack_dscp {
            register.set(&roce_accl::ACK_DSCP_FORCE, 1).unwrap();
            register.set(&roce_accl::ACK_DSCP, dscp).unwrap();
        }
        for (field, is_on) in [
            (&roce_accl::SELECTIVE_REPEAT_FORCED_EN, self.selective),
            (&roce_accl::ADAPTIVE_ROUTING_FORCED_EN, self.routed),
        ] {
            register.set(field, is_on.into()).unwrap();
        }
        for field in &self.switched {
            register.set(field, 1).unwrap();
        }
        parts.roce_accl = register.into_inner();
        Arc::new(Settings::from_parts(parts))
    }

    /// The fabric, with a card on each host's cable.
    pub(crate) fn fabric(&self) -> Fabric {
        let settings = self.settings();
        let device = |host: u32| {
            let of_host = |cable: &&Cable| cable.ends.contains(&NodeId(host));
            let speed = self.topology.cables.iter().find(of_host).unwrap().rate;
            let config = HcaConfig {
                host: HostProfile::card(speed).into(),
                speed,
                personality: self.personality,
                switches: self.switches,
                qos: self.qos,
                ..card(self.seed << 32 | u64::from(host))
            };
            Hca::with_settings(config, Arc::clone(&settings))
        };
        let config = FabricConfig {
            topology: self.topology.clone(),
            switch: SwitchConfig {
                trust: self.qos.trust,
                ..self.switch.clone()
            },
            seed: self.seed,
        };
        Fabric::in_parts(config, (0..self.topology.hosts).map(device), self.parts).unwrap()
    }

    /// A simulation of a workload.
    pub(crate) fn simulation(&self, workload: Workload, jobs: Vec<JobConfig>) -> Simulation {
        self.recorded(workload, jobs, None)
    }

    /// A simulation that records events.
    pub(crate) fn recorded(
        &self,
        workload: Workload,
        jobs: Vec<JobConfig>,
        recording: Option<Recording>,
    ) -> Simulation {
        let player = Player::new(Arc::new(workload.into()), jobs);
        let faults = self.faults.clone();
        Simulation::new(self.fabric(), player, faults, recording, self.until)
    }

    /// Plays transfers of one job until all of them are delivered and acknowledged.
    pub(crate) fn play(&self, transfers: Vec<Transfer>, job: JobConfig) -> Played {
        self.play_all(transfers, Vec::new(), vec![job])
    }

    pub(crate) fn play_all(
        &self,
        transfers: Vec<Transfer>,
        edges: Vec<(TransferId, TransferId)>,
        jobs: Vec<JobConfig>,
    ) -> Played {
        let workload = Workload {
            transfers,
            edges,
            jobs: (0..jobs.len()).map(|job| format!("job{job}")).collect(),
        };
        let mut played = Played(self.simulation(workload, jobs));
        loop {
            match played.0.run(100_000).unwrap() {
                Standing::Running => played.0.fabric.audit(),
                Standing::Over => break,
                other => panic!("{other:?}: {:?}", played.0.player.job_outcomes),
            }
        }
        played.0.fabric.audit();
        for (outcome, jobs) in played.0.player.outcomes.iter().zip(0..) {
            let Outcome {
                started,
                delivered,
                acknowledged,
            } = *outcome;
            assert!(
                started <= delivered && delivered <= acknowledged && acknowledged < Time::NEVER,
                "transfer {jobs}: {outcome:?}"
            );
        }
        played
    }
}

/// A finished simulation.
pub(crate) struct Played(pub(crate) Simulation);

impl Played {
    /// The result of a transfer.
    pub(crate) fn outcome(&self, transfer: usize) -> Outcome {
        self.0.player.outcomes[transfer]
    }

    /// How long a transfer took to be delivered.
    pub(crate) fn took(&self, transfer: usize) -> Span {
        let it = self.outcome(transfer);
        it.delivered.since(it.started)
    }

    /// When the last one was delivered.
    pub(crate) fn end(&self) -> Time {
        let delivered = self.0.player.outcomes.iter().map(|it| it.delivered);
        delivered.max().unwrap()
    }

    pub(crate) fn timeouts(&self) -> usize {
        self.0.player.timeouts.len()
    }

    /// The sum of a counter over all switches.
    pub(crate) fn of_switches(
        &self,
        count: impl Fn(&ferroce_fabric::SwitchCounters) -> u64,
    ) -> u64 {
        let topology = self.0.fabric.topology();
        let switches = topology.hosts..topology.nodes();
        let counters = switches.map(|switch| count(&self.0.fabric.switch(NodeId(switch))));
        counters.sum()
    }

    /// PFC frames that all lines have carried.
    pub(crate) fn pauses(&self) -> u64 {
        let cables = 0..self.0.fabric.topology().cables.len();
        let lines = cables.flat_map(|cable| [(cable, 0), (cable, 1)]);
        let pauses = lines.map(|(cable, end)| self.0.fabric.line(cable, end).pauses);
        pauses.sum()
    }
}

/// Bytes from one host to another.
pub(crate) fn transfer(src: u32, dst: u32, bytes: u32) -> Transfer {
    Transfer {
        src,
        dst,
        bytes,
        at: Time::ZERO,
        think: Span::ZERO,
        job: 0,
    }
}

/// A queue pair for each transfer, packets of 4 KiB, priority 0.
pub(crate) fn job() -> JobConfig {
    JobConfig {
        attr: QpAttr {
            path_mtu: Mtu::Mtu4096,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        },
        traffic_class: 0,
        sl: 0,
        depth: 128,
        qp_per_transfer: true,
        qps_per_connection: 1,
        split_data: false,
        on_error: OnError::Abort,
    }
}

/// A job of a priority.
pub(crate) fn job_of(priority: u8) -> JobConfig {
    JobConfig {
        traffic_class: priority << 5,
        ..job()
    }
}
