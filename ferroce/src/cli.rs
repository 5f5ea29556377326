//! The tree of commands.

pub(crate) mod complete;
mod groups;
mod hints;
mod numbers;
#[cfg(test)]
mod page;

use std::ffi::OsString;

use clap::builder::ArgPredicate;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::look::{ColorChoice, columns};
use crate::output::{EXIT_CODES, Failure, Output};
use crate::spelling::{self, Spelled};
use crate::{
    adp, bench, demo, device, drill, explain, identify, install, json, mlxreg, pcap, reg, run,
    serve, sim, sweep, torture,
};

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
    before: Before,
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

/// How to print, as iproute2 takes it in front of the noun: commands that print JSON have -j and -p
/// themselves, and nouns with details have --details.
#[derive(Args, Clone, Copy, Debug)]
struct Before {
    #[arg(short, long, global = true, hide = true)]
    json: bool,
    #[arg(short, long, global = true, hide = true)]
    pretty: bool,
    #[arg(short, long, hide = true)]
    details: bool,
}

/// A command line that was read.
pub(crate) struct Given {
    pub(crate) cli: Cli,
    /// Whether JSON is broken into lines.
    pub(crate) is_pretty: bool,
    /// What to write in place of old spellings.
    newer: Vec<String>,
}

/// Very wide terminals are not filled with help.
const HELP_COLUMNS_MAX: usize = 100;

/// The tree of commands, for all who read it.
pub(crate) fn command() -> clap::Command {
    Cli::command().mut_subcommands(with_pretty)
}

/// Adds -p to each command that has -j, which it implies.
fn with_pretty(command: clap::Command) -> clap::Command {
    let mut command = command.mut_subcommands(with_pretty);
    let Some(json) = command.get_arguments().find(|it| it.get_id() == "json") else {
        return command;
    };
    let pretty = Arg::new("pretty")
        .short('p')
        .long("pretty")
        .help("Print JSON, broken into lines")
        .action(ArgAction::SetTrue)
        .global(json.is_global_set());
    command = command.mut_arg("json", |json| {
        json.default_value_if("pretty", ArgPredicate::IsPresent, "true")
    });
    command.arg(pretty)
}

impl Given {
    /// Reads the command line, with help as wide as the terminal.
    pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let command = command().term_width(columns().min(HELP_COLUMNS_MAX));
        let mut command = groups::in_help(command);
        let Spelled { args, newer } = Spelled::of(args, &command);
        let matches = command.try_get_matches_from_mut(&args);
        let mut matches =
            matches.map_err(|error| hints::on(numbers::plain(error), &args, &command))?;
        let is_pretty = refuse_in_vain(&matches, &command)?;
        let cli = Cli::from_arg_matches_mut(&mut matches);
        let cli = cli.map_err(|error| error.format(&mut command))?;
        Ok(Self {
            cli,
            is_pretty,
            newer,
        })
    }

    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        for newer in &self.newer {
            spelling::old(newer, to)?;
        }
        match self.cli.command {
            Command::Object(object) => object.run(self.cli.before.details, to),
            Command::Work(work) => work.run(to),
        }
    }
}

/// Whether JSON is to be broken into lines. A command that prints none refuses -j, -p and -d in front of
/// it.
fn refuse_in_vain(matches: &ArgMatches, root: &clap::Command) -> Result<bool, clap::Error> {
    let (mut of, mut command, mut path) = (matches, root, Vec::new());
    let (mut has_json, mut has_details) = (false, false);
    while let Some((name, inner)) = of.subcommand() {
        let Some(inner_command) = command.find_subcommand(name) else {
            break;
        };
        (of, command) = (inner, inner_command);
        path.push(name);
        let has = |id: &str| {
            let mut arguments = inner_command.get_arguments();
            arguments.any(|it| it.get_id() == id && !it.is_hide_set())
        };
        has_json |= has("json");
        has_details |= has("details");
    }
    let (json, pretty) = (of.get_flag("json"), of.get_flag("pretty"));
    let in_vain = match (json || pretty, matches.get_flag("details")) {
        (true, _) if !has_json => "-j and -p",
        (_, true) if !has_details => "-d in front of the command",
        _ => return Ok(pretty),
    };
    let path = path.join(" ");
    let what = format!("`ferroce {path}` has no {in_vain}; leave them out\n");
    Err(clap::Error::raw(ErrorKind::UnknownArgument, what))
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
    Bench(bench::Command),
    Drill(drill::Command),
    /// Adaptive retransmission: check, import, replay, draw and apply profiles
    Adp(adp::Command),
    Reg(reg::Reg),
    Mlxreg(mlxreg::Mlxreg),
    Sim(sim::Command),
    Sweep(sweep::Command),
    Torture(torture::Command),
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
            Self::Install(command) => command.run(self::command(), to),
            Self::Uninstall(command) => command.run(to),
            Self::Completions(command) => command.run(to),
            Self::Sysfs(command) => command.run(to),
            Self::Serve(command) => command.run(to),
            Self::Demo(command) => command.run(to),
            Self::Bench(command) => command.run(to),
            Self::Drill(command) => command.run(to),
            Self::Adp(command) => command.run(to),
            Self::Reg(command) => command.run(to),
            Self::Mlxreg(command) => command.run(to),
            Self::Sim(command) => command.run(to),
            Self::Sweep(command) => command.run(to),
            Self::Torture(command) => command.run(to),
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
        let mut command = command();
        command.build();
        command
    }

    fn is_device(arg: &Arg) -> bool {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| name == "DEV")
    }

    /// Commands that run elsewhere or on other things: what they call a device is an option.
    const DEVICE_IS_AN_OPTION: [&str; 3] = ["run", "env", "adp fit"];

    #[test]
    fn there_is_one_way_to_name_a_device() {
        let (mut options, mut words) = (Vec::new(), Vec::new());
        each(&built(), "", &mut |path, command| {
            for arg in command.get_arguments().filter(|it| is_device(it)) {
                match arg.is_positional() {
                    true => words.push((path.to_owned(), arg.get_index())),
                    false => {
                        assert_eq!(arg.get_long(), Some("device"), "{path}: {arg}");
                        assert_eq!(arg.get_short(), Some('d'), "{path}: {arg}");
                        let is_shown = DEVICE_IS_AN_OPTION.contains(&path);
                        assert_eq!(!arg.is_hide_set(), is_shown, "{path}: {arg}");
                        options.push(path.to_owned());
                    }
                }
            }
        });
        for (path, index) in &words {
            // The first word after the verb; behind the file where that is what is applied.
            let behind = ["adp apply", "adp emit"].contains(&path.as_str());
            assert_eq!(*index, Some(1 + usize::from(behind)), "{path}");
            assert!(
                options.contains(path) || path == "dev del",
                "{path} lacks -d"
            );
        }
        let verbs = [
            "link set",
            "impair set",
            "impair clear",
            "cc set",
            "stat hist show",
            "adp apply",
            "adp show",
            "adp reset",
            "reg get",
            "reg set",
            "explain error",
            "dev set",
        ];
        for verb in verbs {
            assert!(words.iter().any(|(path, _)| path == verb), "{verb}");
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
    fn options_mean_the_same_everywhere() {
        let meanings = [
            ('j', "json"),
            ('p', "pretty"),
            ('d', "device"),
            ('o', "output"),
            ('a', "all"),
            ('q', "quiet"),
        ];
        each(&built(), "", &mut |path, command| {
            let arguments: Vec<_> = command.get_arguments().collect();
            for arg in &arguments {
                for (short, long) in meanings {
                    // In front of the noun -d is what it is to rdma.
                    if arg.get_short() == Some(short) && !(path.is_empty() && short == 'd') {
                        assert_eq!(arg.get_long(), Some(long), "{path}: {arg}");
                    }
                }
                assert_ne!(arg.get_long(), Some("out"), "{path}");
                let is_old = matches!(arg.get_long(), Some("interval")) && !command.is_hide_set();
                assert!(!is_old, "{path}: write --watch");
            }
            let has = |id: &str| arguments.iter().any(|it| it.get_id() == id);
            assert_eq!(has("json"), has("pretty"), "{path}");
        });
    }

    fn help(path: &str, flag: &str) -> String {
        let args = format!("ferroce {path} {flag}");
        let args = args.split_whitespace().map(OsString::from);
        Given::read(args).err().unwrap().render().to_string()
    }

    #[test]
    fn help_fits_a_terminal() {
        let mut paths = Vec::new();
        each(&built(), "", &mut |path, _| paths.push(path.to_owned()));
        assert!(paths.len() > 60, "{paths:?}");
        for path in paths.iter().filter(|it| *it != "mlxreg") {
            for flag in ["-h", "--help"] {
                for line in help(path, flag).lines() {
                    assert!(line.chars().count() <= 80, "{path} {flag}: {line}");
                }
            }
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<_> = groups::all().flat_map(|(_, names)| names).collect();
        grouped.sort();
        let command = built();
        let mut all: Vec<_> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        all.sort_unstable();
        assert!(grouped.into_iter().eq(&all), "{all:?}");
        let help = help("", "-h");
        for name in all {
            assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
        }
    }

    #[test]
    fn json_and_details_may_stand_before_the_noun() {
        for line in [
            "ferroce -j -p dev show",
            "ferroce dev -jp",
            "ferroce -dj res",
        ] {
            let args = line.split(' ').map(OsString::from);
            assert!(Given::read(args).is_ok(), "{line}");
        }
    }
}
