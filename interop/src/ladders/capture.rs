//! The sent packets, as tshark reads them from the captures of all processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Tool;

const TSHARK: Tool = Tool {
    program: "tshark",
    debian_package: "tshark",
};
/// Packets of SENDs that a process has sent; it also records those that it receives.
const FILTER: &str = "frame.packet_flags_direction == 2 && infiniband.bth.opcode <= 5";
const FIELDS: [&str; 4] = [
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.bth.opcode",
    "frame.time_epoch",
];
/// Opcodes of packets that begin a message: FIRST, ONLY, ONLY with immediate.
const BEGINS: [u32; 3] = [0, 4, 5];
const PSNS: u32 = 1 << 24;

/// A message, of which a queue pair has one at a time under way.
#[derive(Debug)]
pub(super) struct Message {
    psn: u32,
    /// When its first packet left, for the first time and again; nanoseconds since 1970.
    pub(super) sent_ns: Vec<u64>,
    /// How often only its later packets were sent again: the peer had acknowledged the first ones.
    in_part: u64,
}

impl Message {
    /// How often it was sent again.
    pub(super) fn repeats(&self) -> u64 {
        self.sent_ns.len() as u64 - 1 + self.in_part
    }

    /// Whether each time all of it was sent, so that no progress disturbed the ladder.
    pub(super) fn is_whole(&self) -> bool {
        self.in_part == 0
    }
}

/// The messages that were sent to each queue pair.
///
/// # Panics
///
/// Panics if there is no capture, or tshark cannot read one.
pub(super) fn messages(directory: &Path) -> BTreeMap<u32, Vec<Message>> {
    let mut messages = BTreeMap::new();
    let mut last = BTreeMap::new();
    for path in captures(directory) {
        let path = path.to_str().expect("a plain path");
        let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
        let mut args = vec!["-n", "-r", path, "-Y", FILTER, "-T", "fields"];
        args.extend(fields);
        for line in TSHARK.run(&args, &[]).lines() {
            let packet = Packet::parse(line).unwrap_or_else(|| panic!("{path}: {line}"));
            packet.note(
                messages.entry(packet.dest).or_default(),
                last.insert(packet.dest, packet.psn),
            );
        }
    }
    messages
}

fn captures(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).expect("own directory");
    let paths = files.map(|entry| entry.expect("own directory").path());
    let captures = paths.filter(|path| path.extension().is_some_and(|end| end == "pcapng"));
    captures.collect()
}

struct Packet {
    dest: u32,
    psn: u32,
    opcode: u32,
    time_ns: u64,
}

impl Packet {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        let dest = words.next()?.strip_prefix("0x")?;
        let psn = words.next()?.parse().ok()?;
        let opcode = words.next()?.parse().ok()?;
        let (seconds, nanos) = words.next()?.split_once('.')?;
        let seconds: u64 = seconds.parse().ok()?;
        let nanos: u64 = format!("{nanos:0<9}").parse().ok()?;
        Some(Self {
            dest: u32::from_str_radix(dest, 16).ok()?,
            psn,
            opcode,
            time_ns: seconds * 1_000_000_000 + nanos,
        })
    }

    /// Adds it to what was sent to the same queue pair, `last` of it with that PSN.
    fn note(&self, messages: &mut Vec<Message>, last: Option<u32>) {
        let follows = last.is_none_or(|last| self.psn == (last + 1) % PSNS);
        match messages.last_mut() {
            Some(message) if !follows => match self.psn == message.psn {
                true => message.sent_ns.push(self.time_ns),
                false => message.in_part += 1,
            },
            _ if BEGINS.contains(&self.opcode) => messages.push(Message {
                psn: self.psn,
                sent_ns: vec![self.time_ns],
                in_part: 0,
            }),
            _ => {}
        }
    }
}
