//! `ferroce serve`: the page's API, its clients, and its limits.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ferroce_device::{QpAttr, QpInit, QpType, SendOp, SendWr, Sge};
use ferroce_runtime::{AttachOptions, Device, Endpoint};
use ferroce_testing::rows;
use ferroce_wire::Psn;
use serde_json::{Value, json};

use crate::common::{Place, address, has};

/// A server for a test, with devices of its own.
struct Server {
    place: Place,
    child: Child,
    at: SocketAddr,
    token: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body.
type Answer = (u16, String);

impl Server {
    /// `test` is a number of this test alone.
    fn new(test: u8, options: &str) -> Self {
        let place = Place::with("web0", &address(test, 1).to_string());
        let args = format!("serve --listen 127.0.0.1:0 {options}");
        let mut child = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let page = lines.find_map(|line| {
            line.unwrap()
                .strip_prefix("page at http://")
                .map(str::to_owned)
        });
        let page = page.unwrap();
        let (at, token) = page.split_once('/').unwrap();
        Self {
            place,
            child,
            at: at.parse().unwrap(),
            token: token.trim_start_matches("#token=").to_owned(),
        }
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// The whole answer to these bytes; empty if the server has closed the connection.
    fn send(&self, request: &[u8]) -> String {
        let mut stream = self.stream();
        // It may have answered and closed the connection before it has read everything.
        let _ = stream.write_all(request);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let host = format!("Host: {}\r\n", self.at);
        let host = if headers.contains("Host:") { "" } else { &host };
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}");
        let text = self.send(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        let headers = format!("{JSON}Authorization: Bearer {}\r\n", self.token);
        self.ask("POST", path, &headers, &body.to_string())
    }

    fn devices(&self) -> Value {
        let (status, text) = self.get("/api/devices");
        assert_eq!(status, 200, "{text}");
        let all: Value = serde_json::from_str(&text).unwrap();
        let mut devices = all["devices"].as_array().unwrap().iter();
        devices.find(|it| it["name"] == "web0").unwrap().clone()
    }
}

const JSON: &str = "Content-Type: application/json\r\n";
const QUESTION: &str = r#"{"text": "time_base = 5"}"#;

#[track_caller]
fn complaint(answer: &Answer) -> String {
    let told: Value = serde_json::from_str(&answer.1).unwrap();
    told["error"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let server = Server::new(21, "");
    let text = server.send(format!("GET / HTTP/1.0\r\nHost: {}\r\n\r\n", server.at).as_bytes());
    let (head, page) = text.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    has(
        &head,
        ["content-security-policy: default-src 'none'; script-src 'self';"],
    );
    assert!(
        head.contains("x-content-type-options: nosniff") && head.contains("frame-ancestors 'none'")
    );
    assert!(!head.contains("access-control"), "{head}");
    let quoted = page.split('"').skip(1).step_by(2);
    let files: Vec<_> = quoted
        .filter(|it| it.ends_with(".js") || it.ends_with(".css"))
        .collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for file in files {
        let (status, text) = server.get(file);
        assert!(status == 200 && !text.is_empty(), "{file}");
        assert!(
            !text.contains("innerHTML") && !text.contains("https://"),
            "{file}"
        );
    }
    assert!(!page.contains("style=") && !page.contains("onclick") && !page.contains("<!-- "));
}

#[test]
fn devices_are_shown_as_they_are() {
    let server = Server::new(22, "");
    let device = server.devices();
    assert_eq!(device["port"]["is_up"], true);
    assert_eq!(device["policy"]["by"], "firmware");
    assert_eq!(
        device["impairment"],
        json!({"egress": "none", "ingress": "none"})
    );
    assert_eq!(device["qps"]["count"], 0);
    assert_eq!(device["counters"]["rdma_tx_packets"], 0);
    server.place.good("impair set web0 loss=1%");
    server.place.good("adp apply link-flap -d web0");
    // The next sample of the devices is due.
    std::thread::sleep(Duration::from_millis(300));
    let device = server.devices();
    assert_eq!(device["impairment"]["egress"], "loss=1%");
    assert!(
        device["policy"]["profile"]
            .as_str()
            .unwrap()
            .starts_with("time_base = 4 ")
    );
    let (_, about) = server.get("/api/about");
    has(&about, ["\"allow_changes\":false"]);
}

/// Each answer has the time of its sample.
#[test]
fn devices_are_sampled_at_most_four_times_a_second() {
    let server = Server::new(38, "");
    let begun = Instant::now();
    let mut looks = Vec::new();
    while looks.len() < 3 {
        let (status, text) = server.get("/api/devices");
        assert_eq!(status, 200, "{text}");
        let all: Value = serde_json::from_str(&text).unwrap();
        looks.push(all["at_ms"].as_u64().unwrap());
        looks.dedup();
        assert!(begun.elapsed() < Duration::from_secs(60), "{looks:?}");
    }
    for pair in looks.windows(2) {
        assert!(pair[1] >= pair[0] + 250, "{looks:?}");
    }
}

/// A page that is opened later shows earlier counts, and errors of programs that have ended.
#[test]
fn past_counts_and_errors_are_shown() {
    let server = Server::new(35, "");
    let history = || {
        let (status, text) = server.get("/api/history");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let before = history()["devices"]["web0"].as_array().map_or(0, Vec::len);
    assert_eq!(server.devices()["errors"], json!({"count": 0, "rows": []}));

    let options = AttachOptions::default();
    let device = Device::attach(&server.place.registry(), "web0", options).unwrap();
    let (cq, qpn) = device.with(|hca| {
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(16).unwrap();
        let init = QpInit::new(QpType::Rc, pd, cq);
        (cq, hca.create_qp(&init).unwrap())
    });
    let psn = Psn::new(0);
    let address = device.address().ip();
    let own = Endpoint { address, qpn, psn };
    device.connect(own, own, &QpAttr::default()).unwrap();
    // Memory that was never registered.
    let sge = Sge {
        addr: 4096,
        length: 8,
        lkey: 1,
    };
    let request = SendWr::new(1, SendOp::Send { imm: None }, sge);
    device.post_send(qpn, [request]).unwrap();
    let mut done = Vec::new();
    let patience = Duration::from_secs(60);
    device.wait(cq, 1, &mut done, patience).unwrap();
    drop(device);

    // The page samples less often than the server keeps samples.
    std::thread::sleep(Duration::from_millis(300));
    let errors = server.devices()["errors"].clone();
    assert_eq!(errors["count"], 1);
    assert_eq!(errors["rows"][0]["name"], "IBV_WC_LOC_PROT_ERR", "{errors}");
    assert_eq!(errors["rows"][0]["qpn"], qpn.value());

    // No page has asked meanwhile.
    let begun = Instant::now();
    let readings = loop {
        let past = history();
        assert_eq!(past["counters"][0], "rdma_tx_bytes");
        let readings = past["devices"]["web0"].as_array().unwrap().clone();
        if readings.len() > before + 1 {
            break readings;
        }
        assert!(begun.elapsed() < patience, "{readings:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let counters = history()["counters"].as_array().unwrap().len();
    assert!(
        readings
            .iter()
            .all(|it| it.as_array().unwrap().len() == 1 + counters)
    );
    let times = readings.iter().map(|it| it[0].as_u64().unwrap());
    assert!(times.is_sorted());
}

#[test]
fn questions_are_answered_as_by_the_commands() {
    let server = Server::new(23, "");
    let (status, text) = server.ask("POST", "/api/design", JSON, QUESTION);
    assert_eq!(status, 200);
    has(
        &text,
        ["qp_total_timeout is missing; add qp_total_timeout = true"],
    );
    let (status, text) = server.get("/api/catalogue");
    assert!(status == 200 && text.contains("link-flap"));
    let refused = server.ask(
        "POST",
        "/api/design",
        JSON,
        r#"{"text": "", "timeout": 32}"#,
    );
    assert_eq!(refused.0, 400);
    let told: Value = serde_json::from_str(&refused.1).unwrap();
    assert_eq!(told["error"]["field"], "timeout");
    assert_eq!(told["error"]["value"], "32");
    assert_eq!(told["error"]["allowed"], "a number from 0 to 31");
    assert!(complaint(&refused).starts_with("invalid timeout 32: must be a number from 0 to 31; "));
}

#[test]
fn nothing_is_changed_unless_it_was_allowed() {
    let server = Server::new(24, "");
    let down = json!({"device": "web0", "state": "down"});
    let refused = server.post("/api/link", &down);
    assert_eq!(refused.0, 403);
    assert!(complaint(&refused).contains("start it with --allow-changes"));
    assert_eq!(server.devices()["port"]["is_up"], true);
}

#[test]
fn changes_need_the_token_that_was_printed() {
    let server = Server::new(25, "--allow-changes");
    let down = json!({"device": "web0", "state": "down"}).to_string();
    for token in [
        "",
        "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n",
    ] {
        let refused = server.ask("POST", "/api/link", &format!("{JSON}{token}"), &down);
        assert_eq!(refused.0, 401);
        assert!(complaint(&refused).contains("open the page with the link"));
    }
    assert_eq!(server.devices()["port"]["is_up"], true);
    assert_eq!(
        server
            .post("/api/link", &serde_json::from_str(&down).unwrap())
            .0,
        200
    );
    assert_eq!(server.devices()["port"]["is_up"], false);
    assert_eq!(
        server
            .post("/api/link", &json!({"device": "web0", "state": "up"}))
            .0,
        200
    );
    assert_eq!(server.devices()["port"]["is_up"], true);
}

#[test]
fn changes_do_what_the_commands_do() {
    let server = Server::new(26, "--allow-changes");
    let spec = json!({"device": "web0", "direction": "both", "impairment": "loss=1%,delay=50us"});
    assert_eq!(server.post("/api/impairment", &spec).0, 200);
    let both = json!({"egress": "loss=1%,delay=50us", "ingress": "loss=1%,delay=50us"});
    assert_eq!(server.devices()["impairment"], both);
    let none = json!({"device": "web0", "direction": "ingress", "impairment": ""});
    assert_eq!(server.post("/api/impairment", &none).0, 200);
    assert_eq!(server.devices()["impairment"]["ingress"], "none");

    let deadly = "time_base = 4\nqp_total_timeout = false\nretx_total_timeout = 10\n\
                  timeout_init_low_bound = 8\n[[timeout_range]]\nrange_low_bound = 8\n\
                  range_size = 6\ntimeout_retry_num = 1\ndec_mode = \"TO_LOW_BOUND\"\n";
    let mut apply = json!({"device": "web0", "text": deadly});
    let refused = server.post("/api/profile", &apply);
    assert_eq!(refused.0, 400);
    let text = complaint(&refused);
    has(&text, ["retx_total_timeout = 10: ", "jobs would die"]);
    assert_eq!(server.devices()["policy"]["profile"], Value::Null);
    apply["force"] = json!(true);
    assert_eq!(server.post("/api/profile", &apply).0, 200);
    let policy = server.devices()["policy"].clone();
    assert!(
        policy["profile"]
            .as_str()
            .unwrap()
            .contains("retx_total_timeout = 10")
    );
    let shown = server.place.good("adp show -d web0");
    assert!(
        shown.ends_with(policy["profile"].as_str().unwrap()),
        "{shown}"
    );
}

#[test]
fn a_bad_change_is_explained() {
    let server = Server::new(27, "--allow-changes");
    let cases = rows(
        r#"
        /api/link => {"device": "web0", "state": "sideways"} => invalid state "sideways": must be up, down
        /api/link => {"device": "web0", "state": "times /etc/passwd"} => invalid state "times
        /api/link => {"device": "web0", "state": "down for 3"} => invalid time for which the port is down
        /api/link => {"device": "web9", "state": "down"} => web9
        /api/link => {"device": 1, "state": "down"} => invalid device 1: must be text
        /api/link => {"device": "web0"} => invalid state null: must be text
        /api/link => {"device": "web0", "status": "down"} => invalid key "status"
        /api/link => ["web0"] => must be a JSON object; its keys are device, state
        /api/impairment => {"device": "web0", "direction": "up", "impairment": ""} => invalid direction "up": must be egress, ingress or both
        /api/impairment => {"device": "web0", "direction": "egress", "impairment": "loss=150%"} => invalid loss "150%": must be a probability
        /api/profile => {"device": "web0", "text": "time_base = 5"} => is missing
        /api/profile => {"device": "../../etc", "text": ""} => no device "../../etc"; available: 
        /api/profile => {"device": "web0", "text": "", "force": 1} => invalid force 1
        "#,
    );
    for [path, body, expected] in cases {
        let body: Value = serde_json::from_str(body).unwrap();
        let answer = server.post(path, &body);
        assert_eq!(answer.0, 400, "{body}: {}", answer.1);
        let text = complaint(&answer);
        has(&text, [expected]);
    }
}

#[test]
fn other_sites_and_other_names_are_refused() {
    let server = Server::new(28, "");
    for host in [
        "evil.example.org",
        "localhost.evil.example.org:9880",
        "192.0.2.1",
    ] {
        for path in ["/", "/api/devices", "/server.js", "/metrics"] {
            let refused = server.ask("GET", path, &format!("Host: {host}\r\n"), "");
            assert_eq!(refused.0, 403, "{host} {path}");
            assert!(complaint(&refused).contains("does not go by that name"));
        }
    }
    let named = server.ask("GET", "/api/devices", "Host: localhost:1\r\n", "");
    assert_eq!(named.0, 200);
    for header in [
        "Origin: http://evil.example.org",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
    ] {
        let header = format!("{header}\r\n");
        assert_eq!(
            server.ask("GET", "/api/devices", &header, "").0,
            403,
            "{header}"
        );
        let with_kind = format!("{JSON}{header}");
        assert_eq!(
            server.ask("POST", "/api/design", &with_kind, QUESTION).0,
            403,
            "{header}"
        );
        // A link on another site's page may lead here.
        if header.starts_with("Sec") {
            assert_eq!(server.ask("GET", "/", &header, "").0, 200);
        }
    }
    let own = format!(
        "{JSON}Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n",
        server.at
    );
    assert_eq!(server.ask("POST", "/api/design", &own, QUESTION).0, 200);
    let (status, _) = server.ask(
        "POST",
        "/api/design",
        "Content-Type: text/plain\r\n",
        QUESTION,
    );
    assert_eq!(status, 415);
}

/// Prometheus uses the address or name in its configuration.
#[test]
fn metrics_are_scraped_by_address_and_by_known_names() {
    let own = Server::new(33, "");
    let known = Server::new(34, "--remote=exporter.example.org");
    let scrape = |server: &Server, host: &str| {
        let host = format!("Host: {host}\r\n");
        server.ask("GET", "/metrics", &host, "").0
    };
    for host in ["127.0.0.1:9880", "localhost:9880", "[::1]"] {
        assert_eq!(
            (scrape(&own, host), scrape(&known, host)),
            (200, 200),
            "{host}"
        );
    }
    let name = "exporter.example.org:9880";
    assert_eq!((scrape(&own, name), scrape(&known, name)), (403, 200));
}

#[test]
fn paths_and_methods_are_what_they_are() {
    let server = Server::new(29, "");
    for path in [
        "/api",
        "/api/",
        "/../etc/passwd",
        "/page/index.html",
        "/%2e%2e",
        "//",
    ] {
        assert_eq!(server.get(path).0, 404, "{path}");
    }
    for (method, path, allowed) in [
        ("POST", "/", "GET, HEAD"),
        ("PUT", "/api/devices", "GET, HEAD"),
        ("OPTIONS", "/api/design", "POST"),
        ("GET", "/api/design", "POST"),
        ("DELETE", "/metrics", "GET, HEAD"),
    ] {
        let (status, text) = server.ask(method, path, "", "");
        assert!(
            status == 405 && text.contains(allowed),
            "{method} {path}: {text}"
        );
    }
    assert_eq!(server.ask("HEAD", "/", "", "").0, 200);
    assert_eq!(server.get("/?anything").0, 200);
}

#[test]
fn a_body_has_a_bound() {
    let server = Server::new(30, "");
    let large = json!({"text": "#".repeat(300 << 10)}).to_string();
    let refused = server.ask("POST", "/api/design", JSON, &large);
    assert_eq!(refused.0, 413);
    assert!(complaint(&refused).contains("larger than 262144 bytes"));
    // A body without a length, which does not end.
    let head = format!(
        "POST /api/design HTTP/1.1\r\nHost: {}\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n",
        server.at
    );
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let text = server.send((head + &chunk.repeat(20)).as_bytes());
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    // And one that fits.
    let fits = json!({"text": "#".repeat(200 << 10)}).to_string();
    assert_eq!(server.ask("POST", "/api/design", JSON, &fits).0, 200);
}

/// Ten seconds for a header, and ten for a body.
#[test]
fn an_incomplete_request_times_out() {
    let server = Server::new(39, "");
    let host = format!("Host: {}\r\n{JSON}", server.at);
    let heads = [
        format!("POST /api/design HTTP/1.1\r\n{host}"),
        format!("POST /api/design HTTP/1.1\r\n{host}Content-Length: 99\r\n\r\n{{"),
    ];
    let begun = Instant::now();
    let streams = heads.map(|head| {
        let mut stream = server.stream();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
    let [head, body] = streams.map(|mut stream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(10), "{text}");
        text
    });
    assert_eq!(head, "");
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
}

#[test]
fn bad_requests_end_the_connection_not_the_server() {
    let server = Server::new(31, "");
    let host = format!("Host: {}\r\n{JSON}", server.at);
    let requests = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        vec![0; 100_000],
        format!("GET /{} HTTP/1.1\r\n{host}\r\n", "a".repeat(1 << 20)).into_bytes(),
        format!("GET / HTTP/1.1\r\n{host}{}\r\n", "X: y\r\n".repeat(10_000)).into_bytes(),
        format!("POST /api/design HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n").into_bytes(),
        format!("POST /api/design HTTP/1.1\r\n{host}Content-Length: 99\r\n\r\n{{").into_bytes(),
    ];
    for request in requests {
        let mut stream = server.stream();
        let _ = stream.write_all(&request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    let mut body =
        format!("POST /api/design HTTP/1.0\r\n{host}Content-Length: 2\r\n\r\n").into_bytes();
    body.extend([0xff, 0xfe]);
    assert!(server.send(&body).contains("byte 0 is not UTF-8"));
    let (status, text) = server.ask("POST", "/api/design", JSON, &"[".repeat(100_000));
    assert!(status == 400 && text.contains("recursion limit"), "{text}");
    assert_eq!(server.get("/api/about").0, 200);
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let server = Server::new(32, "");
    let begun = Instant::now();
    // A connection with a request in progress, before all others.
    let head = format!("POST /api/design HTTP/1.1\r\nHost: {}\r\n{JSON}", server.at);
    let head = format!(
        "{head}Connection: close\r\nContent-Length: {}\r\n\r\n",
        QUESTION.len()
    );
    let mut busy = server.stream();
    busy.write_all(head.as_bytes()).unwrap();
    // Its header is read before the server answers another one.
    assert_eq!(server.get("/api/about").0, 200);
    // The most that are served at a time, and more.
    let mut silent: Vec<_> = (0..40).map(|_| server.stream()).collect();
    let slow: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = server.stream();
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: local");
            stream
        })
        .collect();
    // The oldest of those that are idle make room at once.
    assert_eq!(server.get("/api/about").0, 200);
    let is_closed = |stream: &mut TcpStream| !matches!(stream.read(&mut [0]), Ok(1));
    assert!(silent[..12].iter_mut().all(is_closed));
    busy.write_all(QUESTION.as_bytes()).unwrap();
    let mut text = String::new();
    busy.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    // Their time had not expired.
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop((silent, slow));
}
