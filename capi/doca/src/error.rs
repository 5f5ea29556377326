//! Error codes of `doca_error.h`, and why a call was refused.

use std::ffi::CStr;
use std::fmt;

use thiserror::Error;

/// Defines the codes with their numbers, names and sentences.
macro_rules! codes {
    ($($code:ident = $number:literal, $name:literal, $descr:literal;)+) => {
        /// `doca_error_t`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "the sentence beside each is what programs get")]
        pub enum Code {
            $($code = $number,)+
        }

        const TABLE: &[(Code, &CStr, &CStr)] = &[$((Code::$code, $name, $descr),)+];
    };
}

codes! {
    Success = 0, c"DOCA_SUCCESS", c"Success";
    Unknown = 1, c"DOCA_ERROR_UNKNOWN", c"Unknown error";
    NotPermitted = 2, c"DOCA_ERROR_NOT_PERMITTED", c"Operation not permitted";
    InUse = 3, c"DOCA_ERROR_IN_USE", c"Resource in use";
    NotSupported = 4, c"DOCA_ERROR_NOT_SUPPORTED", c"Operation not supported";
    Again = 5, c"DOCA_ERROR_AGAIN", c"Resource unavailable for now, try again";
    InvalidValue = 6, c"DOCA_ERROR_INVALID_VALUE", c"Invalid value";
    NoMemory = 7, c"DOCA_ERROR_NO_MEMORY", c"Out of memory";
    Initialization = 8, c"DOCA_ERROR_INITIALIZATION", c"Initialisation failed";
    TimeOut = 9, c"DOCA_ERROR_TIME_OUT", c"Time ran out";
    Shutdown = 10, c"DOCA_ERROR_SHUTDOWN", c"Shut down";
    ConnectionReset = 11, c"DOCA_ERROR_CONNECTION_RESET", c"Connection reset by the peer";
    ConnectionAborted = 12, c"DOCA_ERROR_CONNECTION_ABORTED", c"Connection aborted";
    ConnectionInprogress = 13, c"DOCA_ERROR_CONNECTION_INPROGRESS", c"Connection in progress";
    NotConnected = 14, c"DOCA_ERROR_NOT_CONNECTED", c"Not connected";
    NoLock = 15, c"DOCA_ERROR_NO_LOCK", c"Lock not available";
    NotFound = 16, c"DOCA_ERROR_NOT_FOUND", c"Resource not found";
    IoFailed = 17, c"DOCA_ERROR_IO_FAILED", c"Input or output failed";
    BadState = 18, c"DOCA_ERROR_BAD_STATE", c"Not possible in this state";
    UnsupportedVersion = 19, c"DOCA_ERROR_UNSUPPORTED_VERSION", c"Version not supported";
    OperatingSystem = 20, c"DOCA_ERROR_OPERATING_SYSTEM", c"The operating system refused";
    Driver = 21, c"DOCA_ERROR_DRIVER", c"The driver or device failed";
    Unexpected = 22, c"DOCA_ERROR_UNEXPECTED", c"Something unexpected happened";
    AlreadyExist = 23, c"DOCA_ERROR_ALREADY_EXIST", c"Resource exists already";
    Full = 24, c"DOCA_ERROR_FULL", c"No room left";
    Empty = 25, c"DOCA_ERROR_EMPTY", c"Nothing there";
    InProgress = 26, c"DOCA_ERROR_IN_PROGRESS", c"Operation in progress";
    TooBig = 27, c"DOCA_ERROR_TOO_BIG", c"Too big";
    Authentication = 28, c"DOCA_ERROR_AUTHENTICATION", c"Authentication failed";
    BadConfig = 29, c"DOCA_ERROR_BAD_CONFIG", c"Bad configuration";
    Skipped = 30, c"DOCA_ERROR_SKIPPED", c"Skipped";
    DeviceFatalError = 31, c"DOCA_ERROR_DEVICE_FATAL_ERROR", c"Fatal device error";
}

impl From<Code> for u32 {
    fn from(code: Code) -> Self {
        code as Self
    }
}

const UNRECOGNIZED: &CStr = c"unrecognized error code";

/// The name of a code, as C spells it.
#[must_use]
pub fn name(code: u32) -> &'static CStr {
    find(code).map_or(UNRECOGNIZED, |(_, name, _)| name)
}

/// What a code means, in a few words.
#[must_use]
pub fn description(code: u32) -> &'static CStr {
    find(code).map_or(UNRECOGNIZED, |(_, _, description)| description)
}

fn find(code: u32) -> Option<&'static (Code, &'static CStr, &'static CStr)> {
    TABLE.iter().find(|(known, _, _)| *known as u32 == code)
}

/// Why a call was refused: the code that the program gets, and the sentence in the log.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{what}")]
pub struct Refusal {
    code: Code,
    what: String,
}

impl Refusal {
    /// A refusal with a sentence of its own.
    pub fn new(code: Code, what: impl fmt::Display) -> Self {
        let what = what.to_string();
        Self { code, what }
    }

    /// A pointer that must not be null is.
    #[must_use]
    pub fn null(argument: &str) -> Self {
        Self::new(
            Code::InvalidValue,
            format_args!("{argument} is a null pointer"),
        )
    }

    /// A value outside its range.
    pub fn value(field: &str, value: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        let what = format_args!("{field} is {value}; allowed: {allowed}").to_string();
        Self::new(Code::InvalidValue, what)
    }

    /// A call at the wrong time; `instead` says what comes first.
    #[must_use]
    pub fn state(is: &str, instead: &str) -> Self {
        Self::new(Code::BadState, format_args!("{is}; {instead}"))
    }

    /// The same refusal with another code.
    #[must_use]
    pub fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// What the program gets.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_numbered_from_0_to_31_and_named_like_in_c() {
        assert!(TABLE.iter().map(|(code, ..)| *code as u32).eq(0..32));
        assert_eq!(name(4), c"DOCA_ERROR_NOT_SUPPORTED");
        assert_eq!(name(31), c"DOCA_ERROR_DEVICE_FATAL_ERROR");
        assert_eq!(description(0), c"Success");
        for unknown in [32, u32::MAX] {
            assert_eq!(name(unknown), UNRECOGNIZED);
            assert_eq!(description(unknown), UNRECOGNIZED);
        }
    }
}
