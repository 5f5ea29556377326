//! A device whose helper is a process of its own (`--card-process`) serves peers while its program is
//! stopped, and ends with its program.

mod common;

use std::fs;
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Link, Node, Other, PATIENCE, Place, attr, connect_back, hear, impatient_attr, patient_attr,
    role, tell,
};
use ferroce_device::WcStatus;
use ferroce_os::effective_uid;
use ferroce_registry::{LinkSetting, Query, Registry, Resource};
use ferroce_runtime::{AttachOptions, Device};
use ferroce_testing::skip;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

const LEN: usize = 64 << 10;

/// A user without privileges.
const OTHER_USER: libc::uid_t = 65534;

/// What the program does that is stopped.
#[derive(Clone, Copy)]
enum Busy {
    /// It sleeps.
    Not,
    /// It polls.
    Polls,
    /// One of its threads has the device locked almost always.
    Locks,
}

const BUSY: [(&str, Busy); 3] = [
    ("not", Busy::Not),
    ("polls", Busy::Polls),
    ("locks", Busy::Locks),
];

/// The program that is stopped, if this process was started to be it.
fn is_program() -> bool {
    let Some(role) = role() else { return false };
    let registry = Registry::at(role[0].as_ref()).unwrap();
    let options = AttachOptions {
        card_process: role[1] == "card",
        ..AttachOptions::default()
    };
    let node = Node::on(Device::attach(&registry, &role[2], options).unwrap(), LEN);
    connect_back(&node, &patient_attr());
    tell("connected");
    let busy = BUSY.iter().find(|(name, _)| *name == role[3]).unwrap().1;
    if role.get(4).is_some() {
        // SAFETY: takes a number.
        let changed = unsafe { libc::setuid(OTHER_USER) };
        assert_eq!(changed, 0);
        tell("another user's");
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while hear().is_some() {}
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            match busy {
                Busy::Not => thread::sleep(Duration::from_millis(10)),
                Busy::Polls => node.device.progress(),
                Busy::Locks => node.device.with(|_| {
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_millis(1) {}
                }),
            }
        }
    });
    true
}

/// A program whose helper is a process or a thread, connected with a node.
fn start(test: &str, place: &Place, node: &Node, helper: &str, busy: &str) -> (Other, Link) {
    let role = format!("{} {helper} b {busy}", place.path().display());
    let mut program = Other::start(test, &role);
    let attr = match helper {
        "card" => attr(),
        _ => impatient_attr(),
    };
    let link = program.meet(node, &attr);
    (program, link)
}

/// One WRITE and the READ of what it has written.
fn write_and_read(node: &Node, link: &Link, seed: u8) -> Duration {
    node.buffer.write(0, &[seed; 4096]);
    node.buffer.write(4096, &[0; 4096]);
    let began = Instant::now();
    node.post(link.qpn, 1, link.memory.write(), node.sge(0, 4096));
    node.post(link.qpn, 2, link.memory.read(), node.sge(4096, 4096));
    node.succeed(2);
    let took = began.elapsed();
    assert_eq!(node.bytes(4096, 4096), [seed; 4096]);
    took
}

/// The card process of a program.
struct Card(u32);

impl Card {
    fn of(program: &Other) -> Self {
        let program = program.pid().to_string();
        let processes = fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok());
        let children = pids.filter(|pid| parent(*pid).as_ref() == Some(&program));
        let [card] = children.collect::<Vec<_>>()[..] else {
            panic!("more than a card process, or none");
        };
        Self(card)
    }

    fn ends(self) {
        let began = Instant::now();
        while parent(self.0).is_some() {
            assert!(began.elapsed() < PATIENCE, "it is still there");
            thread::yield_now();
        }
    }
}

/// What a parent is told of a child.
#[derive(PartialEq, Eq, Debug)]
enum Change {
    Stopped,
    Continued,
    Ended,
}

/// What this process has not been told of a program yet.
fn changes(program: &Other) -> Vec<Change> {
    let pid = Pid::from_raw(program.pid().cast_signed());
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED;
    let next = || match waitpid(pid, Some(flags)).unwrap() {
        WaitStatus::StillAlive => None,
        WaitStatus::Stopped(..) => Some(Change::Stopped),
        WaitStatus::Continued(_) => Some(Change::Continued),
        _ => Some(Change::Ended),
    };
    iter::from_fn(next).collect()
}

/// The parent of a process; `None` if the process has ended.
fn parent(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, parent) = (fields.next()?, fields.next()?);
    (state != "Z").then(|| parent.to_owned())
}

#[test]
fn a_stopped_program_is_written_to_and_read_from() {
    if is_program() {
        return;
    }
    let test = "a_stopped_program_is_written_to_and_read_from";
    for (number, link) in (0..).zip([LinkSetting::Auto, LinkSetting::Udp]) {
        for (busy, _) in BUSY {
            let place = Place::with_links(86, number, &[link; 2]);
            let node = place.attach("a", LEN);
            let (program, link) = start(test, &place, &node, "card", busy);
            // Each time the program is stopped somewhere else.
            let stopped = |round| {
                write_and_read(&node, &link, round);
                program.stop();
                assert_eq!(changes(&program), [Change::Stopped]);
                let first = write_and_read(&node, &link, 100 + round);
                let second = write_and_read(&node, &link, 200 + round);
                // Also if it had to run on for a moment, it has remained stopped for its parent.
                assert_eq!(changes(&program), []);
                program.resume();
                assert_eq!(changes(&program), [Change::Continued]);
                (first, second)
            };
            let took: Vec<_> = (0..10).map(stopped).collect();
            let (first, second): (Vec<_>, Vec<_>) = took.iter().copied().unzip();
            let fastest = |took: Vec<Duration>| took.into_iter().min().unwrap();
            assert!(fastest(first) < Duration::from_millis(20), "{took:?}");
            assert!(fastest(second) < Duration::from_millis(2), "{took:?}");
            let card = Card::of(&program);
            program.finish();
            card.ends();
        }
    }
}

#[test]
fn without_a_card_process_the_peer_gives_up() {
    if is_program() {
        return;
    }
    let place = Place::with_links(86, 2, &[LinkSetting::Auto; 2]);
    let node = place.attach("a", LEN);
    let test = "without_a_card_process_the_peer_gives_up";
    let (program, link) = start(test, &place, &node, "thread", "not");
    write_and_read(&node, &link, 1);
    program.stop();
    node.post(link.qpn, 3, link.memory.write(), node.sge(0, 4096));
    let completion = node.completion();
    let status = (completion.status, completion.vendor_err);
    assert_eq!(status, (WcStatus::RetryExcErr, 0x81));
    program.resume();
    program.finish();
}

#[test]
fn a_killed_program_takes_its_card_process_along() {
    if is_program() {
        return;
    }
    let test = "a_killed_program_takes_its_card_process_along";
    let place = Place::with_links(86, 3, &[LinkSetting::Auto; 2]);
    let node = place.attach("a", LEN);
    for is_stopped in [false, true] {
        let (mut program, link) = start(test, &place, &node, "card", "polls");
        write_and_read(&node, &link, 1);
        let card = Card::of(&program);
        if is_stopped {
            program.stop();
            write_and_read(&node, &link, 2);
        }
        program.kill();
        card.ends();
    }
}

/// Its process remains the first user's, and the kernel does not tell it of the program's end.
#[test]
fn a_program_may_become_another_user_s() {
    if is_program() {
        return;
    }
    let test = "a_program_may_become_another_user_s";
    if effective_uid() != 0 {
        return skip(test, "only root can be two users");
    }
    let place = Place::with_links(86, 6, &[LinkSetting::Auto; 2]);
    let node = place.attach("a", LEN);
    let (mut program, link) = start(test, &place, &node, "card", "not setuid");
    assert_eq!(program.hear(), "another user's");
    program.stop();
    write_and_read(&node, &link, 1);
    let card = Card::of(&program);
    program.kill();
    card.ends();
}

/// It has the program's memory, which may be left in any state.
#[test]
fn a_program_ends_as_its_card_process_ends() {
    if is_program() {
        return;
    }
    let test = "a_program_ends_as_its_card_process_ends";
    let place = Place::with_links(86, 5, &[LinkSetting::Auto; 2]);
    let node = place.attach("a", LEN);
    for signal in [Signal::SIGKILL, Signal::SIGTRAP] {
        let (program, _) = start(test, &place, &node, "card", "not");
        let card = Pid::from_raw(Card::of(&program).0.cast_signed());
        kill(card, signal).unwrap();
        let ended = waitpid(Pid::from_raw(program.pid().cast_signed()), None);
        let is_so = matches!(ended, Ok(WaitStatus::Signaled(_, by, _)) if by == signal);
        assert!(is_so, "{signal}: {ended:?}");
    }
}

/// It answers queries in the program's name.
#[test]
fn objects_belong_to_the_program() {
    if is_program() {
        return;
    }
    let test = "objects_belong_to_the_program";
    let place = Place::with_links(86, 4, &[LinkSetting::Auto; 2]);
    let node = place.attach("a", LEN);
    let (program, link) = start(test, &place, &node, "card", "not");
    let observer = place.registry().observe("b").unwrap();
    program.stop();
    let slot = (link.peer.qpn.value() >> 16) as u8;
    let shown = observer.query(slot, Query::Qp).unwrap();
    let pids: Vec<_> = shown.iter().filter_map(pid).collect();
    assert_eq!(pids, [program.pid()]);
}

fn pid(resource: &Resource) -> Option<u32> {
    match resource {
        Resource::Qp(qp) => Some(qp.pid),
        _ => None,
    }
}
