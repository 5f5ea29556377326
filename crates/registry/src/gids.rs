//! The GID table of a device's port: the addresses of its interface.

use std::net::IpAddr;

use ferroce_device::port_attr::Gid;

/// The GIDs of a port. Index 0 and 1 are the device's address as RoCE v2, since programs for cards ask
/// for index 1 by habit; behind them come the other addresses of its interface.
///
/// As with cards an address that goes and comes back gets another index: the old one may still be in
/// use, and stays empty until no process has the device open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidTable(Box<[Entry; Self::LEN as usize]>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Empty,
    /// An address that a queue pair may still be bound to.
    Gone,
    Used {
        address: IpAddr,
        born: u32,
    },
}

/// An address of the host, and when it got it, which tells it from the same one at another time.
pub type Address = (IpAddr, u32);

/// Words of a table in shared memory.
pub(crate) const WORDS: usize = 3 * GidTable::LEN as usize;

/// How often the device's own address is there.
const OWN: usize = 2;

impl GidTable {
    /// Entries.
    pub const LEN: u32 = 256;

    /// The table of a device on these addresses, of which the first is its own.
    pub(crate) fn new(addresses: &[Address]) -> Self {
        let mut table = Self(Box::new([Entry::Empty; Self::LEN as usize]));
        if let Some((own, _)) = addresses.first() {
            table.follow(*own, addresses);
        }
        table
    }

    /// The table of a device on an address of its own.
    pub fn alone(own: IpAddr) -> Self {
        Self::new(&[(own, 0)])
    }

    /// An entry; `None` if it is empty or beyond the end.
    pub fn get(&self, index: u32) -> Option<Gid> {
        self.address(index).map(Gid::from)
    }

    /// The address of an entry.
    pub fn address(&self, index: u32) -> Option<IpAddr> {
        match self.0.get(usize::try_from(index).ok()?)? {
            Entry::Used { address, .. } => Some(*address),
            _ => None,
        }
    }

    /// All that are not empty, by their index.
    pub fn used(&self) -> impl Iterator<Item = (u32, Gid)> {
        (0..Self::LEN).filter_map(|index| Some((index, self.get(index)?)))
    }

    /// The first index of an address.
    pub fn index_of(&self, address: IpAddr) -> Option<u32> {
        (0..Self::LEN).find(|index| self.address(*index) == Some(address))
    }

    /// Takes over which addresses there are now. Of more than fit the last are left out.
    pub(crate) fn follow(&mut self, own: IpAddr, now: &[Address]) {
        for entry in self.0.iter_mut() {
            if let Entry::Used { address, born } = *entry
                && !now.contains(&(address, born))
            {
                *entry = Entry::Gone;
            }
        }
        for &(address, born) in now {
            let used = Entry::Used { address, born };
            let wanted = if address == own { OWN } else { 1 };
            let there = self.0.iter().filter(|entry| **entry == used).count();
            for _ in there..wanted {
                match self.vacant() {
                    Some(entry) => *entry = used,
                    None => return,
                }
            }
        }
    }

    /// The first entry that is empty, or else that may still be in use.
    fn vacant(&mut self) -> Option<&mut Entry> {
        let at = |wanted| self.0.iter().position(|entry| *entry == wanted);
        let place = at(Entry::Empty).or_else(|| at(Entry::Gone))?;
        Some(&mut self.0[place])
    }

    pub(crate) fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        for (entry, words) in self.0.iter().zip(words.chunks_exact_mut(3)) {
            match *entry {
                Entry::Empty => {}
                Entry::Gone => words[2] = 1,
                Entry::Used { address, born } => {
                    let gid = u128::from_be_bytes(Gid::from(address).0);
                    words[0] = (gid >> 64) as u64;
                    words[1] = gid as u64;
                    words[2] = 2 | u64::from(born) << 32;
                }
            }
        }
        words
    }

    pub(crate) fn from_words(words: &[u64; WORDS]) -> Self {
        let mut table = Self(Box::new([Entry::Empty; Self::LEN as usize]));
        for (entry, words) in table.0.iter_mut().zip(words.chunks_exact(3)) {
            let gid = u128::from(words[0]) << 64 | u128::from(words[1]);
            *entry = match words[2] as u32 {
                0 => Entry::Empty,
                2 => Entry::Used {
                    address: std::net::Ipv6Addr::from(gid).to_canonical(),
                    born: (words[2] >> 32) as u32,
                },
                _ => Entry::Gone,
            };
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn v6(last: u16) -> IpAddr {
        [0xfd00, 0, 0, 0, 0, 0, 0, last].into()
    }

    fn addresses(table: &GidTable) -> Vec<(u32, IpAddr)> {
        let entry = |index| Some((index, table.address(index)?));
        (0..GidTable::LEN).filter_map(entry).collect()
    }

    #[test]
    fn both_habitual_indexes_are_the_address_and_others_follow() {
        let table = GidTable::new(&[(OWN_IP, 5), (v6(1), 5)]);
        assert_eq!(addresses(&table), [(0, OWN_IP), (1, OWN_IP), (2, v6(1))]);
        assert_eq!(table.get(0), Some(Gid::from(OWN_IP)));
        assert_eq!([table.get(3), table.get(u32::MAX)], [None, None]);
        assert_eq!(table.index_of(v6(1)), Some(2));
        assert_eq!(GidTable::from_words(&table.to_words()), table);
    }

    //= F21: the address comes back under another index.
    #[test]
    fn an_address_that_comes_back_has_another_index() {
        let mut table = GidTable::new(&[(OWN_IP, 5), (v6(1), 5)]);
        table.follow(OWN_IP, &[(v6(1), 5)]);
        assert_eq!(addresses(&table), [(2, v6(1))]);
        table.follow(OWN_IP, &[(OWN_IP, 900), (v6(1), 5)]);
        assert_eq!(addresses(&table), [(2, v6(1)), (3, OWN_IP), (4, OWN_IP)]);
        // Gone and back before any process looked.
        table.follow(OWN_IP, &[(OWN_IP, 950), (v6(1), 5)]);
        assert_eq!(table.index_of(OWN_IP), Some(5));
        let before = table.clone();
        table.follow(OWN_IP, &[(OWN_IP, 950), (v6(1), 5)]);
        assert_eq!(table, before);
        assert_eq!(GidTable::from_words(&table.to_words()), table);
    }

    #[test]
    fn a_full_table_takes_no_more_and_old_places_serve_again() {
        let many: Vec<Address> = (0..300).map(|n| (v6(n), 1)).collect();
        let mut table = GidTable::new(&[&[(OWN_IP, 1)], many.as_slice()].concat());
        assert_eq!(table.used().count(), 256);
        assert_eq!(table.address(255), Some(v6(253)));
        let fewer: Vec<Address> = (1..300).map(|n| (v6(n), 1)).collect();
        table.follow(OWN_IP, &[&[(OWN_IP, 1)], fewer.as_slice()].concat());
        assert_eq!(table.address(2), Some(v6(254)));
    }

    #[test]
    fn any_words_are_some_table() {
        let table = GidTable::from_words(&[u64::MAX; WORDS]);
        assert_eq!(table.used().count(), 0);
    }
}
