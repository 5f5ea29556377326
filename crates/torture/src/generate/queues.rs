//! Completion queues, some of which are too small, and programs that do not poll them.

use super::Draft;
use crate::script::Step;

/// Numbers of a host's completion queues, apart from the one that is large.
const QUEUES: u64 = 3;

impl Draft {
    pub(super) fn queues(&mut self) {
        if self.dice.chance(60) {
            return;
        }
        for host in 0..self.hosts {
            for id in 1..=QUEUES {
                let size = self.dice.pick(&[1, 2, 8, 64, 1_024, 4_096, 4_096, 4_096]);
                self.add(0, host, Step::Cq { id, size });
            }
        }
        // They exist before the queue pairs.
        self.lines.sort_by_key(|line| {
            (
                line.at,
                !matches!(line.step, Step::Host { .. } | Step::Cq { .. }),
            )
        });
        let share = self.dice.pick(&[10, 50, 100]);
        for line in 0..self.lines.len() {
            if !self.dice.chance(share) {
                continue;
            }
            let (sends, receives) = (self.dice.below(QUEUES + 1), self.dice.below(QUEUES + 1));
            if let Step::Qp {
                send_cq, recv_cq, ..
            } = &mut self.lines[line].step
            {
                (*send_cq, *recv_cq) = (sends, receives);
            }
        }
        for host in 0..self.hosts {
            for _ in 0..self.dice.below(4) {
                let (at, ns) = (self.dice.below(self.lasts), self.dice.below(self.lasts / 2));
                self.add(at, host, Step::Idle { ns });
            }
            for _ in 0..self.dice.below(3) {
                let at = self.dice.below(self.lasts);
                let (cq, size) = (
                    self.dice.within(1..=QUEUES),
                    self.dice.pick(&[1, 8, 64, 4_096]),
                );
                self.add(at, host, Step::ResizeCq { cq, size });
            }
        }
    }
}
