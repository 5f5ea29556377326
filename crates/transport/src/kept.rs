//! Packets that have come before their turn: selective repeat at the responder.

use std::collections::VecDeque;

use ferroce_wire::Headers;

use crate::bytes::Bytes;
use crate::memory::Data;

/// The packets behind the one that comes next that may be kept. A requester has no more in flight while it
/// repeats selectively.
pub(crate) const KEPT_MAX: u32 = 1024;

/// Packets that wait for what comes before them; most queue pairs never have any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Option<Box<Places>>);

#[derive(Clone, Debug, Default)]
struct Places {
    /// The one right behind what comes next is the first, and the last one is not empty.
    early: VecDeque<Option<Box<Early>>>,
    bytes: u32,
    /// How many places the peer has been told of and may miss something among.
    told: usize,
}

/// A packet that has come before its turn.
#[derive(Clone, Debug)]
pub(crate) struct Early {
    pub(crate) headers: Headers,
    payload: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Bytes(Bytes),
    Length(u32),
    /// It lies where it belongs already.
    Placed(u32),
}

impl Early {
    pub(crate) fn new(headers: &Headers, data: Data<'_>) -> Self {
        Self {
            headers: *headers,
            payload: match data {
                Data::Bytes(bytes) => Content::Bytes(bytes.into()),
                Data::Length(len) => Content::Length(len),
            },
        }
    }

    /// One whose payload lies where it belongs already.
    pub(crate) fn placed(headers: &Headers, len: u32) -> Self {
        Self {
            headers: *headers,
            payload: Content::Placed(len),
        }
    }

    /// What is still to be written of its payload.
    pub(crate) fn data(&self) -> Data<'_> {
        match &self.payload {
            Content::Bytes(bytes) => Data::Bytes(bytes),
            Content::Length(len) | Content::Placed(len) => Data::Length(*len),
        }
    }

    /// Bytes that it takes until its turn.
    pub(crate) fn bytes(&self) -> u32 {
        match self.payload {
            Content::Placed(_) => 0,
            Content::Bytes(_) | Content::Length(_) => self.data().len(),
        }
    }
}

impl Kept {
    /// Whether a packet that is `ahead` of the one that comes next, 1 or more, is not there and has a
    /// place.
    pub(crate) fn wants(&self, ahead: u64) -> bool {
        let there = self.early().nth(ahead as usize - 1).flatten();
        ahead <= u64::from(KEPT_MAX) && there.is_none()
    }

    /// Keeps it.
    pub(crate) fn keep(&mut self, ahead: u64, packet: Early) {
        let at = ahead as usize - 1;
        let Places { early, bytes, .. } = &mut **self.0.get_or_insert_default();
        if early.len() <= at {
            early.resize_with(at + 1, || None);
        }
        *bytes += packet.bytes();
        early[at] = Some(Box::new(packet));
    }

    /// What comes next has moved on by `count`: whether that is at hand now.
    pub(crate) fn advance(&mut self, count: u32) -> Option<Box<Early>> {
        let places = self.0.as_mut()?;
        let mut next = None;
        for _ in 0..count {
            next = places.early.pop_front().flatten();
            places.bytes -= next.as_ref().map_or(0, |early| early.bytes());
        }
        places.told = places.told.saturating_sub(count as usize);
        if places.early.is_empty() {
            self.0 = None;
        }
        next
    }

    /// The peer is told what is here.
    pub(crate) fn tell(&mut self) {
        if let Some(places) = &mut self.0 {
            places.told = places.early.len();
        }
    }

    /// Whether something that the peer was told to be missing has still not come.
    pub(crate) fn is_told(&self) -> bool {
        self.0.as_ref().is_some_and(|places| places.told > 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes of the payloads.
    pub(crate) fn bytes(&self) -> u32 {
        self.0.as_ref().map_or(0, |places| places.bytes)
    }

    /// Which packets behind the one that comes next are there, a bit for each, the nearest first and in
    /// the highest bit.
    pub(crate) fn report(&self) -> Bytes {
        let mut bits = Vec::new();
        for (at, early) in self.early().enumerate() {
            if at % 8 == 0 {
                bits.push(0_u8);
            }
            if early.is_some() {
                bits[at / 8] |= 0x80 >> (at % 8);
            }
        }
        bits.into()
    }

    fn early(&self) -> impl Iterator<Item = Option<&Early>> {
        let places = self.0.iter().flat_map(|places| &places.early);
        places.map(Option::as_deref)
    }

    /// Checks the bound and the books.
    ///
    /// # Panics
    /// Panics if they are wrong.
    pub(crate) fn audit(&self) {
        let all: Vec<_> = self.early().collect();
        assert!(all.len() <= KEPT_MAX as usize, "{self:?}");
        let there = all.iter().flatten();
        let bytes: u32 = there.map(|early| early.bytes()).sum();
        assert_eq!(bytes, self.bytes(), "{self:?}");
        assert!(all.last().is_none_or(Option::is_some), "{self:?}");
    }
}

/// The bits of a [report](Kept::report), the nearest packet first.
pub(crate) fn bits(report: &[u8]) -> impl Iterator<Item = bool> {
    let of_byte = |byte: &u8| {
        let byte = *byte;
        (0..8).map(move |bit| byte & (0x80 >> bit) != 0)
    };
    report.iter().flat_map(of_byte)
}
