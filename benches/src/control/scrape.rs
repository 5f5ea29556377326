//! A scrape of `ferroce serve --metrics`, compared with a server that returns the same bytes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_device::{
    AccessFlags, Buffer, Memory, Mtu, QpAttr, QpInit, QpType, SendOp, SendWr, Sge, WcStatus,
};
use ferroce_registry::Registry;
use ferroce_runtime::{AttachOptions, Device, Endpoint};
use ferroce_wire::Psn;

use super::{Beside, Error, on_cpu};

/// Devices, with a process for each.
pub const DEVICES: u8 = 64;
/// Queue pairs of all devices at least; each device has as many.
pub const QUEUE_PAIRS: u32 = 10_000;

const REQUEST: &[u8] = b"GET /metrics HTTP/1.0\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// What a scrape costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scrape {
    /// Queue pairs of all devices.
    pub queue_pairs: u32,
    /// Length of the answer.
    pub bytes: usize,
    /// From connecting to the last byte, milliseconds; the bare server's is beside it.
    pub wall_ms: Beside,
    /// Processor time of `ferroce serve`, milliseconds.
    pub cpu_ms: f64,
}

/// Many devices in use, and the exporter.
#[derive(Debug)]
pub struct Fleet {
    exporter: Ended,
    address: SocketAddr,
    _holders: Vec<Ended>,
    queue_pairs: u32,
}

/// A process that does not outlive its owner.
#[derive(Debug)]
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Fleet {
    /// Adds the devices and starts their holders, with `directory` as `FERROCE_DIR`: each is `child`
    /// with a device and a number of queue pairs as last arguments, and comes to [`hold`].
    ///
    /// # Errors
    ///
    /// Returns an error if a process cannot be run, or fails.
    pub fn start(
        ferroce: &Path,
        directory: &Path,
        child: impl Fn() -> Command,
    ) -> Result<Self, Error> {
        let there = |mut command: Command| {
            command.env("FERROCE_DIR", directory);
            command.env_remove("FERROCE_DEVICES");
            command
        };
        let each = QUEUE_PAIRS.div_ceil(DEVICES.into()).next_multiple_of(2);
        let mut holders = Vec::new();
        for number in 1..=DEVICES {
            let name = format!("bench{number}");
            let address = Ipv4Addr::new(127, 99, 2, number).to_string();
            let mut add = there(Command::new(ferroce));
            let added = add.args(["dev", "add", &name, &address]).output();
            let added = added.map_err(|error| {
                let path = ferroce.display();
                format!("{path}: {error}; cargo build --release makes it")
            })?;
            if !added.status.success() {
                return Err(String::from_utf8_lossy(&added.stderr).into());
            }
            let mut holder = there(child());
            holder.args([&name, &each.to_string()]);
            // Closed when its owner goes, which ends it.
            holder.stdin(Stdio::piped()).stdout(Stdio::piped());
            holders.push(Ended(holder.spawn()?));
        }
        for holder in &mut holders {
            first_line(holder.0.stdout.take())?;
        }
        let mut exporter = there(Command::new(ferroce));
        exporter.args(["serve", "--metrics", "127.0.0.1:0"]);
        let mut exporter = Ended(exporter.stderr(Stdio::piped()).spawn()?);
        let line = first_line(exporter.0.stderr.take())?;
        let address = line.split('/').find_map(|part| part.parse().ok());
        Ok(Self {
            exporter,
            address: address.ok_or_else(|| format!("no address in {line:?}"))?,
            _holders: holders,
            queue_pairs: each * u32::from(DEVICES),
        })
    }

    /// Medians of this number of scrapes.
    ///
    /// # Errors
    ///
    /// Returns an error if the exporter does not answer.
    pub fn scrape(&self, times: u32) -> Result<Scrape, Error> {
        let answer = get(self.address)?.0;
        let schedstat = PathBuf::from(format!("/proc/{}/schedstat", self.exporter.0.id()));
        let before = on_cpu(&schedstat)?;
        let ferroce = median_ms(self.address, times)?;
        let spent = on_cpu(&schedstat)? - before;
        Ok(Scrape {
            queue_pairs: self.queue_pairs,
            bytes: answer.len(),
            wall_ms: Beside {
                bare: bare(&answer, times)?,
                ferroce,
            },
            cpu_ms: spent.as_secs_f64() * 1e3 / f64::from(times),
        })
    }
}

fn first_line(pipe: Option<impl Read>) -> Result<String, Error> {
    let mut line = String::new();
    let pipe = pipe.ok_or("the pipe is taken")?;
    BufReader::new(pipe).read_line(&mut line)?;
    match line.is_empty() {
        true => Err("a child ended without a word".into()),
        false => Ok(line),
    }
}

/// A server that knows its answer.
fn bare(answer: &[u8], times: u32) -> Result<f64, Error> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let serve = || -> io::Result<()> {
            for _ in 0..times {
                let (mut stream, _) = listener.accept()?;
                stream.read_exact(&mut [0; REQUEST.len()])?;
                stream.write_all(answer)?;
            }
            Ok(())
        };
        let server = scope.spawn(serve);
        let median = median_ms(address, times);
        server.join().map_err(|_| "the bare server panicked")??;
        median
    })
}

fn median_ms(address: SocketAddr, times: u32) -> Result<f64, Error> {
    let took = (0..times).map(|_| Ok(get(address)?.1.as_secs_f64() * 1e3));
    let mut took: Vec<f64> = took.collect::<Result<_, Error>>()?;
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

/// The whole answer, and how long it took.
fn get(address: SocketAddr) -> Result<(Vec<u8>, Duration), Error> {
    let started = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.starts_with(b"HTTP/1.0 200") || answer.starts_with(b"HTTP/1.1 200") {
        true => Ok((answer, started.elapsed())),
        false => Err(String::from_utf8_lossy(&answer).into()),
    }
}

/// A process with queue pairs on a device: connects them with each other by twos, writes once over
/// each, says so on standard output, and keeps them until its standard input ends.
///
/// # Errors
///
/// Returns an error if there is no such device, or anything on it fails.
pub fn hold(name: &str, queue_pairs: u32) -> Result<(), Error> {
    let registry = Registry::open()?;
    let device = Device::attach(&registry, name, AttachOptions::default())?;
    let attr = QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu1024,
        timeout: 18,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    };
    let (cq, mr, ends) = device.with(|hca| -> Result<_, Error> {
        let pd = hca.alloc_pd()?;
        let cq = hca.create_cq(queue_pairs)?;
        let memory = Memory::Buffer(Buffer::zeroed(4096));
        let mr = hca.reg_mr(pd, memory, AccessFlags::all())?;
        let init = QpInit::new(QpType::Rc, pd, cq);
        let qpns: Result<Vec<_>, _> = (0..queue_pairs).map(|_| hca.create_qp(&init)).collect();
        Ok((cq, mr, qpns?))
    })?;
    let end = |place: usize| Endpoint {
        address: device.address().ip(),
        qpn: ends[place],
        psn: Psn::new(1),
    };
    for place in 0..ends.len() {
        device.connect(end(place), end(place ^ 1), &attr)?;
    }
    let write = SendOp::Write {
        va: mr.va,
        rkey: mr.key.rkey(),
        imm: None,
    };
    let sge = Sge {
        addr: mr.va,
        length: 8,
        lkey: mr.key.lkey(),
    };
    let mut done = Vec::new();
    for (place, qpn) in ends.iter().enumerate() {
        device.post_send(*qpn, [SendWr::new(1, write, sge)])?;
        while done.len() <= place {
            if device.wait(cq, 1, &mut done, PATIENCE)? == 0 {
                return Err("a WRITE takes too long".into());
            }
        }
    }
    if let Some(failed) = done.iter().find(|one| one.status != WcStatus::Success) {
        return Err(format!("a WRITE ended with {}", failed.status.name()).into());
    }
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
