//! Faults of a device's own link, its registers, and resets.

use std::sync::Arc;

use ferroce_adp::{Profile, RawProfile, RawRange};
use ferroce_base::random::Dice;
use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::impair::{Blackout, Bottleneck};
use ferroce_device::{Direction, Hca, Impairment, Method, Personality, Rate, Settings, Span, Time};
use ferroce_prm::{Field, Image, roce_accl as reg};

use crate::script::Step;

/// Bits of a host's options, the fields of ROCE_ACCL that they write, and the values.
pub(super) const OPTIONS: [(u64, u64, u64); 4] = [(1, 3, 1), (2, 4, 1), (4, 5, 1), (32, 1, 0)];

/// The fields of ROCE_ACCL that a script can write, with those that select them, by their numbers from 1.
const FIELDS: [(&Field, &Field); 7] = [
    (
        &reg::ROCE_ADP_RETRANS_FIELD_SELECT,
        &reg::ROCE_ADP_RETRANS_EN,
    ),
    (
        &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED_FIELD_SELECT,
        &reg::MIN_ACK_TIMEOUT_LIMIT_DISABLED,
    ),
    (
        &reg::SELECTIVE_REPEAT_FORCED_EN_FIELD_SELECT,
        &reg::SELECTIVE_REPEAT_FORCED_EN,
    ),
    (
        &reg::ADAPTIVE_ROUTING_FORCED_EN_FIELD_SELECT,
        &reg::ADAPTIVE_ROUTING_FORCED_EN,
    ),
    (
        &reg::ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
        &reg::ROCE_SLOW_RESTART_IDLE_EN,
    ),
    (
        &reg::ROCE_SLOW_RESTART_FIELD_SELECT,
        &reg::ROCE_SLOW_RESTART_EN,
    ),
    (&reg::ROCE_TX_WINDOW_FIELD_SELECT, &reg::ROCE_TX_WINDOW_EN),
];

/// Does to a device what a step asks for. Returns what the device said against it.
pub(super) fn apply(hca: &mut Hca, now: Time, step: &Step) -> Result<(), String> {
    match *step {
        Step::Impair { direction, .. } => {
            let direction = match direction {
                0 => Direction::Egress,
                _ => Direction::Ingress,
            };
            hca.set_impairment(direction, impairment(step, now))
                .map_err(|error| error.to_string())
        }
        Step::Port { ns, link } => {
            let outage = Outages::once(now, Span::from_nanos(ns.max(1)));
            let schedule = Schedule::new(vec![outage]).map_err(|error| error.to_string())?;
            let Some(state) = hca.link_state(1 + u8::from(link == 2)) else {
                return Ok(()); // it has no second one
            };
            state
                .set_schedule(now, schedule)
                .map_err(|error| error.to_string())?;
            hca.handle_settings(now);
            Ok(())
        }
        Step::Register { field, value } => write_field(hca, field, value),
        Step::Profile { seed } => write_profile(hca, &profile(seed)),
        Step::Reset { firmware: 0 } => hca.reset_registers().map_err(|error| error.to_string()),
        Step::Reset { .. } => hca.firmware_reset().map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

/// Ends all faults of a device.
pub(super) fn end(hca: &mut Hca, now: Time) -> Result<(), String> {
    for direction in [Direction::Egress, Direction::Ingress] {
        let clear = Impairment::default();
        hca.set_impairment(direction, clear)
            .map_err(|error| error.to_string())?;
    }
    for state in [1, 2].into_iter().filter_map(|link| hca.link_state(link)) {
        state
            .set_schedule(now, Schedule::default())
            .map_err(|error| error.to_string())?;
    }
    hca.handle_settings(now);
    Ok(())
}

/// Settings of a device whose initiators do not wait for their targets, as no program can choose it.
pub(super) fn half_handshakes(personality: Personality) -> Arc<Settings> {
    let mut parts = Settings::new(personality).to_parts();
    let image = Image::new(&reg::ROCE_ACCL, parts.roce_accl);
    let mut image = image.expect("settings hold the register");
    image
        .set(&reg::DC_HALF_HANDSHAKE_EN, 1)
        .expect("it is a bit");
    parts.roce_accl = image.into_inner();
    Arc::new(Settings::from_parts(parts))
}

/// Writes a field of ROCE_ACCL.
pub(super) fn write_field(hca: &mut Hca, number: u64, value: u64) -> Result<(), String> {
    let place = (number as usize).wrapping_sub(1) % FIELDS.len();
    let (select, field) = FIELDS[place];
    write(hca, &[(select, 1), (field, u32::from(value != 0))], None)
}

fn write_profile(hca: &mut Hca, profile: &Profile) -> Result<(), String> {
    let fields = [
        (&reg::ADP_RETX_PROFILE_SELECT, 1),
        (&reg::ADP_RETX_PROFILE_ID, 1),
    ];
    write(hca, &fields, Some(&profile.to_register()))
}

fn write(hca: &mut Hca, fields: &[(&Field, u32)], profile: Option<&[u8]>) -> Result<(), String> {
    let zeros = vec![0; reg::ROCE_ACCL.size()];
    let mut image = Image::new(&reg::ROCE_ACCL, zeros).map_err(|error| error.to_string())?;
    for (field, value) in fields {
        image
            .set(field, *value)
            .map_err(|error| error.to_string())?;
    }
    let mut bytes = image.into_inner();
    if let Some(profile) = profile {
        bytes[reg::PROFILE_OFFSET..][..profile.len()].copy_from_slice(profile);
    }
    hca.access_register(reg::ROCE_ACCL.id(), Method::Write, &mut bytes)
        .map_err(|error| error.to_string())
}

fn impairment(step: &Step, now: Time) -> Impairment {
    let Step::Impair {
        loss,
        duplicate,
        reorder,
        corrupt,
        mark,
        jitter,
        mbps,
        dark,
        carrier,
        ..
    } = *step
    else {
        return Impairment::default();
    };
    let share = |millionths: u64| millionths.min(1_000_000) as f64 / 1e6;
    let blackout = Blackout {
        from: now,
        length: Span::from_nanos(dark),
    };
    Impairment {
        loss: share(loss),
        duplicate: share(duplicate),
        reorder: share(reorder),
        reorder_by: Span::from_nanos(20_000),
        corrupt: share(corrupt),
        ecn_mark: share(mark),
        jitter: Span::from_nanos(jitter),
        bottleneck: (mbps > 0).then(|| Bottleneck {
            limit_bytes: 64 << 10,
            ..Bottleneck::new(Rate::from_mbps(mbps.min(1 << 20) as u32))
        }),
        blackouts: if dark > 0 { vec![blackout] } else { Vec::new() },
        carrier: carrier != 0,
        ..Impairment::default()
    }
}

/// A profile whose waits are short, as the network is.
fn profile(seed: u64) -> Profile {
    let mut dice = Dice::new(seed);
    let ranges = dice.within(1..=4) as u8;
    let mut raw = RawProfile {
        time_base: dice.pick(&[4, 8]),
        range_num: ranges,
        start_range_index: dice.below(ranges.into()) as u8,
        qp_total_timeout: dice.chance(50),
        retx_total_timeout: dice.within(10..=13) as u8,
        timeout_init_low_bound: dice.within(3..=7) as u8,
        timeout_init_range_size: dice.below(4) as u8,
        ..RawProfile::EMPTY
    };
    let mut low = dice.within(3..=5) as u8;
    for index in 0..ranges {
        raw.timeout_range[usize::from(index)] = RawRange {
            range_low_bound: low,
            range_size: dice.below(3) as u8,
            timeout_retry_num: dice.below(4) as u16,
            dec_mode: dice.below(3) as u8,
            prev_range_index: dice.below(index.max(1).into()) as u8,
        };
        low += dice.within(1..=3) as u8;
    }
    Profile::try_from(raw).expect("a profile of legal values")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_makes_a_valid_profile() {
        (0..10_000).for_each(|seed| _ = profile(seed));
    }
}
