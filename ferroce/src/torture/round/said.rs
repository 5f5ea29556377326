//! What programs are told, and what they say.

use std::time::{Duration, Instant};

use ferroce_torture::Finding;

use super::{Round, finding};
use crate::torture::crew::{Line, Said};
use crate::torture::protocol::{End, Order, Report};

/// How long anything may take on a busy machine that is not a retransmission timeout.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of standard error that are kept.
const MESSAGES_MAX: usize = 20;
/// How a queue pair fails whose peer is gone.
const GIVEN_UP: (&str, u32) = ("IBV_WC_RETRY_EXC_ERR", 129);

impl Round {
    pub(super) fn order(&mut self, place: usize, order: Order) {
        if let Some(program) = &mut self.programs[place] {
            program.order(order);
        }
    }

    pub(super) fn life(&self, place: usize) -> u64 {
        self.programs[place].as_ref().map_or(0, |it| it.life)
    }

    pub(super) fn is_alive(&self, life: u64) -> bool {
        self.programs.iter().flatten().any(|it| it.life == life)
    }

    /// Gives an order and returns what `take` makes of the answer.
    pub(super) fn ask<T>(
        &mut self,
        place: usize,
        order: Order,
        take: impl Fn(&Report) -> Option<T>,
    ) -> Result<T, Finding> {
        self.order(place, order);
        self.answer(self.life(place), &format!("answered {order:?}"), take)
    }

    pub(super) fn answer<T>(
        &mut self,
        life: u64,
        what: &str,
        take: impl Fn(&Report) -> Option<T>,
    ) -> Result<T, Finding> {
        let until = Instant::now() + PATIENCE;
        while let Some(said) = self
            .crew
            .next(until.saturating_duration_since(Instant::now()))
        {
            if let (true, Line::Report(report)) = (said.life == life, &said.what)
                && let Some(taken) = take(report)
            {
                return Ok(taken);
            }
            self.hear(said)?;
        }
        Err(hang(life, what))
    }

    /// Hears what programs say until something is so.
    pub(super) fn wait(
        &mut self,
        life: u64,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<(), Finding> {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            let left = until.saturating_duration_since(Instant::now());
            let said = self.crew.next(left).ok_or_else(|| hang(life, what))?;
            self.hear(said)?;
        }
        Ok(())
    }

    /// Judges what no order has asked for.
    pub(super) fn hear(&mut self, said: Said) -> Result<(), Finding> {
        let Said { life, what } = said;
        match what {
            Line::Message(text) => {
                if self.messages.len() == MESSAGES_MAX {
                    self.messages.pop_front();
                }
                self.messages.push_back(format!("program {life}: {text}"));
                Ok(())
            }
            Line::Report(Report::Wrong { rule, what }) => {
                Err(finding(&rule, format!("program {life}: {what}")))
            }
            // A last word that was under way.
            _ if !self.is_alive(life) => Ok(()),
            Line::Ended => Err(finding(
                "ended",
                format!("program {life} has ended by itself"),
            )),
            Line::Report(Report::Broken {
                end,
                status,
                vendor_err,
                tally,
            }) => {
                let End { pair, side } = end;
                let failed = format!("pair {pair}, side {side}: {status} ({vendor_err})");
                if self.lonely.remove(&end).is_none() {
                    let what = format!("{failed}, though the peer was not killed");
                    return Err(finding("status", what));
                }
                if (status.as_str(), vendor_err) != GIVEN_UP {
                    let what =
                        format!("{failed} instead of {GIVEN_UP:?} after the peer was killed");
                    return Err(finding("status", what));
                }
                self.note(&failed);
                self.counts.add("pairs broken", 1);
                self.count(&tally);
                Ok(())
            }
            Line::Report(report) => {
                let what = format!("program {life} has said {report:?} unasked");
                Err(finding("protocol", what))
            }
        }
    }

    /// A finding with what programs have printed.
    pub(super) fn with_messages(&mut self, mut finding: Finding) -> Finding {
        // The last ones may be under way.
        while let Some(Said { life, what }) = self.crew.next(Duration::from_millis(100)) {
            if let Line::Message(text) = what {
                self.messages.push_back(format!("program {life}: {text}"));
            }
        }
        for message in self.messages.drain(..) {
            finding.what.push_str("; ");
            finding.what.push_str(&message);
        }
        finding
    }
}

fn hang(life: u64, what: &str) -> Finding {
    let seconds = PATIENCE.as_secs();
    finding(
        "hang",
        format!("program {life} has not {what} within {seconds} s"),
    )
}
