//! Every workload of the generators can be run, carries the theoretical number of bytes, and never
//! changes.

use std::collections::BTreeMap;

use ferroce_base::hash::Fnv;
use ferroce_fabric::ideal::all_reduce_bytes;
use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::workload::{Cdf, Collective, Poisson, Requests, incast, permutation};
use ferroce_fabric::{Rate, Span, Time, Topology, Workload};
use proptest::prelude::*;

fn star(hosts: u32) -> Topology {
    let cable = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));
    Topology::star(hosts, cable).unwrap()
}

/// The bytes that each host sends and receives.
fn books(workload: &Workload) -> BTreeMap<u32, [u64; 2]> {
    let mut books: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for it in &workload.transfers {
        books.entry(it.src).or_default()[0] += u64::from(it.bytes);
        books.entry(it.dst).or_default()[1] += u64::from(it.bytes);
    }
    books
}

fn collective() -> impl Strategy<Value = Collective> {
    let counts = (2..18_u32, 1..4_u32, 1..4_u32);
    (counts, 0..1_000_000_u64).prop_map(|((ranks, chunks, rounds), more)| Collective {
        chunks,
        rounds,
        think: Span::from_nanos(3),
        ..Collective::new((0..ranks).rev().collect(), u64::from(ranks * chunks) + more)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn collectives_conserve_bytes(it in collective()) {
        let ranks = it.ranks.len() as u32;
        let (n, rounds) = (u64::from(ranks), u64::from(it.rounds));
        let topology = star(ranks);
        let in_all = |times: u64| times * (n - 1) * it.bytes * rounds;

        let ring = it.ring_all_reduce().unwrap();
        prop_assert_eq!(ring.check(&topology), Ok(()));
        prop_assert_eq!(ring.bytes(), in_all(2));
        // Pieces differ by a byte, so ranks differ by a few.
        let ideal = rounds * all_reduce_bytes(ranks, it.bytes);
        let few = 2 * n * u64::from(it.chunks) * rounds;
        for (_, [sent, received]) in books(&ring) {
            prop_assert!(sent.abs_diff(ideal) <= few && received.abs_diff(ideal) <= few);
        }

        for half in [it.ring_all_gather(), it.ring_reduce_scatter(), it.all_to_all_in_shifts()] {
            let half = half.unwrap();
            prop_assert_eq!(half.check(&topology), Ok(()));
            prop_assert_eq!(half.bytes(), in_all(1));
        }
        let all_to_all = it.all_to_all().unwrap();
        prop_assert_eq!(all_to_all.check(&topology), Ok(()));
        prop_assert_eq!(all_to_all.bytes(), in_all(1));

        let tree = it.tree_all_reduce().unwrap();
        prop_assert_eq!(tree.check(&topology), Ok(()));
        prop_assert_eq!(tree.bytes(), in_all(2));

        let servers = [ranks, ranks + 1];
        let server = it.parameter_server(&servers);
        // It has two ranks more.
        if let Ok(server) = server {
            prop_assert_eq!(server.check(&star(ranks + 2)), Ok(()));
            prop_assert_eq!(server.bytes(), 2 * n * it.bytes * rounds);
            for rank in 0..ranks {
                prop_assert_eq!(books(&server)[&rank], [it.bytes * rounds; 2]);
            }
        }

        let halving = it.halving_doubling_all_reduce();
        prop_assert_eq!(halving.is_ok(), ranks.is_power_of_two());
        if let Ok(halving) = halving {
            prop_assert_eq!(halving.check(&topology), Ok(()));
            prop_assert_eq!(halving.bytes(), in_all(2));
        }
    }

    #[test]
    fn patterns_conserve_bytes(hosts in 2..40_u32, bytes in 1..5_000_000_000_u64, seed: u64) {
        let all: Vec<u32> = (0..hosts).collect();
        let workload = permutation(&all, bytes, Time::ZERO, seed).unwrap();
        prop_assert_eq!(workload.check(&star(hosts)), Ok(()));
        for (_, book) in books(&workload) {
            prop_assert_eq!(book, [bytes, bytes]);
        }
        let workload = incast(&all[1..], 0, bytes, Time::ZERO).unwrap();
        prop_assert_eq!(workload.check(&star(hosts)), Ok(()));
        prop_assert_eq!(books(&workload)[&0], [0, u64::from(hosts - 1) * bytes]);
    }

    #[test]
    fn arrivals_can_be_run(seed: u64, name in prop::sample::select(Cdf::names().collect::<Vec<_>>())) {
        let it = poisson(name, seed);
        let workload = it.build().unwrap();
        prop_assert_eq!(workload.check(&star(16)), Ok(()));
        prop_assert_eq!(it.build().unwrap(), workload);
    }

    #[test]
    fn arbitrary_text_never_panics_a_reader(text in "\\PC{0,80}|[0-9 .a-zA-Z>\n-]{0,200}") {
        let _ = Workload::from_hpcc(&text, Some);
        let _ = Workload::from_htsim(&text);
        let _ = Cdf::read(&text);
        let _ = ferroce_fabric::topology::HpccTopology::read(&text);
    }
}

fn poisson(name: &str, seed: u64) -> Poisson {
    Poisson {
        hosts: (0..16).collect(),
        sizes: Cdf::published(name).unwrap(),
        rate: Rate::from_mbps(100_000),
        load: "50%".parse().unwrap(),
        at: Time::ZERO,
        duration: Span::from_millis(1),
        seed,
    }
}

/// FNV-1a over the whole workload.
fn digest(workload: &Workload) -> u64 {
    let mut hash = Fnv::of(&[]);
    let mut add = |number: u64| hash.add(&number.to_le_bytes());
    for it in &workload.transfers {
        let numbers = [it.src, it.dst, it.bytes, it.job.into()];
        numbers.into_iter().for_each(|number| add(number.into()));
        add(it.at.as_picos());
        add(it.think.as_picos());
    }
    for (before, after) in &workload.edges {
        add(before.0.into());
        add(after.0.into());
    }
    hash.value()
}

/// On every machine and in every version: results are compared by seed.
#[test]
fn seeds_keep_their_meaning() {
    let hosts: Vec<u32> = (0..64).collect();
    let arrivals = Poisson {
        duration: Span::from_millis(100),
        ..poisson("FbHdp", 1)
    };
    let requests = Requests {
        clients: (0..8).collect(),
        servers: (8..16).collect(),
        request_bytes: 128,
        answers: Cdf::published("Solar2022").unwrap(),
        outstanding: 4,
        rounds: 10,
        at: Time::ZERO,
        think: Span::from_micros(20),
        seed: 42,
    };
    let digests = [
        permutation(&hosts, 1_000_000, Time::ZERO, 42),
        poisson("WebSearch", 42).build(),
        arrivals.build(),
        requests.build(),
    ]
    .map(|workload| digest(&workload.unwrap()));
    let same = [
        18_322_706_385_615_045_153,
        2_232_279_230_786_817_002,
        1_850_660_371_251_933_265,
        4_378_577_394_185_827_578,
    ];
    assert_eq!(digests, same);
}

#[test]
fn oversized_input_takes_no_memory() {
    let everybody: Vec<u32> = (0..65_536).collect();
    let it = Collective::new(everybody, 1 << 30);
    for (workload, begins) in [
        (
            it.ring_all_reduce(),
            "the workload has 8589803520 transfers",
        ),
        (it.all_to_all(), "the workload has 4294901760 transfers"),
        (
            it.all_to_all_in_shifts(),
            "the workload has 4294901760 transfers",
        ),
    ] {
        let error = workload.unwrap_err().to_string();
        assert!(error.starts_with(begins), "{error}");
    }
    let rounds = Collective {
        rounds: 2,
        ..Collective::new((0..1_000).collect(), 1 << 20)
    };
    let error = rounds.all_to_all().unwrap_err().to_string();
    assert!(
        error.starts_with("the workload has 998001000 dependencies"),
        "{error}"
    );
    let limit = Collective::new((0..8_192).collect(), 8_192);
    let error = Collective { rounds: 2, ..limit }
        .ring_all_reduce()
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("the workload has 268402688 transfers"),
        "{error}"
    );
}
