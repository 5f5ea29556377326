//! Two devices, a hostile wire, and a time limit.

use std::sync::{Arc, Mutex, PoisonError};

use ferroce_device::{AccessFlags, Counter, Mtu, QpAttr, QpState, QpType, Span, Time};
use ferroce_testing::{Fate, World};
use ferroce_wire::Psn;

use super::side::{self, Books, End as _, QKEY, Side};
use crate::Cursor;

/// From one side to the other.
const DELAY_NS: u64 = 2000;
/// Moments simulated in one run, and in the end.
const MOMENTS_MAX: usize = 4_000;
/// Packets under way may be older by this many PSNs: a copy of one is still a duplicate, and no new one
/// is taken for it.
const OUTLIVED_MAX: u32 = (1 << 23) - (1 << 16);

/// What the wire does to the next packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mischief {
    pub(super) drop: u8,
    pub(super) duplicate: u8,
    pub(super) delay: u8,
    pub(super) delay_ns: u64,
}

impl Mischief {
    fn judge(&mut self) -> Fate {
        if take_one(&mut self.drop) {
            return Fate::Lost;
        }
        let copy = take_one(&mut self.duplicate).then_some(0);
        let delay_ns = match take_one(&mut self.delay) {
            true => self.delay_ns,
            false => 0,
        };
        Fate::Copies([copy, Some(delay_ns)])
    }
}

/// Two devices, and what goes on around them.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) world: World<Books>,
    mischief: Arc<Mutex<Mischief>>,
    /// By how many PSNs the connection was made older while packets were under way.
    outlived: u32,
    /// Forged packets, wrong keys, changes at any time: everything goes.
    pub(super) hostile: bool,
    moments_left: usize,
}

impl Stage {
    pub(super) fn new(input: &mut Cursor<'_>) -> Self {
        let first = input.u8();
        let hostile = first % 2 == 1;
        let types = types(first / 2 % 8);
        let sides = [0, 1].map(|index| {
            let mut side = side::new(index, types[usize::from(index)], input);
            match (first / 16 % 4, index) {
                (1, _) | (3, 0) => side.repeat_selectively(true),
                (2, _) | (3, _) => side.route_adaptively(true),
                _ => return side,
            }
            side.replace_qp();
            side
        });
        let mut world = World::of(sides);
        world.as_bytes = true;
        world.net().set_latency(Span::from_nanos(DELAY_NS));
        let mischief = Arc::new(Mutex::new(Mischief::default()));
        let next = Arc::clone(&mischief);
        world.net().rules.add(move |_| {
            let mut mischief = next.lock().unwrap_or_else(PoisonError::into_inner);
            Some(mischief.judge())
        });
        let mut stage = Self {
            world,
            mischief,
            outlived: 0,
            hostile,
            moments_left: MOMENTS_MAX,
        };
        stage.connect(input);
        stage
    }

    /// Changes what the wire does to the next packets.
    pub(super) fn mischief(&self, change: impl FnOnce(&mut Mischief)) {
        change(&mut self.mischief.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Brings both queue pairs to RTS, towards each other.
    pub(super) fn connect(&mut self, input: &mut Cursor<'_>) {
        let psns = [0u32; 2].map(|_| {
            let psn = input.pick(&[0, 0x7f_fffe, 0x80_0000, 0xff_fff0]);
            Psn::new(psn)
        });
        let path_mtu = input.pick(&[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096]);
        for own in 0..2 {
            let peer = 1 - own;
            // The first choice of each is the one that works.
            let mut some = |choices: [u8; 4]| match self.hostile {
                true => input.pick(&choices),
                false if input.one_in(8) => choices[1],
                false => choices[0],
            };
            let attr = QpAttr {
                path_mtu,
                qkey: QKEY,
                dest_qpn: self.world.sides[peer].own.qpn,
                rq_psn: psns[peer],
                sq_psn: psns[own],
                max_rd_atomic: some([16, 1, 2, 0]),
                max_dest_rd_atomic: some([16, 16, 16, 1]),
                min_rnr_timer: some([1, 12, 31, 0]),
                timeout: some([14, 1, 18, 0]),
                retry_cnt: some([7, 1, 3, 0]),
                rnr_retry: some([7, 6, 1, 0]),
                access: match some([0, 0, 0, 1]) {
                    0 => AccessFlags::all(),
                    _ => AccessFlags::REMOTE_READ,
                },
                ..QpAttr::default()
            };
            let dest = self.world.sides[peer].address;
            self.world.sides[own].go_to_rts(dest, &attr);
        }
    }

    /// Whether one of the queue pairs is in error.
    pub(super) fn has_failed(&self) -> bool {
        let failed = |side: &Side| {
            let qp = side.hca.qp(side.own.qpn);
            qp.is_some_and(|qp| matches!(qp.state(), QpState::Err | QpState::Sqe))
        };
        self.world.sides.iter().any(failed)
    }

    /// Sends everything that the devices have to send, and checks what must hold then.
    pub(super) fn settle(&mut self) {
        self.world.settle();
        let now = self.world.now;
        for index in 0..2 {
            let hostile = self.hostile;
            let [a, b] = self.ends();
            let (side, peer) = if index == 0 { (a, b) } else { (b, a) };
            side.poll_completions();
            side.check(now);
            if !hostile {
                let qp_type = side.qp_type();
                side.own.ledger.compare_arrivals(&peer.own.ledger, qp_type);
            }
        }
    }

    fn ends(&mut self) -> [&mut Side; 2] {
        let (a, b) = self.world.sides.split_at_mut(1);
        [&mut a[0], &mut b[0]]
    }

    /// Makes the connection older by a number of messages from one side to the other, as far as both agree
    /// on where it is. Copies of packets live to see it, but not so long that a PSN comes again.
    pub(super) fn age(&mut self, from: usize, messages: u32) {
        let qps = [from, 1 - from].map(|index| {
            let side = &self.world.sides[index];
            side.hca.qp(side.own.qpn).expect("it exists")
        });
        let [own, peer] = qps;
        let agreed = own.next_psn() == peer.expected_psn();
        let is_idle = qps
            .iter()
            .all(|qp| qp.in_flight() == 0 && !qp.has_answers());
        if !agreed || !is_idle || !self.make_older(from, 0) {
            return;
        }
        self.outlived = self.outlived.saturating_add(messages);
        if self.outlived > OUTLIVED_MAX {
            self.world.net().retain(|_, _| false);
            self.outlived = 0;
        }
        assert!(self.make_older(from, messages));
    }

    fn make_older(&mut self, from: usize, messages: u32) -> bool {
        let [a, b] = self.ends();
        let (own, peer) = if from == 0 { (a, b) } else { (b, a) };
        // Both can, or neither does.
        let can = own.hca.age(own.own.qpn, 0, 0) && peer.hca.age(peer.own.qpn, 0, 0);
        can && own.hca.age(own.own.qpn, messages, 0) && peer.hca.age(peer.own.qpn, 0, messages)
    }

    /// Lives through everything up to `until`, as far as the budget reaches.
    pub(super) fn run_until(&mut self, until: Time) {
        loop {
            if self.moments_left == 0 {
                return;
            }
            if !self.world.step_until(until) {
                break;
            }
            self.moments_left -= 1;
            self.settle();
        }
        self.world.now = self.world.now.max(until);
    }

    /// The wire is cut. Every side that waits for an answer must learn of it in time.
    pub(super) fn finish(&mut self) {
        self.ends()
            .into_iter()
            .for_each(|side| side.blocked = false);
        self.settle();
        self.ends().into_iter().for_each(|side| side.deaf = true);
        self.world.net().retain(|_, _| false);
        self.moments_left = MOMENTS_MAX;
        let limits = self.outlast();
        if self.moments_left > 0 {
            for (side, limit) in self.world.sides.iter().zip(limits) {
                let qp = side.hca.qp(side.own.qpn).expect("it exists");
                let at_work = matches!(qp.state(), QpState::Rts | QpState::Sqd);
                assert!(
                    limit.is_none() || !at_work || qp.in_flight() == 0,
                    "waits for a dead peer longer than its total timeout, {limit:?}: {qp:?}"
                );
            }
        }
        for side in &self.world.sides {
            side.audit_memory();
            for row in Counter::TABLE {
                let _ = side.hca.state().counter(row.counter);
            }
        }
    }

    /// Waits until both must have given up, and no packet has come out of a slow link meanwhile.
    /// Returns when that was.
    fn outlast(&mut self) -> [Option<Time>; 2] {
        let packets = |side: &Side| side.hca.state().counter(Counter::RdmaRxPackets);
        loop {
            let before = [0, 1].map(|index| packets(&self.world.sides[index]));
            let limits = [0, 1].map(|index| self.patience(index));
            let last = limits.iter().flatten().max().copied();
            self.run_until(last.unwrap_or(self.world.now));
            if self.moments_left == 0
                || [0, 1].map(|index| packets(&self.world.sides[index])) == before
            {
                return limits;
            }
        }
    }

    /// When a queue pair must have given up on a silent peer at the latest; `None` if it need not.
    fn patience(&self, index: usize) -> Option<Time> {
        let side = &self.world.sides[index];
        let qp = side.hca.qp(side.own.qpn).expect("it exists");
        let policy = side.hca.policy();
        let total = policy.total(qp.timeouts())?;
        let ack_timeout = policy.ack_timeout(qp.timeouts())?;
        // The timer that runs now may be of an earlier policy, or wait for a receive request.
        let from = qp
            .poll_timeout()
            .unwrap_or(self.world.now)
            .max(self.world.now);
        Some(
            from.after(total * 2 + ack_timeout)
                .after(Span::from_secs(1)),
        )
    }
}

/// The types of the two queue pairs; most inputs have RC.
fn types(choice: u8) -> [QpType; 2] {
    match choice {
        5 => [QpType::Uc; 2],
        6 => [QpType::Ud; 2],
        7 => [QpType::XrcSend, QpType::XrcRecv],
        _ => [QpType::Rc; 2],
    }
}

/// Takes one of `n`, if there is one.
fn take_one(n: &mut u8) -> bool {
    let any = *n > 0;
    *n = n.saturating_sub(1);
    any
}
