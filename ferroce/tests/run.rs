//! `ferroce run` and related commands, with programs of the system and libraries without code.

use std::fmt::Display;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_device::{Counter, QpInit, QpType};
use ferroce_registry::Registry;
use ferroce_runtime::{AttachOptions, Device};
use ferroce_testing::{rows, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::{self, Words, address, has, registry};

/// Ferroce with a registry of its own, and with libraries that are valid but empty: their function
/// is not tested here.
struct Installation {
    directory: TempDir,
}

impl Installation {
    fn new() -> Self {
        // On the file system of the build: a copy could not be executed while another test starts a
        // program, which has it open for writing until it runs.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (bin, lib) = (
            directory.path().join("bin"),
            directory.path().join("lib/ferroce"),
        );
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&lib).unwrap();
        let built = Path::new(env!("CARGO_BIN_EXE_ferroce"));
        fs::hard_link(built, bin.join("ferroce")).unwrap();
        for name in [
            "libibverbs.so.1",
            "librdmacm.so.1",
            "libmlx5.so.1",
            "libdoca_common.so.2",
            "libdoca_argp.so.2",
            "libdoca_telemetry.so.2",
        ] {
            let empty = Command::new("cc")
                .args(["-shared", "-o"])
                .arg(lib.join(name))
                .args(["-x", "c", "/dev/null"])
                .status();
            assert!(empty.unwrap().success());
            let (link, _) = name.rsplit_once('.').unwrap();
            symlink(name, lib.join(link)).unwrap();
        }
        for name in ["sysfs", "fwctl"] {
            let built = preloaded().join(format!("libferroce_{name}_preload.so"));
            fs::hard_link(built, lib.join(format!("libferroce_{name}.so"))).unwrap();
        }
        for name in ["tsan.supp", "valgrind.supp"] {
            fs::write(lib.join(name), "").unwrap();
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The registry of the programs that are run here.
    fn registry(&self) -> Registry {
        registry(&self.path("registry"))
    }

    fn command(&self, args: impl Words) -> Command {
        let mut command = Command::new(self.path("bin/ferroce"));
        let registry = self.path("registry");
        command
            .args(args.words())
            .env("FERROCE_DIR", registry)
            .env_remove("FERROCE_DEVICES");
        command
            .env_remove("LD_PRELOAD")
            .env_remove("LD_LIBRARY_PATH");
        command
    }

    fn output(&self, args: impl Words) -> Output {
        self.command(args).output().unwrap()
    }

    /// Standard output of a command that succeeds without a remark.
    #[track_caller]
    fn good(&self, args: impl Words) -> String {
        let output = self.output(&args);
        assert_eq!(text(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        text(&output.stdout)
    }

    /// Exit code and standard error.
    fn bad(&self, args: impl Words) -> (Option<i32>, String) {
        let output = self.output(args);
        (output.status.code(), text(&output.stderr))
    }
}

/// The directory of the libraries that show the devices in /sys and /dev. These tests depend on them, so cargo
/// builds them, as what it leaves there.
fn preloaded() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_ferroce"));
    program.with_file_name("deps")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn programs_find_the_libraries_and_the_devices() {
    let ferroce = Installation::new();
    ferroce.good("dev add mlx5_0 127.16.1.1");
    let variables = ferroce.good("run --device mlx5_0 -- env");
    let value = |name: &str| {
        let found = variables
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found
            .unwrap_or_else(|| panic!("{name} is missing in\n{variables}"))
            .to_owned()
    };
    let lib = ferroce.path("lib/ferroce").canonicalize().unwrap();
    assert_eq!(Path::new(&value("LD_LIBRARY_PATH")), lib);
    assert!(value("LD_PRELOAD").contains("/lib/ferroce/libibverbs.so.1:"));
    assert_eq!(value("FERROCE_DEVICES"), "mlx5_0@127.16.1.1");

    let show = "cat /sys/class/infiniband/mlx5_0/node_guid; ls /sys/class/infiniband; \
                stat -Lc %F /dev/infiniband/uverbs0; realpath /sys/class/infiniband/mlx5_0/device";
    let expected = "0266:7200:7f10:0101\nmlx5_0\ncharacter special file\n\
                    /sys/devices/pci10fe:00/10fe:00:00.0\n";
    assert_eq!(
        ferroce.good(["run", "--device", "mlx5_0", "sh", "-c", show]),
        expected
    );
    let program = ferroce.path("bin/ferroce");
    let script = format!(
        "eval \"$({} env --device mlx5_0)\"; {show}",
        program.display()
    );
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .env("FERROCE_DIR", ferroce.path("registry"));
    shell.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
    assert_eq!(text(&shell.output().unwrap().stdout), expected);
}

#[test]
fn a_namespace_shows_devices_without_the_preloaded_libraries() {
    let ferroce = Installation::new();
    let show = "unset LD_PRELOAD; cat /sys/class/infiniband/fr0/ports/1/state && \
                test -c /dev/infiniband/uverbs0 && test -e /sys/class/net/lo && \
                test -w /dev/null && test -d /proc/self/fd && \
                cat /sys/class/infiniband/fr0/device/vendor && \
                cat /sys/class/infiniband/fr0/device/net/lo/address && id -u && \
                cat /sys/class/infiniband/fr0/device/ecn/roce_rp/rpg_ai_rate && \
                ! (echo 6 > /sys/class/infiniband/fr0/device/ecn/roce_rp/rpg_ai_rate) 2>&1";
    let output = ferroce.output(["run", "--ns", "sh", "-c", show]);
    let errors = text(&output.stderr);
    if errors.contains("cannot make a namespace") {
        let test = "a_namespace_shows_devices_without_the_preloaded_libraries";
        return skip(test, errors.trim());
    }
    let uid = nix::unistd::getuid();
    let expected = format!("4: ACTIVE\n0x15b3\n00:00:00:00:00:00\n{uid}\n5\n");
    let shown = text(&output.stdout);
    let refused = shown
        .strip_prefix(&expected)
        .unwrap_or_else(|| panic!("{shown}"));
    has(refused, ["Read-only file system"]);
    assert_eq!(errors, "");
    assert!(
        !Path::new("/sys/class/infiniband/fr0").exists(),
        "it shows outside"
    );
}

#[test]
fn devices_look_like_the_hardware_that_is_asked_for() {
    let installation = Installation::new();
    installation.good("dev add fr1 127.0.0.2");
    let run = |options: &str, program: &str| {
        installation.good([&["run"], &options.words()[..], &["--", "sh", "-c", program]].concat())
    };
    let list = "ls /sys/class/infiniband";
    assert_eq!(run("", list), "fr0\nfr1\n");
    assert_eq!(run("--as mlx5", list), "mlx5_0\nmlx5_1\n");
    assert_eq!(run("--as rxe", list), "rxe0\nrxe1\n");
    assert_eq!(run("--as mlx5 --device fr1", list), "mlx5_0\n");
    let described = run("--as mlx5", "cat /sys/class/infiniband/mlx5_1/node_desc");
    assert!(described.ends_with(" mlx5_1\n"), "{described}");
    let files = "realpath /sys/class/infiniband/rxe0; cd /sys/class/infiniband/rxe0; \
                 cat node_desc parent fw_ver; ls /dev/infiniband";
    assert_eq!(
        run("--as rxe", files),
        "/sys/devices/virtual/infiniband/rxe0\nrxe\nlo\n\nrdma_cm\nuverbs0\nuverbs1\n"
    );
    // The devices themselves do not change.
    assert!(installation.good("dev show").contains("0: fr0: "));
    let (code, error) = installation.bad("run --as hfi1 -- true");
    assert_eq!(code, Some(2), "{error}");
    has(&error, ["'hfi1'", "[possible values: mlx5, rxe]"]);
    let mut command = installation.command("dev");
    let refused = command.env("FERROCE_AS", "hfi1").output().unwrap();
    let error = text(&refused.stderr);
    has(
        &error,
        ["FERROCE_AS: unknown hardware \"hfi1\"; expected one of"],
    );
}

#[test]
fn counters_are_read_as_they_are() {
    let ferroce = Installation::new();
    ferroce.good(format!("dev add fr1 {}", address(44, 2)));
    let device = Device::attach(&ferroce.registry(), "fr1", AttachOptions::default()).unwrap();
    let script = "f=/sys/class/infiniband/fr1/ports/1/hw_counters/rx_malformed; \
                  read value < $f; echo $value; read line; read value < $f; echo $value";
    let mut reads = Talking::start(&ferroce, "", script);
    assert_eq!(reads.line(), "0");

    device.join().unwrap();
    // A sender at another port of this host would be another user's.
    let socket = UdpSocket::bind((address(44, 3), device.address().port())).unwrap();
    socket.send_to(b"no packet", device.address()).unwrap();
    let counted = || device.state().counter(Counter::RxMalformed);
    let begun = Instant::now();
    while counted() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    // Longer than the delay of files.
    thread::sleep(Duration::from_millis(20));
    reads.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(reads.line(), "1");
    assert_eq!(reads.end().0, Some(0));

    assert_eq!(
        ferroce.good("-jd dev show fr1"),
        ferroce.good("dev show fr1 --details -j")
    );
    let stat = ferroce.good("stat show link fr1/1");
    assert_eq!(stat, "link fr1/1 rx_malformed 1\n");
    assert!(
        ferroce
            .good("dev show fr1 --details")
            .ends_with(" processes 1\n")
    );
    let (code, error) = ferroce.bad("dev del fr1");
    assert_eq!(code, Some(1));
    has(&error, ["fr1 is in use"]);
}

#[test]
fn parameters_are_files_that_act_or_refuse() {
    let ferroce = Installation::new();
    ferroce.good("dev add fr1 127.34.0.2");
    let sh = |shell: &str, script: &str| {
        let script = format!("cd /; e=/sys/class/net/lo/ecn; {script}");
        let output = ferroce.output(["run", shell, "-c", &script]);
        let code = output.status.code();
        (code, text(&output.stdout), text(&output.stderr))
    };
    let is_set = |device: &str, name: &str| {
        let shown = ferroce.good(format!("cc show -d {device}"));
        let line = shown
            .lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
        line.unwrap().to_owned()
    };
    let good = |shell: &str, script: &str, out: &str| {
        assert_eq!(
            sh(shell, script),
            (Some(0), out.to_owned(), String::new()),
            "{shell}: {script}"
        );
    };

    // A program that writes through the C library's buffer.
    let mut cc = Command::new("cc");
    cc.args(["-x", "c", "-", "-o"])
        .arg(ferroce.path("print"))
        .stdin(Stdio::piped());
    let mut cc = cc.spawn().unwrap();
    let source = b"#include <stdio.h>\nint main(void) { printf(\"23\"); return 0; }";
    cc.stdin.take().unwrap().write_all(source).unwrap();
    assert!(cc.wait().unwrap().success());

    // Every way to write: by the shell, by a stream, by a program, from another directory.
    let ways = rows(
        r#"
        11 => dash => echo 11 > $e/roce_rp/rpg_ai_rate
        12 => bash => echo 12 > $e/roce_rp/rpg_ai_rate
        13 => bash => printf '13\n' >> $e/roce_rp/rpg_ai_rate
        14 => dash => /bin/echo 14 > $e/roce_rp/rpg_ai_rate
        15 => dash => echo 15 | tee $e/roce_rp/rpg_ai_rate > /dev/null
        16 => dash => cd $e/roce_rp && echo 16 > rpg_ai_rate
        17 => bash => exec 5> $e/../ecn/roce_rp/rpg_ai_rate; echo 17 >&5
        18 => dash => perl -e 'open F, ">", shift; print F "18\n"; close F or die' $e/roce_rp/rpg_ai_rate
        19 => dash => echo 19 > /sys/class/infiniband/fr0/device/ecn/roce_rp/rpg_ai_rate
        20 => bash => echo 0x14 > /sys/kernel/debug/mlx5/10fe:00:00.0/cc_params/rp_ai_rate
        21 => dash => echo 21 > f; cat f > $e/roce_rp/rpg_ai_rate
        22 => dash => echo 22 > f; cp f $e/roce_rp/rpg_ai_rate
        23 => dash => $D/print > $e/roce_rp/rpg_ai_rate
        "#,
    );
    for [value, shell, script] in ways {
        let script = script.replace("> f;", "> $D/f;").replace(" f ", " $D/f ");
        let script = format!(
            "D={}; {script}; cat $e/roce_rp/rpg_ai_rate",
            ferroce.path("").display()
        );
        good(shell, &script, &format!("{value}\n"));
        assert_eq!(is_set("fr0", "rpg_ai_rate"), value, "{script}");
    }
    assert_eq!(
        is_set("fr1", "rpg_ai_rate"),
        "5",
        "an interface leads to its first device"
    );
    good(
        "dash",
        "echo 7 > /sys/kernel/debug/mlx5/10fe:00:00.1/cc_params/np_cnp_dscp",
        "",
    );
    assert_eq!(is_set("fr1", "cnp_dscp"), "7");

    // The switches of priorities, for each point.
    good(
        "bash",
        "for p in 0 1 2; do echo 0 > $e/roce_np/enable/$p; done; cat $e/roce_*/enable/2",
        "0\n1\n",
    );
    assert_eq!(is_set("fr0", "roce_np/enable"), "248");
    assert_eq!(is_set("fr0", "roce_rp/enable"), "255");
    good("bash", "echo 0 | tee $e/roce_rp/enable/*", "0\n");
    assert_eq!(is_set("fr0", "roce_rp/enable"), "0");

    // Settings made elsewhere are read.
    ferroce.good("cc set -d fr0 rpg_gd=10");
    good("dash", "cat $e/roce_rp/rpg_gd", "10\n");

    for shell in ["dash", "bash"] {
        for script in [
            "echo 9 > $e/roce_rp/rpg_gd",
            "echo ten > $e/roce_rp/rpg_gd",
            "/bin/echo 9 > $e/roce_rp/rpg_gd",
            "echo 9 | tee $e/roce_rp/rpg_gd > /dev/null",
            "cat /etc/passwd > $e/roce_rp/rpg_gd",
            "echo 2 > $e/roce_np/enable/0",
        ] {
            let (code, _, err) = sh(shell, script);
            assert_ne!(code, Some(0), "{shell}: {script}");
            assert!(
                err.contains("nvalid argument") || err.contains("I/O error"),
                "{script}: {err}"
            );
        }
        // A refusal has no effect on later commands.
        good(
            shell,
            "echo 9 > $e/roce_rp/rpg_gd 2> /dev/null; echo 11 > $e/roce_rp/rpg_gd; cat $e/roce_rp/rpg_gd",
            "11\n",
        );
        good(
            shell,
            "echo 10 > $e/roce_rp/rpg_gd; : > $e/roce_rp/rpg_gd; cat $e/roce_rp/rpg_gd",
            "10\n",
        );
    }
    for script in [
        "echo 1 > $e/roce_rp/rpg_gone",
        "echo 1 | tee $e/roce_rp/rpg_gone",
    ] {
        let (code, _, err) = sh("dash", script);
        assert_ne!(code, Some(0), "{err}");
        good("dash", "! test -e $e/roce_rp/rpg_gone", "");
    }
}

#[test]
fn objects_are_shown_as_their_process_has_them() {
    let ferroce = Installation::new();
    ferroce.good(format!("dev add fr1 {}", address(44, 4)));
    assert_eq!(ferroce.good("res show qp"), "");
    let device = Device::attach(&ferroce.registry(), "fr1", AttachOptions::default()).unwrap();
    let qpns = device.with(|hca| {
        let (pd, cq) = (hca.alloc_pd().unwrap(), hca.create_cq(16).unwrap());
        let init = QpInit::new(QpType::Rc, pd, cq);
        [(); 2].map(|()| hca.create_qp(&init).unwrap())
    });
    let pid = std::process::id();
    assert_eq!(
        ferroce.good("res show fr1"),
        "1: fr1: pd 1 cq 1 qp 2 cm_id 0 mr 0 srq 0 ctx 1\n"
    );
    let pds = ferroce.good("res show pd dev fr1");
    assert!(
        pds.starts_with(&format!("dev fr1 pdn 0 users 2 pid {pid} comm ")),
        "{pds}"
    );
    let first = qpns[0].value().to_string();
    let shown = ferroce.good(format!("-j res show qp fr1/1 lqpn {first}"));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["objects"].as_array().unwrap().len(), 1);
    let shown = &shown["objects"][0];
    assert_eq!(shown["lqpn"], qpns[0].value());
    assert_eq!(
        (&shown["state"], &shown["type"]),
        (&"RESET".into(), &"RC".into())
    );
    assert_eq!(shown["device"], "fr1");
    assert_eq!(ferroce.good("res show qp state RTR,RTS"), "");
    drop(device);
    // Programs that other tests are starting keep its slot until they run, and do not answer.
    let begun = Instant::now();
    let is_gone = |it: Output| it.status.success() && it.stdout.is_empty();
    while !is_gone(ferroce.output("res show ctx")) {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn counters_and_variables_are_documents() {
    let ferroce = Installation::new();
    let file = ferroce.path("stats.json").display().to_string();
    let output = ferroce.output(["run", "--stats-json", &file, "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let ran = fs::read_to_string(&file).unwrap();
    let ran: serde_json::Value = serde_json::from_str(&ran).unwrap();
    common::schema::check(&ran).unwrap();
    assert_eq!(
        (&ran["exit_code"], &ran["devices"][0]["device"]),
        (&7.into(), &"fr0".into())
    );
    let (code, error) = ferroce.bad("run --stats-json /nowhere/file true");
    assert_eq!(code, Some(125), "{error}");
    has(&error, ["cannot write /nowhere/file"]);

    let env = ferroce.good("env -j");
    assert_eq!(common::schema::check_output(&env), 1);
    has(&env, ["\"LD_LIBRARY_PATH\":\""]);
}

#[test]
fn the_exit_code_is_the_programs() {
    let ferroce = Installation::new();
    for watch in ["-q", "--stats"] {
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
            let args = ["run", watch, "--", "sh", "-c", script];
            assert_eq!(ferroce.output(args).status.code(), Some(code), "{args:?}");
        }
    }
    let output = ferroce.output(["run", "--stats", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(128 + 15));
    // The program replaces ferroce, and ends as it would without it.
    let output = ferroce.output(["run", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15));

    let no_program = ferroce.path("nothing").display().to_string();
    let directory = ferroce.path("bin").display().to_string();
    for (args, code, reason) in [
        ("run no-such-program", 127, "command not found in PATH"),
        (&format!("run {no_program}"), 127, "does not exist"),
        (&format!("run {directory}"), 126, "is a directory"),
        (
            "run --device fr9 true",
            125,
            "no device \"fr9\"; available: fr0",
        ),
        ("run --impair loss=2 true", 2, "invalid loss \"2\""),
        ("run --profile /nothing true", 125, "cannot read /nothing"),
        ("run --pcap /nothing/x true", 125, "cannot write /nothing/x"),
    ] {
        let (actual, error) = ferroce.bad(args);
        assert_eq!(actual, Some(code), "{args:?}: {error}");
        has(&error, [reason]);
    }
}

#[test]
fn settings_of_a_run_are_put_back() {
    let ferroce = Installation::new();
    ferroce.good("impair set fr0 delay=1ms");
    let program = ferroce.path("bin/ferroce").display().to_string();
    let during = ferroce.good(format!("run --impair loss=1% {program} impair show fr0"));
    assert_eq!(during, "dev fr0 egress loss=1% ingress none\n");
    assert_eq!(
        ferroce.good("impair show fr0"),
        "dev fr0 egress delay=1ms ingress none\n"
    );

    let (code, remark) = ferroce.bad(format!(
        "run --impair loss=1% {program} impair set fr0 loss=2%"
    ));
    assert_eq!(code, Some(0));
    has(&remark, ["something else has changed fr0 meanwhile"]);
    assert_eq!(
        ferroce.good("impair show fr0"),
        "dev fr0 egress loss=2% ingress none\n"
    );
}

#[test]
fn settings_in_force_fit_one_line() {
    let ferroce = Installation::new();
    let said = |options: &str| {
        let output = ferroce.output(format!("run {options} true"));
        assert!(output.status.success());
        text(&output.stderr).to_owned()
    };
    assert_eq!(said(""), "");
    ferroce.good("impair set fr0 loss=1%");
    assert_eq!(said(""), "note: in force on fr0: impairment loss=1%\n");
    assert_eq!(said("-q"), "");
    assert_eq!(said("--impair loss=2%"), "", "it takes the place");
    ferroce.good("adp apply link-flap -d fr0");
    ferroce.good("link set fr0 down");
    let line = said("");
    assert!(
        line.starts_with("note: in force on fr0: impairment loss=1%, profile link-flap ")
            && line.ends_with(", port down\n")
            && line.lines().count() == 1,
        "{line}"
    );
    let line = said("--personality firmware --impair none");
    assert_eq!(line, "note: in force on fr0: port down\n");
}

/// Runs end in any order, and with equal settings as well: each keeps the settings of the others,
/// and the last one restores those from before the first.
#[test]
fn overlapping_runs_restore_the_settings_before_the_first() {
    for (first, second) in [("loss=1%", "loss=1%"), ("loss=1%", "loss=2%")] {
        for first_ends_first in [true, false] {
            let ferroce = Installation::new();
            ferroce.good("impair set fr0 delay=1ms");
            let shown = |what: &str| {
                let expected = format!("dev fr0 egress {what} ingress none\n");
                assert_eq!(ferroce.good("impair show fr0"), expected);
            };
            let one = Talking::impaired(&ferroce, first);
            shown(first);
            let other = Talking::impaired(&ferroce, second);
            shown(second);
            if first_ends_first {
                assert_eq!(one.end().1, "");
                shown(second);
                assert_eq!(other.end().1, "");
            } else {
                assert_eq!(other.end().1, "");
                shown(first);
                assert_eq!(one.end().1, "");
            }
            shown("delay=1ms");
        }
    }
}

/// A program under `ferroce run` that the test talks to line by line.
struct Talking {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talking {
    /// `ferroce run OPTIONS sh -c SCRIPT`.
    fn start(ferroce: &Installation, options: &str, script: &str) -> Self {
        let mut child = ferroce
            .command([&["run"], &options.words()[..], &["sh", "-c", script]].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// A program that does nothing until it ends, with this impairment.
    fn impaired(ferroce: &Installation, impairment: &str) -> Self {
        let script = "echo ready; read line";
        let mut waits = Self::start(ferroce, &format!("--impair {impairment}"), script);
        assert_eq!(waits.line(), "ready");
        waits
    }

    /// Its next line.
    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    /// Closes its input and waits until it ends; returns its exit code and the output of the run.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), text(&output.stderr).to_owned())
    }
}

#[test]
fn the_next_command_restores_the_settings_of_a_killed_run() {
    let ferroce = Installation::new();
    ferroce.good("impair set fr0 delay=1ms");
    let before = "dev fr0 egress delay=1ms ingress none\n";
    let mut child = Talking::impaired(&ferroce, "loss=1%").child;
    let during = ferroce.good("impair show fr0");
    assert_eq!(during, "dev fr0 egress loss=1% ingress none\n");

    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    let output = ferroce.output("impair show fr0");
    let remark = format!("run {pid} was killed and had left its settings on fr0");
    assert!(text(&output.stderr).contains(&remark));
    assert_eq!(text(&output.stdout), before);
    assert_eq!(ferroce.good("impair show fr0"), before);
}

#[test]
fn signals_reach_the_program_and_statistics_are_still_printed() {
    let ferroce = Installation::new();
    let script = "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut runs = Talking::start(&ferroce, "--stats", script);
    assert_eq!(runs.line(), "ready");
    kill(
        Pid::from_raw(runs.child.id().cast_signed()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(runs.line(), "got it");
    let (code, said) = runs.end();
    assert_eq!(code, Some(3));
    has(&said, ["no adaptive-retransmission timeouts"]);
}

#[test]
fn a_tree_for_exporters_follows_the_devices() {
    let ferroce = Installation::new();
    let tree = ferroce.path("tree").display().to_string();
    ferroce.good(format!("sysfs {tree}"));
    let state = ferroce.path("tree/class/infiniband/fr0/ports/1/state");
    assert_eq!(fs::read_to_string(&state).unwrap(), "4: ACTIVE\n");
    ferroce.good("dev del fr0");
    ferroce.good(format!("sysfs {tree}"));
    assert!(!state.exists());
    let home = ferroce.path("bin").display().to_string();
    let (code, error) = ferroce.bad(format!("sysfs {home}"));
    assert_eq!(code, Some(2));
    has(&error, ["is not empty"]);
    assert!(ferroce.path("bin/ferroce").exists());
}

/// `ferroce` run by itself, with the devices as cards.
fn as_cards(program: &str, args: impl Display) -> String {
    format!("run -q --fwctl -- {program} {args}")
}

#[test]
fn registers_are_reached_through_the_nodes_of_cards() {
    let ferroce = Installation::new();
    ferroce.good("dev add fr1 127.65.0.2");
    let program = ferroce.path("bin/ferroce").display().to_string();
    // By node, by PCI address, and by the path of the node.
    for (name, value) in [
        ("fwctl1", "5"),
        ("10fe:00:00.1", "6"),
        ("/dev/fwctl/fwctl1", "7"),
    ] {
        let dscp = format!("ack_dscp={value}");
        ferroce.good(as_cards(
            &program,
            format!("reg set ROCE_ACCL {dscp} -d {name}"),
        ));
        let get = "reg get ROCE_ACCL -j -d";
        let read = ferroce.good(as_cards(&program, format!("{get} {name}")));
        let expected = ferroce.good(format!("{get} fr1"));
        let by_name = |device| format!("\"device\":\"{device}\"");
        let expected = expected.replace(&by_name("fr1"), &by_name(name));
        let read = read.replace(&by_name("fr1"), &by_name(name));
        assert_eq!(read, expected, "{name}");
        has(&read, [&format!("\"ack_dscp\":{value},")]);
        assert_ne!(read, ferroce.good(format!("{get} fr0")), "{name}");
    }
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../profiles/backoff.toml");
    ferroce.good(as_cards(&program, format!("adp apply {profile} -d fwctl1")));
    let shown = ferroce.good(as_cards(&program, "adp show -d fwctl1"));
    assert_eq!(
        shown.replace("fwctl1", "fr1"),
        ferroce.good("adp show -d fr1")
    );
    let table = "mlxreg --reg_name ROCE_ACCL -g -d";
    assert_eq!(
        ferroce.good(as_cards(&program, format!("{table} fwctl1"))),
        ferroce.good(format!("{table} fr1"))
    );

    let hist = "stat hist show";
    assert_eq!(
        ferroce.good(as_cards(&program, format!("{hist} fwctl1"))),
        ferroce.good(format!("{hist} fr1"))
    );

    for (args, reasons) in [
        (
            "reg set ROCE_ACCL time_base=3 -d fwctl1",
            &[
                "write time_base = 4",
                "/dev/fwctl/fwctl1: register 0x402c",
                "0x03, BAD_PARAM",
            ][..],
        ),
        (
            "reg get ROCE_ACCL -d fwctl2",
            &[
                "no card \"fwctl2\"",
                "fwctl0 at 10fe:00:00.0, fwctl1 at 10fe:00:00.1",
            ],
        ),
    ] {
        let (code, error) = ferroce.bad(as_cards(&program, args));
        assert_eq!(code, Some(2), "{args:?}: {error}");
        for reason in reasons {
            has(&error, [reason]);
        }
    }
}

/// The fields whose select bit is 1 in NVIDIA's example, and the one of adaptive routing, each with a value
/// that a reset does not leave.
const FIELDS: [(&str, u32); 11] = [
    ("roce_adp_retrans_en", 0),
    ("roce_tx_window_en", 1),
    ("roce_slow_restart_en", 0),
    ("roce_slow_restart_idle_en", 1),
    ("min_ack_timeout_limit_disabled", 1),
    ("selective_repeat_forced_en", 1),
    ("adaptive_routing_forced_en", 1),
    ("ack_dscp_force", 1),
    ("ack_dscp", 26),
    ("cc_burst_size", 2),
    ("ifa2_turn_around_en", 1),
];

#[test]
fn each_field_is_set_and_reset_by_each_way_to_the_register() {
    let ferroce = Installation::new();
    let program = ferroce.path("bin/ferroce").display().to_string();
    let fields = || {
        let text = ferroce.good("reg get ROCE_ACCL -d fr0 -j");
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        shown["fields"].as_object().unwrap().clone()
    };
    let after_reset = fields();
    for (name, value) in FIELDS {
        let mut expected = after_reset.clone();
        let before = expected.insert(name.to_owned(), value.into());
        assert_ne!(before, Some(value.into()), "{name}");
        let set = format!("reg set ROCE_ACCL {name}={value}");
        let mlxreg = format!("--yes --reg_name ROCE_ACCL --set {name}={value}");
        for command in [
            format!("{set} -d fr0"),
            format!("mlxreg -d fr0 {mlxreg}"),
            as_cards(&program, format!("{set} -d fwctl0")),
            as_cards(&program, format!("mlxreg -d fwctl0 {mlxreg}")),
        ] {
            ferroce.good(&command);
            assert_eq!(fields(), expected, "{command}");
            ferroce.good("dev reset fr0");
            assert_eq!(fields(), after_reset, "{command}");
        }
    }
}

#[test]
fn a_dry_run_on_a_card_reads_and_does_not_write() {
    let ferroce = Installation::new();
    let program = ferroce.path("bin/ferroce").display().to_string();
    let before = ferroce.good("reg get ROCE_ACCL -d fr0");
    let set = "reg set ROCE_ACCL ack_dscp=5 --dry-run -d fwctl0";
    let calls = ferroce.good(as_cards(&program, set));
    let (read, write) = calls.split_at(calls.rfind("ioctl").unwrap());
    assert!(
        read.starts_with("ioctl 0x9a01 FWCTL_RPC: size 32, scope 1 "),
        "{read}"
    );
    has(read, ["\n0000: 08050000 00000001 0000402c 00000000\n"]);
    assert!(
        write.starts_with("ioctl 0x9a01 FWCTL_RPC: size 32, scope 0 "),
        "{write}"
    );
    has(write, ["\n0000: 08050000 00000000 0000402c 00000000\n"]);
    // The named fields are selected; the rest is as it was read.
    has(write, ["\n0010: 00000200 00001405 41000fa0 "]);
    assert_eq!(ferroce.good("reg get ROCE_ACCL -d fr0"), before);
}
