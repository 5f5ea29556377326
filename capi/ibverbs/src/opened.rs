//! Access to a context for the connection manager's library.

use std::fmt;
use std::sync::Arc;

use ferroce_fault::Target;
use ferroce_runtime::Device;

use crate::abi::ibv_context;
use crate::adapter::Adapter;
use crate::error::Error;
use crate::routes::{CmSink, RemovalSink};
use crate::{context, convert};

/// A device that this process has open.
#[derive(Clone)]
pub struct Opened(Arc<Adapter>);

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened")
            .field(&self.0.listed.spec.name)
            .finish()
    }
}

impl Opened {
    /// The device behind a context.
    pub fn of(context: *const ibv_context) -> Result<Self, Error> {
        Ok(Self(Arc::clone(&context::find(context)?.adapter)))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Lets fault rules act on a call of the connection manager's library.
    pub fn meet(&self, target: Target) -> Result<(), Error> {
        self.0.meet(target, None)
    }

    /// The index of the GID that a port sends from.
    pub fn gid_index(&self, port: u8) -> u8 {
        convert::own_gid_index(self.device(), port)
    }

    /// Hands all events of the connection manager to `sink` from now on. The first sink stays.
    pub fn set_cm_sink(&self, sink: CmSink) {
        // A second one gets nothing.
        let _ = self.0.routes.cm.set(sink);
    }

    /// Tells `sink` when the device is removed. The first sink stays.
    pub fn set_removal_sink(&self, sink: RemovalSink) {
        let _ = self.0.routes.removal.set(sink);
    }
}
