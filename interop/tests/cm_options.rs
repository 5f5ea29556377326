//! Options and parameters of rdma_cm connections, and the calls that it refuses: C programs,
//! compiled against Debian's librdmacm.

use std::fmt::Write as _;

use ferroce_interop::lab::{Lab, free_port};

/// The attributes of both queue pairs of a connection: timeout, `retry_cnt`, `rnr_retry`,
/// `min_rnr_timer` and traffic class; the client's first.
type Ends = [[u8; 5]; 2];

/// Makes a connection for each case and compares the attributes of its queue pairs.
fn connections(lab: &Lab, cases: &[(&str, Ends)]) {
    let program = lab.compile("cm_options");
    let address = lab.address();
    let mut command = vec![program.to_str().unwrap(), &address];
    command.extend(cases.iter().map(|(case, _)| *case));
    let mut expected = String::new();
    for (case, [client, server]) in cases {
        let text = |end: &[u8; 5]| end.map(|number| format!(" {number}")).concat();
        writeln!(expected, "{case}:{},{}", text(client), text(server)).unwrap();
    }
    assert_eq!(lab.run(&command).success(), expected);
}

/// With the default values of the other attributes.
fn timeouts(client: u8, server: u8) -> Ends {
    [[client, 7, 7, 0, 0], [server, 7, 7, 0, 0]]
}

#[test]
fn the_default_timeout_follows_the_device_s_packet_lifetime() {
    let lab = Lab::new("cm-lifetime");
    connections(&lab, &[("", timeouts(19, 19))]);
    for (packet_lifetime, timeout) in [("16", 18), ("18", 19), ("10", 16), ("31", 31)] {
        let set = format!("dev set fr0 packet_lifetime {packet_lifetime}");
        lab.ferroce(&set).success();
        connections(&lab, &[("", timeouts(timeout, timeout))]);
    }
}

#[test]
fn a_timeout_set_is_that_of_ones_own_queue_pair() {
    let lab = Lab::new("cm-timeout");
    let given: Vec<String> = (0..=31).map(|timeout| format!("ack={timeout}")).collect();
    let all = given.iter().zip(0_u8..).map(|(case, timeout)| {
        let of_peer = match timeout {
            0 => 19,
            // The device's own delay is 16.
            1..=14 => 16,
            15 => 17,
            16..=17 => timeout + 1,
            _ => timeout,
        };
        (case.as_str(), timeouts(timeout, of_peer))
    });
    let mut cases: Vec<_> = all.collect();
    cases.extend([
        ("peer_ack=7", timeouts(19, 7)),
        ("ack=8,peer_ack=9", timeouts(8, 9)),
        // The peer computes its own from the route.
        ("late_ack=5", timeouts(5, 19)),
    ]);
    connections(&lab, &cases);
}

#[test]
fn retries_are_what_the_connection_says_and_seven_at_most() {
    let ends = |retry, rnr, of_peer| [[19, retry, rnr, 0, 0], [19, retry, of_peer, 0, 0]];
    let cases = [
        ("retry=0,rnr=0", ends(0, 7, 0)),
        ("retry=3,rnr=5,peer_rnr=2", ends(3, 2, 5)),
        ("retry=7,rnr=7,peer_rnr=7", ends(7, 7, 7)),
        ("retry=9,rnr=9,peer_rnr=9", ends(7, 7, 7)),
        ("retry=255,rnr=255,peer_rnr=255", ends(7, 7, 7)),
        // The client decides the retries.
        ("retry=4,rnr=1,peer_retry=2,peer_rnr=0", ends(4, 0, 1)),
    ];
    connections(&Lab::new("cm-retries"), &cases);
}

#[test]
fn both_sides_send_in_the_traffic_class_of_the_client() {
    let ends = |class| [[19, 7, 7, 0, class]; 2];
    let cases = [
        ("tos=0", ends(0)),
        ("tos=104", ends(104)),
        ("tos=255", ends(255)),
    ];
    connections(&Lab::new("cm-tos"), &cases);
}

macro_rules! calls {
    ($($name:ident: $group:literal;)*) => {
        $(#[test] fn $name() { calls($group); })*
    };
}

/// Runs a group of calls of `cm_calls.c`, which checks their results itself.
fn calls(group: &str) {
    let mut lab = Lab::new(group);
    let address = lab.address();
    if group == "families" {
        lab.set("FERROCE_DEVICES", &format!("fr0@{address},fr1@::1"));
        // There is only one such address, and other tests have devices on it as well.
        let port = free_port().to_string();
        lab.ferroce(format!("dev add fr1 ::1 port {port}"))
            .success();
    }
    // The program makes invalid calls, and checks the error numbers.
    lab.set("FERROCE_LOG", "off");
    let program = lab.compile("cm_calls");
    let output = lab.run([program.to_str().unwrap(), group, &address]);
    assert_eq!(output.success(), "good\n");
}

calls! {
    options_of_another_name_length_or_range: "options";
    calls_in_the_wrong_step: "steps";
    any_time_to_resolve: "timeouts";
    pointers_to_nothing: "pointers";
    events_and_their_ids: "events";
    connections_that_end_before_they_begin: "ends";
    programs_that_end_without_a_word: "exits";
    groups_of_members: "groups";
    ports_are_one_ids_or_shared: "ports";
    wildcards_of_both_families: "families";
    zero_and_loopback_stand_for_any_device: "wildcards";
    what_was_never_connected_cannot_end: "disconnects";
    nothing_comes_after_a_rejection: "rejections";
    a_request_that_was_taken_leaves_the_backlog: "backlog";
    a_request_that_was_got_leaves_the_backlog: "requests";
    who_is_asked_finds_the_path: "paths";
}
