//! All that is noted during a run.

use std::collections::HashMap;

use ferroce_os::Clock;

use super::message::{is_warning, plain};
use super::plan::Rail;
use super::verdict::End;

/// What a rail has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Look {
    /// Payload that it has sent.
    pub(super) sent: u64,
    /// Timers of queue pairs that have expired.
    pub(super) timeouts: u64,
    /// Packets that it has sent again.
    pub(super) retransmitted: u64,
    /// Queue pairs that have given up.
    pub(super) failures: u64,
    /// Whether its port is up.
    pub(super) is_up: bool,
}

/// What the rails had done at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    pub(super) at_ns: u64,
    pub(super) rails: Vec<Look>,
}

/// Something that happened, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) at_ns: u64,
    /// `None` for what the drill did.
    pub(super) host: Option<usize>,
    pub(super) text: String,
    /// How often it was said in a row, with other numbers.
    pub(super) times: u32,
}

/// All that is noted during a run. Times are those of the machine's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) rails: Vec<Rail>,
    pub(super) samples: Vec<Sample>,
    /// Events of the plan.
    pub(super) events: Vec<Note>,
    /// Messages of the library.
    pub(super) messages: Vec<Note>,
    /// The last of the messages that differ in numbers only, by host.
    pub(super) last_alike: HashMap<(usize, String), usize>,
    pub(super) began_ns: u64,
    pub(super) first_event_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) end: End,
    pub(super) standstill_ns: u64,
    pub(super) wrong_words: u64,
    pub(super) bytes: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            rails: Vec::new(),
            samples: Vec::new(),
            events: Vec::new(),
            messages: Vec::new(),
            last_alike: HashMap::new(),
            began_ns: 0,
            first_event_ns: 0,
            ended_ns: 0,
            end: End::Survived,
            standstill_ns: 0,
            wrong_words: 0,
            bytes: 0,
        }
    }
}

/// The most messages of a library that are kept.
const MESSAGES_MAX: usize = 20_000;
/// Messages that differ in numbers only are one if they are this close to each other.
const BURST_NS: u64 = 100_000_000;
/// The most complaints that are shown of a run.
const COMPLAINTS_MAX: usize = 3;

impl Record {
    /// Notes what the drill did.
    pub(super) fn event(&mut self, text: String) {
        self.events.push(Note {
            at_ns: Clock.now_ns(),
            host: None,
            text,
            times: 1,
        });
    }

    /// Notes a message of the library.
    pub(super) fn message(&mut self, host: usize, at_ns: u64, text: String) {
        let shape = (host, without_numbers(&text));
        if let Some(at) = self.last_alike.get(&shape) {
            let last = &mut self.messages[*at];
            if at_ns < last.at_ns + BURST_NS {
                last.times += 1;
                return;
            }
        }
        if self.messages.len() < MESSAGES_MAX {
            self.last_alike.insert(shape, self.messages.len());
            self.messages.push(Note {
                at_ns,
                host: Some(host),
                text,
                times: 1,
            });
        }
    }

    /// What failed and what the library warned of, each once.
    pub(super) fn complaints(&self) -> Vec<String> {
        let failures = self.events.iter().filter(|it| it.host.is_some());
        let warnings = || self.messages.iter().filter(|it| is_warning(&it.text));
        let is_early = |note: &&Note| note.at_ns < self.first_event_ns;
        // Those before the first outage are about something else, if there are others.
        let late = warnings().filter(|it| !is_early(it));
        let warnings = late.chain(warnings().filter(is_early));
        let mut complaints: Vec<String> = Vec::new();
        for note in failures.chain(warnings) {
            let host = note
                .host
                .map_or_else(String::new, |host| format!("h{host}: "));
            let text = format!("{host}{}", plain(&note.text));
            if !complaints.contains(&text) {
                complaints.push(text);
            }
        }
        complaints.truncate(COMPLAINTS_MAX);
        complaints
    }
}

/// A text without its numbers, decimal or hexadecimal.
fn without_numbers(text: &str) -> String {
    let words = text.split_inclusive(|it: char| !it.is_ascii_alphanumeric());
    let has_digit = |word: &str| word.contains(|it: char| it.is_ascii_digit());
    words.filter(|word| !has_digit(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_messages_is_one() {
        let mut record = Record::default();
        for at in 0..10 {
            let text = format!("Got completion with error (qp_num={at}, comm=0x7f{at}a)");
            record.message(0, at * 1_000_000, text);
        }
        record.message(
            1,
            0,
            "Got completion with error (qp_num=1, comm=0x7a)".to_owned(),
        );
        record.message(
            0,
            BURST_NS,
            "Got completion with error (qp_num=1, comm=0x7a)".to_owned(),
        );
        record.message(0, BURST_NS, "Device marked as failed".to_owned());
        let times = record.messages.iter().map(|it| (it.host, it.times));
        let expected = [(Some(0), 10), (Some(1), 1), (Some(0), 1), (Some(0), 1)];
        assert_eq!(times.collect::<Vec<_>>(), expected);
    }
}
