//! Packets in flight, by number.

use crate::frame::Parcel;

/// The number of a packet under way.
pub(crate) type PacketId = u32;

/// Packets under way. Their places are used again, so that nothing is allocated once as many have
/// been under way as ever are at a time.
pub(crate) struct Packets<P> {
    places: Vec<P>,
    free: Vec<PacketId>,
}

impl<P> Default for Packets<P> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<P> Packets<P> {
    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl<P: Parcel> Packets<P> {
    /// A place for a packet.
    #[inline]
    pub(crate) fn take(&mut self) -> PacketId {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(P::empty());
            self.places.len() as u32 - 1
        })
    }

    /// Gives a place back.
    #[inline]
    pub(crate) fn give_back(&mut self, id: PacketId) {
        self.free.push(id);
    }

    #[inline]
    pub(crate) fn get(&self, id: PacketId) -> &P {
        &self.places[id as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PacketId) -> &mut P {
        &mut self.places[id as usize]
    }

    /// A copy of a packet, in a place of its own.
    pub(crate) fn copy(&mut self, id: PacketId) -> PacketId {
        let copy = self.get(id).clone();
        let place = self.take();
        *self.get_mut(place) = copy;
        place
    }
}
