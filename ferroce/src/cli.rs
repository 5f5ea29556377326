//! The tree of commands.

mod numbers;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::look::{ColorChoice, columns};
use crate::output::{Failure, Output};
use crate::{
    adp, demo, device, explain, identify, install, json, mlxreg, pcap, reg, run, serve, sim, sweep,
};

pub(crate) const EXIT_CODES: &str = "Exit codes:
  0  success, including a closed pipe
  1  operation failed or output could not be written
  2  bad input: flags, files or values; standard error says what and what to write instead";

/// A software RoCEv2 NIC you program like a real one.
#[derive(Debug, Parser)]
#[command(
    name = "ferroce",
    version,
    infer_subcommands = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    #[command(flatten)]
    before: device::Before,
    /// When to use colour: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    #[arg(
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

/// Very wide terminals are not filled with help.
const HELP_COLUMNS_MAX: usize = 100;

impl Cli {
    /// The command line, with help as wide as the terminal.
    pub(crate) fn read(args: Vec<OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::command().term_width(columns().min(HELP_COLUMNS_MAX));
        let hint = how_to_name_a_device(&args);
        let matches = command.try_get_matches_from_mut(args);
        let mut matches = matches.map_err(|error| with_hint(numbers::plain(error), hint))?;
        let cli = Self::from_arg_matches_mut(&mut matches);
        cli.map_err(|error| error.format(&mut command))
    }

    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.command {
            Command::Object(object) => object.run(self.before, to),
            Command::Work(work) => self.before.refuse().and_then(|()| work.run(to)),
        }
    }
}

/// Objects of iproute2's `rdma`: a device stands behind the verb, and -d asks for details.
const RDMA_STYLE: [&str; 4] = ["dev", "link", "res", "stat"];

/// What to write for a device, if these arguments are about one of these objects.
fn how_to_name_a_device(args: &[OsString]) -> Option<String> {
    let mut words = args.iter().skip(1).filter_map(|it| it.to_str());
    let object = words.find(|it| !it.starts_with('-'))?;
    RDMA_STYLE.contains(&object).then(|| {
        format!("a device is named behind the verb, as with rdma: ferroce {object} show DEV")
    })
}

/// The complaint about a device that is named in another way, with how to do it.
fn with_hint(mut error: clap::Error, hint: Option<String>) -> clap::Error {
    let (what, is_device) = match error.kind() {
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, None),
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, Some("--device")),
        ErrorKind::MissingRequiredArgument => return with_list_of_devices(error),
        _ => return error,
    };
    let is_meant = match error.get(what) {
        Some(ContextValue::String(found)) => is_device.is_none_or(|it| found == it),
        _ => false,
    };
    if let (Some(hint), true) = (hint, is_meant) {
        error.insert(ContextKind::SuggestedArg, ContextValue::None);
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![hint.into()]),
        );
    }
    error
}

/// The complaint about a device that is not named, with how to see which there are.
fn with_list_of_devices(mut error: clap::Error) -> clap::Error {
    let is_device = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|it| it.contains("DEV>")),
        _ => false,
    };
    if is_device {
        let hint = "devices are listed by: ferroce dev".into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
    }
    error
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Work(Work),
    #[command(flatten)]
    Object(device::Object),
}

/// One variant and one module for each object; the module owns its arguments.
#[derive(Debug, Subcommand)]
enum Work {
    Run(run::Command),
    Env(run::Env),
    Install(install::Install),
    Uninstall(install::Uninstall),
    Completions(install::Completions),
    Sysfs(run::Sysfs),
    Serve(serve::Command),
    Demo(demo::Command),
    /// Adaptive retransmission: check, import, replay, draw and apply profiles
    Adp(adp::Command),
    Reg(reg::Reg),
    Mlxreg(mlxreg::Mlxreg),
    Sim(sim::Command),
    Sweep(sweep::Command),
    /// Explain device behaviour
    Explain(explain::Command),
    Identify(identify::Identify),
    Pcap(pcap::Command),
    Schema(json::Schema),
    Version(json::Version),
}

impl Work {
    fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self {
            Self::Run(command) => command.run(to),
            Self::Env(command) => command.run(to),
            Self::Install(command) => command.run(to),
            Self::Uninstall(command) => command.run(to),
            Self::Completions(command) => command.run(to),
            Self::Sysfs(command) => command.run(to),
            Self::Serve(command) => command.run(to),
            Self::Demo(command) => command.run(to),
            Self::Adp(command) => command.run(to),
            Self::Reg(command) => command.run(to),
            Self::Mlxreg(command) => command.run(to),
            Self::Sim(command) => command.run(to),
            Self::Sweep(command) => command.run(to),
            Self::Explain(command) => command.run(to),
            Self::Identify(command) => command.run(to),
            Self::Pcap(command) => command.run(to),
            Self::Schema(command) => command.run(to),
            Self::Version(command) => command.run(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    /// All commands that do something, each with its words.
    fn each(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &clap::Command)) {
        visit(path, command);
        for it in command
            .get_subcommands()
            .filter(|it| it.get_name() != "help")
        {
            each(it, format!("{path} {}", it.get_name()).trim(), visit);
        }
    }

    fn built() -> clap::Command {
        let mut command = Cli::command();
        command.build();
        command
    }

    fn is_device(arg: &Arg) -> bool {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| name.contains("DEV"))
    }

    #[test]
    fn there_is_one_way_to_name_a_device() {
        let (mut options, mut words) = (Vec::new(), Vec::new());
        each(&built(), "", &mut |path, command| {
            for arg in command.get_arguments().filter(|it| is_device(it)) {
                match arg.is_positional() {
                    true => words.push(path.to_owned()),
                    false => {
                        // There -d is rdma's --details to clap, and is spelled out before.
                        let short = (path != "stat hist").then_some('d');
                        assert_eq!(arg.get_long(), Some("device"), "{path}: {arg}");
                        assert_eq!(arg.get_short(), short, "{path}: {arg}");
                        options.push(path.to_owned());
                    }
                }
            }
        });
        for path in &words {
            let object = path.split(' ').next().unwrap_or_default();
            // No other tool has impair; its device comes first, as in `tc qdisc`.
            let is_rdmas = RDMA_STYLE.contains(&object) || object == "impair";
            assert!(is_rdmas, "{path}: write -d, --device");
        }
        for path in [
            "run",
            "cc set",
            "reg get",
            "adp apply",
            "explain error",
            "impair",
        ] {
            assert!(
                options.iter().any(|it| it == path),
                "{path} lacks -d: {options:?}"
            );
        }
    }

    #[test]
    fn options_of_devices_have_no_other_name() {
        each(&built(), "", &mut |path, command| {
            for arg in command.get_arguments() {
                let is_another = matches!(arg.get_long(), Some("dev" | "ifname" | "name"));
                assert!(!is_another, "{path}: {arg}");
            }
        });
    }

    #[test]
    fn help_fits_a_terminal() {
        let mut paths = Vec::new();
        each(&built(), "", &mut |path, _| paths.push(path.to_owned()));
        assert!(paths.len() > 60, "{paths:?}");
        for path in paths.iter().filter(|it| *it != "mlxreg") {
            for help in ["-h", "--help"] {
                let args = format!("ferroce {path} {help}");
                let args = args.split_whitespace().map(OsString::from).collect();
                let text = Cli::read(args).unwrap_err().render().to_string();
                for line in text.lines() {
                    assert!(line.chars().count() <= 80, "{path} {help}: {line}");
                }
            }
        }
    }

    #[test]
    fn a_device_in_another_place_gets_a_hint() {
        let complaint = |line: &str| {
            let args = line.split(' ').map(OsString::from).collect();
            Cli::read(args).unwrap_err().render().to_string()
        };
        for line in [
            "ferroce stat fr0",
            "ferroce stat -d fr0",
            "ferroce dev show --device fr0",
        ] {
            let text = complaint(line);
            let object = line.split(' ').nth(1).unwrap();
            let hint = format!("as with rdma: ferroce {object} show DEV");
            assert!(text.contains(&hint), "{line}: {text}");
        }
        let text = complaint("ferroce reg set ROCE_ACCL time_base=5");
        assert!(
            text.contains("--device <DEV>") && text.contains("ferroce dev"),
            "{text}"
        );
        assert!(!complaint("ferroce stat show --nothing").contains("rdma"));
        assert!(!complaint("ferroce adp fr0").contains("rdma"));
    }
}
