//! Traces that the tests write themselves, in both forms.

use std::collections::BTreeMap;

use ferroce_base::time::{Span, Time};
use proptest::prelude::*;

use super::*;

/// A trace that is being written.
#[derive(Clone, Default)]
struct Writer(Vec<u8>);

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(out: &mut Vec<u8>, field: u64, value: u64) {
    number(out, field << 3);
    number(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    number(out, field << 3 | 2);
    number(out, value.len() as u64);
    out.extend(value);
}

/// The numbers of node types.
const METADATA: u64 = 1;
const COMP: u64 = 4;
const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;

impl Writer {
    fn new() -> Self {
        let mut metadata = Vec::new();
        bytes(&mut metadata, 1, b"0.0.4");
        let mut file = Vec::new();
        number(&mut file, metadata.len() as u64);
        file.extend(metadata);
        Self(file)
    }

    /// A node that waits for others; `more` writes the rest of its fields.
    fn node(mut self, id: u64, kind: u64, deps: &[u64], more: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut node = Vec::new();
        varint(&mut node, 1, id);
        bytes(&mut node, 2, format!("n{id}").as_bytes());
        varint(&mut node, 3, kind);
        // One in a field of its own, and the others packed.
        if let Some((first, rest)) = deps.split_first() {
            varint(&mut node, 4, *first);
            let mut packed = Vec::new();
            rest.iter().for_each(|dep| number(&mut packed, *dep));
            bytes(&mut node, 5, &packed);
        }
        more(&mut node);
        number(&mut self.0, node.len() as u64);
        self.0.extend(node);
        self
    }

    fn work(self, id: u64, micros: u64, deps: &[u64]) -> Self {
        self.node(id, COMP, deps, |node| varint(node, 7, micros))
    }

    fn send(self, id: u64, to: u64, size: u64, deps: &[u64]) -> Self {
        self.node(id, SEND, deps, |node| {
            attr(node, "comm_dst", 7, to);
            attr(node, "comm_tag", 7, 5);
            attr(node, "comm_size", 9, size);
        })
    }

    fn receive(self, id: u64, from: u64, size: u64, deps: &[u64]) -> Self {
        self.node(id, RECEIVE, deps, |node| {
            attr(node, "comm_src", 11, from);
            attr(node, "comm_tag", 13, 5);
            attr(node, "comm_size", 13, size);
        })
    }

    fn collective(self, id: u64, kind: u64, size: u64, deps: &[u64]) -> Self {
        self.node(id, COLLECTIVE, deps, |node| {
            attr(node, "comm_type", 9, kind);
            attr(node, "comm_size", 9, size);
        })
    }

    fn of_group(self, id: u64, group: &str, size: u64) -> Self {
        self.node(id, COLLECTIVE, &[], |node| {
            attr(node, "comm_type", 9, 0);
            attr(node, "comm_size", 9, size);
            let mut pg_name = Vec::new();
            bytes(&mut pg_name, 1, b"pg_name");
            bytes(&mut pg_name, 29, group.as_bytes());
            bytes(node, 10, &pg_name);
        })
    }
}

/// An attribute whose value is in this field.
fn attr(node: &mut Vec<u8>, name: &str, field: u64, value: u64) {
    let mut attr = Vec::new();
    bytes(&mut attr, 1, name.as_bytes());
    varint(&mut attr, field, value);
    bytes(node, 10, &attr);
}

fn chakra(ranks: usize) -> Chakra {
    Chakra {
        hosts: (0..ranks as u32).map(|rank| 10 + rank).collect(),
        groups: BTreeMap::new(),
        uses_tree: false,
        tera_ops: None,
        at: Time::ZERO,
    }
}

fn build(chakra: &Chakra, ranks: &[Writer]) -> Result<Workload, String> {
    let mut read = |rank: u32| Ok(TraceFile::Protobuf(ranks[rank as usize].0.clone()));
    chakra.build(&mut read).map_err(|error| error.to_string())
}

fn built(ranks: &[Writer]) -> Workload {
    build(&chakra(ranks.len()), ranks).unwrap()
}

fn error(ranks: &[Writer]) -> String {
    build(&chakra(ranks.len()), ranks).unwrap_err()
}

/// Ends and bytes of messages.
fn messages(workload: &Workload) -> Vec<(u32, u32, u32)> {
    let messages = workload.transfers.iter().filter(|it| !it.is_work());
    messages.map(|it| (it.src, it.dst, it.bytes)).collect()
}

/// When everything is over if messages take a microsecond each.
fn end(workload: &Workload) -> Time {
    let mut ends = vec![Time::ZERO; workload.transfers.len()];
    // What waits was added after what it waits for.
    assert!(workload.edges.iter().all(|(before, after)| before < after));
    for (place, it) in workload.transfers.iter().enumerate() {
        let before = workload
            .edges
            .iter()
            .filter(|edge| edge.1.0 as usize == place);
        let released = before.map(|edge| ends[edge.0.0 as usize]).max();
        let due = it.due(released);
        ends[place] = if it.is_work() {
            due
        } else {
            due.after(Span::from_micros(1))
        };
    }
    ends.into_iter().max().unwrap()
}

#[test]
fn work_and_messages_wait_for_each_other() {
    let ranks = [
        Writer::new()
            .work(0, 30, &[])
            .send(1, 1, 700, &[0])
            .work(2, 2, &[1]),
        Writer::new()
            .receive(7, 0, 700, &[])
            .work(3, 4, &[])
            .work(9, 10, &[3, 7]),
    ];
    let workload = built(&ranks);
    assert_eq!(messages(&workload), [(10, 11, 700)]);
    assert_eq!(end(&workload), Time::from_nanos(41_000));
}

#[test]
fn a_receive_is_not_done_before_what_it_depends_on() {
    let ranks = [
        Writer::new().send(0, 1, 700, &[]),
        Writer::new()
            .work(1, 50, &[])
            .receive(2, 0, 700, &[1])
            .work(3, 5, &[2]),
    ];
    assert_eq!(end(&built(&ranks)), Time::from_nanos(55_000));
}

#[test]
fn collectives_send_what_their_kind_says() {
    let of = |kind: u64, size| {
        let rank = Writer::new().collective(0, kind, size, &[]);
        let workload = built(&[rank.clone(), rank.clone(), rank.clone(), rank]);
        messages(&workload)
            .iter()
            .map(|it| u64::from(it.2))
            .sum::<u64>()
    };
    // Four ranks: an all-reduce sends 2 * 3 times the buffer, a half of it as often as ranks less one.
    assert_eq!(of(0, 4_000), 6 * 4_000);
    assert_eq!(of(7, 4_000), 3 * 4_000);
    // The size of an all-gather is that of a rank.
    assert_eq!(of(2, 1_000), 3 * 4_000);
    assert_eq!(of(6, 4_000), 3 * 4_000);
    assert_eq!(of(5, 4_000), 3 * 4_000);
    assert_eq!(of(1, 4_000), 3 * 4_000);
    assert_eq!(of(9, 0), 6);
    // A ring of a byte is one of a byte for each rank.
    assert_eq!(of(0, 1), 24);
}

/// A ring passes a rank that is late only when it has come.
#[test]
fn collectives_wait_for_the_last_rank() {
    for kind in [0, 2, 5, 6, 7, 9] {
        for late in 0..3 {
            let rank = |rank: u64| {
                let micros = if rank == late { 1_000 } else { 1 };
                let begins = Writer::new().work(0, micros, &[]);
                begins.collective(1, kind, 3_000, &[0]).work(2, 100, &[1])
            };
            let workload = built(&[rank(0), rank(1), rank(2)]);
            let steps = end(&workload).since(Time::from_nanos(1_100_000));
            // A broadcast's root may be done before the others have begun.
            let steps = steps.as_nanos();
            assert!(steps <= 4_000, "{kind}: rank {late} is late, {steps}");
            for it in messages(&workload) {
                let from_late = it.0 == 10 + late as u32;
                assert!(kind != 0 || from_late || it.2 == 1_000);
            }
        }
    }
    // No message of the late rank leaves before it has computed.
    let rank = |micros| {
        let begins = Writer::new().work(0, micros, &[]);
        begins.collective(1, 0, 3_000, &[0])
    };
    let workload = built(&[rank(1), rank(1_000), rank(1)]);
    let is_late = |it: &crate::Transfer| it.is_work() && it.think == Span::from_micros(1_000);
    let work = workload.transfers.iter().position(is_late).unwrap() as u32;
    for (place, it) in workload.transfers.iter().enumerate() {
        if it.src == 11 && !it.is_work() {
            let waits = |edge: &(crate::TransferId, crate::TransferId)| {
                (edge.0.0, edge.1.0) == (work, place as u32)
            };
            assert!(workload.edges.iter().any(waits), "{it:?}");
        }
    }
}

#[test]
fn groups_come_from_a_file_or_from_metadata() {
    let ranks: Vec<_> = ["a", "b", "a", "b"]
        .map(|it| Writer::new().of_group(0, it, 600))
        .into();
    assert_eq!(
        build(&chakra(4), &ranks).unwrap_err(),
        "rank 0: node 0 (n0): unknown process group \"a\"; add it to a file, and name that with groups"
    );
    let groups = Chakra::read_groups("{\"a\": [0, 2], \"b\": [3, 1]}").unwrap();
    let with = Chakra {
        groups,
        ..chakra(4)
    };
    let ends: Vec<_> = messages(&build(&with, &ranks).unwrap());
    assert_eq!(ends.len(), 2 * 4);
    assert!(ends.iter().all(|it| (it.0 + it.1) % 2 == 0));

    let described = |it: Writer| {
        let text = "['[{\"pg_name\": \"a\", \"ranks\": [0, 2]}, {\"pg_name\": \"b\", \"ranks\": [1, 3]}]']";
        it.node(9, METADATA, &[], |node| {
            bytes(node, 2, b"## process_group:init ##");
            let mut inputs = Vec::new();
            bytes(&mut inputs, 1, text.as_bytes());
            bytes(node, 8, &inputs);
        })
    };
    let ranks: Vec<_> = ranks.into_iter().map(described).collect();
    assert_eq!(messages(&built(&ranks)).len(), 2 * 4);

    let groups = Chakra::read_groups("{\"a\": [0, 7]}").unwrap();
    let error = build(
        &Chakra {
            groups,
            ..chakra(4)
        },
        &ranks,
    )
    .unwrap_err();
    assert_eq!(
        error,
        "process group \"a\": unknown rank 7: there are ranks 0 to 3; name more hosts"
    );
    assert!(
        Chakra::read_groups("[1]")
            .unwrap_err()
            .contains("must be an object of lists of ranks")
    );
}

#[test]
fn cycles_and_missing_nodes_are_named() {
    let alone = |it: Writer| error(&[it, Writer::new()]);
    assert_eq!(
        alone(
            Writer::new()
                .work(1, 1, &[2])
                .work(2, 1, &[3])
                .work(3, 1, &[1])
        ),
        "rank 0: node 1 (n1), which waits for node 2 (n2) of rank 0, which waits for node 3 (n3) of rank 0, which \
         waits for the first again; remove one of these dependencies"
    );
    assert_eq!(
        alone(Writer::new().work(1, 1, &[8])),
        "rank 0: node 1 (n1) depends on node 8, which is not in the trace; add it, or remove the dependency"
    );
    assert_eq!(
        alone(Writer::new().work(1, 1, &[]).work(1, 2, &[])),
        "rank 0: node 1 (n1) and node 1 (n1) have the same id; number the nodes of a rank"
    );
    // Each rank receives before it sends.
    let rank = |other| {
        let receives = Writer::new().receive(1, other, 9, &[]);
        receives.send(2, other, 9, &[1])
    };
    let text = error(&[rank(1), rank(0)]);
    assert!(
        text.contains("node 1 (n1), which waits for node 2 (n2) of rank 1, which waits for node 1"),
        "{text}"
    );
}

#[test]
fn ranks_that_disagree_are_named() {
    let of = |kind, size| Writer::new().collective(0, kind, size, &[]);
    assert_eq!(
        error(&[of(0, 100), of(0, 101)]),
        "rank 1: node 0 (n0): AllReduce of 101 bytes, but rank 0 does AllReduce of 100 bytes there (node 0 (n0)); \
         collectives of a group must be the same on all its ranks"
    );
    assert_eq!(
        error(&[of(0, 100), Writer::new()]),
        "rank 1: 0 collectives of all ranks, but rank 0 has 1: its node 0 (n0) has no counterpart; add it, or \
         remove that"
    );
    assert_eq!(
        error(&[Writer::new().send(3, 1, 9, &[]), Writer::new()]),
        "rank 0: node 3 (n3) sends to rank 1 with tag 5, which has no receive for it; add one to rank 1 with \
         comm_src = 0 and comm_tag = 5"
    );
    assert_eq!(
        error(&[Writer::new(), Writer::new().receive(3, 0, 9, &[])]),
        "rank 1: node 3 (n3) receives from rank 0 with tag 5, which has no send for it; add one to rank 0 with \
         comm_dst = 1 and comm_tag = 5"
    );
    let sizes = [
        Writer::new().send(3, 1, 9, &[]),
        Writer::new().receive(4, 0, 8, &[]),
    ];
    assert_eq!(
        error(&sizes),
        "rank 0: node 3 (n3) sends 9 bytes, and node 4 (n4) of rank 1 expects 8; make comm_size the same"
    );
    assert_eq!(
        error(&[Writer::new().send(3, 2, 9, &[]), Writer::new()]),
        "rank 0: node 3 (n3): invalid comm_dst 2: must be 0 to 1, and not 0"
    );
}

#[test]
fn bad_nodes_are_named() {
    let alone = |it: Writer| error(&[it]);
    assert_eq!(
        alone(Writer::new().collective(4, 3, 9, &[])),
        "rank 0: node 4 (n4): unsupported comm_type 3: must be 0 (all-reduce), 1 (reduce), 2 (all-gather), 5 \
         (broadcast), 6 (all-to-all), 7 or 8 (reduce-scatter) or 9 (barrier)"
    );
    assert_eq!(
        alone(Writer::new().node(4, 8, &[], |_| ())),
        "rank 0: node 4 (n4): unknown type 8: must be 0 to 7, as in schema 0.0.4"
    );
    assert_eq!(
        alone(Writer::new().node(4, COLLECTIVE, &[], |_| ())),
        "rank 0: node 4 (n4): missing comm_type; add the attribute"
    );
    assert_eq!(
        alone(Writer::new().collective(4, 0, 0, &[])),
        "rank 0: node 4 (n4): invalid comm_size 0: must be 1 to 68719476736"
    );
    let negative = Writer::new().node(4, SEND, &[], |node| attr(node, "comm_dst", 9, u64::MAX));
    assert_eq!(
        alone(negative),
        "rank 0: message at byte 8: invalid comm_dst -1: must be 0 to 18446744073709551615"
    );
    let operations =
        Writer::new().node(4, COMP, &[], |node| attr(node, "num_ops", 9, 8_000_000_000));
    assert_eq!(
        alone(operations.clone()),
        "rank 0: node 4 (n4): it has num_ops and no duration_micros; set tera_ops, for example tera_ops = 400"
    );
    let with = Chakra {
        tera_ops: Some(400),
        ..chakra(1)
    };
    let workload = build(&with, &[operations]).unwrap();
    assert_eq!(workload.transfers[0].think, Span::from_micros(20));
}

#[test]
fn files_that_are_cut_short_are_refused() {
    let whole = Writer::new().work(1, 2, &[]).work(2, 3, &[1]);
    for length in 0..whole.0.len() {
        let cut = Writer(whole.0[..length].to_vec());
        match build(&chakra(1), &[cut]) {
            // Between two messages.
            Ok(workload) => assert!(workload.transfers.len() < 2),
            Err(error) => assert!(
                error.contains("cut short") || error.contains("empty"),
                "{error}"
            ),
        }
    }
}

#[test]
fn both_forms_of_a_trace_are_the_same() {
    let json = r#"{"workload_graph": [
        {"Id": 0, "Name": "n0", "NodeType": 4, "runtime": 30, "data_deps": [], "is_cpu_op": true},
        {"Id": 1, "Name": "n1", "NodeType": 7, "comm_type": 0, "comm_size": 900, "ctrlDeps": [0]}]}"#;
    let protobuf = Writer::new().work(0, 30, &[]).collective(1, 0, 900, &[0]);
    let of = |file: &TraceFile| chakra(3).build(&mut |_| Ok(file.clone())).unwrap();
    assert_eq!(
        of(&TraceFile::Json(json.into())),
        of(&TraceFile::Protobuf(protobuf.0))
    );
    let error = chakra(3).build(&mut |_| Ok(TraceFile::Json(b"{}".to_vec())));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("must be an object with a workload_graph")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is in a file, reading it ends, and what is accepted has no cycles.
    #[test]
    fn any_bytes_are_a_workload_or_refused(
        at in any::<prop::sample::Index>(),
        change: u8,
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let good = Writer::new().work(0, 30, &[]).send(1, 1, 700, &[0]).collective(2, 0, 99, &[0, 1]);
        let other = Writer::new().receive(7, 0, 700, &[]).collective(8, 0, 99, &[7]);
        let mut changed = good;
        let at = at.index(changed.0.len());
        changed.0[at] = change;
        for file in [changed, Writer(noise)] {
            if let Ok(workload) = build(&chakra(2), &[file, other.clone()]) {
                let cable = crate::topology::CableSpec::new(crate::Rate::from_mbps(1_000), Span::ZERO);
                let topology = crate::Topology::star(12, cable).unwrap();
                prop_assert_eq!(workload.check(&topology), Ok(()));
            }
        }
    }
}
