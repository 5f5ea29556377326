//! Cards with two ports, and bonds, as programs and tools see them (docs/ports.md).

use std::process;
use std::thread;
use std::time::Duration;

use ferroce_interop::lab::{Lab, Ready, Running, free_port, until};
use ferroce_testing::has;
use serde_json::Value;

/// The two devices of a lab.
const DEVICES: [&str; 2] = ["card0", "card1"];

/// Addresses of the links of both devices, which no other lab has.
struct Places([[String; 2]; 2]);

impl Places {
    fn new(test: u8) -> Self {
        let [_, _, high, low] = process::id().to_be_bytes();
        let address = |second: u8| format!("127.{second}.{high}.{low}");
        Self([0, 2].map(|device| {
            let at = |link: u8| address(200 + 4 * test + device + link);
            [at(0), at(1)]
        }))
    }
}

/// A lab with two devices of two links each: `kind` is `--ports 2` or `--bond`.
fn lab(name: &str, test: u8, kind: &str) -> (Lab, Places) {
    let mut lab = Lab::new(name);
    let places = Places::new(test);
    for (device, [first, second]) in DEVICES.iter().zip(&places.0) {
        let add = format!("dev add {device} {first} {kind} second_address {second}");
        lab.ferroce(add).success();
    }
    lab.set("FERROCE_DEVICES", &DEVICES.join(","));
    (lab, places)
}

/// A counter of a link, by its name as `rdma` has it.
fn count(lab: &Lab, link: &str, counter: &str) -> u64 {
    let shown = lab.ferroce(["-j", "stat", "show", link, counter]).success();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown["devices"][0]["counters"][counter].as_u64().unwrap()
}

#[test]
fn tools_see_two_ports_and_their_own_states() {
    let (lab, places) = lab("ports", 0, "--ports 2");
    lab.ferroce("link set card0/2 down").success();
    let seen = lab.run("ibv_devinfo -v -d card0").success();
    has(&seen, ["phys_port_cnt:\t\t\t2", "port:\t1", "port:\t2"]);
    let (first, second) = seen.split_once("port:\t2").unwrap();
    has(
        first,
        ["PORT_ACTIVE (4)", &format!("::ffff:{}", places.0[0][0])],
    );
    has(
        second,
        ["PORT_DOWN (1)", &format!("::ffff:{}", places.0[0][1])],
    );

    let links = lab.run("rdma link").success();
    let states = [
        "link card0/1 state ACTIVE",
        "link card0/2 state DOWN",
        "link card1/2 state ACTIVE",
    ];
    has(&links, states);
    let counters = lab.run("rdma statistic show link card0/2").success();
    has(&counters, ["link card0/2", "packet_seq_err 0"]);
    let ports = "/sys/class/infiniband/card0/ports";
    for (port, state) in [(1, "4: ACTIVE"), (2, "1: DOWN")] {
        let file = format!("{ports}/{port}/state");
        assert_eq!(lab.run(["cat", &file]).success().trim(), state);
    }
    let text = lab.ferroce("link show card0").success();
    assert_eq!(text.lines().count(), 2, "{text}");
    lab.ferroce("link set card0 up").success();
    has(
        &lab.run("rdma link").success(),
        ["link card0/2 state ACTIVE"],
    );
}

#[test]
fn perftest_and_rdma_cm_use_the_second_port() {
    let (lab, places) = lab("second", 1, "--ports 2");
    let tcp = free_port();
    let port = tcp.to_string();
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        let test = format!("{program} -i 2 -n 500 -F -p {port}");
        let server = format!("{test} -d card0");
        let client = format!("{test} -d card1 127.0.0.1");
        lab.pair(&server, Ready::Tcp(tcp), &client);
    }
    // By the address of the second port, which is all that a program of the connection manager knows.
    let [here, there] = places.0.map(|[_, second]| second);
    let server = format!("rping -s -a {here} -C 50 -V -p {port}");
    let client = format!("rping -c -a {here} -I {there} -C 50 -V -p {port}");
    lab.pair(&server, Ready::Cm(tcp), &client);
    for device in DEVICES {
        for counter in ["rdma_rx_packets", "rdma_tx_packets"] {
            let on = |port| count(&lab, &format!("{device}/{port}"), counter);
            assert_eq!(on(1), 0, "{device} {counter}");
            assert!(on(2) > 500, "{device} {counter}");
        }
    }
}

/// Several processes share both ports of a device. One is stopped, one killed; the others go on.
#[test]
fn processes_share_the_second_port() {
    const PAIRS: usize = 4;
    let (lab, _) = lab("shared", 4, "--ports 2");
    let start = |port: usize, seconds| {
        let tcp = free_port();
        let test = format!("ib_write_bw -i {port} -D {seconds} -F -p {tcp}");
        let server = lab.run(format!("{test} -d card0"));
        let server = Ready::Tcp(tcp).wait(&lab, server);
        [server, lab.run(format!("{test} -d card1 127.0.0.1"))]
    };
    // Perftest prints one line at the end; these two never get there.
    let stopped = start(2, 3600);
    let killed = start(2, 3600);
    let pairs: Vec<_> = (0..PAIRS).map(|pair| start(pair % 2 + 1, 5)).collect();
    let sent = || count(&lab, "card1/2", "rdma_tx_packets");
    let moved = |what| {
        let before = sent();
        until(what, || (sent() > before + 1_000).then_some(()));
    };
    moved("all send");
    let [server, client] = killed;
    server.kill();
    lab.beside(["kill", "-STOP", &stopped[0].pid().to_string()])
        .success();
    moved("the others send");
    for running in pairs.into_iter().flatten() {
        running.success();
    }
    client.kill();
    stopped.into_iter().for_each(Running::kill);
}

/// Each thread hears of all flaps, each with the number of its port.
#[test]
fn events_name_the_port_that_flaps() {
    const FLAPS: u32 = 5_000;
    let (lab, _) = lab("events", 2, "--ports 2");
    let program = lab.compile_with("two_ports", "-pthread");
    let flaps = FLAPS.to_string();
    let running = lab.run([program.to_str().unwrap(), "card0", &flaps]);
    until("the program listens", || lab.process());
    for port in [1, 2] {
        let set = format!("link set card0/{port} flap {FLAPS}x 1ms/2ms");
        lab.ferroce(set).success();
    }
    let output = running.patiently(Duration::from_secs(60)).success();
    for thread in 0..2 {
        for port in 1..=2 {
            let line = format!("thread {thread}: port {port} down {FLAPS} up {FLAPS}");
            has(&output, [line]);
        }
    }
}

/// No error, no wrong byte, and programs hear nothing: the other link carries on.
#[test]
fn a_stream_over_a_bond_survives_flaps_of_either_link() {
    const FLAPS: u32 = 500;
    let (lab, places) = lab("bond", 3, "--bond");
    let seen = lab.run("ibv_devinfo -d card0").success();
    has(&seen, ["phys_port_cnt:\t\t\t1", "PORT_ACTIVE"]);
    let links = lab.run("rdma link").success();
    assert_eq!(links.lines().count(), 2, "{links}");

    let watch = lab.run("stdbuf -oL ibv_asyncwatch -d card0");
    let tcp = free_port();
    let port = tcp.to_string();
    // Whose payload is compared.
    let [here, there] = places.0.map(|[first, _]| first);
    let server = lab.run(format!("rping -s -P -a {here} -V -S 60000 -p {port}"));
    let server = Ready::Cm(tcp).wait(&lab, server);
    let ping = format!("rping -c -a {here} -I {there} -V -S 60000 -C 100000000 -p {port}");
    let pings = [lab.run(&ping), lab.run(&ping)];
    let other = free_port();
    let test = format!("ib_write_bw -q 4 -D 14 -F -p {other}");
    let writes = lab.run(format!("{test} -d card0"));
    let writes = Ready::Tcp(other).wait(&lab, writes);
    let writer = lab.run(format!("{test} -d card1 127.0.0.1"));
    until("both links carry packets", || {
        let sent = |link| count(&lab, &format!("card1/{link}"), "rdma_tx_packets");
        (sent(1) > 1_000 && sent(2) > 1_000).then_some(())
    });
    for link in [1, 2] {
        let set = format!("link set card0/{link} flap {FLAPS}x 3ms/10ms");
        lab.ferroce(set).success();
        thread::sleep(Duration::from_secs(5));
        until("the flaps are over", || {
            let shown = lab.ferroce(format!("link show card0/{link}")).success();
            shown
                .contains(&format!("link_downed {FLAPS}"))
                .then_some(())
        });
    }
    let before = count(&lab, "card0/1", "rdma_rx_packets");
    until("pings still come", || {
        (count(&lab, "card0/1", "rdma_rx_packets") > before + 1_000).then_some(())
    });
    writer.success();
    writes.success();
    for mut ping in pings {
        assert!(!ping.has_ended(), "{}", ping.finish());
        ping.kill();
    }
    server.kill();
    // Both links down: now it hears, and once.
    for state in ["down", "up"] {
        lab.ferroce(format!("link set card0 {state}")).success();
        thread::sleep(Duration::from_millis(200));
    }
    let heard = watch.abandon();
    let of_port: Vec<_> = heard
        .stdout
        .lines()
        .filter(|it| it.contains("port"))
        .collect();
    assert_eq!(of_port.len(), 2, "{heard}");
    has(of_port[0], ["IBV_EVENT_PORT_ERR (10), port 1"]);
    has(of_port[1], ["IBV_EVENT_PORT_ACTIVE (9), port 1"]);
}
