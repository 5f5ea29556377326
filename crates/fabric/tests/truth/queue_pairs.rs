//! Several queue pairs for two hosts, and work of hosts between their messages.

use ferroce_device::WcStatus;
use ferroce_fabric::{
    Fault, JobConfig, OnError, Simulation, Span, Standing, Time, Transfer, TransferId, Workload,
};

use crate::net::*;

/// A job whose hosts have this many queue pairs.
fn with(qps_per_connection: u8, split_data: bool) -> JobConfig {
    JobConfig {
        qp_per_transfer: false,
        qps_per_connection,
        split_data,
        ..job()
    }
}

/// Work of a host.
fn work(host: u32, takes: Span) -> Transfer {
    Transfer {
        think: takes,
        ..transfer(host, host, 0)
    }
}

fn one_job(transfers: Vec<Transfer>, edges: &[(u32, u32)]) -> Workload {
    let edge = |&(before, after): &(u32, u32)| (TransferId(before), TransferId(after));
    Workload {
        transfers,
        edges: edges.iter().map(edge).collect(),
        jobs: vec!["job".into()],
    }
}

fn run(mut simulation: Simulation) -> Simulation {
    while simulation.run(10_000).unwrap() == Standing::Running {
        simulation.fabric.audit();
    }
    simulation
}

/// Bytes acknowledged on each connection, in the order in which these were made.
fn bytes(simulation: &Simulation) -> Vec<u64> {
    simulation.player.connections().map(|it| it.bytes).collect()
}

#[test]
fn messages_take_turns_with_queue_pairs() {
    let transfers = vec![transfer(0, 1, 10_000); 7];
    let played = Net::new(star(2, LINK)).play(transfers, with(3, false));
    assert_eq!(bytes(&played.0), [30_000, 20_000, 20_000]);
    let transfers: Vec<_> = played
        .0
        .player
        .connections()
        .map(|it| it.transfers)
        .collect();
    assert_eq!(transfers, [3, 2, 2]);
}

#[test]
fn a_split_message_is_on_all_queue_pairs() {
    // 10,000 bytes by four are 2,500, and 2,560 as a multiple of 128.
    let played = Net::new(star(2, LINK)).play(vec![transfer(0, 1, 10_000)], with(4, true));
    assert_eq!(bytes(&played.0), [2_560, 2_560, 2_560, 2_320]);
    let outcome = played.0.player.job_outcomes[0];
    assert_eq!(
        (outcome.transfers, outcome.delivered, outcome.acknowledged),
        (1, 1, 1)
    );
    // A byte needs one of them.
    let played = Net::new(star(2, LINK)).play(vec![transfer(0, 1, 1)], with(4, true));
    assert_eq!(bytes(&played.0), [1]);
}

#[test]
fn a_split_message_takes_as_long_as_a_whole_one() {
    let played = Net::new(star(2, LINK)).play(vec![transfer(0, 1, 4 * 81_920)], with(4, true));
    let wire = packets(81_920, 4_096).repeat(4);
    assert_eq!(played.took(0), pipeline(&wire, 2, LINK.rate, LINK.delay));
}

#[test]
fn parts_that_fail_are_sent_again_and_others_are_not() {
    let again = JobConfig {
        on_error: OnError::Reconnect(Span::from_millis(1)),
        ..with(2, true)
    };
    let mut net = Net::new(star(2, LINK));
    net.faults = vec![
        (micros(50), Fault::CableDown(0)),
        (micros(5_000_000), Fault::CableUp(0)),
    ];
    let load = one_job(vec![transfer(0, 1, 200_000); 20], &[]);
    let played = run(net.simulation(load.clone(), vec![again]));
    let outcome = played.player.job_outcomes[0];
    assert!(outcome.failures > 0, "{outcome:?}");
    assert_eq!((outcome.delivered, outcome.acknowledged), (20, 20));
    assert_eq!(bytes(&played).iter().sum::<u64>(), 20 * 200_000);
    // Without it, the job ends.
    let played = run(net.simulation(load, vec![with(2, true)]));
    let outcome = played.player.job_outcomes[0];
    assert_eq!(outcome.died.map(|it| it.1), Some(WcStatus::RetryExcErr));
}

#[test]
fn work_delays_what_waits_for_it() {
    let ms = Span::from_millis;
    // Host 1 computes for 2 ms, and 1 ms more after what it receives; host 0 after its answer.
    let transfers = vec![
        work(1, ms(2)),
        transfer(0, 1, 4_096),
        work(1, ms(1)),
        transfer(1, 0, 4_096),
        work(0, ms(3)),
    ];
    let edges = [(0, 2), (1, 2), (2, 3), (3, 4)];
    let load = one_job(transfers, &edges);
    let simulation = Net::new(star(2, LINK)).simulation(load, vec![with(1, false)]);
    let played = run(simulation);
    let outcome = played.player.job_outcomes[0];
    let message = pipeline(&packets(4_096, 4_096), 2, LINK.rate, LINK.delay);
    let ended = Time::ZERO.after(ms(6) + message);
    assert_eq!(
        (outcome.began, outcome.ended),
        (Some(Time::ZERO), Some(ended))
    );
    assert_eq!((outcome.transfers, outcome.delivered), (2, 2));
}

/// It would fill the stack if each called the next.
#[test]
fn long_chains_of_work_that_takes_no_time_end() {
    let count = 100_000;
    let mut transfers = vec![work(0, Span::ZERO); count];
    transfers.push(transfer(0, 1, 1));
    let edges: Vec<_> = (0..count as u32).map(|it| (it, it + 1)).collect();
    let load = one_job(transfers, &edges);
    let simulation = Net::new(star(2, LINK)).simulation(load, vec![with(1, false)]);
    assert_eq!(run(simulation).player.job_outcomes[0].delivered, 1);
}
