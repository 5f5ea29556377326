//! `ferroce adp emit`: the command that programs a card with a profile.

use clap::{Args, ValueEnum as _};
use ferroce_designer::command::{Tool, quoted, set, undo};

use super::input::{FileArg, load};
use crate::json::adp as json;
use crate::naming::DeviceArg;
use crate::output::{Failure, Output};
use crate::registers::is_card_name;

/// Print the command that writes a profile into a card, or into a device of Ferroce
///
/// The command is for any machine: DEV need not be a device of this one.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
#[command(mut_arg("name", |device| device.help("The device as that tool names it [default: DEV, to replace]")))]
pub(crate) struct Emit {
    #[command(flatten)]
    file: FileArg,
    /// The tool that runs it
    #[arg(long, value_name = "TOOL")]
    tool: Tool,
    #[command(flatten)]
    device: DeviceArg,
    /// Print the command that goes back to the firmware's own timeouts, which takes a reset
    #[arg(long)]
    undo: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Emit {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let profile = load(&self.file.file)?;
        // It is for wherever the command is run.
        let device = self.device.named()?.unwrap_or_else(|| "DEV".to_owned());
        let quoted = quoted(&device);
        let command = match self.undo {
            true => undo(self.tool, is_card_name(&device), &quoted),
            false => set(self.tool, &quoted, &profile),
        };
        if self.json {
            let tool = self.tool.to_possible_value();
            return to.document(&json::Emitted {
                tool: tool.map_or_else(String::new, |it| it.get_name().to_owned()),
                device,
                undo: self.undo,
                command,
            });
        }
        to.text(&format!("{command}\n"))
    }
}
