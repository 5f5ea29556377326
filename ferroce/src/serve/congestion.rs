//! The effect of congestion control on the devices, and its parameters.

use std::fmt;

use ferroce_dcqcn::{Param, Unit};
use ferroce_registry::Observer;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::limited::Limited;
use super::metrics::PORT;

/// A device: its name, its observer, and who is slowed down on it.
type Device<'a> = (&'a str, &'a Observer, Limited);

/// Writes the families of congestion control.
pub(super) fn encode<'a>(
    devices: impl Iterator<Item = Device<'a>> + Clone,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(
        "ferroce_cc_enabled",
        "Whether congestion control is on for a priority, at the reaction point (rp), which heeds \
         CNPs, or at the notification point (np), which sends them.",
        None,
        MetricType::Gauge,
    )?;
    for (device, observer, _) in devices.clone() {
        let params = observer.state().congestion();
        for priority in 0..8 {
            let digit = priority.to_string();
            let points = [
                ("rp", params.heeds_cnps(priority)),
                ("np", params.answers_marks(priority)),
            ];
            for (point, is_on) in points {
                let labels = [
                    ("device", device),
                    ("port", PORT),
                    ("priority", &digit),
                    ("point", point),
                ];
                let is_on = u64::from(is_on);
                family.encode_family(&labels)?.encode_gauge(&is_on)?;
            }
        }
    }
    let mut family = encoder.encode_descriptor(
        "ferroce_cc_parameter",
        "Parameters of congestion control by their names in sysfs; `ferroce cc explain` has units.",
        None,
        MetricType::Gauge,
    )?;
    for (device, observer, _) in devices.clone() {
        let params = observer.state().congestion();
        let values = Param::ALL
            .iter()
            .filter(|it| it.unit() != Unit::PriorityMask);
        for param in values {
            let labels = [
                ("device", device),
                ("port", PORT),
                ("parameter", param.name()),
            ];
            let value = u64::from(params.get(*param));
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    let slow = "Queue pairs that CNPs have slowed down and that have not recovered.";
    let name = "ferroce_cc_limited_queue_pairs";
    encode_limit(devices.clone(), encoder, (name, slow), |_, it| it.count)?;
    let lowest = "The lowest rate to which one of them is limited; the port's if none is.";
    let name = "ferroce_cc_lowest_rate_bytes_per_second";
    encode_limit(devices.clone(), encoder, (name, lowest), |device, it| {
        let line = || device.spec().speed.rate().bps();
        it.lowest_bps.unwrap_or_else(line) / 8
    })?;
    let silent = "Processes that did not say in time which of their queue pairs are slowed down.";
    let name = "ferroce_cc_silent_processes";
    encode_limit(devices, encoder, (name, silent), |_, it| it.silent)
}

fn encode_limit<'a>(
    devices: impl Iterator<Item = Device<'a>>,
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    value: fn(&Observer, Limited) -> u64,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (device, observer, limited) in devices {
        let labels = [("device", device), ("port", PORT)];
        family
            .encode_family(&labels)?
            .encode_gauge(&value(observer, limited))?;
    }
    Ok(())
}
