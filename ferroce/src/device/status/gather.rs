//! Samples the state of devices and programs twice.

use std::fs;
use std::time::{Duration, Instant};

use ferroce_device::{Counter, Direction};
use ferroce_registry::{
    Counts, DeviceSpec, FaultRow, FlowRow, Inquiry, Observer, PortLook, Process, QpStates, Query,
    Registry, ResourceRow,
};

use super::super::ask::{Replies, ask};
use super::super::fault;
use super::super::impair::in_force;
use super::super::stat::thousandths;
use super::machine::Machine;
use super::warnings;
use crate::json::device as json;
use crate::leftover;
use crate::output::Failure;
use crate::policy::Policy;

/// How long all processes together may take to count their queue pairs, and again to report those
/// that are slowed down.
const PATIENCE: Duration = Duration::from_millis(500);

/// Everything that is shown.
pub(super) struct Status {
    pub(super) devices: Vec<DeviceLook>,
    pub(super) programs: Vec<Program>,
    /// The live fault rules.
    pub(super) faults: Vec<FaultRow>,
    pub(super) machine: Machine,
    /// What deserves attention, the worst first.
    pub(super) warnings: Vec<String>,
    /// The time over which the rates were measured.
    pub(super) seconds: f64,
}

/// A device.
pub(super) struct DeviceLook {
    pub(super) spec: DeviceSpec,
    /// What is set and has been counted, or why that cannot be read.
    pub(super) seen: Result<Seen, String>,
    /// Queue pairs that congestion control holds back.
    pub(super) slowed: u64,
}

/// What is set on a device and has been counted.
pub(super) struct Seen {
    pub(super) port: PortLook,
    /// The port was set down; it is not down because of its interface.
    pub(super) is_set_down: bool,
    pub(super) policy: Policy,
    pub(super) egress: Option<String>,
    pub(super) ingress: Option<String>,
    /// The impairment is that of a `ferroce run` that goes on.
    pub(super) has_run: bool,
    pub(super) totals: Totals,
    /// What was added during the window.
    pub(super) moved: Totals,
}

/// Counters that show a device's health.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Totals {
    pub(super) retransmitted: u64,
    pub(super) timeouts: u64,
    /// Queue pairs that gave up.
    pub(super) failed: u64,
    pub(super) cnps: u64,
    pub(super) kernel_drops: u64,
    pub(super) ring_drops: u64,
}

/// A program on a device.
pub(super) struct Program {
    pub(super) device: String,
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) condition: Condition,
    pub(super) queue_pairs: QpStates,
}

/// Whether a program reports its queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    Running,
    /// By a signal or a debugger.
    Stopped,
    /// It runs, and has not answered in time.
    Silent,
}

impl Status {
    /// Samples everything, waits for a window by `nap`, and samples again; `None` if `nap` was
    /// interrupted.
    pub(super) fn take(
        registry: &Registry,
        inquiry: &mut Inquiry,
        put_back: Vec<String>,
        window: Duration,
        nap: impl Fn(Duration) -> bool,
    ) -> Result<Option<Self>, Failure> {
        let specs = registry.links()?;
        let began = Instant::now();
        let before = totals(registry, &specs);
        let programs = programs(registry, inquiry)?;
        let slowed = slowed(registry, inquiry)?;
        // Asking may have taken a part of it.
        let left = window.saturating_sub(began.elapsed());
        let Some(machine) = Machine::watch(left.max(window / 2), nap) else {
            return Ok(None);
        };
        let seconds = began.elapsed().as_secs_f64();
        let mut devices = Vec::new();
        for (spec, before) in specs.iter().zip(before) {
            let observer = registry.observe_device(spec.clone());
            let seen = observer.map_err(|error| error.to_string());
            devices.push(DeviceLook {
                spec: spec.clone(),
                seen: seen.map(|it| Seen::of(&it, registry, before.unwrap_or_default())),
                slowed: slowed
                    .iter()
                    .filter(|(name, _)| *name == spec.name)
                    .map(|(_, count)| count)
                    .sum(),
            });
        }
        let mut status = Self {
            devices,
            programs,
            faults: fault::live(registry)?,
            machine,
            warnings: Vec::new(),
            seconds,
        };
        status.warnings = warnings::of(&status, put_back);
        Ok(Some(status))
    }

    /// A count as a rate.
    pub(super) fn rate(&self, moved: u64) -> f64 {
        moved as f64 / self.seconds
    }

    pub(super) fn json(&self) -> json::Status {
        json::Status {
            elapsed_s: thousandths(self.seconds),
            devices: self.devices.iter().map(|it| self.device_json(it)).collect(),
            programs: self.programs.iter().map(Program::json).collect(),
            machine: json::Machine {
                cores: self.machine.cores,
                load: self.machine.load,
                steal: self.machine.steal.map(thousandths),
                late_ns: u64::try_from(self.machine.late.as_nanos()).unwrap_or(u64::MAX),
            },
            warnings: self.warnings.clone(),
        }
    }

    fn device_json(&self, device: &DeviceLook) -> json::DeviceStatus {
        let seen = device.seen.as_ref();
        let error = seen.err().cloned();
        let seen = seen.ok();
        let count = |part: fn(&Totals) -> u64| {
            seen.map(|seen| json::Count {
                total: part(&seen.totals),
                per_second: thousandths(self.rate(part(&seen.moved))),
            })
        };
        json::DeviceStatus {
            device: device.spec.name.clone(),
            address: device.spec.address,
            error,
            state: seen.map(|seen| if seen.port.is_up { "up" } else { "down" }),
            changes_in_ns: seen.and_then(|seen| Some(seen.port.changes_in?.as_nanos())),
            link_downed: seen.map(|seen| seen.port.downed),
            policy: seen.map(|seen| seen.policy.json()),
            egress: seen.and_then(|seen| seen.egress.clone()),
            ingress: seen.and_then(|seen| seen.ingress.clone()),
            slowed_queue_pairs: device.slowed,
            retransmitted: count(|it| it.retransmitted),
            timeouts: count(|it| it.timeouts),
            failed_queue_pairs: count(|it| it.failed),
            cnps: count(|it| it.cnps),
            kernel_drops: count(|it| it.kernel_drops),
            ring_drops: count(|it| it.ring_drops),
        }
    }
}

impl Seen {
    fn of(observer: &Observer, registry: &Registry, before: Totals) -> Self {
        let state = observer.state();
        let (port, totals) = (observer.port(), Totals::of(observer));
        let [egress, ingress] =
            [Direction::Egress, Direction::Ingress].map(|it| in_force(state, it));
        Self {
            is_set_down: !port.is_up && observer.is_set_down(),
            port,
            policy: Policy::of(state),
            egress,
            ingress,
            has_run: leftover::has_run(registry, observer.spec().pf()),
            totals,
            moved: totals.since(before),
        }
    }

    /// The impairments of both directions, in words.
    pub(super) fn impairment(&self) -> Option<String> {
        match (&self.egress, &self.ingress) {
            (None, None) => None,
            (Some(egress), None) => Some(egress.clone()),
            (None, Some(ingress)) => Some(format!("ingress {ingress}")),
            (Some(egress), Some(ingress)) => Some(format!("{egress}; ingress {ingress}")),
        }
    }
}

impl Totals {
    fn of(observer: &Observer) -> Self {
        let counters = observer.state().counters();
        let count = |counter: Counter| counters[counter as usize];
        // F13: retransmissions after a timeout are among those handled.
        let cnps = count(Counter::RpCnpHandled).wrapping_sub(count(Counter::RoceSlowRestartCnps));
        Self {
            retransmitted: count(Counter::RetransmittedPackets),
            timeouts: count(Counter::TimeoutsIb)
                + count(Counter::TimeoutsFirmware)
                + count(Counter::TimeoutsProfile),
            failed: count(Counter::ReqTransportRetriesExceeded)
                + count(Counter::ReqRnrRetriesExceeded),
            cnps,
            kernel_drops: count(Counter::RxSocketOverflow),
            ring_drops: count(Counter::RxRingOverflow),
        }
    }

    fn since(self, before: Self) -> Self {
        // Less than before: another device has taken the name, and counts from zero.
        let moved = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            retransmitted: moved(self.retransmitted, before.retransmitted),
            timeouts: moved(self.timeouts, before.timeouts),
            failed: moved(self.failed, before.failed),
            cnps: moved(self.cnps, before.cnps),
            kernel_drops: moved(self.kernel_drops, before.kernel_drops),
            ring_drops: moved(self.ring_drops, before.ring_drops),
        }
    }
}

/// The counters of each device; `None` where they cannot be read.
fn totals(registry: &Registry, specs: &[DeviceSpec]) -> Vec<Option<Totals>> {
    let look = |spec: &DeviceSpec| {
        let observer = registry.observe_device(spec.clone()).ok()?;
        Some(Totals::of(&observer))
    };
    specs.iter().map(look).collect()
}

impl Program {
    fn json(&self) -> json::Program {
        let states = self.queue_pairs.named().into_iter();
        json::Program {
            device: self.device.clone(),
            pid: self.pid,
            comm: self.comm.clone(),
            condition: match self.condition {
                Condition::Running => "running",
                Condition::Stopped => "stopped",
                Condition::Silent => "silent",
            },
            queue_pairs: states
                .map(|(state, count)| (state.to_ascii_lowercase(), count))
                .collect(),
        }
    }
}

/// The programs on all devices. Those that are stopped are not asked, and of the others none is
/// waited for a second time.
fn programs(registry: &Registry, inquiry: &mut Inquiry) -> Result<Vec<Program>, Failure> {
    let mut programs = Vec::new();
    let nothing = (None, PATIENCE);
    for device in ask(registry, None, nothing, inquiry, |_, _| true)? {
        for process in &device.processes {
            let is_there = |it: &Program| it.pid == process.pid && it.device == device.device;
            // A program may have opened a device twice.
            if !programs.iter().any(is_there) {
                programs.push(Program {
                    device: device.device.clone(),
                    pid: process.pid,
                    comm: process.comm.clone(),
                    condition: match is_stopped(process) {
                        true => Condition::Stopped,
                        false => Condition::Running,
                    },
                    queue_pairs: QpStates::default(),
                });
            }
        }
    }
    let question = (Some(Query::Count), PATIENCE);
    for device in ask(registry, None, question, inquiry, |_, it| !is_stopped(it))? {
        let of_device = || device.device.as_str();
        for counts in device.rows.iter().filter_map(Counts::of) {
            if let Some(program) = find(&mut programs, of_device(), counts.pid) {
                program.queue_pairs.add(&counts.qp_states);
            }
        }
        for silent in &device.silent {
            if let Some(program) = find(&mut programs, of_device(), silent.pid) {
                program.condition = Condition::Silent;
            }
        }
    }
    Ok(programs)
}

fn find<'a>(programs: &'a mut [Program], device: &str, pid: u32) -> Option<&'a mut Program> {
    let is_it = |it: &&mut Program| it.pid == pid && it.device == device;
    programs.iter_mut().find(is_it)
}

/// How many queue pairs of each device congestion control holds back.
fn slowed(registry: &Registry, inquiry: &mut Inquiry) -> Result<Vec<(String, u64)>, Failure> {
    let has_cnps = |observer: &Observer, process: &Process| {
        let cnps = observer
            .state()
            .counter_of(process.slot, Counter::RpCnpHandled);
        cnps > 0 && !is_stopped(process)
    };
    let question = (Some(Query::Flow), PATIENCE);
    let replies = ask(registry, None, question, inquiry, has_cnps)?;
    let count = |device: Replies| {
        let flows = device.rows.iter().filter_map(FlowRow::of);
        let slowed = flows.filter(|flow| flow.limit.is_some()).count();
        (device.device, slowed as u64)
    };
    Ok(replies.into_iter().map(count).collect())
}

/// Whether the kernel says that the process is stopped. Of one in another namespace of processes,
/// whose number is another one's here, nothing is known.
fn is_stopped(process: &Process) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    condition(&stat).is_some_and(|(comm, state)| comm == process.comm && matches!(state, 'T' | 't'))
}

/// Name and state in `/proc/PID/stat`; a name may have parentheses of its own.
fn condition(stat: &str) -> Option<(&str, char)> {
    let (start, rest) = stat.rsplit_once(") ")?;
    let (_, comm) = start.split_once('(')?;
    Some((comm, rest.chars().next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_hides_no_state() {
        assert_eq!(condition("12 (a) b) T 1 2"), Some(("a) b", 'T')));
        assert_eq!(condition("12 (sh) S 1"), Some(("sh", 'S')));
        assert_eq!(condition(""), None);
    }

    #[test]
    fn counters_of_another_device_by_the_same_name_are_all_new() {
        let [before, now] = [7, 3].map(|failed| Totals {
            failed,
            ..Totals::default()
        });
        assert_eq!(now.since(before).failed, 3);
        assert_eq!(before.since(now).failed, 4);
    }
}
