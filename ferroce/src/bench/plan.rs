//! Workloads, what does them, and the goals.

use std::fmt;

use ferroce_bench::ratio::Goal;

use crate::output::Failure;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// A stream of RDMA WRITEs.
    Write,
    /// A stream of RDMA READs.
    Read,
    /// A stream of atomic additions.
    FetchAdd,
    /// WRITEs back and forth, one at a time.
    Latency,
}

/// A row of the table: what is done, with messages of a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) work: Work,
    pub(super) bytes: usize,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const fn row(work: Work, bytes: usize) -> Row {
    Row { work, bytes }
}

const WRITE_8: Row = row(Work::Write, 8);
const WRITE_512: Row = row(Work::Write, 512);
const WRITE_4K: Row = row(Work::Write, 4 * KIB);
const WRITE_16K: Row = row(Work::Write, 16 * KIB);
const WRITE_64K: Row = row(Work::Write, 64 * KIB);
const WRITE_1M: Row = row(Work::Write, MIB);
const READ_8: Row = row(Work::Read, 8);
const READ_1M: Row = row(Work::Read, MIB);
const FETCH_ADD: Row = row(Work::FetchAdd, 8);
const LATENCY_8: Row = row(Work::Latency, 8);
const LATENCY_64K: Row = row(Work::Latency, 64 * KIB);

const ROWS: [Row; 11] = [
    WRITE_8,
    WRITE_512,
    WRITE_4K,
    WRITE_16K,
    WRITE_64K,
    WRITE_1M,
    READ_8,
    READ_1M,
    FETCH_ADD,
    LATENCY_8,
    LATENCY_64K,
];

/// How figures of a row are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// 10^9 bits of payload a second.
    Gbps,
    /// Millions of messages a second.
    MillionPerSecond,
    /// Microseconds one way.
    Us,
}

impl Row {
    pub(super) fn unit(self) -> Unit {
        match self.work {
            Work::Latency => Unit::Us,
            _ if self.bytes == 8 => Unit::MillionPerSecond,
            _ => Unit::Gbps,
        }
    }

    /// Messages, or round trips, of a second at this figure.
    pub(super) fn messages_per_second(self, figure: f64) -> f64 {
        match self.unit() {
            Unit::Gbps => figure * 1e9 / 8.0 / self.bytes as f64,
            Unit::MillionPerSecond => figure * 1e6,
            Unit::Us => 1e6 / (2.0 * figure),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = match self.work {
            Work::Write => "WRITE",
            Work::Read => "READ",
            Work::FetchAdd => "atomic",
            Work::Latency => "latency",
        };
        match self.bytes {
            bytes @ ..KIB => write!(f, "{work} {bytes} B"),
            bytes @ ..MIB => write!(f, "{work} {} KiB", bytes / KIB),
            bytes => write!(f, "{work} {} MiB", bytes / MIB),
        }
    }
}

/// A column of the table: who does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    BareUdp,
    Udp,
    BareRing,
    Shm,
    Iperf3,
    UcxTcp,
}

impl Column {
    pub(super) const ALL: [Self; 6] = [
        Self::BareUdp,
        Self::Udp,
        Self::BareRing,
        Self::Shm,
        Self::Iperf3,
        Self::UcxTcp,
    ];

    /// In tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::BareUdp => "bare UDP",
            Self::Udp => "UDP",
            Self::BareRing => "bare ring",
            Self::Shm => "shm",
            Self::Iperf3 => "iperf3",
            Self::UcxTcp => "UCX TCP",
        }
    }

    /// In JSON.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::BareUdp => "bare_udp",
            Self::Udp => "ferroce_udp",
            Self::BareRing => "bare_ring",
            Self::Shm => "ferroce_shm",
            Self::Iperf3 => "iperf3",
            Self::UcxTcp => "ucx_tcp",
        }
    }

    /// Whether it does the work of a row. Bare programs stream WRITEs and bounce one packet, and TCP has
    /// neither READs nor messages to bounce.
    fn does(self, row: Row) -> bool {
        match self {
            Self::BareUdp => row.work == Work::Write || row == LATENCY_8,
            Self::BareRing => row == LATENCY_8,
            Self::Iperf3 => row.work == Work::Write,
            Self::Udp | Self::Shm | Self::UcxTcp => true,
        }
    }

    /// Whether it shows the limits of the machine.
    pub(super) fn is_bare(self) -> bool {
        matches!(self, Self::BareUdp | Self::BareRing)
    }
}

/// A row and a column.
pub(super) type Cell = (Row, Column);

/// What a figure is to reach beside another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) of: Cell,
    pub(super) beside: Cell,
    pub(super) goal: Goal,
}

const fn at_least(share: f64, row: Row, beside: Cell) -> Target {
    Target {
        of: (row, Column::Udp),
        beside,
        goal: Goal::AtLeast(share),
    }
}

/// The goals of docs/benchmarks.md.
///
/// Messages of 16 KiB are compared with those of 4 KiB: the bare program has the same trouble with
/// them as the device, two buffers for each, and would hide it.
const TARGETS: [Target; 11] = [
    at_least(0.35, WRITE_8, (WRITE_8, Column::BareUdp)),
    at_least(0.35, WRITE_512, (WRITE_512, Column::BareUdp)),
    at_least(0.5, WRITE_4K, (WRITE_4K, Column::BareUdp)),
    at_least(0.5, WRITE_16K, (WRITE_4K, Column::BareUdp)),
    at_least(0.85, WRITE_64K, (WRITE_64K, Column::BareUdp)),
    at_least(0.85, WRITE_1M, (WRITE_1M, Column::BareUdp)),
    at_least(0.2, READ_8, (WRITE_8, Column::BareUdp)),
    at_least(0.9, READ_1M, (WRITE_1M, Column::Udp)),
    at_least(0.2, FETCH_ADD, (WRITE_8, Column::BareUdp)),
    Target {
        of: (LATENCY_8, Column::Udp),
        beside: (LATENCY_8, Column::BareUdp),
        goal: Goal::AtMost(1.6),
    },
    Target {
        of: (LATENCY_8, Column::Shm),
        beside: (LATENCY_8, Column::BareRing),
        goal: Goal::AtMost(3.0),
    },
];

/// What is measured.
#[derive(Debug)]
pub(super) struct Plan {
    /// In the order of a round.
    pub(super) cells: Vec<Cell>,
    pub(super) targets: Vec<Target>,
}

impl Plan {
    /// The rows whose names contain one of these texts, or all rows, and what they are compared with.
    pub(super) fn new(only: &[String]) -> Result<Self, Failure> {
        let is_wanted = |row: Row| {
            let name = row.to_string().to_lowercase();
            only.is_empty() || only.iter().any(|it| name.contains(&it.to_lowercase()))
        };
        let targets = TARGETS.into_iter().filter(|target| is_wanted(target.of.0));
        let targets: Vec<_> = targets.collect();
        let is_beside = |cell: Cell| targets.iter().any(|target| target.beside == cell);
        let all = ROWS
            .into_iter()
            .flat_map(|row| Column::ALL.map(|it| (row, it)));
        let cells = all.filter(|&(row, column)| {
            column.does(row) && (is_wanted(row) || is_beside((row, column)))
        });
        let cells: Vec<_> = cells.collect();
        if cells.is_empty() {
            let names = ROWS.map(|row| row.to_string()).join(", ");
            return Err(Failure::input(format_args!(
                "--only {}: no such workload; there are {names}",
                only.join(" --only ")
            )));
        }
        Ok(Self { cells, targets })
    }

    /// The rows of which something is measured.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        let is_there = |row: &Row| self.cells.iter().any(|(it, _)| it == row);
        ROWS.into_iter().filter(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Plan {
        Plan::new(&[text.to_owned()]).unwrap()
    }

    #[test]
    fn all_workloads_are_measured_and_most_have_goals() {
        let plan = Plan::new(&[]).unwrap();
        assert!(plan.rows().eq(ROWS));
        assert_eq!(plan.targets.len(), TARGETS.len());
        for target in &plan.targets {
            assert!(plan.cells.contains(&target.of), "{target:?}");
            assert!(plan.cells.contains(&target.beside), "{target:?}");
        }
    }

    #[test]
    fn references_of_workloads_are_measured_too() {
        let plan = only("16 kib");
        assert!(plan.rows().eq([WRITE_4K, WRITE_16K]));
        let of_4k = plan.cells.iter().filter(|(row, _)| *row == WRITE_4K);
        assert!(of_4k.eq(&[(WRITE_4K, Column::BareUdp)]));
        assert_eq!(plan.targets.len(), 1);
        assert!(Plan::new(&["9 KiB".to_owned()]).is_err());
    }
}
