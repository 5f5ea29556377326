//! Another user of this host forges packets in the name of a device.

mod common;

use std::env;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use common::{
    Node, Other, address, check_all_kinds, connect, hear, nothing_was_lost, patient, patient_attr,
    role, tell,
};
use ferroce_device::Counter;
use ferroce_sockets::{BindError, Options, Socket};
use ferroce_testing::skip;
use ferroce_wire::{
    Aeth, Connection, Headers, IcrcFlow, IpPair, NakCode, PKEY_DEFAULT, Place, Psn, Qpn,
    ROCE_V2_PORT, Reth, Syndrome, cnp,
};

const LEN: usize = 64 << 10;
/// Neither root nor the user that the tests run as.
const STRANGER: &str = "65533";

/// Sends packets that would end the victim's connection, slow it down and change its memory, as if
/// they came from its peer.
fn stranger(role: &[String]) {
    let peer: IpAddr = role[0].parse().unwrap();
    let share = Options {
        share_port: true,
        ..Options::default()
    };
    // Only the user can use the port. Without a second user, the user itself is the attacker.
    if role[1] == "other" {
        let refused = Socket::bind(SocketAddr::new(peer, ROCE_V2_PORT), &share).unwrap_err();
        assert!(
            matches!(refused, BindError::AddressInUse { .. }),
            "{refused}"
        );
    }
    let socket = UdpSocket::bind((peer, 0)).unwrap();
    while let Some(line) = hear() {
        let words: Vec<&str> = line.split(' ').collect();
        let dest = SocketAddr::new(words[0].parse().unwrap(), ROCE_V2_PORT);
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let (qpn, psn) = (Qpn::new(number(1) as u32), Psn::new(number(2) as u32));
        let source = socket.local_addr().unwrap();
        let ip = IpPair::new(source.ip(), dest.ip()).unwrap();
        let flow = IcrcFlow::new(ip, source.port(), dest.port());
        let refusal = Aeth {
            syndrome: Syndrome::Nak(NakCode::RemoteOperational),
            msn: 1,
        };
        let nak = Headers::acknowledge(refusal).to(qpn, psn);
        let reth = Reth {
            va: number(3),
            rkey: number(4) as u32,
            length: 4,
        };
        let write = Headers::write(Connection::Rc, Place::Only, reth, None).to(qpn, psn);
        let mut packet = [0; 256];
        for (headers, payload) in [
            (nak, &[][..]),
            (write, b"evil"),
            (cnp::headers(qpn, PKEY_DEFAULT), &[]),
        ] {
            let len = headers.emit_packet(payload, &flow, 0, &mut packet).unwrap();
            socket.send_to(&packet[..len], dest).unwrap();
        }
        tell("sent");
    }
}

/// A second user on this machine, and how to run as that user.
fn other_user() -> (&'static str, Vec<String>) {
    let user = format!("--reuid={STRANGER}");
    let wrapper = ["setpriv", &user, "--clear-groups", "--"].map(str::to_owned);
    let own = env::current_exe().unwrap();
    let become_it = Command::new(&wrapper[0])
        .args(&wrapper[1..])
        .arg(own)
        .arg("--list")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match become_it.is_ok_and(|status| status.success()) {
        true => ("other", wrapper.to_vec()),
        false => ("same", Vec::new()),
    }
}

#[test]
fn forged_packets_of_another_user_are_dropped() {
    if let Some(role) = role() {
        return stranger(&role);
    }
    let [a, b] = [0, 1].map(|host| Node::with_config(patient(address(64, 0, host)), LEN));
    let qps = connect(&a, &b, &patient_attr());
    check_all_kinds(&a, &b, qps, 20_000, 1);
    let (who, wrapper) = other_user();
    if who == "same" {
        let test = "forged_packets_of_another_user_are_dropped";
        skip(test, "those of another user: only root can be two users");
    }
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let peer = a.device.address().ip();
    let test = "forged_packets_of_another_user_are_dropped";
    let mut child = Other::under(&wrapper, test, &format!("{peer} {who}"));
    let before = b.bytes(0, 4);
    // The next PSN, which an outsider would have to guess.
    let psn = b.device.with(|hca| hca.qp(qps.1).unwrap().expected_psn());
    let (victim, memory) = (b.device.address().ip(), b.remote(0));
    child.tell(format!(
        "{victim} {} {} {} {}",
        qps.1.value(),
        psn.value(),
        memory.va,
        memory.rkey
    ));
    assert_eq!(child.hear(), "sent");
    b.wait_for_count(Counter::RxForeignSource, 3);
    child.finish();
    assert_eq!(b.bytes(0, 4), before);
    assert_eq!(b.count(Counter::RpCnpHandled), 0);
    check_all_kinds(&a, &b, qps, 20_000, 2);
    [a, b].iter().for_each(nothing_was_lost);
}
