//! Findings that deserve attention.

use std::time::Duration;

use super::super::fault;
use super::super::stat::per_second;
use super::gather::{Condition, DeviceLook, Program, Seen, Status};
use super::screen::rounded;

/// From which share of stolen time on times cannot be trusted.
const STEAL: f64 = 0.05;
/// From which delay of a wake-up on times cannot be trusted: the shortest waits are of this order.
const LATE: Duration = Duration::from_millis(4);

/// A line for each; `put_back` is what was done to leftovers of runs that were killed.
pub(super) fn of(status: &Status, put_back: Vec<String>) -> Vec<String> {
    let mut warnings = Vec::new();
    for device in &status.devices {
        let name = &device.spec.name;
        match &device.seen {
            Err(error) => warnings.push(format!("{name} cannot be read: {error}")),
            Ok(seen) => of_device(status, device, seen, &mut warnings),
        }
    }
    warnings.extend(status.programs.iter().filter_map(of_program));
    if let Some(rules) = fault::in_force(&status.faults) {
        let injected: u64 = status.faults.iter().map(|row| row.struck).sum();
        warnings.push(format!(
            "{rules} (injected {injected} so far); `ferroce fault clear`"
        ));
    }
    let plain = |note: String| match note.strip_prefix("note: ") {
        Some(plain) => plain.to_owned(),
        None => note,
    };
    warnings.extend(put_back.into_iter().map(plain));
    of_machine(status, &mut warnings);
    warnings
}

fn of_device(status: &Status, device: &DeviceLook, seen: &Seen, warnings: &mut Vec<String>) {
    let name = &device.spec.name;
    if seen.moved.failed > 0 {
        warnings.push(format!(
            "{name}: {} queue pairs gave up just now; `ferroce explain error {name}`",
            seen.moved.failed
        ));
    }
    if !seen.port.is_up {
        warnings.push(match (seen.is_set_down, seen.port.changes_in) {
            (false, _) => format!("{name}: its interface has no carrier"),
            (true, Some(left)) => {
                format!("{name}: the port is down; it comes up in {}", rounded(left))
            }
            (true, None) => {
                let pf = &device.spec.pf().name;
                format!("{name}: the port is down until `ferroce link set {pf} up`")
            }
        });
    }
    if seen.moved.kernel_drops > 0 {
        let rate = per_second(status.rate(seen.moved.kernel_drops));
        warnings.push(format!(
            "{name}: the kernel drops {rate} packets a second; raise net.core.rmem_max and restart the \
             programs"
        ));
    } else if seen.totals.kernel_drops > 0 {
        warnings.push(format!(
            "{name}: the kernel has dropped {} packets so far (receive buffer full)",
            seen.totals.kernel_drops
        ));
    }
    if seen.moved.ring_drops > 0 {
        let rate = per_second(status.rate(seen.moved.ring_drops));
        warnings.push(format!(
            "{name}: {rate} packets a second from this host are dropped because a program does not \
             take them; resume it if it is stopped, otherwise send less at a time"
        ));
    } else if seen.totals.ring_drops > 0 {
        warnings.push(format!(
            "{name}: {} packets from this host were dropped so far (a program did not take them)",
            seen.totals.ring_drops
        ));
    }
    if let Some(impairment) = seen.impairment()
        && device.spec.vf.is_none()
        && !seen.has_run
        && !is_used(status, name)
    {
        warnings.push(format!(
            "{name}: impaired ({impairment}), though no program uses it; `ferroce impair clear {name}`"
        ));
    }
}

/// Whether a program has a function of the card open.
fn is_used(status: &Status, card: &str) -> bool {
    let is_of_card = |device: &&DeviceLook| device.spec.pf().name == card;
    let mut functions = status.devices.iter().filter(is_of_card);
    functions.any(|function| {
        let name = &function.spec.name;
        status
            .programs
            .iter()
            .any(|program| program.device == *name)
    })
}

fn of_program(program: &Program) -> Option<String> {
    let Program {
        device, pid, comm, ..
    } = program;
    match program.condition {
        Condition::Running => None,
        Condition::Stopped => Some(format!(
            "{device}: {comm} is stopped; `kill -CONT {pid}` resumes it"
        )),
        Condition::Silent => Some(format!("{device}: {comm} ({pid}) does not answer")),
    }
}

fn of_machine(status: &Status, warnings: &mut Vec<String>) {
    let machine = &status.machine;
    if let Some(load) = machine.load.filter(|load| *load > machine.cores as f64) {
        warnings.push(format!(
            "busy machine: load {load:.1} on {} cores; timers may expire early for peers",
            machine.cores
        ));
    }
    if let Some(steal) = machine.steal.filter(|steal| *steal > STEAL) {
        warnings.push(format!(
            "busy host: the hypervisor takes {:.0} % of the processor time (steal)",
            steal * 100.0
        ));
    }
    if machine.late > LATE {
        warnings.push(format!(
            "busy machine: this program woke up {:.0} ms late",
            machine.late.as_secs_f64() * 1e3
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Totals;
    use super::super::screen::tests::status;
    use super::*;

    /// What is said of a device that has dropped packets so, a rate and a total.
    fn said(moved: Totals, totals: Totals) -> Vec<String> {
        let mut status = status(1, 0, 0);
        let Ok(seen) = &mut status.devices[0].seen else {
            panic!("it was made readable");
        };
        (seen.moved, seen.totals) = (moved, totals);
        of(&status, Vec::new())
    }

    #[test]
    fn each_kind_of_drop_has_its_own_remedy() {
        let none = Totals::default();
        let (kernel, ring) = (
            Totals {
                kernel_drops: 7,
                ..none
            },
            Totals {
                ring_drops: 7,
                ..none
            },
        );
        assert_eq!(said(none, none), [""; 0]);
        for (drops, words, remedy) in [
            (kernel, "the kernel", "rmem_max"),
            (ring, "packets", "resume it if it is stopped"),
        ] {
            let now = said(drops, drops);
            assert!(
                now.len() == 1 && now[0].contains(words) && now[0].contains(remedy),
                "{now:?}"
            );
            assert!(now[0].contains(" 14 packets a second"), "{now:?}");
            let before = said(none, drops);
            assert!(before.len() == 1 && before[0].contains(words), "{before:?}");
        }
        let of_rings = [said(ring, ring), said(none, ring)].concat();
        assert!(
            !of_rings
                .iter()
                .any(|it| it.contains("kernel") || it.contains("rmem"))
        );
    }
}
