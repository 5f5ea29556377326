//! Documents of `ferroce cc`.

use ferroce_registry::FlowRow;
use serde::Serialize;

use super::res::{On, Silent};
use super::shared::Named;

/// Parameters of congestion control.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// Each device.
    pub(crate) devices: Vec<DeviceParameters>,
}

/// The parameters of a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceParameters {
    /// The device.
    pub(crate) device: String,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// The parameters, under the names that were asked for; `ferroce cc explain` has their units.
    pub(crate) parameters: Named<u32>,
}

/// What parameters mean.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Explained {
    /// Each parameter.
    pub(crate) parameters: Vec<Parameter>,
}

/// A parameter.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameter {
    /// Its name in sysfs.
    pub(crate) name: &'static str,
    /// The least value.
    pub(crate) min: u32,
    /// The greatest.
    pub(crate) max: u32,
    /// What values count; null for a plain number.
    pub(crate) unit: Option<String>,
    /// The firmware's default.
    pub(crate) default: u32,
    /// Its names in tools: sysfs, debugfs, mlxconfig and winof, as far as these have it.
    pub(crate) names: Named<String>,
    /// Where the meaning is documented.
    pub(crate) source: &'static str,
    /// How other values are treated, and whether the parameter has an effect here.
    pub(crate) other_values: String,
    /// What it does.
    pub(crate) meaning: &'static str,
}

/// Published sets of parameters.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Presets {
    /// Each set.
    pub(crate) presets: Vec<Preset>,
}

/// A published set of parameters.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Preset {
    /// Its name.
    pub(crate) name: &'static str,
    /// Where it was published.
    pub(crate) source: &'static str,
    /// What it changes of the firmware's defaults.
    pub(crate) parameters: Named<u32>,
    /// How the algorithm that scenarios run with it differs from the firmware's.
    pub(crate) algorithm: Named<&'static str>,
}

/// Commands that set parameters on a card.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Emitted {
    /// The tool that runs them, as --tool has it.
    pub(crate) tool: String,
    /// Whether they go back to the defaults.
    pub(crate) undo: bool,
    /// The commands, for a shell.
    pub(crate) commands: Vec<String>,
    /// What the tool cannot set.
    pub(crate) missing: Named<u32>,
}

/// Queue pairs whose peers have sent congestion notifications.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Watched<'a> {
    /// Each of them.
    pub(crate) queue_pairs: Vec<On<&'a FlowRow>>,
    /// Processes that did not answer.
    pub(crate) silent: Vec<Silent>,
}
