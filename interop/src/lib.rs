//! Tests of Ferroce with other projects' programs and libraries.
//!
//! The tests are in `tests/`; this library holds their common parts. They need Debian packages, and
//! name the ones that are missing: a test that cannot run fails, so that it is not taken for one
//! that passed.

pub mod browser;
pub mod captures;
pub mod chart;
pub mod http;
pub mod lab;
pub mod ladders;
pub mod prometheus;
pub mod retry;
pub mod soak;
pub mod tshark;

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;

use ferroce_wire::pcapng::UdpMeta;
use ferroce_wire::{
    Aeth, AtomicEth, BthFlags, CreditCode, DcConnect, Dceth, Deth, ExtensionValues, Headers,
    IcrcFlow, IpPair, Opcode, PKEY_DEFAULT, Psn, Qpn, Reth, Srqn, Syndrome, cnp,
};

/// Plausible headers for an opcode, with the extensions it carries.
pub fn sample(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Headers {
    if opcode == Opcode::Cnp {
        return cnp::headers(dest_qp, PKEY_DEFAULT);
    }
    let credit = CreditCode::from_credits(100);
    let values = ExtensionValues {
        reth: Reth {
            va: 0x7f12_3456_7000,
            rkey: 0x0012_3400,
            length: 70_000,
        },
        aeth: Aeth {
            syndrome: Syndrome::Ack { credit },
            msn: 0x777,
        },
        atomic: AtomicEth {
            va: 0x7f12_3456_7008,
            rkey: 0x0012_3400,
            swap_or_add: 0x1111_2222_3333_4444,
            compare: 0x5555_6666_7777_8888,
        },
        atomic_ack: 0x9999_aaaa_bbbb_cccc,
        imm: 0xcafe_babe,
        ieth: 0x0012_3400,
        deth: Deth {
            qkey: 0x1111_1111,
            src_qp: Qpn::new(0x4242),
        },
        xrceth: Srqn::new(0x3333),
        dceth: Dceth {
            connection: 1,
            initiator: Qpn::new(0x4242),
        },
        dc_connect: DcConnect {
            key: 0x1234,
            incarnation: 1,
        },
    };
    let mut headers = Headers::with_values(opcode, &values).to(dest_qp, psn);
    headers.flags.set(BthFlags::ACK_REQ, opcode.is_request());
    headers
}

/// Addressing of a flow between two hosts of one family.
///
/// # Panics
///
/// Panics if an address does not parse.
pub fn meta(src: &str, dst: &str) -> UdpMeta {
    let parse = |text: &str| -> SocketAddr { text.parse().expect("address and port") };
    UdpMeta::new(parse(src), parse(dst))
}

/// BTH to ICRC of a packet that travels with `meta`.
///
/// # Panics
///
/// Panics if the addresses differ in family or the headers cannot be written.
pub fn build(headers: Headers, payload: &[u8], meta: &UdpMeta) -> Vec<u8> {
    let ip = IpPair::new(meta.src.ip(), meta.dst.ip()).expect("addresses of one family");
    let flow = IcrcFlow::new(ip, meta.src.port(), meta.dst.port());
    let mut packet = vec![0; payload.len() + 64];
    let len = headers
        .emit_packet(payload, &flow, meta.ip_id, &mut packet)
        .expect("good headers");
    packet.truncate(len);
    packet
}

/// A program of the machine that a test talks to.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Path, or name to look for in `PATH`.
    pub program: &'static str,
    /// What to pass to `apt-get install` if it does not work.
    pub debian_package: &'static str,
}

impl Tool {
    /// Runs the program with `stdin` and returns what it printed.
    ///
    /// # Panics
    ///
    /// Panics if it is missing or fails; the message says what to install.
    pub fn run<S: AsRef<str>>(&self, args: &[S], stdin: &[u8]) -> String {
        let Self {
            program,
            debian_package,
        } = self;
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let hint = format!("is it there? apt-get install {debian_package}");
        let mut child = Command::new(program)
            .args(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {program} ({error}); {hint}"));
        let mut pipe = child.stdin.take().expect("stdin is piped");
        let output = thread::scope(|scope| {
            // A program that does not read breaks the pipe; its exit code says more.
            scope.spawn(move || pipe.write_all(stdin));
            child.wait_with_output()
        });
        let output = output.unwrap_or_else(|error| panic!("lost {program}: {error}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{program} {args:?} failed with {}; {hint}\n{stderr}",
            output.status
        );
        String::from_utf8(output.stdout).expect("output is UTF-8")
    }
}
