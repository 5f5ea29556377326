//! Reads frames from capture files, one at a time: pcap and pcapng of any byte order and time
//! resolution.

use std::io::{self, Read};

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, PcapHeader, create_reader};
use thiserror::Error;

/// What is read at a time. Larger than any packet.
const BUFFER: usize = 256 << 10;
/// The longest block that is read: pcapng may hold other things than packets.
const BLOCK_MAX: usize = 64 << 20;
/// Interfaces of a section that are remembered. Packets of others are counted as of no known link.
const INTERFACES_MAX: usize = 4096;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The time of capture, in nanoseconds since the epoch of the file.
    pub at_ns: u64,
    /// The kind of link it was captured on.
    pub link: Linktype,
    /// Its bytes, as far as they were captured.
    pub bytes: &'a [u8],
    /// Its length on the link, in bytes.
    pub len: usize,
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After a complete block.
    Whole,
    /// In the middle of a block, as when the capturing program is killed: everything before it was
    /// read.
    Cut,
}

/// The reason why a file cannot be read as a capture.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It does not begin like a capture.
    #[error("not a capture: expected a file in the format pcap or pcapng")]
    NotACapture,
    /// A block cannot be parsed, so the rest cannot be either.
    #[error("damaged after {offset} bytes: expected a block of pcap or pcapng")]
    Damaged {
        /// The number of bytes read before it.
        offset: u64,
    },
    /// A block is longer than any valid one.
    #[error("a block of more than {BLOCK_MAX} bytes after {offset} bytes")]
    TooLong {
        /// The number of bytes read before it.
        offset: u64,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Passes each frame of a capture to `each`, in the order of the file, in constant memory.
///
/// # Errors
/// Returns [`ReadError`] if the file cannot be read as a capture. Frames before the error have
/// already been passed on.
pub fn read_frames<R: Read + Send>(
    source: R,
    mut each: impl FnMut(&Frame<'_>),
) -> Result<End, ReadError> {
    let mut failure = None;
    let reader = Noting {
        source,
        failure: &mut failure,
    };
    let end = frames(reader, &mut each);
    match failure {
        Some(error) => Err(error.into()),
        None => end,
    }
}

/// Keeps the error that the parser would hide.
struct Noting<'f, R> {
    source: R,
    failure: &'f mut Option<io::Error>,
}

impl<R: Read> Read for Noting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    *self.failure = Some(error);
                    return Err(kind.into());
                }
                read => return read,
            }
        }
    }
}

fn frames<R: Read + Send>(source: R, each: &mut impl FnMut(&Frame<'_>)) -> Result<End, ReadError> {
    // The parser looks at the first read only.
    let mut source = source;
    let mut head = Vec::new();
    source.by_ref().take(HEAD).read_to_end(&mut head)?;
    let mut reader = create_reader(BUFFER, io::Cursor::new(head).chain(source))
        .map_err(|_| ReadError::NotACapture)?;
    let mut clocks = Clocks::default();
    let mut capacity = BUFFER;
    loop {
        let offset = reader.consumed() as u64;
        let step = match reader.next() {
            Ok((len, block)) => {
                if let Some(frame) = clocks.frame(block) {
                    each(&frame);
                }
                Step::Consume(len)
            }
            Err(PcapError::Eof) => return Ok(End::Whole),
            Err(PcapError::UnexpectedEof) => return Ok(End::Cut),
            Err(PcapError::Incomplete(_)) => Step::Refill,
            Err(PcapError::BufferTooSmall) => Step::Grow,
            Err(_) => return Err(ReadError::Damaged { offset }),
        };
        match step {
            Step::Consume(len) => reader.consume(len),
            Step::Refill => reader.refill().map_err(|_| ReadError::Damaged { offset })?,
            Step::Grow if capacity >= BLOCK_MAX => return Err(ReadError::TooLong { offset }),
            Step::Grow => {
                capacity *= 2;
                reader.grow(capacity);
                reader.refill().map_err(|_| ReadError::Damaged { offset })?;
            }
        }
    }
}

/// Bytes by which a file is known.
const HEAD: u64 = 4096;

/// What to do once the block is no longer borrowed.
enum Step {
    Consume(usize),
    Refill,
    Grow,
}

/// What time stamps and bytes of the current section mean.
#[derive(Default)]
struct Clocks {
    /// Of a pcap file.
    whole_file: Option<Interface>,
    /// Of a section of pcapng.
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Time stamps in a second.
    per_second: u128,
    /// Seconds to add to them.
    offset: i64,
}

impl Interface {
    fn at_ns(self, stamp: u64) -> u64 {
        let ns = u128::from(stamp) * 1_000_000_000 / self.per_second;
        let ns = i128::try_from(ns).unwrap_or(i128::MAX);
        let ns = ns.saturating_add(i128::from(self.offset) * 1_000_000_000);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

impl Clocks {
    fn frame<'a>(&mut self, block: PcapBlockOwned<'a>) -> Option<Frame<'a>> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.whole_file = Some(of_file(&header));
                None
            }
            PcapBlockOwned::Legacy(block) => {
                let file = self.whole_file?;
                let fraction = u64::from(block.ts_usec);
                let stamp = u64::from(block.ts_sec) * u64::try_from(file.per_second).ok()?;
                Some(Frame {
                    at_ns: file.at_ns(stamp.saturating_add(fraction)),
                    link: file.link,
                    bytes: block.data,
                    len: block.origlen as usize,
                })
            }
            PcapBlockOwned::NG(block) => self.of_block(block),
        }
    }

    fn of_block<'a>(&mut self, block: Block<'a>) -> Option<Frame<'a>> {
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(it) if self.interfaces.len() < INTERFACES_MAX => {
                self.interfaces.push(Interface {
                    link: it.linktype,
                    per_second: per_second(it.if_tsresol),
                    offset: it.if_tsoffset,
                });
            }
            Block::EnhancedPacket(packet) => {
                let interface = self.interfaces.get(packet.if_id as usize)?;
                let stamp = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let bytes = packet.data.get(..packet.caplen as usize);
                return Some(Frame {
                    at_ns: interface.at_ns(stamp),
                    link: interface.link,
                    bytes: bytes.unwrap_or(packet.data),
                    len: packet.origlen as usize,
                });
            }
            // It has no time stamp.
            Block::SimplePacket(packet) => {
                let interface = self.interfaces.first()?;
                let len = packet.orig_len() as usize;
                return Some(Frame {
                    at_ns: 0,
                    link: interface.link,
                    bytes: packet.data.get(..len).unwrap_or(packet.data),
                    len,
                });
            }
            _ => {}
        }
        None
    }
}

fn of_file(header: &PcapHeader) -> Interface {
    Interface {
        // The upper bits say how long the frame check sequence is.
        link: Linktype(header.network.0 & 0x0fff_ffff),
        per_second: if header.is_nanosecond_precision() {
            1_000_000_000
        } else {
            1_000_000
        },
        offset: 0,
    }
}

/// The option `if_tsresol`: a negative power of 10, or of 2 if the highest bit is set.
fn per_second(resolution: u8) -> u128 {
    let exponent = u32::from(resolution & 0x7f);
    match resolution & 0x80 {
        0 => 10u128.saturating_pow(exponent.min(38)),
        _ => 1 << exponent.min(126),
    }
}
