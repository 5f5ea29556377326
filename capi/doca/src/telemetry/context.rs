//! A context: the histogram configuration that a program asks for, and whether it is running.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_device::Method;
use ferroce_fwctl::card::REGISTER_LEN_MAX;
use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};

use super::capabilities::Capabilities;
use super::config::{BinWidthMode, Config, TimeUnit};
use crate::error::{Code, Refusal};
use crate::registers::Registers;

/// `struct doca_telemetry_adp_retx`: idle after it was made, running between start and stop.
///
/// It does not own the histogram. The context started last has it, and [`Self::detect_change`]
/// tells the others.
#[derive(Debug)]
pub struct Context {
    registers: Box<dyn Registers>,
    capabilities: Capabilities,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: Config,
    is_running: bool,
}

impl Context {
    /// An idle context of a device, with the default configuration.
    ///
    /// # Errors
    ///
    /// [`Code::Driver`]: the device cannot tell what its histogram can do.
    pub fn new(registers: Box<dyn Registers>) -> Result<Self, Refusal> {
        let capabilities = Capabilities::of(&*registers);
        let capabilities = capabilities.map_err(|refusal| refusal.with_code(Code::Driver))?;
        let state = State {
            config: Config::default(),
            is_running: false,
        };
        Ok(Self {
            registers,
            capabilities,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Configuration.

    /// What the program has set, or the device does if [`Self::detect_change`] has seen another
    /// process change it.
    pub fn config(&self) -> Config {
        self.state().config
    }

    fn set(&self, set: impl FnOnce(&mut Config)) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.is_running {
            return Err(Refusal::state("the context runs", "stop it first"));
        }
        set(&mut state.config);
        Ok(())
    }

    /// Sets the number of bins, 1 to what the device can have.
    ///
    /// # Errors
    ///
    /// As all that sets something: [`Code::InvalidValue`] for a value that the device cannot have,
    /// [`Code::BadState`] while the context runs.
    pub fn set_num_bins(&self, num_bins: u32) -> Result<(), Refusal> {
        let max = self.capabilities.max_bins;
        if !(1..=max).contains(&num_bins) {
            let allowed = format_args!("1 to {max}").to_string();
            return Err(Refusal::value("num_bins", num_bins, allowed));
        }
        self.set(|config| config.num_bins = num_bins)
    }

    /// Sets the width of bin 0, at least 1 unit.
    ///
    /// # Errors
    ///
    /// See [`Self::set_num_bins`].
    pub fn set_bin0_width(&self, width: u16) -> Result<(), Refusal> {
        not_zero("bin0_width", width)?;
        self.set(|config| config.bin0_width = width)
    }

    /// Sets the width of bin 1, at least 1 unit.
    ///
    /// # Errors
    ///
    /// See [`Self::set_num_bins`].
    pub fn set_bin1_width(&self, width: u16) -> Result<(), Refusal> {
        not_zero("bin1_width", width)?;
        self.set(|config| config.bin1_width = width)
    }

    /// Sets the mode by its number.
    ///
    /// # Errors
    ///
    /// See [`Self::set_num_bins`].
    pub fn set_bin_width_mode(&self, mode: u32) -> Result<(), Refusal> {
        let mode = BinWidthMode::of(mode)?;
        self.set(|config| config.mode = mode)
    }

    /// Sets the unit by its number.
    ///
    /// # Errors
    ///
    /// See [`Self::set_num_bins`].
    pub fn set_time_unit(&self, unit: u32) -> Result<(), Refusal> {
        let unit = TimeUnit::of(unit, self.capabilities.time_units)?;
        self.set(|config| config.unit = unit)
    }

    /// Sets the only function that is counted, or `None`. Whether there is such a one shows when the
    /// context starts.
    ///
    /// # Errors
    ///
    /// See [`Self::set_num_bins`].
    pub fn set_vhca_id(&self, vhca_id: Option<u16>) -> Result<(), Refusal> {
        self.set(|config| config.vhca_id = vhca_id)
    }

    /// Sets whether reads set the counts to zero.
    ///
    /// # Errors
    ///
    /// See [`Self::set_num_bins`].
    pub fn set_clear_on_read(&self, clears: bool) -> Result<(), Refusal> {
        self.set(|config| config.clear_on_read = clears)
    }

    /// Sets whether timeouts are counted.
    ///
    /// # Errors
    ///
    /// See [`Self::set_num_bins`].
    pub fn set_count_enable(&self, counts: bool) -> Result<(), Refusal> {
        self.set(|config| config.count_enable = counts)
    }

    // States.

    /// Gives the device the configuration.
    ///
    /// # Errors
    ///
    /// [`Code::BadState`]: it runs already. [`Code::InvalidValue`]: the device does not accept the
    /// configuration. [`Code::Driver`], [`Code::OperatingSystem`], [`Code::NotSupported`]: it cannot
    /// be reached, or has no histogram. After an error the context is idle.
    pub fn start(&self) -> Result<(), Refusal> {
        let mut state = self.state();
        if state.is_running {
            return Err(Refusal::state("the context runs already", "stop it first"));
        }
        state.config.write(&*self.registers).map_err(lost)?;
        state.is_running = true;
        Ok(())
    }

    /// Back to idle. The device goes on as it is configured, for others may read it by now.
    ///
    /// # Errors
    ///
    /// [`Code::BadState`]: it is idle already.
    pub fn stop(&self) -> Result<(), Refusal> {
        let mut state = self.state();
        running(&state)?;
        state.is_running = false;
        Ok(())
    }

    /// Whether the context may end.
    ///
    /// # Errors
    ///
    /// [`Code::BadState`]: it runs.
    pub fn may_end(&self) -> Result<(), Refusal> {
        match self.state().is_running {
            false => Ok(()),
            true => Err(Refusal::state("the context runs", "stop it first")),
        }
    }

    // While it runs.

    /// Whether the device is configured in another way than the context. If so, the context takes
    /// over what the device does, so that the counts can be understood.
    ///
    /// # Errors
    ///
    /// [`Code::BadState`]: the context is idle. [`Code::Driver`], [`Code::OperatingSystem`]: the
    /// device cannot be reached.
    pub fn detect_change(&self) -> Result<bool, Refusal> {
        let mut state = self.state();
        running(&state)?;
        let now = Config::read(&*self.registers).map_err(lost)?;
        let changed = now != state.config;
        state.config = now;
        Ok(changed)
    }

    /// The counts, one for each bin that the device has now; never more than
    /// [`Capabilities::max_bins`].
    ///
    /// # Errors
    ///
    /// [`Code::BadState`]: the context is idle. [`Code::Driver`], [`Code::OperatingSystem`],
    /// [`Code::NotSupported`]: the device cannot be reached, or has no histogram.
    pub fn read_bins(&self) -> Result<Vec<u64>, Refusal> {
        running(&self.state())?;
        let len = ADP_RETX_HISTOGRAM.max_size().min(REGISTER_LEN_MAX);
        let mut data = vec![0; len];
        let id = ADP_RETX_HISTOGRAM.id();
        let read = self.registers.access(id, Method::Query, &mut data);
        read.map_err(lost)?;
        let bin_num = super::config::get(&ADP_RETX_HISTOGRAM, &data, &counts::BIN_NUM);
        let bins = bin_num.min(self.capabilities.max_bins) as usize;
        Ok(counts::bins(&data).take(bins).collect())
    }
}

fn running(state: &State) -> Result<(), Refusal> {
    match state.is_running {
        true => Ok(()),
        false => Err(Refusal::state("the context is idle", "start it first")),
    }
}

fn not_zero(field: &str, width: u16) -> Result<(), Refusal> {
    match width {
        0 => Err(Refusal::value(field, width, "1 to 65535")),
        _ => Ok(()),
    }
}

/// A device that was there when the context was made.
fn lost(refusal: Refusal) -> Refusal {
    match refusal.code() {
        Code::NotFound => refusal.with_code(Code::Driver),
        _ => refusal,
    }
}

#[cfg(test)]
mod tests {
    use ferroce_device::{DeviceState, Personality};

    use super::*;

    fn context(state: &DeviceState) -> Context {
        Context::new(Box::new(state.clone())).unwrap()
    }

    fn device() -> DeviceState {
        DeviceState::new(Personality::default())
    }

    fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
        result.unwrap_err().code()
    }

    #[test]
    fn the_device_does_what_was_set_once_the_context_starts() {
        let state = device();
        let context = context(&state);
        context.set_num_bins(5).unwrap();
        context.set_bin0_width(50).unwrap();
        context.set_bin1_width(100).unwrap();
        context.set_bin_width_mode(1).unwrap();
        context.set_clear_on_read(true).unwrap();
        context.set_count_enable(true).unwrap();
        context.set_vhca_id(Some(0)).unwrap();
        for (unit, nanos) in [(1, 1), (2, 1_000), (4, 100_000), (8, 1_000_000)] {
            context.set_time_unit(unit).unwrap();
            context.start().unwrap();
            let config = state.histogram_config();
            assert_eq!(config.unit.nanos(), nanos);
            assert_eq!(
                (config.bins, config.bin0_width, config.bin1_width),
                (5, 50, 100)
            );
            assert!(config.enabled && config.clear_on_read);
            assert_eq!(config.vhca_id, Some(0));
            assert_eq!(context.read_bins().unwrap(), [0; 5]);
            assert!(!context.detect_change().unwrap());
            context.stop().unwrap();
        }
    }

    #[test]
    fn values_out_of_range_change_nothing() {
        let context = context(&device());
        let before = context.config();
        for result in [
            context.set_num_bins(0),
            context.set_num_bins(65),
            context.set_num_bins(u32::MAX),
            context.set_bin0_width(0),
            context.set_bin1_width(0),
            context.set_bin_width_mode(2),
            context.set_time_unit(0),
            context.set_time_unit(3),
            context.set_time_unit(16),
        ] {
            assert_eq!(code(result), Code::InvalidValue);
        }
        assert_eq!(context.config(), before);
    }

    #[test]
    fn each_state_allows_its_calls_only() {
        let context = context(&device());
        assert_eq!(code(context.stop()), Code::BadState);
        assert_eq!(code(context.read_bins()), Code::BadState);
        assert_eq!(code(context.detect_change()), Code::BadState);
        context.start().unwrap();
        for result in [
            context.start(),
            context.may_end(),
            context.set_num_bins(1),
            context.set_bin0_width(1),
            context.set_bin1_width(1),
            context.set_bin_width_mode(0),
            context.set_time_unit(2),
            context.set_vhca_id(None),
            context.set_clear_on_read(false),
            context.set_count_enable(false),
        ] {
            assert_eq!(code(result), Code::BadState);
        }
        context.stop().unwrap();
        context.may_end().unwrap();
    }

    #[test]
    fn a_function_that_is_not_there_is_refused_at_the_start() {
        let state = device();
        let context = context(&state);
        context.set_vhca_id(Some(7)).unwrap();
        let error = context.start().unwrap_err();
        assert_eq!(error.code(), Code::InvalidValue);
        assert!(error.to_string().contains("vhca_id is 7"), "{error}");
        assert_eq!(code(context.stop()), Code::BadState);
        context.set_vhca_id(None).unwrap();
        context.start().unwrap();
    }

    #[test]
    fn detect_change_adopts_the_other_context_s_configuration_once() {
        let state = device();
        let (ours, theirs) = (context(&state), context(&state));
        ours.start().unwrap();
        theirs.set_num_bins(64).unwrap();
        theirs.set_time_unit(8).unwrap();
        theirs.start().unwrap();
        assert!(ours.detect_change().unwrap());
        assert_eq!(ours.config(), theirs.config());
        assert!(!ours.detect_change().unwrap());
        assert_eq!(ours.read_bins().unwrap().len(), 64);
        ours.stop().unwrap();
    }

    /// A device that does what it is told, until it fails.
    #[derive(Debug)]
    struct Failing(DeviceState, std::sync::Arc<Mutex<Option<Code>>>);

    impl Registers for Failing {
        fn access(&self, id: u16, method: Method, data: &mut [u8]) -> Result<(), Refusal> {
            match *self.1.lock().unwrap() {
                Some(code) => Err(Refusal::new(code, "it fails")),
                None => self.0.access(id, method, data),
            }
        }
    }

    #[test]
    fn a_lost_device_is_reported_and_does_not_block_the_context() {
        let failure = std::sync::Arc::new(Mutex::new(None));
        let fail = |code| *failure.lock().unwrap() = code;
        let make = || Context::new(Box::new(Failing(device(), failure.clone())));
        let context = make().unwrap();
        context.start().unwrap();
        for (is, told) in [
            (Code::NotFound, Code::Driver),
            (Code::OperatingSystem, Code::OperatingSystem),
        ] {
            fail(Some(is));
            assert_eq!(code(context.read_bins()), told);
            assert_eq!(code(context.detect_change()), told);
            assert_eq!(make().unwrap_err().code(), Code::Driver);
        }
        context.stop().unwrap();
        assert_eq!(code(context.start()), Code::OperatingSystem);
        context.may_end().unwrap();
        fail(None);
        context.start().unwrap();
    }
}
