//! Bounces SENDs with `ibv_rc_pingpong`, the example program of libibverbs, on any RoCEv2 device:
//! a card, kernel soft-RoCE, or another copy of this program.
//!
//! ```text
//! peer$ ibv_rc_pingpong -g 1                        # listens
//! here$ cargo run --release -p ferroce-runtime --example rc_pingpong -- 10.8.0.1 10.8.0.2
//! ```
//!
//! The first argument is this device's address, the second the peer's; without the second one it
//! listens. Both programs tell each other LID, QPN, PSN and GID as text over TCP.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ferroce_hca::{
    AccessFlags, Buffer, Counter, Direction, Impairment, Memory, Mtu, QpAttr, QpCap, QpInit,
    QpType, RecvWr, SendOp, SendWr, Sge, Sges, WcOpcode, WcStatus,
};
use ferroce_os::{Tap, TapDirection};
use ferroce_runtime::{Device, DeviceConfig, Endpoint};
use ferroce_wire::{Psn, Qpn};

const TCP_PORT: u16 = 18515;
const SIZE: u32 = 4096;
const ITERATIONS: u32 = 1000;
const RECEIVES: u32 = 500;
/// `LLLL:QQQQQQ:PPPPPP:` and 32 digits of GID, with the terminating zero.
const MESSAGE_BYTES: usize = 52;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let own: IpAddr = args
        .next()
        .ok_or("usage: rc_pingpong OWN-ADDRESS [PEER-ADDRESS]")?
        .parse()?;
    let peer: Option<IpAddr> = args.next().map(|text| text.parse()).transpose()?;

    let mut config = DeviceConfig::new(own);
    if let Ok(path) = std::env::var("PCAP") {
        config.tap = Some(Tap::create(path.as_ref(), TapDirection::Both)?);
    }
    let tap = config.tap.clone();
    let device = Device::open(config)?;
    if let Ok(loss) = std::env::var("LOSS") {
        let impairment = Impairment {
            loss: loss.parse()?,
            ..Impairment::default()
        };
        for direction in [Direction::Egress, Direction::Ingress] {
            device.with(|hca| hca.set_impairment(direction, impairment.clone()))?;
        }
    }
    let buffer = Buffer::zeroed(SIZE as usize);
    let (cq, qpn, mr) = device.with(|hca| {
        let pd = hca.alloc_pd()?;
        let cq = hca.create_cq(RECEIVES + 1)?;
        let mr = hca.reg_mr(pd, Memory::Buffer(buffer.clone()), AccessFlags::LOCAL_WRITE)?;
        let cap = QpCap {
            max_recv_wr: RECEIVES,
            ..QpCap::default()
        };
        let init = QpInit {
            cap,
            ..QpInit::new(QpType::Rc, pd, cq)
        };
        Ok::<_, ferroce_hca::VerbsError>((cq, hca.create_qp(&init)?, mr))
    })?;
    let sge = Sge {
        addr: buffer.addr(),
        length: SIZE,
        lkey: mr.key.lkey(),
    };
    let endpoint = Endpoint {
        address: own,
        qpn,
        psn: Psn::new(0x123_456),
    };

    let attr = QpAttr {
        path_mtu: Mtu::Mtu1024,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    };
    let connect = |remote| {
        device.connect(endpoint, remote, &attr)?;
        let receive = RecvWr {
            wr_id: 1,
            sges: Sges::from_slice(&[sge]),
        };
        (0..RECEIVES).try_for_each(|_| device.post_recv(qpn, receive.clone()))
    };
    let remote = match peer {
        Some(address) => call(address, endpoint, connect)?,
        None => answer(endpoint, connect)?,
    };
    println!("local {endpoint:?}\npeer  {remote:?}");

    let send = || device.post_send(qpn, [SendWr::new(2, SendOp::Send { imm: None }, sge)]);
    if peer.is_some() {
        send()?;
    }
    let (mut sent, mut received, mut sending) = (0, 0, peer.is_some());
    let started = Instant::now();
    let mut completions = Vec::new();
    while sent < ITERATIONS || received < ITERATIONS {
        completions.clear();
        device.wait(cq, 16, &mut completions, Duration::from_secs(60))?;
        if completions.is_empty() {
            return Err(
                format!("nothing for a minute, after {sent} sent, {received} received").into(),
            );
        }
        for completion in &completions {
            if completion.status != WcStatus::Success {
                let (name, vendor) = (completion.status.name(), completion.vendor_err);
                return Err(format!("{name}, vendor_err {vendor}").into());
            }
            if completion.opcode == WcOpcode::Recv {
                received += 1;
                device.post_recv(
                    qpn,
                    RecvWr {
                        wr_id: 1,
                        sges: Sges::from_slice(&[sge]),
                    },
                )?;
            } else {
                sent += 1;
                sending = false;
            }
        }
        // The next ball goes out when the last one has come and gone.
        let turn = received + u32::from(peer.is_some()) > sent;
        if turn && !sending && sent < ITERATIONS {
            send()?;
            sending = true;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let bytes = u64::from(SIZE) * u64::from(ITERATIONS) * 2;
    println!(
        "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec",
        bytes as f64 * 8e-6 / seconds
    );
    println!(
        "{ITERATIONS} iters in {seconds:.2} seconds = {:.2} usec/iter",
        seconds * 1e6 / f64::from(ITERATIONS)
    );
    for info in Counter::TABLE {
        let value = device.state().counter(info.counter);
        if value > 0 {
            println!("{:32} {value}", info.name);
        }
    }
    // The last acknowledgement may still be on its way.
    std::thread::sleep(Duration::from_millis(100));
    drop(device);
    tap.map_or(Ok(()), |tap| tap.finish())?;
    Ok(())
}

fn call<E: Error + 'static>(
    address: IpAddr,
    own: Endpoint,
    connect: impl FnOnce(Endpoint) -> Result<(), E>,
) -> Result<Endpoint, Box<dyn Error>> {
    let mut stream = TcpStream::connect((address, TCP_PORT))?;
    stream.write_all(&encode(own))?;
    let remote = decode(&mut stream)?;
    connect(remote)?;
    stream.write_all(b"done\0")?;
    Ok(remote)
}

fn answer<E: Error + 'static>(
    own: Endpoint,
    connect: impl FnOnce(Endpoint) -> Result<(), E>,
) -> Result<Endpoint, Box<dyn Error>> {
    let (mut stream, _) = TcpListener::bind((own.address, TCP_PORT))?.accept()?;
    let remote = decode(&mut stream)?;
    connect(remote)?;
    stream.write_all(&encode(own))?;
    stream.read_exact(&mut [0; 5])?;
    Ok(remote)
}

fn encode(endpoint: Endpoint) -> [u8; MESSAGE_BYTES] {
    let gid = match endpoint.address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let (qpn, psn) = (endpoint.qpn.value(), endpoint.psn.value());
    let text = format!("0000:{qpn:06x}:{psn:06x}:{:032x}\0", gid.to_bits());
    text.as_bytes().try_into().expect("a text of fixed length")
}

fn decode(stream: &mut TcpStream) -> Result<Endpoint, Box<dyn Error>> {
    let mut bytes = [0; MESSAGE_BYTES];
    stream.read_exact(&mut bytes)?;
    let text = std::str::from_utf8(&bytes[..MESSAGE_BYTES - 1])?;
    let [_lid, qpn, psn, gid] = text.split(':').collect::<Vec<_>>()[..] else {
        return Err(format!("the peer sent {text:?}").into());
    };
    let gid = Ipv6Addr::from_bits(u128::from_str_radix(gid, 16)?);
    Ok(Endpoint {
        address: gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4),
        qpn: Qpn::new(u32::from_str_radix(qpn, 16)?),
        psn: Psn::new(u32::from_str_radix(psn, 16)?),
    })
}
