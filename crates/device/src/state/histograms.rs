//! The timeout histogram of a device, and that of the card it is a function of.

use super::{DeviceState, Memory, SettingError, VfBlock};
use crate::error::WriteLockError;
use crate::histogram::{Histogram, HistogramConfig, HistogramError};
use crate::identity::Function;

impl DeviceState {
    /// Restarts the card's firmware, as MFRL does: all registers and the histograms of all functions
    /// are as after power-on, and the parameters of congestion control are those of
    /// [`Settings::nvconfig`](crate::Settings::nvconfig). This is the only way from a profile back to
    /// the firmware's own timeouts (D21). Queue pairs, personality and impairments stay.
    pub fn firmware_reset(&self) -> Result<(), WriteLockError> {
        self.change(|settings| {
            settings.restart_firmware();
            self.restart_histograms();
            Ok(())
        })
    }

    pub(super) fn restart_histograms(&self) {
        let of_vfs = self.vfs().iter().map(|vf| &vf.histogram);
        for histogram in of_vfs.chain(self.of_pf_if_made()) {
            histogram.restart(HistogramConfig::default());
        }
    }

    /// Forgets what the registers of VFs from a place on were set to and have counted: a VF that
    /// comes there is a new one. A PF that counted one of them counts all functions, from zero.
    pub fn forget_vfs(&self, from: u8) -> Result<(), WriteLockError> {
        self.change(|settings| {
            settings.roce_accl.forget_vfs(from);
            for vf in self.vfs().iter().skip(from.into()) {
                vf.histogram.restart(HistogramConfig::default());
            }
            let Some(histogram) = self.of_pf_if_made() else {
                return Ok(());
            };
            let config = histogram.config();
            if config.vhca_id.is_some_and(|id| id > u16::from(from)) {
                let vhca_id = None;
                histogram.configure(HistogramConfig { vhca_id, ..config });
            }
            Ok(())
        })
    }

    fn vfs(&self) -> &[VfBlock] {
        match &self.0.memory {
            Memory::Local(_) => &[],
            Memory::Mapped { memory, .. } => memory.vfs,
        }
    }

    fn of_pf(&self) -> &Histogram {
        match &self.0.memory {
            Memory::Local(local) => local.histogram(),
            Memory::Mapped { memory, .. } => &memory.block.histogram,
        }
    }

    fn of_pf_if_made(&self) -> Option<&Histogram> {
        match &self.0.memory {
            Memory::Local(local) => local.histogram_if_made(),
            Memory::Mapped { memory, .. } => Some(&memory.block.histogram),
        }
    }

    /// The function's own.
    fn own_histogram(&self) -> &Histogram {
        match (self.function(), &self.0.memory) {
            // A state without this VF is not made.
            (Function::Vf { index, .. }, Memory::Mapped { memory, .. }) => {
                &memory.vfs[usize::from(*index)].histogram
            }
            _ => self.of_pf(),
        }
    }

    /// Whether the function may count the waits of the one that a configuration names.
    fn check_function(&self, config: &HistogramConfig) -> Result<(), HistogramError> {
        let function = self.function();
        let (min, max) = match function {
            Function::Pf { vfs } => (0, u16::from(*vfs)),
            Function::Vf { .. } => (function.vhca_id(), function.vhca_id()),
        };
        match config.vhca_id {
            Some(id) if !(min..=max).contains(&id) => Err(HistogramError {
                field: "vhca_id",
                value: id.into(),
                min: min.into(),
                max: max.into(),
            }),
            _ => Ok(()),
        }
    }

    /// How the waits of adaptive retransmission are binned.
    pub fn histogram_config(&self) -> HistogramConfig {
        self.own_histogram().config()
    }

    /// Changes the binning. Another layout or function starts from zero (D25).
    pub fn configure_histogram(&self, config: HistogramConfig) -> Result<(), SettingError> {
        self.put_histogram_config(config)
    }

    pub(crate) fn put_histogram_config<E>(&self, config: HistogramConfig) -> Result<(), E>
    where
        E: From<HistogramError> + From<WriteLockError>,
    {
        config.check()?;
        self.check_function(&config)?;
        Ok(self.exclusively(|| self.own_histogram().configure(config))?)
    }

    /// The binning and the counts in it, which belong together even while they are being changed.
    pub fn histogram_snapshot(&self) -> (HistogramConfig, Vec<u64>) {
        self.own_histogram().snapshot()
    }

    /// How often the bins became others, or counted another function: each time all counts began
    /// anew.
    pub fn histogram_layout_changes(&self) -> u64 {
        self.own_histogram().layout_changes()
    }

    /// The counts, one for each bin, whether or not reads clear them.
    pub fn histogram(&self) -> Vec<u64> {
        self.own_histogram().counts()
    }

    /// The counts, one for each bin, which start again from zero: each wait is in exactly one
    /// answer, however many processes count and ask.
    pub fn take_histogram(&self) -> Result<Vec<u64>, WriteLockError> {
        let mut counts = Vec::new();
        self.exclusively(|| counts = self.own_histogram().take())?;
        Ok(counts)
    }

    /// The counts as a read of the register gives them: with `clear_on_read` they start again from
    /// zero. `None` if that would clear more bins than there is room for; nothing is cleared then.
    pub(crate) fn read_histogram(&self, room: usize) -> Result<Option<Vec<u64>>, WriteLockError> {
        let mut counts = None;
        self.exclusively(|| {
            let (histogram, config) = (self.own_histogram(), self.histogram_config());
            counts = match config.clear_on_read {
                false => Some(histogram.counts()),
                true if usize::from(config.bins) <= room => Some(histogram.take()),
                true => None,
            };
        })?;
        Ok(counts)
    }

    /// Sets all counts to zero.
    pub fn clear_histogram(&self) -> Result<(), WriteLockError> {
        self.take_histogram().map(drop)
    }

    /// Counts a wait of adaptive retransmission in its bin, also where the PF counts those of its VFs.
    /// The device does so itself.
    pub fn record_wait(&self, wait_ns: u64) {
        let vhca_id = self.function().vhca_id();
        self.own_histogram().record(vhca_id, wait_ns);
        if let Function::Vf { .. } = self.function() {
            self.of_pf().record(vhca_id, wait_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};
    use ferroce_prm::adp_retx_histogram_config::ADP_RETX_HISTOGRAM_CONFIG;

    use super::*;
    use crate::register::Method;
    use crate::settings::Personality;

    const MS: u64 = 1_000_000;

    fn clearing() -> DeviceState {
        let state = DeviceState::new(Personality::default());
        let config = HistogramConfig {
            clear_on_read: true,
            ..HistogramConfig::default()
        };
        state.configure_histogram(config).unwrap();
        state
    }

    fn read(state: &DeviceState) -> (u8, Vec<u64>) {
        let mut data = [0; counts::size(64)];
        let id = ADP_RETX_HISTOGRAM.id();
        state.access_register(id, Method::Query, &mut data).unwrap();
        (data[0], counts::bins(&data).collect())
    }

    #[test]
    fn a_read_clears_if_it_is_told_to() {
        let state = clearing();
        (0..3).for_each(|_| state.record_wait(3 * MS / 2));
        assert_eq!(state.histogram()[1], 3, "a look does not clear");
        assert_eq!(read(&state).1[1], 3);
        assert_eq!(read(&state).1[1], 0);
        state
            .configure_histogram(HistogramConfig::default())
            .unwrap();
        state.record_wait(3 * MS / 2);
        assert_eq!(read(&state).1[1], 1);
        assert_eq!(read(&state).1[1], 1);
    }

    //= D25: another layout or function clears, switches do not.
    #[test]
    fn clearing_clears_counts_and_keeps_settings() {
        let base = HistogramConfig::default();
        for (config, clears) in [
            (
                HistogramConfig {
                    enabled: false,
                    ..base
                },
                false,
            ),
            (
                HistogramConfig {
                    clear_on_read: true,
                    ..base
                },
                false,
            ),
            (HistogramConfig { bins: 15, ..base }, true),
            (
                HistogramConfig {
                    bin0_width: 2,
                    ..base
                },
                true,
            ),
            (
                HistogramConfig {
                    bin1_width: 2,
                    ..base
                },
                true,
            ),
            (
                HistogramConfig {
                    vhca_id: Some(0),
                    ..base
                },
                true,
            ),
        ] {
            let state = DeviceState::new(Personality::default());
            state.record_wait(0);
            state.configure_histogram(config).unwrap();
            assert_eq!(state.histogram()[0], u64::from(!clears), "{config:?}");
        }
    }

    /// Three record, one reads with clear-on-read, one writes the configuration it has read: each
    /// wait is in one answer.
    #[test]
    fn readers_and_writers_neither_lose_nor_double_a_wait() {
        const EACH: u64 = 20_000;
        let state = clearing();
        let read_back = std::thread::scope(|scope| {
            let record = || (0..EACH).for_each(|n| state.record_wait(n * MS));
            let recorders: Vec<_> = (0..3).map(|_| scope.spawn(record)).collect();
            let all_done = || recorders.iter().all(|thread| thread.is_finished());
            let config_id = ADP_RETX_HISTOGRAM_CONFIG.id();
            let sum = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !all_done() {
                        let answer = read(&state).1.iter().sum::<u64>();
                        sum.fetch_add(answer, Ordering::Relaxed);
                    }
                });
                scope.spawn(|| {
                    let mut data = [0; 0x80];
                    while !all_done() {
                        for method in [Method::Query, Method::Write] {
                            state.access_register(config_id, method, &mut data).unwrap();
                        }
                    }
                });
            });
            sum.into_inner() + read(&state).1.iter().sum::<u64>()
        });
        assert_eq!(read_back, 3 * EACH);
    }

    /// The same while the layout changes, which throws counts away: what is read fits the number of
    /// bins that came with it, and is never more than was recorded.
    #[test]
    fn a_read_during_changes_of_layout_is_of_one_layout() {
        const EACH: u64 = 50_000;
        let state = clearing();
        // A wait of 60 ms is in bin 1 of the first layout and in bin 6 of the second.
        let layouts = [(2, 50), (7, 1)].map(|(bins, width)| HistogramConfig {
            bins,
            bin0_width: width,
            bin1_width: width,
            ..state.histogram_config()
        });
        state.configure_histogram(layouts[0]).unwrap();
        let read_back: u64 = std::thread::scope(|scope| {
            let record = || (0..EACH).for_each(|_| state.record_wait(60 * MS));
            let recorders: Vec<_> = (0..2).map(|_| scope.spawn(record)).collect();
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (config, counts) = state.histogram_snapshot();
                    assert_eq!(counts.len(), usize::from(config.bins));
                }
            });
            let mut sum = 0;
            let mut turn = layouts.iter().cycle();
            while recorders.iter().any(|thread| !thread.is_finished()) {
                let (bins, counts) = read(&state);
                let expected = if bins == 2 { 1 } else { 6 };
                for (bin, count) in counts.iter().enumerate() {
                    assert!(*count == 0 || bin == expected, "{bins} bins: {counts:?}");
                }
                sum += counts[expected];
                let next = turn.next().unwrap();
                state.configure_histogram(*next).unwrap();
            }
            sum
        });
        assert!(read_back <= 2 * EACH, "{read_back}");
    }
}
