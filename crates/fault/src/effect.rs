//! What happens.

use std::ffi::c_int;
use std::fmt;

use ferroce_base::time::Span;
use ferroce_base::units::{Invalid, TIME};
use ferroce_transport::WcStatus;

use crate::target::{Kind, Target};

/// What happens to the target of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The call fails without having done anything.
    Fail(Errno),
    /// The queue pair of the call goes to ERR before the call.
    QpError,
    /// The device fails before the call, and reports DEVICE_FATAL.
    DeviceFatal,
    /// The completion comes so much later; those behind it do not wait.
    Late(Span),
    /// The completion or event is delivered a second time.
    Twice,
    /// The completion or event does not come.
    Never,
    /// The completion has another status.
    Status {
        /// What it says instead.
        status: WcStatus,
        /// The vendor's error with it.
        vendor_err: u32,
    },
    /// The event names another port.
    Port(u8),
}

const QP_ERROR: &str = "qp-error";
const DEVICE_FATAL: &str = "device-fatal";
const TWICE: &str = "twice";
const NEVER: &str = "never";
const LATE: &str = "late:";
const PORT: &str = "port:";
const WC: &str = "IBV_WC_";

/// An hour: a completion that is later might as well never come.
const LATE_MAX: Span = Span::from_secs(3600);

impl Effect {
    /// The effect that a text describes.
    pub(crate) fn read(text: &str, target: Target) -> Result<Self, Invalid> {
        let effect = match target.kind() {
            Kind::QpCall | Kind::Call | Kind::EarlyCall => call(text),
            Kind::Completion => completion(text)?,
            Kind::QpEvent | Kind::Event | Kind::PortEvent => event(text),
        };
        let effect = effect.filter(|it| it.suits(target.kind()));
        effect.ok_or_else(|| Invalid::must_be(forms(target)))
    }

    /// Whether a target of this kind can have it.
    fn suits(self, kind: Kind) -> bool {
        match self {
            Self::QpError => kind == Kind::QpCall,
            Self::DeviceFatal => kind.has_device(),
            Self::Port(_) => kind == Kind::PortEvent,
            _ => true,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(errno) => f.write_str(errno.name()),
            Self::QpError => f.write_str(QP_ERROR),
            Self::DeviceFatal => f.write_str(DEVICE_FATAL),
            Self::Late(by) => write!(f, "{LATE}{}", TIME.write(by.as_nanos())),
            Self::Twice => f.write_str(TWICE),
            Self::Never => f.write_str(NEVER),
            Self::Status { status, vendor_err } => {
                f.write_str(status_name(*status))?;
                match vendor_err {
                    0 => Ok(()),
                    vendor_err => write!(f, ":{vendor_err:#x}"),
                }
            }
            Self::Port(port) => write!(f, "{PORT}{port}"),
        }
    }
}

fn call(text: &str) -> Option<Effect> {
    match text {
        QP_ERROR => Some(Effect::QpError),
        DEVICE_FATAL => Some(Effect::DeviceFatal),
        name => Errno::named(name).map(Effect::Fail),
    }
}

fn completion(text: &str) -> Result<Option<Effect>, Invalid> {
    if let Some(by) = text.strip_prefix(LATE) {
        let ns = TIME.read_in(by, 1..=LATE_MAX.as_nanos())?;
        return Ok(Some(Effect::Late(Span::from_nanos(ns))));
    }
    Ok(match text {
        TWICE => Some(Effect::Twice),
        NEVER => Some(Effect::Never),
        text => status(text),
    })
}

/// A status other than success, and after a colon the vendor's error.
fn status(text: &str) -> Option<Effect> {
    let (name, vendor_err) = match text.split_once(':') {
        Some((name, number)) => (name, crate::grammar::number(number)?),
        None => (text, 0),
    };
    let name = name.strip_prefix(WC).unwrap_or(name);
    let status = statuses().find(|it| status_name(*it) == name)?;
    Some(Effect::Status { status, vendor_err })
}

fn event(text: &str) -> Option<Effect> {
    match text {
        TWICE => Some(Effect::Twice),
        NEVER => Some(Effect::Never),
        // The device has port 1 alone, and an event that names that is not changed.
        text => match text.strip_prefix(PORT)?.parse().ok()? {
            0 | 1 => None,
            port => Some(Effect::Port(port)),
        },
    }
}

fn statuses() -> impl Iterator<Item = WcStatus> {
    let all = WcStatus::ALL.into_iter();
    all.filter(|it| *it != WcStatus::Success)
}

fn status_name(status: WcStatus) -> &'static str {
    let name = status.name();
    name.strip_prefix(WC).unwrap_or(name)
}

/// What may be written as the effect on a target.
fn forms(target: Target) -> String {
    let errnos = || join(Errno::ALL.iter().map(|it| it.name()));
    match target.kind() {
        Kind::QpCall => format!(
            "an error number ({}), {QP_ERROR} or {DEVICE_FATAL}",
            errnos()
        ),
        Kind::EarlyCall => format!("an error number ({})", errnos()),
        Kind::Call => format!("an error number ({}) or {DEVICE_FATAL}", errnos()),
        Kind::Completion => format!(
            "late:TIME, {TWICE}, {NEVER} or a status ({}), with a vendor error if there is one, for \
             example RETRY_EXC_ERR:0x81",
            join(statuses().map(status_name))
        ),
        Kind::PortEvent => format!("{NEVER}, {TWICE}, or port:N with N from 2 to 255"),
        Kind::QpEvent | Kind::Event => format!("{NEVER} or {TWICE}"),
    }
}

/// An error number with which a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno {
    number: c_int,
    name: &'static str,
}

/// The table of error numbers.
macro_rules! errnos {
    ($($name:ident)*) => {
        &[$(Errno { number: libc::$name, name: stringify!($name) }),*]
    };
}

impl Errno {
    /// Those that verbs and the connection manager return.
    pub const ALL: &[Self] = errnos! {
        EACCES EADDRINUSE EADDRNOTAVAIL EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EFAULT
        EHOSTUNREACH EINTR EINVAL EIO ENETUNREACH ENODEV ENOENT ENOMEM ENOSPC ENOSYS ENOTCONN
        EOPNOTSUPP EPERM EPROTO ETIMEDOUT
    };

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|it| it.name == name).copied()
    }

    /// Its number on this machine.
    pub fn number(self) -> c_int {
        self.number
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.name
    }
}

fn join(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
