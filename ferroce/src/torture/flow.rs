//! One end of a pair of queue pairs: the messages that it sends, and the checks of what comes.
//!
//! The pair's seed determines the messages of both ends, so that each knows what the other sends next.

use ferroce_base::random::mix;
use ferroce_device::{
    AccessFlags, Buffer, Completion, Memory, MrInfo, Mtu, QpAttr, QpCap, QpInit, QpType, RecvWr,
    SendOp, SendWr, Sge, Sges, VerbsError, WcStatus,
};
use ferroce_runtime::{Device, Endpoint};
use ferroce_wire::{Psn, Qpn};

use super::program::Site;
use super::protocol::{End, Place, Report, Tally, Terms};

/// Requests that are under way at a time, and receives that are posted.
const DEPTH: u64 = 4;
/// Bytes between two parts of the memory, which stay 0.
const GUARD: usize = 64;
/// Bytes of a word for atomics.
const WORD: usize = 8;
/// Of a completion's number: it is a receive.
const IS_RECEIVE: u64 = 1 << 63;

/// A request, as the seed of its end and its number have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    Write,
    Read,
    Add,
}

impl Kind {
    /// Whether it uses up one of the peer's receives.
    const fn is_received(self) -> bool {
        matches!(self, Self::Send | Self::Write)
    }
}

#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    len: usize,
    /// Of its bytes.
    seed: u64,
}

/// The seed of all messages that one end sends.
#[derive(Clone, Copy, Debug)]
struct Stream {
    seed: u64,
    longest: usize,
}

impl Stream {
    fn message(self, number: u64) -> Message {
        let random = mix(self.seed, number);
        let kind = match random % 8 {
            0..3 => Kind::Send,
            3..5 => Kind::Write,
            5 | 6 => Kind::Read,
            _ => Kind::Add,
        };
        // As many of each order of magnitude.
        let bits = u64::from(self.longest.ilog2()) + 1;
        let most = self.longest.min(2 << ((random >> 8) % bits));
        Message {
            kind,
            len: 1 + (random >> 16) as usize % most,
            seed: mix(random, number),
        }
    }

    /// The bytes at this end that the peer reads.
    fn constant(self) -> Vec<u8> {
        bytes(mix(self.seed, u64::MAX), self.longest)
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(WORD) as u64).flat_map(|at| mix(seed, at).to_le_bytes());
    words.take(len).collect()
}

/// Where the parts of the memory are, which both ends have in the same places.
#[derive(Clone, Copy, Debug)]
struct Layout {
    longest: usize,
}

impl Layout {
    /// Room for messages, by what they are for: sources, landing places of READs, receives, and
    /// targets of WRITEs, of which the packets of a message may come before there is a receive for it.
    const ROOMS: [u64; 4] = [DEPTH, DEPTH, DEPTH, 2 * DEPTH];

    fn room(self, which: usize, number: u64) -> usize {
        let before: u64 = Self::ROOMS[..which].iter().sum();
        (before + number % Self::ROOMS[which]) as usize * (self.longest + GUARD)
    }

    fn source(self, number: u64) -> usize {
        self.room(0, number)
    }

    fn landing(self, number: u64) -> usize {
        self.room(1, number)
    }

    fn receive(self, number: u64) -> usize {
        self.room(2, number)
    }

    fn target(self, number: u64) -> usize {
        self.room(3, number)
    }

    /// What the peer reads.
    fn constant(self) -> usize {
        Self::ROOMS.iter().sum::<u64>() as usize * (self.longest + GUARD)
    }

    /// What the peer adds to.
    fn word(self) -> usize {
        (self.constant() + self.longest + GUARD).next_multiple_of(WORD)
    }

    fn len(self) -> usize {
        self.word() + WORD + GUARD
    }

    /// Where each guard begins: after each place for a message, after the constant, and after the word.
    fn guards(self) -> impl Iterator<Item = usize> {
        let places = Self::ROOMS.iter().sum::<u64>() as usize + 1;
        let after = move |place: usize| place * (self.longest + GUARD) + self.longest;
        (0..places).map(after).chain([self.word() + WORD])
    }
}

/// What does not hold.
#[derive(Debug)]
pub(super) struct Wrong {
    rule: &'static str,
    what: String,
}

impl Wrong {
    pub(super) fn new(rule: &'static str, what: String) -> Self {
        Self { rule, what }
    }

    /// The same with the end at which it is.
    pub(super) fn of(self, end: End) -> Self {
        let End { pair, side } = end;
        let what = format!("pair {pair}, side {side}: {}", self.what);
        Self { what, ..self }
    }

    pub(super) fn report(self) -> Report {
        Report::Wrong {
            rule: self.rule.to_owned(),
            what: self.what,
        }
    }
}

/// A request that has failed, which ends the pair.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) status: WcStatus,
    pub(super) vendor_err: u32,
}

/// One end.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) qpn: Qpn,
    own: Stream,
    peer: Stream,
    layout: Layout,
    timeout: u8,
    buffer: Buffer,
    mr: MrInfo,
    /// The peer's memory, once it is known.
    remote: Option<(u64, u32)>,
    is_sending: bool,
    /// Requests to the peer that have used up its receives.
    arriving: u64,
    /// The number of the peer's request that uses up the next receive.
    next_received: u64,
    tally: Tally,
}

impl Flow {
    /// Makes the queue pair of one side.
    pub(super) fn open(site: &Site, side: u8, terms: Terms) -> Result<Self, VerbsError> {
        let Terms {
            seed,
            longest,
            timeout,
        } = terms;
        let stream = |side: u8| Stream {
            seed: mix(seed, side.into()),
            longest,
        };
        let (own, peer, layout) = (stream(side), stream(1 - side), Layout { longest });
        let buffer = Buffer::zeroed(layout.len());
        buffer.write(layout.constant(), &own.constant());
        let init = QpInit {
            cap: QpCap {
                max_send_wr: DEPTH as u32,
                max_recv_wr: DEPTH as u32,
                ..QpCap::default()
            },
            ..QpInit::new(QpType::Rc, site.pd, site.cq)
        };
        let (mr, qpn) = site.device.with(|hca| {
            let memory = Memory::Buffer(buffer.clone());
            let mr = hca.reg_mr(site.pd, memory, AccessFlags::all())?;
            hca.create_qp(&init).map(|qpn| (mr, qpn))
        })?;
        Ok(Self {
            qpn,
            own,
            peer,
            layout,
            timeout,
            buffer,
            mr,
            remote: None,
            is_sending: false,
            arriving: 0,
            next_received: 0,
            tally: Tally::default(),
        })
    }

    /// Destroys the queue pair.
    pub(super) fn close(self, device: &Device) -> Result<(), VerbsError> {
        device.with(|hca| {
            hca.destroy_qp(self.qpn)?;
            hca.dereg_mr(self.mr.key)
        })
    }

    pub(super) fn place(&self, device: &Device) -> Place {
        Place {
            address: device.address().ip(),
            qpn: self.qpn.value(),
            // Some near the end of the circle, so that they begin again from 0.
            psn: 0xff_ff80 | (self.own.seed as u32 & 0x7f),
            va: self.mr.va,
            rkey: self.mr.key.rkey(),
        }
    }

    pub(super) fn connect(&mut self, device: &Device, peer: Place) -> Result<(), VerbsError> {
        let endpoint = |place: Place| Endpoint {
            address: place.address,
            qpn: Qpn::new(place.qpn),
            psn: Psn::new(place.psn),
        };
        let attr = QpAttr {
            access: AccessFlags::all(),
            path_mtu: Mtu::Mtu4096,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            timeout: self.timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        device.connect(endpoint(self.place(device)), endpoint(peer), &attr)?;
        self.remote = Some((peer.va, peer.rkey));
        (0..DEPTH).try_for_each(|number| self.post_receive(device, number))
    }

    pub(super) fn send(&mut self, is_sending: bool) {
        self.is_sending = is_sending;
    }

    /// Whether all requests have completed.
    pub(super) fn is_drained(&self) -> bool {
        self.tally.posted == self.tally.succeeded
    }

    /// What has happened so far.
    pub(super) fn tally(&self) -> Tally {
        Tally {
            word: self.buffer.load(self.layout.word()),
            ..self.tally
        }
    }

    /// Posts what there is room for.
    pub(super) fn fill(&mut self, device: &Device) -> Result<(), VerbsError> {
        let Some((va, rkey)) = self.remote.filter(|_| self.is_sending) else {
            return Ok(());
        };
        while self.tally.posted < self.tally.succeeded + DEPTH {
            let (number, layout) = (self.tally.posted, self.layout);
            let Message { kind, len, seed } = self.own.message(number);
            let at = |offset: usize| va + offset as u64;
            let imm = Some(self.arriving as u32);
            let (op, local, len) = match kind {
                Kind::Send => (SendOp::Send { imm }, layout.source(number), len),
                Kind::Write => {
                    let va = at(layout.target(self.arriving));
                    let op = SendOp::Write { va, rkey, imm };
                    (op, layout.source(number), len)
                }
                Kind::Read => {
                    let va = at(layout.constant());
                    (SendOp::Read { va, rkey }, layout.landing(number), len)
                }
                Kind::Add => {
                    let (va, add) = (at(layout.word()), 1);
                    let op = SendOp::FetchAdd { va, rkey, add };
                    (op, layout.landing(number), WORD)
                }
            };
            if kind.is_received() {
                self.buffer.write(local, &bytes(seed, len));
                self.arriving += 1;
            }
            device.post_send(self.qpn, [SendWr::new(number, op, self.sge(local, len))])?;
            self.tally.posted += 1;
        }
        Ok(())
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.mr.va + offset as u64,
            length: len as u32,
            lkey: self.mr.key.lkey(),
        }
    }

    fn post_receive(&self, device: &Device, number: u64) -> Result<(), VerbsError> {
        let sge = self.sge(self.layout.receive(number), self.layout.longest);
        let request = RecvWr {
            wr_id: IS_RECEIVE | number,
            sges: Sges::from_slice(&[sge]),
        };
        device.post_recv(self.qpn, request)
    }

    /// Checks a completion. The first request that fails is not an error here.
    pub(super) fn complete(
        &mut self,
        device: &Device,
        done: &Completion,
    ) -> Result<Option<Failed>, Wrong> {
        if done.status != WcStatus::Success {
            return Ok(Some(Failed {
                status: done.status,
                vendor_err: done.vendor_err,
            }));
        }
        let number = done.wr_id & !IS_RECEIVE;
        let expected = match done.wr_id & IS_RECEIVE {
            0 => self.tally.succeeded,
            _ => self.tally.received,
        };
        if number != expected {
            let what = format!("request {number} has completed, and {expected} was next");
            return Err(Wrong::new("order", what));
        }
        match done.wr_id & IS_RECEIVE {
            0 => self.sent(number)?,
            _ => self.received(device, number, done)?,
        }
        Ok(None)
    }

    fn sent(&mut self, number: u64) -> Result<(), Wrong> {
        let Message { kind, len, .. } = self.own.message(number);
        let landing = self.layout.landing(number);
        match kind {
            Kind::Send | Kind::Write => self.tally.delivered += 1,
            Kind::Read => {
                let constant = self.peer.constant();
                self.compare("read", number, landing, &constant[..len])?;
            }
            Kind::Add => {
                let mut found = [0; WORD];
                self.buffer.read(landing, &mut found);
                let found = u64::from_ne_bytes(found);
                if found != self.tally.added {
                    let expected = self.tally.added;
                    let what = format!("request {number} has found {found} instead of {expected}");
                    return Err(Wrong::new("atomic", what));
                }
                self.tally.added += 1;
            }
        }
        self.tally.succeeded += 1;
        Ok(())
    }

    fn received(&mut self, device: &Device, number: u64, done: &Completion) -> Result<(), Wrong> {
        let message = loop {
            let message = self.peer.message(self.next_received);
            self.next_received += 1;
            if message.kind.is_received() {
                break message;
            }
        };
        let Message { kind, len, seed } = message;
        if (done.byte_len as usize, done.imm) != (len, number as u32) {
            let (bytes, imm) = (done.byte_len, done.imm);
            let what = format!(
                "message {number} has {bytes} bytes and number {imm}, not {len} and {number}"
            );
            return Err(Wrong::new("delivery", what));
        }
        let at = match kind {
            Kind::Write => self.layout.target(number),
            _ => self.layout.receive(number),
        };
        self.compare("bytes", number, at, &bytes(seed, len))?;
        self.tally.received += 1;
        self.post_receive(device, number + DEPTH)
            .map_err(|error| Wrong::new("call", format!("post receive: {error}")))
    }

    fn compare(
        &mut self,
        rule: &'static str,
        number: u64,
        at: usize,
        expected: &[u8],
    ) -> Result<(), Wrong> {
        let mut found = vec![0; expected.len()];
        self.buffer.read(at, &mut found);
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let len = expected.len();
            let what = format!("byte {at} of the {len} of message {number} is wrong");
            return Err(Wrong::new(rule, what));
        }
        self.tally.compared += expected.len() as u64;
        Ok(())
    }

    /// Checks that nothing was written between the parts of the memory.
    pub(super) fn check_guards(&self) -> Result<(), Wrong> {
        for at in self.layout.guards() {
            let mut guard = [0; GUARD];
            self.buffer.read(at, &mut guard);
            if guard != [0; GUARD] {
                return Err(Wrong::new(
                    "guard",
                    format!("bytes from {at} on have changed"),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use ferroce_runtime::DeviceConfig;
    use ferroce_testing::wait_until;

    use super::*;

    /// Both ends of a pair, on a device each.
    struct Ends {
        sites: [Site; 2],
        flows: [Flow; 2],
    }

    impl Ends {
        /// `test` is a number of its own. Connected, and not sending.
        fn new(test: u8) -> Self {
            let sites = [1, 2].map(|host| {
                let address = Ipv4Addr::new(127, 63, test, host);
                let device = Device::open(DeviceConfig::new(address.into())).unwrap();
                let (pd, cq) =
                    device.with(|hca| (hca.alloc_pd().unwrap(), hca.create_cq(64).unwrap()));
                Site { device, pd, cq }
            });
            let terms = Terms {
                seed: 1,
                longest: 4096,
                timeout: 18,
            };
            let mut flows =
                [0, 1].map(|side: u8| Flow::open(&sites[usize::from(side)], side, terms).unwrap());
            let places = [0, 1].map(|side| flows[side].place(&sites[side].device));
            for (side, flow) in flows.iter_mut().enumerate() {
                flow.connect(&sites[side].device, places[1 - side]).unwrap();
            }
            Self { sites, flows }
        }

        /// Sends until 300 requests have succeeded, or something is wrong.
        fn work(&mut self) -> Result<(), Wrong> {
            self.flows.iter_mut().for_each(|flow| flow.send(true));
            let mut wrong = None;
            wait_until("messages", || {
                let done = self.flows.iter().all(|it| it.tally().succeeded >= 300);
                wrong = wrong.take().or_else(|| self.turn().err());
                done || wrong.is_some()
            });
            wrong.map_or(Ok(()), Err)
        }

        fn turn(&mut self) -> Result<(), Wrong> {
            for (site, flow) in self.sites.iter().zip(&mut self.flows) {
                flow.fill(&site.device).unwrap();
                let (mut out, pause) = (Vec::new(), Duration::ZERO);
                site.device.wait(site.cq, 64, &mut out, pause).unwrap();
                for done in &out {
                    assert!(flow.complete(&site.device, done)?.is_none(), "{done:?}");
                }
            }
            Ok(())
        }

        fn finds(mut self, rule: &str) {
            let wrong = self.work().expect_err(rule);
            assert_eq!(wrong.rule, rule, "{}", wrong.what);
        }
    }

    #[test]
    fn each_end_knows_what_the_other_sends() {
        let mut ends = Ends::new(1);
        ends.work().unwrap();
        ends.flows.iter_mut().for_each(|flow| flow.send(false));
        wait_until("the last ones", || {
            ends.turn().unwrap();
            ends.flows.iter().all(Flow::is_drained)
        });
        ends.turn().unwrap();
        for side in [0, 1] {
            let (sent, arrived) = (ends.flows[side].tally(), ends.flows[1 - side].tally());
            assert_eq!(sent.delivered, arrived.received);
            assert_eq!(sent.added, arrived.word);
            assert!(sent.added > 0 && sent.delivered > 0, "{sent:?}");
            ends.flows[side].check_guards().unwrap();
        }
    }

    #[test]
    fn other_bytes_than_the_peer_has_are_found() {
        let ends = Ends::new(2);
        let flow = &ends.flows[1];
        flow.buffer.write(flow.layout.constant(), &[!0; 8]);
        ends.finds("read");
    }

    #[test]
    fn an_addition_that_is_counted_twice_is_found() {
        let ends = Ends::new(3);
        let flow = &ends.flows[1];
        flow.buffer.write(flow.layout.word(), &1_u64.to_ne_bytes());
        ends.finds("atomic");
    }

    #[test]
    fn a_message_that_is_lost_is_found() {
        let mut ends = Ends::new(4);
        let next = (0..).find(|n| ends.flows[1].peer.message(*n).kind.is_received());
        ends.flows[1].next_received = next.unwrap() + 1;
        ends.finds("delivery");
    }

    #[test]
    fn a_byte_outside_of_messages_is_found() {
        let ends = Ends::new(5);
        let flow = &ends.flows[0];
        let at = flow.layout.guards().last().unwrap();
        flow.buffer.write(at + GUARD - 1, &[1]);
        assert_eq!(flow.check_guards().unwrap_err().rule, "guard");
    }
}
