//! Finds what can never happen in a scenario, or is certainly fatal, before it runs.

use ferroce_adp::QpTimeouts;
use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;
use ferroce_device::{Pairing, Qos, Trust};
use ferroce_fabric::ideal::jobs::{Paths, of_jobs};
use ferroce_fabric::workload::{TRANSFER_BYTES_MAX, Transfer};
use ferroce_fabric::{Cable, Fault, JobConfig, Loss, NodeId, OnError, Routing, sizes};

use super::Scenario;

/// A suspicious value in a scenario that can be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// What it is, and what to write instead.
    pub text: String,
}

/// The key of a job that gives its priority.
fn field_of(trust: Trust) -> &'static str {
    match trust {
        Trust::Dscp => "dscp",
        Trust::Pcp => "sl",
    }
}

impl Scenario {
    /// Finds what can never happen, or certainly ends a job.
    #[must_use]
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut say = |path: &str, text: String| {
            let line = self.line(path);
            findings.push(Finding { line, text });
        };
        for notice in &self.notices {
            say("topology.file", notice.to_string());
        }
        self.check_times(&mut say);
        self.check_late_faults(&mut say);
        self.check_load(&mut say);
        self.check_timeouts(&mut say);
        self.check_trust(&mut say);
        if self.topology.switches() > 0 {
            self.check_marks(&mut say);
            self.check_pauses(&mut say);
            self.check_buffer(&mut say);
            self.check_routing(&mut say);
        }
        self.check_pieces(&mut say);
        self.check_size(&mut say);
        findings.sort_by_key(|finding| finding.line);
        findings
    }

    /// Runs that take much of a machine.
    fn check_size(&self, say: &mut dyn FnMut(&str, String)) {
        const MEMORY: u64 = 8 << 30;
        const RESULTS: u64 = 1 << 30;
        let estimate = self.estimate();
        if estimate.memory > MEMORY {
            let text = format!(
                "the run takes about {} GiB of memory",
                estimate.memory >> 30
            );
            say("job", text);
        }
        if estimate.results > RESULTS {
            let text = format!(
                "a directory of results takes up to {} GiB; lower record.samples, or raise record.every",
                estimate.results >> 30
            );
            say("record", text);
        }
    }

    /// Flows that are more than one message.
    fn check_pieces(&self, say: &mut dyn FnMut(&str, String)) {
        for (number, _) in self
            .jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| job.qp_per_transfer)
        {
            let of_job = |it: &Transfer| usize::from(it.job) == number;
            let is_continued = |pair: &[Transfer]| match pair {
                [first, next] => {
                    of_job(first)
                        && first.bytes == TRANSFER_BYTES_MAX
                        && (first.src, first.dst, first.at) == (next.src, next.dst, next.at)
                }
                _ => false,
            };
            if self.workload.transfers.windows(2).any(is_continued) {
                let text = "RDMA messages have 1 GiB at most: larger flows are several messages, each with a \
                            queue pair of its own; remove qp_per_transfer to have one for each pair of hosts";
                say(&format!("job[{number}].qp_per_transfer"), text.into());
            }
        }
    }

    fn check_times(&self, say: &mut dyn FnMut(&str, String)) {
        let end = Time::ZERO.after(self.duration);
        let duration = self.duration;
        for fault in &self.faults {
            if fault.from >= end {
                let text = format!(
                    "{} begins at {}, after the end: duration is {duration}",
                    fault.what,
                    fault.from.since(Time::ZERO)
                );
                say(&format!("fault[{}].at", fault.entry), text);
            }
        }
        if let Some(watchdog) = self.switch.watchdog.filter(|it| it.detection >= duration) {
            let text = format!(
                "the watchdog detects storms after {}, when the run is over: duration is {duration}",
                watchdog.detection
            );
            say("switch.pfc.watchdog.detection", text);
        }
        for (job, name) in self.workload.jobs.iter().enumerate() {
            let of_job = self
                .workload
                .transfers
                .iter()
                .filter(|it| usize::from(it.job) == job);
            let starts = of_job.map(|it| it.at);
            if let Some(at) = starts.min().filter(|at| *at >= end) {
                let at = at.since(Time::ZERO);
                let text =
                    format!("job {name} begins at {at}, after the end: duration is {duration}");
                say(&format!("job[{job}].at"), text);
            }
        }
    }

    /// Faults that come when all jobs are over.
    fn check_late_faults(&self, say: &mut dyn FnMut(&str, String)) {
        /// Queues make jobs this much longer at most, as a rule.
        const QUEUES: u64 = 4;
        let Some(first) = self.faults.iter().map(|it| it.from).min() else {
            return;
        };
        let mut paths = Paths::new(&self.topology, self.device.mtu, self.switch.latency);
        let jobs = of_jobs(&self.workload, &mut paths).into_iter();
        let ends = jobs.map(|it| it.began.after(it.takes));
        let ideal = ends.max().unwrap_or(Time::ZERO).since(Time::ZERO);
        // The first fault can make jobs so long that others hit them, too.
        if first.since(Time::ZERO) <= ideal.times(QUEUES)
            || first >= Time::ZERO.after(self.duration)
        {
            return;
        }
        for of_entry in self.faults.chunk_by(|a, b| a.entry == b.entry) {
            let fault = &of_entry[0];
            let text = format!(
                "{} begins at {}, when all jobs are probably over: without queues they end at {}; write an \
                 earlier time, or give the jobs more to do",
                fault.what,
                fault.from.since(Time::ZERO),
                ideal.about()
            );
            say(&format!("fault[{}].at", fault.entry), text);
        }
    }

    /// Queue pairs that give up before an outage ends.
    fn check_timeouts(&self, say: &mut dyn FnMut(&str, String)) {
        let loses = |(_, fault): &(Time, Fault)| match fault {
            Fault::Loss(_, loss) => *loss != Loss::default(),
            Fault::CableDown(_) | Fault::Silent(_) | Fault::Corruption(..) => true,
            _ => false,
        };
        let loses = self.timeline.iter().any(loses);
        for (number, job) in self.jobs.iter().enumerate() {
            let path = format!("job[{number}].timeout");
            if job.attr.timeout == 0 && loses {
                let text =
                    "timeout = 0 disables the timeout: what a fault loses may never be sent again";
                say(&path, text.into());
                continue;
            }
            let Some(total) = self.device.total_timeout(timeouts(job)) else {
                continue;
            };
            let hosts = self.hosts_of(number);
            let concerns = |it: &&super::FaultSpan| match it.host_cut_off(&self.topology) {
                Some(host) => hosts[host as usize],
                None => it.is_outage(),
            };
            let longest = self.faults.iter().filter(concerns);
            let longest = longest.max_by_key(|it| self.outage(it));
            if let Some(fault) = longest.filter(|fault| self.outage(fault) > total) {
                let outage = match self.outage(fault) {
                    Span::NEVER => "permanently".into(),
                    outage => format!("for {outage}"),
                };
                let then = match job.on_error {
                    OnError::Abort => "and the job aborts",
                    OnError::Reconnect(_) => "and connect anew",
                };
                let text = format!(
                    "{} {outage}, but queue pairs with timeout = {} and retry_cnt = {} ({}) tolerate \
                     {total}: those that are cut off fail, {then}",
                    fault.what, job.attr.timeout, job.attr.retry_cnt, self.device.policy_name
                );
                say(&path, text);
            }
        }
    }

    /// Which hosts have a part in a job.
    fn hosts_of(&self, job: usize) -> Vec<bool> {
        let mut hosts = vec![false; self.topology.hosts as usize];
        let transfers = self.workload.transfers.iter();
        for it in transfers.filter(|it| usize::from(it.job) == job) {
            hosts[it.src as usize] = true;
            hosts[it.dst as usize] = true;
        }
        hosts
    }

    /// How long a fault keeps a queue pair cut off.
    fn outage(&self, fault: &super::FaultSpan) -> Span {
        let down = fault.cables_down();
        let others_of = |host: NodeId| {
            let cables = self.topology.cables.iter().enumerate();
            let of_host = cables.filter(move |(_, cable)| cable.ends.contains(&host));
            of_host.filter(|(cable, _)| !down.contains(cable)).count()
        };
        let is_bond = self.topology.pairing == Some(Pairing::Bond);
        let ends = down
            .iter()
            .flat_map(|cable| self.topology.cables[*cable].ends);
        let mut hosts = ends.filter(|node| self.topology.is_host(*node));
        let can_avoid = hosts.all(|host| is_bond && others_of(host) > 0);
        match fault.reroute_after() {
            Some(after) if can_avoid => fault.length().min(after),
            _ => fault.length(),
        }
    }

    /// Switches that spread packets over paths, and devices, that do not fit each other.
    fn check_routing(&self, say: &mut dyn FnMut(&str, String)) {
        let routed = self.device.routes_adaptively();
        let text = match self.switch.routing {
            Routing::Random if !routed => {
                "packets of a flow overtake each other, and devices take each gap for a loss; set \
                 device.adaptive_routing = true"
            }
            Routing::Adaptive if !routed => {
                "no packet may take another path than its flow; set device.adaptive_routing = true"
            }
            _ => return,
        };
        say("switch.routing", text.into());
    }

    /// Marks that are never made, or have no effect.
    fn check_marks(&self, say: &mut dyn FnMut(&str, String)) {
        let params = self.device.settings.congestion();
        let heeds = |job: &JobConfig| params.heeds_cnps(job.priority(self.device.qos));
        let Some(red) = &self.switch.ecn else {
            if self.jobs.iter().any(heeds) {
                let text = "no switch marks, so DCQCN never slows anybody down; add [switch.ecn] with \
                            preset = \"hpcc\", or set device.dcqcn.enabled = false";
                say("switch", text.into());
            }
            return;
        };
        for (number, job) in self.jobs.iter().enumerate().filter(|(_, job)| !heeds(job)) {
            let field = field_of(self.device.qos.trust);
            let text = format!(
                "DCQCN is off for priority {}, so nothing of this job is marked; \
                 set device.dcqcn.enabled = true, or another {field}",
                job.priority(self.device.qos)
            );
            say(&format!("job[{number}].{field}"), text);
        }
        let lossless = |job| self.switch.lossless >> self.switch_priority(job) & 1 != 0;
        let limit = match self.jobs.iter().any(lossless) {
            true => self.shared(),
            false => self.queue_limit(),
        };
        if u64::from(red.kmin()) >= limit {
            let text = format!(
                "nothing is ever marked: kmin is {}, and a queue can hold {limit} bytes; \
                 write kmin = \"{}\" or less",
                red.kmin(),
                limit / 4
            );
            say("switch.ecn.kmin", text);
        }
    }

    /// Switches in which the longest frame has no room when it has to wait.
    fn check_buffer(&self, say: &mut dyn FnMut(&str, String)) {
        let frame = self.longest_frame();
        let lossless = |job| self.switch.lossless >> self.switch_priority(job) & 1 != 0;
        let (buffer, shared, headroom) = (self.switch.buffer_bytes, self.shared(), self.headroom());
        if self.jobs.iter().any(lossless) && frame > shared.max(self.switch.headroom_bytes) {
            let text = format!(
                "a frame that has to wait is dropped: the buffer shares {shared} bytes, and frames have up to \
                 {frame}; write buffer = \"{}KiB\" or more",
                (headroom + frame).div_ceil(1024)
            );
            say("switch.buffer", text);
            return;
        }
        // Of an empty buffer, a queue may take what alpha allows, or all.
        let alpha = f64::from(self.switch.drop_alpha_log2).exp2().min(1.0);
        let room = (shared as f64 * alpha) as u64;
        if !self.jobs.iter().all(lossless) && frame > room {
            let needed = headroom + (frame as f64 / alpha) as u64;
            let text = format!(
                "a frame that has to wait is dropped: a queue of a buffer of {buffer} bytes can take {room}, \
                 and frames have up to {frame}; write buffer = \"{}KiB\" or more",
                needed.div_ceil(1024)
            );
            say("switch.buffer", text);
        }
    }

    /// Bytes of the longest frame of the jobs.
    pub(super) fn longest_frame(&self) -> u64 {
        let tag = self.device.qos.tag_len() as u64;
        u64::from(sizes::longest_frame(self.device.mtu.bytes())) + tag
    }

    /// Priorities that no packet has, or that hosts and switches see differently.
    fn check_trust(&self, say: &mut dyn FnMut(&str, String)) {
        let places = [
            ("device.trust", self.device.qos.trust),
            ("switch.trust", self.switch.trust),
        ];
        if self.device.qos.vlan.is_none()
            && let Some((place, _)) = places.iter().find(|(_, trust)| *trust == Trust::Pcp)
        {
            let text = "packets have no VLAN tag, so all of them have priority 0; add device.vlan = \
                        100, or write trust = \"dscp\"";
            say(place, text.into());
        }
        if self.switch.lossless == 0 {
            return;
        }
        for (number, job) in self.jobs.iter().enumerate() {
            let (at_host, at_switch) = (job.priority(self.device.qos), self.switch_priority(job));
            if at_host != at_switch {
                let text = format!(
                    "hosts send it with priority {at_host}, and switches pause priority {at_switch}, \
                     which does not stop it: write the same device.trust and switch.trust, or dscp \
                     and sl of the same priority"
                );
                say(&format!("job[{number}].sl"), text);
            }
        }
    }

    /// The priority of a job's packets at switches.
    fn switch_priority(&self, job: &JobConfig) -> u8 {
        let trust = self.switch.trust;
        job.priority(Qos {
            trust,
            ..self.device.qos
        })
    }

    /// The longest that one queue without PFC can be, when all others are empty.
    fn queue_limit(&self) -> u64 {
        let alpha = f64::from(self.switch.drop_alpha_log2).exp2();
        (self.shared() as f64 * alpha / (1.0 + alpha)) as u64
    }

    /// What of the smallest shared buffer is not headroom.
    fn shared(&self) -> u64 {
        let headroom = self.headroom();
        self.switch.buffer_bytes.saturating_sub(headroom)
    }

    /// The headroom of the switch with the most ports.
    fn headroom(&self) -> u64 {
        let priorities = u64::from(self.switch.lossless.count_ones());
        self.switch.headroom_bytes * priorities * self.ports_max()
    }

    fn ports_max(&self) -> u64 {
        let mut ports = vec![0_u64; self.topology.nodes() as usize];
        for cable in &self.topology.cables {
            cable
                .ends
                .iter()
                .for_each(|node| ports[node.0 as usize] += 1);
        }
        ports
            .into_iter()
            .skip(self.topology.hosts as usize)
            .max()
            .unwrap_or(0)
    }

    /// Pauses that no switch makes, or that come too late.
    fn check_pauses(&self, say: &mut dyn FnMut(&str, String)) {
        if self.switch.lossless == 0 {
            return;
        }
        for (number, job) in self.jobs.iter().enumerate() {
            let priority = self.switch_priority(job);
            if self.switch.lossless >> priority & 1 == 0 {
                let field = field_of(self.switch.trust);
                let value = match self.switch.trust {
                    Trust::Dscp => job.traffic_class >> 2,
                    Trust::Pcp => job.sl,
                };
                let text = format!(
                    "{field} = {value} is priority {priority}, which switch.pfc.priorities does not \
                     name: nothing of this job is ever paused, and it can be dropped"
                );
                say(&format!("job[{number}].{field}"), text);
            }
        }
        let (headroom, buffer) = (self.headroom(), self.switch.buffer_bytes);
        if headroom >= buffer {
            let text = format!(
                "{} ports need {headroom} bytes of headroom, and the buffer has {buffer}: nothing is left to \
                 share; write a larger switch.buffer, or a smaller headroom",
                self.ports_max()
            );
            say("switch.pfc.headroom", text);
        }
        let longest = self.longest_frame();
        let latency = self.switch.latency;
        let needs =
            |cable: &Cable| headroom_needed(cable.rate, cable.delay.times(2) + latency, longest);
        let to_switch = self.topology.cables.iter();
        let to_switch = to_switch.filter(|it| {
            it.ends
                .iter()
                .any(|node: &NodeId| !self.topology.is_host(*node))
        });
        let needed = to_switch.map(needs).max().unwrap_or(0);
        if self.switch.headroom_bytes < needed {
            let text = format!(
                "{} bytes of headroom are too few: up to {needed} arrive between a pause and its effect, \
                 and what has no room is dropped; write headroom = \"{}KiB\"",
                self.switch.headroom_bytes,
                needed.div_ceil(1024)
            );
            say("switch.pfc.headroom", text);
        }
    }
}

/// What arrives between the decision to pause and its effect: there and back on the cable and on the way to
/// a queue, a frame that has just begun at either end, and the pause itself.
pub(super) fn headroom_needed(rate: Rate, away: Span, longest_frame: u64) -> u64 {
    const PAUSE: u64 = 84;
    let bits = u128::from(rate.bps()) * u128::from(away.as_picos()) / 1_000_000_000_000;
    (bits / 8) as u64 + 2 * (longest_frame + u64::from(sizes::AROUND_FRAME)) + PAUSE
}

fn timeouts(job: &JobConfig) -> QpTimeouts {
    QpTimeouts {
        timeout: job.attr.timeout,
        retry_cnt: job.attr.retry_cnt,
    }
}
