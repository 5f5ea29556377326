//! What other programs can see of a queue pair that congestion control slows down.

use std::io::Read as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ferroce_device::{Data, QpAttr, QpInit, QpType, Received};
use ferroce_os::Clock;
use ferroce_runtime::{AttachOptions, Device, Endpoint};
use ferroce_wire::{PKEY_DEFAULT, Psn, Qpn, cnp};
use serde_json::Value;

use crate::common::{self, Exporter, Place, address, metric};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address at which no device listens.
fn peer() -> IpAddr {
    address(45, 9).into()
}

const OF_FR1: &str = r#"device="fr1",port="1""#;

/// A queue pair whose peer has sent a CNP.
fn congested(device: &Device) -> Qpn {
    let qpn = device.with(|hca| {
        let (pd, cq) = (hca.alloc_pd().unwrap(), hca.create_cq(16).unwrap());
        let init = QpInit::new(QpType::Rc, pd, cq);
        hca.create_qp(&init).unwrap()
    });
    let end = |address, qpn| Endpoint {
        address,
        qpn,
        psn: Psn::new(0),
    };
    let own = end(device.address().ip(), qpn);
    device
        .connect(own, end(peer(), Qpn::new(77)), &QpAttr::default())
        .unwrap();
    device.with(|hca| {
        let received = Received {
            source: peer(),
            dest: device.address().ip(),
            traffic_class: 0,
            sl: 0,
            headers: &cnp::headers(qpn, PKEY_DEFAULT),
            data: Data::Length(0),
            port: 1,
        };
        let now = Clock.now();
        hca.handle_packet(now, &received);
    });
    qpn
}

/// What the exporter reports of queue pairs that are slowed down.
trait Census {
    /// How many of fr1's are, and how many of its processes are silent.
    fn census(&self) -> (f64, f64);
    /// The page once all processes have answered; on a busy machine they are late.
    fn told(&self) -> String;
}

impl Census for Exporter {
    fn census(&self) -> (f64, f64) {
        let page = self.page();
        (limited(&page), silent(&page))
    }

    fn told(&self) -> String {
        let started = Instant::now();
        loop {
            let page = self.page();
            if silent(&page) == 0.0 {
                break page;
            }
            assert!(started.elapsed() < PATIENCE, "{page}");
        }
    }
}

fn limited(page: &str) -> f64 {
    metric(page, &format!("ferroce_cc_limited_queue_pairs{{{OF_FR1}}}"))
}

fn silent(page: &str) -> f64 {
    metric(page, &format!("ferroce_cc_silent_processes{{{OF_FR1}}}"))
}

/// The output of `ferroce cc rates` once all processes have answered.
fn watched(place: &Place, args: &str) -> String {
    watched_in(80, place, args)
}

/// The same on a terminal of this width.
fn watched_in(columns: usize, place: &Place, args: &str) -> String {
    let args = format!("cc rates {args}");
    let mut command = place.command(&args);
    command.env("COLUMNS", columns.to_string());
    let started = Instant::now();
    loop {
        let output = command.output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        if !err.contains("does not answer") {
            assert_eq!(
                (output.status.code(), err.as_str()),
                (Some(0), ""),
                "{args:?}"
            );
            break out;
        }
        assert!(started.elapsed() < PATIENCE, "{err}");
    }
}

/// A place with a device on which the effect of CNPs lasts: they halve 1000 Mb/s, and the rate
/// rises by 1 Mb/s only after a while.
fn place_with_device(test: u8) -> (Place, Device) {
    let place = Place::with("fr1", &address(test, 1).to_string());
    place.good(
        "cc set -d fr1 rate_to_set_on_first_cnp=1000 rpg_time_reset=131071 \
                rpg_ai_rate=1 roce_np/enable/3=0",
    );
    let device = Device::attach(&place.registry(), "fr1", AttachOptions::default()).unwrap();
    (place, device)
}

#[test]
fn a_queue_pair_that_is_slowed_down_is_seen_from_outside() {
    let (place, device) = place_with_device(46);
    let lowest_name = &format!("ferroce_cc_lowest_rate_bytes_per_second{{{OF_FR1}}}");
    let exporter = Exporter::start(&place);
    let page = exporter.page();
    assert_eq!([limited(&page), metric(&page, lowest_name)], [0.0, 12.5e9]);
    let enabled = |priority: u32, point: &str| {
        let rest = format!(r#",priority="{priority}",point="{point}"}}"#);
        metric(&page, &format!("ferroce_cc_enabled{{{OF_FR1}{rest}"))
    };
    assert_eq!(
        [enabled(3, "np"), enabled(3, "rp"), enabled(4, "np")],
        [0.0, 1.0, 1.0]
    );
    let gd = format!(r#"ferroce_cc_parameter{{{OF_FR1},parameter="rpg_gd"}}"#);
    assert_eq!(metric(&page, &gd), 11.0);

    let qpn = congested(&device);
    let seen = watched(&place, "-j fr1");
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let [row] = seen["queue_pairs"].as_array().unwrap().as_slice() else {
        panic!("{seen}");
    };
    assert_eq!((&row["device"], &row["cnps"]), (&"fr1".into(), &1.into()));
    assert_eq!(
        (&row["lqpn"], &row["rqpn"]),
        (&qpn.value().into(), &77.into())
    );
    assert_eq!(row["peer"], peer().to_string());
    let limit = &row["limit"];
    let [rate, target] = ["rate_bps", "target_bps"].map(|key| limit[key].as_u64().unwrap());
    assert!(
        rate >= 499_000_000 && rate <= target && target < 1_200_000_000,
        "{row}"
    );
    let stage = limit["stage"].as_str().unwrap();
    assert!(["recovery", "additive", "hyper"].contains(&stage), "{row}");

    for columns in [80, 120] {
        let table = watched_in(columns, &place, "");
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 2, "{table}");
        assert!(lines.iter().all(|line| line.len() <= columns), "{table}");
        assert!(
            lines[1].starts_with("fr1/1") && lines[1].contains(&peer().to_string()),
            "{table}"
        );
    }
    let table = watched_in(120, &place, "--count 2 --watch 0.01");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(
        lines[3].contains("  1       0  "),
        "one CNP, and none since: {table}"
    );

    let of_3 = "--prio 3";
    let none = |silent: &str| {
        let document = r#"{"schema":"ferroce.cc.watch","version":1,"queue_pairs":[],"silent":"#;
        format!("{document}{silent}}}\n")
    };
    assert_eq!(watched(&place, &format!("-j {of_3}")), none("[]"));
    let nobody = "no queue pair of priority 3 has received a CNP\n";
    assert_eq!(watched(&place, of_3), nobody);

    let page = exporter.told();
    assert_eq!(limited(&page), 1.0);
    let lowest = 8.0 * metric(&page, lowest_name);
    assert!((499e6..1.2e9).contains(&lowest), "{lowest}");
    drop(device);
    // Programs that other tests are starting keep its slot until they run, and do not answer.
    assert_eq!(watched(&place, ""), "no queue pair has received a CNP\n");

    place.good("dev set fr1 speed 25G");
    assert_eq!(metric(&exporter.page(), lowest_name), 3.125e9);
}

#[test]
fn a_process_is_asked_only_if_it_may_have_limited_queue_pairs() {
    let (place, device) = place_with_device(47);
    let exporter = Exporter::start(&place);
    // The device is locked, so nothing answers.
    let unanswered = || device.with(|_| exporter.census());
    assert_eq!(unanswered(), (0.0, 0.0), "no CNP");
    let qpn = congested(&device);
    assert_eq!(limited(&exporter.told()), 1.0);
    device.with(|hca| hca.destroy_qp(qpn)).unwrap();
    assert_eq!(limited(&exporter.told()), 0.0);
    assert_eq!(unanswered(), (0.0, 0.0), "no CNP since");

    congested(&device);
    assert_eq!(unanswered(), (0.0, 1.0));
    let watch = "cc rates -j --count 2 --watch 0.01";
    let watched = device.with(|_| place.command(watch).output().unwrap());
    let [out, err] = [watched.stdout, watched.stderr].map(|it| String::from_utf8(it).unwrap());
    assert_eq!(common::schema::check_output(&out), 2);
    let silent = format!(
        r#""queue_pairs":[],"silent":[{{"device":"fr1","pid":{}}}]"#,
        std::process::id()
    );
    assert_eq!(
        (out.matches(&silent).count(), watched.status.code()),
        (2, Some(0)),
        "{out}"
    );
    let lines: Vec<_> = err.lines().collect();
    assert!(
        lines.len() == 2 && lines.iter().all(|it| it.contains("does not answer")),
        "{err}"
    );
    // On a terminal, a picture replaces the previous one.
    let (mut both, end) = std::io::pipe().unwrap();
    let mut watch = place.command("cc rates");
    watch.stdout(end.try_clone().unwrap()).stderr(end);
    device.with(|_| watch.status().unwrap());
    drop(watch);
    let mut seen = String::new();
    both.read_to_string(&mut seen).unwrap();
    let lines: Vec<_> = seen.lines().collect();
    assert!(
        lines[0] == "no queue pair of a process that answers has received a CNP"
            && lines[1].starts_with("warning: fr1: process"),
        "{seen}"
    );
    // The process answers the old question, and is asked again.
    assert_eq!(limited(&exporter.told()), 1.0);
}
