//! A set of parameters, with reading and writing as the tools do it.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use thiserror::Error;

use ferroce_base::time::Span;

use crate::param::{Param, Unit, Vocabulary};
use crate::rate::Rate;
use crate::target::Target;

/// A value for every parameter, each within its range.
///
/// ```
/// use ferroce_dcqcn::{Param, Params};
///
/// let mut params = Params::default();
/// params.assign("rpg_ai_rate=20")?;
/// params.assign("RPG_TIME_RESET_P1=100")?;
/// params.assign("DcQcnEnablePrio3=0")?;
/// assert_eq!(params.get(Param::AiRate), 20);
/// assert_eq!(params.get(Param::PrioMask), 0b1111_0111);
///
/// let error = params.assign("rpg_gd=9").unwrap_err();
/// assert_eq!(error.to_string(), "invalid rpg_gd 9: must be 10 to 11");
/// # Ok::<(), ferroce_dcqcn::ParamError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Params {
    values: [u32; Param::ALL.len()],
}

/// What to write in place of an unknown name.
fn proposal(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("did you mean {near}?"),
        None => "write a name such as rpg_ai_rate".to_string(),
    }
}

/// The reason why a parameter could not be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParamError {
    /// No tool has a parameter of this name.
    #[error("unknown parameter {name:?}; {}", proposal(*near))]
    UnknownName {
        /// The name that was given.
        name: String,
        /// A similar name, in the same vocabulary where possible.
        near: Option<&'static str>,
    },
    /// The priority does not exist, or follows a parameter that has no priorities.
    #[error("{param}: {priority:?} is not a priority; use {param}/0 to {param}/7")]
    Priority {
        /// The parameter.
        param: Param,
        /// The text after its name.
        priority: String,
    },
    /// The text is not a number.
    #[error("invalid {param} {text:?}: must be a number from {} to {}", param.min(), param.max())]
    NotANumber {
        /// The parameter.
        param: Param,
        /// The text that was given.
        text: String,
    },
    /// An assignment has no `=`.
    #[error("missing value: write {text}=VALUE")]
    NoValue {
        /// The text that was given.
        text: String,
    },
    /// The value is outside the documented range, or reserved.
    #[error("invalid {param} {value}: must be {min} to {max}")]
    OutOfRange {
        /// The parameter.
        param: Param,
        /// The value that was given.
        value: u32,
        /// The smallest valid value.
        min: u32,
        /// The largest valid value.
        max: u32,
    },
}

impl Default for Params {
    /// The firmware's defaults.
    fn default() -> Self {
        let mut values = [0; Param::ALL.len()];
        for (value, param) in values.iter_mut().zip(Param::ALL) {
            *value = param.default_value();
        }
        Self { values }
    }
}

impl Params {
    /// Returns the value of a parameter.
    #[must_use]
    pub const fn get(&self, param: Param) -> u32 {
        self.values[param as usize]
    }

    /// Sets a parameter. If the value is out of range, nothing changes.
    pub fn set(&mut self, param: Param, value: u32) -> Result<(), ParamError> {
        if param.clip(value) != value {
            return Err(out_of_range(param, value, param.max()));
        }
        self.values[param as usize] = value;
        Ok(())
    }

    /// Sets a parameter as the device does: a value out of range is clipped to the nearest valid
    /// one, which is returned.
    pub fn set_clipped(&mut self, param: Param, value: u32) -> u32 {
        let value = param.clip(value);
        self.values[param as usize] = value;
        value
    }

    /// The same parameters with one of them clipped as [`Params::set_clipped`] does.
    #[must_use]
    pub fn with(mut self, param: Param, value: u32) -> Self {
        self.set_clipped(param, value);
        self
    }

    /// Carries out an assignment `NAME=VALUE`, with a name of any tool.
    pub fn assign(&mut self, text: &str) -> Result<(), ParamError> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(ParamError::NoValue {
                text: text.to_string(),
            });
        };
        let target = Target::parse(name.trim())?;
        self.write(target, value.trim())
    }

    /// Writes a value given as text: decimal, `0x` hexadecimal or `0` octal as files in debugfs
    /// accept it, `True` or `False` as mlxconfig prints it.
    ///
    /// Writing a CNP priority to a file also sets `np_cnp_prio_mode` to 0, as Linux's driver does,
    /// because the priority would have no effect otherwise.
    pub fn write(&mut self, target: Target, text: &str) -> Result<(), ParamError> {
        let param = target.param;
        let value = number(text).ok_or_else(|| ParamError::NotANumber {
            param,
            text: text.to_string(),
        })?;
        let Some(priority) = target.priority else {
            self.set_for(target, value)?;
            let is_file = matches!(target.vocabulary, Vocabulary::Sysfs | Vocabulary::Debugfs);
            if param == Param::Cnp802pPrio && is_file {
                self.set(Param::CnpPrioMode, 0)?;
            }
            return Ok(());
        };
        let bit = 1 << priority;
        let params = match target.is_for_both {
            true => &[Param::PrioMask, Param::NpPrioMask][..],
            false => &[param],
        };
        for &param in params {
            match value {
                0 => self.set(param, self.get(param) & !bit)?,
                1 => self.set(param, self.get(param) | bit)?,
                _ => return Err(out_of_range(param, value, 1)),
            }
        }
        Ok(())
    }

    fn set_for(&mut self, target: Target, value: u32) -> Result<(), ParamError> {
        self.set(target.param, value)?;
        match target.is_for_both {
            true => self.set(Param::NpPrioMask, value),
            false => Ok(()),
        }
    }

    /// Returns the value as the file with this name shows it.
    #[must_use]
    pub fn read(&self, target: Target) -> u32 {
        let value = self.get(target.param);
        target
            .priority
            .map_or(value, |priority| value >> priority & 1)
    }

    /// Returns whether CNPs slow down queue pairs of this priority (0..=7).
    #[must_use]
    pub const fn heeds_cnps(&self, priority: u8) -> bool {
        priority < 8 && self.get(Param::PrioMask) >> priority & 1 != 0
    }

    /// Returns whether marked packets of this priority (0..=7) are answered with CNPs.
    #[must_use]
    pub const fn answers_marks(&self, priority: u8) -> bool {
        priority < 8 && self.get(Param::NpPrioMask) >> priority & 1 != 0
    }

    /// Checks the rates against the port's speed, and returns an error for the first one above it.
    ///
    /// The device does not refuse such a value; it clips it to `line` when it is used.
    pub fn check(&self, line: Rate) -> Result<(), ParamError> {
        let max = u32::try_from(line.bps() / 1_000_000).unwrap_or(u32::MAX);
        match self.above(line).next() {
            Some(param) => Err(out_of_range(param, self.get(param), max)),
            None => Ok(()),
        }
    }

    /// Returns the rates above the port's speed, which act as that speed.
    pub fn above(&self, line: Rate) -> impl Iterator<Item = Param> {
        let rates = Param::ALL.iter().filter(|p| p.unit() == Unit::Mbps);
        rates.copied().filter(move |param| self.mbps(*param) > line)
    }

    /// Returns everything that has a name in this vocabulary, as lines of `NAME=VALUE`, which
    /// [`Params::assign`] can read.
    pub fn display(&self, vocabulary: Vocabulary) -> impl fmt::Display {
        Lines {
            params: self,
            vocabulary,
        }
    }

    pub(crate) const fn micros(&self, param: Param) -> Span {
        Span::from_micros(self.get(param) as u64)
    }

    pub(crate) const fn mbps(&self, param: Param) -> Rate {
        Rate::from_mbps(self.get(param))
    }
}

struct Lines<'a> {
    params: &'a Params,
    vocabulary: Vocabulary,
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &param in Param::ALL {
            let value = self.params.get(param);
            match param.name_in(self.vocabulary) {
                None => {}
                // These two have a name for each priority and none for the mask.
                Some(name)
                    if param.unit() == Unit::PriorityMask
                        && self.vocabulary != Vocabulary::NvConfig =>
                {
                    let slash = if self.vocabulary == Vocabulary::Sysfs {
                        "/"
                    } else {
                        ""
                    };
                    for priority in 0..8 {
                        writeln!(f, "{name}{slash}{priority}={}", value >> priority & 1)?;
                    }
                }
                Some(name) => writeln!(f, "{name}={value}")?,
            }
        }
        Ok(())
    }
}

const fn out_of_range(param: Param, value: u32, max: u32) -> ParamError {
    ParamError::OutOfRange {
        param,
        value,
        min: param.min(),
        max,
    }
}

fn number(text: &str) -> Option<u32> {
    if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        return Some(u32::from(text.eq_ignore_ascii_case("true")));
    }
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // The parser of the standard library takes a sign, too.
    let is_digit = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    is_digit.then(|| u32::from_str_radix(digits, radix).ok())?
}
