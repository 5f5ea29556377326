use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferroce_wire::pcapng::{UdpMeta, Writer};

use crate::sys::{NoSignals, NotInherited};
use crate::wait::Clock;

/// How long a packet may be only in the process, which may be killed.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// Records packets to a pcapng file that Wireshark opens. Clones write to the same file.
///
/// A device records what it hands to the link, after impairments: lost packets are not there,
/// damaged ones are, damage and all. Devices that talk to each other share one tap.
#[derive(Clone, Debug)]
pub struct Tap(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    writer: Writer<BufWriter<NotInherited<File>>>,
    /// The time of day when the clock showed 0, in nanoseconds since 1970.
    origin_ns: u64,
    /// The first error; the rest of the capture is dropped.
    error: Option<io::Error>,
}

/// What a tap notes besides the bytes.
pub(crate) struct Seen {
    pub(crate) source: SocketAddr,
    pub(crate) dest: SocketAddr,
    pub(crate) tos: u8,
    pub(crate) ip_id: u16,
}

impl Tap {
    /// Starts a capture in a file that only its owner may read, even if it was there before: the
    /// packets hold the program's memory.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        // Not on a pipe or a device.
        if file.metadata()?.is_file() {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = since_1970.map_or(0, |time| time.as_nanos() as u64);
        let origin_ns = now_ns.saturating_sub(Clock.now_ns());
        let writer = Writer::with_interface(BufWriter::new(NotInherited::new(file)), "ferroce")?;
        let inner = Arc::new(Mutex::new(Inner {
            writer,
            origin_ns,
            error: None,
        }));
        let weak = Arc::downgrade(&inner);
        let _no_signals = NoSignals::new();
        thread::Builder::new()
            .name("ferroce-capture".into())
            .spawn(move || keep_written(&weak))?;
        Ok(Self(inner))
    }

    pub(crate) fn record(&self, seen: &Seen, bytes: &[u8]) {
        let mut inner = lock(&self.0);
        if inner.error.is_some() {
            return;
        }
        let mut meta = UdpMeta::new(seen.source, seen.dest);
        meta.tos = seen.tos;
        meta.ip_id = seen.ip_id;
        let at = inner.origin_ns + Clock.now_ns();
        inner.error = inner.writer.write_packet(at, &meta, bytes).err();
    }

    /// Writes out what is buffered and tells whether the capture is whole.
    pub fn finish(&self) -> io::Result<()> {
        let mut inner = lock(&self.0);
        inner.flush();
        // It stays an error: what comes after a gap is no capture.
        match &inner.error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }
}

impl Inner {
    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.writer.flush().err();
        }
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread of its own, for a program may keep the device busy, or let it rest, for ever.
fn keep_written(tap: &Weak<Mutex<Inner>>) {
    while let Some(inner) = tap.upgrade() {
        lock(&inner).flush();
        drop(inner);
        thread::sleep(FLUSH_EVERY);
    }
}
