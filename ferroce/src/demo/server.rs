//! The receiving end.

use ferroce_device::{Completion, WcStatus};

use super::error::Error;
use super::plan::Plan;
use super::rig::{DEPTH, End, QPS, RECEIVES};
use super::run::TAKE;
use super::workload::{Message, Messages, Op, Pattern};

/// Posts receives, and looks at what the SENDs brought.
pub(crate) struct Server<'a> {
    end: &'a End,
    pattern: &'a Pattern,
    /// The SENDs of each queue pair that are still to come.
    sends: Vec<Box<dyn Iterator<Item = Message>>>,
    /// Receive requests posted for each queue pair, ever.
    receives: [u64; QPS],
    /// SENDs that have arrived whole.
    received: u64,
    completions: Vec<Completion>,
    scratch: Vec<u8>,
}

impl<'a> Server<'a> {
    pub(crate) fn new(plan: &Plan, end: &'a End, pattern: &'a Pattern) -> Self {
        let sends = |qp| -> Box<dyn Iterator<Item = Message>> {
            let messages = Messages::new(plan.seed, plan.bytes, qp, QPS);
            Box::new(messages.filter(|message| message.op == Op::Send))
        };
        Self {
            end,
            pattern,
            sends: (0..QPS).map(sends).collect(),
            receives: [0; QPS],
            received: 0,
            completions: Vec::with_capacity(TAKE),
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

    fn post(&mut self, qp: usize, place: usize) -> Result<(), Error> {
        self.end.post_recv(qp, place)?;
        self.receives[qp] += 1;
        Ok(())
    }

    /// Receive requests posted for a queue pair, ever.
    pub(crate) fn receives(&self, qp: usize) -> u64 {
        self.receives[qp]
    }

    /// SENDs that have arrived whole.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Takes what has been received. False if something wrong was.
    pub(crate) fn serve(&mut self) -> Result<bool, Error> {
        loop {
            let mut completions = std::mem::take(&mut self.completions);
            self.end.take(&mut completions)?;
            let is_last = completions.len() < completions.capacity();
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
                self.received += 1;
                self.post(qp, completion.wr_id as usize)?;
            }
            self.completions = completions;
            if is_last {
                return Ok(true);
            }
        }
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
