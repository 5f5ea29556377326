//! What the wheel and the crate `ferroce-testkit` give to tests of others: the examples of docs/ci.md run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use ferroce_interop::lab::{Lab, program};
use ferroce_testkit::{Device, Error, free_port, listens, wait_for};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
/// Any time in the past; packages of the same input are the same.
const EPOCH: &str = "1700000000";

/// A block of docs/ci.md.
fn example(heading: &str, language: &str) -> String {
    let page = include_str!("../../docs/ci.md");
    let below = page
        .split_once(&format!("\n## {heading}\n"))
        .expect(heading)
        .1;
    let block = below
        .split_once(&format!("```{language}\n"))
        .expect(language)
        .1;
    block
        .split_once("```")
        .expect("the end of the block")
        .0
        .to_owned()
}

/// A lab with the files of the wheel on Python's path, as pip would install them. Programs see all devices.
fn lab_with_wheel(name: &str) -> Lab {
    let mut lab = Lab::new(name);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new("python3")
        .arg(repository.join("packaging/assemble.py"))
        .arg("wheel")
        .arg(lab.path().join("prefix"))
        .args([env!("CARGO_PKG_VERSION"), "x86_64"])
        .arg(lab.path())
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .status();
    assert!(made.expect("python3 starts").success());
    let mut files = fs::read_dir(lab.path())
        .unwrap()
        .map(|file| file.unwrap().path());
    let wheel = files
        .find(|file| file.extension().is_some_and(|it| it == "whl"))
        .unwrap();
    let site = lab.path().join("site");
    let unpacked = Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .args([&wheel, &site])
        .status();
    assert!(unpacked.expect("python3 starts").success());
    let [site, bin] =
        [site, lab.path().join("prefix/bin/ferroce")].map(|it| it.display().to_string());
    lab.set("PYTHONPATH", &site)
        .set("FERROCE_BIN", &bin)
        .set("PYTHONDONTWRITEBYTECODE", "1");
    lab
}

/// Runs pytest over a test of this text in the lab, and returns what it printed.
fn pytest(lab: &Lab, test: &str, options: &str) -> String {
    let file = lab.path().join("test_example.py");
    fs::write(&file, test).unwrap();
    let file = file.display();
    lab.beside(format!(
        "env -u FERROCE_DEVICES {0}/prefix/bin/ferroce run -- /usr/bin/python3 -m pytest -q -p no:cacheprovider \
         {options} {file}",
        lab.path().display()
    ))
    .success()
}

fn devices(lab: &Lab) -> String {
    lab.beside(format!(
        "env -u FERROCE_DEVICES {}/prefix/bin/ferroce dev",
        lab.path().display()
    ))
    .success()
}

#[test]
fn pytest_examples_of_the_page() {
    let lab = lab_with_wheel("pytest-page");
    let said = pytest(&lab, &example("pytest", "python"), "-n 3");
    assert!(said.contains("4 passed"), "{said}");
    assert!(!devices(&lab).contains("py"), "{}", devices(&lab));
}

/// Each test, also in its own process, has a device that no other has; what was killed is cleared away.
#[test]
fn pytest_has_a_device_for_each_test_and_worker() {
    let test = r#"
import os
import pytest
from pyverbs.device import Context
from ferroce.testing import Devices, FerroceError

@pytest.mark.parametrize("number", range(70))
def test_own_process(ferroce_device, number):
    with Context(name=ferroce_device.name) as context:
        assert context.query_port(1).state == 4
        with ferroce_device.link_down():
            assert context.query_port(1).state == 1
        assert context.query_port(1).state == 4

def test_no_more_than_there_are():
    with Devices() as devices:
        with pytest.raises(FerroceError, match="62 addresses"):
            for _ in range(63):
                devices.add()

def test_settings_are_checked(ferroce_devices):
    with pytest.raises(FerroceError, match="speed"):
        ferroce_devices.add(speed="fast")
    with pytest.raises(FerroceError, match="can never match"):
        ferroce_devices.add().fault("rdma_create_id=EIO")

@pytest.mark.skipif("KILLED" not in os.environ, reason="ends the worker")
def test_killed(ferroce_device):
    os.kill(os.getpid(), 9)
"#;
    let mut lab = lab_with_wheel("pytest-workers");
    let said = pytest(&lab, test, "-n 4");
    assert!(said.contains("72 passed, 1 skipped"), "{said}");
    lab.set("KILLED", "1");
    let killed = format!(
        "env -u FERROCE_DEVICES {0}/prefix/bin/ferroce run -- /usr/bin/python3 -m pytest -q -p no:cacheprovider \
         -k killed {0}/test_example.py",
        lab.path().display()
    );
    assert!(!lab.beside(killed).finish().status.success());
    assert!(devices(&lab).contains(": py"), "{}", devices(&lab));
    let said = pytest(&lab, test, "-k settings");
    assert!(said.contains("1 passed"), "{said}");
    assert!(!devices(&lab).contains(": py"), "{}", devices(&lab));
}

#[test]
fn rust_examples_of_the_page() {
    let source = include_str!("testkit.rs");
    for test in example("Rust tests", "rust").split("#[test]\n").skip(1) {
        // Here they run by hand, since the kit takes the program and the directory from the environment.
        assert!(
            source.contains(test.trim_end()),
            "not as in docs/ci.md:\n{test}"
        );
    }
    let state = TempDir::with_prefix("ferroce-testkit-").unwrap();
    let ran = Command::new(env::current_exe().unwrap())
        .args(["testkit::", "--ignored", "--test-threads=1"])
        .env("FERROCE_BIN", program())
        .env("FERROCE_DIR", state.path().join("devices"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        said.contains("3 passed"),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let left = Command::new(program())
        .arg("dev")
        .env("FERROCE_DIR", state.path().join("devices"))
        .output()
        .unwrap();
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(!left.contains(": rs"), "{left}");
}

#[test]
#[ignore = "rust_examples_of_the_page runs it"]
fn loss_costs_retransmissions() -> Result<(), Error> {
    let device = Device::new()?;
    let port = free_port()?;
    let server = ["ib_write_bw", "-n", "500", "-p", &port.to_string()];
    let client = [&server[..], &["127.0.0.1"]].concat();
    let server = device.start(server)?;
    wait_for("the server", PATIENCE, || listens(port))?;
    device.impair("loss 1%")?;
    device.run(client)?;
    server.wait(PATIENCE)?;
    assert!(device.counters()?["packet_seq_err"] > 0);
    Ok(())
}

#[test]
#[ignore = "rust_examples_of_the_page runs it"]
fn refused_memory_is_reported() -> Result<(), Error> {
    let device = Device::new()?;
    let fault = device.fault("reg_mr=ENOMEM")?;
    assert!(device.run(["ibv_rc_pingpong"]).is_err());
    assert!(fault.injected()? > 0);
    Ok(())
}

/// What goes wrong says so: settings, programs that fail or do not end, rules, conditions.
#[test]
#[ignore = "rust_examples_of_the_page runs it"]
fn mistakes_are_named() -> Result<(), Error> {
    let short = Duration::from_millis(200);
    let refused = Device::with("speed fast").unwrap_err();
    assert!(refused.to_string().contains("speed"), "{refused}");
    let devices = (0..62)
        .map(|_| Device::new())
        .collect::<Result<Vec<_>, _>>()?;
    assert!(matches!(Device::new(), Err(Error::NoAddress)));
    let device = &devices[0];
    let failed = device.run(["sh", "-c", "echo why; exit 3"]).unwrap_err();
    assert!(
        failed.to_string().contains("exit status: 3:\nwhy"),
        "{failed}"
    );
    let slow = device.start(["sh", "-c", "echo slowly; sleep 100"])?;
    let slow = slow.wait(short).unwrap_err();
    assert!(slow.to_string().contains("within 200ms:\nslowly"), "{slow}");
    let never = device.fault("rdma_create_id=EIO").unwrap_err();
    assert!(never.to_string().contains("can never match"), "{never}");
    let vain = wait_for("rain", short, || false).unwrap_err();
    assert_eq!(vain.to_string(), "waited 200ms in vain for rain");
    device.link("down for 50ms")?;
    wait_for("the port", PATIENCE, || {
        device.counters().is_ok_and(|it| it["link_downed"] == 1)
    })?;
    device.heal()
}
