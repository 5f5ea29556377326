//! The connection matrices of htsim.

use std::collections::BTreeMap;

use ferroce_base::time::{Span, Time};
use ferroce_base::units::Decimal;

use super::plan::{MESSAGE_BYTES_MAX, Message, Plan, Sending};
use super::{TRANSFERS_MAX, Workload, WorkloadError};
use crate::text::{ReadError, integer};
use crate::topology::HOSTS_MAX;

impl Workload {
    /// Reads a connection matrix of htsim (`.cm`).
    ///
    /// `Nodes`, `Connections` and `Triggers` come first. A connection is `SRC->DST` and what follows on
    /// its line: `size` in bytes, `start` in picoseconds or `trigger` with the number of what starts it,
    /// `send_done_trigger` and `recv_done_trigger` with the number of what it fires, `id` and `prio`,
    /// which have no meaning here. A trigger is `trigger id NUMBER` and `oneshot`, `multishot`, or
    /// `barrier count N`. Lines that begin with `#` are comments.
    ///
    /// Both triggers of a connection fire when all of it has been delivered; in htsim
    /// `send_done_trigger` waits for the last acknowledgement, half a round trip longer. A trigger that
    /// is no barrier is fired by one connection, a barrier by as many as it counts.
    pub fn from_htsim(text: &str) -> Result<Self, ReadError> {
        let mut reader = Reader::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if !content.is_empty() && !content.starts_with('#') {
                reader.line(line, content)?;
            }
        }
        reader.finish()
    }
}

/// A trigger, and what is known of it so far.
#[derive(Default)]
struct Trigger {
    /// How many connections fire it, and where that is said.
    defined: Option<(u32, usize)>,
    fired_by: Vec<Message>,
    starts: Vec<Message>,
    /// Where it was mentioned first.
    line: usize,
}

struct Reader {
    /// Where and how many: nodes, connections, triggers.
    nodes: Option<u32>,
    connections: Option<(usize, u32)>,
    triggers: Option<(usize, u32)>,
    connections_read: u32,
    all_triggers: BTreeMap<u32, Trigger>,
    plan: Plan,
    last_line: usize,
}

/// What the words after a connection say.
#[derive(Default)]
struct Attributes {
    size: Option<u64>,
    start: Option<Time>,
    trigger: Option<u32>,
    fires: Vec<u32>,
}

impl Reader {
    fn new() -> Self {
        Self {
            nodes: None,
            connections: None,
            triggers: None,
            connections_read: 0,
            all_triggers: BTreeMap::new(),
            plan: Plan::begin("connections"),
            last_line: 1,
        }
    }

    fn line(&mut self, line: usize, content: &str) -> Result<(), ReadError> {
        self.last_line = line;
        let mut words = content.split_whitespace();
        let first = words.next().unwrap_or_default();
        let mut count = |what, max| {
            let word = words.next().unwrap_or_default();
            integer(line, what, word, 0, max)
        };
        match first {
            "Nodes" => self.nodes = Some(count("number of nodes", HOSTS_MAX)?),
            "Connections" => {
                self.connections = Some((line, count("number of connections", TRANSFERS_MAX)?));
            }
            "Triggers" => {
                self.triggers = Some((line, count("number of triggers", TRANSFERS_MAX)?));
            }
            "Failures" => {
                if count("number of failures", u32::MAX)? != 0 {
                    return Err(failures(line));
                }
            }
            "failure" => return Err(failures(line)),
            "trigger" => return self.define(line, words),
            _ => match first.split_once("->") {
                Some(ends) => return self.connection(line, ends, words),
                None => {
                    let must = "Nodes, Connections, Triggers, trigger, or a connection like 3->5";
                    return Err(ReadError::invalid(line, "keyword", first, must));
                }
            },
        }
        match words.next() {
            None => Ok(()),
            Some(more) => Err(ReadError::invalid(
                line,
                "word",
                more,
                "the end of the line",
            )),
        }
    }

    fn connection<'a>(
        &mut self,
        line: usize,
        (src, dst): (&str, &str),
        words: impl Iterator<Item = &'a str>,
    ) -> Result<(), ReadError> {
        let Some(nodes) = self.nodes.filter(|nodes| *nodes > 0) else {
            let message = "a connection before the number of nodes; begin with a line \"Nodes N\"";
            return Err(ReadError::new(line, message));
        };
        let src = integer(line, "sender", src, 0, nodes - 1)?;
        let dst = integer(line, "receiver", dst, 0, nodes - 1)?;
        if src == dst {
            let message = "a node sends to itself; choose another sender or receiver";
            return Err(ReadError::new(line, message));
        }
        let it = attributes(line, words)?;
        let Some(bytes) = it.size else {
            let message = "the connection has no size; add \"size BYTES\"";
            return Err(ReadError::new(line, message));
        };
        let at = match (it.start, it.trigger) {
            (Some(at), None) => at,
            (None, Some(_)) => Time::ZERO,
            (Some(_), Some(_)) => {
                let message = "the connection has a start and a trigger; remove one of them";
                return Err(ReadError::new(line, message));
            }
            (None, None) => {
                let message =
                    "the connection never starts; add \"start PICOSECONDS\" or \"trigger ID\"";
                return Err(ReadError::new(line, message));
            }
        };
        self.plan
            .allow(bytes)
            .map_err(|error| ReadError::new(line, error))?;
        let think = Span::ZERO;
        let message = self.plan.send(
            Sending {
                src,
                dst,
                bytes,
                at,
                think,
            },
            &[],
        );
        self.connections_read += 1;
        if let Some(trigger) = it.trigger {
            self.trigger(line, trigger).starts.push(message);
        }
        for trigger in it.fires {
            self.trigger(line, trigger).fired_by.push(message);
        }
        Ok(())
    }

    fn trigger(&mut self, line: usize, id: u32) -> &mut Trigger {
        self.all_triggers.entry(id).or_insert_with(|| Trigger {
            line,
            ..Trigger::default()
        })
    }

    fn define<'a>(
        &mut self,
        line: usize,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), ReadError> {
        let (mut id, mut count, mut is_barrier) = (None, None, None);
        while let Some(word) = words.next() {
            match word {
                "id" => id = Some(number(line, "trigger", words.next())?),
                "count" => count = Some(number(line, "count", words.next())?),
                "oneshot" | "multishot" => is_barrier = Some(false),
                "barrier" => is_barrier = Some(true),
                _ => {
                    let must = "id, count, oneshot, multishot or barrier";
                    return Err(ReadError::invalid(line, "word", word, must));
                }
            }
        }
        let fired_by = match (is_barrier, count) {
            (Some(false), None) => 1,
            (Some(true), Some(count)) => count,
            _ => {
                let message =
                    "the trigger needs one of \"oneshot\", \"multishot\" and \"barrier count N\"";
                return Err(ReadError::new(line, message));
            }
        };
        let Some(id) = id else {
            let message = "the trigger has no number; add \"id NUMBER\"";
            return Err(ReadError::new(line, message));
        };
        let trigger = self.trigger(line, id);
        if let Some((_, before)) = trigger.defined.replace((fired_by, line)) {
            let message =
                format!("trigger {id} is defined twice, first on line {before}; remove one");
            return Err(ReadError::new(line, message));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Workload, ReadError> {
        let defined = self.all_triggers.values().filter(|it| it.defined.is_some());
        let defined = defined.count() as u32;
        for (what, said, read) in [
            ("connections", self.connections, self.connections_read),
            ("triggers", self.triggers, defined),
        ] {
            if let Some((line, said)) = said.filter(|it| it.1 != read) {
                let message = format!("{said} {what} are announced, but the file has {read}");
                return Err(ReadError::new(line, message));
            }
        }
        if self.nodes.is_none() {
            let message = "the file has no number of nodes; begin with a line \"Nodes N\"";
            return Err(ReadError::new(self.last_line, message));
        }
        for (id, trigger) in &self.all_triggers {
            pull(&mut self.plan, *id, trigger)?;
        }
        Ok(self.plan.finish())
    }
}

/// What a trigger starts waits for what fires it.
fn pull(plan: &mut Plan, id: u32, trigger: &Trigger) -> Result<(), ReadError> {
    if trigger.starts.is_empty() {
        return Ok(());
    }
    let Some((count, line)) = trigger.defined else {
        let message =
            format!("trigger {id} is not defined; add a line \"trigger id {id} oneshot\"");
        return Err(ReadError::new(trigger.line, message));
    };
    let fired_by = trigger.fired_by.len();
    if fired_by != count as usize {
        let message = format!(
            "trigger {id} is fired by {fired_by} connections: must be {count}; name it as \
             send_done_trigger or recv_done_trigger of {count}, or make it a \"barrier count N\""
        );
        return Err(ReadError::new(line, message));
    }
    for &after in &trigger.starts {
        for &before in &trigger.fired_by {
            let located = |error: WorkloadError| ReadError::new(line, error);
            plan.wait(after, before).map_err(located)?;
        }
    }
    Ok(())
}

fn attributes<'a>(
    line: usize,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<Attributes, ReadError> {
    let mut it = Attributes::default();
    while let Some(word) = words.next() {
        match word {
            "id" => drop(number(line, "id", words.next())?),
            "prio" => {
                let value = words.next().unwrap_or_default();
                integer(line, "prio", value, 0, u32::MAX)?;
            }
            "size" => {
                let value = words.next().unwrap_or_default();
                it.size = Some(integer(line, "size", value, 1, MESSAGE_BYTES_MAX)?);
            }
            "start" => it.start = Some(start(line, words.next().unwrap_or_default())?),
            "trigger" => it.trigger = Some(number(line, "trigger", words.next())?),
            "send_done_trigger" | "recv_done_trigger" => {
                it.fires.push(number(line, "trigger", words.next())?);
            }
            _ => {
                let must = "id, size, start, trigger, send_done_trigger, recv_done_trigger or prio";
                return Err(ReadError::invalid(line, "word", word, must));
            }
        }
    }
    // One that names the same trigger for both fires it once.
    it.fires.dedup();
    Ok(it)
}

/// A number of something; 0 is none.
fn number(line: usize, what: &str, word: Option<&str>) -> Result<u32, ReadError> {
    integer(line, what, word.unwrap_or_default(), 1, u32::MAX)
}

fn start(line: usize, word: &str) -> Result<Time, ReadError> {
    let number: Option<Decimal> = word.parse().ok();
    let at = number.and_then(|it| it.times(1)).map(Time::from_picos);
    at.filter(|at| *at < Time::NEVER).ok_or_else(|| {
        let must = "a whole number of picoseconds, less than 213 days";
        ReadError::invalid(line, "start", word, must)
    })
}

fn failures(line: usize) -> ReadError {
    let message = "failures are not read; remove them, and describe them as faults of the scenario";
    ReadError::new(line, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: &str = "\
# A ring of three, two steps
Nodes 4
Connections 5
Triggers 3

0->1 id 1 start 1000 size 2000 send_done_trigger 1
1->2 id 2 trigger 1 size 2000 recv_done_trigger 2 prio 3
2->0 id 3 start 5.0 size 3000000000 recv_done_trigger 2
0->3 id 4 trigger 2 size 1 send_done_trigger 7 recv_done_trigger 7
3->1 id 5 trigger 7 size 9
trigger id 1 oneshot
trigger id 2 barrier count 2
trigger id 7 multishot
";

    #[test]
    fn a_matrix_is_read() {
        let workload = Workload::from_htsim(RING).unwrap();
        let transfers: Vec<_> = workload
            .transfers
            .iter()
            .map(|it| (it.src, it.dst, it.bytes, it.at.as_picos()))
            .collect();
        let gib = 1 << 30;
        assert_eq!(
            transfers,
            [
                (0, 1, 2_000, 1_000),
                (1, 2, 2_000, 0),
                (2, 0, gib, 5),
                (2, 0, gib, 5),
                (2, 0, 3_000_000_000 - 2 * gib, 5),
                (0, 3, 1, 0),
                (3, 1, 9, 0),
            ]
        );
        let edges: Vec<_> = workload.edges.iter().map(|it| (it.0.0, it.1.0)).collect();
        assert_eq!(edges, [(0, 1), (1, 5), (2, 5), (3, 5), (4, 5), (5, 6)]);
    }

    #[test]
    fn mistakes_have_a_line() {
        let error = |from: &str, to: &str| {
            let text = RING.replace(from, to);
            assert_ne!(text, RING, "{from}");
            Workload::from_htsim(&text).unwrap_err().to_string()
        };
        assert_eq!(
            error("Nodes 4", "Nodes x"),
            "line 2: invalid number of nodes \"x\": must be an integer from 0 to 65536"
        );
        assert_eq!(
            error("Nodes 4", ""),
            "line 6: a connection before the number of nodes; begin with a line \"Nodes N\""
        );
        assert_eq!(
            error("Connections 5", "Connections 6"),
            "line 3: 6 connections are announced, but the file has 5"
        );
        assert_eq!(
            error("Triggers 3", "Triggers 3 4"),
            "line 4: invalid word \"4\": must be the end of the line"
        );
        assert_eq!(
            error("Triggers 3", "Failures 1"),
            "line 4: failures are not read; remove them, and describe them as faults of the scenario"
        );
        assert_eq!(
            error("3->1", "3->4"),
            "line 10: invalid receiver \"4\": must be an integer from 0 to 3"
        );
        assert_eq!(
            error("3->1", "3->3"),
            "line 10: a node sends to itself; choose another sender or receiver"
        );
        assert_eq!(
            error("3->1", "3-1"),
            "line 10: invalid keyword \"3-1\": must be Nodes, Connections, Triggers, trigger, \
             or a connection like 3->5"
        );
        assert_eq!(
            error(" size 9", ""),
            "line 10: the connection has no size; add \"size BYTES\""
        );
        assert_eq!(
            error("size 9", "size 0"),
            "line 10: invalid size \"0\": must be an integer from 1 to 68719476736"
        );
        assert_eq!(
            error("start 1000", ""),
            "line 6: the connection never starts; add \"start PICOSECONDS\" or \"trigger ID\""
        );
        assert_eq!(
            error("start 1000", "start 1000 trigger 7"),
            "line 6: the connection has a start and a trigger; remove one of them"
        );
        assert_eq!(
            error("start 1000", "start 0.5"),
            "line 6: invalid start \"0.5\": must be a whole number of picoseconds, less than 213 days"
        );
        assert_eq!(
            error("id 1 ", "id 0 "),
            "line 6: invalid id \"0\": must be an integer from 1 to 4294967295"
        );
        assert_eq!(
            error("prio 3", "color red"),
            "line 7: invalid word \"color\": must be id, size, start, trigger, send_done_trigger, \
             recv_done_trigger or prio"
        );
        assert_eq!(
            error("trigger id 7 multishot", "# none\nTriggers 2"),
            "line 9: trigger 7 is not defined; add a line \"trigger id 7 oneshot\""
        );
        assert_eq!(
            error("barrier count 2", "oneshot"),
            "line 12: trigger 2 is fired by 2 connections: must be 1; name it as send_done_trigger or \
             recv_done_trigger of 1, or make it a \"barrier count N\""
        );
        assert_eq!(
            error("barrier count 2", "barrier"),
            "line 12: the trigger needs one of \"oneshot\", \"multishot\" and \"barrier count N\""
        );
        assert_eq!(
            error("trigger id 7", "trigger id 1"),
            "line 13: trigger 1 is defined twice, first on line 11; remove one"
        );
        assert_eq!(
            error("trigger id 7 ", "trigger "),
            "line 13: the trigger has no number; add \"id NUMBER\""
        );
        assert_eq!(
            Workload::from_htsim("").unwrap_err().to_string(),
            "line 1: the file has no number of nodes; begin with a line \"Nodes N\""
        );
    }

    #[test]
    fn cyclic_waits_are_found_by_the_check() {
        let text = "Nodes 2\n0->1 trigger 1 size 1 recv_done_trigger 2\n\
                    1->0 trigger 2 size 1 recv_done_trigger 1\n\
                    trigger id 1 oneshot\ntrigger id 2 oneshot\n";
        let workload = Workload::from_htsim(text).unwrap();
        let cable = crate::topology::CableSpec::new(crate::Rate::from_mbps(1_000), Span::ZERO);
        let pair = crate::Topology::pair(cable).unwrap();
        let error = workload.check(&pair).unwrap_err().to_string();
        assert!(
            error.starts_with("transfers wait for each other: "),
            "{error}"
        );
    }
}
