//! The reasons why a device could not be opened.

use std::io;

use ferroce_os::after;
use ferroce_registry::RegistryError;
use ferroce_sockets::BindError;
use thiserror::Error;

/// Why a device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// See [`BindError`].
    #[error(transparent)]
    Bind(#[from] BindError),
    /// See [`RegistryError`].
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// As many processes as a device takes have it open.
    #[error("{max} processes have the device open, which is as many as it takes")]
    Full {
        /// How many that are.
        max: u8,
    },
    /// No helper thread.
    #[error("cannot start the device's helper thread: {0}{after}", after = after(.0))]
    Helper(#[source] io::Error),
    /// No card process.
    #[error("cannot start the card process (--card-process): {0}{after}", after = after(.0))]
    CardProcess(#[source] io::Error),
}
