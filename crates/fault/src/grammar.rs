//! Rules as text: `TARGET=EFFECT`, and conditions after commas.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ferroce_base::names;
use ferroce_base::units::{Invalid, Probability};
use thiserror::Error;

use crate::effect::Effect;
use crate::rule::{Rule, Scope, When};
use crate::target::Target;

const EXAMPLE: &str = "post_send=ENOMEM,nth=3";

/// Why a text is not a rule.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A rule for nothing known.
    #[error(
        "unknown call, completion or event {name:?} in a fault rule: {instead}; for example {EXAMPLE}",
        instead = names::instead(name, Target::names())
    )]
    Target {
        /// What was found.
        name: String,
    },
    /// A condition that does not exist.
    #[error(
        "unknown condition {name:?} in a fault rule: {instead}; for example {EXAMPLE}",
        instead = names::instead(name, CONDITIONS)
    )]
    Condition {
        /// What was found.
        name: String,
    },
    /// An effect or condition whose value makes no sense.
    #[error("invalid {name} {value:?} in a fault rule: {invalid}")]
    Invalid {
        /// Name of the target or condition.
        name: &'static str,
        /// What was found.
        value: String,
        /// What it must be.
        invalid: Invalid,
    },
    /// A condition that came again, or one that another rules out.
    #[error("{name} does not go with {other} in a fault rule; give one of them")]
    Conflict {
        /// Name of the condition.
        name: &'static str,
        /// Name of the one before it.
        other: &'static str,
    },
    /// A seed for nothing.
    #[error("seed without p in a fault rule; for example completion=never,p=1%,seed=7")]
    SeedAlone,
    /// A queue pair for something that has none.
    #[error(
        "the rule can never match: no queue pair belongs to {target}; leave qp out, or use one of {list}",
        list = with_qp()
    )]
    NoQueuePair {
        /// Name of the target.
        target: &'static str,
    },
    /// A device for a call that is made before a device is chosen.
    #[error(
        "the rule can never match: {target} is called before a device is chosen; leave device out, or \
         name the program"
    )]
    NoDevice {
        /// Name of the target.
        target: &'static str,
    },
    /// A text that does not fit in the table that processes share.
    #[error("the fault rule has {length} bytes; must have at most {TEXT_MAX}: shorten its names")]
    Long {
        /// How many it has.
        length: usize,
    },
}

/// The longest text of a rule, in bytes.
pub const TEXT_MAX: usize = 224;

const CONDITIONS: [&str; 7] = ["nth", "every", "p", "seed", "program", "device", "qp"];

/// How often a target must be met, at most, before something happens.
const COUNTS: RangeInclusive<u64> = 1..=u32::MAX as u64;
/// What numbers of queue pairs may be.
const QPNS: RangeInclusive<u64> = 0..=0xff_ffff;

impl FromStr for Rule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut pieces = text.split(',').map(|piece| {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            (name.trim(), value.trim())
        });
        let (name, value) = pieces.next().unwrap_or_default();
        let target = Target::named(name).ok_or_else(|| ParseError::Target {
            name: name.to_owned(),
        })?;
        let effect = Effect::read(value, target).map_err(invalid(target.name(), value))?;
        let mut given = Given::default();
        for (name, value) in pieces {
            given.read(name, value)?;
        }
        let rule = given.rule(target, effect)?;
        match rule.to_string().len() {
            length if length > TEXT_MAX => Err(ParseError::Long { length }),
            _ => Ok(rule),
        }
    }
}

/// The conditions of a rule, as they are found one after the other.
#[derive(Default)]
struct Given {
    /// The name of the condition that says when, and what it says.
    when: Option<(&'static str, When)>,
    seed: Option<u64>,
    scope: Scope,
}

impl Given {
    fn read(&mut self, name: &str, value: &str) -> Result<(), ParseError> {
        let known = CONDITIONS.into_iter().find(|it| *it == name);
        let name = known.ok_or_else(|| ParseError::Condition {
            name: name.to_owned(),
        })?;
        let wrong = || invalid(name, value);
        let other = match name {
            "nth" => self.set_when(name, When::Nth(count(value).map_err(wrong())?)),
            "every" => self.set_when(name, When::Every(count(value).map_err(wrong())?)),
            "p" => self.set_when(name, chance(value).map_err(wrong())?),
            "seed" => set(&mut self.seed, name, seed(value).map_err(wrong())?),
            "program" => set(&mut self.scope.program, name, word(value).map_err(wrong())?),
            "device" => set(&mut self.scope.device, name, word(value).map_err(wrong())?),
            _ => set(&mut self.scope.qp, name, qpn(value).map_err(wrong())?),
        };
        other.map_or(Ok(()), |other| Err(ParseError::Conflict { name, other }))
    }

    /// Returns the name of the condition that is in the way.
    fn set_when(&mut self, name: &'static str, when: When) -> Option<&'static str> {
        self.when.replace((name, when)).map(|(other, _)| other)
    }

    fn rule(self, target: Target, effect: Effect) -> Result<Rule, ParseError> {
        let when = match (self.when.map_or(When::Always, |(_, when)| when), self.seed) {
            (When::Chance { probability, .. }, seed) => When::Chance {
                probability,
                seed: seed.unwrap_or(0),
            },
            (_, Some(_)) => return Err(ParseError::SeedAlone),
            (when, None) => when,
        };
        if self.scope.qp.is_some() && !target.kind().has_qp() {
            let target = target.name();
            return Err(ParseError::NoQueuePair { target });
        }
        if self.scope.device.is_some() && !target.kind().has_device() {
            let target = target.name();
            return Err(ParseError::NoDevice { target });
        }
        Ok(Rule {
            target,
            effect,
            when,
            scope: self.scope,
        })
    }
}

/// Returns the name of the condition if it was given before.
fn set<T>(to: &mut Option<T>, name: &'static str, value: T) -> Option<&'static str> {
    to.replace(value).map(|_| name)
}

fn invalid(name: &'static str, value: &str) -> impl FnOnce(Invalid) -> ParseError {
    move |invalid| ParseError::Invalid {
        name,
        value: value.to_owned(),
        invalid,
    }
}

fn count(text: &str) -> Result<u64, Invalid> {
    let number = number(text).filter(|it| COUNTS.contains(it));
    number.ok_or_else(|| {
        let (min, max) = (COUNTS.start(), COUNTS.end());
        Invalid::must_be(format!("a number from {min} to {max}"))
    })
}

fn chance(text: &str) -> Result<When, Invalid> {
    let probability = text.parse::<Probability>()?;
    match probability == Probability::ZERO {
        true => Err(Invalid::must_be(
            "more than 0, or the rule can never match; for example 1%",
        )),
        false => Ok(When::Chance {
            probability,
            seed: 0,
        }),
    }
}

fn seed(text: &str) -> Result<u64, Invalid> {
    number(text).ok_or_else(|| Invalid::must_be("a number below 2^64"))
}

fn qpn(text: &str) -> Result<u32, Invalid> {
    let number = number(text).filter(|it| QPNS.contains(it));
    let number = number.and_then(|it| u32::try_from(it).ok());
    number.ok_or_else(|| {
        Invalid::must_be(format!(
            "a number of a queue pair, from {} to {:#x}",
            QPNS.start(),
            QPNS.end()
        ))
    })
}

/// The name of a program or device. Neither commas nor what ends a rule are part of it.
fn word(text: &str) -> Result<String, Invalid> {
    match text.is_empty() || text.contains([';', '#', '\n']) {
        true => Err(Invalid::must_be("a name without , ; and #")),
        false => Ok(text.to_owned()),
    }
}

/// A number in decimal digits, or in hexadecimal ones after 0x.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    T::try_from(number.ok()?).ok()
}

fn with_qp() -> String {
    let targets = Target::ALL.iter();
    let names = targets.filter(|(_, _, kind)| kind.has_qp());
    names
        .map(|(_, name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.target.name(), self.effect)?;
        match self.when {
            When::Always => {}
            When::Nth(n) => write!(f, ",nth={n}")?,
            When::Every(n) => write!(f, ",every={n}")?,
            When::Chance { probability, seed } => write!(f, ",p={probability},seed={seed}")?,
        }
        let Scope {
            program,
            device,
            qp,
        } = &self.scope;
        if let Some(program) = program {
            write!(f, ",program={program}")?;
        }
        if let Some(device) = device {
            write!(f, ",device={device}")?;
        }
        match qp {
            Some(qp) => write!(f, ",qp={qp:#x}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match text.parse::<Rule>() {
            Ok(rule) => rule.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_form_is_read_and_written() {
        for text in [
            "post_send=ENOMEM",
            "post_send=qp-error,nth=3",
            "poll_cq=EIO,every=100,device=fr0",
            "reg_mr=ENOMEM,p=1%,seed=7,program=ib_write_bw",
            "modify_qp=EINVAL,nth=1,program=job,device=fr0,qp=0x11",
            "create_qp=device-fatal,nth=2",
            "rdma_connect=ECONNREFUSED,nth=1",
            "completion=late:50ms,nth=3",
            "completion=twice,every=10",
            "completion=never,p=0.1%,seed=0",
            "completion=RETRY_EXC_ERR:0x81,nth=5,qp=0x12",
            "completion=WR_FLUSH_ERR",
            "PORT_ERR=never",
            "PORT_ACTIVE=twice,nth=1",
            "GID_CHANGE=port:2",
            "QP_LAST_WQE_REACHED=never,qp=0x12",
        ] {
            assert_eq!(read(text), text);
        }
        assert_eq!(
            read(" completion = IBV_WC_REM_OP_ERR:5 , nth = 0x10 "),
            "completion=REM_OP_ERR:0x5,nth=16"
        );
    }

    #[test]
    fn errors_say_what_would_do() {
        for (text, expected) in [
            ("", "unknown call, completion or event \"\""),
            ("post_snd=EIO", "did you mean post_send?"),
            (
                "post_send",
                "invalid post_send \"\" in a fault rule: must be an error number (EACCES",
            ),
            ("post_send=EBADE", "ETIMEDOUT), qp-error or device-fatal"),
            ("reg_mr=qp-error", "must be an error number"),
            (
                "completion=SUCCESS",
                "late:TIME, twice, never or a status (LOC_LEN_ERR",
            ),
            ("completion=late:2h", "from 1ns to 3600s"),
            ("PORT_ERR=port:1", "port:N with N from 2 to 255"),
            ("SQ_DRAINED=port:2", "must be never or twice"),
            (
                "post_send=EIO,nht=3",
                "unknown condition \"nht\" in a fault rule: did you mean nth?",
            ),
            (
                "post_send=EIO,nth=0",
                "must be a number from 1 to 4294967295",
            ),
            ("post_send=EIO,every=0", "invalid every \"0\""),
            ("post_send=EIO,p=0", "can never match"),
            ("post_send=EIO,p=2", "a probability between 0 and 1"),
            ("post_send=EIO,nth=1,every=2", "every does not go with nth"),
            ("post_send=EIO,qp=1,qp=2", "qp does not go with qp"),
            ("post_send=EIO,seed=1", "seed without p"),
            ("post_send=EIO,nth=1,seed=1", "seed without p"),
            ("post_send=EIO,qp=0x1000000", "from 0 to 0xffffff"),
            (
                "reg_mr=EIO,qp=1",
                "can never match: no queue pair belongs to reg_mr",
            ),
            (
                "rdma_create_id=EIO,device=fr0",
                "rdma_create_id is called before a device",
            ),
            ("rdma_create_id=device-fatal", "must be an error number"),
            ("post_send=EIO,device=", "a name without"),
        ] {
            let error = read(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = format!("post_send=EIO,program={}", "x".repeat(TEXT_MAX));
        assert!(read(&long).contains("at most 224"), "{}", read(&long));
    }
}
