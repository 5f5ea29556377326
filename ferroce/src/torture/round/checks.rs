//! What devices say about programs, and what is left of these.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ferroce_device::Counter;
use ferroce_registry::{Query, Resource};
use ferroce_torture::Finding;
use ferroce_wire::ROCE_V2_PORT;

use super::{Round, device_name, finding};

impl Round {
    /// Each device must have the processes that are there, and each of these what it has made.
    pub(super) fn check_objects(&self) -> Result<(), Finding> {
        for (device, observer) in self.devices.iter().enumerate() {
            let here = self.programs.iter().enumerate();
            let here = here.filter_map(|(place, it)| Some((place, it.as_ref()?)));
            let here: BTreeMap<u32, usize> = here
                .filter(|(_, program)| program.device == device)
                .map(|(place, program)| (program.pid(), place))
                .collect();
            let processes = observer
                .processes()
                .map_err(|error| finding("objects", error.to_string()))?;
            let mut found: Vec<u32> = processes.iter().map(|it| it.pid).collect();
            found.sort_unstable();
            let expected: Vec<u32> = here.keys().copied().collect();
            if found != expected {
                let name = device_name(device);
                let what = format!("processes {found:?} on {name} instead of {expected:?}");
                return Err(finding("objects", what));
            }
            for process in processes {
                let place = here[&process.pid];
                let places = self.pairs.iter().flat_map(|it| it.programs);
                let ends = places.filter(|it| *it == place).count() as u64;
                let rows = observer
                    .query(process.slot, Query::Count)
                    .map_err(|error| finding("objects", error.to_string()))?;
                let counts = rows.iter().find_map(|row| match row {
                    Resource::Count(it) => Some([it.qp, it.mr, it.cq, it.pd, it.qp_states.rts]),
                    _ => None,
                });
                let expected = [ends, ends, 1, 1, ends];
                if counts != Some(expected) {
                    let what = format!(
                        "process {} has {counts:?} queue pairs, regions, completion queues, domains and                          queue pairs in RTS, not {expected:?}",
                        process.pid
                    );
                    return Err(finding("objects", what));
                }
            }
        }
        Ok(())
    }

    /// Counters must be what the programs have done, as far as that is known.
    pub(super) fn check_counters(&mut self) -> Result<(), Finding> {
        let sum = |counter: Counter| -> u64 {
            let counts = self
                .devices
                .iter()
                .map(|it| it.counters()[counter as usize]);
            counts.sum()
        };
        let packets = sum(Counter::RdmaTxPackets);
        let added = self.sum.added;
        let read = self.sum.succeeded - self.sum.delivered - added;
        let is_exact = !self.is_rough && sum(Counter::RetransmittedPackets) == 0;
        for (counter, done) in [
            (Counter::RxReadRequests, read),
            (Counter::RxAtomicRequests, added),
        ] {
            let counted = sum(counter);
            if counted < done || is_exact && counted != done {
                let what = format!("{} is {counted}, and {done} have succeeded", counter.name());
                return Err(finding("counter", what));
            }
        }
        self.counts.add("packets", packets);
        Ok(())
    }

    /// Nothing must be left of programs.
    pub(super) fn check_left(&self, files_before: usize) -> Result<(), Finding> {
        for observer in &self.devices {
            let name = &observer.spec().name;
            let left = |what: String| Err(finding("left", format!("{name}: {what}")));
            let processes = observer.processes().unwrap_or_default();
            if !processes.is_empty() {
                return left(format!("{processes:?}"));
            }
            if self.registry.is_used(observer.spec()).unwrap_or(true) {
                return left("it is in use".to_owned());
            }
            let port = SocketAddr::new(observer.spec().address, ROCE_V2_PORT);
            if let Err(error) = UdpSocket::bind(port) {
                return left(format!("its port is not free: {error}"));
            }
        }
        match files(self.directory.path()) {
            now if now == files_before => Ok(()),
            now => Err(finding(
                "left",
                format!("{now} files instead of {files_before}"),
            )),
        }
    }
}

/// The number of files below a directory. Sockets are not counted: that of a killed program stays until another gets
/// its slot.
pub(super) fn files(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path()),
            Ok(kind) => usize::from(!kind.is_socket()),
            Err(_) => 0,
        })
        .sum()
}
