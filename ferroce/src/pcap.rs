//! `ferroce pcap`: finds what went wrong in a capture.

mod findings;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ferroce_base::time::Span;
use ferroce_capture::{Analysis, FileEnd, ReadError, Way, analyse};
use ferroce_wire::Service;

use crate::json::capture as json;
use crate::output::lines::grouped;
use crate::output::lines::wrapped;
use crate::output::{Failure, Output};
use findings::findings;

/// Directions that are shown if --all is not given.
const SHOWN_MAX: usize = 20;

/// Analyse captures of RoCEv2
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Check(Check),
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match self.action {
            Action::Check(check) => check.run(to),
        }
    }
}

/// Check a capture: ICRC, sequence numbers, opcodes, acknowledgements, NAKs
///
/// Reads pcap and pcapng of any RoCEv2 traffic, with VLAN tags, GRE or Linux cooked headers around it,
/// even if packets are truncated. Says for each queue pair and direction what is missing, was sent
/// again, or was refused. Exits with 0 even if it finds something.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
struct Check {
    /// A pcap or pcapng file; - reads standard input
    file: PathBuf,
    /// Show every direction of every queue pair, including those without findings
    #[arg(short, long)]
    all: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// Opens a file, or standard input for `-`.
pub(crate) fn open(file: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let opened = File::open(file).and_then(|opened| match opened.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(opened),
    });
    match opened {
        Ok(opened) => Ok(Box::new(BufReader::with_capacity(1 << 20, opened))),
        Err(error) => Err(Failure::input(format_args!(
            "cannot open {}: {error}",
            file.display()
        ))),
    }
}

/// Reads a capture.
pub(crate) fn read(file: &Path, source: Box<dyn Read + Send>) -> Result<Analysis, Failure> {
    analyse(source).map_err(|error| {
        let text = format!("{}: {error}", file.display());
        match error {
            ReadError::Io(_) => Failure::broken(text),
            _ => Failure::input(text),
        }
    })
}

/// What a capture holds besides RoCEv2, for people; empty if nothing.
pub(crate) fn remarks(analysis: &Analysis) -> Vec<String> {
    let totals = &analysis.totals;
    let said = &analysis.conversations;
    let mut all = Vec::new();
    let mut remark = |count: u64, text: &str| {
        if count > 0 {
            all.push(format!("{} {text}", grouped(count)));
        }
    };
    remark(totals.other, "frames of other protocols");
    let cut = totals.cut + said.cut;
    remark(cut, "frames cut off before the end of the headers");
    let probes = "datagrams of Ferroce's links (opcodes 0xfd and 0xfe), which are not packets";
    remark(said.probes, probes);
    let packets = grouped(said.offloaded_packets);
    let offloaded = format!("frames of segmentation offload, split into {packets} packets");
    remark(said.offloaded, &offloaded);
    remark(
        said.offloaded_cut,
        "of these are cut off, and packets in them are not known; capture with -s 0, \
         or without offload: ethtool -K DEV tx-udp-segmentation off gro off",
    );
    remark(
        totals.fragments,
        "IP fragments, which RoCEv2 does not allow",
    );
    remark(
        totals.backwards,
        "frames with a time before that of the frame before",
    );
    remark(
        said.not_followed,
        "packets of more queue pairs than are followed",
    );
    for (link, count) in &totals.links {
        let text = format!("frames of link type {link}, which is not understood");
        remark(*count, &text);
    }
    if let Some(first) = &said.first_malformed {
        remark(
            said.malformed,
            &format!("malformed packets, the first: {first}"),
        );
    }
    if analysis.end == FileEnd::Cut {
        all.push("the file ends in the middle of a packet".to_owned());
    }
    all
}

impl Check {
    fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let analysis = read(&self.file, open(&self.file)?)?;
        if self.json {
            return to.document(&document(&analysis));
        }
        let totals = &analysis.totals;
        let mut text = head(&analysis);
        for remark in remarks(&analysis) {
            let _ = writeln!(text, "also: {remark}");
        }
        if analysis.conversations.packets == 0 {
            let _ = writeln!(text, "no packet of RoCEv2 (UDP port 4791)");
            return to.text(&text);
        }
        let start = totals.time.map_or(0, |(first, _)| first);
        let (mut shown, mut quiet, mut more) = (0, 0, 0);
        for way in &analysis.conversations.ways {
            let found = findings(way, start);
            match () {
                () if found.is_empty() && !self.all => quiet += 1,
                () if shown == SHOWN_MAX && !self.all => more += 1,
                () => {
                    shown += 1;
                    text += "\n";
                    text += &of_way(way, &found);
                }
            }
        }
        for (count, what) in [(more, "with"), (quiet, "without")] {
            if count > 0 {
                let directions = if count == 1 {
                    "direction"
                } else {
                    "directions"
                };
                let more = if what == "with" { "more " } else { "" };
                let _ = writeln!(
                    text,
                    "\n{} {more}{directions} {what} findings; --all shows all",
                    grouped(count)
                );
            }
        }
        to.text(&text)
    }
}

fn head(analysis: &Analysis) -> String {
    let (totals, said) = (&analysis.totals, &analysis.conversations);
    let (first, last) = totals.time.unwrap_or_default();
    let mut text = format!(
        "{} packets of RoCEv2 in {}\nICRC: {} right, {} wrong",
        grouped(said.packets),
        Span::from_nanos(last - first).about(),
        grouped(said.icrc_right),
        grouped(said.icrc_wrong),
    );
    if said.icrc_unknown > 0 {
        let _ = write!(
            text,
            ", {} not captured to their end",
            grouped(said.icrc_unknown)
        );
    }
    text + "\n"
}

/// `10.0.0.1 to queue pair 0x000011 of 10.0.0.2`
pub(crate) fn name(way: &Way) -> String {
    let key = way.key;
    let from = match way.src_qp {
        None => key.from.to_string(),
        Some(qp) => format!("QP {:#08x} of {}", qp.value(), key.from),
    };
    format!("{from} to QP {:#08x} of {}", key.dest_qp.value(), key.to)
}

fn of_way(way: &Way, findings: &[String]) -> String {
    let mut text = format!(
        "{}\n  {}: {} packets, {} bytes of payload\n",
        name(way),
        service(way.service),
        grouped(way.packets),
        grouped(way.bytes),
    );
    for finding in findings {
        for (i, row) in wrapped(finding, 76).iter().enumerate() {
            let mark = if i == 0 { "  - " } else { "    " };
            let _ = writeln!(text, "{mark}{row}");
        }
    }
    text
}

fn service(service: Service) -> &'static str {
    match service {
        Service::Rc => "RC",
        Service::Uc => "UC",
        Service::Ud => "UD",
        Service::Xrc => "XRC",
        Service::Dc => "DC",
        Service::Cnp => "CNP",
    }
}

/// A capture for programs.
fn document(analysis: &Analysis) -> json::Check {
    let (totals, said) = (&analysis.totals, &analysis.conversations);
    let (first, last) = totals.time.unwrap_or_default();
    json::Check {
        packets: said.packets,
        duration_ns: last - first,
        icrc_right: said.icrc_right,
        icrc_wrong: said.icrc_wrong,
        icrc_unknown: said.icrc_unknown,
        cut: analysis.end == FileEnd::Cut,
        remarks: remarks(analysis),
        directions: said.ways.iter().map(|way| direction(way, first)).collect(),
    }
}

fn direction(way: &Way, start: u64) -> json::Direction {
    let (requests, responses) = (&way.requests, &way.responses);
    let waits = |ladder: &ferroce_capture::Ladder| {
        ladder.waits.iter().map(|wait| wait.as_nanos()).collect()
    };
    json::Direction {
        from: way.key.from.to_string(),
        to: way.key.to.to_string(),
        src_qpn: way.src_qp.map(|qp| qp.value()),
        dest_qpn: way.key.dest_qp.value(),
        service: service(way.service),
        packets: way.packets,
        payload_bytes: way.bytes,
        captured_twice: way.twice,
        icrc_wrong: way.icrc_wrong,
        congestion_marked: way.marked,
        cnps: way.cnps,
        first_ns: way.time.0,
        last_ns: way.time.1,
        mtu_bytes: requests.mtu,
        requests: requests.packets,
        repeated: requests.repeated,
        rounds: requests.rounds,
        rounds_after_nak: requests.rounds_after_nak,
        rounds_after_rnr_nak: requests.rounds_after_rnr,
        missing: requests.missing,
        came_later: requests.late,
        out_of_sequence: requests.out_of_sequence,
        unanswered: requests.unanswered(),
        responses: responses.packets,
        sequence_naks: responses.sequence_naks,
        rnr_naks: responses.rnr_naks,
        fatal_naks: responses.fatal_naks.map_or(0, |(_, count)| count),
        waits_ns: requests.ladders.iter().map(waits).collect(),
        findings: findings(way, start),
    }
}
