//! With `--card-process`, peers write to and read from the memory of a program that is stopped.

use std::fs;
use std::thread;
use std::time::Duration;

use ferroce_interop::lab::{Lab, Ready, Running, free_port, signal, until};
use ferroce_testing::has;
use serde_json::Value;

/// How long programs are stopped; peers give up on a silent program after 3.8 s.
const STOP: Duration = Duration::from_secs(5);

/// Seconds that a client works.
const WORK_S: u32 = 8;

/// A field of `/proc/PID/stat`, counted from the state, which is 0; `None` if the process has ended.
fn field(pid: u64, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let behind_name = stat.rsplit_once(") ")?.1;
    behind_name.split(' ').nth(index).map(str::to_owned)
}

fn is_stopped(pid: u64) -> bool {
    field(pid, 0).is_some_and(|state| state == "T" || state == "t")
}

fn has_ended(pid: u64) -> bool {
    field(pid, 0).is_none_or(|state| state == "Z")
}

/// The process besides the program's own that has the device open in its name.
fn card_of(program: u64) -> u64 {
    let processes = fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok());
    let children = pids.filter(|pid| field(*pid, 1) == Some(program.to_string()));
    let [card] = children.collect::<Vec<_>>()[..] else {
        panic!("{program} has more than a card process, or none");
    };
    card
}

/// How many requests the device has executed.
fn executed(lab: &Lab) -> u64 {
    let shown = lab.ferroce("-j stat show").success();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let count = |name| shown["devices"][0]["counters"][name].as_u64().unwrap();
    count("rx_write_requests") + count("rx_read_requests")
}

fn until_executed(lab: &Lab, more: u64) {
    let before = executed(lab);
    until("requests", || {
        (executed(lab) >= before + more).then_some(())
    });
}

/// A server of perftest under `ferroce run OPTIONS -- WRAPPER`, its process, and its client at work.
fn pair(lab: &Lab, options: &str, wrapper: &str, test: &str) -> (Running, u64, Running) {
    let port = free_port();
    let command = format!("{test} -p {port} -D {WORK_S}");
    let server = lab.run_with(options, format!("{wrapper} {command}"));
    let server = Ready::Tcp(port).wait(lab, server);
    let program = until("the server's process", || lab.process());
    let client = lab.run(format!("{command} {}", lab.address()));
    until_executed(lab, 100);
    (server, program, client)
}

#[test]
fn a_stopped_program_serves_its_peer() {
    for (options, test) in [
        ("--card-process", "ib_write_bw"),
        ("--card-process --link udp", "ib_write_bw"),
        ("--card-process", "ib_read_lat"),
        ("--card-process --link udp", "ib_read_lat"),
    ] {
        let lab = Lab::new("card-process");
        let (server, program, client) = pair(&lab, options, "", test);
        assert!(signal("-STOP", &program.to_string()));
        until("the stop", || is_stopped(program).then_some(()));
        until_executed(&lab, 1000);
        thread::sleep(STOP);
        assert!(is_stopped(program));
        assert!(signal("-CONT", &program.to_string()));
        client.success();
        server.success();
    }
}

#[test]
fn without_the_option_its_peer_gives_up() {
    let lab = Lab::new("no-card-process");
    let (server, program, client) = pair(&lab, "", "", "ib_write_bw");
    assert!(signal("-STOP", &program.to_string()));
    let done = client.finish();
    assert!(!done.status.success(), "{done}");
    has(&format!("{done}"), ["status 12", "syndrom 0x81"]);
    server.kill();
}

/// As Ctrl-Z stops a program and its children.
#[test]
fn a_stopped_process_group_serves_its_peer() {
    let lab = Lab::new("card-process-group");
    let (server, program, client) = pair(&lab, "--card-process", "setsid -w", "ib_write_bw");
    let group = field(program, 2).unwrap();
    assert_ne!(field(card_of(program), 2).unwrap(), group);
    assert!(signal("-STOP", &format!("-{group}")));
    until("the stop", || is_stopped(program).then_some(()));
    until_executed(&lab, 1000);
    thread::sleep(STOP);
    assert!(signal("-CONT", &format!("-{group}")));
    client.success();
    server.success();
}

#[test]
fn a_killed_program_leaves_no_process() {
    let lab = Lab::new("card-process-killed");
    for is_stopped_first in [false, true] {
        let (server, program, client) = pair(&lab, "--card-process", "", "ib_write_bw");
        let card = card_of(program);
        if is_stopped_first {
            assert!(signal("-STOP", &program.to_string()));
        }
        assert!(signal("-KILL", &program.to_string()));
        until("the end of the card process", || {
            has_ended(card).then_some(())
        });
        assert!(!client.finish().status.success());
        assert!(!server.finish().status.success());
    }
}

/// gdb stops all threads of the program, whether it is attached to it or has started it and therefore
/// follows its new threads.
#[test]
fn a_program_in_a_debugger_serves_its_peer() {
    let lab = Lab::new("card-process-gdb");
    let (server, program, client) = pair(&lab, "--card-process", "", "ib_write_bw");
    let hold = format!("shell sleep {}", STOP.as_secs());
    let pid = program.to_string();
    let debugger = lab.beside(["gdb", "-batch", "-p", &pid, "-ex", &hold, "-ex", "detach"]);
    until("the stop", || is_stopped(program).then_some(()));
    until_executed(&lab, 1000);
    debugger.success();
    client.success();
    server.success();

    let gdb = [
        "gdb", "-batch", "-ex", "run", "-ex", &hold, "-ex", "signal 0",
    ];
    let port = free_port();
    let command = format!("ib_write_bw -p {port} -D {WORK_S}");
    let words = command.split(' ');
    let wrapped: Vec<&str> = gdb.into_iter().chain(["--args"]).chain(words).collect();
    let server = Ready::Tcp(port).wait(&lab, lab.run_with("--card-process", wrapped));
    let program = until("the server's process", || lab.process());
    let client = lab.run(format!("{command} {}", lab.address()));
    until_executed(&lab, 100);
    assert!(signal("-INT", &program.to_string()));
    until("the stop", || is_stopped(program).then_some(()));
    until_executed(&lab, 1000);
    client.success();
    has(&server.success(), ["SIGINT"]);
}

#[test]
fn tools_that_do_not_support_it_are_named() {
    let lab = Lab::new("card-process-refused");
    let program = lab.compile_with("debugged", "-g -fsanitize=address");
    let asan = format!("{} whole", program.display());
    for (program, tool) in [
        ("valgrind -q ibv_devinfo", "valgrind"),
        (&*asan, "AddressSanitizer"),
    ] {
        let done = lab.run_with("--card-process", program).finish();
        assert!(!done.status.success(), "{done}");
        let text = format!(
            "cannot start the card process (--card-process): {tool} does not support a second process \
             in the program's memory"
        );
        has(&done.stderr, [&*text]);
    }
}
