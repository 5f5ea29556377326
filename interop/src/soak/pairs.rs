//! The pairs of programs, and what is done to them.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_testing::Dice;

use crate::lab::{Finished, Lab, Ready, Running, free_port, signal};

/// For UCX; others do not read them.
pub(super) const VARIABLES: [(&str, &str); 3] = [
    ("UCX_NET_DEVICES", "fr0:1"),
    ("UCX_IB_GID_INDEX", "1"),
    ("UCX_LOG_LEVEL", "warn"),
];

/// How long a pair may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// A peer of a killed program may wait for it without end, as on a card: a receiver has no timeout.
const LONELY: Duration = Duration::from_secs(5);
/// How long a program is stopped.
const STOPPED: Duration = Duration::from_millis(300);
/// The time from a client's start to what is done to it, at most.
const DONE_WITHIN_MS: u64 = 1_500;

/// How a server says where its client finds it.
#[derive(Clone, Copy)]
enum Listens {
    /// On a TCP port: `-p PORT`, and the client has the address as well.
    Tcp,
    /// On a port of the connection manager, in the same way.
    Cm,
    /// `-s` and `-c` make the server and the client: `-a ADDRESS -p PORT`.
    Roles,
    /// On a TCP port: `-B PORT` and `-P PORT`.
    BackAndPeer,
}

/// Two programs.
struct Pair {
    command: &'static str,
    listens: Listens,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A lost packet is sent again.
    Reliable,
    /// The same, but a program that was stopped does not repeat the call that this interrupts: epoll_wait, signal(7).
    Interruptible,
    /// A lost packet is not sent again: they run where none is lost, and may still wait without end if the machine is
    /// too busy to receive.
    Unreliable,
}

const fn reliable(command: &'static str, listens: Listens) -> Pair {
    Pair {
        command,
        listens,
        kind: Kind::Reliable,
    }
}

const fn unreliable(command: &'static str) -> Pair {
    Pair {
        command,
        listens: Listens::Tcp,
        kind: Kind::Unreliable,
    }
}

/// The first device loses packets, and its port goes down; nothing happens to the second.
const PAIRS: &[Pair] = &[
    reliable("ib_send_bw -d fr0 -F -s 8 -n 5000", Listens::Tcp),
    reliable("ib_send_bw -d fr0 -F -s 1048576 -n 200", Listens::Tcp),
    reliable("ib_send_bw -d fr0 -F -R -n 500", Listens::Cm),
    reliable("ib_send_bw -d fr0 -F --use-srq -q 4 -n 300", Listens::Tcp),
    reliable("ib_send_bw -d fr0 -F -c DC -n 500", Listens::Tcp),
    reliable("ib_write_bw -d fr0 -F -s 65536 -q 8 -n 200", Listens::Tcp),
    reliable("ib_write_bw -d fr0 -F -s 4096 -q 256 -n 20", Listens::Tcp),
    reliable("ib_write_lat -d fr0 -F -s 64 -n 1000", Listens::Tcp),
    reliable("ib_read_bw -d fr0 -F -n 500", Listens::Tcp),
    reliable("ib_read_lat -d fr0 -F -e -n 300", Listens::Tcp),
    reliable("ib_atomic_bw -d fr0 -F -n 1000", Listens::Tcp),
    reliable("ibv_rc_pingpong -d fr0 -g 1 -n 1000 -e -c", Listens::Tcp),
    reliable("ibv_srq_pingpong -d fr0 -g 1 -n 500 -c", Listens::Tcp),
    reliable("ibv_xsrq_pingpong -d fr0 -g 1 -n 500", Listens::Tcp),
    reliable("rping -C 100 -S 65536 -V", Listens::Roles),
    reliable("ucx_perftest -t tag_bw -n 2000 -s 65536", Listens::Tcp),
    Pair {
        command: "fi_pingpong -p verbs -e msg -I 200 -S 4096 -c",
        listens: Listens::BackAndPeer,
        kind: Kind::Interruptible,
    },
    unreliable("ib_send_lat -d fr1 -F -c UD -n 300"),
    unreliable("ib_send_bw -d fr1 -F -c UC -s 1024 -t 16 -n 300"),
    unreliable("ibv_ud_pingpong -d fr1 -g 1 -n 500 -c"),
];

/// How a pair ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// Both succeeded.
    Succeeded,
    /// One was stopped and went on; both succeeded.
    Stopped,
    /// A debugger was attached to one for a while; both succeeded.
    Debugged,
    /// One was killed.
    Killed,
    /// The port was down when one began.
    PortDown,
    /// One succeeded and was gone when the acknowledgement of the other's last message was lost, as on a card.
    Unacknowledged,
    /// They are unreliable, and one waited for a packet that is not sent again.
    GivenUp,
    /// One failed, or took too long.
    Failed,
}

impl End {
    /// In the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Stopped,
        Self::Debugged,
        Self::Killed,
        Self::PortDown,
        Self::Unacknowledged,
        Self::GivenUp,
        Self::Failed,
    ];

    /// The head of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Stopped => "one stopped, succeeded",
            Self::Debugged => "one in gdb, succeeded",
            Self::Killed => "one killed",
            Self::PortDown => "port down",
            Self::Unacknowledged => "last ACK lost",
            Self::GivenUp => "waited in vain",
            Self::Failed => "failed",
        }
    }
}

/// How a pair ended, and what it printed.
pub(super) struct Outcome {
    pub(super) program: String,
    pub(super) end: End,
    /// What the one that failed has printed.
    pub(super) failure: Option<String>,
}

/// What programs print that find no port to work with: perftest, and libfabric's.
const PORT_DOWN: [&str; 2] = ["state is Down", "fi_getinfo"];
/// What a program prints whose last message was not acknowledged.
const NO_ANSWER: &str = "transport retry counter exceeded";

/// Runs a pair.
pub(super) fn run(lab: &Lab, dice: &mut Dice) -> Outcome {
    let pair = &PAIRS[dice.below(PAIRS.len() as u64) as usize];
    let link = dice.pick(&["--link auto", "--link udp"]);
    let fate = dice.below(100);
    let delay = Duration::from_millis(dice.below(DONE_WITHIN_MS));
    let is_first = dice.chance(50);
    let ended = pair.start(lab, link).and_then(|ends| match fate {
        0..12 => Ok(killed(ends, is_first, delay)),
        12..24 if pair.kind != Kind::Interruptible => {
            thread::sleep(delay);
            let pid = ends[usize::from(is_first)].pid().to_string();
            // It may have ended.
            if signal("-STOP", &pid) {
                thread::sleep(STOPPED);
                signal("-CONT", &pid);
            }
            pair.finish(ends, End::Stopped)
        }
        24..30 if pair.kind != Kind::Interruptible => {
            thread::sleep(delay);
            debug(ends[usize::from(is_first)].pid());
            pair.finish(ends, End::Debugged)
        }
        _ => pair.finish(ends, End::Succeeded),
    });
    let (end, failure) = match ended {
        Ok(end) => (end, None),
        Err(printed) if PORT_DOWN.iter().any(|text| printed.contains(text)) => {
            (End::PortDown, None)
        }
        Err(printed) => (End::Failed, Some(printed)),
    };
    Outcome {
        program: pair.command.into(),
        end,
        failure,
    }
}

impl Pair {
    /// Starts both, or says why it cannot.
    fn start(&self, lab: &Lab, link: &str) -> Result<[Running; 2], String> {
        let (port, command, own) = (free_port(), self.command, lab.address());
        let both = format!("{command} -p {port}");
        let (server, client, ready) = match self.listens {
            Listens::Tcp => (both.clone(), format!("{both} 127.0.0.1"), Ready::Tcp(port)),
            Listens::Cm => (both.clone(), format!("{both} {own}"), Ready::Cm(port)),
            Listens::Roles => {
                let both = format!("{both} -a {own}");
                (format!("{both} -s"), format!("{both} -c"), Ready::Cm(port))
            }
            Listens::BackAndPeer => (
                format!("{command} -B {port}"),
                format!("{command} -P {port} 127.0.0.1"),
                Ready::Tcp(port),
            ),
        };
        let mut server = lab.run_with(link, server.as_str());
        let begun = Instant::now();
        while !ready.is_ready(lab) {
            if server.has_ended() || begun.elapsed() > PATIENCE {
                return Err(format!("no {ready:?}: {}", server.abandon()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok([server, lab.run_with(link, client.as_str())])
    }

    /// Waits for both; `well` is what it is called if they succeed. Otherwise returns what they have printed.
    fn finish(&self, mut ends: [Running; 2], well: End) -> Result<End, String> {
        let is_reliable = self.kind != Kind::Unreliable;
        let is_over = wait(&mut ends, if is_reliable { PATIENCE } else { PATIENCE / 4 });
        let both = ends.map(Running::abandon);
        if both.iter().all(|one| one.status.success()) {
            return Ok(well);
        }
        if !is_over && !is_reliable {
            return Ok(End::GivenUp);
        }
        let has_no_answer = |one: &Finished| one.to_string().contains(NO_ANSWER);
        if both.iter().any(|one| one.status.success()) && both.iter().any(has_no_answer) {
            return Ok(End::Unacknowledged);
        }
        let late = if is_over { "" } else { "takes too long: " };
        Err(format!("{late}{} | {}", both[0], both[1]))
    }
}

/// Kills one after a while, and the other if it does not end by itself.
fn killed(ends: [Running; 2], is_first: bool, delay: Duration) -> End {
    thread::sleep(delay);
    let [server, client] = ends;
    let (one, other) = if is_first {
        (server, client)
    } else {
        (client, server)
    };
    one.kill();
    let mut other = [other];
    wait(&mut other, LONELY);
    let [other] = other;
    other.kill();
    End::Killed
}

/// Attaches a debugger to a program for a while, which stops all its threads, and detaches it.
fn debug(pid: u32) {
    let pid = pid.to_string();
    let hold = format!("shell sleep {}", STOPPED.as_secs_f32());
    let commands = ["-ex", "thread apply all backtrace 1", "-ex", &hold];
    // The program may have ended.
    let _ = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &pid])
        .args(commands)
        .output();
}

/// Whether all end within this time.
fn wait(programs: &mut [Running], time: Duration) -> bool {
    let begun = Instant::now();
    while !programs.iter_mut().all(Running::has_ended) {
        if begun.elapsed() > time {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}
