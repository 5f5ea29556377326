//! Messages and attributes as bytes (netlink(7)): numbers are in host byte order, and everything is
//! aligned to four bytes.

use std::iter::Peekable;

use crate::abi::{Command, NLDEV};

/// The message is one of several.
pub(crate) const MULTI: u16 = 2;
/// The end of a list.
pub(crate) const DONE: u16 = 3;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
/// Both bits, as a kernel looks at them.
const DUMP: u16 = 0x300;

/// Length of a message's header, and of an attribute's.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;

/// Bytes of a datagram: what fits into the buffers of programs, which have a page for it.
pub(crate) const ROOM: usize = 3776;

const fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

/// A question of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) kind: u16,
    flags: u16,
    pub(crate) seq: u32,
    /// Its header, which errors repeat.
    pub(crate) header: &'a [u8],
    attributes: &'a [u8],
}

impl<'a> Request<'a> {
    /// The first request in a datagram, and what comes after it.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let whole = bytes.get(..length)?;
        let attributes = whole.get(HEADER..)?;
        let request = Self {
            kind: u16_at(whole, 4)?,
            flags: u16_at(whole, 6)?,
            seq: u32_at(whole, 8)?,
            header: &whole[..HEADER],
            attributes,
        };
        let rest = bytes.get(aligned(length)..).unwrap_or_default();
        (request.flags & REQUEST != 0).then_some((request, rest))
    }

    /// What it asks for; `None` if it is nothing that any kernel knows.
    pub(crate) fn command(&self) -> Option<Command> {
        let (client, number) = (self.kind >> 10, self.kind & 0x3ff);
        (client == NLDEV).then(|| Command::from_number(number))?
    }

    pub(crate) fn is_dump(&self) -> bool {
        self.flags & DUMP == DUMP
    }

    pub(crate) fn wants_ack(&self) -> bool {
        self.flags & ACK != 0
    }

    /// An attribute that is a number.
    pub(crate) fn u32(&self, kind: u16) -> Option<u32> {
        let (_, value) = Attributes(self.attributes).find(|(found, _)| *found == kind)?;
        u32_at(value, 0)
    }
}

/// Attributes, each with its kind; one that lies about its length is the end.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)?;
        let value = self.0.get(ATTRIBUTE..length)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// A message in the making.
#[derive(Debug)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn new(kind: u16, flags: u16, seq: u32, port_id: u32) -> Self {
        let mut bytes = vec![0; 4]; // the length, once it is known
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(seq.to_ne_bytes());
        bytes.extend(port_id.to_ne_bytes());
        Self(bytes)
    }

    /// The end of a list.
    pub(crate) fn done(seq: u32, port_id: u32) -> Self {
        let mut message = Self::new(DONE, MULTI, seq, port_id);
        message.0.extend(0_u32.to_ne_bytes());
        message
    }

    /// An error, or with 0 an acknowledgement, of the request with this header.
    pub(crate) fn error(errno: i32, header: &[u8], seq: u32, port_id: u32) -> Self {
        const CAPPED: u16 = 0x100; // only the header is repeated
        let mut message = Self::new(ERROR, CAPPED, seq, port_id);
        message.0.extend((-errno).to_ne_bytes());
        message.0.extend(header);
        message
    }

    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let at = self.open(kind);
        self.0.extend(value);
        self.close(at);
    }

    pub(crate) fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// A text with a zero at its end.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let at = self.open(kind);
        self.0.extend(value.as_bytes());
        self.0.push(0);
        self.close(at);
    }

    /// Begins an attribute that consists of others. To be closed.
    pub(crate) fn open(&mut self, kind: u16) -> usize {
        let at = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        at
    }

    /// Ends the attribute that was opened at this place.
    pub(crate) fn close(&mut self, at: usize) {
        // All that fits into a datagram fits into the field.
        let length = u16::try_from(self.0.len() - at).unwrap_or(u16::MAX);
        self.0[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(aligned(self.0.len()), 0);
    }

    /// Adds a table with as many entries as there is room for, and leaves the others.
    pub(crate) fn fill<I: Iterator>(
        &mut self,
        table: u16,
        left: &mut Peekable<I>,
        put: impl Fn(&mut Self, &I::Item),
    ) {
        let table = self.open(table);
        while let Some(item) = left.peek() {
            let length = self.0.len();
            put(self, item);
            if self.0.len() > ROOM {
                self.0.truncate(length);
                break;
            }
            left.next();
        }
        self.close(table);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A request with attributes that are numbers.
    pub(crate) fn request(kind: u16, flags: u16, seq: u32, attributes: &[(u16, u32)]) -> Vec<u8> {
        let mut message = Message::new(kind, flags, seq, 0);
        for (kind, value) in attributes {
            message.u32(*kind, *value);
        }
        message.finish()
    }

    /// A message as a program understands it.
    pub(crate) struct Heard {
        pub(crate) kind: u16,
        pub(crate) seq: u32,
        pub(crate) port_id: u32,
        body: Vec<u8>,
    }

    impl Heard {
        pub(crate) fn parse(bytes: &[u8]) -> Self {
            assert_eq!(u32_at(bytes, 0), Some(bytes.len() as u32));
            Self {
                kind: u16_at(bytes, 4).unwrap(),
                seq: u32_at(bytes, 8).unwrap(),
                port_id: u32_at(bytes, 12).unwrap(),
                body: bytes[HEADER..].to_vec(),
            }
        }

        /// The error number of an error or acknowledgement.
        pub(crate) fn error(&self) -> Option<i32> {
            let number = i32::from_ne_bytes(self.body.get(..4)?.try_into().ok()?);
            (self.kind == ERROR).then_some(-number)
        }

        fn attribute(&self, kind: u16) -> Option<&[u8]> {
            if self.kind == ERROR || self.kind == DONE {
                return None;
            }
            Attributes(&self.body)
                .find(|it| it.0 == kind)
                .map(|it| it.1)
        }

        pub(crate) fn u8(&self, kind: u16) -> Option<u8> {
            self.attribute(kind).map(|value| value[0])
        }

        pub(crate) fn u32(&self, kind: u16) -> Option<u32> {
            u32_at(self.attribute(kind)?, 0)
        }

        pub(crate) fn text(&self, kind: u16) -> Option<String> {
            let value = self.attribute(kind)?.strip_suffix(&[0]).unwrap();
            Some(String::from_utf8(value.to_vec()).unwrap())
        }

        /// All attributes of a kind, as if each were a message.
        pub(crate) fn nested(&self, kind: u16) -> Vec<Self> {
            if self.kind == ERROR || self.kind == DONE {
                return Vec::new();
            }
            Attributes(&self.body)
                .filter(|it| it.0 == kind)
                .map(|(_, body)| Self {
                    body: body.to_vec(),
                    ..*self
                })
                .collect()
        }
    }

    #[test]
    fn attributes_are_aligned_and_nests_span_their_contents() {
        let mut message = Message::new(9, 0, 1, 2);
        let table = message.open(100);
        message.text(7, "ab");
        message.u8(8, 3);
        message.close(table);
        let bytes = message.finish();
        assert_eq!(bytes.len(), HEADER + 4 + 8 + 8);
        assert_eq!(u16_at(&bytes, HEADER), Some(20));
        assert_eq!(u16_at(&bytes, HEADER + 4), Some(7));
        let heard = Heard::parse(&bytes);
        let nested = &heard.nested(100)[0];
        assert_eq!(
            (nested.text(7).as_deref(), nested.u8(8)),
            (Some("ab"), Some(3))
        );
    }
}
