//! `ferroce res`: programs' objects on devices.

mod filter;

use std::time::Duration;

use clap::{Args, Subcommand};
use ferroce_registry::{
    CmIdRow, Counts, CqRow, Inquiry, KINDS, Kind, MrRow, PdRow, QpRow, Query, Registry, Resource,
    ResourceRow, SrqRow,
};
use serde::Serialize;
use serde_json::{Value, json};

use self::filter::Filter;
use super::ask::{Replies, ask};
use super::format::{Format, Row, print};
use crate::json::res::{Counts as Totals, Objects, On, Silent};
use crate::naming::{self, registry};
use crate::output::Document;
use crate::output::{Failure, Output};

/// How long processes may take to answer, all together: one does in a few milliseconds for each
/// thousand objects, unless it is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show queue pairs, memory regions and other objects of running programs
///
/// Each process reports its own objects; they vanish when it exits.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES, infer_subcommands = true)]
pub(crate) struct Res {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show how many objects there are; what `ferroce res` alone does. Show one kind of them with
    /// its name: qp, mr, cq, pd, srq, cm_id or ctx
    ///
    /// DEV is a device, or DEV/1; the word dev or link may stand before it. Of the objects those
    /// are shown whose KEY has the VALUE; it can be a comma-separated list, and a number a range: lqpn
    /// 65536-131071, state RTR,RTS. With --details there are more
    /// keys.
    #[command(alias = "list")]
    Show {
        /// What to show, of which device, and with which values
        #[arg(value_name = "KIND] [DEV] [KEY VALUE")]
        words: Vec<String>,
        /// The device as an option, which every command takes
        #[arg(short, long, value_name = "DEV", hide = true)]
        device: Option<String>,
    },
}

impl Res {
    pub(crate) fn run(self, details: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        let (words, device) = match self.verb {
            None => (Vec::new(), None),
            Some(Verb::Show { words, device }) => (words, device),
        };
        let mut wanted = Wanted::parse(&words)?;
        if let Some(device) = &device {
            wanted.device = Some(device);
        }
        let registry = registry(to)?;
        wanted.show(&registry, self.format.with(details), to)
    }
}

/// What is to be shown.
struct Wanted<'a> {
    /// How many there are of each if `None`.
    kind: Option<&'static Kind>,
    device: Option<&'a str>,
    filters: Vec<Filter<'a>>,
}

impl<'a> Wanted<'a> {
    fn parse(words: &'a [String]) -> Result<Self, Failure> {
        let (kind, mut rest) = match words.split_first() {
            Some((word, rest)) => match filter::kind(word)? {
                Some(kind) => (Some(kind), rest),
                None => (None, words),
            },
            None => (None, words),
        };
        let mut device = None;
        // Of an odd number of words the first is no key.
        if !rest.len().is_multiple_of(2) {
            device = Some(rest[0].as_str());
            rest = &rest[1..];
        }
        let mut filters = Vec::new();
        for pair in rest.chunks_exact(2) {
            match (pair[0].as_str(), kind) {
                ("dev" | "link", _) => device = Some(pair[1].as_str()),
                (key, Some(kind)) => filters.push(Filter::of(kind, key, &pair[1])?),
                (_, None) => {
                    return Err(Failure::input(format_args!(
                        "{:?} is not a kind of object; write {}, or a device alone",
                        words[0],
                        kind_names()
                    )));
                }
            }
        }
        Ok(Self {
            kind,
            device,
            filters,
        })
    }

    fn show(
        &self,
        registry: &Registry,
        format: Format,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if let (None, Some(name)) = (self.kind, self.device)
            && let Err(Failure::Input(error)) = naming::named(registry, name)
        {
            return Err(Failure::Input(format!(
                "{error}{name:?} is not a kind of object either: those are {}\n",
                kind_names()
            )));
        }
        let query = self.kind.map_or(Some(Query::Count), |kind| kind.query);
        let (question, mut inquiry) = ((query, PATIENCE), Inquiry::default());
        let replies = ask(registry, self.device, question, &mut inquiry, |_, _| true)?;
        match format.json {
            true => self.document(&replies, to)?,
            false => self.print(&replies, format, to)?,
        }
        let silent = replies.iter().flat_map(|device| &device.silent);
        let silent: String = silent
            .map(|silent| format!("error: {}\n", silent.line))
            .collect();
        match silent.is_empty() {
            true => Ok(()),
            // What there is was printed, and that it is not all.
            false => Err(Failure::Broken(silent)),
        }
    }

    /// Prints the objects, or how many there are of each kind, for programs.
    fn document(&self, replies: &[Replies], to: &mut Output<'_>) -> Result<(), Failure> {
        match self.kind.map(|kind| kind.query) {
            Some(Some(Query::Qp)) => self.rows(replies, QpRow::of, to),
            Some(Some(Query::Mr)) => self.rows(replies, MrRow::of, to),
            Some(Some(Query::Cq)) => self.rows(replies, CqRow::of, to),
            Some(Some(Query::Pd)) => self.rows(replies, PdRow::of, to),
            Some(Some(Query::Srq)) => self.rows(replies, SrqRow::of, to),
            Some(Some(Query::CmId)) => self.rows(replies, CmIdRow::of, to),
            Some(_) => self.objects(replies, |it| it.processes.iter().collect(), to),
            None => to.document(&Objects {
                objects: replies.iter().map(counts).collect(),
                silent: silent(replies),
            }),
        }
    }

    /// Prints what processes told of their objects.
    fn rows<'r, T: Serialize>(
        &self,
        replies: &'r [Replies],
        of: fn(&'r Resource) -> Option<&'r T>,
        to: &mut Output<'_>,
    ) -> Result<(), Failure>
    where
        Objects<On<&'r T>>: Document,
    {
        let rows = |it: &'r Replies| it.rows.iter().filter_map(of).collect();
        self.objects(replies, rows, to)
    }

    fn objects<'r, T: Serialize + 'r>(
        &self,
        replies: &'r [Replies],
        of: impl Fn(&'r Replies) -> Vec<&'r T>,
        to: &mut Output<'_>,
    ) -> Result<(), Failure>
    where
        Objects<On<&'r T>>: Document,
    {
        let mut objects = Vec::new();
        for replies in replies {
            let wanted = of(replies).into_iter().filter(|it| self.takes(&json!(it)));
            objects.extend(wanted.map(|row| On {
                device: replies.device.clone(),
                row,
            }));
        }
        let silent = silent(replies);
        to.document(&Objects { objects, silent })
    }

    fn takes(&self, object: &Value) -> bool {
        self.filters.iter().all(|it| it.takes(object))
    }

    fn print(
        &self,
        replies: &[Replies],
        format: Format,
        to: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for device in replies {
            let Some(kind) = self.kind else {
                rows.push(summary(device));
                continue;
            };
            let objects = objects(kind, device).into_iter();
            let objects = objects.filter(|it| self.takes(it));
            rows.extend(objects.map(|it| row(kind, &device.device, &it, format)));
        }
        print(&rows, to)
    }
}

fn kind_names() -> String {
    let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    names.join(", ")
}

fn silent(replies: &[Replies]) -> Vec<Silent> {
    let silent = replies.iter().flat_map(|device| {
        device.silent.iter().map(|silent| Silent {
            device: device.device.clone(),
            pid: silent.pid,
        })
    });
    silent.collect()
}

/// The keys and values of each object.
fn objects(kind: &Kind, replies: &Replies) -> Vec<Value> {
    if kind.query.is_none() {
        return replies.processes.iter().map(|it| json!(it)).collect();
    }
    // The row stands behind the name of its kind.
    let row = |it: &Resource| {
        json!(it)
            .as_object()
            .and_then(|it| it.values().next().cloned())
    };
    replies.rows.iter().filter_map(row).collect()
}

/// How many objects there are on a device.
fn counts(replies: &Replies) -> Totals {
    let (index, device) = replies.name();
    let counts = replies.rows.iter().filter_map(Counts::of);
    let sum = |part: fn(&Counts) -> u64| counts.clone().map(part).sum();
    Totals {
        device: device.to_owned(),
        index,
        pd: sum(|it| it.pd),
        cq: sum(|it| it.cq),
        qp: sum(|it| it.qp),
        cm_id: sum(|it| it.cm_id),
        mr: sum(|it| it.mr),
        srq: sum(|it| it.srq),
        ctx: sum(|it| it.ctx),
    }
}

fn summary(replies: &Replies) -> Row {
    let counts = counts(replies);
    let mut row = Row::new(format!("{}: {}:", counts.index, counts.device));
    row.put("pd", counts.pd);
    row.put("cq", counts.cq);
    row.put("qp", counts.qp);
    row.put("cm_id", counts.cm_id);
    row.put("mr", counts.mr);
    row.put("srq", counts.srq);
    row.put("ctx", counts.ctx);
    row
}

fn row(kind: &Kind, device: &str, object: &Value, format: Format) -> Row {
    let mut row = match kind.is_on_port {
        true => Row::of_link(device, object["port"].as_u64().unwrap_or(1)),
        false => Row::new(format!("dev {device}")),
    };
    for key in kind.keys().filter(|key| !key.is_detail || format.details) {
        if let Some(value) = key.value(object) {
            row.put(key.name, key.shown(value));
        }
    }
    row
}
