//! How much a device keeps in flight to one peer.

use std::fmt;
use std::str::FromStr;

use ferroce_admission::Window;
use ferroce_base::units::SIZE;
use serde::{Deserialize, Serialize};

use super::error::{SpecError, is_text};

/// `auto`, or a number of bytes: `256KiB`, `2MiB`. Two packets of the longest kind are the least.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WindowSetting(Window);

impl WindowSetting {
    const LEAST: u32 = 16 << 10;
    const MOST: u32 = 1 << 30;

    /// The window.
    pub const fn get(self) -> Window {
        self.0
    }

    /// Whether the device finds out by itself.
    pub fn is_auto(&self) -> bool {
        self.0 == Window::Auto
    }
}

impl fmt::Display for WindowSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Window::Auto => f.write_str("auto"),
            Window::Fixed(bytes) => f.write_str(&SIZE.write(bytes.into())),
        }
    }
}

impl FromStr for WindowSetting {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text == "auto" {
            return Ok(Self(Window::Auto));
        }
        let bytes = SIZE.read(text).ok().and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.filter(|bytes| (Self::LEAST..=Self::MOST).contains(bytes));
        let bad = || SpecError::BadValue {
            field: "window",
            value: text.to_owned(),
            allowed: "auto, or 16KiB to 1GiB, for example 256KiB",
        };
        Ok(Self(Window::Fixed(bytes.ok_or_else(bad)?)))
    }
}

is_text!(WindowSetting);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_written_as_it_is_read() {
        for text in ["auto", "16KiB", "300KiB", "2MiB", "100001"] {
            let setting: WindowSetting = text.parse().unwrap();
            assert_eq!(setting.to_string(), text);
        }
        assert_eq!(
            "1048576".parse::<WindowSetting>().unwrap().to_string(),
            "1MiB"
        );
    }

    #[test]
    fn bad_windows_are_refused_with_the_valid_form() {
        for text in [
            "", "Auto", "0", "16383", "15KiB", "1025MiB", "4096MiB", "-1", "2GiB", "16384.5",
        ] {
            let error = text.parse::<WindowSetting>().unwrap_err().to_string();
            let told = format!("window is {text:?}; allowed: auto, or 16KiB to 1GiB");
            assert!(error.starts_with(&told), "{error}");
        }
    }
}
