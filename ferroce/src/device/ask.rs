//! Queries the processes on devices about their objects.

use std::time::{Duration, Instant};

use ferroce_registry::{
    Answer, DeviceSpec, Inquiry, Observer, Process, Query, QueryError, Registry, Resource,
};

use crate::naming::{devices, observe};
use crate::output::Failure;

/// Looked at at a time; each device takes two descriptors.
const DEVICES_AT_A_TIME: usize = 64;

/// What the processes on a device have replied.
pub(super) struct Replies {
    index: usize,
    /// Its name.
    pub(super) device: String,
    /// Those that were to be asked.
    pub(super) processes: Vec<Process>,
    pub(super) rows: Vec<Resource>,
    /// Those that did not answer.
    pub(super) silent: Vec<Silent>,
}

/// A process that did not answer.
pub(super) struct Silent {
    pub(super) pid: u32,
    /// Device, process and reason.
    pub(super) line: String,
}

/// Asks the processes on all devices, or on that of a name, for which `is_asked`; without a query
/// there is nothing but them. All together get `patience`; once that is over, those on each 64
/// devices get 10 ms for each 128 of them.
pub(super) fn ask(
    registry: &Registry,
    name: Option<&str>,
    (query, patience): (Option<Query>, Duration),
    inquiry: &mut Inquiry,
    is_asked: fn(&Observer, &Process) -> bool,
) -> Result<Vec<Replies>, Failure> {
    let devices = devices(registry, name)?;
    ask_on(registry, &devices, (query, patience), inquiry, is_asked)
}

/// The same for these devices.
pub(super) fn ask_on(
    registry: &Registry,
    devices: &[(usize, DeviceSpec)],
    (query, patience): (Option<Query>, Duration),
    inquiry: &mut Inquiry,
    is_asked: fn(&Observer, &Process) -> bool,
) -> Result<Vec<Replies>, Failure> {
    let until = Instant::now() + patience;
    let mut all = Vec::new();
    for some in devices.chunks(DEVICES_AT_A_TIME) {
        let observers = some.iter().map(|(_, spec)| observe(registry, spec));
        let observers: Vec<_> = observers.collect::<Result<_, _>>()?;
        let replies = observers.iter().zip(some).map(|(observer, (index, spec))| {
            let mut processes = processes(observer)?;
            processes.retain(|process| is_asked(observer, process));
            Ok(Replies {
                index: *index,
                device: spec.name.clone(),
                processes,
                rows: Vec::new(),
                silent: Vec::new(),
            })
        });
        let mut replies: Vec<_> = replies.collect::<Result<_, Failure>>()?;
        if let Some(query) = query {
            let questions = observers.iter().zip(&replies);
            let questions = questions.flat_map(|(observer, replies)| {
                replies
                    .processes
                    .iter()
                    .map(move |process| (observer, process))
            });
            let questions: Vec<_> = questions.collect();
            let mut answers = inquiry.ask(&questions, query, until).into_iter();
            replies.iter_mut().for_each(|it| it.hear(&mut answers));
        }
        all.append(&mut replies);
    }
    Ok(all)
}

impl Replies {
    /// The place of the device among all, and its name.
    pub(super) fn name(&self) -> (usize, &str) {
        (self.index, &self.device)
    }

    /// Takes an answer for each process.
    fn hear(&mut self, answers: &mut impl Iterator<Item = Answer>) {
        for (process, answer) in self.processes.iter().zip(answers) {
            match answer {
                Ok(rows) => self.rows.extend(rows),
                // It has ended since, and its objects with it.
                Err(QueryError::Gone { .. }) => {}
                Err(error) => {
                    let pid = process.pid;
                    let line = format!("{}: process {pid}: {error}", self.device);
                    self.silent.push(Silent { pid, line });
                }
            }
        }
    }
}

fn processes(observer: &Observer) -> Result<Vec<Process>, Failure> {
    observer.processes().map_err(|error| {
        Failure::broken(format_args!(
            "cannot see who has {} open: {error}",
            observer.spec().name
        ))
    })
}
