//! Layout of the file that the processes of a device map.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use ferroce_admission::LeaseTable;
use ferroce_dcqcn::np::CnpTimer;
use ferroce_device::{
    Counter, CounterInfo, CounterSlab, ErrorLog, Function, MappedState, StateBlock, VfBlock,
};
use ferroce_os::Clock;

use super::asleep::Asleep;
use super::locks::SLOT_MAX;
use super::map::shareable;
use super::published::Published;
use super::settings::SharedSettings;
use crate::gids;

// The CNP timers in the file mean the same to all processes.
const _: () = {
    let cycles = Clock::STRETCH.as_picos() % CnpTimer::CYCLE.as_picos();
    assert!(
        cycles == 0,
        "the clocks of processes differ by whole cycles"
    );
};

/// "ferroce" and a zero.
const MAGIC: u64 = u64::from_be_bytes(*b"ferroce\0");
/// Rises with every change of what lies where.
const VERSION: u32 = 19;

shareable! {
    /// What lies where in a device's shared file. Zeros, as a new file has them, are a valid content
    /// that [`Layout::is_ready`] tells apart.
    #[derive(Debug)]
    pub(crate) struct Layout {
        magic: AtomicU64,
        version: AtomicU32,
        /// See [`shape`]. With the version it tells files of other releases apart.
        shape: AtomicU32,
        /// The slot that was taken last, and above its 8 bits how many have been taken so far.
        last_slot: AtomicU32,
        /// Where the search for a free port begins.
        next_port: AtomicU32,
        rounds: Rounds,
        /// Of a VF's file, this and the next two are not in use: those of its card are.
        settings: SharedSettings,
        gids: Published<{ gids::WORDS }>,
        block: StateBlock,
        vfs: [VfBlock; Function::VFS_MAX as usize],
        /// Not 0 if the user has removed the device.
        removed: AtomicU64,
        /// By slot.
        members: [Member; 256],
        /// By slot.
        slabs: [CounterSlab; 256],
        leases: LeaseTable,
        errors: ErrorLog,
        services: Services,
        listeners: Listeners,
    }
}

shareable! {
    /// Who owns a slot, or did last.
    #[derive(Debug)]
    pub(crate) struct Member {
        pid: AtomicU64,
        /// The process's name, filled up with zeros.
        comm: [AtomicU64; 2],
        /// Frames that others have put into its mailbox.
        announced: AtomicU32,
        /// The index of its socket in the low byte, above it the round in which that came out.
        place: AtomicU32,
        /// Whether it may serve ports, also after its death.
        serves: AtomicU64,
        /// Whether it shares the device's port, as [`Presence`].
        presence: AtomicU64,
        /// How many more rings it reads, and above 32 bits which of the slot's owners it is.
        rings: AtomicU64,
        /// Whether it sleeps, and is to be woken when something is put into a ring.
        asleep: Asleep,
    }
}

/// Whether a process's socket is among those that share the device's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Presence {
    /// Not yet: it has nothing that packets could be for.
    Out,
    /// Packets for any process of the device may come to it.
    In,
    /// Not any more: no packet comes to it, though the port is bound until it ends.
    Left,
}

shareable! {
    /// Finding out which process has which socket.
    #[derive(Debug)]
    pub(crate) struct Rounds {
        /// What its probes carry.
        pub(super) nonce: AtomicU64,
        /// When the last finished one began and ended, in the clock's nanoseconds.
        pub(super) began_ns: AtomicU64,
        pub(super) ended_ns: AtomicU64,
        /// The number of the last one, 0 before the first.
        pub(super) number: AtomicU32,
        reserved: AtomicU32,
        /// Who may ask at present: a slot in the top byte, below it since when, in microseconds. 0 if
        /// none does.
        pub(super) asking: AtomicU64,
    }
}

/// The slot that serves a port and, above its 8 bits, the scope, by port space and port; 0 if none does.
pub(crate) type Services = [[AtomicU16; 1 << 16]; 4];

/// Ports on which a process listens: port space, slot and port from the third byte down; 0 for an
/// entry that is free. Requests for more of them than this take a detour.
pub(crate) type Listeners = [AtomicU32; 256];

/// A hash (FNV-1a) of a size and of the names of counters in their order: one more counter may fit
/// without a change of the size, and those behind it would be taken for each other.
const fn shape(size: u64, counters: &[CounterInfo]) -> u32 {
    let mut hash = 0x811c_9dc5 ^ size as u32;
    let mut index = 0;
    while index < counters.len() {
        let name = counters[index].name.as_bytes();
        let mut at = 0;
        while at < name.len() {
            hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        // Names do not run into each other.
        hash = hash.wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

impl Layout {
    /// Bytes of a file.
    pub(crate) const SIZE: u64 = size_of::<Self>() as u64;

    const SHAPE: u32 = shape(Self::SIZE, Counter::TABLE);

    /// Whether the file has been filled, by a program with the same idea of what lies where.
    pub(crate) fn is_ready(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
            && self.version.load(Ordering::Relaxed) == VERSION
            && self.shape.load(Ordering::Relaxed) == Self::SHAPE
    }

    /// Whether the file has been marked as filled, by whichever release. That takes no memory.
    pub(super) fn is_marked(file: &File) -> io::Result<bool> {
        let mut magic = [0; size_of::<u64>()];
        let len = file.read_at(&mut magic, offset_of!(Self, magic) as u64)?;
        Ok(len == magic.len() && u64::from_ne_bytes(magic) == MAGIC)
    }

    /// Whether no process has finished filling the file.
    pub(crate) fn is_blank(&self) -> bool {
        self.magic.load(Ordering::Acquire) == 0
    }

    /// Marks the file as filled.
    pub(crate) fn set_ready(&self) {
        self.version.store(VERSION, Ordering::Relaxed);
        self.shape.store(Self::SHAPE, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_removed(&self) {
        self.removed.store(1, Ordering::Relaxed);
    }

    /// The state of the function whose file this is, on a card.
    pub(crate) fn state(&'static self, card: &'static Self) -> MappedState {
        MappedState {
            generation: card.settings.generation_cell(),
            block: &card.block,
            vfs: &card.vfs,
            slabs: &self.slabs,
            errors: &self.errors,
        }
    }

    /// The card's settings, if this is a card's file.
    pub(super) fn settings(&self) -> &SharedSettings {
        &self.settings
    }

    pub(super) fn gids(&self) -> &Published<{ gids::WORDS }> {
        &self.gids
    }

    pub(super) fn leases(&self) -> &LeaseTable {
        &self.leases
    }

    pub(super) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    pub(crate) fn next_port(&self) -> u32 {
        self.next_port.fetch_add(1, Ordering::Relaxed)
    }

    /// The slots in the order in which they are to be tried: one that was freed rests as long as
    /// possible, since peers may still send to its last owner's queue pairs.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u8> {
        turns(self.last_slot.load(Ordering::Relaxed) & 0xff)
    }

    /// How many slots have been taken so far, modulo 2^24.
    pub(crate) fn generation(&self) -> u32 {
        self.last_slot.load(Ordering::Relaxed) >> 8
    }

    pub(crate) fn note_slot(&self, slot: u8) {
        let last = self.last_slot.load(Ordering::Relaxed);
        self.last_slot.store(taken(last, slot), Ordering::Relaxed);
    }

    pub(crate) fn member(&self, slot: u8) -> &Member {
        &self.members[usize::from(slot)]
    }
}

/// What [`Layout::last_slot`] becomes when a slot is taken.
fn taken(last: u32, slot: u8) -> u32 {
    ((last >> 8) + 1) << 8 | u32::from(slot)
}

/// All slots, beginning behind the last one that was taken.
fn turns(last: u32) -> impl Iterator<Item = u8> {
    let max = u32::from(SLOT_MAX);
    (0..max).map(move |n| (1 + (last % max + n) % max) as u8)
}

impl Member {
    #[inline]
    pub(crate) fn announced(&self) -> u32 {
        self.announced.load(Ordering::Relaxed)
    }

    pub(crate) fn announce(&self) {
        self.announced.fetch_add(1, Ordering::Release);
    }

    pub(super) fn place(&self) -> &AtomicU32 {
        &self.place
    }

    pub(super) fn note_service(&self) {
        self.serves.store(1, Ordering::Relaxed);
    }

    /// Whether the owner of the slot has claimed a port since the last call.
    pub(super) fn take_serves(&self) -> bool {
        self.serves.swap(0, Ordering::Relaxed) != 0
    }

    pub(crate) fn presence(&self) -> Presence {
        match self.presence.load(Ordering::Acquire) {
            0 => Presence::Out,
            1 => Presence::In,
            _ => Presence::Left,
        }
    }

    pub(crate) fn set_presence(&self, presence: Presence) {
        self.presence.store(presence as u64, Ordering::Release);
    }

    /// Which of the slot's owners has it, and how many more rings that one reads.
    #[inline]
    pub(super) fn rings(&self) -> (u32, u32) {
        let word = self.rings.load(Ordering::Acquire);
        ((word >> 32) as u32, word as u32)
    }

    /// The owner reads this many more rings.
    pub(super) fn set_room(&self, rings: u32) {
        let claim = u64::from(self.rings().0);
        self.rings
            .store(claim << 32 | u64::from(rings), Ordering::Release);
    }

    /// Tells this owner of the slot from those before it.
    pub(super) fn set_claim(&self, claim: u32) {
        self.asleep.clear();
        self.rings.store(u64::from(claim) << 32, Ordering::Release);
    }

    #[inline]
    pub(super) fn asleep(&self) -> &Asleep {
        &self.asleep
    }

    pub(crate) fn set(&self, pid: u32, comm: &[u8]) {
        let mut name = [0; 16];
        let comm = comm.trim_ascii_end();
        let len = comm.len().min(name.len());
        name[..len].copy_from_slice(&comm[..len]);
        self.place.store(0, Ordering::Relaxed);
        self.set_presence(Presence::Out);
        self.pid.store(pid.into(), Ordering::Relaxed);
        let (words, _) = name.as_chunks::<8>();
        for (cell, word) in self.comm.iter().zip(words) {
            cell.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Number and name of the process.
    pub(crate) fn get(&self) -> (u32, String) {
        let words = self
            .comm
            .each_ref()
            .map(|w| w.load(Ordering::Relaxed).to_ne_bytes());
        let name = words.concat();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let pid = self.pid.load(Ordering::Relaxed) as u32;
        (pid, String::from_utf8_lossy(name).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_announced_when_their_number_comes_round() {
        let member = Member {
            pid: AtomicU64::new(0),
            comm: [AtomicU64::new(0), AtomicU64::new(0)],
            announced: AtomicU32::new(u32::MAX),
            place: AtomicU32::new(0),
            serves: AtomicU64::new(0),
            presence: AtomicU64::new(0),
            rings: AtomicU64::new(0),
            asleep: Asleep::default(),
        };
        let seen = member.announced();
        member.announce();
        assert!(member.announced() != seen);
    }

    #[test]
    fn other_counters_are_another_shape() {
        let own = shape(Layout::SIZE, Counter::TABLE);
        assert_eq!(own, Layout::SHAPE);
        let (last, rest) = Counter::TABLE.split_last().unwrap();
        let turned = [std::slice::from_ref(last), rest].concat();
        for counters in [rest, &turned[..], &[Counter::TABLE, rest].concat()] {
            assert_ne!(shape(Layout::SIZE, counters), own);
        }
        assert_ne!(shape(Layout::SIZE + 64, Counter::TABLE), own);
    }

    #[test]
    fn processes_are_counted_above_the_slot() {
        assert_eq!(taken(0, 1), 0x101);
        assert_eq!(taken(0x1fe, 1), 0x201);
        assert_eq!(taken(0xffff_ff07, 8), 8, "modulo 2^24");
    }

    #[test]
    fn slots_are_taken_in_turn_and_come_round() {
        let mut slots: Vec<u8> = turns(SLOT_MAX.into()).collect();
        assert_eq!((slots[0], slots[253]), (1, 254));
        slots = turns(7).collect();
        assert_eq!(
            (slots[0], slots[246], slots[247], slots[253]),
            (8, 254, 1, 7)
        );
        slots.sort_unstable();
        assert!(slots.into_iter().eq(1..=SLOT_MAX));
        // A file that says nonsense.
        assert!(turns(u32::MAX).all(|slot| (1..=SLOT_MAX).contains(&slot)));
    }
}
