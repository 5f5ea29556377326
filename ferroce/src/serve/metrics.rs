use std::fmt;

use ferroce_hca::{Counter, DeviceState, PortCounter};
use ferroce_udp::{DeviceSpec, Observer, Registry, RegistryError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The only port of a device.
const PORT: &str = "1";
/// The only function of a device.
const VHCA_ID: &str = "0";
/// What the port says of itself, in node_exporter's words: active, link up, 100 Gb/s.
const PORT_FACTS: [(&str, &str, u64); 3] = [
    (
        "node_infiniband_state_id",
        "State of the port; 4 is active.",
        4,
    ),
    (
        "node_infiniband_physical_state_id",
        "Physical state of the port; 5 is link up.",
        5,
    ),
    (
        "node_infiniband_rate_bytes_per_second",
        "Signal rate of the port.",
        12_500_000_000,
    ),
];

/// All devices of a registry in the text format of OpenMetrics.
pub(super) fn text(registry: &Registry) -> Result<String, RegistryError> {
    let observe = |spec: DeviceSpec| {
        let observer = registry.observe_device(spec.clone()).ok();
        let counters = observer.as_ref().map(|one| one.state().counters());
        Seen {
            spec,
            observer,
            counters,
        }
    };
    let devices = registry.devices()?.into_iter().map(observe).collect();
    let mut families = prometheus_client::registry::Registry::default();
    families.register_collector(Box::new(Scrape { devices }));
    let mut text = String::new();
    encode(&mut text, &families).expect("a string takes what is written to it");
    Ok(text)
}

/// The devices at one moment.
#[derive(Debug)]
struct Scrape {
    devices: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    spec: DeviceSpec,
    /// None if the device's file cannot be read.
    observer: Option<Observer>,
    /// By their numbers; None like the observer.
    counters: Option<[u64; Counter::COUNT]>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_devices(&mut encoder)?;
        for (name, help, value) in PORT_FACTS {
            self.each_port(&mut encoder, (name, help, MetricType::Gauge), |_| value)?;
        }
        for counter in PortCounter::TABLE {
            if let Some(name) = counter.metric {
                let family = (name, counter.help, MetricType::Counter);
                self.each_port(&mut encoder, family, |counters| {
                    counter.value(|each| counters[each as usize]) * counter.scale
                })?;
            }
        }
        for info in Counter::TABLE {
            let family = (info.metric, info.help, MetricType::Counter);
            self.each_port(&mut encoder, family, |counters| {
                counters[info.counter as usize]
            })?;
        }
        self.encode_waits(&mut encoder)
    }
}

impl Scrape {
    fn readable(&self) -> impl Iterator<Item = (&DeviceSpec, &DeviceState)> {
        self.devices.iter().filter_map(|seen| {
            let observer = seen.observer.as_ref()?;
            Some((&seen.spec, observer.state()))
        })
    }

    /// Which devices there are, and what they are.
    fn encode_devices(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the device can be read.";
        let mut family = encoder.encode_descriptor("ferroce_up", help, None, MetricType::Gauge)?;
        for seen in &self.devices {
            let labels = [("device", seen.spec.name.as_str())];
            let is_up = u64::from(seen.observer.is_some());
            family.encode_family(&labels)?.encode_gauge(&is_up)?;
        }
        // A gauge, as in node_exporter: older programs do not know the type info.
        let (name, help) = ("node_infiniband_info", "What the device is, always 1.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for seen in &self.devices {
            let spec = &seen.spec;
            let hca_type = format!("MT{}", spec.vendor_part_id);
            let labels = [
                ("board_id", spec.board_id.as_str()),
                ("device", &spec.name),
                ("firmware_version", &spec.fw_ver),
                ("hca_type", &hca_type),
            ];
            family.encode_family(&labels)?.encode_gauge(&1)?;
        }
        Ok(())
    }

    /// A family with one value for each port.
    fn each_port(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, kind): (&str, &str, MetricType),
        value: impl Fn(&[u64; Counter::COUNT]) -> u64,
    ) -> fmt::Result {
        let is_counter = matches!(kind, MetricType::Counter);
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for seen in &self.devices {
            let Some(counters) = &seen.counters else {
                continue;
            };
            let labels = [("device", seen.spec.name.as_str()), ("port", PORT)];
            let mut metric = family.encode_family(&labels)?;
            match is_counter {
                true => metric.encode_counter::<NoLabelSet, _, u64>(&value(counters), None)?,
                false => metric.encode_gauge(&value(counters))?,
            }
        }
        Ok(())
    }

    /// The waits before adaptive retransmissions.
    fn encode_waits(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = (
            "ferroce_adp_retx_wait_seconds",
            "Waits before retransmissions by adaptive retransmission; a bin holds the waits below \
             its bound.",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (spec, state) in self.readable() {
            let labels = [("device", spec.name.as_str()), ("vhca_id", VHCA_ID)];
            encode_histogram(family.encode_family(&labels)?, state)?;
        }
        Ok(())
    }
}

fn encode_histogram(mut metric: MetricEncoder<'_>, state: &DeviceState) -> fmt::Result {
    let (config, counts) = state.histogram_snapshot();
    let seconds = |ns: u64| ns as f64 / 1e9;
    let bound = |bin| config.edges_ns(bin).1.map_or(f64::INFINITY, seconds);
    let buckets: Vec<_> = (0..).map(bound).zip(counts.iter().copied()).collect();
    // The device keeps the sum beside the bins: it goes on when these start from zero.
    let sum = seconds(state.counter(Counter::RoceAdpRetransWaitNs));
    let count = counts.iter().sum();
    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}
