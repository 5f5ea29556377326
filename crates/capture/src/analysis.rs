//! Analysis of a whole capture.

use std::collections::BTreeMap;
use std::io::Read;

use crate::conversations::Conversations;
use crate::datagram::{Other, datagram};
use crate::reader::{End, ReadError, read_frames};

/// The contents of a capture.
#[derive(Debug)]
pub struct Analysis {
    /// Frames.
    pub totals: Totals,
    /// RoCEv2 packets.
    pub conversations: Conversations,
    /// How the file ended.
    pub end: End,
}

/// Frames by kind.
#[derive(Debug, Default)]
pub struct Totals {
    /// All of them.
    pub frames: u64,
    /// Frames of other protocols.
    pub other: u64,
    /// Frames truncated before the transport header.
    pub cut: u64,
    /// Fragments.
    pub fragments: u64,
    /// Frames of unsupported links, by the number of the link type.
    pub links: BTreeMap<i32, u64>,
    /// Frames whose time is before that of the previous frame.
    pub backwards: u64,
    /// The first and the last time, in nanoseconds since the file's epoch.
    pub time: Option<(u64, u64)>,
}

/// Reads a whole capture.
///
/// # Errors
/// Returns [`ReadError`] if the file cannot be read as a capture.
pub fn analyse<R: Read + Send>(source: R) -> Result<Analysis, ReadError> {
    let mut totals = Totals::default();
    let mut conversations = Conversations::default();
    let end = read_frames(source, |frame| {
        totals.frames += 1;
        let (first, last) = totals.time.unwrap_or((frame.at_ns, frame.at_ns));
        totals.backwards += u64::from(frame.at_ns < last);
        totals.time = Some((first.min(frame.at_ns), last.max(frame.at_ns)));
        match datagram(frame) {
            Ok(datagram) => conversations.add(&datagram),
            Err(Other::Protocol) => totals.other += 1,
            Err(Other::Cut) => totals.cut += 1,
            Err(Other::Fragment) => totals.fragments += 1,
            Err(Other::Link(link)) => *totals.links.entry(link.0).or_default() += 1,
        }
    })?;
    conversations.finish(totals.time.map_or(0, |(_, last)| last));
    Ok(Analysis {
        totals,
        conversations,
        end,
    })
}
