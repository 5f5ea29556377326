//! The histogram of waits, beside atomic additions.

use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_device::{BinWidthMode, DeviceState, HistogramConfig, Personality, TimeUnit};
use ferroce_registry::Registry;

use super::{Beside, Error, Work, costs, mean};

/// Waits counted in a row.
const BATCH: usize = 1024;
const BINS: usize = HistogramConfig::BINS_MAX as usize;

/// Which waits are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// All in one bin, for which all writers compete.
    Alike,
    /// All over 64 bins of 1 ms.
    Spread,
}

impl Waits {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Alike, Self::Spread];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alike => "one bin",
            Self::Spread => "64 bins",
        }
    }

    /// The other end of [`Self::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|waits| waits.name() == name)
    }

    fn list(self) -> Vec<u64> {
        // An odd factor leads through all bins before it comes back.
        let bin = |n: usize| match self {
            Self::Alike => 5,
            Self::Spread => n * 37 % BINS,
        };
        let middle = |n: usize| bin(n) as u64 * 1_000_000 + 500_000;
        (0..BATCH).map(middle).collect()
    }
}

fn layout() -> HistogramConfig {
    HistogramConfig {
        bins: HistogramConfig::BINS_MAX,
        mode: BinWidthMode::Fixed,
        unit: TimeUnit::Msec,
        bin0_width: 1,
        bin1_width: 1,
        ..HistogramConfig::default()
    }
}

fn counters() -> [AtomicU64; BINS] {
    [const { AtomicU64::new(0) }; BINS]
}

/// Nanoseconds to count a wait, with this number of threads at a time.
///
/// # Errors
///
/// As [`costs`], or if counts are missing.
pub fn by_threads(seconds: f64, waits: Waits, threads: usize) -> Result<Beside, Error> {
    let (waits, bare) = (waits.list(), counters());
    let state = DeviceState::new(Personality::default());
    state.configure_histogram(layout())?;
    let add = add(&waits, &bare);
    let record = record(&waits, &state);
    Ok(Beside {
        bare: mean(&costs(seconds, &vec![&add as &Work<'_>; threads])?),
        ferroce: mean(&costs(seconds, &vec![&record as &Work<'_>; threads])?),
    })
}

/// The same with this number of processes, on the device of this name: each is `child` with the
/// name of the waits as its last argument, and comes to [`in_process`].
///
/// # Errors
///
/// Returns an error if a child cannot be run or fails.
pub fn by_processes(
    child: impl Fn() -> Command,
    waits: Waits,
    processes: usize,
) -> Result<f64, Error> {
    let start = |_| {
        let mut child = child();
        child.arg(waits.name()).stdout(Stdio::piped()).spawn()
    };
    let children: Vec<Child> = (0..processes).map(start).collect::<Result<_, _>>()?;
    let mut figures = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let figure = text.trim().parse::<f64>();
        figures.push(figure.map_err(|_| format!("a child failed: {text:?}"))?);
    }
    Ok(mean(&figures))
}

/// One of several processes: nanoseconds to count a wait on a device of the registry.
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn in_process(
    directory: &Path,
    device: &str,
    seconds: f64,
    waits: Waits,
) -> Result<f64, Error> {
    let observer = Registry::at(directory)?.observe(device)?;
    let waits = waits.list();
    let record = record(&waits, observer.state());
    Ok(mean(&costs(seconds, &[&record])?))
}

/// Makes a device ready for [`by_processes`].
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn prepare(directory: &Path, device: &str) -> Result<(), Error> {
    let observer = Registry::at(directory)?.observe(device)?;
    Ok(observer.state().configure_histogram(layout())?)
}

/// Nanoseconds to read 64 bins while this number of threads count, and what counting costs them then.
///
/// # Errors
///
/// As [`costs`].
pub fn reading(seconds: f64, writers: usize) -> Result<[Beside; 2], Error> {
    let (waits, bare) = (Waits::Spread.list(), counters());
    let state = DeviceState::new(Personality::default());
    state.configure_histogram(layout())?;
    let load = || {
        let counts: Vec<u64> = bare.iter().map(|bin| bin.load(Ordering::Acquire)).collect();
        black_box(counts);
        1
    };
    let look = || {
        black_box(state.histogram_snapshot());
        1
    };
    let (add, record) = (add(&waits, &bare), record(&waits, &state));
    let both = |reader: &Work<'_>, writer: &Work<'_>| {
        let mut works = vec![reader];
        works.resize(1 + writers, writer);
        let costs = costs(seconds, &works)?;
        Ok::<_, Error>([costs[0], mean(&costs[1..])])
    };
    let [bare, ferroce] = [both(&load, &add)?, both(&look, &record)?];
    Ok([0, 1].map(|which| Beside {
        bare: bare[which],
        ferroce: ferroce[which],
    }))
}

fn add(waits: &[u64], bins: &[AtomicU64; BINS]) -> impl Fn() -> u64 + Sync {
    let layout = layout();
    let places: Vec<usize> = waits.iter().map(|wait| layout.bin_of(*wait)).collect();
    move || {
        for place in &places {
            bins[*place].fetch_add(1, Ordering::Relaxed);
        }
        BATCH as u64
    }
}

fn record(waits: &[u64], state: &DeviceState) -> impl Fn() -> u64 + Sync {
    move || {
        for wait in waits {
            state.record_wait(*wait);
        }
        BATCH as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_where_their_names_say() {
        let used = |waits: Waits| {
            let places = waits.list().into_iter().map(|wait| layout().bin_of(wait));
            places.collect::<std::collections::HashSet<_>>().len()
        };
        assert_eq!(Waits::ALL.map(used), [1, BINS]);
        for waits in Waits::ALL {
            assert_eq!(Waits::parse(waits.name()), Some(waits));
        }
    }

    #[test]
    fn figures_are_positive() {
        let all = by_threads(0.05, Waits::Spread, 2).unwrap();
        assert!(all.bare > 0.0 && all.ferroce > 0.0, "{all:?}");
        for all in reading(0.05, 1).unwrap() {
            assert!(all.bare > 0.0 && all.ferroce > 0.0, "{all:?}");
        }
    }
}
