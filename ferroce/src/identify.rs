//! `ferroce identify`: finds the retransmission policy that explains the observed waits.

mod words;

use std::fmt::Write as _;
use std::io::{BufReader, Cursor, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_base::time::Span;
use ferroce_base::units::TIME;
use ferroce_capture::{
    Analysis, Answer, End, Ladder, Log, Sure, Way, explain_failures, identify, identify_together,
};

use crate::json::capture as json;
use crate::output::exit_codes;
use crate::output::lines::grouped;
use crate::output::{Failure, Output};
use crate::pcap;

/// Queue pairs with answers of their own that are shown if --all is not given.
const SHOWN_MAX: usize = 10;
/// Outages of a host that are looked at together.
const LADDERS_MAX: usize = 256;
/// Bytes by which a capture is told from a log.
const MAGIC_LEN: u64 = 4;
const MAGICS: [[u8; 4]; 5] = [
    [0x0a, 0x0d, 0x0d, 0x0a],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce identify capture.pcapng            by tcpdump, Wireshark or run --pcap
  ferroce identify worker.log                a log with the times of errors
  ferroce identify --times 8.4ms,16.8ms,33.6ms
  tcpdump -w - udp port 4791 | ferroce identify -"
);

/// Find the retransmission policy that explains a capture, a log or a list of times
///
/// From a capture (pcap or pcapng of any RoCEv2 traffic; the requester's direction is enough) come the
/// waits before packets that were sent again; from a log of NCCL, UCX, Mooncake or perftest the times
/// at which queue pairs failed with IBV_WC_RETRY_EXC_ERR. The answer is a set where more than one
/// policy explains them: timeouts up to 16, for example, cannot be told apart under the minimum that
/// cards enforce.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Identify {
    /// A pcap or pcapng file, or a log; - reads standard input
    #[arg(required_unless_present_any = ["times", "waits"], conflicts_with_all = ["times", "waits"])]
    file: Option<PathBuf>,
    /// Instead of a file: when packets were sent again, counted from the first send, as in
    /// 8.4ms,16.8ms,33.6ms
    #[arg(long, value_name = "TIME,...", value_parser = time, value_delimiter = ',', conflicts_with = "waits")]
    times: Vec<Span>,
    /// Instead of a file: the waits one after the other, as in 8.4ms,8.4ms,16.8ms
    #[arg(long, value_name = "TIME,...", value_parser = time, value_delimiter = ',')]
    waits: Vec<Span>,
    /// The last of --times or --waits ended with the error, not with a packet sent again
    #[arg(long)]
    failed: bool,
    /// Show every queue pair
    #[arg(short, long)]
    all: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

fn time(text: &str) -> Result<Span, ferroce_base::units::Invalid> {
    TIME.read(text).map(Span::from_nanos)
}

impl Identify {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        match &self.file {
            None => self.of_times(to),
            Some(file) => {
                let mut source = pcap::open(file)?;
                let mut magic = Vec::new();
                let head = source.by_ref().take(MAGIC_LEN).read_to_end(&mut magic);
                head.map_err(|error| unreadable(file, &error))?;
                let is_capture = MAGICS.iter().any(|known| magic == known);
                let source = Box::new(Cursor::new(magic).chain(source));
                match is_capture {
                    true => self.of_capture(file, &pcap::read(file, source)?, to),
                    false => self.of_log(file, source, to),
                }
            }
        }
    }

    fn of_times(&self, to: &mut Output<'_>) -> Result<(), Failure> {
        let mut at = Span::ZERO;
        let mut times = vec![0];
        let given = if self.waits.is_empty() {
            &self.times
        } else {
            &self.waits
        };
        for given in given {
            let next = if self.waits.is_empty() {
                *given
            } else {
                at + *given
            };
            if next < at {
                return Err(Failure::input(format_args!(
                    "invalid --times: {} follows {}; times count from the first send and only grow",
                    next.about(),
                    at.about()
                )));
            }
            at = next;
            times.push(at.as_nanos());
        }
        let end = match self.failed {
            true => End::Failed,
            false => End::Silent { for_ns: 0 },
        };
        let Some(ladder) = Ladder::of_times(&times, end) else {
            return Err(Failure::input(
                "invalid --times: expected at least one time",
            ));
        };
        let answer = identify(std::slice::from_ref(&ladder));
        if self.json {
            return to.document(&json::Identified {
                source: "times",
                queue_pairs: vec![words::document(None, &answer, &[ladder], 0)],
                failures: None,
            });
        }
        to.text(&words::answer(&answer, &[ladder], 0))
    }

    fn of_capture(
        &self,
        file: &Path,
        analysis: &Analysis,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let is_cut = analysis.conversations.offloaded_cut > 0;
        let ways = analysis.conversations.ways.iter();
        let found: Vec<(&Way, Answer)> = ways
            .filter(|way| !way.requests.ladders.is_empty())
            .map(|way| {
                let answer = identify(&way.requests.ladders);
                (
                    way,
                    of_all(answer, is_cut || way.requests.ladders_dropped > 0),
                )
            })
            .collect();
        if self.json {
            let queue_pairs = found.iter().map(|(way, answer)| {
                let left_out = way.requests.ladders_dropped;
                words::document(Some(way), answer, &way.requests.ladders, left_out)
            });
            return to.document(&json::Identified {
                source: "capture",
                queue_pairs: queue_pairs.collect(),
                failures: None,
            });
        }
        let mut text = String::new();
        for remark in pcap::remarks(analysis) {
            let _ = writeln!(text, "also: {remark}");
        }
        let wrong = analysis.conversations.icrc_wrong;
        if wrong > 0 {
            let wrong = grouped(wrong);
            let _ = writeln!(
                text,
                "also: {wrong} packets with a wrong ICRC, not looked at further"
            );
        }
        if found.is_empty() {
            let roce = analysis.conversations.packets;
            let _ = writeln!(
                text,
                "{}: {} packets of RoCEv2, and none was sent again after a wait; capture an outage",
                file.display(),
                grouped(roce),
            );
            return to.text(&text);
        }
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut hosts: Vec<IpAddr> = found.iter().map(|(way, _)| way.key.from).collect();
        hosts.sort_unstable();
        hosts.dedup();
        for host in hosts {
            let of_host = found.iter().filter(|(way, _)| way.key.from == host);
            let of_host: Vec<&(&Way, Answer)> = of_host.collect();
            // A policy is that of a device: perhaps one explains all of its queue pairs.
            let (queue_pairs, left_out) = most_telling(&of_host);
            let whole =
                identify_together(&queue_pairs.iter().map(Vec::as_slice).collect::<Vec<_>>())
                    .map(|whole| of_all(whole, is_cut || left_out > 0))
                    .filter(|whole| !self.all && whole.sure >= Sure::Likely);
            match whole {
                Some(answer) => groups.push(Group {
                    way: of_host[0].0,
                    answer,
                    ladders: queue_pairs.concat(),
                    left_out,
                    queue_pairs: of_host.len(),
                }),
                None => groups.extend(of_host.into_iter().map(|(way, answer)| Group {
                    way,
                    answer: answer.clone(),
                    ladders: way.requests.ladders.clone(),
                    left_out: way.requests.ladders_dropped,
                    queue_pairs: 1,
                })),
            }
        }
        if !self.all {
            groups = merged(groups);
        }
        groups.sort_by_key(|group| std::cmp::Reverse((group.answer.sure, group.answer.waits)));
        let shown = if self.all { groups.len() } else { SHOWN_MAX };
        for group in groups.iter().take(shown) {
            let others = match group.queue_pairs {
                1 => String::new(),
                2 => ", and 1 queue pair more".to_owned(),
                count => format!(", and {} queue pairs more", grouped(count as u64 - 1)),
            };
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(text, "{}{others}", pcap::name(group.way));
            text += &words::answer(&group.answer, &group.ladders, group.left_out);
        }
        let more = groups.len().saturating_sub(shown);
        if more > 0 {
            let _ = writeln!(text, "\n{more} more answers; --all shows them");
        }
        to.text(&text)
    }

    fn of_log(
        &self,
        file: &Path,
        source: Box<dyn Read + Send>,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let log = Log::read(BufReader::new(source)).map_err(|error| unreadable(file, &error))?;
        let failures = explain_failures(&log.gaps());
        if self.json {
            return to.document(&json::Identified {
                source: "log",
                queue_pairs: Vec::new(),
                failures: Some(words::log_document(&log, failures.as_ref())),
            });
        }
        if log.errors == 0 {
            return Err(Failure::input(format_args!(
                "{}: neither a capture (pcap, pcapng) nor a log with IBV_WC_RETRY_EXC_ERR \
                 (\"transport retry counter exceeded\", status 12)",
                file.display()
            )));
        }
        if log.untimed == log.errors {
            return Err(Failure::input(format_args!(
                "{}: {} with the error, none with a time; log times, for example with \
                 NCCL_DEBUG_TIMESTAMP_LEVELS=ALL, or pipe the log through ts",
                file.display(),
                match log.errors {
                    1 => "1 line".to_owned(),
                    errors => format!("{} lines", grouped(errors)),
                },
            )));
        }
        to.text(&words::failures(&log, failures.as_ref()))
    }
}

/// Queue pairs with one answer.
struct Group<'a> {
    /// The first of them.
    way: &'a Way,
    answer: Answer,
    ladders: Vec<Ladder>,
    /// Outages that were left out.
    left_out: u64,
    queue_pairs: usize,
}

/// Groups with the same policies are one.
fn merged(groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let mut all: Vec<Group<'_>> = Vec::new();
    for group in groups {
        let answer = &group.answer;
        let is_same = |other: &&mut Group<'_>| {
            (other.answer.sure, &other.answer.policies) == (answer.sure, &answer.policies)
        };
        match all.iter_mut().find(is_same) {
            Some(same) => {
                same.answer.waits += answer.waits;
                same.ladders.extend(group.ladders);
                same.left_out += group.left_out;
                same.queue_pairs += group.queue_pairs;
            }
            None => all.push(group),
        }
    }
    all
}

/// The outages of each queue pair that say most, and how many are left out.
fn most_telling(ways: &[&(&Way, Answer)]) -> (Vec<Vec<Ladder>>, u64) {
    let mut ladders: Vec<(usize, &Ladder)> = Vec::new();
    for (at, (way, _)) in ways.iter().enumerate() {
        ladders.extend(way.requests.ladders.iter().map(|ladder| (at, ladder)));
    }
    ladders.sort_by_key(|(_, ladder)| std::cmp::Reverse(ladder.weight()));
    let dropped: u64 = ways
        .iter()
        .map(|(way, _)| way.requests.ladders_dropped)
        .sum();
    let left_out = ladders.len().saturating_sub(LADDERS_MAX) as u64 + dropped;
    let mut kept = vec![Vec::new(); ways.len()];
    for (at, ladder) in ladders.into_iter().take(LADDERS_MAX) {
        kept[at].push(ladder.clone());
    }
    (kept, left_out)
}

/// An answer, which is not certain if waits are missing.
fn of_all(answer: Answer, is_missing_some: bool) -> Answer {
    match is_missing_some {
        true => answer.of_part(),
        false => answer,
    }
}

fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::broken(format_args!("cannot read {}: {error}", file.display()))
}

/// How sure an answer is, for people.
fn sure(answer: &Answer) -> &'static str {
    match answer.sure {
        Sure::No => "unknown",
        Sure::Undecided => "undecided",
        Sure::Likely => "likely",
        Sure::Certain => "certain",
    }
}
