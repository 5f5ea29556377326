//! What a run does, as lines of text: what a seed generates, what is played, and what the shrinker shortens.
//!
//! ```text
//! seed 17
//! 0 0 host
//! 0 1 host
//! 0 1 region id=1 len=4096 access=15
//! 0 0 connect qp=1 peer=1 to=1 timeout=10 retry=7
//! 1500 0 write qp=1 len=300 region=1 at=64 flags=2
//! ```
//!
//! Each line is a time in nanoseconds since the start, the number of a host, a verb, and fields, of which those
//! that are 0 are left out. Lines do not depend on each other: one that names an object that does not exist does
//! nothing, so a script remains a script when lines are deleted.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A program for several hosts, and the seed of what their network does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// Seed of the network and of the devices.
    pub seed: u64,
    /// In the order of their times.
    pub lines: Vec<Line>,
}

/// One thing that happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Nanoseconds since the start.
    pub at: u64,
    /// The number of the host, from 0.
    pub host: usize,
    /// What happens.
    pub step: Step,
}

/// Why a text is not a script.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {number}: {reason}")]
pub struct ScriptError {
    /// The line, from 1.
    pub number: usize,
    /// What is wrong with it, and what it should be.
    pub reason: String,
}

/// The verbs: one table for the type, its text and its fields.
macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident $verb:literal { $($(#[$of:meta])* $field:ident),* $(,)? })*) => {
        /// What happens at a host. Fields without a unit are numbers that the script has given to objects.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Step {
            $($(#[$doc])* $name { $($(#[$of])* $field: u64),* }),*
        }

        impl Step {
            /// The names of all verbs.
            pub const VERBS: &[&str] = &[$($verb),*];

            /// Its verb.
            pub fn verb(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $verb),*
                }
            }

            /// Its fields, by name.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                match self {
                    $(Self::$name { $($field),* } => vec![$((stringify!($field), *$field)),*]),*
                }
            }

            /// What has this verb and these fields; fields that are taken leave `fields`.
            fn read(verb: &str, fields: &mut Vec<(String, u64)>) -> Option<Self> {
                let mut take = |name: &str| {
                    let at = fields.iter().position(|(it, _)| it == name);
                    at.map_or(0, |at| fields.swap_remove(at).1)
                };
                match verb {
                    $($verb => Some(Self::$name { $($field: take(stringify!($field))),* }),)*
                    _ => None,
                }
            }
        }
    };
}

steps! {
    /// The host exists, with a device.
    Host "host" {
        /// 0 for a device on sockets, otherwise the rate of a card's port in Mb/s.
        mbps,
        /// Bits: 1 selective repeat, 2 adaptive routing, 4 slow restart, 8 coarse timers, 16 half
        /// handshakes of DC, 32 without adaptive retransmission.
        options,
        /// Bytes that a queue pair keeps in flight at most; 0 for what is usual.
        window,
        /// 0 for one link, 1 for two ports, 2 for a bond of two.
        links,
    }
    /// Registers memory.
    Region "region" {
        /// Its number.
        id,
        /// Bytes.
        len,
        /// Bits of `ibv_access_flags`.
        access,
        /// The protection domain, 0 or 1.
        pd,
    }
    /// Deregisters memory.
    Deregister "deregister" {
        /// The region.
        id,
    }
    /// Changes the permissions and the protection domain of a region.
    Reregister "reregister" {
        /// The region.
        id,
        /// Bits of `ibv_access_flags`.
        access,
        /// The protection domain, 0 or 1.
        pd,
    }
    /// Creates a queue pair.
    Qp "qp" {
        /// Its number.
        id,
        /// The value of `ibv_qp_type`: 3 UC, 4 UD, 9 XRC_SEND, 10 XRC_RECV; 256 a DCI, 257 a DCT, whose access key is
        /// its number; 0 RC.
        kind,
        /// The protection domain, 0 or 1.
        pd,
        /// Its shared receive queue, from 1; 0 for none.
        srq,
        /// Outstanding send requests.
        sends,
        /// Outstanding receive requests.
        receives,
        /// The completion queue of its send queue; 0 for a large one.
        send_cq,
        /// The completion queue of its receive queue; 0 for a large one.
        recv_cq,
        /// 2 for the second port of a card that has two.
        port,
    }
    /// Creates a completion queue.
    Cq "cq" {
        /// Its number, from 1.
        id,
        /// Completions that it holds.
        size,
    }
    /// Changes the size of a completion queue.
    ResizeCq "resize-cq" {
        /// The queue.
        cq,
        /// Completions that it holds.
        size,
    }
    /// The program polls no completion queue for a while.
    Idle "idle" {
        /// Nanoseconds.
        ns,
    }
    /// Creates a shared receive queue.
    Srq "srq" {
        /// Its number, from 1.
        id,
        /// Requests that it holds.
        size,
        /// The protection domain, 0 or 1.
        pd,
        /// Its XRC domain, 1 or 2; 0 for none. XRC_RECV queue pairs are of domain 1.
        xrc,
    }
    /// Posts a receive request to a shared receive queue.
    SrqRecv "srq-recv" {
        /// The queue.
        srq,
        /// Bytes.
        len,
        /// 1 for an invalid key.
        lkey,
    }
    /// Brings this host's queue pair and that of another host to RTS, towards each other.
    Connect "connect" {
        /// This host's queue pair.
        qp,
        /// The other host.
        peer,
        /// The other host's queue pair.
        to,
        /// Exponent of the path MTU, as in `ibv_mtu`.
        mtu,
        /// `timeout`.
        timeout,
        /// `retry_cnt`.
        retry,
        /// `rnr_retry`.
        rnr,
        /// `max_rd_atomic`, and `max_dest_rd_atomic` if `owed` is 0.
        atomics,
        /// `max_dest_rd_atomic`, if it is another number.
        owed,
        /// Code of `min_rnr_timer`; 0 for 1, which is 10 µs.
        rnr_timer,
        /// What each side permits: bits of `ibv_access_flags`.
        access,
        /// The first PSN of this side; the other one's is drawn from it.
        psn,
    }
    /// Brings a DCI to RTS, or a DCT to RTR, where it stays.
    DcReady "dc-ready" {
        /// The queue pair.
        qp,
        /// `timeout`.
        timeout,
        /// `retry_cnt`.
        retry,
        /// `rnr_retry`.
        rnr,
        /// `max_rd_atomic`.
        atomics,
        /// What a DCT permits: bits of `ibv_access_flags`.
        access,
        /// The first PSN of a DCI.
        psn,
    }
    /// Opens an XRC_RECV queue pair once more: it must be destroyed as often.
    Open "open" {
        /// The queue pair.
        qp,
    }
    /// The connection manager listens on a service.
    Listen "listen" {
        /// The service, from 0.
        service,
        /// Requests that may wait for the program.
        backlog,
    }
    /// It listens no more.
    Unlisten "unlisten" {
        /// The service.
        service,
    }
    /// Asks another host for a connection, by way of the connection managers.
    Dial "dial" {
        /// This host's queue pair.
        qp,
        /// The other host.
        peer,
        /// The other host's queue pair, with which its program accepts.
        to,
        /// The service.
        service,
        /// Exponent of the path MTU, as in `ibv_mtu`.
        mtu,
        /// `timeout`.
        timeout,
        /// `retry_cnt`.
        retry,
        /// `rnr_retry`.
        rnr,
        /// `max_rd_atomic` and `max_dest_rd_atomic`.
        atomics,
        /// What each side permits: bits of `ibv_access_flags`.
        access,
        /// The first PSN that this side receives; the other one's is drawn from it.
        psn,
        /// What the other program does: 0 accepts, 1 refuses, 2 destroys the request, 3 nothing; 4 accepts, and
        /// this host's program refuses that.
        answer,
        /// Nanoseconds that it thinks before.
        think,
        /// How long an answer may take: exponent of 4.096 µs.
        wait,
        /// How many times a message is sent again.
        tries,
    }
    /// Ends the latest connection of a queue pair that was asked for.
    HangUp "hang-up" {
        /// The queue pair.
        qp,
    }
    /// Destroys the identifier of that connection.
    Forget "forget" {
        /// The queue pair.
        qp,
    }
    /// The program does not look at the events of its connections.
    LookAway "look-away" {
        /// Nanoseconds.
        ns,
    }
    /// Brings a UD queue pair to RTS.
    Ready "ready" {
        /// The queue pair.
        qp,
        /// Its Q_Key.
        qkey,
    }
    /// Attaches a UD queue pair to a multicast group.
    Join "join" {
        /// The queue pair.
        qp,
        /// The group, from 0 to 255.
        group,
    }
    /// Detaches a UD queue pair from a multicast group.
    Leave "leave" {
        /// The queue pair.
        qp,
        /// The group, from 0 to 255.
        group,
    }
    /// Posts a SEND of a UD queue pair.
    Datagram "datagram" {
        /// The queue pair.
        qp,
        /// The other host.
        peer,
        /// The other host's queue pair; 0 for all of the multicast group whose number is `peer`.
        to,
        /// Bytes.
        len,
        /// Immediate data; 0 for none.
        imm,
        /// Bits of `ibv_send_flags`.
        flags,
        /// The Q_Key.
        qkey,
        /// 1 for an invalid key.
        lkey,
    }
    /// Posts a receive request.
    Recv "recv" {
        /// The queue pair.
        qp,
        /// Bytes.
        len,
        /// 1 for an invalid key.
        lkey,
    }
    /// Posts a SEND.
    Send "send" {
        /// The queue pair.
        qp,
        /// Bytes.
        len,
        /// Immediate data; 0 for none.
        imm,
        /// Bits of `ibv_send_flags`.
        flags,
        /// 1 for an invalid key.
        lkey,
        /// Of XRC the peer's shared receive queue, of DC the target.
        to,
        /// 1 for a wrong access key of the target.
        key,
    }
    /// Posts a SEND with invalidate.
    SendInvalidate "send-inv" {
        /// The queue pair.
        qp,
        /// Bytes.
        len,
        /// The peer's memory window whose last key is invalidated.
        window,
        /// In place of a window: the peer's region, or none for a key of nothing.
        region,
        /// Bits of `ibv_send_flags`.
        flags,
        /// 1 for an invalid local key.
        lkey,
        /// Of XRC the peer's shared receive queue, of DC the target.
        to,
        /// 1 for a wrong access key of the target.
        key,
    }
    /// Creates a memory window.
    Window "window" {
        /// Its number, from 1.
        id,
        /// Its type, 1 or 2.
        kind,
        /// The protection domain, 0 or 1.
        pd,
    }
    /// Frees a memory window that no request waits for.
    FreeWindow "free-window" {
        /// The window.
        id,
    }
    /// Posts the bind of a memory window.
    Bind "bind" {
        /// The queue pair.
        qp,
        /// The window.
        window,
        /// The region.
        region,
        /// Offset in it, of which a multiple of 8 is taken.
        at,
        /// Bytes.
        len,
        /// What the peer may do: bits of `ibv_access_flags`.
        access,
        /// 1 if the addresses of the peer begin at 0; type 2 only.
        zero,
        /// Bits of `ibv_send_flags`.
        flags,
        /// 1 for the call that binds windows of the other type.
        wrong,
    }
    /// Posts a local invalidation.
    Invalidate "invalidate" {
        /// The queue pair.
        qp,
        /// The window whose last key is invalidated.
        window,
        /// In place of a window: the region, or none for a key of nothing.
        region,
        /// Bits of `ibv_send_flags`.
        flags,
    }
    /// Posts an RDMA WRITE.
    Write "write" {
        /// The queue pair.
        qp,
        /// Bytes.
        len,
        /// The peer's region.
        region,
        /// Offset in it.
        at,
        /// Immediate data; 0 for none.
        imm,
        /// Bits of `ibv_send_flags`.
        flags,
        /// 1 for an invalid key.
        lkey,
        /// Of XRC the peer's shared receive queue, of DC the target.
        to,
        /// 1 for a wrong access key of the target.
        key,
        /// The peer's memory window, in place of a region; offsets are from its start.
        window,
    }
    /// Posts an RDMA READ.
    Read "read" {
        /// The queue pair.
        qp,
        /// Bytes.
        len,
        /// The peer's region.
        region,
        /// Offset in it.
        at,
        /// Bits of `ibv_send_flags`.
        flags,
        /// 1 for an invalid key.
        lkey,
        /// Of XRC the peer's shared receive queue, of DC the target.
        to,
        /// 1 for a wrong access key of the target.
        key,
        /// The peer's memory window, in place of a region; offsets are from its start.
        window,
    }
    /// Posts a fetch and add of 1.
    Add "add" {
        /// The queue pair.
        qp,
        /// The peer's region.
        region,
        /// Offset in it.
        at,
        /// Bits of `ibv_send_flags`.
        flags,
        /// Of XRC the peer's shared receive queue, of DC the target.
        to,
        /// 1 for a wrong access key of the target.
        key,
        /// The peer's memory window, in place of a region; offsets are from its start.
        window,
    }
    /// Posts a compare and swap that replaces what the last one has put there with a value of its own.
    Swap "swap" {
        /// The queue pair.
        qp,
        /// The peer's region.
        region,
        /// Offset in it.
        at,
        /// Bits of `ibv_send_flags`.
        flags,
        /// Of XRC the peer's shared receive queue, of DC the target.
        to,
        /// 1 for a wrong access key of the target.
        key,
        /// The peer's memory window, in place of a region; offsets are from its start.
        window,
    }
    /// Posts a send request that must be refused, or does nothing if nothing is wrong with it.
    Odd "odd" {
        /// The queue pair.
        qp,
        /// The operation: 0 SEND, 1 SEND with invalidate, 2 WRITE, 3 READ, 4 compare and swap, 5 fetch and add, 6 bind
        /// of a window that does not exist, 7 local invalidation, 8 one that no program has.
        op,
        /// What is wrong: 1 too many elements, 2 too much inline data, 3 the inline flag without data, 4 inline data
        /// without the flag, 5 an address of another type, 6 more than 2 GiB; 0 nothing, except perhaps the operation or
        /// the state.
        fault,
    }
    /// Posts a receive request that must be refused, or does nothing if nothing is wrong with it.
    OddRecv "odd-recv" {
        /// The queue pair.
        qp,
        /// 1 for too many elements.
        fault,
    }
    /// Moves a queue pair to another state, or tries to.
    Modify "modify" {
        /// The queue pair.
        qp,
        /// The value of `ibv_qp_state`.
        state,
    }
    /// Makes a connection older, if nothing of it is under way.
    Age "age" {
        /// The queue pair that sends.
        qp,
        /// As if this many messages of one packet had been exchanged.
        messages,
    }
    /// Destroys a queue pair.
    Destroy "destroy" {
        /// The queue pair.
        qp,
    }
    /// Changes what the network does to packets of this host. Shares are in millionths.
    Network "network" {
        /// Share of packets that are lost.
        loss,
        /// Share of packets that arrive twice.
        duplicate,
        /// Share of packets that arrive later than others.
        reorder,
        /// Share of packets with a flipped bit.
        corrupt,
        /// Constant delay in nanoseconds.
        delay,
        /// Longest further delay in nanoseconds.
        jitter,
    }
    /// Changes what the device's own impairment does to packets. Shares are in millionths.
    Impair "impair" {
        /// 0 for packets that it sends, 1 for those that it receives.
        direction,
        /// Share of packets that are lost.
        loss,
        /// Share of packets that arrive twice.
        duplicate,
        /// Share of packets that are held back.
        reorder,
        /// Share of packets with a flipped bit.
        corrupt,
        /// Share of packets that are marked as having met congestion.
        mark,
        /// Longest random delay in nanoseconds.
        jitter,
        /// Rate of a bottleneck in Mb/s; 0 for none.
        mbps,
        /// Nanoseconds of a blackout that begins now.
        dark,
        /// 1 if the port is down during the blackout.
        carrier,
    }
    /// A link of the host goes down.
    Port "port" {
        /// Nanoseconds until it comes up again.
        ns,
        /// 2 for the second.
        link,
    }
    /// Chooses the link of a bond for a queue pair.
    Lag "lag" {
        /// The queue pair.
        qp,
        /// The link, from 1.
        link,
    }
    /// Writes ROCE_ACCL.
    Register "register" {
        /// Which field: 1 adaptive retransmission, 2 the least timeout, 3 selective repeat, 4 adaptive routing,
        /// 5 slow restart after a pause, 6 after a loss, 7 transmission windows.
        field,
        /// On or off.
        value,
    }
    /// Writes a profile.
    Profile "profile" {
        /// The profile is made from this number.
        seed,
    }
    /// Resets registers, or the firmware.
    Reset "reset" {
        /// 0 for all registers, 1 for the firmware.
        firmware,
    }
    /// Sets a rule of `ferroce fault`.
    Fault "fault" {
        /// Its number; an earlier one of this number is withdrawn.
        id,
        /// What it is about: 0 post_send, 1 post_recv, 2 modify_qp, 3 reg_mr, 4 create_qp, 5 completion.
        target,
        /// What happens: 0 an error, 1 the queue pair goes to ERR before, or another error.
        effect,
        /// Only to the one with this number.
        nth,
        /// To each with a number that is divisible by this one.
        every,
        /// With this probability.
        percent,
        /// Of the probability.
        seed,
        /// Only on this queue pair, if there is one.
        qp,
    }
    /// Withdraws a rule.
    Unfault "unfault" {
        /// The rule.
        id,
    }
    /// The process of the host is killed: its device is gone. It may start again later.
    Kill "kill" {}
    /// The process of the host is stopped.
    Stop "stop" {
        /// Nanoseconds.
        ns,
    }
    /// All clocks jump ahead.
    Jump "jump" {
        /// Nanoseconds.
        ns,
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.at, self.host, self.step.verb())?;
        for (name, value) in self.step.fields() {
            if value != 0 {
                write!(f, " {name}={value}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    /// Reads a script; lines that are empty or begin with `#` do not count.
    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let failed = |reason| ScriptError { number, reason };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix("seed ") {
                Some(seed) => script.seed = read_number(seed).map_err(failed)?,
                None => script.lines.push(read_line(line).map_err(failed)?),
            }
        }
        script.lines.sort_by_key(|line| line.at);
        Ok(script)
    }
}

fn read_line(line: &str) -> Result<Line, String> {
    let mut words = line.split_whitespace();
    let (Some(at), Some(host), Some(verb)) = (words.next(), words.next(), words.next()) else {
        return Err("missing words: write TIME HOST VERB FIELD=NUMBER...".to_owned());
    };
    let mut fields = words.map(read_field).collect::<Result<Vec<_>, _>>()?;
    let step = Step::read(verb, &mut fields).ok_or_else(|| {
        let verbs = Step::VERBS.join(", ");
        format!("unknown verb {verb:?}; expected one of {verbs}")
    })?;
    if let Some((name, _)) = fields.first() {
        let known: Vec<_> = step.fields().iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        return Err(format!(
            "unknown field {name:?} of {verb}; expected one of {known}"
        ));
    }
    let host = usize::try_from(read_number(host)?).unwrap_or(usize::MAX);
    if host >= HOSTS_MAX {
        return Err(format!(
            "invalid host {host}: must be less than {HOSTS_MAX}"
        ));
    }
    let at = read_number(at)?;
    Ok(Line { at, host, step })
}

/// What rules of `ferroce fault` can be about in a script.
pub(crate) const FAULT_TARGETS: usize = 6;
/// Hosts that a script can have.
pub const HOSTS_MAX: usize = 64;

fn read_field(word: &str) -> Result<(String, u64), String> {
    let (name, value) = word
        .split_once('=')
        .ok_or_else(|| format!("missing value: write {word}=NUMBER"))?;
    Ok((name.to_owned(), read_number(value)?))
}

fn read_number(text: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("invalid number {text:?}: must be decimal, without a sign"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_back_as_it_prints() {
        let text = "seed 7\n0 0 host\n0 1 host mbps=100000\n20 1 write qp=3 len=9 at=4 flags=2\n30 0 kill\n";
        let script: Script = text.parse().unwrap();
        assert_eq!(script.to_string(), text);
        let commented = format!("# why\n\n{text}");
        assert_eq!(commented.parse(), Ok(script));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            (
                "seed x",
                "line 1: invalid number \"x\": must be decimal, without a sign",
            ),
            (
                "0 0",
                "line 1: missing words: write TIME HOST VERB FIELD=NUMBER...",
            ),
            (
                "\n0 64 host",
                "line 2: invalid host 64: must be less than 64",
            ),
            (
                "0 0 kill qp=1",
                "line 1: unknown field \"qp\" of kill; expected one of ",
            ),
            ("0 0 stop ns", "line 1: missing value: write ns=NUMBER"),
        ] {
            assert_eq!(text.parse::<Script>().unwrap_err().to_string(), expected);
        }
        let unknown = "0 0 jumpp".parse::<Script>().unwrap_err().to_string();
        assert!(unknown.starts_with("line 1: unknown verb \"jumpp\"; expected one of host, "));
    }
}
