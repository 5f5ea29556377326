use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ferroce_wire::pcapng::{UdpMeta, Writer};

use crate::sys::NotInherited;
use crate::wait::Clock;

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
        Ok(Self(Arc::new(Mutex::new(Inner {
            writer,
            origin_ns,
            error: None,
        }))))
    }

    pub(crate) fn record(&self, seen: &Seen, bytes: &[u8]) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.error.is_none() {
            inner.error = inner.writer.flush().err();
        }
        // It stays an error: what comes after a gap is no capture.
        match &inner.error {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }
}
