//! Drills with released libraries, and with a fake one where none is needed.

#[path = "../../ferroce/tests/common/schema.rs"]
mod schema;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_interop::lab::{Lab, program, until};
use ferroce_testing::{Words, has, skip};
use serde_json::Value;

const RELEASE: &str = "2.32.3";

fn drill(library: &str, args: impl Words) -> Command {
    let mut command = Command::new(program());
    command.args(["drill", library]).args(args.words());
    command
}

/// The document of a drill. `None` if the library cannot be had here, which downloads it if it is not
/// cached.
fn document(test: &str, library: &str, args: &str) -> Option<Value> {
    let output = drill(library, args).arg("--json").output().unwrap();
    let stderr = text(&output.stderr);
    if let Some(reason) = stderr.lines().find(|it| is_out_of_reach(it)) {
        skip(test, reason);
        return None;
    }
    assert!(output.status.success(), "{stderr}");
    assert_eq!(schema::check_output(&text(&output.stdout)), 1);
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The runs of a drill, all of which survive as expected with all rails in use.
fn runs(test: &str, library: &str, args: &str) -> Option<Vec<Value>> {
    let document = document(test, library, args)?;
    let runs = document["runs"].as_array().unwrap();
    for run in runs {
        assert_eq!(run["outcome"], "survived", "{run}");
        assert_eq!(run["wrong_bytes"], 0);
        assert_eq!(run["rails_before"], document["rails"]);
        assert_eq!(run["as_expected"], true, "{run}");
        assert!(run["payload_bytes"].as_u64().unwrap() > 10_000_000);
    }
    Some(runs.clone())
}

/// The release goes through an outage that it waits out, and through one in which it moves to the other
/// rail.
#[test]
fn a_release_of_nccl_goes_through_two_outages() {
    let test = "a_release_of_nccl_goes_through_two_outages";
    let args = "--failover on --env NCCL_IB_TIMEOUT=14 --outage 300ms,6s --after 2s --nccl 2.32.3";
    let Some(runs) = runs(test, "nccl", args) else {
        return;
    };
    let [short, long] = &runs[..] else {
        panic!("two runs");
    };
    assert_eq!(short["expected"]["outcome"], "waits");
    assert_eq!(short["failed_over_s"], Value::Null);
    assert_eq!(long["expected"]["outcome"], "fails_over");
    assert!(long["failed_over_s"].as_f64().unwrap() > 2.0, "{long}");
    assert_eq!(long["rails_after"], 1);
    has(
        &long["messages"].to_string(),
        ["port error", "Device 0 marked as failed"],
    );
}

/// Its one-sided writes move to the other rail.
#[test]
fn a_release_of_ucx_fails_over() {
    let args =
        "--operation put --errors failover --env UCX_RC_TIMEOUT=67ms --outage 6s --ucx 1.23.0";
    let Some(runs) = runs("a_release_of_ucx_fails_over", "ucx", args) else {
        return;
    };
    assert_eq!(runs[0]["expected"]["outcome"], "fails_over");
    assert!(runs[0]["failed_over_s"].as_f64().unwrap() > 2.0);
    assert_eq!(runs[0]["rails_after"], 1);
}

/// It gives up the connections of a port that goes down, even if that is up again soon.
#[test]
fn a_release_of_mooncake_fails_over() {
    let args = "--rails 2 --outage 300ms --after 8s --mooncake 0.3.13";
    let Some(runs) = runs("a_release_of_mooncake_fails_over", "mooncake", args) else {
        return;
    };
    assert_eq!(runs[0]["expected"]["outcome"], "fails_over");
    has(&runs[0]["messages"].to_string(), ["port error"]);
}

#[test]
fn a_release_of_nixl_waits_an_outage_out() {
    let args = "--outage 300ms --nixl 1.5.1";
    let Some(runs) = runs("a_release_of_nixl_waits_an_outage_out", "nixl", args) else {
        return;
    };
    assert_eq!(runs[0]["expected"]["outcome"], "waits");
}

/// Its mpirun starts the hosts, ends them all if one is killed, and ends with the drill.
#[test]
fn a_release_of_openmpi_waits_an_outage_out() {
    let test = "a_release_of_openmpi_waits_an_outage_out";
    let Some(runs) = runs(test, "openmpi", "--outage 300ms --openmpi 5.0.11") else {
        return;
    };
    assert_eq!(runs[0]["expected"]["outcome"], "waits");
    let killed = document(test, "openmpi", "--peer kill --openmpi 5.0.11").unwrap();
    let killed = &killed["runs"][0];
    assert_eq!(killed["outcome"], "died", "{killed}");
    assert_eq!(killed["failed_host"], 0);
    assert_eq!(killed["as_expected"], true, "{killed}");
    interrupt_job(&mut drill("openmpi", "--outage forever --openmpi 5.0.11"));
}

#[test]
fn ctrl_c_ends_hosts_that_mpirun_has_started() {
    let lab = Lab::new("drill-job");
    let library = compiled(&lab, "fake_mpi", "fake", "");
    fs::create_dir(lab.path().join("bin")).unwrap();
    let mpirun = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/fake_mpirun");
    fs::copy(mpirun, lab.path().join("bin/mpirun")).unwrap();
    interrupt_job(drill("openmpi", "--library").arg(library));
}

fn is_out_of_reach(line: &str) -> bool {
    let line = line.trim_start_matches("error: ");
    line.starts_with("cannot download") || line.starts_with("no room")
}

#[test]
fn unusable_libraries_are_refused() {
    let lab = Lab::new("drill-refused");
    let refusal_of = |name: &str, library: &Path, expected: &str| {
        let output = drill(name, "--library").arg(library).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        has(&stderr, [expected]);
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
    };
    let refusal = |library: &Path, expected: &str| refusal_of("nccl", library, expected);
    let no_table = fake(&lab, "no_table", "-DNO_TABLE");
    for name in ["nccl", "ucx", "mooncake", "nixl", "openmpi"] {
        refusal_of(name, Path::new("/nowhere"), "No such file");
        refusal_of(name, Path::new("/etc/passwd"), "it is not a shared library");
    }
    for (name, symbol) in [
        ("nccl", "ncclNetIb"),
        ("ucx", "ucp_get_version_string"),
        ("mooncake", "PyInit_engine"),
        ("nixl", "PyInit__bindings"),
        ("openmpi", "MPI_Get_library_version"),
    ] {
        refusal_of(name, &no_table, &format!("it has no symbol {symbol}"));
    }
    refusal(
        &fake(&lab, "unknown", "-DVERSION=29900"),
        "it is NCCL 2.99.0, whose network interface is not known; known is 2.20 to 2.32",
    );
    let other = fake(&lab, "other", "");
    let mut bytes = fs::read(&other).unwrap();
    // The field e_machine of ELF's header: SPARC.
    bytes[18..20].copy_from_slice(&2_u16.to_le_bytes());
    fs::write(&other, bytes).unwrap();
    for name in ["nccl", "ucx", "mooncake", "nixl", "openmpi"] {
        refusal_of(name, &other, "it is built for another processor");
    }
    let ucx = compiled(&lab, "fake_ucx", "ucx", "");
    refusal_of(
        "ucx",
        &ucx,
        "it is UCX 1.99.0, whose interface is not known; known is 1.15 to 1.23",
    );
    let other_mpi = compiled(&lab, "fake_mpi", "other_mpi", "-DOTHER");
    refusal_of(
        "openmpi",
        &other_mpi,
        "it is MPICH Version: 5.0.2; known is Open MPI 4.1 and 5.0",
    );
    let alone = compiled(&lab, "fake_mpi", "alone", "");
    refusal_of(
        "openmpi",
        &alone,
        "there is no bin/mpirun in a directory above it",
    );
}

#[test]
fn a_download_needs_room() {
    let place = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m tmpfs \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script]);
    command.arg(place.path()).arg(program());
    command.args(["drill", "nccl", "--nccl", RELEASE]);
    let output = command
        .env("XDG_CACHE_HOME", place.path())
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    if stderr.contains("unshare") || stderr.contains("mount:") {
        return skip("a_download_needs_room", stderr.trim());
    }
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    has(
        &stderr,
        ["no room in", "set XDG_CACHE_HOME to a directory with more"],
    );
}

#[test]
fn ctrl_c_leaves_no_process_and_no_device() {
    let lab = Lab::new("drill-interrupted");
    let library = fake(&lab, "fake", "");
    let mut command = drill("nccl", "--hosts 3 --library");
    interrupt(command.arg(&library), 3, || hosts(&library));
}

/// Sends Ctrl-C to a drill that has this number of processes, which leaves nothing of it.
fn interrupt(drill: &mut Command, number: usize, all: impl Fn() -> Vec<u32>) {
    let drill = drill.stdout(Stdio::piped()).stderr(Stdio::piped());
    let drill = drill.spawn().unwrap();
    let hosts = until("the hosts have started", || {
        Some(all()).filter(|all| all.len() == number)
    });
    let directory = until("a host knows the directory of its devices", || {
        hosts.iter().find_map(|pid| variable(*pid, "FERROCE_DIR"))
    });
    assert!(Path::new(&directory).is_dir());
    let interrupted = Command::new("kill")
        .args(["-INT", &drill.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    let Output { status, stderr, .. } = drill.wait_with_output().unwrap();
    assert!(!status.success());
    has(&text(&stderr), ["interrupted"]);
    until("all hosts have ended", || all().is_empty().then_some(()));
    assert!(!Path::new(&directory).exists(), "{directory}");
}

/// The same with two hosts that an mpirun has started.
fn interrupt_job(drill: &mut Command) {
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    let job = JOBS.fetch_add(1, Ordering::Relaxed);
    let mark = format!("{}-{job}", process::id());
    let is_marked = |pid: &u32| variable(*pid, "MARK").as_ref() == Some(&mark);
    interrupt(drill.args(["--env", &format!("MARK={mark}")]), 3, || {
        processes().filter(is_marked).collect()
    });
}

/// A library that looks like NCCL.
fn fake(lab: &Lab, name: &str, option: &str) -> PathBuf {
    compiled(lab, "fake_nccl", name, option)
}

fn compiled(lab: &Lab, source: &str, name: &str, option: &str) -> PathBuf {
    let options = format!("-shared -fPIC {option}");
    let built = lab.compile_with(source, options.as_str());
    let library = lab.path().join(format!("{name}.so"));
    fs::rename(built, &library).unwrap();
    library
}

/// The processes of a drill's hosts that use this library.
fn hosts(library: &Path) -> Vec<u32> {
    let library = library.as_os_str().as_encoded_bytes();
    let is_host = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let has = |wanted: &[u8]| words.split(|byte| *byte == 0).any(|word| word == wanted);
        has(b"nccl-host") && has(b"--host") && has(library)
    };
    processes().filter(is_host).collect()
}

/// All processes of the machine.
fn processes() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

fn variable(pid: u32, name: &str) -> Option<String> {
    let all = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let all = String::from_utf8_lossy(&all);
    let mut all = all.split('\0').filter_map(|it| it.split_once('='));
    all.find_map(|(known, value)| (known == name).then(|| value.to_owned()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
