//! What is reported of devices: `ferroce status`, `stat`, the exporter, the tree of files.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_device::{QpInit, QpType};
use ferroce_runtime::{AttachOptions, Device};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{self, Exporter, Place, address, has, metric};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn place(test: u8) -> (Place, Device) {
    let place = Place::with("fr1", &address(test, 1).to_string());
    let device = Device::attach(&place.registry(), "fr1", AttachOptions::default()).unwrap();
    (place, device)
}

fn add_qps(device: &Device, count: usize) {
    device.with(|hca| {
        let (pd, cq) = (hca.alloc_pd().unwrap(), hca.create_cq(16).unwrap());
        for _ in 0..count {
            hca.create_qp(&QpInit::new(QpType::Rc, pd, cq)).unwrap();
        }
    });
}

fn json(text: &str) -> Value {
    common::schema::check_output(text);
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The warnings of `ferroce status`, without those that depend on the machine.
fn warnings(status: &Value) -> Vec<&str> {
    let warnings = status["warnings"].as_array().unwrap().iter();
    let warnings = warnings.map(|it| it.as_str().unwrap());
    warnings.filter(|it| !it.starts_with("busy ")).collect()
}

#[test]
fn status_shows_settings_and_programs() {
    let (place, device) = place(11);
    add_qps(&device, 3);
    place.good("impair set fr1 loss=1%,delay=50us");
    place.good("adp apply link-flap -d fr1");
    place.good("link set fr1 down");
    let status = json(&place.good("-j status"));
    let devices = status["devices"].as_array().unwrap();
    let fr1 = devices.iter().find(|it| it["device"] == "fr1").unwrap();
    assert_eq!(fr1["state"], "down");
    assert_eq!(fr1["link_downed"], 1);
    assert_eq!(fr1["egress"], "loss=1%,delay=50us");
    assert_eq!(fr1["ingress"], Value::Null);
    assert_eq!(fr1["policy"]["kind"], "profile");
    assert_eq!(fr1["policy"]["profile"], "link-flap");
    assert_eq!(fr1["policy"]["hash"].as_str().unwrap().len(), 8);
    assert_eq!(fr1["retransmitted"]["total"], 0);
    assert_eq!(fr1["timeouts"]["per_second"], 0.0);
    let fr0 = devices.iter().find(|it| it["device"] == "fr0").unwrap();
    assert_eq!(
        (&fr0["state"], &fr0["egress"]),
        (&"up".into(), &Value::Null)
    );
    let programs = status["programs"].as_array().unwrap();
    let ours = programs.iter().find(|it| it["pid"] == std::process::id());
    let ours = ours.unwrap_or_else(|| panic!("{status}"));
    assert_eq!(
        (&ours["device"], &ours["condition"]),
        (&"fr1".into(), &"running".into())
    );
    assert_eq!(ours["queue_pairs"]["reset"], 3);
    assert_eq!(
        warnings(&status),
        ["fr1: the port is down until `ferroce link set fr1 up`"]
    );

    let screen = place.good("status");
    assert!(screen.lines().count() < 24, "{screen}");
    for part in [
        "loss=1%,delay=50us",
        "link-flap ",
        "  3 RESET",
        "! fr1: the port is down",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    place.good("link set fr1 up");
    place.good("fault add reg_mr=EIO,nth=3");
    assert_eq!(
        warnings(&json(&place.good("-j status"))),
        ["fault rules in force: reg_mr=EIO,nth=3 (injected 0 so far); `ferroce fault clear`"]
    );
    place.good("fault clear");
    drop(device);
    // Programs that other tests are starting keep its slot until they run.
    until("an impairment that nobody uses", || {
        let status = json(&place.good("-j status"));
        let expected = "fr1: impaired (loss=1%,delay=50us), though no program uses it; `ferroce \
                        impair clear fr1`";
        warnings(&status).contains(&expected)
    });
}

#[test]
fn status_does_not_wait_for_silent_or_stopped_programs() {
    let (place, device) = place(12);
    let mut holder = Holder::start(&place);
    let condition = |pid: u32| {
        let status = json(&place.good("-j status"));
        let programs = status["programs"].as_array().unwrap().clone();
        let program = programs.into_iter().find(|it| it["pid"] == pid);
        program.unwrap_or_else(|| panic!("{status}"))["condition"].clone()
    };
    holder.signal(Signal::SIGSTOP);
    // The device is locked, so nothing answers.
    let ours = std::process::id();
    device.with(|_| {
        assert_eq!(condition(ours), "silent");
        until("a process to stop", || {
            condition(holder.0.id()) == "stopped"
        });
        let screen = place.good("status");
        has(&screen, ["  stopped", "does not answer"]);
        let resume = format!("is stopped; `kill -CONT {}` resumes it", holder.0.id());
        has(&screen, [&resume]);
    });
    until("an answer", || condition(ours) == "running");
    holder.signal(Signal::SIGCONT);
    until("a process to go on", || {
        condition(holder.0.id()) == "running"
    });
    let pid = holder.0.id();
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    let status = json(&place.good("-j status"));
    let programs = status["programs"].as_array().unwrap();
    assert!(programs.iter().all(|it| it["pid"] != pid), "{status}");
}

/// Another process that has fr1 open.
struct Holder(Child);

impl Holder {
    fn start(place: &Place) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "telemetry::holds_a_device_open",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("FERROCE_TEST_HOLDS", place.path().join("registry"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("@open")));
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "a process that another test starts"]
fn holds_a_device_open() {
    let Some(directory) = std::env::var_os("FERROCE_TEST_HOLDS") else {
        return;
    };
    let registry = common::registry(Path::new(&directory));
    let _device = Device::attach(&registry, "fr1", AttachOptions::default()).unwrap();
    println!("@open");
    let _ = std::io::stdin().read(&mut [0]); // until the other process ends
}

#[test]
fn status_is_taken_again_until_a_signal() {
    let place = Place::with("fr1", &address(13, 1).to_string());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = place
            .command("status --watch 0.05 -j")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..3 {
            let status = json(&lines.next().unwrap().unwrap());
            assert!(status["elapsed_s"].as_f64().unwrap() > 0.0, "{status}");
        }
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        lines.for_each(drop);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn counters_that_are_zero_are_left_out_for_people() {
    let (place, device) = place(14);
    assert_eq!(
        place.good("stat show fr1"),
        "link fr1/1 all counters are 0\n"
    );
    let all = place.good("stat show fr1 --all");
    assert!(
        all.starts_with("link fr1/1 ") && all.contains(" rx_malformed 0 "),
        "{all}"
    );
    assert_eq!(place.good("stat -a show fr1"), all);
    // Programs get all counters.
    let counters = json(&place.good("stat show fr1 -j"));
    assert_eq!(counters["devices"][0]["counters"]["rx_malformed"], 0);

    device.with(|hca| hca.count(ferroce_device::Counter::RxMalformed, 7));
    assert_eq!(place.good("stat show fr1"), "link fr1/1 rx_malformed 7\n");
}

#[test]
fn counters_are_watched_as_rates() {
    let (place, device) = place(15);
    let watch = "stat show fr1 --watch 0.05 --count 2";
    let table = place.good(watch);
    assert_eq!(table, "all counters are 0\nall counters are 0\n");
    device.with(|hca| hca.count(ferroce_device::Counter::RxMalformed, 7));
    let table = place.good(watch);
    let head = "link   counter       per second  total";
    let row = "fr1/1  rx_malformed           0      7";
    assert_eq!(table, format!("{head}\n{row}\n{head}\n{row}\n"));

    let mut child = place
        .command("stat -j --watch 0.05")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut looks = BufReader::new(child.stdout.take().unwrap()).lines();
    looks.next().unwrap().unwrap();
    device.with(|hca| hca.count(ferroce_device::Counter::RxMalformed, 10));
    // It is in one of the samples, completely, as a rate.
    let seen = looks
        .by_ref()
        .map(|look| json(&look.unwrap()))
        .find_map(|look| {
            let fr1 = look["devices"]
                .as_array()
                .unwrap()
                .iter()
                .find(|it| it["device"] == "fr1")?
                .clone();
            let rate = fr1["rates"]["rx_malformed"].as_f64().unwrap();
            (rate > 0.0).then(|| rate * look["elapsed_s"].as_f64().unwrap())
        });
    assert_eq!(seen.map(f64::round), Some(10.0));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    looks.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

const OF_FR1: &str = r#"device="fr1""#;

/// The exporter's answer once every process of fr1 has answered; on a busy machine they are late.
fn told(exporter: &Exporter) -> String {
    let silent = format!(r#"ferroce_silent_processes{{{OF_FR1},port="1"}}"#);
    let mut page = exporter.page();
    until("all to tell", || {
        let is_told = metric(&page, &silent) == 0.0;
        if !is_told {
            page = exporter.page();
        }
        is_told
    });
    page
}

#[test]
fn the_number_of_lines_does_not_depend_on_queue_pairs() {
    let (place, device) = place(16);
    let exporter = Exporter::start(&place);
    let lines = |page: &str| page.lines().count();
    let none = told(&exporter);
    add_qps(&device, 5000);
    let many = told(&exporter);
    assert_eq!(lines(&many), lines(&none));
    let reset = format!(r#"ferroce_queue_pairs{{{OF_FR1},port="1",state="RESET"}}"#);
    let processes = format!(r#"ferroce_processes{{{OF_FR1},port="1"}}"#);
    assert_eq!(
        [metric(&none, &reset), metric(&many, &reset)],
        [0.0, 5000.0]
    );
    assert!(metric(&many, &processes) >= 1.0);
    // OpenMetrics ends with a mark, and the older format has none.
    assert!(many.ends_with("# EOF\n"));
    let plain = exporter.answer(b"GET /metrics HTTP/1.0\r\nAccept: text/plain\r\n\r\n");
    assert!(plain.contains("\nferroce_queue_pairs{") && !plain.contains("# EOF"));
    // A process that does not answer does not affect the others.
    let silent = format!(r#"ferroce_silent_processes{{{OF_FR1},port="1"}}"#);
    let page = device.with(|_| exporter.page());
    assert_eq!([metric(&page, &silent), metric(&page, &reset)], [1.0, 0.0]);
    assert_eq!(metric(&told(&exporter), &reset), 5000.0);
}

#[test]
fn settings_in_force_are_a_label() {
    let place = Place::with("fr1", &address(17, 1).to_string());
    let exporter = Exporter::start(&place);
    let line = |start: &str| {
        let page = exporter.page();
        let line = page.lines().find(|line| line.starts_with(start));
        line.map(str::to_owned)
    };
    let profile = || line(&format!("ferroce_adp_profile_info{{{OF_FR1}")).unwrap();
    let impairment = || line(&format!("ferroce_impairment_info{{{OF_FR1}"));
    let firmware =
        format!(r#"ferroce_adp_profile_info{{{OF_FR1},policy="firmware",profile="",hash=""}} 1"#);
    assert_eq!((profile(), impairment()), (firmware, None));
    place.good("adp apply link-flap -d fr1");
    let start = format!(
        r#"ferroce_adp_profile_info{{{OF_FR1},policy="profile",profile="link-flap",hash=""#
    );
    assert!(profile().starts_with(&start), "{}", profile());
    place.good("impair set fr1 loss=1%,down=1min@3s");
    let expected = format!(
        r#"ferroce_impairment_info{{{OF_FR1},direction="egress",impairment="loss=1%,down"}} 1"#
    );
    // Time passes, and the series stays the same.
    for _ in 0..3 {
        assert_eq!(impairment().as_ref(), Some(&expected));
    }
    place.good("impair clear fr1");
    assert_eq!(impairment(), None);

    place.good("fault add reg_mr=EIO,nth=3");
    for family in ["met", "injected"] {
        let value =
            format!(r#"ferroce_fault_{family}_total{{number="1",rule="reg_mr=EIO,nth=3"}} 0"#);
        assert_eq!(line(&format!("ferroce_fault_{family}_total")), Some(value));
    }
    place.good("fault clear");
    assert_eq!(line("ferroce_fault_met_total"), None);

    let changes = || {
        let name = format!("ferroce_adp_retx_wait_layout_changes_total{{{OF_FR1}}}");
        metric(&exporter.page(), &name)
    };
    let hist = "stat hist set fr1 -n 4 -t 0";
    assert_eq!(changes(), 0.0);
    for expected in [1.0, 1.0] {
        assert_eq!(place.run(hist).0, 0);
        assert_eq!(changes(), expected, "the same layout again is none");
    }
    place.good("stat hist clear fr1");
    assert_eq!(changes(), 1.0, "the bins are the same");
    place.good("dev reset fr1");
    assert_eq!(changes(), 2.0);
}

/// Invalid requests of clients are refused or cut off, and the others are answered.
#[test]
fn bad_requests_are_refused_without_side_effects() {
    let place = Place::with("fr1", &address(18, 1).to_string());
    let exporter = Exporter::start(&place);
    let status = |request: &[u8]| {
        let answer = exporter.answer(request);
        let status = answer.split(' ').nth(1).map(str::to_owned);
        status.unwrap_or_default()
    };
    let huge = |line: &str| format!("GET /metrics HTTP/1.1\r\n{}\r\n", line.repeat(200_000));
    let requests: [(&str, &[&str]); _] = [
        ("\r\n\r\n\r\n", &["", "400"]),
        ("GET\r\n\r\n", &["400"]),
        ("GET /metrics HTTP/9.9\r\n\r\n", &["400"]),
        ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", &["400"]),
        (
            "GET /metrics HTTP/1.0\r\nContent-Length: -1\r\n\r\n",
            &["400"],
        ),
        ("\u{0}\u{1}\u{2}\u{3}\r\n\r\n", &["400"]),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\r\n\r\n", &["400"]), // TLS
        (&huge("X: y\r\n"), &["", "431"]),
        (&huge("y"), &["", "400", "431"]),
        (
            &format!("GET /{} HTTP/1.0\r\n\r\n", "x".repeat(100_000)),
            &["", "404", "414", "431"],
        ),
        ("DELETE /metrics HTTP/1.0\r\n\r\n", &["405"]),
        ("GET /nothing/../here HTTP/1.0\r\n\r\n", &["404"]),
        ("HEAD /metrics HTTP/1.0\r\n\r\n", &["200"]),
    ];
    // The exporter waits 10 s for the end of some of them.
    thread::scope(|scope| {
        for (request, allowed) in requests {
            scope.spawn(move || {
                let found = status(request.as_bytes());
                let begin: String = request.chars().take(40).collect();
                assert!(allowed.contains(&found.as_str()), "{begin:?}: {found:?}");
            });
        }
    });
    // A body that was not requested, and that never arrives.
    let mut body = TcpStream::connect(&exporter.address).unwrap();
    let head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nx";
    body.write_all(head).unwrap();
    assert!(told(&exporter).ends_with("# EOF\n"));
}

/// It runs for months, and is asked every few seconds.
#[test]
fn answers_leave_neither_mappings_nor_descriptors() {
    let place = Place::with("fr1", &address(50, 1).to_string());
    let exporter = Exporter::start(&place);
    let process = format!("/proc/{}", exporter.server.id());
    let held = || {
        let maps = fs::read_to_string(format!("{process}/maps")).unwrap();
        let of_place = |line: &&str| line.contains(place.path().to_str().unwrap());
        let descriptors = fs::read_dir(format!("{process}/fd")).unwrap();
        (maps.lines().filter(of_place).count(), descriptors.count())
    };
    let ask = |count: u32| (0..count).for_each(|_| drop(exporter.page()));
    ask(2);
    let (maps, descriptors) = held();
    ask(40);
    let (maps_after, descriptors_after) = held();
    assert_eq!(maps_after, maps);
    // The last connection may be open still.
    assert!(descriptors_after <= descriptors + 1);
}

/// More clients than it serves at a time, none of which sends a whole request: each is cut off, and
/// then the next ones are served.
#[test]
fn slow_clients_do_not_keep_others_out() {
    let place = Place::with("fr1", &address(19, 1).to_string());
    let exporter = Exporter::start(&place);
    let begun = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(&exporter.address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let silent: Vec<_> = (0..20).map(|_| begun(b"")).collect();
    let slow: Vec<_> = (0..20).map(|_| begun(b"GET /metrics HT")).collect();
    // They are idle between two requests.
    let resting: Vec<_> = (0..20)
        .map(|_| begun(b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    assert!(exporter.page().ends_with("# EOF\n"));
    drop((silent, slow, resting));
    assert!(exporter.page().ends_with("# EOF\n"));
}

/// A tree that is no longer updated is worse than none.
#[test]
fn a_watched_tree_is_removed_at_a_signal() {
    let place = Place::with("fr1", &address(20, 1).to_string());
    for (signal, is_there) in [(Signal::SIGTERM, false), (Signal::SIGINT, true)] {
        let tree = place.path().join("tree");
        if is_there {
            fs::create_dir(&tree).unwrap();
        }
        let mut child = place
            .command(format!("sysfs --watch {}", tree.to_str().unwrap()))
            .spawn()
            .unwrap();
        let state = tree.join("class/infiniband/fr1/ports/1/state");
        until("the tree", || state.exists());
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
        // The directory itself is removed if it was created with the tree.
        assert_eq!(tree.exists(), is_there, "{signal}");
        let left = fs::read_dir(&tree).map(Iterator::count);
        assert!(!is_there || left.unwrap() == 0);
    }
    // Without --watch it stays.
    let tree = place.path().join("kept");
    place.good(format!("sysfs {}", tree.to_str().unwrap()));
    assert!(tree.join("class/infiniband/fr1").exists());
}
