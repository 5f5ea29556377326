//! `ferroce fault`: fault rules for programs on the devices.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ferroce_fault::Rule;
use ferroce_registry::{DeviceSpec, FaultRow, Registry};

use super::format::{Row, print};
use crate::json::device as json;
use crate::naming::registry;
use crate::output::exit_codes;
use crate::output::{Failure, Output};

/// Have calls fail, completions get lost and events go astray, even while programs run
///
/// RULE is TARGET=EFFECT and conditions after commas. TARGET is a call (post_send, poll_cq, reg_mr,
/// modify_qp, create_qp, rdma_connect, ...), completion, or an event (PORT_ERR, ...). A call fails with an
/// error number (ENOMEM), or qp-error takes its queue pair to ERR, or device-fatal ends the device. A
/// completion comes late:TIME, twice or never, or with a status, such as RETRY_EXC_ERR:0x81. An event
/// comes never, twice or with another port (port:2).
///
/// Conditions are nth=N, every=N or p=P with seed=N; program=NAME, device=DEV and qp=NUMBER. What a rule
/// counts it counts in each process, from when the process has the rule. Of several rules the first that
/// is due applies.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, infer_subcommands = true)]
pub(crate) struct Fault {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the rules, how often each was met and injected; what `ferroce fault` alone does
    #[command(alias = "show")]
    List,
    /// Add rules behind those that there are
    #[command(after_help = EXAMPLES)]
    Add {
        /// What happens to what, and when, such as post_send=ENOMEM,nth=3
        #[arg(value_name = "RULE", required_unless_present = "file")]
        rules: Vec<Rule>,
        /// Rules of a file, one a line; what follows a # is a remark
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Remove a rule, or all
    Clear {
        /// The rule's number in `ferroce fault list` [default: all]
        #[arg(value_name = "NUMBER")]
        number: Option<u64>,
    },
}

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce fault add post_send=ENOMEM,nth=3,device=fr0
  ferroce fault add completion=late:50ms,p=1%,seed=7 PORT_ERR=never
  ferroce fault list
  ferroce fault clear 1
  ferroce run --fault completion=never,nth=9 -- ./job    for one program"
);

impl Fault {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let registry = registry(to)?;
        let table = registry.faults().map_err(Failure::broken)?;
        match self.verb.unwrap_or(Verb::List) {
            Verb::List => {}
            Verb::Add { rules, file } => {
                let rules = all(rules, file.as_deref())?;
                check_devices(&rules, &registry.devices()?)?;
                table.add(&rules).map_err(Failure::input)?;
                if !self.json {
                    return Ok(());
                }
            }
            Verb::Clear { number } => {
                table.clear(number).map_err(Failure::input)?;
                if !self.json {
                    return Ok(());
                }
            }
        }
        let rows = live(&registry)?;
        match self.json {
            true => to.document(&json::Faults {
                rules: documents(&rows),
            }),
            false => print(&rows.iter().map(row).collect::<Vec<_>>(), to),
        }
    }
}

fn row(row: &FaultRow) -> Row {
    let mut line = Row::new(format!("fault {}", row.id));
    line.put("rule", row.rule.to_string());
    line.put("met", row.met);
    line.put("injected", row.struck);
    line
}

/// The rules and what they have done, for programs.
pub(crate) fn documents(rows: &[FaultRow]) -> Vec<json::Fault> {
    let document = |row: &FaultRow| json::Fault {
        number: row.id,
        rule: row.rule.to_string(),
        met: row.met,
        injected: row.struck,
    };
    rows.iter().map(document).collect()
}

/// These rules and behind them those of a file.
pub(crate) fn all(mut rules: Vec<Rule>, file: Option<&Path>) -> Result<Vec<Rule>, Failure> {
    if let Some(file) = file {
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| {
            Failure::input(format_args!("cannot read {}: {error}", file.display()))
        })?;
        let of_file = ferroce_fault::read_lines(&text);
        rules.extend(
            of_file.map_err(|error| Failure::input(format_args!("{}: {error}", file.display())))?,
        );
    }
    ferroce_fault::check(&rules).map_err(Failure::input)?;
    Ok(rules)
}

/// Refuses rules for devices that programs cannot have.
pub(crate) fn check_devices(rules: &[Rule], devices: &[DeviceSpec]) -> Result<(), Failure> {
    let is_known = |name: &str| devices.iter().any(|spec| spec.name == name);
    for rule in rules {
        if let Some(name) = rule.scope.device.as_deref().filter(|name| !is_known(name)) {
            let names: Vec<_> = devices.iter().map(|spec| spec.name.as_str()).collect();
            return Err(Failure::input(format_args!(
                "the rule {rule} can never match: there is no device {name}; the devices are {}",
                names.join(", ")
            )));
        }
    }
    Ok(())
}

/// The live rules.
pub(crate) fn live(registry: &Registry) -> Result<Vec<FaultRow>, Failure> {
    let table = registry.faults().map_err(Failure::broken)?;
    table.settled_rows().map_err(Failure::broken)
}

/// The live rules that programs will meet, in words; `None` if there are none.
pub(crate) fn in_force(rows: &[FaultRow]) -> Option<String> {
    let rules: Vec<_> = rows.iter().map(|row| row.rule.to_string()).collect();
    (!rules.is_empty()).then(|| format!("fault rules in force: {}", rules.join(" ")))
}

/// What rules have done in a run, in a line each.
pub(crate) fn outcome(rows: &[FaultRow]) -> impl Iterator<Item = String> {
    rows.iter().map(|row| {
        let FaultRow {
            rule, met, struck, ..
        } = row;
        format!("fault {rule}: met {met}, injected {struck}")
    })
}
