//! How long unmodified verbs wait before `IBV_WC_RETRY_EXC_ERR`, and how long they should wait.

use std::path::{Path, PathBuf};

use ferroce_adp::file::Document;
use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{Policy, PolicyKind, QpTimeouts};

use crate::lab::{Lab, Running};

/// `IBV_WC_RETRY_EXC_ERR`.
const RETRY_EXC_ERR: u32 = 12;
/// The vendor syndrome that goes with it.
const RETRY_EXC_VENDOR: u32 = 129;

/// A way in which a device may time out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The same wait every time.
    Ib,
    /// The firmware's own ladder.
    Firmware,
    /// The profile in `profiles/backoff.toml`.
    Profile,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ib, Self::Firmware, Self::Profile];

    /// The name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::Firmware => "firmware",
            Self::Profile => "backoff",
        }
    }

    fn options(self, lab: &Lab) -> Vec<String> {
        match self {
            Self::Ib | Self::Firmware => vec!["--personality".into(), self.name().into()],
            Self::Profile => {
                let copy = lab.path().join("profile.toml");
                std::fs::copy(profile_path(), &copy).expect("own directory");
                vec!["--profile".into(), copy.display().to_string()]
            }
        }
    }

    fn policy(self) -> Policy {
        Policy::new(match self {
            Self::Ib => PolicyKind::IB,
            Self::Firmware => PolicyKind::FIRMWARE,
            Self::Profile => {
                let text = std::fs::read_to_string(profile_path()).expect("a file of ours");
                let document = Document::parse(&text).expect("a profile of ours");
                PolicyKind::Profile(document.profile().expect("a profile of ours"))
            }
        })
    }

    /// The times at which a silent peer may be given up, one for each initial timeout that a queue
    /// pair can draw, in ascending order.
    pub fn predict(self, qp: QpTimeouts) -> Vec<u64> {
        let policy = self.policy();
        let total = |draw| {
            let last = SilentPeer::with_draw(policy, qp, draw).last();
            let last = last.expect("a silent peer has at least one wait");
            assert_eq!(last.event, Event::Error, "{self:?} {qp:?} waits for ever");
            last.at.expect("an error has a time").as_nanos()
        };
        let mut totals: Vec<u64> = (0..policy.draws()).map(total).collect();
        totals.sort_unstable();
        totals.dedup();
        totals
    }
}

/// What one queue pair did.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// What it was set to.
    pub qp: QpTimeouts,
    /// From its first packet to the error.
    pub waited_ns: u64,
    /// The predicted time that is nearest.
    pub predicted_ns: u64,
}

impl Observed {
    /// Whether the error came when predicted: never early, and late by no more than what a busy
    /// machine may add to each of up to eight timers.
    pub fn agrees(&self) -> bool {
        let late = 20_000_000 + self.predicted_ns / 50;
        (self.predicted_ns..=self.predicted_ns + late).contains(&self.waited_ns)
    }
}

/// Lets a queue pair for each setting wait for a silent peer, all at the same time.
///
/// # Panics
///
/// Panics if the program cannot be built or run, or ends with anything but the expected error.
pub fn observe(lab: &Lab, way: Way, settings: &[QpTimeouts]) -> Vec<Observed> {
    lab.exact_timers();
    let program = lab.compile("retry_times");
    let settings: Vec<String> = settings
        .iter()
        .map(|qp| format!("{}:{}", qp.timeout, qp.retry_cnt))
        .collect();
    let options = way.options(lab);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut command = vec![program.to_str().expect("a plain path")];
    command.extend(settings.iter().map(String::as_str));
    let output = Running::success(lab.run_with(&options, &command));
    output.lines().map(|line| parse(way, line)).collect()
}

fn parse(way: Way, line: &str) -> Observed {
    let numbers: Vec<u64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [_qpn, timeout, retry_cnt, status, vendor_err, waited_ns] = numbers[..] else {
        panic!("six numbers expected: {line}");
    };
    let expected = (u64::from(RETRY_EXC_ERR), u64::from(RETRY_EXC_VENDOR));
    assert_eq!((status, vendor_err), expected, "{line}");
    let qp = QpTimeouts {
        timeout: timeout as u8,
        retry_cnt: retry_cnt as u8,
    };
    let nearest = |at: &u64| at.abs_diff(waited_ns);
    let predicted_ns = way.predict(qp).into_iter().min_by_key(nearest);
    Observed {
        qp,
        waited_ns,
        predicted_ns: predicted_ns.expect("at least one draw"),
    }
}

fn profile_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles/backoff.toml")
}
