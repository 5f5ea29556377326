//! The nodes of all ranks: which sends, receives and collective operations belong together, and what waits for
//! what.

use std::collections::{HashMap, VecDeque};

use ferroce_base::time::Span;

use super::groups::Groups;
use super::node::{Node, Operation, Task};
use super::{Chakra, ChakraError};
use crate::workload::collective::{Algorithm, Collective, State};
use crate::workload::plan::{MESSAGE_BYTES_MAX, Message, Plan, Sending};

/// A node: its rank, and its place there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct At {
    rank: u32,
    node: u32,
}

/// A collective operation.
struct Meeting {
    operation: Operation,
    bytes: u64,
    /// The node of each member, in the order of the group.
    members: Vec<At>,
    /// How many have come.
    arrived: usize,
}

/// The collective operations of a process group.
struct OfGroup {
    /// Their numbers, in order.
    meetings: Vec<usize>,
    /// The place of each rank in the group, and how many of them it has.
    ranks: HashMap<u32, (usize, usize)>,
}

impl OfGroup {
    fn new(members: &[u32]) -> Self {
        let ranks = members.iter().enumerate();
        Self {
            meetings: Vec::new(),
            ranks: ranks.map(|(place, rank)| (*rank, (place, 0))).collect(),
        }
    }
}

/// What a node is done with, and what waits for it.
#[derive(Clone, Default)]
struct Progress {
    /// How many it still waits for.
    left: u32,
    is_done: bool,
    /// What waits for it instead, if that is anything.
    message: Option<Message>,
    dependents: Vec<u32>,
}

pub(super) struct Graph<'a> {
    chakra: &'a Chakra,
    nodes: &'a [Vec<Node>],
    progress: Vec<Vec<Progress>>,
    meetings: Vec<Meeting>,
    /// The collective operation of a node.
    meeting_of: HashMap<At, usize>,
    /// The receive of a send, and the send of a receive.
    partners: HashMap<At, At>,
}

impl<'a> Graph<'a> {
    /// Finds what belongs together.
    pub(super) fn new(
        chakra: &'a Chakra,
        nodes: &'a [Vec<Node>],
        groups: &Groups,
    ) -> Result<Self, ChakraError> {
        let mut graph = Self {
            chakra,
            nodes,
            progress: nodes.iter().map(|of_rank| progress(of_rank)).collect(),
            meetings: Vec::new(),
            meeting_of: HashMap::new(),
            partners: HashMap::new(),
        };
        graph.match_messages()?;
        graph.match_collectives(groups)?;
        Ok(graph)
    }

    fn node(&self, at: At) -> &'a Node {
        &self.nodes[at.rank as usize][at.node as usize]
    }

    fn progress(&mut self, at: At) -> &mut Progress {
        &mut self.progress[at.rank as usize][at.node as usize]
    }

    fn all(&self) -> impl Iterator<Item = (At, &'a Node)> + use<'a> {
        let ranks = (0..).zip(self.nodes);
        ranks.flat_map(|(rank, nodes)| {
            let nodes = (0..).zip(nodes);
            nodes.map(move |(node, it)| (At { rank, node }, it))
        })
    }

    /// Sends and receives of two ranks with the same tag belong together in the order of their identifiers.
    fn match_messages(&mut self) -> Result<(), ChakraError> {
        let ranks = self.nodes.len() as u64;
        let mut receives: HashMap<(u64, u64, u64), VecDeque<At>> = HashMap::new();
        for (at, node) in self.all() {
            let (Task::Send { to: other, .. } | Task::Receive { from: other, .. }) = node.task
            else {
                continue;
            };
            let field = match node.task {
                Task::Send { .. } => "comm_dst",
                _ => "comm_src",
            };
            if other >= ranks || other == u64::from(at.rank) {
                let (own, last) = (at.rank, ranks - 1);
                let text =
                    format!("{node}: invalid {field} {other}: must be 0 to {last}, and not {own}");
                return Err(ChakraError::at(at.rank, text));
            }
            if let Task::Receive { from, tag, .. } = node.task {
                let key = (from, at.rank.into(), tag);
                receives.entry(key).or_default().push_back(at);
            }
        }
        for (at, node) in self.all() {
            let Task::Send { to, tag, bytes } = node.task else {
                continue;
            };
            let key = (at.rank.into(), to, tag);
            let Some(receive) = receives.get_mut(&key).and_then(VecDeque::pop_front) else {
                let text = format!(
                    "{node} sends to rank {to} with tag {tag}, which has no receive for it; add one to rank {to} \
                     with comm_src = {} and comm_tag = {tag}",
                    at.rank
                );
                return Err(ChakraError::at(at.rank, text));
            };
            let receiver = self.node(receive);
            if let Task::Receive { bytes: other, .. } = receiver.task
                && other != bytes
            {
                let text = format!(
                    "{node} sends {bytes} bytes, and {receiver} of rank {to} expects {other}; make comm_size the \
                     same"
                );
                return Err(ChakraError::at(at.rank, text));
            }
            self.partners.insert(at, receive);
            self.partners.insert(receive, at);
            self.progress(receive).left += 1;
        }
        for (at, node) in self.all() {
            if let Task::Receive { from, tag, .. } = node.task
                && !self.partners.contains_key(&at)
            {
                let text = format!(
                    "{node} receives from rank {from} with tag {tag}, which has no send for it; add one to rank \
                     {from} with comm_dst = {} and comm_tag = {tag}",
                    at.rank
                );
                return Err(ChakraError::at(at.rank, text));
            }
        }
        Ok(())
    }

    /// The collective operations of a group belong together in the order of their identifiers at each rank.
    fn match_collectives(&mut self, groups: &Groups) -> Result<(), ChakraError> {
        let mut known: HashMap<Option<&str>, OfGroup> = HashMap::new();
        let mut order = Vec::new();
        for (at, node) in self.all() {
            let Task::Collective {
                operation,
                bytes,
                group,
            } = &node.task
            else {
                continue;
            };
            let group = group.as_deref();
            let refused = |text| ChakraError::at(at.rank, format!("{node}: {text}"));
            let members = groups.members(group).map_err(refused)?;
            let of_group = known.entry(group).or_insert_with(|| {
                order.push((group, at));
                OfGroup::new(members)
            });
            let Some((place, number)) = of_group.ranks.get_mut(&at.rank) else {
                let text = format!(
                    "the rank is not in process group {}; its ranks are {members:?}",
                    group.unwrap_or_default()
                );
                return Err(refused(text));
            };
            let meeting = match of_group.meetings.get(*number) {
                Some(meeting) => *meeting,
                None => {
                    of_group.meetings.push(self.meetings.len());
                    self.meetings.push(Meeting {
                        operation: *operation,
                        bytes: *bytes,
                        members: vec![at; members.len()],
                        arrived: 0,
                    });
                    self.meetings.len() - 1
                }
            };
            *number += 1;
            let it = &mut self.meetings[meeting];
            if (it.operation, it.bytes) != (*operation, *bytes) {
                let first = it.members[0];
                let (other, rank) = (
                    &self.nodes[first.rank as usize][first.node as usize],
                    first.rank,
                );
                let text = format!(
                    "{operation:?} of {bytes} bytes, but rank {rank} does {:?} of {} bytes there ({other}); \
                     collectives of a group must be the same on all its ranks",
                    it.operation, it.bytes
                );
                return Err(refused(text));
            }
            it.members[*place] = at;
            self.meeting_of.insert(at, meeting);
        }
        for (group, first) in order {
            let OfGroup { meetings, ranks } = &known[&group];
            let of = |rank: &u32| ranks[rank].1;
            let members = groups.members(group).unwrap_or_default();
            if let Some(short) = members.iter().find(|rank| of(rank) < meetings.len()) {
                let missing = self.meetings[meetings[of(short)]].members.iter();
                let there = missing
                    .copied()
                    .find(|at| at.rank != *short)
                    .unwrap_or(first);
                let text = format!(
                    "{} collectives of {}, but rank {} has {}: its {} has no counterpart; add it, or remove that",
                    of(short),
                    match group {
                        Some(name) => format!("process group {name:?}"),
                        None => "all ranks".into(),
                    },
                    there.rank,
                    of(&there.rank),
                    self.node(there),
                );
                return Err(ChakraError::at(*short, text));
            }
        }
        Ok(())
    }

    /// Adds the messages and the work of all nodes.
    pub(super) fn expand(mut self, plan: &mut Plan) -> Result<(), ChakraError> {
        let firsts = self.all().map(|(at, _)| at);
        let is_ready = |at: &At| self.progress[at.rank as usize][at.node as usize].left == 0;
        let mut ready: VecDeque<At> = firsts.filter(is_ready).collect();
        let mut left = self.nodes.iter().map(Vec::len).sum::<usize>();
        while let Some(at) = ready.pop_front() {
            for (at, message) in self.perform(plan, at)? {
                left -= 1;
                self.finish(at, message, &mut ready);
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(self.cycle()),
        }
    }

    /// What a node waits for: nothing, a message, or work that waits for several.
    fn begin(&mut self, plan: &mut Plan, at: At) -> Result<Option<Message>, ChakraError> {
        let of_rank = &self.progress[at.rank as usize];
        let deps = self.node(at).deps.iter();
        let mut waits_for: Vec<_> = deps
            .filter_map(|dep| of_rank[*dep as usize].message)
            .collect();
        if let Task::Receive { .. } = self.node(at).task {
            let send = self.partners[&at];
            waits_for.extend(self.progress(send).message);
        }
        self.join(plan, at.rank, &waits_for)
    }

    fn join(
        &self,
        plan: &mut Plan,
        rank: u32,
        waits_for: &[Message],
    ) -> Result<Option<Message>, ChakraError> {
        match waits_for {
            [] => Ok(None),
            [one] => Ok(Some(*one)),
            several => self.work(plan, rank, Span::ZERO, several).map(Some),
        }
    }

    fn work(
        &self,
        plan: &mut Plan,
        rank: u32,
        takes: Span,
        waits_for: &[Message],
    ) -> Result<Message, ChakraError> {
        let host = self.chakra.hosts[rank as usize];
        Ok(plan.work(host, self.chakra.at, takes, waits_for)?)
    }

    /// Does what a node does when all it waits for is done. Returns the nodes that are done by that, each with
    /// what waits for it instead.
    fn perform(
        &mut self,
        plan: &mut Plan,
        at: At,
    ) -> Result<Vec<(At, Option<Message>)>, ChakraError> {
        let begin = self.begin(plan, at)?;
        let node = self.node(at);
        match node.task {
            Task::Work(Span::ZERO) | Task::Receive { .. } => Ok(vec![(at, begin)]),
            Task::Work(takes) => {
                let work = self.work(plan, at.rank, takes, begin.as_slice())?;
                Ok(vec![(at, Some(work))])
            }
            Task::Send { to, bytes, .. } => {
                let sending = Sending {
                    src: self.chakra.hosts[at.rank as usize],
                    dst: self.chakra.hosts[to as usize],
                    bytes,
                    at: self.chakra.at,
                    think: Span::ZERO,
                };
                Ok(vec![(at, Some(plan.add(sending, begin.as_slice())?))])
            }
            Task::Collective { .. } => {
                // Until all have come, its message is what it begins after.
                self.progress(at).message = begin;
                let number = self.meeting_of[&at];
                let meeting = &mut self.meetings[number];
                meeting.arrived += 1;
                match meeting.arrived == meeting.members.len() {
                    true => self.meet(plan, number),
                    false => Ok(Vec::new()),
                }
            }
        }
    }

    /// A collective operation whose members have all come.
    fn meet(
        &self,
        plan: &mut Plan,
        number: usize,
    ) -> Result<Vec<(At, Option<Message>)>, ChakraError> {
        let meeting = &self.meetings[number];
        let of = |at: &At| self.progress[at.rank as usize][at.node as usize].message;
        let begins: Vec<_> = meeting.members.iter().map(of).collect();
        let ranks = meeting.members.len() as u32;
        let hosts = meeting
            .members
            .iter()
            .map(|at| self.chakra.hosts[at.rank as usize]);
        if ranks == 1 {
            return Ok(meeting.members.iter().copied().zip(begins).collect());
        }
        let tree = Algorithm::Tree.steps(ranks);
        let (algorithm, steps) = match meeting.operation {
            Operation::AllReduce if self.chakra.uses_tree => (Algorithm::Tree, 0..tree),
            Operation::Reduce => (Algorithm::Tree, 0..tree / 2),
            Operation::Broadcast => (Algorithm::Tree, tree / 2..tree),
            Operation::Barrier => (Algorithm::Tree, 0..tree),
            Operation::AllReduce => {
                let ring = Algorithm::RingAllReduce;
                (ring, 0..ring.steps(ranks))
            }
            Operation::AllGather | Operation::ReduceScatter => {
                let ring = Algorithm::RingHalf;
                (ring, 0..ring.steps(ranks))
            }
            Operation::AllToAll => (Algorithm::AllToAll, 0..1),
        };
        // The size of an all-gather is what each rank adds. A piece of a ring has a byte at least.
        let bytes = match meeting.operation {
            Operation::AllGather => meeting.bytes * u64::from(ranks),
            Operation::Barrier | Operation::Broadcast | Operation::Reduce => meeting.bytes,
            _ => meeting.bytes.max(ranks.into()),
        };
        if bytes > MESSAGE_BYTES_MAX {
            let first = meeting.members[0];
            let text = format!(
                "{}: {bytes} bytes of all {ranks} ranks: must be at most {MESSAGE_BYTES_MAX}; lower comm_size",
                self.node(first)
            );
            return Err(ChakraError::at(first.rank, text));
        }
        let mut state = State::after(begins);
        let mut collective = Collective::new(hosts.collect(), bytes);
        collective.at = self.chakra.at;
        collective.run(plan, algorithm, steps, bytes, &mut state)?;
        let mut ends = Vec::with_capacity(meeting.members.len());
        for (place, at) in meeting.members.iter().enumerate() {
            ends.push((*at, self.join(plan, at.rank, &state.end(place))?));
        }
        Ok(ends)
    }

    /// A node is done: what waits for it may be ready.
    fn finish(&mut self, at: At, message: Option<Message>, ready: &mut VecDeque<At>) {
        let progress = self.progress(at);
        progress.is_done = true;
        progress.message = message;
        let dependents = std::mem::take(&mut progress.dependents);
        let dependents = dependents.into_iter().map(|node| At { node, ..at });
        let receive = match self.node(at).task {
            Task::Send { .. } => self.partners.get(&at).copied(),
            _ => None,
        };
        for waiter in dependents.chain(receive) {
            let waiter_left = &mut self.progress(waiter).left;
            *waiter_left -= 1;
            if *waiter_left == 0 {
                ready.push_back(waiter);
            }
        }
    }

    /// Names nodes that wait for each other; there are some.
    fn cycle(&self) -> ChakraError {
        /// More are not shown.
        const SHOWN: usize = 8;
        let of = |at: &At| &self.progress[at.rank as usize][at.node as usize];
        let start = self.all().map(|(at, _)| at).find(|at| !of(at).is_done);
        let Some(start) = start else {
            unreachable!("a node is not done")
        };
        let mut path = vec![start];
        let mut places = HashMap::from([(start, 0)]);
        let from = loop {
            let Some(next) = path.last().and_then(|at| self.blocker(*at)) else {
                unreachable!("a node that is not done waits for another one")
            };
            if let Some(place) = places.get(&next) {
                break *place;
            }
            places.insert(next, path.len());
            path.push(next);
        };
        let cycle = &path[from..];
        let label = |at: &At| format!("{} of rank {}", self.node(*at), at.rank);
        let mut text = self.node(cycle[0]).to_string();
        for at in cycle[1..].iter().take(SHOWN) {
            text += &format!(", which waits for {}", label(at));
        }
        if cycle.len() > SHOWN + 1 {
            text += ", and so on";
        }
        text += ", which waits for the first again; remove one of these dependencies";
        ChakraError::at(cycle[0].rank, text)
    }

    /// A node that is not done and keeps another one from being done.
    fn blocker(&self, at: At) -> Option<At> {
        let of = |at: &At| &self.progress[at.rank as usize][at.node as usize];
        let deps = self.node(at).deps.iter();
        let mut deps = deps.map(|node| At { node: *node, ..at });
        if let Some(dep) = deps.find(|dep| !of(dep).is_done) {
            return Some(dep);
        }
        if let Some(meeting) = self.meeting_of.get(&at) {
            let mut members = self.meetings[*meeting].members.iter().copied();
            return members.find(|member| of(member).left > 0);
        }
        self.partners
            .get(&at)
            .copied()
            .filter(|send| !of(send).is_done)
    }
}

/// The nodes of a rank before anything is done.
fn progress(nodes: &[Node]) -> Vec<Progress> {
    let mut all = vec![Progress::default(); nodes.len()];
    for (place, node) in (0..).zip(nodes) {
        all[place as usize].left = node.deps.len() as u32;
        for dep in &node.deps {
            all[*dep as usize].dependents.push(place);
        }
    }
    all
}
