//! The commands in groups, as help and the manual list them.

use clap::Command;

use crate::output::lines::wrapped;
use crate::output::look::columns;

/// A heading, and the commands below it.
pub(super) type Group = (&'static str, &'static [&'static str]);

pub(super) const GROUPS: [Group; 6] = [
    (
        "Run programs",
        &[
            "demo",
            "run",
            "drill",
            "bench",
            "env",
            "install",
            "uninstall",
        ],
    ),
    (
        "Devices",
        &[
            "dev", "link", "impair", "fault", "status", "stat", "res", "serve", "sysfs",
        ],
    ),
    ("Retransmission and congestion control", &["adp", "cc"]),
    ("Registers", &["reg", "mlxreg"]),
    ("Find out why", &["explain", "identify", "pcap"]),
    ("Simulate", &["sim", "sweep", "torture"]),
];

/// What stands apart.
pub(super) const OTHERS: Group = (
    "Other commands",
    &["completions", "schema", "version", "help"],
);

/// All of them.
pub(super) fn all() -> impl Iterator<Item = Group> {
    GROUPS.into_iter().chain([OTHERS])
}

/// The help of the program with its commands in groups.
pub(super) fn in_help(command: Command) -> Command {
    const NAME: usize = 13;
    let mut text = String::new();
    for (heading, names) in all() {
        text += &format!("{heading}:\n");
        for name in names {
            let about = match *name {
                "help" => "Print this help, or that of a command".to_owned(),
                name => about(&command, name),
            };
            let rows = wrapped(&about, columns().clamp(60, 100) - NAME - 2);
            for (row, name) in rows.iter().zip([*name].into_iter().chain([""; 9])) {
                text += &format!("  {name:<NAME$}{row}\n");
            }
        }
        text.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} ferroce [OPTIONS] NOUN [VERB] [DEV] ...\n\n{text}Options:\n{{options}}\n\n{{after-help}}"
    ))
}

/// What a command does, in a line.
fn about(command: &Command, name: &str) -> String {
    let about = command.find_subcommand(name).and_then(Command::get_about);
    about.map(ToString::to_string).unwrap_or_default()
}
