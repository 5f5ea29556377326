//! Patterns in which all hosts send at once.

use ferroce_base::time::{Span, Time};

use super::plan::{MESSAGE_BYTES_MAX, Plan, Sending, distinct, within};
use super::random::Stream;
use super::{Workload, WorkloadError};

/// Several senders to one receiver, each of them `bytes_each`, at the same time.
pub fn incast(
    senders: &[u32],
    receiver: u32,
    bytes_each: u64,
    at: Time,
) -> Result<Workload, WorkloadError> {
    distinct("senders", senders, 1)?;
    if senders.contains(&receiver) {
        return Err(WorkloadError::Field {
            field: "receiver",
            value: receiver.to_string(),
            allowed: "a host that is not one of the senders".into(),
        });
    }
    within("bytes", bytes_each, 1, MESSAGE_BYTES_MAX)?;
    let mut plan = Plan::new("incast", senders.len() as u128, bytes_each, 0)?;
    for &src in senders {
        let dst = receiver;
        plan.send(at_once(src, dst, bytes_each, at), &[]);
    }
    Ok(plan.finish())
}

/// Every host to another one, and each from another one, `bytes_each` at the same time.
///
/// The seed chooses one of those permutations that go through all hosts in one circle.
pub fn permutation(
    hosts: &[u32],
    bytes_each: u64,
    at: Time,
    seed: u64,
) -> Result<Workload, WorkloadError> {
    distinct("hosts", hosts, 2)?;
    within("bytes", bytes_each, 1, MESSAGE_BYTES_MAX)?;
    let mut plan = Plan::new("permutation", hosts.len() as u128, bytes_each, 0)?;
    // Sattolo's shuffle: no host stays in place.
    let mut random = Stream::new(seed);
    let mut receivers = hosts.to_vec();
    for last in (1..receivers.len()).rev() {
        let other = random.below(last as u32) as usize;
        receivers.swap(last, other);
    }
    for (&src, dst) in hosts.iter().zip(receivers) {
        plan.send(at_once(src, dst, bytes_each, at), &[]);
    }
    Ok(plan.finish())
}

fn at_once(src: u32, dst: u32, bytes: u64, at: Time) -> Sending {
    Sending {
        src,
        dst,
        bytes,
        at,
        think: Span::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sends_to_the_receiver() {
        let workload = incast(&[3, 1, 2], 0, 64_000, Time::from_nanos(7)).unwrap();
        let senders: Vec<_> = workload.transfers.iter().map(|it| it.src).collect();
        assert_eq!(senders, [3, 1, 2]);
        for it in &workload.transfers {
            assert_eq!((it.dst, it.bytes, it.at), (0, 64_000, Time::from_nanos(7)));
        }
        let large = incast(&[1], 0, (2 << 30) + 5, Time::ZERO).unwrap();
        let sizes: Vec<_> = large.transfers.iter().map(|it| it.bytes).collect();
        assert_eq!(sizes, [1 << 30, 1 << 30, 5]);
    }

    #[test]
    fn bad_parameters_are_named() {
        let error = |senders: &[u32], bytes| {
            incast(senders, 0, bytes, Time::ZERO)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(&[], 1),
            "invalid senders list of 0: must be 1 to 65536 hosts"
        );
        assert_eq!(
            error(&[1, 2, 1], 1),
            "invalid senders: host 1 is listed twice; list each host once"
        );
        assert_eq!(
            error(&[1, 0], 1),
            "invalid receiver 0: must be a host that is not one of the senders"
        );
        assert_eq!(error(&[1], 0), "invalid bytes 0: must be 1 to 68719476736");
        let error = permutation(&[4], 1, Time::ZERO, 0).unwrap_err().to_string();
        assert_eq!(error, "invalid hosts list of 1: must be 2 to 65536 hosts");
    }

    #[test]
    fn a_permutation_is_one_and_stays_the_same() {
        let hosts: Vec<u32> = (10..26).collect();
        let receivers = |seed| {
            let workload = permutation(&hosts, 1, Time::ZERO, seed).unwrap();
            let all = workload.transfers.iter().map(|it| it.dst);
            all.collect::<Vec<_>>()
        };
        for seed in 0..100 {
            let mut all = receivers(seed);
            assert!(
                all.iter().zip(&hosts).all(|(dst, src)| dst != src),
                "{seed}"
            );
            all.sort_unstable();
            assert_eq!(all, hosts, "{seed}");
        }
        assert_ne!(receivers(1), receivers(2));
        let same = [
            24, 21, 13, 16, 23, 19, 17, 10, 14, 25, 15, 12, 18, 11, 20, 22,
        ];
        assert_eq!(receivers(1), same, "a seed means the same forever");
    }
}
