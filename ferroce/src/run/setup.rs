//! `ferroce env` and `sysfs`: the steps of `run`, for manual use.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use ferroce_registry::{DeviceSpec, Registry};
use ferroce_sysfs::View;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::{Prepared, ProgramArgs, REFRESH};
use crate::json::run as json;
use crate::output::{Failure, Output};

/// Print environment variables that make programs use Ferroce, for a shell
///
/// `eval "$(ferroce env)"` sets them for all programs that the shell starts from then on.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Env {
    #[command(flatten)]
    on: ProgramArgs,
    /// Print JSON: the variables with what they hold already
    #[arg(short, long)]
    json: bool,
}

impl Env {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let prepared = Prepared::prepare(&self.on, to)?;
        if self.json {
            let variables = prepared.environment.over(|name| std::env::var(name).ok());
            let variables = variables.collect();
            return to.document(&json::Env { variables });
        }
        to.text(&prepared.environment.to_string())
    }
}

/// Write the devices and their counters into a directory as /sys shows them, for exporters
///
/// node_exporter reads it with --path.sysfs=DIR.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Sysfs {
    /// A directory that is empty, does not exist, or was written by this command
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Follow the counters, 10 times a second, until SIGINT or SIGTERM; then remove what was written
    #[arg(long)]
    watch: bool,
}

impl Sysfs {
    pub(crate) fn run(self, _: &mut Output<'_>) -> Result<(), Failure> {
        let ended = Arc::new(AtomicBool::new(false));
        if self.watch {
            for signal in [SIGINT, SIGTERM] {
                flag::register(signal, Arc::clone(&ended))?;
            }
        }
        let is_new = !self.directory.exists();
        let registry = Registry::open().map_err(Failure::broken)?;
        let mut shown = registry.devices()?;
        let view = |devices: &[DeviceSpec]| View::sys(&self.directory, &registry, devices);
        let mut current = view(&shown).map_err(Failure::input)?;
        while self.watch && !ended.load(Ordering::Relaxed) {
            thread::sleep(REFRESH);
            let devices = registry.devices().map_err(Failure::broken)?;
            if devices == shown {
                current.refresh().map_err(Failure::broken)?;
            } else {
                current = view(&devices).map_err(Failure::broken)?;
                shown = devices;
            }
        }
        if self.watch {
            // Nothing follows the counters any more, and an exporter would take them for constant.
            current.clear().map_err(Failure::broken)?;
            if is_new {
                fs::remove_dir(&self.directory)?;
            }
        }
        Ok(())
    }
}
