//! The programs of a round: how they come, and how they end.

use std::process::{Command, Stdio};

use ferroce_torture::Finding;
use nix::sys::signal::Signal;

use super::{Pair, Round, SET_UP, STOPPED_MS, device_name, finding};
use crate::torture::crew::Member;
use crate::torture::protocol::{Order, Report};

impl Round {
    /// Starts a program at a place.
    pub(super) fn start(&mut self, place: usize) -> Result<(), Finding> {
        let device = self.dice.below(self.devices.len() as u64) as usize;
        let member = self.attach(device)?;
        self.note(format!(
            "program {} (process {}) on {} at place {place}",
            member.life,
            member.pid(),
            device_name(device)
        ));
        self.programs[place] = Some(member);
        Ok(())
    }

    pub(super) fn attach(&mut self, device: usize) -> Result<Member, Finding> {
        let started = self
            .crew
            .start(self.directory.path(), device, self.card_process);
        let member =
            started.map_err(|error| finding(SET_UP, format!("cannot start a program: {error}")))?;
        self.counts.add("programs", 1);
        let attached = |report: &Report| matches!(report, Report::Attached).then_some(());
        self.answer(member.life, "attached", attached)?;
        Ok(member)
    }

    /// Has a program come and go.
    pub(super) fn visit(&mut self, device: usize) -> Result<(), Finding> {
        self.note(format!("a visitor on {}", device_name(device)));
        let visitor = self.attach(device)?;
        self.dismiss(visitor)
    }

    /// Has the program at a place leave its device and end.
    pub(super) fn leave(&mut self, place: usize) -> Result<(), Finding> {
        match self.programs[place].take() {
            None => Ok(()),
            Some(program) => {
                self.note(format!("program {} leaves", program.life));
                self.lonely.retain(|_, life| *life != program.life);
                self.dismiss(program)
            }
        }
    }

    pub(super) fn dismiss(&mut self, mut program: Member) -> Result<(), Finding> {
        let life = program.life;
        program.order(Order::Leave);
        let left = |report: &Report| match report {
            Report::Left { kept } => Some(kept.clone()),
            _ => None,
        };
        let kept = self.answer(life, "left", left)?;
        if !kept.is_empty() {
            let what = format!(
                "program {life} has left its device and kept {}",
                kept.join(", ")
            );
            return Err(finding("kept", what));
        }
        self.counts.add("left", 1);
        match program.has_ended_well() {
            true => Ok(()),
            false => Err(finding("ended", format!("program {life} has failed"))),
        }
    }

    pub(super) fn signal(&mut self, place: usize, signal: Signal) {
        if let Some(program) = &self.programs[place] {
            program.signal(signal);
            let what = format!("{signal} to program {}", program.life);
            self.note(what);
        }
        if signal == Signal::SIGSTOP {
            self.counts.add("stopped", 1);
        }
    }

    /// Attaches a debugger to a program for a while, if there is one.
    pub(super) fn debug(&mut self, place: usize) {
        let Some(program) = &self.programs[place] else {
            return;
        };
        let (life, pid) = (program.life, program.pid().to_string());
        self.note(format!("a debugger attaches to program {life}"));
        let hold = format!("shell sleep 0.{:03}", self.dice.within(STOPPED_MS));
        let commands = ["-ex", "thread apply all backtrace 1", "-ex", &hold];
        let ended = Command::new("gdb")
            .args(["-nx", "-batch", "-p", &pid])
            .args(commands)
            .stdin(Stdio::null())
            .output();
        let has_attached =
            ended.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("detached]"));
        self.counts.add("debugged", has_attached.into());
        self.note("it has gone");
    }

    /// Kills the program at a place. Returns the places of those that were connected with it.
    pub(super) fn kill(&mut self, place: usize) -> Vec<usize> {
        let Some(program) = self.programs[place].take() else {
            return Vec::new();
        };
        let life = program.life;
        self.note(format!("program {life} is killed"));
        program.kill();
        self.counts.add("killed", 1);
        self.lonely.retain(|_, of| *of != life);
        let partners = self.partners(place);
        let (gone, stay) = self
            .pairs
            .iter()
            .partition(|pair| pair.programs.contains(&place));
        self.pairs = stay;
        for pair in Vec::<Pair>::clone(&gone) {
            for (partner, end) in pair.ends() {
                if partner != place {
                    self.lonely.insert(end, self.life(partner));
                }
            }
        }
        partners
    }

    /// The other program of each pair of one.
    pub(super) fn partners(&self, place: usize) -> Vec<usize> {
        let with = self.pairs.iter().map(|it| it.programs);
        with.filter_map(|programs| match programs {
            [a, b] if a == place => Some(b),
            [a, b] if b == place => Some(a),
            _ => None,
        })
        .collect()
    }

    /// Starts a program at a place, and connects it with others.
    pub(super) fn start_with(&mut self, place: usize, partners: Vec<usize>) -> Result<(), Finding> {
        self.start(place)?;
        partners
            .into_iter()
            .try_for_each(|partner| self.connect(place, partner))
    }

    pub(super) fn replace(&mut self, place: usize) -> Result<(), Finding> {
        let partners = self.kill(place);
        self.start_with(place, partners)
    }
}
