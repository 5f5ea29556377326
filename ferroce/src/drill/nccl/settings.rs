//! NCCL's variables, in all combinations that are asked for.

use std::env;

use clap::ValueEnum;
use ferroce_nccl::Version;

use crate::output::Failure;

const FAILOVER: &str = "NCCL_IB_RESILIENCY_PORT_FAILOVER";
const RECOVERY: &str = "NCCL_IB_RESILIENCY_PORT_RECOVERY";
/// In 2.29 failover works only if the receiver tells requests apart by their number, which later
/// releases do by themselves.
const MATCHING: &str = "NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME";
/// What queue pairs have from.
const OF_QUEUE_PAIRS: [&str; 2] = ["NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"];
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
pub(super) enum Failover {
    /// It does not
    Off,
    /// It does
    On,
    /// It does, and back
    Recovery,
}

/// A combination of variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// What tells it from others.
    pub(super) name: String,
    failover: Option<Failover>,
    given: Vec<(String, String)>,
}

impl Settings {
    /// Every combination of the values that are given.
    pub(super) fn all(given: &[String], failover: &[Failover]) -> Result<Vec<Self>, Failure> {
        let mut names: Vec<(String, Vec<String>)> = Vec::new();
        for text in given {
            let (name, value) = text
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| {
                    Failure::input(format_args!(
                        "invalid variable {text:?}: write NAME=VALUE, as in NCCL_IB_TIMEOUT=22"
                    ))
                })?;
            match names.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(value.to_owned()),
                None => names.push((name.to_owned(), vec![value.to_owned()])),
            }
        }
        let mut all = match failover {
            [] => vec![Self::default()],
            failover => failover.iter().map(|it| Self::of_failover(*it)).collect(),
        };
        for (name, values) in &names {
            let with = |settings: &Self, value: &String| {
                let mut settings = settings.clone();
                settings.given.push((name.clone(), value.clone()));
                if values.len() > 1 {
                    let short = name.trim_start_matches("NCCL_").trim_start_matches("IB_");
                    settings.add_name(&format!("{short}={value}"));
                }
                settings
            };
            all = all
                .iter()
                .flat_map(|settings| values.iter().map(|value| with(settings, value)))
                .collect();
        }
        Ok(all)
    }

    fn of_failover(failover: Failover) -> Self {
        let name = match failover {
            Failover::Off => "off",
            Failover::On => "on",
            Failover::Recovery => "recovery",
        };
        Self {
            name: name.to_owned(),
            failover: Some(failover),
            given: Vec::new(),
        }
    }

    fn add_name(&mut self, name: &str) {
        if !self.name.is_empty() {
            self.name += " ";
        }
        self.name += name;
    }

    /// Why a release cannot run with it; `None` if it can.
    pub(super) fn lacking(&self, version: Version) -> Option<String> {
        let minor = match self.failover {
            None | Some(Failover::Off) => return None,
            Some(Failover::On) => 29,
            Some(Failover::Recovery) => 30,
        };
        let has_it = (version.major, version.minor) >= (2, minor);
        (!has_it).then(|| format!("NCCL {version} does not have it, releases from 2.{minor} on do"))
    }

    /// All variables of a host's process.
    pub(super) fn variables(&self, version: Version) -> Vec<(String, String)> {
        let is_set = |name: &str| env::var_os(name).is_some();
        let mut all: Vec<(&str, &str)> = Vec::new();
        all.extend(DEFAULTS.iter().filter(|(name, _)| !is_set(name)));
        match self.failover {
            None => {}
            Some(Failover::Off) => all.extend([(FAILOVER, "0"), (RECOVERY, "0")]),
            Some(Failover::On) => all.extend([(FAILOVER, "1"), (RECOVERY, "0")]),
            Some(Failover::Recovery) => all.extend([(FAILOVER, "1"), (RECOVERY, "1")]),
        }
        if self.fails_over() && (version.major, version.minor) == (2, 29) && self.failover.is_some()
        {
            all.push((MATCHING, "1"));
        }
        let all = all.into_iter();
        let mut all: Vec<_> = all
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        all.extend(self.given.iter().cloned());
        all
    }

    /// Whether NCCL is asked to move traffic to other ports.
    pub(super) fn fails_over(&self) -> bool {
        self.is_on(FAILOVER, &[Failover::On, Failover::Recovery])
    }

    /// Whether NCCL is asked to bring ports back into use.
    pub(super) fn recovers(&self) -> bool {
        self.is_on(RECOVERY, &[Failover::Recovery])
    }

    fn is_on(&self, name: &str, choices: &[Failover]) -> bool {
        let given = self.given.iter().rfind(|(known, _)| known == name);
        match (given, self.failover) {
            (Some((_, value)), _) => value != "0",
            (None, Some(failover)) => choices.contains(&failover),
            (None, None) => env::var(name).is_ok_and(|value| !["", "0"].contains(&value.as_str())),
        }
    }
}

/// Those variables that decide what queue pairs have, as `NAME=VALUE`.
pub(super) fn of_queue_pairs(variables: &[(String, String)]) -> Vec<String> {
    let decides = |it: &&(String, String)| OF_QUEUE_PAIRS.contains(&it.0.as_str());
    let decisive = variables.iter().filter(decides);
    decisive
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
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

    fn names(given: &[&str], failover: &[Failover]) -> Vec<String> {
        let given: Vec<_> = given.iter().map(|it| (*it).to_owned()).collect();
        let all = Settings::all(&given, failover).unwrap();
        all.into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn several_values_are_several_settings() {
        assert_eq!(names(&[], &[]), [""]);
        assert_eq!(names(&["NCCL_IB_TIMEOUT=14"], &[]), [""]);
        let twice = ["NCCL_IB_TIMEOUT=14", "NCCL_IB_TIMEOUT=20"];
        assert_eq!(names(&twice, &[]), ["TIMEOUT=14", "TIMEOUT=20"]);
        let all = names(&twice, &[Failover::Off, Failover::On]);
        assert_eq!(all[0], "off TIMEOUT=14");
        assert_eq!(all[3], "on TIMEOUT=20");
    }

    #[test]
    fn each_release_gets_what_its_failover_needs() {
        let settings = Settings::of_failover(Failover::On);
        let has = |minor: u32| {
            let version = Version::of_number(20_007 + minor * 100);
            let variables = settings.variables(version);
            variables.iter().any(|(name, _)| name == MATCHING)
        };
        assert!(has(29) && !has(30));
        let version = Version::of_number(22_707);
        assert!(settings.lacking(version).unwrap().contains("from 2.29 on"));
        assert!(Settings::default().lacking(version).is_none());
    }
}
