//! `ferroce stat hist`: the timeout histogram, read as it is or configured with the options of
//! NVIDIA's sample.

use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ferroce_device::{BinWidthMode, Counter, HistogramConfig, Method, TimeUnit};
use ferroce_prm::adp_retx_histogram::{self, ADP_RETX_HISTOGRAM};
use ferroce_prm::adp_retx_histogram_config::{self as reg, ADP_RETX_HISTOGRAM_CONFIG};
use ferroce_prm::{Field, Image};

use super::watch::{self, Pauses};
use crate::bins;
use crate::json::device as json;
use crate::json::shared::Bin;
use crate::naming::{self, DeviceArg, observe, registry};
use crate::output::{Failure, Output};
use crate::registers::{REGISTER_LEN_MAX, Registers, is_card_name, registers_of};
use crate::spelling;

/// Read, set up and clear the histogram of timeouts
///
/// The options are those of DOCA's sample telemetry_adp_retx, also -vid, -b0 and -b1.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES, infer_subcommands = true)]
pub(super) struct Hist {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// What the previous release took in place of a verb.
    #[command(flatten)]
    before: Before,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read the histogram as it is; what `ferroce stat hist` alone does
    ///
    /// The lines are those of DOCA's sample. With -j each read is a line.
    Show {
        #[command(flatten)]
        device: DeviceArg,
        #[command(flatten)]
        reads: Reads,
    },
    /// Set the bins, wait, and read, as DOCA's sample telemetry_adp_retx does
    ///
    /// What is not given has the sample's default. Another layout of bins starts from zero, which rates
    /// and alerts on the histogram see as a reset; the same again counts on.
    Set {
        #[command(flatten)]
        device: DeviceArg,
        #[command(flatten)]
        bins: Bins,
        #[command(flatten)]
        reads: Reads,
    },
    /// Set the histogram to zero; counters never fall
    Clear(DeviceArg),
}

#[derive(Args, Debug)]
#[command(mut_args = |arg| arg.hide(true))]
struct Before {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    bins: Bins,
    #[command(flatten)]
    reads: Reads,
}

/// The layout of bins.
#[derive(Args, Clone, Debug)]
struct Bins {
    /// Set the unit of the widths of bins [default: usec]
    #[arg(short = 'u', long, value_name = "UNIT")]
    time_unit: Option<Unit>,
    /// Set how the bins after the first grow [default: fixed]
    #[arg(short = 'w', long, value_name = "MODE")]
    width_mode: Option<Mode>,
    /// Set how many bins there are [default: 2]
    #[arg(short = 'n', long, value_name = "N")]
    number_bins: Option<u8>,
    /// Count this function only: 0 is the device itself, 1 its VF 0 [-vid]
    #[arg(long, value_name = "ID")]
    vhca_id: Option<u16>,
    /// Set the width of bin 0 [-b0] [default: 10]
    #[arg(long = "bin-0-width", value_name = "WIDTH")]
    bin_0_width: Option<u16>,
    /// Set the width of bin 1, from which those of the later ones follow [-b1] [default: 10]
    #[arg(long = "bin-1-width", value_name = "WIDTH")]
    bin_1_width: Option<u16>,
    /// Reset the counts with every read
    #[arg(short = 'c', long)]
    clear_on_read: bool,
}

/// When to read, and how to show it.
#[derive(Args, Clone, Debug)]
struct Reads {
    /// Seconds to wait before each read [default: 3; none before the first unless bins are set]
    #[arg(short = 't', long, value_name = "SECONDS")]
    wait_time: Option<u32>,
    /// How often to read [default: once; with --watch until Ctrl-C]
    #[arg(short = 'r', long, visible_alias = "count", value_name = "N")]
    num_reads: Option<u32>,
    /// Draw bars instead of the sample's lines
    #[arg(long)]
    bars: bool,
    /// Draw the bars at once and then again every SECONDS [default: those of -t]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1)]
    watch: Option<Option<u32>>,
}

/// How long the sample waits before each read.
const WAIT_SECONDS: u32 = 3;

/// What is printed of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Lines,
    Bars,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Unit {
    Nsec,
    Usec,
    #[value(name = "usec_100")]
    Usec100,
    Msec,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Fixed,
    Double,
}

impl Unit {
    fn unit(self) -> TimeUnit {
        match self {
            Self::Nsec => TimeUnit::Nsec,
            Self::Usec => TimeUnit::Usec,
            Self::Usec100 => TimeUnit::Usec100,
            Self::Msec => TimeUnit::Msec,
        }
    }

    fn of(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::Nsec => Self::Nsec,
            TimeUnit::Usec => Self::Usec,
            TimeUnit::Usec100 => Self::Usec100,
            TimeUnit::Msec => Self::Msec,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nsec => "nsec",
            Self::Usec => "usec",
            Self::Usec100 => "usec_100",
            Self::Msec => "msec",
        }
    }
}

impl Hist {
    /// Returns the device whose histogram was cleared, if that was asked for.
    pub(super) fn run(self, is_json: bool, to: &mut Output<'_>) -> Result<Option<String>, Failure> {
        let (device, bins, reads) = match self.verb {
            Some(Verb::Clear(device)) => return clear(device, to).map(Some),
            Some(Verb::Show { device, reads }) => (device, None, reads),
            Some(Verb::Set {
                device,
                bins,
                reads,
            }) => (device, Some(bins), reads),
            None => self.before.in_old_words(to)?,
        };
        let device = registers_of(device.named()?.as_deref(), to)?;
        let of = Histogram {
            name: device.name().to_owned(),
            bins,
            reads,
        };
        of.run(&*device, is_json, to)?;
        Ok(None)
    }
}

impl Bins {
    /// Whether any of it is given.
    fn are_given(&self) -> bool {
        self.time_unit.is_some()
            || self.width_mode.is_some()
            || self.number_bins.is_some()
            || self.vhca_id.is_some()
            || self.bin_0_width.is_some()
            || self.bin_1_width.is_some()
            || self.clear_on_read
    }

    fn config(&self) -> HistogramConfig {
        HistogramConfig {
            bins: self.number_bins.unwrap_or(2),
            mode: match self.width_mode.unwrap_or(Mode::Fixed) {
                Mode::Fixed => BinWidthMode::Fixed,
                Mode::Double => BinWidthMode::Double,
            },
            unit: self.time_unit.unwrap_or(Unit::Usec).unit(),
            bin0_width: self.bin_0_width.unwrap_or(10),
            bin1_width: self.bin_1_width.unwrap_or(10),
            enabled: true,
            clear_on_read: self.clear_on_read,
            vhca_id: self.vhca_id,
        }
    }
}

impl Before {
    /// `stat hist DEV [OPTIONS]`.
    fn in_old_words(
        self,
        to: &mut Output<'_>,
    ) -> Result<(DeviceArg, Option<Bins>, Reads), Failure> {
        let sets = self.bins.are_given();
        if sets || self.device.is_given() {
            let verb = if sets { "set" } else { "show" };
            let newer = format!("ferroce stat hist {verb} [DEV] [OPTIONS]");
            spelling::old(&newer, to)?;
        }
        Ok((self.device, sets.then_some(self.bins), self.reads))
    }
}

/// Sets the histogram of a device to zero, and returns the device's name.
pub(super) fn clear(device: DeviceArg, to: &mut Output<'_>) -> Result<String, Failure> {
    let registry = registry(to)?;
    let spec = naming::find(&registry, device.named()?.as_deref())?;
    let cleared = observe(&registry, &spec)?.state().clear_histogram();
    cleared.map_err(Failure::broken)?;
    Ok(spec.name)
}

/// What is asked of the histogram of a device.
struct Histogram {
    name: String,
    /// If they are to be set.
    bins: Option<Bins>,
    reads: Reads,
}

impl Histogram {
    fn run(
        &self,
        device: &dyn Registers,
        is_json: bool,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let asked = match &self.bins {
            Some(bins) => self.set(bins, device, to)?,
            None => present(device)?,
        };
        let config = decoded(&asked)?;
        if !config.enabled {
            return Err(Failure::input(format_args!(
                "the histogram of {} does not count; set bins to begin, as in -u msec -w double -n 5 \
                 -b0 50 -b1 100",
                self.name
            )));
        }
        let view = self.view(is_json);
        if view == View::Lines && self.bins.is_some() {
            to.text("\nHistogram started...\n")?;
        }
        let pauses = self.reads.watch.map(|_| Pauses::new()).transpose()?;
        for iteration in 1..=self.reads() {
            to.out.flush()?;
            if !self.pause(iteration, pauses.as_ref()) {
                break;
            }
            let counts = read(device)?;
            // Another program may have changed the bins meanwhile.
            let now = present(device)?;
            if counts.len() != usize::from(config.bins) || settings(&now)? != settings(&asked)? {
                return Err(Failure::broken(format_args!(
                    "another program has changed the bins of {} meanwhile; run this again when \
                     it is done",
                    self.name
                )));
            }
            match view {
                View::Lines => to.text(&Self::lines(iteration, &config, &counts))?,
                View::Bars => {
                    let spurious = spurious(device, to)?;
                    to.text(&(self.picture(iteration, &config, counts) + &spurious))?;
                }
                View::Json => to.document(&json::HistogramRead {
                    device: self.name.clone(),
                    iteration,
                    bins: Bin::all(&config, &counts),
                })?,
            }
        }
        Ok(())
    }

    /// Sets the bins, and says so if they were others.
    fn set(
        &self,
        bins: &Bins,
        device: &dyn Registers,
        to: &mut Output<'_>,
    ) -> Result<Register, Failure> {
        let before = present(device)?;
        let mut asked = register(&bins.config())?;
        device.access(ADP_RETX_HISTOGRAM_CONFIG.id(), Method::Write, &mut asked)?;
        if decoded(&before)?.enabled && settings(&before)? != settings(&asked)? {
            to.remark(format_args!(
                "note: the histogram of {} had other bins: its counts begin anew, and so do rates and \
                 alerts on them",
                self.name
            ))?;
        }
        Ok(asked)
    }

    fn view(&self, is_json: bool) -> View {
        match is_json {
            true => View::Json,
            false if self.reads.bars || self.reads.watch.is_some() => View::Bars,
            false => View::Lines,
        }
    }

    fn reads(&self) -> u32 {
        let otherwise = if self.reads.watch.is_some() {
            u32::MAX
        } else {
            1
        };
        self.reads.num_reads.unwrap_or(otherwise)
    }

    /// Seconds from one read to the next.
    fn seconds(&self) -> u32 {
        let given = self.reads.watch.flatten().or(self.reads.wait_time);
        given.unwrap_or(WAIT_SECONDS)
    }

    /// Waits until it is time for a read; `false` if a signal ended the wait.
    fn pause(&self, iteration: u32, pauses: Option<&Pauses>) -> bool {
        let time = Duration::from_secs(self.seconds().into());
        match pauses {
            Some(_) if iteration == 1 => true,
            None if iteration == 1 && self.bins.is_none() && self.reads.wait_time.is_none() => true,
            Some(pauses) => pauses.pass(time),
            None => {
                thread::sleep(time);
                true
            }
        }
    }

    /// The bins that are not empty.
    fn picture(&self, iteration: u32, config: &HistogramConfig, counts: Vec<u64>) -> String {
        let bars = bins::table(config, &[(self.name.clone(), counts)]);
        let bars = bars.unwrap_or_else(|| "no adaptive-retransmission timeouts\n".to_owned());
        if self.reads.watch.is_none() {
            return format!("\n{bars}");
        }
        let (name, every, since) = (&self.name, self.seconds(), since(config));
        let place = watch::in_place();
        format!("{place}\n{name} {since}, read {iteration}, every {every} s; Ctrl-C ends\n\n{bars}")
    }

    /// The lines of the sample.
    fn lines(iteration: u32, config: &HistogramConfig, counts: &[u64]) -> String {
        let unit = Unit::of(config.unit).name();
        let in_units = |ns: u64| ns / config.unit.nanos();
        let mut text = format!(
            "\nIteration: {iteration} - Successfully read {} adaptive retransmission histogram \
             bins:\n\n",
            counts.len()
        );
        for (bin, count) in counts.iter().enumerate() {
            let (start, end) = config.edges_ns(bin);
            let start = in_units(start);
            let end = match end {
                // Where time ends no bin has any room.
                Some(end) => format!("{:7}", in_units(end).saturating_sub(1).max(start)),
                None => "   ... ".to_owned(),
            };
            text += &format!("Bin {bin:2} [{start:7} - {end}]{unit}: {count}\n");
        }
        text + "\n\n"
    }
}

/// What a device in software has sent again for nothing; a card does not tell.
fn spurious(device: &dyn Registers, to: &mut Output<'_>) -> Result<String, Failure> {
    if is_card_name(device.name()) {
        return Ok(String::new());
    }
    let Ok(observer) = registry(to)?.observe(device.name()) else {
        return Ok(String::new());
    };
    let count = |counter| observer.state().counter(counter);
    Ok(format!(
        "\nspurious retransmissions: {} of {} since the device was added\n",
        count(Counter::SpuriousRetransmissions),
        count(Counter::RetransmittedPackets)
    ))
}

type Register = [u8; ADP_RETX_HISTOGRAM_CONFIG.size()];

fn since(config: &HistogramConfig) -> &'static str {
    match config.clear_on_read {
        true => "since the last read",
        false => "since these bins were set",
    }
}

/// ADP_RETX_HISTOGRAM_CONFIG as it is.
fn present(device: &dyn Registers) -> Result<Register, Failure> {
    let mut now = [0; ADP_RETX_HISTOGRAM_CONFIG.size()];
    device.access(ADP_RETX_HISTOGRAM_CONFIG.id(), Method::Query, &mut now)?;
    Ok(now)
}

/// What the register says.
fn decoded(register: &Register) -> Result<HistogramConfig, Failure> {
    let image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, &register[..]).map_err(Failure::broken)?;
    let width = |field: &Field| u16::try_from(image.get(field)).unwrap_or(u16::MAX);
    let units = [
        TimeUnit::Nsec,
        TimeUnit::Usec,
        TimeUnit::Usec100,
        TimeUnit::Msec,
    ];
    let unit = units
        .into_iter()
        .find(|unit| *unit as u32 == image.get(&reg::TIME_UNIT));
    Ok(HistogramConfig {
        bins: u8::try_from(image.get(&reg::BIN_NUM)).unwrap_or(u8::MAX),
        mode: match image.get(&reg::BIN_WIDTH_MODE) == BinWidthMode::Double as u32 {
            true => BinWidthMode::Double,
            false => BinWidthMode::Fixed,
        },
        unit: unit.unwrap_or(TimeUnit::Nsec),
        bin0_width: width(&reg::BIN0_WIDTH),
        bin1_width: width(&reg::BIN1_WIDTH),
        enabled: image.get(&reg::COUNT_ENABLE) != 0,
        clear_on_read: image.get(&reg::CLEAR_ON_READ) != 0,
        vhca_id: (image.get(&reg::VHCA_ID_VALID) != 0).then(|| width(&reg::VHCA_ID)),
    })
}

/// ADP_RETX_HISTOGRAM_CONFIG that asks for this.
fn register(config: &HistogramConfig) -> Result<Register, Failure> {
    let mut bytes = [0; ADP_RETX_HISTOGRAM_CONFIG.size()];
    let mut image =
        Image::new(&ADP_RETX_HISTOGRAM_CONFIG, &mut bytes[..]).map_err(Failure::broken)?;
    let values: [(&Field, u32); 9] = [
        (&reg::BIN_WIDTH_MODE, config.mode as u32),
        (&reg::TIME_UNIT, config.unit as u32),
        (&reg::VHCA_ID_VALID, config.vhca_id.is_some().into()),
        (&reg::CLEAR_ON_READ, config.clear_on_read.into()),
        (&reg::COUNT_ENABLE, config.enabled.into()),
        (&reg::VHCA_ID, config.vhca_id.unwrap_or(0).into()),
        (&reg::BIN_NUM, config.bins.into()),
        (&reg::BIN1_WIDTH, config.bin1_width.into()),
        (&reg::BIN0_WIDTH, config.bin0_width.into()),
    ];
    for (field, value) in values {
        image.set(field, value).map_err(Failure::input)?;
    }
    Ok(bytes)
}

/// What must not change between two reads of one series.
fn settings(register: &[u8]) -> Result<[u32; 9], Failure> {
    let image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, register).map_err(Failure::broken)?;
    // With one bin there is no width of bin 1.
    let has_bin_1 = u32::from(image.get(&reg::BIN_NUM) > 1);
    Ok([
        image.get(&reg::BIN_WIDTH_MODE),
        image.get(&reg::TIME_UNIT),
        image.get(&reg::VHCA_ID_VALID),
        image.get(&reg::CLEAR_ON_READ),
        image.get(&reg::COUNT_ENABLE),
        image.get(&reg::VHCA_ID),
        image.get(&reg::BIN_NUM),
        image.get(&reg::BIN0_WIDTH),
        image.get(&reg::BIN1_WIDTH) * has_bin_1,
    ])
}

/// The counts, as the register gives them: with `clear_on_read` they are zero afterwards.
fn read(device: &dyn Registers) -> Result<Vec<u64>, Failure> {
    let mut data = [0; REGISTER_LEN_MAX];
    device.access(ADP_RETX_HISTOGRAM.id(), Method::Query, &mut data)?;
    let bins = usize::from(data[0]);
    Ok(adp_retx_histogram::bins(&data).take(bins).collect())
}
