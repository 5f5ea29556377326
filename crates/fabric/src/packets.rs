//! Packets under way, by number.

use ferroce_hca::Outgoing;

/// The number of a packet under way.
pub(crate) type PacketId = u32;

/// Packets under way. Their places are used again, so that nothing is allocated once as many have
/// been under way as ever are at a time.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    places: Vec<Outgoing>,
    free: Vec<PacketId>,
}

impl Packets {
    /// A place for a packet.
    #[inline]
    pub(crate) fn take(&mut self) -> PacketId {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Outgoing::empty());
            self.places.len() as u32 - 1
        })
    }

    /// Gives a place back.
    #[inline]
    pub(crate) fn give_back(&mut self, id: PacketId) {
        self.free.push(id);
    }

    #[inline]
    pub(crate) fn get(&self, id: PacketId) -> &Outgoing {
        &self.places[id as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PacketId) -> &mut Outgoing {
        &mut self.places[id as usize]
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
