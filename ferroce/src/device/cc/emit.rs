//! `ferroce cc emit`: the commands that set parameters on a card.

use clap::{Args, ValueEnum};
use ferroce_dcqcn::{Param, Params, Unit, Vocabulary};
use ferroce_designer::command::quoted;

use super::preset;
use crate::json::cc as json;
use crate::naming::{self, DeviceArg, observe, registry};
use crate::output::{Failure, Output};

/// Print the commands that set a device's parameters, or a preset, on a card
///
/// Only what differs from the firmware's defaults is set. Parameters that the tool cannot set are
/// listed on standard error.
#[derive(Args, Debug)]
pub(super) struct Emit {
    #[command(flatten)]
    device: DeviceArg,
    /// The tool that runs them
    #[arg(long, value_name = "TOOL")]
    tool: Tool,
    /// The card, as that tool names it
    #[arg(long, value_name = "CARD")]
    on: Option<String>,
    /// A published set instead of a device's parameters, see `ferroce cc preset`
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// The card's port, of which mlxconfig's names speak
    #[arg(long, value_name = "P", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=2))]
    port: u8,
    /// Set all parameters
    #[arg(long)]
    all: bool,
    /// Print the commands that go back to the defaults
    #[arg(long)]
    undo: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tool {
    /// Files of MLNX_OFED below /sys/class/net; the card is its interface
    Sysfs,
    /// Files of Linux below /sys/kernel/debug/mlx5; the card is its PCI address
    Debugfs,
    /// mlxconfig of MFT: what the firmware starts with
    Mlxconfig,
    /// Mlx5Cmd of WinOF-2, with the names of NVIDIA's table; the card is the adapter's name
    Mlx5cmd,
    /// Ferroce itself
    Ferroce,
}

/// For these mlxconfig takes 1 and more, where NVIDIA's table has 0, too; it would refuse the whole
/// command.
const NOT_ZERO: [Param; 2] = [Param::DceTcpG, Param::MinDecFac];

/// What to set.
struct Plan {
    params: Vec<Param>,
    /// The priorities to set in the masks of the two points.
    priorities: [u32; 2],
    values: Params,
}

impl Plan {
    /// The priorities to set in a mask, and to what.
    fn switches(&self, mask: Param) -> impl Iterator<Item = (u8, bool)> {
        let chosen = self.priorities[usize::from(mask == Param::NpPrioMask)];
        let value = self.values.get(mask);
        let chosen = (0..8).filter(move |priority| chosen >> priority & 1 != 0);
        chosen.map(move |priority| (priority, value >> priority & 1 != 0))
    }
}

impl Emit {
    pub(super) fn run(mut self, is_json: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        let device = std::mem::take(&mut self.device).named()?;
        let wanted = match (&self.preset, device) {
            (Some(_), Some(device)) => {
                return Err(Failure::input(format_args!(
                    "--preset and the device {device} exclude each other; leave one out"
                )));
            }
            (Some(name), None) => preset::named(name)?.params(),
            (None, device) => {
                let registry = registry(to)?;
                let spec = naming::find(&registry, device.as_deref())?;
                observe(&registry, &spec)?.state().congestion()
            }
        };
        let defaults = Params::default();
        let is_set = |param: &&Param| self.all || wanted.get(**param) != defaults.get(**param);
        let plan = Plan {
            params: Param::ALL.iter().filter(is_set).copied().collect(),
            priorities: [Param::PrioMask, Param::NpPrioMask].map(|mask| match self.all {
                true => u32::MAX,
                false => wanted.get(mask) ^ defaults.get(mask),
            }),
            values: if self.undo { defaults } else { wanted },
        };
        let (commands, missing) = self.commands(&plan);
        if is_json {
            let tool = self.tool.to_possible_value();
            let value = |param: &Param| (param.name(), plan.values.get(*param));
            let emitted = json::Emitted {
                tool: tool.map_or_else(String::new, |it| it.get_name().to_owned()),
                undo: self.undo,
                commands: commands.lines().map(str::to_owned).collect(),
                missing: missing.iter().map(value).collect(),
            };
            return to.document(&emitted);
        }
        for param in missing {
            let value = plan.values.get(param);
            let lacks = match self.tool == Tool::Mlxconfig && NOT_ZERO.contains(&param) {
                true => "has no 0 for",
                false => "does not have",
            };
            to.remark(format_args!(
                "warning: this tool {lacks} {param}; set {param}={value} elsewhere"
            ))?;
        }
        to.text(&commands)
    }

    /// Lines of commands, and what cannot be said in them.
    fn commands(&self, plan: &Plan) -> (String, Vec<Param>) {
        let (params, values) = (&plan.params, &plan.values);
        let vocabulary = match self.tool {
            Tool::Sysfs => Vocabulary::Sysfs,
            Tool::Debugfs => Vocabulary::Debugfs,
            Tool::Mlxconfig => Vocabulary::NvConfig,
            Tool::Mlx5cmd => Vocabulary::WinOf,
            Tool::Ferroce => {
                let pairs = params.iter().map(|it| format!("{it}={}", values.get(*it)));
                let device = quoted(self.on.as_deref().unwrap_or("DEV"));
                let command = one_line(&format!("ferroce cc set {device}"), pairs);
                return (command, Vec::new());
            }
        };
        let is_named = |param: &Param| match param {
            // The other point's mask is this tool's mask, too.
            Param::NpPrioMask if vocabulary != Vocabulary::Sysfs => {
                vocabulary != Vocabulary::Debugfs
                    && values.get(Param::NpPrioMask) == values.get(Param::PrioMask)
            }
            param if self.tool == Tool::Mlxconfig && NOT_ZERO.contains(param) => {
                values.get(*param) != 0
            }
            param => param.name_in(vocabulary).is_some(),
        };
        let (named, missing): (Vec<_>, Vec<_>) = params.iter().partition(|it| is_named(it));
        let lines = match self.tool {
            Tool::Sysfs => self.sysfs(&named, plan),
            Tool::Debugfs => self.debugfs(&named, values),
            Tool::Mlxconfig => self.mlxconfig(&named, values),
            Tool::Mlx5cmd | Tool::Ferroce => self.mlx5cmd(&named, plan),
        };
        (lines, missing)
    }

    fn sysfs(&self, params: &[Param], plan: &Plan) -> String {
        let root = format!("/sys/class/net/{}/ecn", self.on.as_deref().unwrap_or("IF"));
        let mut lines = String::new();
        for &param in params {
            let Some(path) = param.ecn_path() else {
                continue;
            };
            if param.unit() != Unit::PriorityMask {
                let file = quoted(&format!("{root}/{path}"));
                lines += &format!("echo {} > {file}\n", plan.values.get(param));
                continue;
            }
            for (priority, is_on) in plan.switches(param) {
                let file = quoted(&format!("{root}/{path}/{priority}"));
                lines += &format!("echo {} > {file}\n", u8::from(is_on));
            }
        }
        lines
    }

    fn debugfs(&self, params: &[Param], values: &Params) -> String {
        let card = self.on.as_deref().unwrap_or("PCI");
        let line = |param: &Param| {
            let name = param.name_in(Vocabulary::Debugfs)?;
            let file = format!("/sys/kernel/debug/mlx5/{card}/cc_params/{name}");
            Some(format!("echo {} > {}\n", values.get(*param), quoted(&file)))
        };
        params.iter().filter_map(line).collect()
    }

    /// The firmware reads its configuration when it starts.
    fn mlxconfig(&self, params: &[Param], values: &Params) -> String {
        let card = quoted(self.on.as_deref().unwrap_or("DEV"));
        let pair = |param: &Param| {
            let name = param.name_in(Vocabulary::NvConfig)?;
            Some(format!("{name}_P{}={}", self.port, values.get(*param)))
        };
        let set = format!("mlxconfig -d {card} --yes set");
        let set = one_line(&set, params.iter().filter_map(pair));
        match set.is_empty() {
            true => set,
            false => format!("{set}mlxfwreset -d {card} --yes reset\n"),
        }
    }

    fn mlx5cmd(&self, params: &[Param], plan: &Plan) -> String {
        let card = self.on.as_deref().unwrap_or("Ethernet");
        let command = format!("Mlx5Cmd.exe -QosConfig -Name \"{card}\" -Dcqcn");
        let mut lines = String::new();
        if params.contains(&Param::PrioMask) {
            for (priority, is_on) in plan.switches(Param::PrioMask) {
                let switch = if is_on { "Enable" } else { "Disable" };
                lines += &format!("{command} -{switch} {priority}\n");
            }
        }
        let pair = |param: &Param| {
            let is_mask = param.unit() == Unit::PriorityMask;
            let name = param.name_in(Vocabulary::WinOf).filter(|_| !is_mask)?;
            Some(format!("-{name} {}", plan.values.get(*param)))
        };
        let pairs = params.iter().filter_map(pair);
        lines + &one_line(&format!("{command} -Set"), pairs)
    }
}

/// A command and its arguments; nothing without arguments.
fn one_line(command: &str, arguments: impl Iterator<Item = String>) -> String {
    let arguments: Vec<_> = arguments.collect();
    match arguments.is_empty() {
        true => String::new(),
        false => format!("{command} {}\n", arguments.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use ferroce_dcqcn::presets;

    use super::*;

    fn emit(tool: Tool) -> Emit {
        Emit {
            device: DeviceArg::default(),
            tool,
            on: None,
            preset: None,
            port: 2,
            all: false,
            undo: false,
        }
    }

    fn plan(params: &[Param], values: &Params) -> Plan {
        Plan {
            params: params.to_vec(),
            priorities: [0xff; 2],
            values: values.clone(),
        }
    }

    /// The parameters that a reader of the commands ends up with.
    fn read(tool: Tool, commands: &str) -> Params {
        let mut params = Params::default();
        for line in commands.lines() {
            if let Some((value, file)) = line
                .strip_prefix("echo ")
                .and_then(|it| it.split_once(" > "))
            {
                params.assign(&format!("{file}={value}")).unwrap();
            } else if tool == Tool::Mlx5cmd {
                let words: Vec<_> = line.split(' ').skip(5).collect();
                match words[0] {
                    "-Enable" => params.assign(&format!("enable/{}=1", words[1])).unwrap(),
                    "-Disable" => params.assign(&format!("enable/{}=0", words[1])).unwrap(),
                    "-Set" => words[1..].chunks(2).for_each(|pair| {
                        params
                            .assign(&format!("{}={}", &pair[0][1..], pair[1]))
                            .unwrap();
                    }),
                    other => panic!("{other}"),
                }
            } else {
                let pairs = line.split(' ').filter(|word| word.contains('='));
                pairs.for_each(|pair| params.assign(pair).unwrap());
            }
        }
        params
    }

    #[test]
    fn the_commands_of_every_tool_set_every_preset() {
        for tool in Tool::value_variants() {
            for preset in presets::PRESETS {
                let wanted = preset
                    .params()
                    .with(Param::PrioMask, 0x0f)
                    .with(Param::NpPrioMask, 0x0f);
                let plan = plan(Param::ALL, &wanted);
                let (commands, missing) = emit(*tool).commands(&plan);
                let mut read = read(*tool, &commands);
                for param in missing {
                    read.set(param, wanted.get(param)).unwrap();
                }
                assert_eq!(read, wanted, "{tool:?} {}\n{commands}", preset.name);
            }
        }
    }

    #[test]
    fn mlxconfig_gets_no_value_that_it_refuses() {
        let wanted = Params::default()
            .with(Param::DceTcpG, 0)
            .with(Param::AiRate, 20);
        let plan = plan(&[Param::DceTcpG, Param::AiRate], &wanted);
        let (commands, missing) = emit(Tool::Mlxconfig).commands(&plan);
        assert_eq!(missing, [Param::DceTcpG]);
        assert!(commands.contains("set RPG_AI_RATE_P2=20\n"), "{commands}");
        let (commands, missing) = emit(Tool::Sysfs).commands(&plan);
        assert!(
            missing.is_empty() && commands.contains("echo 0 > "),
            "{commands}"
        );
    }

    #[test]
    fn a_tool_with_one_mask_says_that_it_lacks_the_other() {
        let wanted = Params::default().with(Param::NpPrioMask, 1);
        for (tool, lacks) in [
            (Tool::Sysfs, false),
            (Tool::Mlxconfig, true),
            (Tool::Mlx5cmd, true),
            (Tool::Debugfs, true),
        ] {
            let plan = plan(&[Param::NpPrioMask], &wanted);
            let (_, missing) = emit(tool).commands(&plan);
            assert_eq!(!missing.is_empty(), lacks, "{tool:?}");
        }
    }
}
