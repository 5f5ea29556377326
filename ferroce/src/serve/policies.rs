//! What is in force on the devices: the retransmission policy, impairments and fault rules.
//!
//! Facts are labels of metrics that are always 1. A fact that changes starts another series, so a
//! label must not change by itself: future outages are shown without their times.

use std::fmt;

use ferroce_device::{DeviceState, Direction};
use ferroce_registry::{DeviceSpec, FaultRow};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::device::in_force;
use crate::policy::Policy;

/// Writes the families of what is in force.
pub(super) fn encode<'a>(
    devices: impl Iterator<Item = (&'a DeviceSpec, &'a DeviceState)> + Clone,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(
        "ferroce_adp_profile_info",
        "The retransmission policy in force: ib, firmware or profile; of a profile its name, custom \
         if it is not built in, and a hash of its contents. Always 1.",
        None,
        MetricType::Gauge,
    )?;
    for (spec, state) in devices.clone() {
        let policy = Policy::of(state);
        let (profile, hash) = policy.profile_names().unwrap_or_default();
        let labels = [
            ("device", spec.name.as_str()),
            ("policy", policy.kind()),
            ("profile", profile),
            ("hash", &hash),
        ];
        family.encode_family(&labels)?.encode_gauge(&1)?;
    }
    let mut family = encoder.encode_descriptor(
        "ferroce_impairment_info",
        "The impairment in force, as `ferroce impair` takes it, without the times of outages. \
         Always 1; absent without one.",
        None,
        MetricType::Gauge,
    )?;
    for (spec, state) in devices {
        for (direction, name) in [
            (Direction::Egress, "egress"),
            (Direction::Ingress, "ingress"),
        ] {
            let Some(impairment) = in_force(state, direction) else {
                continue;
            };
            let labels = [
                ("device", spec.name.as_str()),
                ("direction", name),
                ("impairment", &impairment),
            ];
            family.encode_family(&labels)?.encode_gauge(&1)?;
        }
    }
    Ok(())
}

/// Writes how often each live fault rule was met and injected.
pub(super) fn encode_faults(
    rules: &[FaultRow],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut encode = |name, help, value: fn(&FaultRow) -> u64| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        rules.iter().try_for_each(|row| {
            let labels = [
                ("number", row.id.to_string()),
                ("rule", row.rule.to_string()),
            ];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&value(row), None)
        })
    };
    encode(
        "ferroce_fault_met",
        "Calls, completions and events that a live fault rule was about.",
        |row| row.met,
    )?;
    encode(
        "ferroce_fault_injected",
        "Faults that a live fault rule has injected.",
        |row| row.struck,
    )
}
