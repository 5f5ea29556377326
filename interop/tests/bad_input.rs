//! Programs that make invalid calls: each gets the answer of the manual page, or of a card, and one
//! line on standard error that gives the reason.
//!
//! `programs/bad_*.c` make the calls, and `programs/bad_*.txt` have a line with the answer for each
//! case.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;

use ferroce_interop::lab::{Finished, Lab};
use ferroce_testing::{has, skip};

/// Begins the part of a case on standard error.
const CASE: &str = "== ";
/// A refusal by the header itself, which does not reach the library.
const BY_THE_HEADER: &str = "EPERM";

/// The library's lines by case.
fn told(stderr: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut cases = BTreeMap::new();
    let mut case = "";
    for line in stderr.lines() {
        if let Some(name) = line.strip_prefix(CASE) {
            case = name;
            assert!(cases.insert(case, Vec::new()).is_none(), "twice: {case}");
        } else if line.starts_with("ferroce: ") {
            cases.entry(case).or_default().push(line);
        }
    }
    cases
}

/// Whether an answer is an error number of the library, which must then give the reason.
fn is_refusal(answer: &str) -> bool {
    answer.starts_with('E') && answer != BY_THE_HEADER
}

/// Compares a program's answers with those expected, and returns what the library said.
fn check(program: &str, expected: &str) -> Finished {
    let mut lab = Lab::new(program);
    lab.two_devices();
    lab.set("FERROCE_LOG", "debug");
    let compiled = lab.compile(program);
    let finished = lab.run([compiled.to_str().unwrap()]).finish();
    finished.answers(expected);

    let told = told(&finished.stderr);
    for line in expected.lines() {
        let (case, answer) = line.split_once(": ").expect("CASE: ANSWER");
        let lines = &told[case];
        if is_refusal(answer) {
            assert!(
                lines.len() == 1 && lines[0].starts_with("ferroce: ibv_"),
                "one line about the call, for {case:?}: {lines:#?}"
            );
        } else if !answer.starts_with("needs") {
            // Those are series of calls, a few of which are refused.
            assert!(lines.is_empty(), "{case:?} is no error: {lines:#?}");
        }
    }
    finished
}

/// The library's line about a case.
fn line_of<'a>(finished: &'a Finished, case: &str) -> &'a str {
    told(&finished.stderr)[case][0]
}

#[test]
fn invalid_handles_and_objects_in_use_are_refused() {
    let finished = check("bad_handles", include_str!("../programs/bad_handles.txt"));
    assert_eq!(
        line_of(&finished, "modify_qp of a destroyed QP"),
        "ferroce: ibv_modify_qp: queue pair is not a handle of this library, or was destroyed"
    );
    let foreign = line_of(&finished, "create_qp with a send CQ of another device");
    has(foreign, ["another context"]);
    let busy = line_of(&finished, "destroy_cq of a QP's sends");
    assert!(
        busy.ends_with("still used by 1 other objects; destroy them first"),
        "{busy}"
    );
}

#[test]
fn invalid_attributes_of_a_transition_change_nothing() {
    let finished = check("bad_modify", include_str!("../programs/bad_modify.txt"));
    assert_eq!(
        line_of(&finished, "timeout 32"),
        "ferroce: ibv_modify_qp: timeout is 32; allowed: 0 to 31"
    );
}

/// Correct calls are checked against the same kind of list.
#[test]
fn queries_show_the_state_and_completions_the_failures() {
    check("answers", include_str!("../programs/answers.txt"));
}

#[test]
fn sizes_flags_and_numbers_are_in_range() {
    let finished = check("bad_sizes", include_str!("../programs/bad_sizes.txt"));
    assert_eq!(
        line_of(&finished, "create_cq cqe -1"),
        "ferroce: ibv_create_cq: cqe is -1; allowed: 1 to max_cqe of the device"
    );
}

#[test]
fn work_requests_are_refused_or_fail_as_on_a_card() {
    let finished = check("bad_work", include_str!("../programs/bad_work.txt"));
    assert_eq!(
        line_of(&finished, "-1 sges"),
        "ferroce: ibv_post_send: num_sge is -1; allowed: 0 to max_sge of the queue pair"
    );
    let unknown = line_of(&finished, "IBV_WR_SEND_WITH_INV of uc");
    has(unknown, ["UC has no SEND with invalidate"]);
}

#[test]
fn queues_are_flushed_in_order_and_never_grow_beyond_their_size() {
    check("bad_queues", include_str!("../programs/bad_queues.txt"));
}

#[test]
fn extended_calls_and_rarer_objects_are_checked_as_well() {
    let finished = check("bad_extended", include_str!("../programs/bad_extended.txt"));
    assert_eq!(
        line_of(&finished, "ibv_wr_* inline too long"),
        "ferroce: ibv_wr_complete: inline bytes is 65 (0x41); allowed: 0 to max_inline_data of \
         the queue pair"
    );
}

/// `FERROCE_LOG` sets the level: calls that a program may try on purpose are silent.
#[test]
fn the_log_level_applies() {
    let said = |level: &str| {
        let mut lab = Lab::new(&format!("level-{level}"));
        lab.two_devices();
        lab.set("FERROCE_LOG", level);
        let compiled = lab.compile("bad_sizes");
        let finished = lab.run([compiled.to_str().unwrap()]).finish();
        assert!(finished.status.success(), "{finished}");
        let told = told(&finished.stderr);
        ["create_cq cqe 0", "create_qp of type RAW_PACKET"].map(|case| told[case].len())
    };
    assert_eq!(said("off"), [0, 0]);
    assert_eq!(said("error"), [1, 0]);
    assert_eq!(said("info"), [1, 1]);
}

/// Runs a script in namespaces of its own, as their root; `None` if it may not create these here.
fn in_namespaces(lab: &Lab, flags: &str, script: &str) -> Option<(bool, String)> {
    let library = lab.path().join("prefix/lib/ferroce");
    let output = Command::new("unshare")
        .args([flags, "sh", "-ec", script])
        .env_remove("FERROCE_DIR")
        .env_remove("XDG_RUNTIME_DIR")
        .env("FERROCE_DEVICES", format!("fr0@{}", lab.address()))
        .env("LD_LIBRARY_PATH", library)
        .env("LAB", lab.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("unshare:") {
        // The thread of a test is named after it.
        skip(
            thread::current().name().unwrap_or("bad_input"),
            stderr.trim(),
        );
        return None;
    }
    assert!(!stderr.contains("mount:"), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    Some((output.status.success(), format!("{stdout}{stderr}")))
}

/// The library's only line.
fn one_line(text: &str) -> &str {
    let mut lines = text.lines().filter(|line| line.starts_with("ferroce: "));
    let line = lines.next().unwrap_or_else(|| panic!("no line: {text}"));
    assert_eq!(lines.next(), None, "{text}");
    line
}

/// Hides `/dev/shm`: `/dev` has only what every program needs.
const WITHOUT_DEV_SHM: &str = "mkdir $LAB/dev && touch $LAB/dev/null $LAB/dev/urandom
    mount --bind /dev/null $LAB/dev/null && mount --bind /dev/urandom $LAB/dev/urandom
    mount --rbind $LAB/dev /dev && test ! -e /dev/shm";

#[test]
fn without_dev_shm_devices_are_in_the_runtime_directory() {
    let lab = Lab::new("no-shm");
    let script = format!(
        "{WITHOUT_DEV_SHM}
        mkdir $LAB/run && XDG_RUNTIME_DIR=$LAB/run ibv_devinfo -d fr0
        ls -d $LAB/run/ferroce/net-*/*.state"
    );
    let Some((success, text)) = in_namespaces(&lab, "-Urm", &script) else {
        return;
    };
    assert!(success && text.contains("hca_id:\tfr0"), "{text}");
}

#[test]
fn without_dev_shm_and_runtime_directory_devices_are_in_tmp() {
    let lab = Lab::new("no-run");
    // The lab itself is in /tmp and stays accessible.
    let script = format!(
        "{WITHOUT_DEV_SHM}
        mount --bind $LAB /mnt && mount -t tmpfs -o mode=1777 none /tmp
        export LD_LIBRARY_PATH=/mnt/prefix/lib/ferroce
        ibv_devinfo -d fr0 && ls -d /tmp/ferroce-*/net-*/*.state
        rm -r /tmp/ferroce-* && mount -o remount,ro /tmp
        ibv_devinfo -d fr0 && exit 1
        true"
    );
    let Some((success, text)) = in_namespaces(&lab, "-Urm", &script) else {
        return;
    };
    assert!(success && text.contains("hca_id:\tfr0"), "{text}");
    let line = one_line(&text);
    has(
        line,
        [
            "/tmp/ferroce-",
            ": Read-only file system",
            "set FERROCE_DIR to a directory you own",
        ],
    );
}

#[test]
fn a_dev_shm_that_cannot_be_written_to_is_refused_in_one_line() {
    let lab = Lab::new("ro-shm");
    let script = "mount -t tmpfs -o ro none /dev/shm && exec ibv_devinfo";
    let Some((success, text)) = in_namespaces(&lab, "-Urm", script) else {
        return;
    };
    assert!(!success, "{text}");
    let line = one_line(&text);
    has(
        line,
        [
            "/dev/shm/ferroce-",
            ": Read-only file system",
            "set FERROCE_DIR to a directory you own",
        ],
    );
}

/// Any loopback address is this host, as in Linux. Without this line, an absent peer would look
/// like one that does not listen.
#[test]
fn a_loopback_address_without_a_device_is_named() {
    let lab = Lab::new("absent");
    let finished = lab.run("rping -c -a 127.255.255.1 -C 1").finish();
    assert!(!finished.status.success(), "{finished}");
    let line = one_line(&finished.stderr);
    has(
        line,
        [
            "no device has the address 127.255.255.1",
            "ferroce dev show",
        ],
    );
}

/// A directory of devices that was created before its file system became read-only.
#[test]
fn commands_on_a_read_only_directory_name_it_and_what_to_do() {
    let lab = Lab::new("ro-dir");
    let script = "mkdir -m 700 $LAB/ours && export FERROCE_DIR=$LAB/ours
        unset FERROCE_DEVICES
        ferroce=$LAB/prefix/bin/ferroce
        $ferroce dev
        mount --bind $LAB/ours $LAB/ours && mount -o remount,ro,bind $LAB/ours
        $ferroce dev add fr1 127.0.0.3 || echo code $?
        $ferroce impair set fr0 loss 1% || echo code $?
        $ferroce run -- true || echo code $?";
    let Some((_, text)) = in_namespaces(&lab, "-Urm", script) else {
        return;
    };
    let codes: Vec<_> = text.lines().filter(|it| it.starts_with("code ")).collect();
    assert_eq!(codes, ["code 1", "code 1", "code 125"], "{text}");
    let errors: Vec<_> = text
        .lines()
        .filter(|it| it.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 3, "{text}");
    for error in errors {
        has(error, ["/ours/", "set FERROCE_DIR to a directory you own"]);
    }
}

/// A system that does not let users create namespaces: only `--ns` needs one, and says how to do
/// without.
#[test]
fn without_namespace_privileges_only_ns_is_refused() {
    let lab = Lab::new("no-ns");
    let script = "mkdir -m 700 $LAB/ours && export FERROCE_DIR=$LAB/ours
        echo 0 >/proc/sys/user/max_mnt_namespaces
        echo 0 >/proc/sys/user/max_user_namespaces
        $LAB/prefix/bin/ferroce run -- true && echo ran
        $LAB/prefix/bin/ferroce run --ns -- true || echo code $?";
    let Some((_, text)) = in_namespaces(&lab, "-Ur", script) else {
        return;
    };
    has(&text, ["ran\n", "code 125\n"]);
    let errors: Vec<_> = text
        .lines()
        .filter(|it| it.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{text}");
    assert!(
        errors[0].contains("cannot make a namespace") && errors[0].ends_with("run without --ns"),
        "{text}"
    );
}

/// A release that does not run with the C library of the machine, as an installer finds it.
#[test]
fn installers_name_the_c_library_if_the_program_cannot_start() {
    let lab = Lab::new("old-libc");
    let name = "ferroce-0.0.1-x86_64-linux";
    let script = format!(
        "cd $LAB && mkdir -p {name}/bin releases/v0.0.1
        printf '#!/bin/sh\\necho loader: GLIBC_2.28 not found >&2\\nexit 1\\n' >{name}/bin/ferroce
        chmod +x {name}/bin/ferroce && tar -czf releases/v0.0.1/{name}.tar.gz {name}
        cd releases/v0.0.1 && sha256sum {name}.tar.gz >SHA256SUMS
        VERSION=0.0.1 FERROCE_RELEASES=file://$LAB/releases FERROCE_PREFIX=$LAB/nothing \
            sh $INSTALLER || echo code $?"
    );
    let installer =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/devcontainer/install.sh");
    let output = Command::new("sh")
        .args(["-ec", &script])
        .env("LAB", lab.path())
        .env("INSTALLER", installer)
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert_eq!(out.lines().last(), Some("code 1"), "{out}{err}");
    has(
        &err,
        ["glibc 2.28 or newer", "musl", "debian:bookworm-slim"],
    );
}

/// A kernel's soft-RoCE device has the port on all addresses.
#[test]
fn a_port_that_the_kernel_holds_is_refused_in_one_line() {
    let lab = Lab::new("held");
    let holder = lab.compile("hold_port");
    let script = "ip link set lo up
        mkdir -m 700 $LAB/held && export FERROCE_DIR=$LAB/held
        ibv_devinfo -d fr0
        exec $LAB/hold_port ibv_devinfo -d fr0";
    assert!(Path::new(&holder).starts_with(lab.path()));
    let Some((success, text)) = in_namespaces(&lab, "-Urmn", script) else {
        return;
    };
    assert!(!success && text.contains("hca_id:\tfr0"), "{text}");
    let line = one_line(&text);
    let port = format!("{}:4791 is in use", lab.address());
    has(line, [&port, "rdma_rxe", "rdma link delete", "127.0.0.2"]);
}
