//! A device and what can happen to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use crate::{Error, Program, command, document, ferroce};

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// How long [`Device::run`] waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// Devices of this process are at 127.192.x.y to 127.253.x.y.
const FIRST: u32 = 192;
const ADDRESSES: u32 = 62;

/// The devices of this process.
static OWN: Mutex<Own> = Mutex::new(Own {
    count: 0,
    addresses: BTreeSet::new(),
});

struct Own {
    /// How many there were.
    count: u32,
    /// The addresses of those that there are.
    addresses: BTreeSet<Ipv4Addr>,
}

/// A device of this test alone. Dropping it removes it, also from programs that still run.
#[derive(Debug)]
pub struct Device {
    name: String,
    address: Ipv4Addr,
}

impl Device {
    /// Adds a device.
    ///
    /// # Errors
    ///
    /// If `ferroce` cannot be run, or cannot add a device.
    pub fn new() -> Result<Self, Error> {
        Self::with("")
    }

    /// Adds a device with settings of `ferroce dev add`, such as `speed 25G personality.adaptive off`.
    ///
    /// # Errors
    ///
    /// If `ferroce` cannot be run, or refuses the settings.
    pub fn with(settings: &str) -> Result<Self, Error> {
        static LEFTOVERS: Once = Once::new();
        LEFTOVERS.call_once(remove_leftovers);
        let (name, address) = own().take()?;
        // Dropped if it cannot be added.
        let device = Self { name, address };
        let at = address.to_string();
        let settings = settings.split_whitespace();
        let words: Vec<_> = ["dev", "add", &device.name, &at]
            .into_iter()
            .chain(settings)
            .collect();
        command(&words)?;
        Ok(device)
    }

    /// The device's name, as programs see it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, for rdma_cm.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Starts a program that sees this device alone.
    ///
    /// # Errors
    ///
    /// If `ferroce` cannot be run.
    pub fn start<W: AsRef<OsStr>>(
        &self,
        program: impl IntoIterator<Item = W>,
    ) -> Result<Program, Error> {
        self.start_with("", program)
    }

    /// The same with options of `ferroce run`, such as `--fault rdma_connect=EIO`.
    ///
    /// # Errors
    ///
    /// If `ferroce` cannot be run.
    pub fn start_with<W: AsRef<OsStr>>(
        &self,
        options: &str,
        program: impl IntoIterator<Item = W>,
    ) -> Result<Program, Error> {
        let words: Vec<W> = program.into_iter().collect();
        let shown: Vec<_> = words
            .iter()
            .map(|word| word.as_ref().to_string_lossy())
            .collect();
        let mut run = ferroce();
        run.args(["run", "-d", &self.name]);
        run.args(options.split_whitespace()).arg("--").args(&words);
        Program::start(shown.join(" "), &mut run)
    }

    /// Runs a program for up to a minute, and returns what it printed.
    ///
    /// # Errors
    ///
    /// If it cannot be started, fails or takes longer.
    pub fn run<W: AsRef<OsStr>>(
        &self,
        program: impl IntoIterator<Item = W>,
    ) -> Result<String, Error> {
        self.start(program)?.wait(PATIENCE)
    }

    /// Impairs the link, as `ferroce impair set` does: `loss 1% delay 50us`. Replaces what was set.
    ///
    /// # Errors
    ///
    /// If `ferroce` refuses it.
    pub fn impair(&self, what: &str) -> Result<(), Error> {
        self.tell(&["impair", "set"], what)
    }

    /// Ends the impairments.
    ///
    /// # Errors
    ///
    /// If `ferroce` cannot be run.
    pub fn heal(&self) -> Result<(), Error> {
        self.tell(&["impair", "clear"], "")
    }

    /// Takes the port down or up, as `ferroce link set` does: `down`, `up`, `down for 300ms`, `flap 10x
    /// 200ms/2s`.
    ///
    /// # Errors
    ///
    /// If `ferroce` refuses it.
    pub fn link(&self, what: &str) -> Result<(), Error> {
        self.tell(&["link", "set"], what)
    }

    /// Adds a fault rule for programs on this device, such as `post_send=ENOMEM,nth=3`. It is in force until it is
    /// dropped. Rules for calls before a device is chosen belong to one program: [`start_with`](Self::start_with).
    ///
    /// # Errors
    ///
    /// If `ferroce` refuses the rule.
    pub fn fault(&self, rule: &str) -> Result<Fault, Error> {
        let on_device = format!("device={}", self.name);
        let rule = format!("{rule},{on_device}");
        let words = ["fault", "add", &rule];
        let rules = document::<Faults>(&words)?.rules;
        // Other processes may have added theirs meanwhile.
        let ours = |row: &Row| row.rule.split(',').any(|word| word == on_device);
        match rules.into_iter().rfind(ours) {
            Some(row) => Ok(Fault { number: row.number }),
            None => Err(Error::Unknown {
                command: words.join(" "),
            }),
        }
    }

    /// All counters by name, `link_downed` included.
    ///
    /// # Errors
    ///
    /// If `ferroce` cannot be run.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, Error> {
        #[derive(Deserialize)]
        struct Stat {
            devices: [Counted; 1],
        }
        #[derive(Deserialize)]
        struct Counted {
            counters: BTreeMap<String, u64>,
        }
        #[derive(Deserialize)]
        struct Link {
            ports: [Port; 1],
        }
        #[derive(Deserialize)]
        struct Port {
            link_downed: u64,
        }
        let Stat { devices: [device] } = document(&["stat", "show", &self.name])?;
        let Link { ports: [port] } = document(&["link", "show", &self.name])?;
        let mut counters = device.counters;
        counters.insert("link_downed".to_owned(), port.link_downed);
        Ok(counters)
    }

    fn tell(&self, verb: &[&str], what: &str) -> Result<(), Error> {
        let mut words = [verb, &[&self.name]].concat();
        words.extend(what.split_whitespace());
        command(&words).map(drop)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The test's own process may have it open, and what has failed a test may have removed it.
        let _ = command(&["dev", "del", &self.name, "--force"]);
        own().addresses.remove(&self.address);
    }
}

/// A fault rule in force. Dropping it removes it.
#[derive(Debug)]
pub struct Fault {
    number: u64,
}

impl Fault {
    /// How often programs came to what the rule is about.
    ///
    /// # Errors
    ///
    /// If `ferroce` cannot be run, or the rule was cleared.
    pub fn met(&self) -> Result<u64, Error> {
        Ok(self.row()?.met)
    }

    /// How often the fault was injected.
    ///
    /// # Errors
    ///
    /// As [`met`](Self::met).
    pub fn injected(&self) -> Result<u64, Error> {
        Ok(self.row()?.injected)
    }

    fn row(&self) -> Result<Row, Error> {
        let rules = document::<Faults>(&["fault", "list"])?.rules;
        let mut rules = rules.into_iter();
        rules
            .find(|row| row.number == self.number)
            .ok_or(Error::Cleared(self.number))
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        let _ = command(&["fault", "clear", &self.number.to_string()]);
    }
}

#[derive(Deserialize)]
struct Faults {
    rules: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    number: u64,
    rule: String,
    met: u64,
    injected: u64,
}

fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Own {
    /// Takes a name and an address that no other device and no other process has.
    fn take(&mut self) -> Result<(String, Ipv4Addr), Error> {
        let [_, _, high, low] = process::id().to_be_bytes();
        for _ in 0..ADDRESSES {
            self.count += 1;
            let address = Ipv4Addr::new(127, (FIRST + self.count % ADDRESSES) as u8, high, low);
            let is_free =
                !self.addresses.contains(&address) && UdpSocket::bind((address, ROCE_PORT)).is_ok();
            if is_free {
                self.addresses.insert(address);
                return Ok((format!("rs{}_{}", process::id(), self.count), address));
            }
        }
        Err(Error::NoAddress)
    }
}

/// Removes devices of processes that were killed before they could.
fn remove_leftovers() {
    #[derive(Deserialize)]
    struct Dev {
        devices: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        device: String,
    }
    let Ok(Dev { devices }) = document(&["dev", "show"]) else {
        return;
    };
    for Named { device } in devices {
        let owner = device
            .strip_prefix("rs")
            .and_then(|rest| rest.split_once('_'));
        let is_dead =
            |pid: &str| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists();
        if owner.is_some_and(|(pid, _)| is_dead(pid)) {
            // It stays if a program of the dead process still runs.
            let _ = command(&["dev", "del", &device]);
        }
    }
}
