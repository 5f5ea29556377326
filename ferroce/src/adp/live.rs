//! `ferroce adp apply`, `show` and `reset`: the profile of a device.

use std::path::Path;

use clap::Args;
use ferroce_adp::file::Document;
use ferroce_adp::{AckTimeoutFloor, PROFILE_SIZE, Profile, RawProfile, file};
use ferroce_designer::command;
use ferroce_designer::findings::{COMMON_QPS, check};
use ferroce_device::{Function, Method};
use ferroce_prm::roce_accl::{self as reg, ROCE_ACCL};
use ferroce_prm::{Image, LengthError};

use super::codec::fields;
use super::input::{FileArg, profile_of, read};
use crate::json::adp as json;
use crate::naming::{self, DeviceArg};
use crate::output::exit_codes;
use crate::output::lines::finding;
use crate::output::{Failure, Output};
use crate::registers::{self, Access, Registers, is_card_name, registers_of};

/// Write a profile into a device
///
/// It takes effect at once, for all queue pairs of all programs on the device; one that waits for a
/// timer adopts it when that expires. `ferroce adp reset` is the way back.
///
/// A profile that `ferroce adp check` calls deadly is refused without --force.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    device: DeviceArg,
    /// Print the bytes that would be sent to a card, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Write the profile even if it is deadly
    #[arg(long)]
    force: bool,
    /// Print JSON: the device's policy afterwards, or with --dry-run the bytes
    #[arg(short, long)]
    json: bool,
}

/// Show a device's retransmission policy, and its profile as a profile file
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Show {
    #[command(flatten)]
    device: DeviceArg,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// Return a device to the firmware's own timeouts, or to what its personality has
///
/// ROCE_ACCL has its power-on values afterwards, for all functions of the card; the histogram of timeouts
/// keeps its bins and counts. A real card returns to its own timeouts by a reset of its firmware only.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Reset {
    #[command(flatten)]
    device: DeviceArg,
    /// Print JSON: the device's policy afterwards
    #[arg(short, long)]
    json: bool,
}

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce adp apply link-flap fr0            a built-in profile
  ferroce adp apply profile.toml fr0
  ferroce adp apply link-flap fwctl0         a ConnectX or BlueField, as root
  ferroce adp reset fr0                      the way back"
);

impl Apply {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let mut payload = command::payload(&self.profile()?);
        if self.dry_run {
            let call = Access::new(ROCE_ACCL.id(), Method::Write, &payload);
            return Access::print(&[call], self.json, to);
        }
        let device = registers_of(self.device.named()?.as_deref(), to)?;
        device.access(ROCE_ACCL.id(), Method::Write, &mut payload)?;
        let (active, name) = (Active::read(&*device)?, device.name());
        if self.json {
            to.document(&active.json(name))?;
        }
        if !active.adaptive {
            to.remark(format_args!(
                "warning: adaptive retransmission is off on {name}, and the profile waits for it; \
                 switch it on with `ferroce reg set {name} ROCE_ACCL roce_adp_retrans_en 1`"
            ))?;
        }
        Ok(())
    }
}

impl Apply {
    /// The profile, unless jobs would die of it.
    fn profile(&self) -> Result<Profile, Failure> {
        let file = &self.file.file;
        let document = read(file)?;
        let profile = profile_of(file, &document)?;
        match deadly(file, &document) {
            Some(lines) if !self.force => Err(Failure::Input(format!(
                "{lines}error: jobs would die of this profile, and it was not written; change it, or \
                 write it with --force\n"
            ))),
            _ => Ok(profile),
        }
    }
}

/// The lines that say why jobs would die of a profile, if they would.
pub(crate) fn deadly(file: &Path, document: &Document) -> Option<String> {
    let report = check(document, &COMMON_QPS, AckTimeoutFloor::DEFAULT);
    let deadly = report.warnings.iter().filter(|found| found.is_deadly);
    let lines = deadly.map(|found| {
        let line = document.line(found.field);
        finding(file, line, "error", &found.to_string()) + "\n"
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then_some(lines)
}

impl Reset {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let name = self.device.named()?;
        let registry = naming::registry(to)?;
        if let Some(card) = name.as_deref().filter(|it| is_card_name(it))
            && naming::at_pci(&registry, card)?.is_none()
        {
            return Err(Failure::input(format_args!(
                "{card} is a card, whose firmware keeps a profile until it restarts: `mstfwreset -d \
                 {card} --yes reset`"
            )));
        }
        let spec = naming::find(&registry, name.as_deref())?;
        let observer = naming::observe(&registry, &spec)?;
        let name = observer.spec().name.clone();
        if let Function::Vf { pf, .. } = observer.state().function() {
            return Err(Failure::input(format_args!(
                "{name} is a VF of {pf} and uses its profile; write `ferroce adp reset {pf}`"
            )));
        }
        let reset = observer.state().reset_registers();
        reset.map_err(Failure::broken)?;
        observer.call_attention();
        match self.json {
            true => {
                let device = registers::open(&name, to)?;
                to.document(&Active::read(&*device)?.json(&name))
            }
            false => Ok(()),
        }
    }
}

impl Show {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let device = registers_of(self.device.named()?.as_deref(), to)?;
        let active = Active::read(&*device)?;
        let name = device.name();
        if self.json {
            return to.document(&active.json(name));
        }
        let floor = match active.floor_disabled {
            true => "none",
            false => "enforced",
        };
        to.text(&format!(
            "# {name}: {}, minimum ACK timeout {floor}\n",
            active.by()
        ))?;
        match active.profile() {
            Some(profile) => to.text(&file::to_toml(&profile)),
            None => Ok(()),
        }
    }
}

/// What ROCE_ACCL says about adaptive retransmission.
struct Active {
    bytes: [u8; ROCE_ACCL.size()],
    adaptive: bool,
    profile_id: u32,
    floor_disabled: bool,
}

impl Active {
    fn read(device: &dyn Registers) -> Result<Self, Failure> {
        let mut bytes = [0; ROCE_ACCL.size()];
        let read = device.access(ROCE_ACCL.id(), Method::Query, &mut bytes);
        read.map_err(Failure::broken)?;
        let image = Self::image(&bytes).map_err(Failure::broken)?;
        Ok(Self {
            adaptive: image.is_set(&reg::ROCE_ADP_RETRANS_EN),
            profile_id: image.get(&reg::ADP_RETX_PROFILE_ID),
            floor_disabled: image.is_set(&reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED),
            bytes,
        })
    }

    fn image(bytes: &[u8]) -> Result<Image<&[u8]>, LengthError> {
        Image::new(&ROCE_ACCL, bytes)
    }

    fn by(&self) -> &'static str {
        match (self.adaptive, self.profile_id) {
            (false, 0) => "plain InfiniBand timeouts",
            (false, _) => "plain InfiniBand timeouts, a profile waits",
            (true, 0) => "the firmware's own timeouts",
            (true, _) => "a profile",
        }
    }

    fn profile(&self) -> Option<RawProfile> {
        let bytes = &self.bytes[reg::PROFILE_OFFSET..];
        let bytes = bytes.first_chunk::<PROFILE_SIZE>()?;
        (self.profile_id > 0).then(|| RawProfile::from_register(bytes))
    }

    fn json(&self, name: &str) -> json::Show {
        let bytes = self.bytes[reg::PROFILE_OFFSET..].first_chunk();
        json::Show {
            device: name.to_owned(),
            policy: match (self.adaptive, self.profile_id) {
                (false, _) => "ib",
                (true, 0) => "firmware",
                (true, _) => "profile",
            },
            adaptive: self.adaptive,
            profile_id: self.profile_id,
            min_ack_timeout_limit_disabled: self.floor_disabled,
            profile: bytes.filter(|_| self.profile_id > 0).map(fields),
        }
    }
}
