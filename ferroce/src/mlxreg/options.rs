//! mlxreg's command line.

use ferroce_prm::mlxreg::number;

use super::error;
use crate::output::Failure;

/// What was asked for.
#[derive(Debug)]
pub(super) enum Parsed {
    Help,
    Version,
    Options(Options),
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Get,
    Set,
    ShowReg,
    ShowRegs,
}

/// All options with their arguments.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) device: Option<String>,
    pub(super) reg_name: String,
    pub(super) reg_id: u32,
    pub(super) reg_len: u32,
    pub(super) indexes: String,
    pub(super) ops: String,
    pub(super) data: String,
    pub(super) operation: Option<Operation>,
    pub(super) yes: bool,
    pub(super) overwrite: bool,
    pub(super) full_path: bool,
    pub(super) no_dynamic: bool,
    pub(super) detailed: bool,
    pub(super) advanced: bool,
    pub(super) full_desc: bool,
    pub(super) field: String,
    pub(super) gen_cmd_buffer: Option<String>,
}

/// Long name, short name, whether it takes an argument.
const KNOWN: &[(&str, Option<char>, bool)] = &[
    ("device", Some('d'), true),
    ("help", Some('h'), false),
    ("version", Some('v'), false),
    ("adb_file", Some('a'), true),
    ("reg_name", None, true),
    ("reg_id", None, true),
    ("indexes", Some('i'), true),
    ("op", Some('o'), true),
    ("reg_len", None, true),
    ("ignore_reg_check", None, false),
    ("get", Some('g'), false),
    ("set", Some('s'), true),
    ("show_reg", None, true),
    ("show_regs", None, false),
    ("show_all_regs", None, false),
    ("yes", None, false),
    ("overwrite", Some('w'), false),
    ("full_path", None, false),
    ("no_dynamic", None, false),
    ("detailed", None, false),
    ("advanced", None, false),
    ("full_desc", None, false),
    ("field", None, true),
    ("gen_cmd_buffer", None, true),
];

fn incompatible() -> Failure {
    unparsable("incompatible flags combination, please read help")
}

fn unparsable(reason: impl std::fmt::Display) -> Failure {
    error(format_args!("failed to parse arguments. {reason}"))
}

/// The option that a long name or the beginning of one means.
fn long(name: &str) -> Result<(&'static str, bool), Failure> {
    let known = |of: &dyn Fn(&str) -> bool| {
        let matching = KNOWN.iter().filter(|(known, _, _)| of(known));
        matching
            .map(|(name, _, takes)| (*name, *takes))
            .collect::<Vec<_>>()
    };
    if let [exact] = known(&|known| known == name)[..] {
        return Ok(exact);
    }
    match known(&|known| known.starts_with(name))[..] {
        [only] => Ok(only),
        [] => Err(unparsable(format_args!("unrecognized option '--{name}'"))),
        _ => Err(unparsable(format_args!("option '--{name}' is ambiguous"))),
    }
}

impl Options {
    pub(super) fn parse(args: &[String]) -> Result<Parsed, Failure> {
        let mut options = Self::default();
        let mut args = args.iter();
        let mut others = Vec::new();
        while let Some(arg) = args.next() {
            if arg == "--" {
                others.extend(args.by_ref());
                break;
            }
            let mut next = |name: &str| {
                let missing = || unparsable(format_args!("option '{name}' requires an argument"));
                args.next().cloned().ok_or_else(missing)
            };
            if let Some(text) = arg.strip_prefix("--") {
                let (name, inline) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (text, None),
                };
                let (name, takes) = long(name)?;
                let value = match (takes, inline) {
                    (true, Some(value)) => value,
                    (true, None) => next(arg)?,
                    (false, None) => String::new(),
                    (false, Some(_)) => {
                        let reason = format!("option '--{name}' doesn't allow an argument");
                        return Err(unparsable(reason));
                    }
                };
                if let Some(parsed) = options.take(name, value)? {
                    return Ok(parsed);
                }
                continue;
            }
            let letters = arg.strip_prefix('-').filter(|letters| !letters.is_empty());
            let Some(letters) = letters else {
                others.push(arg);
                continue;
            };
            for (at, letter) in letters.char_indices() {
                let known = KNOWN.iter().find(|(_, short, _)| *short == Some(letter));
                let Some((name, _, takes)) = known else {
                    return Err(unparsable(format_args!("invalid option -- '{letter}'")));
                };
                let rest = &letters[at + letter.len_utf8()..];
                let value = match (takes, rest) {
                    (false, _) => String::new(),
                    (true, "") => next(arg)?,
                    (true, rest) => rest.to_owned(),
                };
                if let Some(parsed) = options.take(name, value)? {
                    return Ok(parsed);
                }
                if *takes {
                    break;
                }
            }
        }
        match others[..] {
            [] => Ok(Parsed::Options(options)),
            _ => {
                let others: String = others.iter().map(|other| format!("{other} ")).collect();
                let reason = format_args!("Found some non-option ARGV-elements {others}");
                Err(unparsable(reason))
            }
        }
    }

    /// Takes an option; help and version end the command line.
    fn take(&mut self, name: &str, value: String) -> Result<Option<Parsed>, Failure> {
        match name {
            "help" => return Ok(Some(Parsed::Help)),
            "version" => return Ok(Some(Parsed::Version)),
            "device" => self.device = Some(value),
            "adb_file" => {
                return Err(error(
                    "-a/--adb_file is not supported: Ferroce's registers are built in",
                ));
            }
            "indexes" => self.indexes = value,
            "op" => self.ops = value,
            "reg_name" => {
                if self.reg_id != 0 || self.reg_len != 0 {
                    return Err(incompatible());
                }
                self.reg_name = value;
            }
            "reg_id" | "reg_len" => {
                if !self.reg_name.is_empty() {
                    return Err(incompatible());
                }
                let value = number(&value).map_err(unparsable)?;
                match name {
                    "reg_id" => self.reg_id = value,
                    _ => self.reg_len = value,
                }
            }
            "get" => self.operate(Operation::Get)?,
            "set" => {
                self.operate(Operation::Set)?;
                self.data = value;
            }
            "show_reg" => {
                self.operate(Operation::ShowReg)?;
                self.reg_name = value;
            }
            "show_regs" | "show_all_regs" => self.operate(Operation::ShowRegs)?,
            "yes" => self.yes = true,
            "overwrite" => self.overwrite = true,
            "full_path" => self.full_path = true,
            "no_dynamic" => self.no_dynamic = true,
            "detailed" => self.detailed = true,
            "advanced" => self.advanced = true,
            "full_desc" => self.full_desc = true,
            "field" => self.field = value,
            "gen_cmd_buffer" => {
                let kinds = ["hca", "switch", "retimer", "gpu"];
                if !kinds.contains(&value.to_ascii_lowercase().as_str()) {
                    return Err(unparsable(
                        "Invalid device type for --gen_cmd_buffer. Valid values: HCA, Switch, \
                         Retimer, GPU",
                    ));
                }
                self.gen_cmd_buffer = Some(value);
            }
            _ => {} // what the tool itself has given up
        }
        Ok(None)
    }

    fn operate(&mut self, operation: Operation) -> Result<(), Failure> {
        match self.operation.replace(operation) {
            None => Ok(()),
            Some(_) => Err(incompatible()),
        }
    }

    /// Whether the options make sense together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if let Some(text) = self.complaint() {
            return Err(error(text));
        }
        // No register here has such fields.
        match self.ops.split('=').next() {
            None | Some("") => Ok(()),
            Some(name) => Err(error(format_args!("Can't find OP name: \"{name}\""))),
        }
    }

    fn complaint(&self) -> Option<&'static str> {
        let operation = self.operation;
        let is_access = matches!(operation, Some(Operation::Get | Operation::Set));
        let is_offline = self.gen_cmd_buffer.is_some();
        let has_device = self.device.as_ref().is_some_and(|name| !name.is_empty());
        let rules = [
            (
                is_offline && has_device,
                "--gen_cmd_buffer is an offline operation and cannot be used with -d/--device flag",
            ),
            (!is_offline && !has_device, "you must provide a device name"),
            (operation.is_none(), "no operation flag, please read help"),
            (
                operation == Some(Operation::ShowReg) && self.reg_name.is_empty(),
                "you must provide reg_name in order to use show_register",
            ),
            (
                operation == Some(Operation::ShowReg) && self.reg_id != 0,
                "you can't use show_register with reg_id",
            ),
            (
                is_access && self.reg_id == 0 && self.reg_name.is_empty(),
                "you must provide register name or register id when SET/GET",
            ),
            (
                is_access && self.reg_id != 0 && self.reg_len == 0,
                "you must provide register length when SET/GET using register id",
            ),
            (
                !is_access && !self.indexes.is_empty(),
                "indexes flag is only valid for SET/GET commands",
            ),
            (
                !is_access && !self.ops.is_empty(),
                "ops flag is only valid for SET/GET commands",
            ),
            (
                operation == Some(Operation::Set) && self.data.is_empty(),
                "you must provide registers data string to use SET",
            ),
            (
                operation != Some(Operation::Set) && self.overwrite,
                "-w/--overwrite flag is only valid for SET command",
            ),
            (
                is_offline && !is_access,
                "--gen_cmd_buffer flag is only valid for GET/SET commands",
            ),
            (
                is_offline && self.reg_name.is_empty(),
                "--gen_cmd_buffer flag is only valid with known mode (must provide --reg_name)",
            ),
            (
                self.advanced && self.detailed,
                "--advanced and --detailed flags are mutually exclusive",
            ),
            (
                self.detailed && !is_access,
                "--detailed flag is only valid for GET/SET commands",
            ),
            (
                self.advanced && operation != Some(Operation::ShowReg),
                "--advanced flag is only valid for SHOW_REG command",
            ),
            (
                !self.field.is_empty() && !self.advanced,
                "--field flag is only valid with --advanced (for SHOW_REG operations)",
            ),
            (
                self.full_desc && !self.advanced,
                "--full_desc flag is only valid with --advanced (for SHOW_REG operations)",
            ),
        ];
        rules
            .iter()
            .find(|(applies, _)| *applies)
            .map(|(_, text)| *text)
    }
}
