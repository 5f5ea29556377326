//! Many processes with many queue pairs on one device leave nothing behind.

use std::time::{Duration, Instant};

use ferroce_interop::lab::Lab;

/// Sockets of exited processes that one process keeps: two for each of eight places.
const KEPT_MAX: i64 = 16;
/// A ring to the other process of a pair, and one from it: traffic may use all of them in the end.
const RINGS_KIB: i64 = 2 * 4096;

/// Runs `crowd` and returns the most descriptors and kilobytes that a process gained.
fn crowd(lab: &Lab, link: &str, [pairs, qps, seconds]: [u32; 3]) -> [i64; 2] {
    let program = lab.compile("crowd");
    // Sixty-four processes on two shared cores take minutes.
    let time = Duration::from_secs(600 + u64::from(seconds));
    let sizes = [pairs, qps, seconds].map(|number| number.to_string());
    let [pairs, qps, seconds] = [&sizes[0], &sizes[1], &sizes[2]];
    let output = lab
        .run_with(
            format!("--link {link}"),
            [program.to_str().unwrap(), pairs, qps, seconds],
        )
        .patiently(time)
        .success();
    let numbers: Vec<i64> = output
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [_rounds, _messages, descriptors, kilobytes] = numbers[..] else {
        panic!("four numbers expected: {output}");
    };
    [descriptors, kilobytes]
}

#[test]
fn sixty_four_processes_with_a_thousand_queue_pairs_each() {
    let lab = Lab::new("crowd");
    crowd(&lab, "auto", [32, 1000, 0]);
}

/// How long queue pairs come and go, in seconds.
const SECONDS: u32 = 5;

fn short_lived_objects_leave_nothing(link: &str, gained_max: i64) {
    let lab = Lab::new("churn");
    crowd(&lab, link, [2, 50, 0]);
    let before = lab.shared_state();
    let [descriptors, kilobytes] = crowd(&lab, link, [4, 50, SECONDS]);
    assert!(descriptors <= KEPT_MAX, "{descriptors} descriptors gained");
    assert!(kilobytes < gained_max, "{kilobytes} KiB gained");
    assert_eq!(lab.shared_state(), before, "shared files grow");
    let left = lab.ferroce("-j res show qp").success();
    let left: serde_json::Value = serde_json::from_str(&left).unwrap();
    let none = serde_json::json!([]);
    assert_eq!(
        left["objects"], none,
        "queue pairs of processes that are gone"
    );
}

/// Tables and queues reach their size in the first rounds, the allocator's arenas later.
const TABLES_KIB: i64 = 4096;

#[test]
fn short_lived_programs_leave_nothing_over_udp() {
    short_lived_objects_leave_nothing("udp", TABLES_KIB);
}

#[test]
fn short_lived_programs_leave_only_rings() {
    short_lived_objects_leave_nothing("auto", TABLES_KIB + RINGS_KIB);
}

/// Bursts of short messages, each in a new queue pair and each marked, at all processes at once.
fn many_processes_keep_the_interval_between_the_port_s_cnps(link: &str) {
    const INTERVAL: Duration = Duration::from_micros(4_095);
    let lab = Lab::new("cnps");
    let interval = format!("min_time_between_cnps={}", INTERVAL.as_micros());
    lab.ferroce(["cc", "set", "fr0", &interval]).success();
    lab.ferroce("impair set fr0 ecn=100% --direction ingress")
        .success();
    let started = Instant::now();
    crowd(&lab, link, [4, 8, 3]);
    let most = (started.elapsed().as_micros() / INTERVAL.as_micros() + 1) as u64;
    let shown = lab.ferroce("-j stat show").success();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let counters = &shown["devices"][0]["counters"];
    let [marked, cnps] = ["np_ecn_marked_roce_packets", "np_cnp_sent"]
        .map(|name| counters[name].as_u64().expect("a counter"));
    assert!(cnps <= most, "{cnps} CNPs, at most {most} over {link}");
    assert!(cnps > most / 8, "{cnps} CNPs of {most} over {link}");
    assert!(marked > 8 * cnps, "{marked} marked, {cnps} CNPs");
}

#[test]
fn eight_processes_keep_the_port_s_cnp_interval_over_udp() {
    many_processes_keep_the_interval_between_the_port_s_cnps("udp");
}

#[test]
fn eight_processes_keep_the_port_s_cnp_interval_over_rings() {
    many_processes_keep_the_interval_between_the_port_s_cnps("auto");
}
