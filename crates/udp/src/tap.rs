use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_wire::pcapng::{UdpMeta, Writer};

use crate::wait::Clock;

/// Records packets to a pcapng file that Wireshark opens. Clones write to the same file.
///
/// A device records what it hands to the link, after impairments: lost packets are not there,
/// damaged ones are, damage and all. Devices that talk to each other share one tap.
#[derive(Clone, Debug)]
pub struct Tap(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    writer: Writer<BufWriter<File>>,
    clock: Clock,
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
    /// Starts a capture in a new file that only its owner may read.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        let writer = Writer::with_interface(BufWriter::new(file), "ferroce")?;
        Ok(Self(Arc::new(Mutex::new(Inner {
            writer,
            clock: Clock::new(),
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
        let at = inner.clock.now_ns();
        inner.error = inner.writer.write_packet(at, &meta, bytes).err();
    }

    /// Writes out what is buffered and tells whether the capture is whole.
    pub fn finish(&self) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.error.take() {
            Some(error) => Err(error),
            None => inner.writer.flush(),
        }
    }
}
