//! The end that receives.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferroce_hca::{Completion, WcStatus};

use super::error::Error;
use super::plan::Plan;
use super::rig::{DEPTH, End, QPS, RECEIVES};
use super::run::{NAP, TAKE};
use super::workload::{Message, Messages, Op, Pattern};

/// What the two threads tell each other.
#[derive(Debug)]
pub(crate) struct Shared {
    /// How many SENDs are done, once nothing more will come; [`u64::MAX`] before.
    pub(crate) sends_done: AtomicU64,
    /// The server has found an error and ended.
    pub(crate) failed: AtomicBool,
    /// Receive requests posted for each queue pair, ever.
    pub(crate) receives: [AtomicU64; QPS],
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            sends_done: AtomicU64::new(u64::MAX),
            failed: AtomicBool::new(false),
            receives: [const { AtomicU64::new(0) }; QPS],
        }
    }
}

/// Posts receives, and looks at what the SENDs brought.
pub(crate) struct Server<'a> {
    end: &'a End,
    pattern: &'a Pattern,
    shared: &'a Shared,
    /// The SENDs of each queue pair that are still to come.
    sends: Vec<Box<dyn Iterator<Item = Message> + Send>>,
    scratch: Vec<u8>,
}

impl<'a> Server<'a> {
    pub(crate) fn new(plan: &Plan, end: &'a End, pattern: &'a Pattern, shared: &'a Shared) -> Self {
        let sends = |qp| -> Box<dyn Iterator<Item = Message> + Send> {
            let messages = Messages::new(plan.seed, plan.bytes, qp, QPS);
            Box::new(messages.filter(|message| message.op == Op::Send))
        };
        Self {
            end,
            pattern,
            shared,
            sends: (0..QPS).map(sends).collect(),
            scratch: Vec::new(),
        }
    }

    pub(crate) fn post_all(&mut self) -> Result<(), Error> {
        for qp in 0..QPS {
            for place in 0..RECEIVES {
                self.post(qp, DEPTH + place)?;
            }
        }
        Ok(())
    }

    fn post(&self, qp: usize, place: usize) -> Result<(), Error> {
        self.end.post_recv(qp, place)?;
        self.shared.receives[qp].fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Serves until told to stop. False if something wrong arrived.
    pub(crate) fn serve(&mut self) -> Result<bool, Error> {
        let result = self.serve_until_stop();
        if !matches!(result, Ok(true)) {
            self.shared.failed.store(true, Ordering::Release);
        }
        result
    }

    fn serve_until_stop(&mut self) -> Result<bool, Error> {
        let mut completions = Vec::with_capacity(TAKE);
        let mut verified = 0;
        // What the client knows to be done has completed here before.
        while verified < self.shared.sends_done.load(Ordering::Acquire) {
            let end = self.end;
            end.device.wait(end.cq, TAKE, &mut completions, NAP)?;
            for completion in completions.drain(..) {
                if completion.status != WcStatus::Success {
                    return Err(Error::Internal(format!(
                        "a receive ended with {}",
                        completion.status.name()
                    )));
                }
                if !self.verify(&completion) {
                    return Ok(false);
                }
                let qp = self.end.index_of(completion.qpn);
                verified += 1;
                self.post(qp, completion.wr_id as usize)?;
            }
        }
        Ok(true)
    }

    fn verify(&mut self, completion: &Completion) -> bool {
        let qp = self.end.index_of(completion.qpn);
        let Some(message) = self.sends[qp].next() else {
            return false;
        };
        if (completion.imm, completion.byte_len) != (message.number as u32, message.len) {
            return false;
        }
        self.scratch.resize(message.len as usize, 0);
        let place = self.end.place(qp, completion.wr_id as usize);
        self.end.buffer.read(place, &mut self.scratch);
        self.scratch == self.pattern.of(&message)
    }
}
