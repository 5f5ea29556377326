//! The flow lists of HPCC's simulator.

use ferroce_base::time::{Span, Time};
use ferroce_base::units::Decimal;

use super::plan::{MESSAGE_BYTES_MAX, Plan, Sending};
use super::{TRANSFERS_MAX, Workload};
use crate::text::{ReadError, Words};

/// Picoseconds of a second.
const SECOND: u64 = Span::from_secs(1).as_picos();

impl Workload {
    /// Reads a flow list of HPCC's simulator, which conweave and SimAI read, too.
    ///
    /// The first line has the number of flows, and a line for each follows: sender, receiver, priority
    /// group, destination port, bytes, and the start in seconds. Priority group and port are read and
    /// have no meaning here. What comes after the last flow is not looked at.
    ///
    /// `host` says which host a node of the file is, for example by
    /// [`HpccTopology::host`](crate::topology::HpccTopology::host).
    pub fn from_hpcc(text: &str, host: impl Fn(u32) -> Option<u32>) -> Result<Self, ReadError> {
        let mut words = Words::new(text);
        let flows = words.integer("number of flows", 0, TRANSFERS_MAX)?;
        let mut plan = Plan::begin("flows");
        for _ in 0..flows {
            let sending = flow(&mut words, &host)?;
            let located = |error| ReadError::new(words.line(), error);
            plan.allow(sending.bytes).map_err(located)?;
            plan.send(sending, &[]);
        }
        Ok(plan.finish())
    }
}

fn flow(words: &mut Words<'_>, host: impl Fn(u32) -> Option<u32>) -> Result<Sending, ReadError> {
    let mut end = |what| {
        let number = words.integer(what, 0, u32::MAX)?;
        host(number).ok_or_else(|| {
            let must = "a host of the topology";
            ReadError::invalid(words.line(), what, &number.to_string(), must)
        })
    };
    let (src, dst) = (end("sender")?, end("receiver")?);
    if src == dst {
        let message = "a host sends to itself; choose another sender or receiver";
        return Err(ReadError::new(words.line(), message));
    }
    words.integer("priority group", 0, 7)?;
    words.integer("port", 0, u32::from(u16::MAX))?;
    let bytes = words.integer("number of bytes", 1, MESSAGE_BYTES_MAX)?;
    let start = words.next("a start in seconds")?;
    let number: Option<Decimal> = start.parse().ok();
    let at = number.and_then(|it| it.times(SECOND)).map(Time::from_picos);
    let at = at.filter(|at| *at < Time::NEVER).ok_or_else(|| {
        let must = "a time in seconds, less than 213 days, with at most 12 decimals";
        ReadError::invalid(words.line(), "start", start, must)
    })?;
    Ok(Sending {
        src,
        dst,
        bytes,
        at,
        think: Span::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes 1 to 16 are hosts 0 to 15.
    fn host(node: u32) -> Option<u32> {
        (1..=16).contains(&node).then(|| node - 1)
    }

    #[test]
    fn flows_are_read() {
        let text = "2\n4 6 3 100 11506 0.000022125\n9 12 3 100 3000000000 2\n1 2 3\n";
        let workload = Workload::from_hpcc(text, host).unwrap();
        let first = &workload.transfers[0];
        assert_eq!((first.src, first.dst, first.bytes), (3, 5, 11_506));
        assert_eq!(first.at, Time::from_nanos(22_125));
        assert_eq!(workload.transfers.len(), 4, "3 GB are three transfers");
        assert_eq!(workload.bytes(), 3_000_011_506);
        assert_eq!(
            workload.transfers[3].at,
            Time::ZERO.after(Span::from_secs(2))
        );
    }

    #[test]
    fn mistakes_have_a_line() {
        let error = |text| Workload::from_hpcc(text, host).unwrap_err().to_string();
        assert_eq!(
            error(""),
            "line 1: the file ends where number of flows was expected"
        );
        assert_eq!(
            error("999999999"),
            "line 1: invalid number of flows \"999999999\": must be an integer from 0 to 134217728"
        );
        assert_eq!(
            error("1\n4 17 3 100 1 0"),
            "line 2: invalid receiver \"17\": must be a host of the topology"
        );
        assert_eq!(
            error("1\n4 4 3 100 1 0"),
            "line 2: a host sends to itself; choose another sender or receiver"
        );
        assert_eq!(
            error("1\n4 5 3 100 0 0"),
            "line 2: invalid number of bytes \"0\": must be an integer from 1 to 68719476736"
        );
        assert_eq!(
            error("1\n4 5 3 100 1 -1"),
            "line 2: invalid start \"-1\": must be a time in seconds, less than 213 days, \
             with at most 12 decimals"
        );
        assert_eq!(
            error("2\n4 5 3 100 1 0\n"),
            "line 2: the file ends where sender was expected"
        );
    }
}
