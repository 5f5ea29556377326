//! Two devices connected by a link in memory, each driven by hand in virtual time.

#![allow(dead_code, reason = "no test uses all of it")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::rc::Rc;

use ferroce_device::{
    Attr, Buffer, Counter, Data, Hca, HcaConfig, Memory, Outgoing, Psn, QpAttr, QpModify, QpState,
    Qpn, Received, SendOp, SendWr, Span, Time, WcStatus,
};
use ferroce_driver::{
    Aside, Both, Clock, Driver, Full, Link, Ring, Sent, Taken, Waiting, drive_both,
};
use ferroce_testing::direct::{ADDRESSES, End, attr, connected};

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
const MEMORY: usize = 256 << 10;

type Packets = Rc<RefCell<VecDeque<(Outgoing, Vec<u8>)>>>;

/// Packets in flight, and the calls that the link received.
pub(crate) struct Memories {
    own: usize,
    staged: Vec<(Outgoing, Vec<u8>)>,
    out: Packets,
    arrived: Packets,
    /// Packets that one receive call brings.
    pub(crate) batch: usize,
    /// Packets that one send call takes.
    pub(crate) room: usize,
    /// What the link reports as the bytes of its packets, if not the real number.
    pub(crate) reported: usize,
    pub(crate) is_blocked: bool,
    pub(crate) is_gone: bool,
    /// Packets of each send call.
    pub(crate) sends: Vec<usize>,
    /// Receive calls.
    pub(crate) receives: usize,
    /// How long each of them takes.
    pub(crate) call: Span,
    /// How many of the next ones find nothing.
    pub(crate) silent: usize,
    clock: VirtualClock,
}

pub(crate) struct Gone;

impl Link for Memories {
    type Gone = Gone;

    fn receive(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> Result<Taken, Gone> {
        if self.is_gone {
            return Err(Gone);
        }
        let mut packets = 0;
        let is_silent = self.silent > 0;
        self.silent = self.silent.saturating_sub(1);
        while packets < self.batch
            && !is_silent
            && let Some((packet, bytes)) = self.arrived.borrow_mut().pop_front()
        {
            let received = Received {
                source: ADDRESSES[1 - self.own].into(),
                dest: packet.path.dest,
                traffic_class: packet.path.traffic_class,
                sl: packet.path.sl,
                headers: &packet.headers,
                data: Data::Bytes(&bytes),
                port: 1,
            };
            hca.handle_packet(now(), &received);
            packets += 1;
        }
        self.receives += 1;
        self.clock.0.set(self.clock.now().after(self.call));
        Ok(Taken {
            packets,
            more: packets == self.batch,
        })
    }

    fn receive_aside(&mut self, _now: impl Fn() -> Time, _hca: &mut Hca, _which: Aside) -> usize {
        0
    }

    fn push(&mut self, hca: &mut Hca, packet: &Outgoing) -> Result<(), Full> {
        if self.staged.len() >= self.room {
            return Err(Full);
        }
        let mut bytes = vec![0; packet.payload_len as usize];
        assert!(hca.gather(packet, &mut bytes));
        self.staged.push((packet.clone(), bytes));
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.staged.len() * self.reported
    }

    fn flush(&mut self, _hca: &mut Hca) -> bool {
        if self.is_blocked && !self.staged.is_empty() {
            return false;
        }
        if !self.staged.is_empty() {
            self.sends.push(self.staged.len());
        }
        self.out.borrow_mut().extend(self.staged.drain(..));
        true
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn handle_timeout(&mut self, _now: Time, _hca: &mut Hca) {}
}

/// The present time of a test.
#[derive(Clone)]
pub(crate) struct VirtualClock(Rc<Cell<Time>>);

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        self.0.get()
    }
}

/// One end.
pub(crate) struct Side {
    pub(crate) driver: Driver<Memories, VirtualClock>,
    end: End,
    qpns: Vec<Qpn>,
    completed: usize,
    failed: usize,
}

pub(crate) struct World {
    sides: [Side; 2],
    now: Rc<Cell<Time>>,
    /// The program has paused since it posted last.
    pub(crate) has_paused: bool,
}

impl Index<usize> for World {
    type Output = Side;

    fn index(&self, side: usize) -> &Side {
        &self.sides[side]
    }
}

impl IndexMut<usize> for World {
    fn index_mut(&mut self, side: usize) -> &mut Side {
        &mut self.sides[side]
    }
}

impl World {
    /// Two devices with two connected queue pairs each.
    pub(crate) fn new() -> Self {
        Self::with(2, Psn::ZERO)
    }

    /// Two devices with this many connected queue pairs each, whose first packets have this number.
    pub(crate) fn with(queue_pairs: usize, first: Psn) -> Self {
        let ways: [Packets; 2] = Default::default();
        let now = Rc::new(Cell::new(Time::from_nanos(1_000_000_000)));
        let clock = VirtualClock(Rc::clone(&now));
        let side = |own| Side::new(own, &ways, &clock, queue_pairs, first);
        let sides = [A, B].map(side);
        Self {
            sides,
            now,
            has_paused: false,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now.get()
    }

    pub(crate) fn pass_until(&mut self, time: Time) {
        self.now.set(time);
    }

    pub(crate) fn pass(&mut self, time: Span) {
        self.now.set(self.now.get().after(time));
    }

    /// Posts a WRITE of this many bytes.
    pub(crate) fn write(&mut self, side: usize, length: u32) {
        self.write_by(self[side].qpns[0], side, length);
    }

    fn write_by(&mut self, qpn: Qpn, side: usize, length: u32) {
        let (va, rkey) = self.far(side);
        let imm = None;
        self.request(qpn, side, length, SendOp::Write { va, rkey, imm });
    }

    /// The memory of the other side.
    fn far(&self, side: usize) -> (u64, u32) {
        let far = &self[1 - side].end.memory;
        (far.va, far.key.rkey())
    }

    fn request(&mut self, qpn: Qpn, side: usize, length: u32, op: SendOp) {
        let side = &mut self[side];
        let request = SendWr::new(0, op, side.end.sge(length));
        side.driver.hca.post_send(qpn, request).unwrap();
    }

    /// Posts a WRITE as a program does, and rings.
    pub(crate) fn post(&mut self, side: usize, length: u32, is_watched: bool) -> Ring {
        self.write(side, length);
        self.ring(side, is_watched)
    }

    /// The same with another one of the queue pairs.
    pub(crate) fn post_other(
        &mut self,
        side: usize,
        queue_pair: usize,
        length: u32,
        is_watched: bool,
    ) -> Ring {
        self.write_by(self[side].qpns[queue_pair], side, length);
        self.ring(side, is_watched)
    }

    /// The same for a READ.
    pub(crate) fn read(&mut self, side: usize, length: u32) -> Ring {
        let (va, rkey) = self.far(side);
        self.request(self[side].qpns[0], side, length, SendOp::Read { va, rkey });
        self.ring(side, true)
    }

    fn ring(&mut self, side: usize, is_watched: bool) -> Ring {
        let has_paused = std::mem::take(&mut self.has_paused);
        let driver = &mut self[side].driver;
        let ring = driver.ring(is_watched, has_paused);
        match ring {
            Ring::Waits => {}
            Ring::Fill => drop(driver.send_batches()),
            Ring::Leaves { .. } => drop(driver.send()),
        }
        ring
    }

    pub(crate) fn waiting(&self, side: usize) -> Waiting {
        self[side].driver.waiting()
    }

    /// The end of a program's verb.
    pub(crate) fn send(&mut self, side: usize) {
        self[side].driver.send();
    }

    pub(crate) fn transmit(&mut self, side: usize) -> Sent {
        self[side].driver.transmit()
    }

    /// One round of a program that polls.
    pub(crate) fn poll(&mut self, side: usize) {
        let polled = self.now();
        self[side].driver.poll(polled);
        self[side].take_completions();
    }

    /// A round of the helper of a program that is around.
    pub(crate) fn help(&mut self, side: usize) {
        self[side].driver.take(true);
    }

    /// The preparation of a verb that ends what the queue pair has in flight, and that verb.
    pub(crate) fn end(&mut self, side: usize) {
        self[side].driver.catch_up();
        let error = QpModify::to(QpState::Err, Attr::STATE, QpAttr::default());
        let qpn = self[side].qpns[0];
        self[side].driver.hca.modify_qp(qpn, &error, None).unwrap();
        self[side].take_completions();
    }

    pub(crate) fn drive_both(&mut self) -> Both {
        let both = drive_both(self.sides.each_mut().map(|side| &mut side.driver));
        self.sides.iter_mut().for_each(Side::take_completions);
        both
    }

    pub(crate) fn wanted_at(&self, side: usize) -> Option<Time> {
        self[side].driver.wanted_at()
    }

    /// Packets that wait on the link for this side.
    pub(crate) fn lying(&self, side: usize) -> usize {
        self[side].driver.link.arrived.borrow().len()
    }

    /// Has the last of them overtake others.
    pub(crate) fn overtake(&mut self, side: usize, packets: usize) {
        let mut arrived = self[side].driver.link.arrived.borrow_mut();
        let last = arrived.pop_back().unwrap();
        let place = arrived.len() - packets;
        arrived.insert(place, last);
    }

    /// Makes the link lose the last ones, and keep others.
    pub(crate) fn keep(&mut self, side: usize, packets: usize) {
        self[side]
            .driver
            .link
            .arrived
            .borrow_mut()
            .truncate(packets);
    }

    /// Makes the link lose them.
    pub(crate) fn lose(&mut self, side: usize) {
        self[side].driver.link.arrived.borrow_mut().clear();
    }

    pub(crate) fn completed(&self, side: usize) -> usize {
        self[side].completed
    }

    pub(crate) fn failed(&self, side: usize) -> usize {
        self[side].failed
    }

    pub(crate) fn count(&self, side: usize, counter: Counter) -> u64 {
        self[side].driver.hca.state().counter(counter)
    }
}

impl Side {
    fn new(
        own: usize,
        ways: &[Packets; 2],
        clock: &VirtualClock,
        queue_pairs: usize,
        first: Psn,
    ) -> Self {
        let mut hca = Hca::new(HcaConfig {
            seed: own as u64,
            ..HcaConfig::default()
        });
        let mut end = End::new(&mut hca, 1 << 16, Memory::Buffer(Buffer::zeroed(MEMORY)));
        end.init.cap.max_send_wr = 1024;
        let attr = QpAttr {
            sq_psn: first,
            rq_psn: first,
            ..attr()
        };
        let qpn = |_| connected(&mut hca, &end.init, ADDRESSES[1 - own], attr);
        let qpns = (0..queue_pairs).map(qpn).collect();
        let link = Memories {
            own,
            staged: Vec::new(),
            out: Rc::clone(&ways[1 - own]),
            arrived: Rc::clone(&ways[own]),
            batch: 64,
            room: 64,
            reported: 1,
            is_blocked: false,
            is_gone: false,
            sends: Vec::new(),
            receives: 0,
            call: Span::ZERO,
            silent: 0,
            clock: clock.clone(),
        };
        Self {
            driver: Driver::new(hca, link, clock.clone()),
            end,
            qpns,
            completed: 0,
            failed: 0,
        }
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.driver.hca.poll_completion(self.end.cq()).unwrap() {
            match completion.status {
                WcStatus::Success => self.completed += 1,
                _ => self.failed += 1,
            }
        }
    }
}
