//! Packet captures.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ferroce_wire::ethernet::{VlanId, VlanTag};
use ferroce_wire::pcapng::{Direction, UdpMeta, Writer};
use ferroce_wire::{BTH_LEN, ICRC_LEN, Verdict};

use crate::fork::NotInherited;
use crate::thread::spawn;
use crate::wait::Clock;
use crate::wall_clock::WallClock;

/// How long a packet may be only in the process, which may be killed.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// Records packets to a pcapng file that Wireshark opens. Clones write to the same file.
///
/// A device records what it hands to the link, after impairments: lost packets are not there,
/// damaged ones are, damage and all. With [`TapDirection::Both`] it also records what the link
/// brings, before impairments. What devices with the same tap send each other is there once, as
/// sent.
#[derive(Clone, Debug)]
pub struct Tap {
    direction: TapDirection,
    /// The VLAN of the device.
    vlan: Option<VlanId>,
    inner: Arc<Mutex<Inner>>,
}

/// Which packets a [`Tap`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapDirection {
    /// Those that are sent: enough for devices that all have the same tap.
    Sent,
    /// Those that are received, too.
    Both,
}

impl Seen {
    /// A packet that arrived, with what its ICRC reveals about the IP header; `guess` is for one whose
    /// ICRC is wrong.
    pub fn arrived(
        source: SocketAddr,
        dest: SocketAddr,
        tos: u8,
        pcp: Option<u8>,
        verdict: Verdict,
        guess: u16,
    ) -> Self {
        let (ip_id, dont_fragment) = match verdict {
            Verdict::Ok {
                ip_id,
                dont_fragment,
            } => (ip_id, dont_fragment),
            Verdict::Bad => (guess, true),
        };
        Self {
            source,
            dest,
            tos,
            pcp,
            ip_id,
            dont_fragment,
        }
    }
}

/// Packets remembered that devices of the tap have sent each other: as many as are under way.
const UNDER_WAY_MAX: usize = 4096;

#[derive(Debug)]
struct Inner {
    writer: Writer<BufWriter<NotInherited<File>>>,
    wall_clock: WallClock,
    /// The devices that have this tap.
    devices: Vec<IpAddr>,
    /// What they have sent each other and not received yet.
    under_way: VecDeque<Mark>,
    /// The first error; the rest of the capture is dropped.
    error: Option<io::Error>,
}

/// What tells a packet from others: its BTH and its ICRC, which depends on all the rest.
type Mark = ([u8; BTH_LEN], [u8; ICRC_LEN]);

fn mark(bytes: &[u8]) -> Option<Mark> {
    Some((*bytes.first_chunk()?, *bytes.last_chunk()?))
}

/// What a tap notes besides the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The sender.
    pub source: SocketAddr,
    /// The recipient.
    pub dest: SocketAddr,
    /// Traffic class: DSCP and ECN.
    pub tos: u8,
    /// The priority in the VLAN tag of the tap's device, with which it is recorded; `None` for a
    /// packet that came without a tag.
    pub pcp: Option<u8>,
    /// Identification of the IP header.
    pub ip_id: u16,
    /// Of IPv4.
    pub dont_fragment: bool,
}

impl Tap {
    /// Starts a capture in a file that only its owner may read, even if it was there before: the
    /// packets hold the program's memory.
    pub fn create(path: &Path, direction: TapDirection) -> io::Result<Self> {
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
        let writer = Writer::with_interface(BufWriter::new(NotInherited::new(file)), "ferroce")?;
        let inner = Arc::new(Mutex::new(Inner {
            writer,
            wall_clock: WallClock::new(|| Clock.now()),
            devices: Vec::new(),
            under_way: VecDeque::new(),
            error: None,
        }));
        let weak = Arc::downgrade(&inner);
        spawn("ferroce-capture".to_owned(), move || keep_written(&weak))?;
        Ok(Self {
            direction,
            vlan: None,
            inner,
        })
    }

    /// Returns the tap for a device in a VLAN, whose tag its packets have, or in none.
    #[must_use]
    pub fn in_vlan(self, vlan: Option<VlanId>) -> Self {
        Self { vlan, ..self }
    }

    fn tag(&self, seen: &Seen) -> Option<VlanTag> {
        let (vlan, pcp) = (self.vlan?, seen.pcp?);
        Some(VlanTag { vlan, pcp })
    }

    /// Notes that the device at `address` has this tap.
    pub fn add_device(&self, address: IpAddr) {
        let devices = &mut self.lock().devices;
        if !devices.contains(&address) {
            devices.push(address);
        }
    }

    /// Notes packets that are about to leave: they may arrive before [`Self::sent`] is called.
    pub fn leaving<'a>(&self, dest: IpAddr, packets: impl Iterator<Item = &'a [u8]>) {
        if self.direction == TapDirection::Sent {
            return;
        }
        let mut inner = self.lock();
        if !dest.is_multicast() && !inner.devices.contains(&dest) {
            return;
        }
        inner.under_way.extend(packets.filter_map(mark));
        let surplus = inner.under_way.len().saturating_sub(UNDER_WAY_MAX);
        inner.under_way.drain(..surplus);
    }

    /// Records a packet that has left.
    pub fn sent(&self, seen: &Seen, bytes: &[u8]) {
        let tag = self.tag(seen);
        self.lock().record(seen, Direction::Outbound, tag, bytes);
    }

    /// Whether it records packets that arrive.
    pub fn takes_received(&self) -> bool {
        self.direction == TapDirection::Both
    }

    /// Records a packet that has arrived, if the tap is for those.
    pub fn received(&self, seen: &Seen, bytes: &[u8]) {
        if self.direction == TapDirection::Sent {
            return;
        }
        let mut inner = self.lock();
        if inner.devices.contains(&seen.source.ip())
            && let Some(mark) = mark(bytes)
            && let Some(at) = inner.under_way.iter().position(|sent| *sent == mark)
        {
            // More than one device may be in a group.
            if !seen.dest.ip().is_multicast() {
                inner.under_way.remove(at);
            }
            return;
        }
        inner.record(seen, Direction::Inbound, self.tag(seen), bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Writes out what is buffered and tells whether the capture is whole.
    pub fn finish(&self) -> io::Result<()> {
        let mut inner = self.lock();
        inner.flush();
        // It stays an error: what comes after a gap is not a capture.
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

    fn record(&mut self, seen: &Seen, direction: Direction, tag: Option<VlanTag>, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let meta = UdpMeta {
            tos: seen.tos,
            ip_id: seen.ip_id,
            dont_fragment: seen.dont_fragment,
            direction: Some(direction),
            tag,
            ..UdpMeta::new(seen.source, seen.dest)
        };
        let at = self.wall_clock.at(Clock.now());
        self.error = self.writer.write_packet(at, &meta, bytes).err();
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread of its own, for a program may keep the device busy, or let it rest, without end.
fn keep_written(tap: &Weak<Mutex<Inner>>) {
    while let Some(inner) = tap.upgrade() {
        lock(&inner).flush();
        drop(inner);
        thread::sleep(FLUSH_EVERY);
    }
}
