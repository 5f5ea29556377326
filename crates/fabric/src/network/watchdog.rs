//! The watchdog of the switches: what it sees, and what it does to a network.

use super::Network;
use crate::frame::{Frame, Parcel};
use crate::switch::PRIORITIES;
use crate::switch::watchdog::{QueueId, StormAction, Storms, Verdict};

impl<P: Parcel> Network<P> {
    /// The storms of pauses of all queues here that had some; none without a watchdog.
    pub(crate) fn storms(&self) -> Vec<Storms> {
        let watchdog = self.watchdog.as_ref();
        let mut storms = watchdog.map_or(Vec::new(), |it| it.storms(self.now));
        for it in &mut storms {
            it.port.0 = self.border.part.cables[it.port.0] as usize;
        }
        storms
    }

    /// Something has come to a port's queues, has left them, or is wanted or not.
    #[cold]
    pub(super) fn show_watchdog(&mut self, switch: usize, port: u16) {
        let Some(watchdog) = &mut self.watchdog else {
            return;
        };
        let switch = &self.switches[switch];
        let port = &switch.ports[usize::from(port)];
        let (held, unwanted) = port.held();
        if held == 0 && watchdog.is_idle() {
            return;
        }
        let lossless = switch.config.lossless;
        for priority in (0..PRIORITIES as u8).filter(|it| lossless >> it & 1 != 0) {
            let is_in = |mask: u8| mask & 1 << priority != 0;
            watchdog.look(
                self.now,
                (port.line, priority),
                is_in(held),
                is_in(unwanted),
            );
        }
        let next = watchdog.next();
        self.events.set(self.watchdog_event(), next);
    }

    /// Deadlines of the watchdog have come.
    pub(super) fn run_watchdog(&mut self) {
        while let Some(watchdog) = &mut self.watchdog
            && let Some(((line, priority), verdict)) = watchdog.expire(self.now)
        {
            let discards = watchdog.config.action == StormAction::Drop;
            let (node, port) = self.lines[line as usize].way.from;
            let switch = self.switch_index(node);
            let is_storm = verdict == Verdict::Storm;
            self.switches[switch].set_storm(port, priority, is_storm, discards);
            if is_storm && discards {
                self.drop_queue(switch, port, (line, priority));
            }
            self.serve(switch, port);
        }
        let next = self.watchdog.as_ref().and_then(|it| it.next());
        self.events.set(self.watchdog_event(), next);
    }

    /// Drops a frame that has come for a queue in a storm.
    #[cold]
    pub(super) fn discard(&mut self, switch: usize, line: u32, frame: Frame) {
        self.count_dropped(switch, (line, frame.priority), 1);
        self.lose(&frame);
    }

    /// Drops what waits in a queue in a storm.
    fn drop_queue(&mut self, switch: usize, port: u16, queue: QueueId) {
        let dropped = self.switches[switch].flush_queue(port, queue.1);
        self.count_dropped(switch, queue, dropped.len() as u64);
        for (frame, resumes) in dropped {
            self.lose(&frame);
            if resumes {
                self.tell_pause(switch, frame.ingress);
            }
        }
    }

    fn count_dropped(&mut self, switch: usize, queue: QueueId, frames: u64) {
        self.switches[switch].counters.dropped_storm += frames;
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.count_dropped(queue, frames);
        }
    }

    /// Where the event queue keeps when the watchdog has something to do.
    fn watchdog_event(&self) -> u32 {
        (self.host_lines.len() + 2 * self.lines.len()) as u32
    }
}
