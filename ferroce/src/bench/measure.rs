//! One measurement.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::{env, thread};

use ferroce_bench::bare::{self, Latency, PingPong, Stream, Throughput};
use ferroce_bench::pair::{self, Carrier, Operation};
use ferroce_bench::programs::{self, Rate, is_installed, messages};
use ferroce_os::Interface;

use super::plan::{Cell, Column, Plan, Row, Unit, Work};
use crate::output::Failure;

/// Where everything is measured.
#[derive(Debug)]
pub(super) struct Bench {
    /// Whether perftest drives the devices.
    is_perftest: bool,
    seconds: f64,
    /// Other programs have a place.
    programs: Option<programs::Bench>,
    /// Why there are no figures of a program.
    absent: BTreeMap<&'static str, String>,
    /// Messages a second in the last round.
    rates: BTreeMap<(&'static str, String), f64>,
}

/// A figure in the unit of its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) value: f64,
    /// The share of its time that a thread waited for a processor, if that is known.
    pub(super) waited: Option<f64>,
}

/// How often a measurement is tried: on a busy machine a thread may have no processor for so long that the
/// other one gives up.
const TRIES: u32 = 3;
/// Round trips before those that are measured.
const WARM_UP_ROUNDS: u32 = 1000;
/// The least that programs are asked for.
const MESSAGES_MIN: u64 = 100;

impl Bench {
    pub(super) fn new(is_perftest: bool, seconds: f64, plan: &Plan) -> Result<Self, Failure> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        if processors < 2 {
            return Err(Failure::broken(
                "a measurement needs two processors, and this process may use only one; see \
                 `taskset -p $$`, or the limits of the container",
            ));
        }
        if !Interface::has_carrier(Ipv4Addr::LOCALHOST.into()) {
            return Err(Failure::broken(
                "the loopback interface is down; type `ip link set lo up`",
            ));
        }
        if is_perftest && !is_installed("ib_write_bw") {
            return Err(Failure::input(
                "--perftest needs perftest, which is not installed (apt install perftest)",
            ));
        }
        let mut absent = BTreeMap::new();
        for (column, program, package) in [
            (Column::Iperf3, "iperf3", "iperf3"),
            (Column::UcxTcp, "ucx_perftest", "ucx-utils"),
        ] {
            let is_wanted = plan.cells.iter().any(|cell| cell.1 == column);
            if is_wanted && !is_installed(program) {
                absent.insert(
                    column.key(),
                    format!("not installed (apt install {package})"),
                );
            }
        }
        let is_other = |column: Column| {
            matches!(column, Column::Iperf3 | Column::UcxTcp) && !absent.contains_key(column.key())
        };
        let needs_programs = is_perftest || plan.cells.iter().any(|cell| is_other(cell.1));
        let programs = match needs_programs.then(Self::place) {
            None => None,
            Some(Ok(place)) => Some(place),
            Some(Err(error)) if is_perftest => return Err(Failure::broken(error)),
            Some(Err(error)) => {
                for column in [Column::Iperf3, Column::UcxTcp].into_iter() {
                    let reason = || format!("not measured: {error}");
                    absent.entry(column.key()).or_insert_with(reason);
                }
                None
            }
        };
        Ok(Self {
            is_perftest,
            seconds,
            programs,
            absent,
            rates: BTreeMap::new(),
        })
    }

    fn place() -> Result<programs::Bench, Box<dyn Error>> {
        Ok(programs::Bench::new(env::current_exe()?)?)
    }

    /// Programs without figures, and why.
    pub(super) fn absent(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let absent = self.absent.iter();
        absent.map(|(program, reason)| (*program, reason.as_str()))
    }

    /// Measures a cell; `None` if its program is not there, or has failed, which is noted.
    pub(super) fn measure(&mut self, cell: Cell) -> Result<Option<Figure>, Failure> {
        let (row, column) = cell;
        if self.absent.contains_key(column.key()) {
            return Ok(None);
        }
        let mut figure = self.figure(cell);
        for _ in 1..TRIES {
            if figure.is_ok() {
                break;
            }
            figure = self.figure(cell);
        }
        match figure {
            Ok(figure) => {
                let rate = row.messages_per_second(figure.value);
                self.rates.insert((column.key(), row.to_string()), rate);
                Ok(Some(figure))
            }
            Err(error) if matches!(column, Column::Iperf3 | Column::UcxTcp) => {
                let reason = format!("not measured: {row}: {error}");
                self.absent.insert(column.key(), reason);
                Ok(None)
            }
            Err(error) => Err(Failure::broken(format_args!(
                "cannot measure {row}, {}: {error}",
                column.title()
            ))),
        }
    }

    fn figure(&self, (row, column): Cell) -> Result<Figure, Box<dyn Error>> {
        let stream = Stream::of_messages(row.bytes, self.seconds);
        let is_latency = row.work == Work::Latency;
        match (column, &self.programs) {
            (Column::BareUdp, _) if is_latency => {
                // As long as the packet of a WRITE of 8 bytes.
                Ok(latency(&bare::ping_pong(&self.ping_pong(64))?))
            }
            (Column::BareUdp, _) => Ok(throughput(row, &bare::stream(&stream)?)),
            (Column::BareRing, _) => {
                Ok(latency(&bare::ring_ping_pong(&self.ping_pong(row.bytes))?))
            }
            (Column::Udp, Some(programs)) if self.is_perftest => {
                self.perftest(programs, "udp", (row, column))
            }
            (Column::Shm, Some(programs)) if self.is_perftest => {
                self.perftest(programs, "shm", (row, column))
            }
            (Column::Udp, _) => self.pair(Carrier::Udp, row, &stream),
            (Column::Shm, _) => self.pair(Carrier::Shm, row, &stream),
            (Column::Iperf3, Some(programs)) => {
                let gbps = programs.iperf3(row.bytes, self.messages((row, column)))?;
                let messages = gbps * 1e9 / 8.0 / row.bytes as f64;
                Ok(rate(row, Rate { gbps, messages }))
            }
            (Column::UcxTcp, Some(programs)) => self.ucx(programs, (row, column)),
            (Column::Iperf3 | Column::UcxTcp, None) => Err("there is no place for it".into()),
        }
    }

    fn pair(&self, carrier: Carrier, row: Row, stream: &Stream) -> Result<Figure, Box<dyn Error>> {
        let operation = match row.work {
            Work::Write => Operation::Write,
            Work::Read => Operation::Read,
            Work::FetchAdd => Operation::FetchAdd,
            Work::Latency => {
                let measured = pair::ping_pong(carrier, &self.ping_pong(row.bytes))?;
                return Ok(latency(&measured));
            }
        };
        Ok(throughput(row, &pair::stream(carrier, operation, stream)?))
    }

    fn perftest(
        &self,
        programs: &programs::Bench,
        link: &str,
        cell: Cell,
    ) -> Result<Figure, Box<dyn Error>> {
        let (row, messages) = (cell.0, self.messages(cell));
        let tool = match row.work {
            Work::Write => "ib_write_bw",
            Work::Read => "ib_read_bw",
            Work::FetchAdd => "ib_atomic_bw",
            Work::Latency => {
                let tool = "ib_write_lat";
                let us = programs.perftest_latency(link, tool, row.bytes, messages)?;
                return Ok(unwatched(us));
            }
        };
        let found = programs.perftest(link, tool, row.bytes, messages)?;
        Ok(rate(row, found))
    }

    fn ucx(&self, programs: &programs::Bench, cell: Cell) -> Result<Figure, Box<dyn Error>> {
        let row = cell.0;
        let test = match row.work {
            Work::Write => "ucp_put_bw",
            Work::Read => "ucp_get",
            Work::FetchAdd => "ucp_fadd",
            Work::Latency => "ucp_put_lat",
        };
        let found = programs.ucx_tcp(test, row.bytes, self.messages(cell))?;
        Ok(match row.work {
            Work::Latency => unwatched(found.latency_us),
            _ => rate(row, found.rate),
        })
    }

    /// Messages for a program that counts them instead of the time: as many as take as long as is asked
    /// for at the rate of the round before. In the first round, a guess.
    fn messages(&self, cell: Cell) -> u64 {
        let (row, column) = cell;
        match self.rates.get(&(column.key(), row.to_string())) {
            Some(rate) => ((rate * self.seconds) as u64).max(MESSAGES_MIN),
            None if row.work == Work::Write => messages(row.bytes, self.seconds),
            None => MESSAGES_MIN,
        }
    }

    fn ping_pong(&self, message_bytes: usize) -> PingPong {
        PingPong {
            message_bytes,
            rounds: u32::MAX,
            warm_up_rounds: WARM_UP_ROUNDS,
            seconds_max: Some(self.seconds),
        }
    }
}

fn latency(measured: &Latency) -> Figure {
    Figure {
        value: measured.p50_ns / 1e3,
        waited: Some(measured.contention),
    }
}

fn throughput(row: Row, measured: &Throughput) -> Figure {
    let rate_of = Rate {
        gbps: measured.gbps,
        messages: measured.messages_per_second,
    };
    Figure {
        waited: Some(measured.contention),
        ..rate(row, rate_of)
    }
}

fn rate(row: Row, rate: Rate) -> Figure {
    unwatched(match row.unit() {
        Unit::MillionPerSecond => rate.messages / 1e6,
        Unit::Gbps | Unit::Us => rate.gbps,
    })
}

fn unwatched(value: f64) -> Figure {
    Figure {
        value,
        waited: None,
    }
}
