//! Packets that a link holds, each in a slot of its own until it leaves.

/// Place of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Index(u32);

/// Packets in places that are used again. There are never more places than packets at a time.
#[derive(Debug)]
pub(super) struct Packets<T> {
    places: Vec<Place<T>>,
    /// The first free place, and so on from there.
    free: Option<u32>,
    /// Packets that are there.
    taken: usize,
}

#[derive(Debug)]
enum Place<T> {
    Free {
        next: Option<u32>,
    },
    Taken {
        packet: T,
        /// How often it will be taken beside the last time.
        copies: u32,
    },
}

impl<T> Default for Packets<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: None,
            taken: 0,
        }
    }
}

impl<T: Clone> Packets<T> {
    pub(super) fn put(&mut self, packet: T) -> Index {
        let taken = Place::Taken { packet, copies: 0 };
        self.taken += 1;
        match self.free {
            Some(index) => {
                if let Some(place) = self.places.get_mut(index as usize) {
                    if let Place::Free { next } = place {
                        self.free = *next;
                    }
                    *place = taken;
                }
                Index(index)
            }
            None => {
                self.places.push(taken);
                Index(self.places.len() as u32 - 1) // a link holds 65,536 packets
            }
        }
    }

    pub(super) fn get(&self, Index(index): Index) -> Option<&T> {
        match self.places.get(index as usize)? {
            Place::Taken { packet, .. } => Some(packet),
            Place::Free { .. } => None,
        }
    }

    pub(super) fn get_mut(&mut self, Index(index): Index) -> Option<&mut T> {
        match self.places.get_mut(index as usize)? {
            Place::Taken { packet, .. } => Some(packet),
            Place::Free { .. } => None,
        }
    }

    /// The packet will be taken once more.
    pub(super) fn duplicate(&mut self, Index(index): Index) {
        if let Some(Place::Taken { copies, .. }) = self.places.get_mut(index as usize) {
            *copies += 1;
        }
    }

    /// Takes the packet, or one of its copies.
    pub(super) fn take(&mut self, Index(index): Index) -> Option<T> {
        let place = self.places.get_mut(index as usize)?;
        match place {
            Place::Free { .. } => return None,
            Place::Taken { packet, copies } if *copies > 0 => {
                *copies -= 1;
                return Some(packet.clone());
            }
            Place::Taken { .. } => {}
        }
        self.taken -= 1;
        let next = self.free.replace(index);
        match std::mem::replace(place, Place::Free { next }) {
            Place::Taken { packet, .. } => Some(packet),
            Place::Free { .. } => None,
        }
    }

    /// Gives the places back if none is taken.
    pub(super) fn shrink(&mut self) {
        if self.taken == 0 {
            *self = Self::default();
        }
    }

    /// Forgets the packet, or one of its copies.
    pub(super) fn drop(&mut self, index: Index) {
        let _ = self.take(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut packets = Packets::default();
        for round in 0..100 {
            let indices: Vec<_> = (0..10).map(|n| packets.put(round * 10 + n)).collect();
            for (index, n) in indices.iter().zip(0..10).rev() {
                assert_eq!(packets.get(*index), Some(&(round * 10 + n)));
                assert_eq!(packets.take(*index), Some(round * 10 + n));
                assert_eq!(packets.take(*index), None);
            }
        }
        assert_eq!(packets.places.len(), 10);
        let index = packets.put(1);
        packets.shrink();
        assert_eq!(packets.take(index), Some(1));
        packets.shrink();
        assert_eq!(packets.places.capacity(), 0);
    }

    #[test]
    fn a_duplicate_is_taken_as_often_as_it_is_there() {
        let mut packets = Packets::default();
        let index = packets.put("packet");
        packets.duplicate(index);
        assert_eq!(packets.take(index), Some("packet"));
        assert_eq!(packets.get_mut(index), Some(&mut "packet"));
        packets.drop(index);
        assert_eq!(packets.get(index), None);
    }
}
