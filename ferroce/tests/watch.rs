//! What is seen from outside of a queue pair that congestion control slows down.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ferroce_hca::{Data, QpAttr, QpInit, QpType, Received};
use ferroce_udp::wait::Clock;
use ferroce_udp::{AttachOptions, Device, Endpoint, Registry};
use ferroce_wire::{PKEY_DEFAULT, Psn, Qpn, cnp};
use serde_json::Value;
use tempfile::TempDir;

/// Whoever answers for the peer, nobody listens there.
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 34, 1, 9));

const OF_FR1: &str = r#"device="fr1",port="1""#;

/// The registry of this network namespace below `directory`.
fn registry(directory: &Path) -> Registry {
    let net = fs::read_link("/proc/self/ns/net").unwrap();
    let is_digit = |c: &char| c.is_ascii_digit();
    let inode: String = net.to_str().unwrap().chars().filter(is_digit).collect();
    Registry::at(&directory.join(format!("net-{inode}"))).unwrap()
}

struct Place(TempDir);

impl Place {
    fn registry(&self) -> PathBuf {
        self.0.path().join("registry")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command.args(args).env("FERROCE_DIR", self.registry());
        command.env_remove("FERROCE_DEVICES");
        command
    }

    #[track_caller]
    fn good(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        assert_eq!(
            (output.status.code(), err.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
        out
    }
}

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
        .connect(own, end(PEER, Qpn::new(77)), &QpAttr::default())
        .unwrap();
    device.with(|hca| {
        let received = Received {
            source: PEER,
            dest: device.address().ip(),
            traffic_class: 0,
            headers: &cnp::headers(qpn, PKEY_DEFAULT),
            data: Data::Length(0),
        };
        let now = ferroce_hca::Time::from_nanos(Clock.now_ns());
        hca.handle_packet(now, &received);
    });
    qpn
}

struct Exporter {
    server: Child,
    address: String,
}

impl Exporter {
    fn start(place: &Place) -> Self {
        let mut server = place.command(&["serve", "--metrics", "127.34.1.1:0"]);
        let mut server = server.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("metrics at http://").unwrap();
        let address = address.strip_suffix("/metrics").unwrap().to_owned();
        Self { server, address }
    }

    fn page(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// How many queue pairs of fr1 are slowed down, and how many of its processes are silent.
    fn census(&self) -> (f64, f64) {
        let page = self.page();
        let value = |name| metric(&page, &format!("ferroce_cc_{name}{{{OF_FR1}}}"));
        (value("limited_queue_pairs"), value("silent_processes"))
    }

    /// The same once all have told; on a busy machine they are late.
    fn told(&self) -> f64 {
        loop {
            if let (limited, 0.0) = self.census() {
                break limited;
            }
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

#[track_caller]
fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} is missing in\n{page}"))
        .trim()
        .parse()
        .unwrap()
}

/// A place with a device on which CNPs act for long: from 1000 Mb/s they leave half, and it goes up
/// again by 1 Mb/s only after a while.
fn place_with_device(address: &str) -> (Place, Device) {
    let place = Place(tempfile::tempdir().unwrap());
    place.good(&["dev", "add", "fr1", address]);
    place.good(&[
        "cc",
        "set",
        "-d",
        "fr1",
        "rate_to_set_on_first_cnp=1000",
        "rpg_time_reset=131071",
        "rpg_ai_rate=1",
        "roce_np/enable/3=0",
    ]);
    let registry = registry(&place.registry());
    let device = Device::attach(&registry, "fr1", AttachOptions::default()).unwrap();
    (place, device)
}

#[test]
fn a_queue_pair_that_is_slowed_down_is_seen_from_outside() {
    let (place, device) = place_with_device("127.34.1.1");
    let limited = format!("ferroce_cc_limited_queue_pairs{{{OF_FR1}}}");
    let lowest = format!("ferroce_cc_lowest_rate_bytes_per_second{{{OF_FR1}}}");
    let exporter = Exporter::start(&place);
    let page = exporter.page();
    assert_eq!(
        [metric(&page, &limited), metric(&page, &lowest)],
        [0.0, 12.5e9]
    );
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
    let seen = place.good(&["cc", "watch", "-j", "-d", "fr1", "--count", "1"]);
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let [row] = seen.as_array().unwrap().as_slice() else {
        panic!("{seen}");
    };
    assert_eq!((&row["ifname"], &row["cnps"]), (&"fr1".into(), &1.into()));
    assert_eq!(
        (&row["lqpn"], &row["rqpn"]),
        (&qpn.value().into(), &77.into())
    );
    assert_eq!(row["peer"], PEER.to_string());
    let [rate, target] = ["rate-bps", "target-bps"].map(|key| row[key].as_u64().unwrap());
    assert!(
        rate >= 499_000_000 && rate <= target && target < 1_200_000_000,
        "{row}"
    );
    let stage = row["stage"].as_str().unwrap();
    assert!(["recovery", "additive", "hyper"].contains(&stage), "{row}");

    let table = place.good(&["cc", "watch", "--count", "2", "--interval", "0.01"]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(
        lines[1].starts_with("fr1/1") && lines[1].contains(&PEER.to_string()),
        "{table}"
    );
    assert!(
        lines[3].contains("  1       0  "),
        "one CNP, and none since: {table}"
    );

    let of_3 = ["cc", "watch", "-j", "--count", "1", "--prio", "3"];
    assert_eq!(place.good(&of_3), "[]\n");

    let page = exporter.page();
    assert_eq!(metric(&page, &limited), 1.0);
    let lowest = 8.0 * metric(&page, &lowest);
    assert!((499e6..1.2e9).contains(&lowest), "{lowest}");
    drop(device);
    let gone = place.good(&["cc", "watch", "--count", "1"]);
    assert_eq!(gone, "no queue pair has got a CNP\n");
}

#[test]
fn a_process_is_asked_only_if_it_may_have_something_to_tell() {
    let (place, device) = place_with_device("127.36.1.1");
    let exporter = Exporter::start(&place);
    // Nothing answers while the device is in these hands.
    let unanswered = || device.with(|_| exporter.census());
    assert_eq!(unanswered(), (0.0, 0.0), "no CNP");
    let qpn = congested(&device);
    assert_eq!(exporter.told(), 1.0);
    device.with(|hca| hca.destroy_qp(qpn)).unwrap();
    assert_eq!(exporter.told(), 0.0);
    assert_eq!(unanswered(), (0.0, 0.0), "no CNP since");

    congested(&device);
    assert_eq!(unanswered(), (0.0, 1.0));
    let watch = ["cc", "watch", "-j", "--count", "2", "--interval", "0.01"];
    let watched = device.with(|_| place.command(&watch).output().unwrap());
    let [out, err] = [watched.stdout, watched.stderr].map(|it| String::from_utf8(it).unwrap());
    assert_eq!((out.as_str(), watched.status.code()), ("[]\n[]\n", Some(0)));
    let lines: Vec<_> = err.lines().collect();
    assert!(
        lines.len() == 2 && lines.iter().all(|it| it.contains("does not answer")),
        "{err}"
    );
    // It answers what it owes, and is asked again.
    assert_eq!(exporter.told(), 1.0);
}
