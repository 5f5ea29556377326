//! `ferroce status`: the state of all devices on one screen.
//!
//! | module | purpose |
//! |---|---|
//! | `gather` | samples devices and programs twice |
//! | `machine` | whether the machine is too busy for reliable times |
//! | `warnings` | findings that deserve attention |
//! | `screen` | the lines, limited to the size of the screen |

mod gather;
mod machine;
mod screen;
mod warnings;

use std::time::Duration;

use clap::Args;
use ferroce_registry::{Inquiry, Registry};

use self::gather::Status;
use super::format::Format;
use super::watch::{Pauses, in_place, interval};
use crate::leftover;
use crate::output::{Failure, Output};

/// Show devices, policies, programs, rates and warnings on one screen
///
/// Rows that do not fit are counted; --all prints them, and -j everything. Rates are those of half
/// a second, with --watch those since the last refresh. A program that is stopped or does not
/// answer is shown as such.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Command {
    /// Print all rows, not just those that fit 24 lines
    #[arg(short, long)]
    all: bool,
    /// Refresh every SECONDS, until interrupted [default: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = interval)]
    watch: Option<Duration>,
    #[command(flatten)]
    format: Format,
}

/// Over which rates are taken.
const WINDOW: Duration = Duration::from_millis(500);

impl Command {
    pub(crate) fn run(self, details: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        let format = self.format.with(details);
        let registry = Registry::open().map_err(Failure::broken)?;
        let mut inquiry = Inquiry::default();
        let pauses = self.watch.map(|_| Pauses::new()).transpose()?;
        loop {
            let put_back = leftover::put_back(&registry);
            let nap = |time| pauses.as_ref().is_none_or(|pauses| pauses.pass(time));
            let window = self.watch.unwrap_or(WINDOW);
            let Some(status) = Status::take(&registry, &mut inquiry, put_back, window, nap)? else {
                return Ok(()); // interrupted
            };
            match format.json {
                true => to.document(&status.json())?,
                false => {
                    let screen = screen::draw(&status, self.all || format.details);
                    let place = if self.watch.is_some() { in_place() } else { "" };
                    to.text(&format!("{place}{screen}"))?;
                }
            }
            to.out.flush()?;
            if self.watch.is_none() {
                return Ok(());
            }
        }
    }
}
