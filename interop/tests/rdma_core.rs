//! The test suite of rdma-core, as Debian ships it, on Ferroce.
//!
//! `rdma-core-44.txt` beside the manifest has the result of each test. To write it again:
//! `FERROCE_UPDATE=1 cargo test -p ferroce-interop --test lab rdma_core::`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use ferroce_interop::lab::Lab;
use ferroce_testing::skip;

/// Where Debian installs it. Images of containers leave documentation out: then `./test` unpacks
/// the package and sets its place in `FERROCE_RDMA_CORE_TESTS`.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";

/// What a test may lack on this machine, as its reason to skip names it.
const OF_THE_MACHINE: [&str; 3] = ["huge pages", "dmabuf", "cuda-python"];

/// Name of a test to its result, and of a skipped one to the reason.
type Results = BTreeMap<String, String>;

#[test]
fn the_suite_does_what_the_list_says() {
    let mut lab = Lab::new("rdma-core");
    // Without it, the suite does not try direct verbs.
    lab.set("FERROCE_MLX5DV", "1");
    let (results, stderr) = run(&lab, "fr0", 1);

    if env::var_os("FERROCE_UPDATE").is_some() {
        fs::write(list(), print(&results)).unwrap();
    }
    let expected = expected();
    let differing = differing(&results, &expected);
    assert!(
        differing.is_empty(),
        "not as listed: {differing:#?}\n{stderr}"
    );
    assert_eq!(results.len(), expected.len(), "tests that did not run");
    let failing: Vec<_> = results
        .iter()
        .filter(|(_, result)| result.starts_with("FAIL"))
        .collect();
    assert!(failing.is_empty(), "{failing:#?}");
    for machine in OF_THE_MACHINE {
        let skipped = results.values().filter(|result| result.contains(machine));
        match skipped.count() {
            0 => {}
            count => skip("rdma_core", &format!("{count} of its tests: no {machine}")),
        }
    }
    let passing = results.values().filter(|result| *result == "pass").count();
    assert!(passing >= 148, "{passing} tests pass");
}

/// The same on a second port.
#[test]
fn the_suite_does_the_same_on_a_second_port() {
    /// It makes an address handle for port 1, wherever its queue pair is.
    const OF_PORT_1: &str = "test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic";

    let mut lab = Lab::new("rdma-core-port-2");
    lab.set("FERROCE_MLX5DV", "1");
    let address = lab.address();
    lab.ferroce(format!("dev add card {address} --ports 2"))
        .success();
    lab.set("FERROCE_DEVICES", "card");
    let (mut results, stderr) = run(&lab, "card", 2);
    let failed = results.remove(OF_PORT_1);
    assert!(failed.is_some_and(|it| it.starts_with("FAIL")), "{stderr}");
    let differing = differing(&results, &expected());
    assert!(
        differing.is_empty(),
        "not as listed: {differing:#?}\n{stderr}"
    );
}

/// Runs the suite on a port of a device; also what it printed to standard error.
fn run(lab: &Lab, device: &str, port: u8) -> (Results, String) {
    let suite = unpack(lab);
    let runner = lab.path().join("rdma_core_tests.py");
    fs::copy(here("programs/rdma_core_tests.py"), &runner).unwrap();
    let spec: serde_json::Value =
        serde_json::from_str(&lab.ferroce(["-j", "dev", "show", device]).success()).unwrap();
    let key = if port == 2 {
        "second_address"
    } else {
        "address"
    };
    let run = lab.run_with(
        ["--ns"],
        [
            "/usr/bin/python3",
            runner.to_str().unwrap(),
            suite.to_str().unwrap(),
            spec["devices"][0][key].as_str().unwrap(),
            "--dev",
            device,
            "--gid",
            "1",
            "--port",
            &port.to_string(),
        ],
    );
    let finished = run.finish();
    assert!(
        finished.status.success(),
        "a test broke the run: {finished}"
    );
    (parse(&finished.stdout), finished.stderr)
}

fn expected() -> Results {
    parse(&fs::read_to_string(list()).unwrap())
}

/// The results that are not as listed.
fn differing(results: &Results, expected: &Results) -> Vec<String> {
    let machine = |text: &String| OF_THE_MACHINE.iter().any(|what| text.contains(what));
    let may_differ = |result: &String| result == "pass" || machine(result);
    let as_listed = |test: &String, result: &String| {
        let listed = expected.get(test);
        listed.is_some_and(|listed| result == listed || machine(listed) && may_differ(result))
    };
    let differing = results
        .iter()
        .filter(|(test, result)| !as_listed(test, result));
    differing
        .map(|(test, result)| format!("{test}: {result}"))
        .collect()
}

fn unpack(lab: &Lab) -> PathBuf {
    let suite = lab.path().join("tests");
    fs::create_dir(&suite).unwrap();
    let unpacked = env::var_os("FERROCE_RDMA_CORE_TESTS");
    let files = fs::read_dir(unpacked.unwrap_or_else(|| SUITE.into()))
        .expect("apt-get install python3-pyverbs, or see ./test");
    for file in files {
        let path = file.unwrap().path();
        fs::copy(&path, suite.join(path.file_name().unwrap())).unwrap();
    }
    let unpacked = Command::new("sh")
        .arg("-c")
        .arg("gunzip *.gz")
        .current_dir(&suite)
        .status();
    assert!(unpacked.unwrap().success(), "gunzip");
    suite
}

fn parse(text: &str) -> Results {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .map(|(test, result)| (test.to_owned(), result.trim().to_owned()))
        .collect()
}

fn print(results: &Results) -> String {
    let mut text =
        String::from("# What becomes of each test of rdma-core 44: pass, or skip and why.\n");
    for (test, result) in results {
        text += &format!("{test}\t{result}\n");
    }
    text
}

fn list() -> PathBuf {
    here("rdma-core-44.txt")
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
