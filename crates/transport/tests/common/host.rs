use ferroce_adp::Policy;
use ferroce_base::random::Dice;
use ferroce_transport::{
    AccessError, AccessFlags, AtomicOp, Completion, Counter, Data, Key, MemoryRef, MwBind,
    Outgoing, QpCap, QpEvent, ReceiveQueue, RecvWqe, Segment, Services, Sge, Span, Time,
    TimerExpiry, WorkQueue,
};

use ferroce_wire::Srqn;

/// A device with a few memory regions, and a record of what it was asked to do.
#[derive(Clone, Debug)]
pub struct TestHost {
    pub policy: Policy,
    pub counters: [u64; Counter::COUNT],
    pub completions: Vec<(WorkQueue, Completion)>,
    pub events: Vec<QpEvent>,
    pub expiries: Vec<TimerExpiry>,
    /// Each time that something had to be sent again: after which wait, or because the peer misses it.
    pub losses: Vec<Option<Span>>,
    pub srq: Option<ReceiveQueue>,
    /// Number of the SRQ, for XRC.
    pub srqn: Srqn,
    /// Number of atomics executed.
    pub atomics: u64,
    /// Binds that were executed.
    pub binds: Vec<MwBind>,
    /// The time that a packet takes to leave, if the test has a port.
    pub port: Option<Span>,
    regions: Vec<Region>,
}

#[derive(Clone, Debug)]
struct Region {
    mr: Mr,
    access: AccessFlags,
    bytes: Vec<u8>,
}

/// A memory region; its single key is both the local and the remote one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mr {
    pub key: u32,
    pub va: u64,
    pub len: u32,
}

impl Mr {
    /// `len` bytes from `offset`.
    pub fn part(&self, offset: u32, len: u32) -> Sge {
        Sge {
            addr: self.va + u64::from(offset),
            length: len,
            lkey: self.key,
        }
    }
}

impl TestHost {
    pub fn new(policy: Policy, srq: Option<QpCap>) -> Self {
        Self {
            policy,
            counters: [0; Counter::COUNT],
            completions: Vec::new(),
            events: Vec::new(),
            expiries: Vec::new(),
            losses: Vec::new(),
            srq: srq.map(|cap| ReceiveQueue::new(cap.max_recv_wr, cap.max_recv_sge)),
            srqn: Srqn::new(0x3333),
            atomics: 0,
            binds: Vec::new(),
            port: None,
            regions: Vec::new(),
        }
    }

    /// A new region, filled with random bytes.
    pub fn register(&mut self, len: u32, access: AccessFlags) -> Mr {
        let index = self.regions.len() as u32;
        let mr = Mr {
            key: 0x1000 + index,
            va: 0x7000_0000_0000 + (u64::from(index) << 33),
            len,
        };
        let mut dice = Dice::new(u64::from(index) ^ u64::from(len));
        let mut bytes = vec![0; len as usize];
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&dice.next().to_ne_bytes()[..word.len()]);
        }
        self.regions.push(Region { mr, access, bytes });
        mr
    }

    /// Deregisters a region; its key is unknown from now on.
    pub fn deregister(&mut self, mr: Mr) {
        self.regions.retain(|region| region.mr != mr);
    }

    pub fn bytes(&self, sge: Sge) -> &[u8] {
        let segment = Segment {
            key: Key::Local(sge.lkey),
            va: sge.addr,
            len: sge.length,
        };
        let (region, start) = self.find(&segment, AccessFlags::empty()).unwrap();
        &self.regions[region].bytes[start..start + sge.length as usize]
    }

    pub fn fill(&mut self, sge: Sge, bytes: &[u8]) {
        assert_eq!(bytes.len(), sge.length as usize);
        self.write(Key::Local(sge.lkey), sge.addr, Data::Bytes(bytes))
            .unwrap();
    }

    pub fn gather(&self, at: MemoryRef, len: u32) -> &[u8] {
        let (key, start) = (at.region, at.offset as usize);
        let region = self.regions.iter().find(|region| region.mr.key == key);
        &region.unwrap().bytes[start..start + len as usize]
    }

    /// Index of the region and offset in it.
    fn find(&self, segment: &Segment, needs: AccessFlags) -> Result<(usize, usize), AccessError> {
        let key = segment.key.number();
        let index = self
            .regions
            .iter()
            .position(|region| region.mr.key == key)
            .ok_or(AccessError::UnknownKey)?;
        let region = &self.regions[index];
        let start = segment
            .va
            .checked_sub(region.mr.va)
            .ok_or(AccessError::OutOfBounds)?;
        if start + u64::from(segment.len) > u64::from(region.mr.len) {
            return Err(AccessError::OutOfBounds);
        }
        if !region.access.contains(needs) {
            return Err(AccessError::NotPermitted);
        }
        Ok((index, start as usize))
    }
}

impl Services for TestHost {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn count(&mut self, counter: Counter, n: u64) {
        self.counters[counter as usize] += n;
    }

    fn departure(&self, now: Time, _packet: &Outgoing) -> Time {
        now.after(self.port.unwrap_or_default())
    }

    fn delays_departure(&self) -> bool {
        self.port.is_some()
    }

    fn timer_expired(&mut self, expiry: TimerExpiry) {
        self.expiries.push(expiry);
    }

    fn lost(&mut self, waited: Option<Span>) {
        self.losses.push(waited);
    }

    fn complete(&mut self, queue: WorkQueue, completion: Completion) {
        self.completions.push((queue, completion));
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        self.srq.as_mut().and_then(ReceiveQueue::take)
    }

    fn enter_srq(&mut self, srqn: Srqn) -> bool {
        self.srq.is_some() && srqn == self.srqn
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }

    fn open_read(&self, segment: &Segment) -> Result<MemoryRef, AccessError> {
        let needs = match segment.key {
            Key::Local(_) | Key::Receive(_) => AccessFlags::empty(),
            Key::Remote(_) => AccessFlags::REMOTE_READ,
        };
        let (region, start) = self.find(segment, needs)?;
        Ok(MemoryRef {
            offset: start as u64,
            region: self.regions[region].mr.key,
        })
    }

    fn write(&mut self, key: Key, va: u64, data: Data<'_>) -> Result<(), AccessError> {
        let segment = Segment {
            key,
            va,
            len: data.len(),
        };
        let needs = match key {
            Key::Local(_) | Key::Receive(_) => AccessFlags::LOCAL_WRITE,
            Key::Remote(_) => AccessFlags::REMOTE_WRITE,
        };
        let (region, start) = self.find(&segment, needs)?;
        if let Data::Bytes(bytes) = data {
            self.regions[region].bytes[start..start + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let segment = Segment {
            key: Key::Remote(rkey),
            va,
            len: 8,
        };
        let (region, start) = self.find(&segment, AccessFlags::REMOTE_ATOMIC)?;
        self.atomics += 1;
        let word: &mut [u8; 8] = (&mut self.regions[region].bytes[start..start + 8])
            .try_into()
            .unwrap();
        let original = u64::from_ne_bytes(*word);
        let value = match op {
            AtomicOp::CompareSwap { compare, swap } if original == compare => swap,
            AtomicOp::CompareSwap { .. } => original,
            AtomicOp::FetchAdd { add } => original.wrapping_add(add),
        };
        *word = value.to_ne_bytes();
        Ok(original)
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        let before = self.regions.len();
        self.regions.retain(|region| region.mr.key != rkey);
        if self.regions.len() == before {
            return Err(AccessError::UnknownKey);
        }
        Ok(())
    }

    fn invalidate_local(&mut self, rkey: u32) -> Result<(), AccessError> {
        self.invalidate(rkey)
    }

    fn bind_mw(&mut self, bind: &MwBind) -> Result<(), AccessError> {
        if !self.regions.iter().any(|region| region.mr.key == bind.lkey) {
            return Err(AccessError::UnknownKey);
        }
        self.binds.push(*bind);
        Ok(())
    }
}
