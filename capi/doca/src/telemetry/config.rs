//! The configuration of the histogram, and its register.

use ferroce_device::Method;
use ferroce_prm::adp_retx_histogram_config::{self as reg, ADP_RETX_HISTOGRAM_CONFIG};
use ferroce_prm::{Field, Image, Register};

use crate::error::Refusal;
use crate::registers::Registers;

/// The unit of the bins' widths: its number in DOCA, a bit of
/// [`Capabilities::time_units`](super::Capabilities::time_units).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[allow(missing_docs, reason = "the name is the value")]
pub enum TimeUnit {
    Nsec = 1,
    Usec = 2,
    Usec100 = 4,
    Msec = 8,
}

impl TimeUnit {
    /// All of them, by the value of the register's field.
    const ALL: [Self; 4] = [Self::Nsec, Self::Usec, Self::Usec100, Self::Msec];

    /// The unit of a number, if it is one that the device has.
    pub(super) fn of(number: u32, supported: u32) -> Result<Self, Refusal> {
        let is_it = |unit: &Self| *unit as u32 == number && number & supported != 0;
        let found = Self::ALL.into_iter().find(is_it);
        found.ok_or_else(|| {
            let allowed = format!("one of the bits {supported:#x} that the device has");
            Refusal::value("time_unit", format_args!("{number:#x}"), allowed)
        })
    }

    fn field(self) -> u32 {
        (self as u32).trailing_zeros()
    }
}

/// How wide the bins after bin 1 are; the numbers of DOCA and of the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum BinWidthMode {
    /// As wide as bin 1.
    Fixed = 0,
    /// Each twice as wide as the one before it.
    Double = 1,
}

impl BinWidthMode {
    pub(super) fn of(number: u32) -> Result<Self, Refusal> {
        match number {
            0 => Ok(Self::Fixed),
            1 => Ok(Self::Double),
            _ => {
                let allowed = "0 (FIXED) or 1 (DOUBLE)";
                Err(Refusal::value("bin_width_mode", number, allowed))
            }
        }
    }
}

/// How a device sorts its timeouts into bins, and whether it counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Number of bins, at least 1.
    pub num_bins: u32,
    /// Width of bin 0 in units, not 0.
    pub bin0_width: u16,
    /// Width of bin 1 in units, not 0.
    pub bin1_width: u16,
    /// Growth of the bins after bin 1.
    pub mode: BinWidthMode,
    /// Unit of the widths.
    pub unit: TimeUnit,
    /// The only function that is counted; `None` for the device's and all that belong to it.
    pub vhca_id: Option<u16>,
    /// Each read sets the counts to zero.
    pub clear_on_read: bool,
    /// Timeouts are counted.
    pub count_enable: bool,
}

impl Default for Config {
    /// A new context's. DOCA names no defaults; with these it is complete, and counts nothing.
    fn default() -> Self {
        Self {
            num_bins: 1,
            bin0_width: 1,
            bin1_width: 1,
            mode: BinWidthMode::Fixed,
            unit: TimeUnit::Usec,
            vhca_id: None,
            clear_on_read: false,
            count_enable: false,
        }
    }
}

impl Config {
    /// What the device does now.
    pub(super) fn read(registers: &dyn Registers) -> Result<Self, Refusal> {
        let data = query(registers, &ADP_RETX_HISTOGRAM_CONFIG)?;
        let field = |field| get(&ADP_RETX_HISTOGRAM_CONFIG, &data, field);
        // Fields of 16 bits.
        let width = |it| field(it) as u16;
        let is_set = |it| field(it) == 1;
        Ok(Self {
            num_bins: field(&reg::BIN_NUM),
            bin0_width: width(&reg::BIN0_WIDTH),
            bin1_width: width(&reg::BIN1_WIDTH),
            mode: BinWidthMode::of(field(&reg::BIN_WIDTH_MODE))?,
            unit: TimeUnit::ALL[field(&reg::TIME_UNIT) as usize],
            vhca_id: is_set(&reg::VHCA_ID_VALID).then(|| width(&reg::VHCA_ID)),
            clear_on_read: is_set(&reg::CLEAR_ON_READ),
            count_enable: is_set(&reg::COUNT_ENABLE),
        })
    }

    /// Makes the device do so.
    pub(super) fn write(&self, registers: &dyn Registers) -> Result<(), Refusal> {
        let mut data = [0; ADP_RETX_HISTOGRAM_CONFIG.size()];
        let mut image = Image::new(&ADP_RETX_HISTOGRAM_CONFIG, &mut data[..]).expect("the whole");
        let mut put = |field: &Field, value: u32| {
            let fits = image.set(field, value);
            fits.map_err(|_| {
                let allowed = format!("0 to {}", field.max());
                Refusal::value(field.name(), value, allowed)
            })
        };
        put(&reg::BIN_NUM, self.num_bins)?;
        put(&reg::BIN0_WIDTH, self.bin0_width.into())?;
        put(&reg::BIN1_WIDTH, self.bin1_width.into())?;
        put(&reg::BIN_WIDTH_MODE, self.mode as u32)?;
        put(&reg::TIME_UNIT, self.unit.field())?;
        put(&reg::VHCA_ID_VALID, self.vhca_id.is_some().into())?;
        put(&reg::VHCA_ID, self.vhca_id.unwrap_or(0).into())?;
        put(&reg::CLEAR_ON_READ, self.clear_on_read.into())?;
        put(&reg::COUNT_ENABLE, self.count_enable.into())?;
        registers.access(ADP_RETX_HISTOGRAM_CONFIG.id(), Method::Write, &mut data)
    }
}

/// The content of a register.
pub(super) fn query(registers: &dyn Registers, register: &Register) -> Result<Vec<u8>, Refusal> {
    let mut data = vec![0; register.size()];
    registers.access(register.id(), Method::Query, &mut data)?;
    Ok(data)
}

/// A field of a register's content.
pub(super) fn get(register: &'static Register, data: &[u8], field: &Field) -> u32 {
    let image = Image::new(register, data).expect("as long as the register");
    image.get(field)
}
