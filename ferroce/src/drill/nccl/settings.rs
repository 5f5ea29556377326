//! NCCL's failover, and what it asks of the environment.

use std::env;

use clap::ValueEnum;
use ferroce_dynlib::Version;

use crate::drill::settings::Settings;

const FAILOVER: &str = "NCCL_IB_RESILIENCY_PORT_FAILOVER";
const RECOVERY: &str = "NCCL_IB_RESILIENCY_PORT_RECOVERY";
/// In 2.29 failover works only if the receiver tells requests apart by their number, which later
/// releases do by themselves.
const MATCHING: &str = "NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME";
/// What the hosts of a drill need unless the user has set it: ends on loopback addresses, and messages
/// about the network, each as soon as it is there.
const DEFAULTS: [(&str, &str); 4] = [
    ("NCCL_DEBUG_FILE", "/dev/stderr"),
    ("NCCL_SOCKET_IFNAME", "lo"),
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "NET"),
];

/// Whether NCCL moves traffic to other ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(in crate::drill) enum Failover {
    /// It does not
    Off,
    /// It does
    On,
    /// It does, and back
    Recovery,
}

impl Failover {
    /// The first release that has it.
    pub(super) fn since(self) -> Option<Version> {
        let minor = match self {
            Self::Off => return None,
            Self::On => 29,
            Self::Recovery => 30,
        };
        Some(Version {
            major: 2,
            minor,
            patch: 0,
        })
    }
}

/// All variables of a host's process.
pub(super) fn variables(settings: &Settings<Failover>, version: Version) -> Vec<(String, String)> {
    let mut of_mode = match settings.mode {
        None => vec![],
        Some(Failover::Off) => vec![(FAILOVER, "0"), (RECOVERY, "0")],
        Some(Failover::On) => vec![(FAILOVER, "1"), (RECOVERY, "0")],
        Some(Failover::Recovery) => vec![(FAILOVER, "1"), (RECOVERY, "1")],
    };
    let is_of_229 = (version.major, version.minor) == (2, 29);
    if fails_over(settings) && is_of_229 && settings.mode.is_some() {
        of_mode.push((MATCHING, "1"));
    }
    settings.variables(&DEFAULTS, &of_mode)
}

/// Whether NCCL is asked to move traffic to other ports.
pub(super) fn fails_over(settings: &Settings<Failover>) -> bool {
    is_on(settings, FAILOVER, &[Failover::On, Failover::Recovery])
}

/// Whether NCCL is asked to bring ports back into use.
pub(super) fn recovers(settings: &Settings<Failover>) -> bool {
    is_on(settings, RECOVERY, &[Failover::Recovery])
}

fn is_on(settings: &Settings<Failover>, name: &str, choices: &[Failover]) -> bool {
    match (settings.given(name), settings.mode) {
        (Some(value), _) => value != "0",
        (None, Some(failover)) => choices.contains(&failover),
        (None, None) => env::var(name).is_ok_and(|value| !["", "0"].contains(&value.as_str())),
    }
}

/// The timeout of queue pairs that a release has by default.
pub(super) fn timeout(version: Version) -> u64 {
    match version {
        Version {
            major: 2,
            minor: ..=22,
            ..
        } => 18,
        _ => 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_gets_what_its_failover_needs() {
        let settings = Settings::of(Some(Failover::On));
        let has = |minor: u32| {
            let version = Version {
                major: 2,
                minor,
                patch: 7,
            };
            let variables = variables(&settings, version);
            variables.iter().any(|(name, _)| name == MATCHING)
        };
        assert!(has(29) && !has(30));
    }
}
