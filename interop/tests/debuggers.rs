//! Programs under debuggers and sanitizers: each line of `docs/debugging.md`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ferroce_interop::lab::{Finished, Lab, Ready, free_port};
use ferroce_testing::has;

/// The cases of `programs/debugged.c` in which no checker may report anything.
const CLEAN: [&str; 4] = ["whole", "open_at_end", "threads", "opened_after_threads"];

fn built(lab: &Lab, options: &str) -> String {
    let program = lab.compile_with("debugged", format!("-g {options}"));
    program.display().to_string()
}

#[track_caller]
fn quiet(done: &Finished) {
    assert!(done.status.success(), "{done}");
    assert_eq!(done.stderr, "", "{done}");
}

#[track_caller]
fn told(done: &Finished, code: i32, what: &str) {
    assert_eq!(done.status.code(), Some(code), "{done}");
    assert!(done.stderr.contains(what), "{done}");
}

const VALGRIND: [&str; 4] = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9"];

#[test]
fn valgrind_finds_what_the_program_does_wrong_and_nothing_else() {
    let lab = Lab::new("valgrind");
    let program = built(&lab, "");
    let run = |case| {
        lab.run([&VALGRIND[..], &[&program, case]].concat())
            .finish()
    };
    for case in CLEAN {
        quiet(&run(case));
    }
    told(&run("overflow"), 9, "Invalid write");
    told(
        &run("leak"),
        9,
        "1,234 bytes in 1 blocks are definitely lost",
    );
    told(&run("gone"), 9, "ferroce_memory_");
}

#[test]
fn valgrind_can_start_ferroce() {
    let lab = Lab::new("valgrind-in-front");
    let (program, ferroce) = (built(&lab, ""), lab.path().join("prefix/bin/ferroce"));
    let ferroce = ferroce.display().to_string();
    let options = "valgrind -q --trace-children=yes --error-exitcode=9";
    let run = format!("{ferroce} run -- {program} whole");
    quiet(&lab.beside(format!("{options} {run}")).finish());
}

#[test]
fn a_valgrind_that_is_too_old_is_refused() {
    let lab = Lab::new("valgrind-old");
    let old = lab.path().join("valgrind");
    // In another process: a file that this one has open for writing cannot be executed.
    let script = format!(
        "printf '#!/bin/sh\\necho valgrind-3.13.0\\n' >'{}'",
        old.display()
    );
    let written = std::process::Command::new("sh")
        .args(["-c", &script])
        .status();
    assert!(written.unwrap().success());
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    let done = lab
        .run(format!("{} ibv_devinfo", old.to_str().unwrap()))
        .finish();
    told(
        &done,
        126,
        "version 3.13, and programs run on Ferroce under valgrind 3.16 or newer",
    );
}

/// The errors in one process's valgrind XML that have a frame in Ferroce's libraries, except for
/// the list of devices, which perftest does not free. The preloaded libraries do not count: they
/// forward calls of the program, whose bytes are its own.
fn ours(xml: &str) -> Vec<&str> {
    const LIBRARIES: [&str; 3] = ["/libibverbs.so.1<", "/librdmacm.so.1<", "/libmlx5.so.1<"];
    let is_ours = |error: &&str| LIBRARIES.iter().any(|library| error.contains(library));
    let errors = xml.split("<error>").skip(1);
    errors
        .map(|error| error.split("</error>").next().unwrap_or(error))
        .filter(is_ours)
        .filter(|error| !error.contains("device_list"))
        .collect()
}

/// Runs a program of perftest under memcheck, and another one when it is ready, and expects no
/// error in Ferroce.
fn pair_under_valgrind(name: &str, args: &str) {
    let lab = Lab::new(name);
    let logs = lab.path().join("state");
    let log = |end: &str| format!("--xml-file={}/{end}.xml", logs.display());
    let (server, client) = (log("server"), log("client"));
    let port = free_port();
    let (port_text, address) = (port.to_string(), lab.address());
    let command = |log| format!("valgrind -q --xml=yes {log} {name} -p {port_text} {args}");
    let (server, client) = (command(server), format!("{} {address}", command(client)));
    let ready = match args.contains("-R") {
        true => Ready::Cm(port),
        false => Ready::Tcp(port),
    };
    lab.pair(&server, ready, &client);
    for end in ["server", "client"] {
        let xml = fs::read_to_string(logs.join(format!("{end}.xml"))).unwrap();
        has(&xml, ["<state>FINISHED</state>"]);
        let ours = ours(&xml);
        assert!(ours.is_empty(), "{end}: {ours:#?}");
    }
}

#[test]
fn perftest_writes_under_valgrind() {
    pair_under_valgrind("ib_write_bw", "-n 20 -s 65536");
}

#[test]
fn perftest_sends_under_valgrind() {
    pair_under_valgrind("ib_send_lat", "-n 20 -s 64");
}

#[test]
fn perftest_connects_by_rdma_cm_under_valgrind() {
    pair_under_valgrind("ib_send_bw", "-R -n 20 -s 4096");
}

#[test]
fn sanitizers_report_only_the_program_s_own_errors() {
    for (name, options, overflow, leak) in [
        ("asan", "-fsanitize=address", true, 1),
        ("asan-static", "-fsanitize=address -static-libasan", true, 1),
        ("asan-ubsan", "-fsanitize=address,undefined", true, 1),
        ("lsan", "-fsanitize=leak", false, 23),
        ("ubsan", "-fsanitize=undefined", false, 0),
    ] {
        let lab = Lab::new(name);
        let program = built(&lab, options);
        for case in CLEAN {
            quiet(&lab.run([&program, case]).finish());
        }
        // How they are started makes no difference.
        let script = format!("{program} whole && {program} gone");
        quiet(&lab.run(["sh", "-c", &script]).finish());
        if overflow {
            let done = lab.run(format!("{program} overflow")).finish();
            told(&done, 1, "heap-buffer-overflow");
        }
        if leak != 0 {
            let done = lab.run(format!("{program} leak")).finish();
            told(&done, leak, "1234 byte(s) leaked");
        }
    }
}

#[test]
fn thread_sanitizer_reports_races_of_the_program_only() {
    let lab = Lab::new("tsan");
    let program = built(&lab, "-fsanitize=thread");
    for case in CLEAN {
        quiet(&lab.run([&program, case]).finish());
    }
    let done = lab.run(format!("{program} race")).finish();
    told(&done, 66, "data race");
    assert!(done.stderr.contains("in counts"), "{done}");
}

/// The result of a peer that writes to a process while a breakpoint holds it for seconds.
fn peer_of_a_breakpoint(case: &str, non_stop: &str) -> String {
    let lab = Lab::new("gdb");
    let program = built(&lab, "");
    let mode = format!("set non-stop {non_stop}");
    let commands = [
        "set debuginfod enabled off",
        &mode,
        "break here",
        "run",
        "shell sleep 5",
    ];
    let mut gdb = vec!["gdb", "-nx", "-batch"];
    gdb.extend(
        commands
            .iter()
            .chain(&["continue"])
            .flat_map(|command| ["-ex", *command]),
    );
    gdb.extend(["--args", &program, case]);
    let done = lab.run(&gdb).finish();
    let line = done
        .stdout
        .lines()
        .find_map(|line| line.split_once("peer: "));
    line.unwrap_or_else(|| panic!("{done}")).1.to_owned()
}

#[test]
fn a_breakpoint_stops_the_device_and_peers_give_up() {
    assert_eq!(
        peer_of_a_breakpoint("stopped", "off"),
        "transport retry counter exceeded"
    );
}

#[test]
fn without_all_stop_the_device_answers_beside_a_breakpoint() {
    assert_eq!(peer_of_a_breakpoint("stopped", "on"), "success");
}

#[test]
fn a_peer_without_a_timeout_waits_for_the_breakpoint_to_end() {
    assert_eq!(
        peer_of_a_breakpoint("stopped_for_a_patient_peer", "off"),
        "success"
    );
}

#[test]
fn strace_shows_the_system_calls_of_the_device() {
    let lab = Lab::new("strace");
    let program = built(&lab, "");
    let strace = ["strace", "-f", "-e", "trace=network", &program, "threads"];
    let traced = |options: &str| {
        let done = lab.run_with(options, strace).finish();
        assert!(done.status.success(), "{done}");
        assert!(done.stderr.contains("bind("), "{done}");
        let is_send = |line: &&str| line.contains("sendmsg(") || line.contains("sendmmsg(");
        done.stderr.lines().filter(is_send).count()
    };
    // The threads' 400 messages, each of which waits until the previous one is acknowledged.
    let in_memory = traced("");
    let over_udp = traced("--link udp");
    assert!(over_udp >= 400, "{over_udp}");
    assert!(in_memory < over_udp, "{in_memory} and {over_udp}");
}

/// rr requires more of the processor than many machines have; it says so before the program starts.
#[test]
fn rr_records_or_says_what_the_machine_lacks() {
    let lab = Lab::new("rr");
    let program = built(&lab, "");
    let trace = lab.path().join("state/rr");
    let trace = trace.to_str().unwrap();
    let done = lab
        .run(format!("rr record -o {trace} {program} whole"))
        .finish();
    let is_refused = done.stderr.to_lowercase().contains("perf");
    assert!(done.status.success() || is_refused, "{done}");
}

#[test]
fn tests_in_a_workspace_with_devices_are_collected() {
    let lab = Lab::new("pytest");
    // The devices are in the lab's state, here as the workspace of a project.
    let workspace = lab.path().join("state");
    lab.run("ibv_devinfo").success();
    let test =
        "def test_devices():\n    import os\n    assert os.listdir('/sys/class/infiniband')\n";
    fs::write(workspace.join("test_devices.py"), test).unwrap();
    let done = lab.run("/usr/bin/python3 -m pytest -q -p no:cacheprovider");
    let done = done.finish();
    assert!(done.status.success(), "{done}");
    assert!(done.stdout.contains("1 passed"), "{done}");
}

#[test]
fn pyverbs_runs_clean_under_valgrind() {
    let lab = Lab::new("pyverbs");
    let script = lab.path().join("verbs.py");
    fs::write(&script, PYVERBS).unwrap();
    let log = lab.path().join("state/python.xml");
    let file = format!("--xml-file={}", log.display());
    let done = lab.run(format!(
        "valgrind -q --xml=yes {file} /usr/bin/python3 {}",
        script.to_str().unwrap()
    ));
    assert_eq!(done.success(), "hello\n");
    let xml = fs::read_to_string(log).unwrap();
    has(&xml, ["<state>FINISHED</state>"]);
    let ours = ours(&xml);
    assert!(ours.is_empty(), "{ours:#?}");
}

/// A queue pair that is connected with itself sends a message.
const PYVERBS: &str = r#"
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.qp import QP, QPCap, QPInitAttr, QPAttr
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

context = Context(name="fr0")
pd, cq = PD(context), CQ(context, 8)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, max_recv_wr=4)), QPAttr())
gid = context.query_gid(1, 1)
attr = QPAttr(port_num=1)
attr.dest_qp_num, attr.path_mtu = qp.qp_num, e.IBV_MTU_1024
attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=gid, sgid_index=1))
qp.to_rts(attr)
mr.write("hello", 5)
qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf + 64, 64, mr.lkey)]))
qp.post_send(SendWR(num_sge=1, sg=[SGE(mr.buf, 5, mr.lkey)], opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED))
done = 0
while done < 2:
    count, completions = cq.poll(2)
    assert all(it.status == e.IBV_WC_SUCCESS for it in completions)
    done += count
print(mr.read(5, 64).decode())
for it in (qp, mr, cq, pd, context):
    it.close()
"#;
