//! `ferroce run`, `env` and `sysfs`: unmodified programs on Ferroce's devices.
//!
//! | module | purpose |
//! |---|---|
//! | `library` | the libraries that programs load instead of the system's |
//! | `environment` | the variables that make programs load them |
//! | `program` | the program: its path, and whether it is supported |
//! | `valgrind` | which versions of it run programs on the libraries |
//! | `in_force` | settings that are already in force on the devices |
//! | `session` | settings for the duration of a run, and its counters |
//! | `namespace` | the devices in `/sys` and `/dev` of a mount namespace |
//! | `launch` | executes or watches the program |
//! | `setup` | `env` and `sysfs` |

mod environment;
mod in_force;
mod launch;
mod library;
mod namespace;
mod program;
mod session;
mod setup;
mod valgrind;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ferroce_device::{Card, Impairment};
use ferroce_fault::Rule;
use ferroce_registry::{DeviceSpec, Emulation, FaultTable, LinkSetting, Registry, impairment};
use ferroce_sysfs::View;
pub(crate) use library::Libraries;
pub(crate) use setup::{Env, Sysfs};

use self::environment::Environment;
use self::in_force::Replaced;
use self::launch::Running;
use self::session::{Counted, Session};
use crate::adp::{self, Personality};
use crate::device::{self, fault};
use crate::json::run as json;
use crate::naming;
use crate::output::{Document as _, Failure, Output};
use crate::put;

const EXAMPLES_AND_EXIT_CODES: &str = "Examples:
  ferroce run -- ib_write_bw                 a program on the devices there are
  ferroce run -d fr1 --stats -- ib_write_bw 127.0.0.1
  ferroce run --impair loss=1%,delay=50us --profile link-flap -- ./job
  ferroce run --fault completion=never,nth=9 -- ./job     loses a completion
  ferroce run --pcap job.pcapng -- ./job     for Wireshark and identify
  ferroce run --as mlx5 --fwctl -- pytest    devices that look like cards

Exit codes:
  that of the program; 128 and the number of the signal if one ended it
  2    a flag of ferroce run is wrong
  125  Ferroce could not do its part; the program was not started
  126  the program cannot be run: not executable, statically linked, of another machine, setuid,
       or a valgrind that is too old
  127  there is no such program";

/// The program was not started, for a reason that is not its own.
const NOT_STARTED: u8 = 125;

/// How often the files in `/sys` follow the counters.
const REFRESH: Duration = Duration::from_millis(100);

/// Run a program on the software device, unmodified and without privileges
///
/// The program finds Ferroce's devices where it would find those of cards: in libibverbs,
/// librdmacm and libmlx5, in /sys/class/infiniband and /dev/infiniband. Settings by --profile, --personality
/// and --impair apply to the device, and therefore to other programs on it as well; they are
/// restored when the program ends.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES_AND_EXIT_CODES)]
pub struct Command {
    #[command(flatten)]
    on: ProgramArgs,
    /// Adaptive retransmission by this profile (a TOML file or a built-in profile, such as
    /// link-flap) while the program runs
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Retransmission by a built-in policy while the program runs
    #[arg(long, value_name = "P", conflicts_with = "profile")]
    personality: Option<Personality>,
    /// Impair what the device sends while the program runs, for example
    /// loss=1%,delay=50us,down=200ms@3s: times count from the start of the program
    #[arg(long, value_name = "SPEC", value_parser = impairment::parse)]
    impair: Option<Impairment>,
    /// Have a call, completion or event go wrong in the program, for example post_send=ENOMEM,nth=3:
    /// see `ferroce help fault`. May be given several times
    #[arg(long, value_name = "RULE")]
    fault: Vec<Rule>,
    /// The same by the rules of a file, one a line
    #[arg(long, value_name = "FILE")]
    fault_file: Option<PathBuf>,
    /// Print what the device counted, and its timeouts, to standard error at the end
    #[arg(long)]
    stats: bool,
    /// Write what the device counted, and its timeouts, to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    stats_json: Option<PathBuf>,
    /// Show the devices in /sys and /dev by a mount namespace, for programs that make their own
    /// system calls; without it a preloaded library shows them
    #[arg(long, conflicts_with = "fwctl")]
    ns: bool,
    /// Do not print the impairments and profiles in force
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(
        value_names = ["PROGRAM", "ARGS"],
        required = true,
        trailing_var_arg = true
    )]
    program: Vec<OsString>,
}

/// Which devices a program sees, and what it leaves behind.
#[derive(Args, Debug)]
pub(crate) struct ProgramArgs {
    /// The only device the program sees [default: all]
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// Make the devices look like this hardware: names (mlx5_0, rxe0), vendor and part ids, node
    /// description, place in /sys
    #[arg(long = "as", value_name = "HARDWARE")]
    emulation: Option<Hardware>,
    /// Make the devices this card: cx5, cx6dx, cx7, cx8 or bf3, with the newest firmware or the one
    /// behind a colon, as cx7:28.46.1006. `ferroce dev cards` lists what they have [default: the
    /// device's]
    #[arg(long, value_name = "CARD")]
    card: Option<Card>,
    /// What carries packets: auto (shared memory to processes of the same user on this host, else UDP),
    /// udp, or shm (shared memory alone; packets to others are dropped) [default: the device's]
    #[arg(long, value_name = "LINK")]
    link: Option<LinkSetting>,
    /// Run each device's own thread as a process beside the program, which answers peers while the
    /// program is stopped (SIGSTOP, a breakpoint)
    #[arg(long)]
    card_process: bool,
    /// Show the devices as cards in /dev/fwctl, whose registers tools such as mstreg read and write
    #[arg(long)]
    fwctl: bool,
    /// Record the packets for Wireshark (pcapng); processes after the first add their number to
    /// the name
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

/// Hardware that programs know.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Hardware {
    /// A ConnectX card
    Mlx5,
    /// Linux's soft-RoCE
    Rxe,
}

impl From<Hardware> for Emulation {
    fn from(it: Hardware) -> Self {
        match it {
            Hardware::Mlx5 => Self::Mlx5,
            Hardware::Rxe => Self::Rxe,
        }
    }
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let path = std::env::var_os("PATH");
        let program = program::find(&self.program[0], path.as_deref())?;
        let mut prepared = Prepared::prepare(&self.on, to).map_err(not_started)?;
        let faults = self.faults(&prepared).map_err(not_started)?;
        if let Some(table) = &faults {
            prepared.environment.set(FAULTS, table.path().display());
        }
        let stats_json = self.stats_file().map_err(not_started)?;
        if self.ns {
            prepared.enter_namespace().map_err(not_started)?;
        }
        self.say_what_is_in_force(&prepared, to)?;
        if let Some(warning) = self.impair.as_ref().and_then(device::loses_most) {
            to.remark(warning)?;
        }
        let session = self.session(&prepared).map_err(not_started)?;
        // Spelt as the user has it: programs look at their own name.
        let mut command = process::Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        command.envs(prepared.environment.over(|name| std::env::var(name).ok()));
        if self.ns {
            command.env_remove(SYSFS_ROOT);
        }
        let Some(session) = session else {
            return Err(launch::replace(command));
        };
        let begun = Instant::now();
        let running = Running::start(command);
        let code = running.and_then(|running| {
            let refresh = || {
                if self.ns {
                    // A file that cannot be written now is written next time, or the view is gone.
                    let _ = prepared.view.refresh();
                }
            };
            running.wait(REFRESH, refresh).map_err(|error| {
                Failure::broken(format_args!(
                    "cannot wait for {}: {error}",
                    program.display()
                ))
            })
        });
        let elapsed_s = begun.elapsed().as_secs_f64();
        let counted = session.end(to)?;
        let faults = faults.map_or(Ok(Vec::new()), |table| table.settled_rows());
        let faults = faults.map_err(Failure::broken)?;
        for line in fault::outcome(&faults) {
            to.remark(line)?;
        }
        if self.stats {
            let stats: String = counted.iter().map(Counted::text).collect();
            to.err.write_all(stats.as_bytes())?;
        }
        if let (Some((path, file)), Ok(exit_code)) = (stats_json, &code) {
            let document = json::Ran {
                exit_code: *exit_code,
                elapsed_s,
                devices: counted.iter().map(Counted::json).collect(),
                faults: fault::documents(&faults),
            };
            write_document(file, &document).map_err(|error| cannot_write(path, &error))?;
        }
        match code? {
            0 => Ok(()),
            code => Err(Failure::Program(code, String::new())),
        }
    }

    /// The fault rules for the program, if there are some.
    fn faults(&self, prepared: &Prepared) -> Result<Option<FaultTable>, Failure> {
        let rules = fault::all(self.fault.clone(), self.fault_file.as_deref())?;
        fault::check_devices(&rules, &prepared.shown)?;
        let table = (!rules.is_empty()).then(|| prepared.registry.faults_of_run(&rules));
        table.transpose().map_err(Failure::broken)
    }

    /// The file for what is counted, made before the program runs, so that a bad path does not cost
    /// its work.
    fn stats_file(&self) -> Result<Option<(&Path, File)>, Failure> {
        let Some(path) = self.stats_json.as_deref() else {
            return Ok(None);
        };
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Some((path, file)))
    }

    /// Says in one line what the program will meet that this command does not set itself.
    fn say_what_is_in_force(
        &self,
        prepared: &Prepared,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let replaced = Replaced {
            policy: self.profile.is_some() || self.personality.is_some(),
            egress: self.impair.is_some(),
        };
        if let Some(note) = in_force::note(&prepared.registry, &prepared.devices, replaced) {
            to.remark(note)?;
        }
        match fault::in_force(&fault::live(&prepared.registry)?) {
            Some(rules) => to.remark(format!("note: {rules}")),
            None => Ok(()),
        }
    }

    /// What is to be set, counted or kept up to date while the program runs; `None` if nothing.
    fn session(&self, prepared: &Prepared) -> Result<Option<Session>, Failure> {
        let profile = self.profile.as_deref().map(adp::load).transpose()?;
        let is_counted = self.stats || self.stats_json.is_some();
        let is_faulty = !self.fault.is_empty() || self.fault_file.is_some();
        let is_watched = is_counted || is_faulty || self.ns || self.impair.is_some();
        if !is_watched && profile.is_none() && self.personality.is_none() {
            return Ok(None);
        }
        let mut session = Session::begin(&prepared.registry, &prepared.devices)?;
        if let Some(profile) = &profile {
            session.set_profile(profile)?;
        }
        if let Some(personality) = self.personality {
            session.set_personality(personality)?;
        }
        if let Some(impairment) = &self.impair {
            session.impair(impairment)?;
        }
        session.note()?;
        Ok(Some(session))
    }
}

fn write_document(mut file: File, document: &json::Ran) -> io::Result<()> {
    file.write_all((document.lines()? + "\n").as_bytes())
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::broken(format_args!(
        "cannot write {}: {error}; name a file in a directory that exists and is yours",
        path.display()
    ))
}

/// Names the root of the tree for the preloaded library.
const SYSFS_ROOT: &str = "FERROCE_SYSFS";

/// What shows these devices to a program: their files in `/sys`, and the variables that lead to them and to
/// the libraries.
fn surroundings(
    registry: &Registry,
    shown: &[DeviceSpec],
    with_fwctl: bool,
) -> Result<(View, Environment), Failure> {
    let view = View::open(registry, shown).map_err(|error| {
        Failure::broken(format_args!(
            "{error}; set FERROCE_DIR to a directory you own on a file system with room that is \
             not read-only"
        ))
    })?;
    let directory = Libraries::find()?.directory(registry.directory())?;
    let mut environment = Environment::loading(&directory, with_fwctl);
    environment.set(SYSFS_ROOT, view.root().display());
    Ok((view, environment))
}

/// The variables with which a program sees these devices of a registry and no others, over those of
/// this process.
pub(crate) fn variables(
    registry: &Registry,
    devices: &[DeviceSpec],
) -> Result<Vec<(&'static str, String)>, Failure> {
    let (_, mut environment) = surroundings(registry, devices, false)?;
    let names: Vec<_> = devices.iter().map(|spec| spec.name.as_str()).collect();
    environment.set(DEVICES, names.join(","));
    let variables = environment.over(|name| std::env::var(name).ok());
    Ok(variables.collect())
}

/// Names the devices that a program sees.
const DEVICES: &str = "FERROCE_DEVICES";

/// Names the table of the program's fault rules.
const FAULTS: &str = "FERROCE_FAULT";

/// What a program needs around it.
struct Prepared {
    registry: Registry,
    devices: Vec<DeviceSpec>,
    /// The same as the program sees them.
    shown: Vec<DeviceSpec>,
    view: View,
    environment: Environment,
}

impl Prepared {
    fn prepare(on: &ProgramArgs, to: &mut Output<'_>) -> Result<Self, Failure> {
        let registry = naming::registry(to)?;
        let mut devices = match &on.device {
            Some(name) => vec![registry.device(name)?],
            None => registry.devices()?,
        };
        let emulation = on.emulation.map(Emulation::from);
        if let Some(card) = on.card {
            if emulation == Some(Emulation::Rxe) {
                return Err(Failure::input(format_args!(
                    "--card {card} and --as rxe: soft-RoCE is not a card; leave out one of them"
                )));
            }
            let as_card = |spec: DeviceSpec| spec.as_card(card);
            devices = devices.into_iter().map(as_card).collect();
        }
        let shown = match emulation {
            None => devices.clone(),
            Some(emulation) => emulation.apply(devices.clone()),
        };
        let (view, mut environment) = surroundings(&registry, &shown, on.fwctl)?;
        if on.fwctl {
            environment.set("FERROCE_FWCTL", 1);
        }
        if let Some(emulation) = emulation {
            environment.set("FERROCE_AS", emulation);
        }
        if let Some(card) = on.card {
            environment.set("FERROCE_CARD", card);
        }
        if let Some(link) = on.link {
            environment.set("FERROCE_LINK", link);
        }
        if on.card_process {
            environment.set("FERROCE_CARD_PROCESS", 1);
        }
        if let (Some(_), [device]) = (&on.device, devices.as_slice()) {
            // With the address, because a device may be known from this variable alone.
            environment.set(DEVICES, format_args!("{}@{}", device.name, device.address));
        }
        if let Some(pcap) = &on.pcap {
            let pcap = put::place(pcap)?;
            clear(&pcap)?;
            environment.set("FERROCE_PCAP", pcap.display());
        }
        Ok(Self {
            registry,
            devices,
            shown,
            view,
            environment,
        })
    }

    fn enter_namespace(&self) -> Result<(), Failure> {
        let stage = self.registry.directory().join("stage");
        fs::create_dir_all(&stage).map_err(|error| {
            Failure::broken(format_args!("cannot make {}: {error}", stage.display()))
        })?;
        namespace::enter(self.view.root(), &stage)
    }
}

/// Removes an older capture: the first process that finds none there makes it.
fn clear(pcap: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(pcap) {
        Ok(old) if old.is_file() => fs::remove_file(pcap).map_err(|error| {
            Failure::input(format_args!("cannot replace {}: {error}", pcap.display()))
        }),
        _ => Ok(()),
    }
}

fn not_started(failure: Failure) -> Failure {
    Failure::Program(NOT_STARTED, failure.to_string())
}
