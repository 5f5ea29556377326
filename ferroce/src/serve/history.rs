//! What the devices counted in the last minutes, kept for pages that are opened later.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use ferroce_device::Counter;
use ferroce_registry::Registry;
use serde_json::{Map, Value, json};

/// How often the counters are read.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// Readings of a device that are kept: ten minutes.
const READINGS_MAX: usize = 300;
/// Devices whose readings are kept: 64 KiB each at most.
const DEVICES_MAX: usize = 256;
/// The counters that the page draws over time.
const DRAWN: [Counter; 10] = [
    Counter::RdmaTxBytes,
    Counter::RdmaRxBytes,
    Counter::TimeoutsIb,
    Counter::TimeoutsFirmware,
    Counter::TimeoutsProfile,
    Counter::RetransmittedPackets,
    Counter::RpCnpHandled,
    Counter::RoceSlowRestartCnps,
    Counter::NpCnpSent,
    Counter::NpEcnMarkedRocePackets,
];

/// The counters of each device over time.
#[derive(Debug, Default)]
pub(super) struct History {
    by_device: HashMap<String, VecDeque<Reading>>,
}

/// When counters were read, since the server's start, and what they were.
type Reading = (Duration, [u64; DRAWN.len()]);

impl History {
    /// Reads the counters of all devices.
    pub(super) fn read(&mut self, registry: &Registry, begun: Instant) {
        let Ok(specs) = registry.links() else {
            return; // there may be some the next time
        };
        let is_there = |name: &String| specs.iter().any(|spec| spec.name == *name);
        self.by_device.retain(|name, _| is_there(name));
        for spec in specs {
            let name = spec.name.clone();
            if let Ok(observer) = registry.observe_device(spec) {
                let counters = observer.state().counters();
                let counts = DRAWN.map(|counter| counters[counter as usize]);
                self.add(name, (begun.elapsed(), counts));
            }
        }
    }

    fn add(&mut self, name: String, reading: Reading) {
        if self.by_device.len() == DEVICES_MAX && !self.by_device.contains_key(&name) {
            return;
        }
        let readings = self.by_device.entry(name).or_default();
        if readings.len() == READINGS_MAX {
            readings.pop_front();
        }
        readings.push_back(reading);
    }

    /// All of it: the counters' names, and of each device a list of readings, each of which is the time
    /// and the counts in the order of the names.
    pub(super) fn json(&self) -> Value {
        let of_reading = |(at, counts): &Reading| {
            let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
            Value::from_iter(std::iter::once(at_ms).chain(*counts))
        };
        let of_device = |(name, readings): (&String, &VecDeque<Reading>)| {
            let readings = readings.iter().map(of_reading);
            (name.clone(), Value::from_iter(readings))
        };
        json!({
            "counters": DRAWN.map(Counter::name),
            "devices": self.by_device.iter().map(of_device).collect::<Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_readings_are_kept_however_long_the_server_runs() {
        let mut history = History::default();
        for second in 0..2 * READINGS_MAX as u64 {
            let counts = [second; DRAWN.len()];
            history.add("a".to_owned(), (Duration::from_secs(second), counts));
        }
        for device in 0..2 * DEVICES_MAX {
            let reading = (Duration::ZERO, [0; DRAWN.len()]);
            history.add(format!("b{device}"), reading);
        }
        assert_eq!(history.by_device.len(), DEVICES_MAX);
        let kept = history.json()["devices"]["a"].as_array().unwrap().clone();
        assert_eq!(kept.len(), READINGS_MAX);
        let last = 2 * READINGS_MAX as u64 - 1;
        assert_eq!(kept[READINGS_MAX - 1][0], last * 1000);
        assert_eq!(kept[READINGS_MAX - 1][1], last);
    }
}
