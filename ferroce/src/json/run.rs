//! Documents of `ferroce run`, `env` and `version`.

use serde::Serialize;

use super::device::{Fault, Histogram};
use super::shared::Named;

/// The version of the program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Version {
    /// As in CHANGELOG.md.
    pub(crate) ferroce_version: &'static str,
    /// The processor that it was built for.
    pub(crate) arch: &'static str,
}

/// The variables that make programs use Ferroce.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Env {
    /// Their values, in front of or behind what the environment has already.
    pub(crate) variables: Named<String>,
}

/// What devices have counted while a program ran.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ran {
    /// The exit code of the command.
    pub(crate) exit_code: u8,
    /// How long the program ran.
    pub(crate) elapsed_s: f64,
    /// Each device that the program saw.
    pub(crate) devices: Vec<DeviceRan>,
    /// The fault rules of the run.
    pub(crate) faults: Vec<Fault>,
}

/// What a device has counted while a program ran.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceRan {
    /// The device.
    pub(crate) device: String,
    /// By how much every counter has grown.
    pub(crate) counters: Named<u64>,
    /// Timeouts of adaptive retransmission, by wait.
    pub(crate) histogram: Histogram,
}
