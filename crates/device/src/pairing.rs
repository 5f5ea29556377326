//! Which links a device has, and by which of them packets leave.

/// The number of a link: that of its port, or of its place in a bond.
pub(crate) type LinkNumber = u8;

/// What the second link of a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Pairing {
    /// That of a second port, with an address and queue pairs of its own.
    Ports,
    /// With the first it makes one port (LACP). While one of the links is down, everything leaves by the
    /// other; the port is down when both are.
    Bond,
}

/// The links of a device, as programs have been told of them.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Links {
    pub(crate) pairing: Option<Pairing>,
    is_down: [bool; 2],
}

impl Links {
    pub(crate) fn is_up(&self, number: LinkNumber) -> bool {
        !self.is_down[place(number)]
    }

    pub(crate) fn set_up(&mut self, number: LinkNumber, is_up: bool) {
        self.is_down[place(number)] = !is_up;
    }

    pub(crate) fn is_bond(&self) -> bool {
        self.pairing == Some(Pairing::Bond)
    }

    /// Whether a port is up. A bond is while one of its links is.
    pub(crate) fn has_carrier(&self, port: u8) -> bool {
        match self.is_bond() {
            true => self.is_down != [true, true],
            false => self.is_up(port),
        }
    }

    /// The link by which what belongs on `wanted` leaves, or arrives, as the switch at the other end of a
    /// bond has seen the same link go down: another one only if that is down, and the other is up.
    #[inline]
    pub(crate) fn carrying(&self, wanted: LinkNumber) -> LinkNumber {
        let other = if wanted == 2 { 1 } else { 2 };
        match self.pairing {
            None => 1,
            Some(Pairing::Bond) if !self.is_up(wanted) && self.is_up(other) => other,
            Some(_) => wanted,
        }
    }
}

/// Numbers beyond the last mean the first.
fn place(number: LinkNumber) -> usize {
    usize::from(number == 2)
}

/// The link of a bond for the nth of many.
pub(crate) fn spread(n: u32) -> LinkNumber {
    if n.is_multiple_of(2) { 1 } else { 2 }
}
