//! One channel of a collective operation: a part of the buffer on its own ring or tree.

use ferroce_base::time::Span;
use ferroce_dcqcn::Rate;

use super::super::WorkloadError;
use super::super::plan::{Message, Plan, Sending, share};
use super::Nccl;
use super::tree::{Tree, parent};

/// A step of a ring is this many messages, unless they would be shorter than [`SHORT`] of them.
const SLICES: u64 = 2;
/// The part of a chunk's slice below which messages are not split further.
const SHORT: u64 = 32;
/// Slices are multiples of this many bytes.
const SLICE_UNIT: u64 = 16;

/// A channel in one round.
pub(super) struct Channel<'a> {
    nccl: &'a Nccl,
    /// Its part of the buffer.
    bytes: u64,
    /// Its share of what a GPU sends by NVLink.
    nvlink: Rate,
    /// Its number, which chooses the tree.
    number: u32,
    /// The card of each node by which it enters and leaves.
    cards: Vec<u32>,
    /// What each node waits for before it begins.
    gates: Vec<Option<Message>>,
    /// The last that used the NVLinks of each node: what follows waits for it.
    nvlinks: Vec<Option<Message>>,
    /// The last that each node has sent around the ring.
    sent: Vec<Option<Message>>,
    /// What each node has when it is done.
    ends: Vec<Vec<Message>>,
}

/// A part of the buffer that goes around a ring.
struct Traveller {
    bytes: u64,
    /// Its place on the ring.
    place: u32,
    /// What has brought it to the node.
    after: Option<Message>,
    /// Hops by NVLink since then.
    inside: u32,
}

impl<'a> Channel<'a> {
    pub(super) fn new(nccl: &'a Nccl, number: u32, gates: Vec<Option<Message>>) -> Self {
        let gpus = nccl.gpus_per_node;
        let of_rail = nccl.ranks.iter().skip((number % gpus) as usize);
        let nodes = gates.len();
        Self {
            nccl,
            bytes: share(nccl.bytes, nccl.channels, number),
            nvlink: Rate::from_bps((nccl.nvlink.bps() / u64::from(nccl.channels)).max(1)),
            number,
            cards: of_rail.step_by(gpus as usize).copied().collect(),
            gates,
            nvlinks: vec![None; nodes],
            sent: vec![None; nodes],
            ends: vec![Vec::new(); nodes],
        }
    }

    /// What each node has when it is done.
    pub(super) fn into_ends(self) -> Vec<Vec<Message>> {
        self.ends
    }

    /// Every rank begins with a piece, which goes around the ring once or twice, except for a hop each time. As
    /// many bytes as all ranks have chunks are done at a time.
    pub(super) fn ring(&mut self, plan: &mut Plan, halves: u32) -> Result<(), WorkloadError> {
        let ranks = self.nccl.ranks.len() as u32;
        let mut left = self.bytes;
        while left > 0 {
            let loop_bytes = left.min(u64::from(ranks) * self.nccl.chunk);
            left -= loop_bytes;
            let mut travellers = Vec::new();
            for rank in 0..ranks {
                self.slice(share(loop_bytes, ranks, rank), rank, &mut travellers);
            }
            self.travel(plan, travellers, halves * (ranks - 1))?;
            if left > 0 {
                for node in 0..self.cards.len() {
                    let ends = std::mem::take(&mut self.ends[node]);
                    let at = self.nccl.at;
                    self.gates[node] = Some(plan.work(self.cards[node], at, Span::ZERO, &ends)?);
                }
            }
        }
        Ok(())
    }

    /// Splits a rank's piece into what is sent as messages.
    fn slice(&self, mut piece: u64, rank: u32, travellers: &mut Vec<Traveller>) {
        let even = piece.div_ceil(SLICES).next_multiple_of(SLICE_UNIT);
        let slice = even.max(self.nccl.chunk / SLICES / SHORT);
        while piece > 0 {
            let bytes = piece.min(slice);
            piece -= bytes;
            travellers.push(self.traveller(bytes, rank));
        }
    }

    fn traveller(&self, bytes: u64, place: u32) -> Traveller {
        Traveller {
            bytes,
            place,
            after: self.gates[(place / self.nccl.gpus_per_node) as usize],
            inside: 0,
        }
    }

    /// Chunks go along the ring from the first rank to the last.
    pub(super) fn broadcast(&mut self, plan: &mut Plan) -> Result<(), WorkloadError> {
        let hops = self.nccl.ranks.len() as u32 - 1;
        for bytes in self.chunks() {
            self.travel(plan, vec![self.traveller(bytes, 0)], hops)?;
        }
        // The last node has received all, and the others have passed it on.
        for (ends, sent) in self.ends.iter_mut().zip(&self.sent) {
            ends.extend(sent);
        }
        Ok(())
    }

    /// The chunks of the channel's part of the buffer.
    fn chunks(&self) -> impl Iterator<Item = u64> + use<> {
        let (bytes, chunk) = (self.bytes, self.nccl.chunk);
        (0..bytes.div_ceil(chunk)).map(move |number| chunk.min(bytes - number * chunk))
    }

    /// All go `hops` hops around the ring, at the same time.
    fn travel(
        &mut self,
        plan: &mut Plan,
        mut travellers: Vec<Traveller>,
        hops: u32,
    ) -> Result<(), WorkloadError> {
        let (gpus, ranks) = (self.nccl.gpus_per_node, self.nccl.ranks.len() as u32);
        for _ in 0..hops {
            for it in &mut travellers {
                let node = (it.place / gpus) as usize;
                it.place = (it.place + 1) % ranks;
                if it.place % gpus > 0 {
                    it.inside += 1;
                    continue;
                }
                let inside = std::mem::take(&mut it.inside);
                let (after, think) = self.inside(plan, node, inside, it.bytes, it.after)?;
                let next = (it.place / gpus) as usize;
                let sent = self.send(plan, [node, next], it.bytes, think, after.as_slice())?;
                self.sent[node] = Some(sent);
                it.after = Some(sent);
            }
        }
        for it in travellers {
            let node = (it.place / gpus) as usize;
            let end = self.pass(plan, node, it.inside, it.bytes, it.after.as_slice())?;
            self.ends[node].extend(end);
        }
        Ok(())
    }

    /// A message from node to node.
    fn send(
        &self,
        plan: &mut Plan,
        [src, dst]: [usize; 2],
        bytes: u64,
        think: Span,
        waits_for: &[Message],
    ) -> Result<Message, WorkloadError> {
        let it = Sending {
            src: self.cards[src],
            dst: self.cards[dst],
            bytes,
            at: self.nccl.at,
            think,
        };
        plan.add(it, waits_for)
    }

    /// Bytes pass `hops` NVLinks of a node. Each of these carries one after the other, and all do at the same
    /// time: what follows waits for one of them. Returns what to wait for, and for how long after that.
    fn inside(
        &mut self,
        plan: &mut Plan,
        node: usize,
        hops: u32,
        bytes: u64,
        after: Option<Message>,
    ) -> Result<(Option<Message>, Span), WorkloadError> {
        if hops == 0 {
            return Ok((after, Span::ZERO));
        }
        let hop = self.nvlink.transmission(bytes as u32);
        let waits_for: Vec<_> = after.into_iter().chain(self.nvlinks[node]).collect();
        let first = plan.work(self.cards[node], self.nccl.at, hop, &waits_for)?;
        self.nvlinks[node] = Some(first);
        Ok((Some(first), hop.times(u64::from(hops) - 1)))
    }

    /// The same to the end, after all of these.
    fn pass(
        &mut self,
        plan: &mut Plan,
        node: usize,
        hops: u32,
        bytes: u64,
        after: &[Message],
    ) -> Result<Option<Message>, WorkloadError> {
        let (card, at) = (self.cards[node], self.nccl.at);
        let after = match after {
            [] => None,
            [one] => Some(*one),
            several => Some(plan.work(card, at, Span::ZERO, several)?),
        };
        match self.inside(plan, node, hops, bytes, after)? {
            (after, Span::ZERO) => Ok(after),
            (after, rest) => Ok(Some(plan.work(card, at, rest, after.as_slice())?)),
        }
    }

    /// Chunks go up a tree of nodes and down again, each in turn.
    pub(super) fn tree(&mut self, plan: &mut Plan) -> Result<(), WorkloadError> {
        let nodes = self.nccl.nodes();
        let tree = match self.number % 2 {
            0 => Tree::First,
            _ => Tree::Second,
        };
        let parents: Vec<_> = (0..nodes).map(|node| parent(tree, node, nodes)).collect();
        let order = from_the_root(&parents);
        let chain = self.nccl.gpus_per_node - 1;
        for bytes in self.chunks() {
            // What each node waits for before it sends up: its own GPUs, and its children.
            let mut reduced: Vec<Vec<Message>> = vec![Vec::new(); parents.len()];
            for &node in order.iter().rev() {
                let gate = self.gates[node];
                let own = self.pass(plan, node, chain, bytes, gate.as_slice())?;
                reduced[node].extend(own);
                if let Some(parent) = parents[node] {
                    let ends = [node, parent as usize];
                    let up = self.send(plan, ends, bytes, Span::ZERO, &reduced[node])?;
                    reduced[parent as usize].push(up);
                }
            }
            // And what it waits for before it sends down: all of that at the root.
            for &node in &order {
                if let Some(parent) = parents[node] {
                    let ends = [parent as usize, node];
                    let down = &reduced[parent as usize];
                    let down = self.send(plan, ends, bytes, Span::ZERO, down)?;
                    reduced[node] = vec![down];
                }
                let end = self.pass(plan, node, chain, bytes, &reduced[node])?;
                self.ends[node].extend(end);
            }
        }
        Ok(())
    }
}

/// The nodes of a tree, parents before their children.
fn from_the_root(parents: &[Option<u32>]) -> Vec<usize> {
    let mut children = vec![Vec::new(); parents.len()];
    let mut order = Vec::with_capacity(parents.len());
    for (node, parent) in parents.iter().enumerate() {
        match parent {
            Some(parent) => children[*parent as usize].push(node),
            None => order.push(node),
        }
    }
    let mut next = 0;
    while let Some(node) = order.get(next) {
        order.extend(&children[*node]);
        next += 1;
    }
    order
}
