//! The metrics of the devices for Prometheus.

use std::fmt;

use ferroce_device::{Counter, DeviceState, HistogramConfig, PortCounter, port_attr};
use ferroce_registry::{DeviceSpec, FaultRow, Observer, Registry, RegistryError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

use super::census::{Census, Population};
use super::limited::{Limited, LimitedFlows};
use super::{congestion, policies};

/// The first port of a device, for what is the whole device's.
pub(super) const PORT: &str = "1";
/// A family's name, its help and its value.
type PortFact = (&'static str, &'static str, fn(&Seen) -> u64);
/// What the port says of itself, in node_exporter's words: active, link up, its speed.
const PORT_FACTS: [PortFact; 3] = [
    (
        "node_infiniband_state_id",
        "State of the port; 4 is active, 1 is down.",
        |seen| port_attr::state(seen.is_up).value.into(),
    ),
    (
        "node_infiniband_physical_state_id",
        "Physical state of the port; 5 is link up, 3 is disabled.",
        |seen| port_attr::physical_state(seen.is_up).value.into(),
    ),
    (
        "node_infiniband_rate_bytes_per_second",
        "Signal rate of the port.",
        |seen| seen.spec.speed.rate().bps() / 8,
    ),
];

/// What programs are asked at each scrape, and who owes an answer.
#[derive(Debug, Default)]
pub(super) struct Asked {
    flows: LimitedFlows,
    census: Census,
}

/// All devices of a registry in the text format of OpenMetrics.
pub(super) fn text(registry: &Registry, asked: &mut Asked) -> Result<String, RegistryError> {
    let observe = |spec: DeviceSpec| {
        let observer = registry.observe_device(spec.clone()).ok();
        let port = observer.as_ref().map(Observer::port);
        Seen {
            is_up: port.is_some_and(|port| port.is_up),
            link_downed: port.map_or(0, |port| port.downed),
            counters: observer.as_ref().map(|one| one.state().counters()),
            limited: Limited::default(),
            population: Population::default(),
            observer,
            spec,
        }
    };
    let mut links: Vec<_> = registry.links()?.into_iter().map(observe).collect();
    let limited = asked.flows.take(links.iter().map(Seen::with_cnps));
    let population = asked
        .census
        .take(links.iter().map(|seen| seen.observer.as_ref()));
    for ((seen, limited), population) in links.iter_mut().zip(limited).zip(population) {
        seen.limited = limited;
        seen.population = population;
    }
    let mut families = prometheus_client::registry::Registry::default();
    let faults = registry.faults().and_then(|table| table.settled_rows());
    // Another user's, or one that cannot be written: the devices can be read all the same.
    let faults = faults.unwrap_or_default();
    families.register_collector(Box::new(Scrape { links, faults }));
    let mut text = String::new();
    encode(&mut text, &families).expect("a string takes what is written to it");
    Ok(text)
}

/// The devices at one moment.
#[derive(Debug)]
struct Scrape {
    /// All links of all devices.
    links: Vec<Seen>,
    /// The live fault rules.
    faults: Vec<FaultRow>,
}

#[derive(Debug)]
struct Seen {
    spec: DeviceSpec,
    /// None if the device's file cannot be read.
    observer: Option<Observer>,
    /// By their numbers; None like the observer.
    counters: Option<[u64; Counter::COUNT]>,
    limited: Limited,
    population: Population,
    /// Whether the port is up, and how many times it went down.
    is_up: bool,
    link_downed: u64,
}

impl Seen {
    /// The observer, if any process of the device has handled a CNP.
    fn with_cnps(&self) -> Option<&Observer> {
        let cnps = self.counters?[Counter::RpCnpHandled as usize];
        self.observer.as_ref().filter(|_| cnps > 0)
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_devices(&mut encoder)?;
        for (name, help, value) in PORT_FACTS {
            self.each_port(&mut encoder, (name, help, MetricType::Gauge), |seen, _| {
                value(seen)
            })?;
        }
        for counter in PortCounter::TABLE {
            let family = (counter.metric, counter.help, MetricType::Counter);
            self.each_port(&mut encoder, family, |seen, counters| {
                counter.value(|each| counters[each as usize], seen.link_downed) * counter.scale
            })?;
        }
        for info in Counter::TABLE {
            let family = (info.metric, info.help, MetricType::Counter);
            let value = |counters: &[u64; Counter::COUNT]| counters[info.counter as usize];
            match info.counter {
                // Metrics have base units.
                Counter::RoceAdpRetransWaitNs => {
                    self.each_port(&mut encoder, family, |_, counters| seconds(value(counters)))?;
                }
                _ => self.each_port(&mut encoder, family, |_, counters| value(counters))?,
            }
        }
        let congested = self.devices().filter_map(|seen| {
            let name = seen.spec.name.as_str();
            Some((name, seen.observer.as_ref()?, seen.limited))
        });
        congestion::encode(congested, &mut encoder)?;
        policies::encode(self.readable(), &mut encoder)?;
        policies::encode_faults(&self.faults, &mut encoder)?;
        self.encode_population(&mut encoder)?;
        self.encode_waits(&mut encoder)
    }
}

impl Scrape {
    /// The devices: what is a second link's own beside its counters is the device's.
    fn devices(&self) -> impl Iterator<Item = &Seen> + Clone {
        self.links.iter().filter(|it| !it.spec.is_second_link())
    }

    fn readable(&self) -> impl Iterator<Item = (&DeviceSpec, &DeviceState)> + Clone {
        self.devices().filter_map(|seen| {
            let observer = seen.observer.as_ref()?;
            Some((&seen.spec, observer.state()))
        })
    }

    /// Which devices there are, and what they are.
    fn encode_devices(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the device can be read.";
        let mut family = encoder.encode_descriptor("ferroce_up", help, None, MetricType::Gauge)?;
        for seen in self.devices() {
            let labels = [("device", seen.spec.name.as_str())];
            let is_up = u64::from(seen.observer.is_some());
            family.encode_family(&labels)?.encode_gauge(&is_up)?;
        }
        // A gauge, as in node_exporter: older programs do not know the type info.
        let (name, help) = ("node_infiniband_info", "What the device is, always 1.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for seen in self.devices() {
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

    /// The programs on each device, and their queue pairs.
    fn encode_population(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Queue pairs by state, of the processes that said in time.";
        let name = "ferroce_queue_pairs";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for seen in self.devices().filter(|it| it.observer.is_some()) {
            for (state, count) in seen.population.states.named() {
                let device = seen.spec.name.as_str();
                let labels = [("device", device), ("port", PORT), ("state", state)];
                family.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        let facts: [PortFact; 2] = [
            (
                "ferroce_processes",
                "Processes that have the device open.",
                |seen| seen.population.processes,
            ),
            (
                "ferroce_silent_processes",
                "Processes that did not say in time how many queue pairs they have.",
                |seen| seen.population.silent,
            ),
        ];
        for (name, help, value) in facts {
            let family = (name, help, MetricType::Gauge);
            Self::each(self.devices(), encoder, family, |seen, _| value(seen))?;
        }
        Ok(())
    }

    /// A family with one value for each port.
    fn each_port<V: EncodeGaugeValue + EncodeCounterValue>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: (&str, &str, MetricType),
        value: impl Fn(&Seen, &[u64; Counter::COUNT]) -> V,
    ) -> fmt::Result {
        Self::each(self.links.iter(), encoder, family, value)
    }

    fn each<'a, V: EncodeGaugeValue + EncodeCounterValue>(
        links: impl Iterator<Item = &'a Seen>,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, kind): (&str, &str, MetricType),
        value: impl Fn(&Seen, &[u64; Counter::COUNT]) -> V,
    ) -> fmt::Result {
        let is_counter = matches!(kind, MetricType::Counter);
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for seen in links {
            let Some(counters) = &seen.counters else {
                continue;
            };
            let port = seen.spec.link_number().to_string();
            let labels = [("device", seen.spec.device_name()), ("port", port.as_str())];
            let mut metric = family.encode_family(&labels)?;
            match is_counter {
                true => {
                    metric.encode_counter::<NoLabelSet, _, u64>(&value(seen, counters), None)?
                }
                false => metric.encode_gauge(&value(seen, counters))?,
            }
        }
        Ok(())
    }

    /// The waits before adaptive retransmissions, and how often their bins became others.
    fn encode_waits(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = (
            "ferroce_adp_retx_wait_seconds",
            "Waits before retransmissions by adaptive retransmission; a bin holds the waits below \
             its bound.",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (spec, state) in self.readable() {
            let (config, counts) = state.histogram_snapshot();
            let counted = |vhca_id| match config.vhca_id {
                Some(only) => vhca_id == only,
                None => spec.vf.is_none() || vhca_id == spec.vhca_id(),
            };
            let vhca_id = match config.vhca_id {
                None if spec.vfs > 0 => "all".to_owned(),
                None => spec.vhca_id().to_string(),
                Some(only) => only.to_string(),
            };
            let of_card = self
                .readable()
                .filter(|(other, _)| other.pf().name == spec.pf().name);
            // The device keeps the sum beside the bins: it goes on when these start from zero.
            let sum_ns: u64 = of_card
                .filter(|(function, _)| counted(function.vhca_id()))
                .map(|(_, state)| state.counter(Counter::RoceAdpRetransWaitNs))
                .sum();
            let labels = [("device", spec.name.as_str()), ("vhca_id", &vhca_id)];
            encode_histogram(family.encode_family(&labels)?, &config, &counts, sum_ns)?;
        }
        let (name, help) = (
            "ferroce_adp_retx_wait_layout_changes",
            "Times the bins of ferroce_adp_retx_wait_seconds became others, which begins it anew.",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (spec, state) in self.readable() {
            let changes = state.histogram_layout_changes();
            family
                .encode_family(&[("device", spec.name.as_str())])?
                .encode_counter::<NoLabelSet, _, u64>(&changes, None)?;
        }
        Ok(())
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn encode_histogram(
    mut metric: MetricEncoder<'_>,
    config: &HistogramConfig,
    counts: &[u64],
    sum_ns: u64,
) -> fmt::Result {
    let bound = |bin| config.edges_ns(bin).1.map_or(f64::INFINITY, seconds);
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for (bin, &count) in counts.iter().enumerate() {
        // Bins that begin where time ends have one bound, which a bucket has only once.
        match buckets.last_mut() {
            Some((last, counted)) if *last == bound(bin) => *counted += count,
            _ => buckets.push((bound(bin), count)),
        }
    }
    let count = counts.iter().sum();
    metric.encode_histogram::<NoLabelSet>(seconds(sum_ns), count, &buckets, None)
}

#[cfg(test)]
mod tests {
    use ferroce_runtime::{AttachOptions, Device};

    use super::*;

    #[test]
    fn a_histogram_says_whose_waits_it_counts() {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(&directory.path().join("devices")).unwrap();
        let mut spec = DeviceSpec::new("a", "127.30.67.1".parse().unwrap());
        spec.vfs = 2;
        registry.add(&spec).unwrap();
        for (name, waited_s) in [("a", 1), ("av0", 10), ("av1", 100)] {
            let device = Device::attach(&registry, name, AttachOptions::default()).unwrap();
            let waited_ns = waited_s * 1_000_000_000;
            device.with(|hca| hca.count(Counter::RoceAdpRetransWaitNs, waited_ns));
        }
        let sum = |device: &str| -> String {
            let text = text(&registry, &mut Asked::default()).unwrap();
            let start = format!("ferroce_adp_retx_wait_seconds_sum{{device=\"{device}\",");
            let line = text.lines().find_map(|line| line.strip_prefix(&start));
            line.unwrap().to_owned()
        };
        assert_eq!(sum("a"), "vhca_id=\"all\"} 111.0");
        assert_eq!(sum("av0"), "vhca_id=\"1\"} 10.0");
        assert_eq!(sum("fr0"), "vhca_id=\"0\"} 0.0");
        let observer = registry.observe("a").unwrap();
        let one = HistogramConfig {
            vhca_id: Some(2),
            ..HistogramConfig::default()
        };
        observer.state().configure_histogram(one).unwrap();
        assert_eq!(sum("a"), "vhca_id=\"2\"} 100.0");
    }

    #[test]
    fn each_bucket_is_there_once_however_wide_the_bins() {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(&directory.path().join("devices")).unwrap();
        let observer = registry.observe("fr0").unwrap();
        let widest = HistogramConfig {
            bins: HistogramConfig::BINS_MAX,
            bin0_width: u16::MAX,
            bin1_width: u16::MAX,
            ..HistogramConfig::default()
        };
        observer.state().configure_histogram(widest).unwrap();
        let text = text(&registry, &mut Asked::default()).unwrap();
        let buckets = text.lines().filter(|line| line.contains("_bucket{"));
        let mut buckets: Vec<_> = buckets.collect();
        let count = buckets.len();
        assert!(count > 20, "{text}");
        buckets.dedup();
        assert_eq!(buckets.len(), count, "{text}");
    }
}
