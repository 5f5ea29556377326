//! The settings of a card, shared by all processes that have one of its functions open.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_device::{Settings, SettingsStore, WriteLockError};
use ferroce_os::{self as os, NotInherited};

use super::locks::{PATIENCE, byte};
use super::published::Published;
use super::words::{WORDS, from_words, to_words};

/// The settings as the card's file has them.
pub(super) type SharedSettings = Published<WORDS>;

/// The settings in the card's file, and the lock around changes of them: between threads a mutex,
/// between processes one on a byte of the file, which the kernel opens when its owner dies.
#[derive(Debug)]
pub(super) struct SettingsFile {
    file: Arc<NotInherited<File>>,
    shared: &'static SharedSettings,
    own: Mutex<()>,
    /// What was decoded last, and its generation: each change is decoded once.
    decoded: Mutex<Option<(u64, Arc<Settings>)>>,
    /// The process that opened the file.
    forks: u64,
}

impl SettingsFile {
    pub(super) fn new(file: Arc<NotInherited<File>>, shared: &'static SharedSettings) -> Self {
        Self {
            file,
            shared,
            own: Mutex::new(()),
            decoded: Mutex::new(None),
            forks: os::forks(),
        }
    }
}

impl SettingsStore for SettingsFile {
    fn load(&self) -> (u64, Arc<Settings>) {
        // Not waited for: in a child of `fork` no thread may be left to let go of it.
        let mut decoded = self.decoded.try_lock().ok();
        let known = decoded.as_deref().and_then(Option::as_ref);
        if let Some((generation, settings)) = known
            && *generation == self.shared.generation()
        {
            return (*generation, Arc::clone(settings));
        }
        let (generation, words) = self.shared.load();
        let settings = Arc::new(from_words(&words));
        if let Some(decoded) = &mut decoded {
            **decoded = Some((generation, Arc::clone(&settings)));
        }
        (generation, settings)
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&Settings) -> Option<Arc<Settings>>,
    ) -> Result<(), WriteLockError> {
        let failed = |error: io::Error| WriteLockError {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        };
        if self.forks != os::forks() {
            // In a child of `fork` the file is another one, and a thread may hold `own` that is not.
            return Err(WriteLockError {
                errno: libc::ENODEV,
            });
        }
        let _guard = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        os::lock_when_free(&self.file, byte::SETTINGS, PATIENCE).map_err(failed)?;
        if let Some(next) = change(&self.load().1) {
            self.shared.store(&to_words(&next));
            if let Ok(mut decoded) = self.decoded.try_lock() {
                *decoded = Some((self.shared.generation(), next));
            }
        }
        // If the kernel does not unlock, it does so when the file is closed.
        let _ = os::unlock(&self.file, byte::SETTINGS);
        Ok(())
    }
}
