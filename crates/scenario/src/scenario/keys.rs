//! The keys of a scenario file: one table drives reading, the JSON Schema and the manual.

/// A key of a table.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// What it is, and what it is when left out.
    pub(super) doc: &'static str,
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    Text,
    Flag,
    Count,
    Time,
    Size,
    Rate,
    Probability,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Hosts: names, numbers and ranges of numbers.
    Hosts,
    /// One host: name or number.
    Host,
    /// A file, or several.
    Files,
    /// Cables: names of two nodes.
    Links,
    /// A list of values described in words.
    List,
    /// `"abort"` or `{ reconnect = "1s" }`.
    OnError,
    /// A name or a table.
    TextOr,
    Table(&'static [Key]),
    Tables(&'static [Key]),
    /// The parameters of DCQCN by any of their names, `preset`, `enabled`, and `algorithm`.
    Dcqcn,
}

impl ferroce_base::toml_file::Key for Key {
    fn name(&self) -> &'static str {
        self.name
    }
}

const fn key(name: &'static str, takes: Takes, doc: &'static str) -> Key {
    Key { name, takes, doc }
}

/// Enums of the words that a key takes.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum $name {
            $($variant,)+
        }

        impl $name {
            pub(super) const WORDS: &[&str] = &[$($word,)+];
            pub(super) const ALL: &[(&str, Self)] = &[$(($word, Self::$variant),)+];
        }
    )+};
}

words! {
    /// A kind of topology.
    TopologyKind {
        Pair = "pair",
        Star = "star",
        Dumbbell = "dumbbell",
        LeafSpine = "leaf-spine",
        FatTree = "fat-tree",
        RailPod = "rail-pod",
        List = "list",
        Hpcc = "hpcc",
        IbNetDiscover = "ibnetdiscover",
        Containerlab = "containerlab",
        Lldp = "lldp",
    }
    /// What the second link of each host is.
    HostLinks {
        TwoPorts = "two-ports",
        Bond = "bond",
    }
    /// A kind of workload.
    WorkloadKind {
        Incast = "incast",
        Permutation = "permutation",
        RingAllReduce = "ring-all-reduce",
        RingAllGather = "ring-all-gather",
        RingReduceScatter = "ring-reduce-scatter",
        HalvingDoubling = "halving-doubling-all-reduce",
        Tree = "tree-all-reduce",
        AllToAll = "all-to-all",
        AllToAllInShifts = "all-to-all-in-shifts",
        ParameterServer = "parameter-server",
        Poisson = "poisson",
        HpccFlows = "hpcc-flows",
        HtsimFlows = "htsim-flows",
        NcclAllReduce = "nccl-all-reduce",
        NcclAllGather = "nccl-all-gather",
        NcclReduceScatter = "nccl-reduce-scatter",
        NcclBroadcast = "nccl-broadcast",
        Experts = "expert-all-to-all",
        Pipeline = "pipeline",
        Checkpoint = "checkpoint",
        Chakra = "chakra",
    }
    /// How an all-reduce is done.
    AllReduceKind {
        Ring = "ring",
        Tree = "tree",
    }
    /// What a watchdog does in a storm.
    StormWord {
        Drop = "drop",
        Forward = "forward",
    }
    /// A kind of fault.
    FaultKind {
        LinkDown = "link-down",
        Loss = "loss",
        BurstLoss = "burst-loss",
        Corruption = "corruption",
        Rate = "rate",
        SilentHost = "silent-host",
        SlowReceiver = "slow-receiver",
        NicReset = "nic-reset",
        SwitchReboot = "switch-reboot",
    }
}

pub(super) const ROOT: &[Key] = &[
    key("title", Takes::Text, "One line for lists and reports."),
    key("question", Takes::Text, "What the scenario is to answer."),
    key("answer", Takes::Text, "What came out of it."),
    key("seed", Takes::Count, "Seed of everything random; 1."),
    key(
        "duration",
        Takes::Time,
        "Simulated time after which the run ends, finished or not; 60s.",
    ),
    key(
        "fast_forward",
        Takes::Probability,
        "Leaves out time in which all messages go on evenly, if their rates are not wrong by more than this in \
         it, such as 1%, 10% at most; nothing is left out.",
    ),
    key(
        "topology",
        Takes::Table(TOPOLOGY),
        "Hosts, switches, cables.",
    ),
    key("switch", Takes::Table(SWITCH), "All switches."),
    key("device", Takes::Table(DEVICE), "The NIC of every host."),
    key("job", Takes::Tables(JOB), "What hosts send to each other."),
    key("fault", Takes::Tables(FAULT), "What goes wrong, and when."),
    key(
        "record",
        Takes::Table(RECORD),
        "What is kept beside outcomes.",
    ),
];

pub(super) const TOPOLOGY: &[Key] = &[
    key("kind", Takes::Words(TopologyKind::WORDS), "Which one."),
    key("hosts", Takes::Count, "star: how many hosts."),
    key("left_hosts", Takes::Count, "dumbbell: hosts on switch0."),
    key("right_hosts", Takes::Count, "dumbbell: hosts on switch1."),
    key("leaves", Takes::Count, "leaf-spine: how many leaves."),
    key(
        "spines",
        Takes::Count,
        "leaf-spine, rail-pod: how many spines.",
    ),
    key(
        "hosts_per_leaf",
        Takes::Count,
        "leaf-spine, fat-tree: hosts on each leaf.",
    ),
    key(
        "cables_per_spine",
        Takes::Count,
        "leaf-spine, rail-pod: cables between a leaf and a spine; 1.",
    ),
    key(
        "k",
        Takes::Count,
        "fat-tree: ports of each switch, in place of the four counts below.",
    ),
    key("pods", Takes::Count, "fat-tree: how many pods."),
    key("leaves_per_pod", Takes::Count, "fat-tree: leaves of a pod."),
    key("spines_per_pod", Takes::Count, "fat-tree: spines of a pod."),
    key(
        "cores_per_spine",
        Takes::Count,
        "fat-tree: cores that a spine is connected to.",
    ),
    key("servers", Takes::Count, "rail-pod: how many servers."),
    key(
        "nics",
        Takes::Count,
        "rail-pod: cards of each server, each a host of its own.",
    ),
    key(
        "servers_per_unit",
        Takes::Count,
        "rail-pod: servers that share their rails; all.",
    ),
    key(
        "host_links",
        Takes::Words(HostLinks::WORDS),
        "What the second link of each host is; with host names or a file: of those with two cables. Hosts have one.",
    ),
    key(
        "host_names",
        Takes::List,
        "list: the hosts; containerlab, lldp, ibnetdiscover: nodes that are hosts, whatever the file says, \
         with * for any characters.",
    ),
    key(
        "switch_names",
        Takes::List,
        "list: the switches; containerlab, lldp, ibnetdiscover: nodes that are switches, in the same form.",
    ),
    key(
        "leave_out",
        Takes::List,
        "containerlab, lldp, ibnetdiscover: nodes to leave out with their links, and ports such as \"*:eth0\".",
    ),
    key(
        "cables",
        Takes::List,
        "list: [\"h0\", \"tor0\"] each; a rate and a delay may follow.",
    ),
    key(
        "file",
        Takes::Files,
        "What the tool of this kind has written, relative to the scenario; hpcc: a topology file of HPCC's \
         simulator; lldp: a list of files, or a directory with a slash at the end.",
    ),
    key(
        "rate",
        Takes::Rate,
        "Of every cable that has none in the file; 100Gbit.",
    ),
    key("delay", Takes::Time, "Of every cable, one way; 1us."),
    key(
        "fabric_rate",
        Takes::Rate,
        "Of cables between switches, if it differs.",
    ),
    key(
        "fabric_delay",
        Takes::Time,
        "Of cables between switches, if it differs.",
    ),
];

/// What a port can trust.
pub(super) const TRUST: &[&str] = &["dscp", "pcp"];
const ROUTING: &[&str] = &["hash", "random", "adaptive"];

pub(super) const SWITCH: &[Key] = &[
    key(
        "buffer",
        Takes::Size,
        "Shared by all ports, headroom included; 32MiB.",
    ),
    key(
        "drop_alpha",
        Takes::Text,
        "A queue without PFC drops what exceeds this share of the free buffer: 1/256 to 8, a power of two; 1.",
    ),
    key(
        "schedule",
        Takes::Words(&["strict", "weighted"]),
        "Which priority goes first; strict: the highest.",
    ),
    key(
        "weights",
        Takes::List,
        "weighted: turns of the eight priorities in KiB; 0 goes before all others.",
    ),
    key(
        "trust",
        Takes::Words(TRUST),
        "The field that gives a packet its priority: the DSCP, or the PCP of the VLAN tag; the hosts' (device.trust).",
    ),
    key(
        "cut_through",
        Takes::Flag,
        "Forward what has begun to arrive; false.",
    ),
    key(
        "latency",
        Takes::Time,
        "From the arrival of a frame until it is in its queue; 0.",
    ),
    key(
        "routing",
        Takes::Words(ROUTING),
        "Which of the shortest paths; hash: one for each flow; random: any for each packet; adaptive: one of the least loaded ports for each packet of devices with adaptive_routing.",
    ),
    key(
        "ecn",
        Takes::Table(ECN),
        "Marking of each queue; without it nothing is marked.",
    ),
    key("pfc", Takes::Table(PFC), "Pauses; without it nothing is."),
];

pub(super) const ECN: &[Key] = &[
    key(
        "preset",
        Takes::Words(&["hpcc", "conweave", "paper"]),
        "Published thresholds, in place of the three values.",
    ),
    key("kmin", Takes::Size, "Shorter queues mark nothing."),
    key("kmax", Takes::Size, "Longer queues mark everything."),
    key("pmax", Takes::Probability, "Share marked at kmax."),
];

pub(super) const PFC: &[Key] = &[
    key(
        "priorities",
        Takes::List,
        "Paused and never dropped: numbers 0 to 7.",
    ),
    key(
        "headroom",
        Takes::Size,
        "For what arrives after a pause, of each port and priority; 100KiB.",
    ),
    key(
        "pause_alpha",
        Takes::Text,
        "An ingress port is paused at this share of the free buffer: 1/256 to 8, a power of two; 1/8.",
    ),
    key(
        "resume_offset",
        Takes::Size,
        "It is resumed when it holds so much less; 3KiB.",
    ),
    key(
        "watchdog",
        Takes::Table(WATCHDOG),
        "Ends storms: queues that stay paused; without it they stay so.",
    ),
];

pub(super) const WATCHDOG: &[Key] = &[
    key(
        "detection",
        Takes::Time,
        "A queue that stays paused so long is in a storm; 200ms.",
    ),
    key(
        "restoration",
        Takes::Time,
        "It is restored after so long without pauses; twice detection.",
    ),
    key(
        "action",
        Takes::Words(StormWord::WORDS),
        "What happens to its packets meanwhile: dropped, or sent in spite of the pauses; drop.",
    ),
];

pub(super) const DEVICE: &[Key] = &[
    key(
        "profile",
        Takes::TextOr,
        "Adaptive retransmission profile: a built-in name, a file, or a table with a profile's own keys.",
    ),
    key(
        "personality",
        Takes::Words(&["firmware", "ib"]),
        "Without a profile: the ladder of a card out of the box, or plain InfiniBand timeouts; firmware.",
    ),
    key(
        "ib_multiplier",
        Takes::Count,
        "ib: a timer runs so many times the timeout, 1 to 4; 1.",
    ),
    key(
        "extended_retry_count",
        Takes::Count,
        "Retry count of all queue pairs in place of their own, 0 to 255; unset, as on a card.",
    ),
    key(
        "adaptive_routing",
        Takes::Flag,
        "Packets take many paths and may overtake each other: each has a UDP source port of its own; implies selective_repeat; false.",
    ),
    key(
        "selective_repeat",
        Takes::Flag,
        "Receivers keep what comes after a loss, and only what is missing is sent again; false.",
    ),
    key(
        "slow_restart",
        Takes::Flag,
        "With congestion control, what has to be sent again slows a queue pair down like a CNP; false.",
    ),
    key(
        "slow_restart_idle",
        Takes::Flag,
        "With congestion control, so does the first packet after 1ms with nothing in flight; false.",
    ),
    key(
        "tx_window",
        Takes::Flag,
        "What a queue pair has in flight follows round trips and losses, below window; false.",
    ),
    key(
        "cc_burst_size",
        Takes::Words(&["1.5KB", "4KB", "8KB", "16KB"]),
        "What a queue pair that congestion control limits sends back to back; 4KB.",
    ),
    key(
        "initial_exponent",
        Takes::Count,
        "firmware: first step of the ladder, 4.096 us doubled so many times; drawn from 10 to 14.",
    ),
    key(
        "quantiser",
        Takes::Flag,
        "firmware: a card's coarse timers, which cut some waits to three quarters; true.",
    ),
    key(
        "min_ack_timeout_limit_disabled",
        Takes::Flag,
        "Take timeouts below 16 as they are; false.",
    ),
    key(
        "mtu",
        Takes::Count,
        "Path MTU: 256, 512, 1024, 2048 or 4096; 4096.",
    ),
    key(
        "window",
        Takes::Size,
        "What a queue pair keeps in flight at most; 4MiB.",
    ),
    key(
        "paced_window",
        Takes::Time,
        "What a queue pair that congestion control limits keeps in flight at most: what it sends in this time at its rate; 20ms.",
    ),
    key(
        "ack_every",
        Takes::Count,
        "Packets of a message after which an acknowledgement is requested, besides the last one, 1 to 255; a quarter of the window.",
    ),
    key(
        "ack_dscp",
        Takes::Count,
        "DSCP of acknowledgements (ack_dscp of ROCE_ACCL), 0 to 63; that of the packets they answer.",
    ),
    key(
        "trust",
        Takes::Words(TRUST),
        "The field that gives a packet its priority: the DSCP, or the PCP of the VLAN tag; dscp.",
    ),
    key(
        "vlan",
        Takes::Count,
        "VLAN of all hosts, 1 to 4094, with whose tag they send; no tag.",
    ),
    key(
        "dcqcn",
        Takes::Dcqcn,
        "Congestion control: preset, enabled, parameters by their names, and algorithm, a table of options on which sources disagree.",
    ),
];

pub(super) const JOB: &[Key] = &[
    key("name", Takes::Text, "In reports; the workload's name."),
    key(
        "workload",
        Takes::Words(WorkloadKind::WORDS),
        "Who sends what to whom.",
    ),
    key(
        "hosts",
        Takes::Hosts,
        "Who takes part, in the order of ranks; all.",
    ),
    key("receiver", Takes::Host, "incast: who receives."),
    key(
        "servers",
        Takes::Hosts,
        "parameter-server, checkpoint: which of the hosts are servers.",
    ),
    key(
        "sizes",
        Takes::Text,
        "poisson: a published distribution (WebSearch, FbHdp, AliStorage2019, GoogleRPC2008, Solar2022, \
         DataMining), or a file in the format of HPCC's traffic generator.",
    ),
    key(
        "load",
        Takes::Probability,
        "poisson: share of each host's rate.",
    ),
    key(
        "for",
        Takes::Time,
        "poisson: how long messages keep arriving.",
    ),
    key(
        "file",
        Takes::Text,
        "hpcc-flows, htsim-flows: the list of flows, relative to the scenario. chakra: the traces without rank \
         and ending, so that traces/train stands for traces/train.0.et and so on.",
    ),
    key(
        "bytes",
        Takes::Size,
        "Of each message, or buffer of a collective; what a rank dispatches in a layer, a stage passes on, or a \
         host writes.",
    ),
    key(
        "chunks",
        Takes::Count,
        "Collectives: pieces worked on at the same time; 1.",
    ),
    key(
        "rounds",
        Takes::Count,
        "Collectives, pipeline, checkpoint: how often; 1.",
    ),
    key(
        "compute",
        Takes::Time,
        "Collectives: pause between rounds. expert-all-to-all: of the experts in a layer. pipeline: of a stage \
         forward, and half of that backward; 0.",
    ),
    key(
        "think",
        Takes::Time,
        "Collectives: pause between receiving and sending. expert-all-to-all: between layers; 0.",
    ),
    key(
        "gpus_per_node",
        Takes::Count,
        "nccl-*: neighbouring hosts that are the cards of a node, whose GPUs have NVLink, 1 to 72.",
    ),
    key(
        "channels",
        Takes::Count,
        "nccl-*: rings or trees at the same time, 1 to 64; one for each card of a node.",
    ),
    key(
        "algorithm",
        Takes::Words(AllReduceKind::WORDS),
        "nccl-all-reduce, and all-reduce in chakra; ring.",
    ),
    key(
        "chunk",
        Takes::Size,
        "nccl-*: of a step, 128 bytes to 1 GiB; 2MiB, and 512KiB for trees and broadcast.",
    ),
    key(
        "nvlink",
        Takes::Rate,
        "nccl-*: what a GPU sends to others of its node; 3600Gbit.",
    ),
    key("layers", Takes::Count, "expert-all-to-all: how many; 1."),
    key(
        "stages",
        Takes::Count,
        "pipeline: how many; as many as hosts. With fewer, there are several pipelines.",
    ),
    key("microbatches", Takes::Count, "pipeline: of each round; 1."),
    key(
        "interval",
        Takes::Time,
        "checkpoint: from the beginning of one to that of the next.",
    ),
    key(
        "groups",
        Takes::Text,
        "chakra: a JSON file with the ranks of each process group, as for ASTRA-sim.",
    ),
    key(
        "tera_ops",
        Takes::Count,
        "chakra: 10^12 operations a second of a GPU, for nodes with num_ops and no duration.",
    ),
    key("at", Takes::Time, "When it begins; 0."),
    key(
        "timeout",
        Takes::Count,
        "ACK timeout of the queue pairs, 0 to 31; 14.",
    ),
    key(
        "retry_cnt",
        Takes::Count,
        "Retry count of the queue pairs, 0 to 7; 7.",
    ),
    key(
        "rnr_retry",
        Takes::Count,
        "RNR retry count, 0 to 7; 7 is infinite; 7.",
    ),
    key(
        "min_rnr_timer",
        Takes::Count,
        "Code of the RNR timer, 0 to 31; 12.",
    ),
    key(
        "dscp",
        Takes::Count,
        "Of its packets, 0 to 63; its upper three bits are the priority with trust = \"dscp\"; 26.",
    ),
    key(
        "sl",
        Takes::Count,
        "Service level of its packets, 0 to 7: the PCP of their VLAN tag, which is the priority with trust = \"pcp\"; 0.",
    ),
    key(
        "depth",
        Takes::Count,
        "Messages that a queue pair has outstanding; 128.",
    ),
    key(
        "qp_per_transfer",
        Takes::Flag,
        "A queue pair for each message, not for each pair of hosts; false.",
    ),
    key(
        "qps_per_connection",
        Takes::Count,
        "Queue pairs of two hosts for each link, 1 to 128, which their messages take in turn \
         (NCCL_IB_QPS_PER_CONNECTION); 1.",
    ),
    key(
        "split_data",
        Takes::Flag,
        "Split each message over all queue pairs of its hosts (NCCL_IB_SPLIT_DATA_ON_QPS); false.",
    ),
    key(
        "on_error",
        Takes::OnError,
        "When a queue pair fails: abort the job, or connect anew after a time; abort.",
    ),
];

pub(super) const ON_ERROR: &[Key] = &[key(
    "reconnect",
    Takes::Time,
    "Connect anew so long after the failure, and send again what was not delivered.",
)];

pub(super) const FAULT: &[Key] = &[
    key("kind", Takes::Words(FaultKind::WORDS), "What goes wrong."),
    key(
        "link",
        Takes::Links,
        "Which cables: \"leaf0-spine1\", \"h3\" for a host's, \"all\", \"hosts\" or \"fabric\"; a list of them.",
    ),
    key(
        "host",
        Takes::Host,
        "silent-host, slow-receiver, nic-reset: which host.",
    ),
    key("switch", Takes::Text, "switch-reboot: which switch."),
    key("at", Takes::Time, "When it begins; 0."),
    key(
        "for",
        Takes::Time,
        "How long it lasts; to the end of the run. nic-reset: how long the link is down; 0.",
    ),
    key(
        "every",
        Takes::Time,
        "It comes again after so long, counted from `at`.",
    ),
    key("count", Takes::Count, "With `every`: how often it comes."),
    key(
        "times",
        Takes::List,
        "In place of at and for: a recorded list of [down, up] times.",
    ),
    key(
        "reroute_after",
        Takes::Time,
        "link-down, switch-reboot: switches use other paths, and bonds their other link, so long after each change; never.",
    ),
    key(
        "probability",
        Takes::Probability,
        "loss, corruption: of each packet.",
    ),
    key(
        "burst",
        Takes::Count,
        "burst-loss: packets in a burst, on average.",
    ),
    key(
        "burst_every",
        Takes::Count,
        "burst-loss: packets between bursts, on average.",
    ),
    key(
        "rate",
        Takes::Rate,
        "rate: that of the degraded cable. slow-receiver: at which the host takes packets; it pauses lossless priorities when 256KiB wait, and drops what exceeds 512KiB.",
    ),
];

pub(super) const RECORD: &[Key] = &[
    key(
        "every",
        Takes::Time,
        "Interval of samples; 1/500 of what the busiest host needs, 10us to 1ms.",
    ),
    key(
        "samples",
        Takes::Count,
        "Samples of each kind kept, 0 to 50000000; 200000.",
    ),
    key(
        "queues",
        Takes::Flag,
        "Bytes waiting at ports of switches; true.",
    ),
    key("links", Takes::Flag, "Bytes carried by cables; true."),
    key("rates", Takes::Flag, "Rates of limited queue pairs; false."),
    key(
        "goodput",
        Takes::Flag,
        "Payload that queue pairs deliver; false.",
    ),
];
