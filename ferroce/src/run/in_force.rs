//! The settings in force on the devices before a run, in one line.

use ferroce_device::Direction;
use ferroce_registry::{DeviceSpec, Registry};

use crate::device::in_force;
use crate::policy::Policy;

/// Devices that are told of; of further ones the number.
const DEVICES: usize = 3;

/// What the run sets itself, in place of what is there.
#[derive(Clone, Copy)]
pub(super) struct Replaced {
    pub(super) policy: bool,
    pub(super) egress: bool,
}

/// The line; `None` if neither an impairment nor a profile is in force and all ports are up.
pub(super) fn note(
    registry: &Registry,
    devices: &[DeviceSpec],
    replaced: Replaced,
) -> Option<String> {
    let found = |spec: &DeviceSpec| {
        let facts = facts(registry, spec, replaced);
        (!facts.is_empty()).then(|| format!("{}: {}", spec.name, facts.join(", ")))
    };
    let found: Vec<_> = devices.iter().filter_map(found).collect();
    line(&found)
}

fn line(found: &[String]) -> Option<String> {
    let (shown, more) = found.split_at(found.len().min(DEVICES));
    let more = match more.len() {
        0 => String::new(),
        more => format!("; and on {more} more, see `ferroce status`"),
    };
    (!shown.is_empty()).then(|| format!("note: in force on {}{more}", shown.join("; ")))
}

fn facts(registry: &Registry, spec: &DeviceSpec, replaced: Replaced) -> Vec<String> {
    let Ok(observer) = registry.observe_device(spec.clone()) else {
        return Vec::new(); // the run itself will say so
    };
    let (state, mut facts) = (observer.state(), Vec::new());
    for (direction, what) in [
        (Direction::Egress, "impairment"),
        (Direction::Ingress, "ingress impairment"),
    ] {
        if direction == Direction::Egress && replaced.egress {
            continue;
        }
        facts.extend(in_force(state, direction).map(|it| format!("{what} {it}")));
    }
    if let policy @ Policy::Profile { .. } = Policy::of(state)
        && !replaced.policy
    {
        facts.push(format!("profile {policy}"));
    }
    if !observer.port().is_up {
        facts.push("port down".to_owned());
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_devices_are_one_line() {
        let found: Vec<_> = (0..5).map(|n| format!("fr{n}: port down")).collect();
        assert_eq!(line(&[]), None);
        assert_eq!(
            line(&found[..1]).unwrap(),
            "note: in force on fr0: port down"
        );
        assert_eq!(
            line(&found).unwrap(),
            "note: in force on fr0: port down; fr1: port down; fr2: port down; and on 2 more, see \
             `ferroce status`"
        );
    }
}
