//! The functions of a card.

use ferroce_prm::adp_retx_histogram::{self as counts, ADP_RETX_HISTOGRAM};
use ferroce_prm::mfrl::MFRL;
use ferroce_prm::mlxreg::apply;
use ferroce_prm::roce_accl::ROCE_ACCL;

use super::*;
use crate::device::{Hca, HcaConfig};
use crate::error::RegisterError;
use crate::histogram::HistogramConfig;
use crate::register::{Method, Status};

const MS: u64 = 1_000_000;

/// The PF of a card in memory, and its VFs.
fn card(vfs: u8) -> Vec<DeviceState> {
    let block = Box::leak(Box::default());
    let of_vfs = Vec::leak((0..vfs).map(|_| VfBlock::default()).collect());
    let settings = Arc::new(Settings::new(Personality::default()));
    let store: &'static LocalSettings = Box::leak(Box::new(LocalSettings::new(settings)));
    let vf = |index| Function::Vf {
        index,
        pf: "fr1".to_owned(),
    };
    let functions = [Function::Pf { vfs }].into_iter().chain((0..vfs).map(vf));
    let state = |function| {
        let memory = MappedState {
            generation: store.generation_cell(),
            block,
            vfs: of_vfs,
            slabs: Vec::leak(vec![CounterSlab::default(), CounterSlab::default()]),
            errors: Box::leak(Box::default()),
        };
        DeviceState::mapped(memory, Arc::new(store), function, 1, Identity::default()).unwrap()
    };
    let states: Vec<_> = functions.map(state).collect();
    let after_power_on = Settings::new(Personality::default());
    states[0].reset(after_power_on).unwrap();
    states
}

fn set(state: &DeviceState, indexes: &str, text: &str) -> Result<(), RegisterError> {
    let mut payload = [0; ROCE_ACCL.size()];
    apply(&ROCE_ACCL, &mut payload, indexes, text).unwrap();
    state.access_register(ROCE_ACCL.id(), Method::Write, &mut payload)
}

fn get(state: &DeviceState) -> [u8; ROCE_ACCL.size()] {
    let mut payload = [0; ROCE_ACCL.size()];
    let id = ROCE_ACCL.id();
    state
        .access_register(id, Method::Query, &mut payload)
        .unwrap();
    payload
}

const PROFILE: &str = "adp_retx_profile_select=1,time_base=4,time_unit=1,range_num=1,\
    retx_total_timeout=16,timeout_init_low_bound=5,range_low_bound_0=5,range_size_0=2,\
    timeout_retry_num_0=4";

//= D19: a profile is that of the PF and its VFs.
#[test]
fn the_pf_sets_for_its_vfs_and_they_cannot() {
    let card = card(2);
    let (pf, vf) = (&card[0], &card[2]);
    let config = HcaConfig::default();
    let hca = Hca::with_state(config.clone(), vf.clone());
    let firmware = hca.policy().kind;
    let before = get(vf);
    for (indexes, text) in [
        ("adp_retx_profile_id=1", PROFILE),
        (
            "adp_retx_profile_id=0",
            "roce_adp_retrans_field_select=1,roce_adp_retrans_en=0",
        ),
        // The bit that it may set does not get through with one that it may not.
        (
            "adp_retx_profile_id=0",
            "roce_adp_retrans_field_select=1,roce_adp_retrans_en=0,\
             min_ack_timeout_limit_disabled_field_select=1,min_ack_timeout_limit_disabled=1",
        ),
    ] {
        let error = set(vf, indexes, text).unwrap_err();
        assert_eq!(error.status(), Status::BAD_OPERATION);
        assert!(error.to_string().contains("its PF fr1"), "{error}");
        assert_eq!(get(vf), before);
    }
    set(pf, "adp_retx_profile_id=1", PROFILE).unwrap();
    assert_eq!(get(vf), get(pf));
    assert_ne!(Hca::with_state(config, vf.clone()).policy().kind, firmware);
    // What tools read they may write back.
    vf.access_register(ROCE_ACCL.id(), Method::Write, &mut get(vf))
        .unwrap();
}

#[test]
fn the_smallest_timeout_is_a_matter_of_each_function() {
    let card = card(Function::VFS_MAX);
    let limit = "min_ack_timeout_limit_disabled_field_select=1,min_ack_timeout_limit_disabled";
    let ours = [0, 1, 64, usize::from(Function::VFS_MAX)];
    for vhca_id in ours {
        set(
            &card[vhca_id],
            "adp_retx_profile_id=0",
            &format!("{limit}=1"),
        )
        .unwrap();
    }
    for (vhca_id, state) in card.iter().enumerate() {
        let disabled = get(state)[7] >> 4 & 1 == 1;
        assert_eq!(disabled, ours.contains(&vhca_id), "{vhca_id}");
        let hca = Hca::with_state(HcaConfig::default(), state.clone());
        let floor = ferroce_adp::AckTimeoutFloor::Disabled;
        assert_eq!(hca.policy().floor == floor, disabled, "{vhca_id}");
    }
    set(&card[64], "adp_retx_profile_id=0", &format!("{limit}=0")).unwrap();
    assert_eq!([1, 64, 127].map(|id| get(&card[id])[7] >> 4), [1, 0, 1]);
    card[0].firmware_reset().unwrap();
    assert!(card.iter().all(|state| get(state)[7] >> 4 == 0));
}

#[test]
fn a_vf_is_not_reset_by_itself() {
    let card = card(1);
    let mut payload = [0; MFRL.size()];
    let id = MFRL.id();
    card[1]
        .access_register(id, Method::Query, &mut payload)
        .unwrap();
    set(&card[0], "adp_retx_profile_id=1", PROFILE).unwrap();
    card[1].record_wait(0);
    let before = get(&card[1]);
    let error = card[1].access_register(id, Method::Write, &mut payload);
    let error = error.unwrap_err();
    assert_eq!(error.status(), Status::BAD_OPERATION);
    assert!(error.to_string().contains("its PF fr1"), "{error}");
    assert_eq!((get(&card[1]), card[1].histogram()[0]), (before, 1));
    card[0]
        .access_register(id, Method::Write, &mut payload)
        .unwrap();
    assert_ne!(get(&card[1]), before);
    assert_eq!(card[1].histogram()[0], 0, "all functions are reset");
}

#[test]
fn a_function_counts_its_own_waits_and_the_pf_the_selected_ones() {
    for (counted, of_pf) in [
        (None, 1 + 10 + 100),
        (Some(0), 1),
        (Some(1), 10),
        (Some(2), 100),
    ] {
        let card = card(2);
        let config = HistogramConfig {
            vhca_id: counted,
            ..HistogramConfig::default()
        };
        card[0].configure_histogram(config).unwrap();
        for (state, waits) in card.iter().zip([1, 10, 100]) {
            (0..waits).for_each(|_| state.record_wait(0));
        }
        let counts: Vec<_> = card.iter().map(|state| state.histogram()[0]).collect();
        assert_eq!(counts, [of_pf, 10, 100], "{counted:?}");
        card[1].clear_histogram().unwrap();
        let counts: Vec<_> = card.iter().map(|state| state.histogram()[0]).collect();
        assert_eq!(counts, [of_pf, 0, 100], "{counted:?}");
    }
}

#[test]
fn only_functions_that_there_are_can_be_counted() {
    let card = card(2);
    for (at, vhca_id, allowed) in [
        (0, 3, Err("vhca_id is 3; allowed: 0 to 2")),
        (1, 0, Err("vhca_id is 0; allowed: 1")),
        (2, 1, Err("vhca_id is 1; allowed: 2")),
        (2, 2, Ok(())),
    ] {
        let config = HistogramConfig {
            vhca_id: Some(vhca_id),
            ..HistogramConfig::default()
        };
        let result = card[at].configure_histogram(config);
        let result = result.map_err(|error| error.to_string());
        assert_eq!(result, allowed.map_err(str::to_owned));
    }
    assert_eq!(card[1].histogram_config(), HistogramConfig::default());
}

#[test]
fn a_function_that_has_gone_is_not_counted() {
    let card = card(3);
    for (counted, after) in [(Some(0), Some(0)), (Some(1), Some(1)), (Some(2), None)] {
        let config = HistogramConfig {
            vhca_id: counted,
            bins: 5,
            ..HistogramConfig::default()
        };
        card[0].configure_histogram(config).unwrap();
        (0..3).for_each(|at| card[at].record_wait(0));
        card[0].forget_vfs(1).unwrap();
        let (now, counts) = card[0].histogram_snapshot();
        assert_eq!((now.vhca_id, now.bins), (after, 5));
        assert_eq!(counts[0], u64::from(after.is_some()), "{counted:?}");
        card[0].clear_histogram().unwrap();
    }
}

/// Each wait is in one answer of its function, and in one of its PF, however many read and clear.
#[test]
fn readers_of_functions_neither_lose_nor_double_a_wait() {
    const EACH: u64 = if cfg!(miri) { 10 } else { 20_000 };
    let card = card(3);
    let clearing = HistogramConfig {
        clear_on_read: true,
        ..HistogramConfig::default()
    };
    for state in &card {
        state.configure_histogram(clearing).unwrap();
    }
    let read = |state: &DeviceState| {
        let mut data = [0; counts::size(64)];
        let id = ADP_RETX_HISTOGRAM.id();
        state.access_register(id, Method::Query, &mut data).unwrap();
        counts::bins(&data).sum::<u64>()
    };
    let sums = std::thread::scope(|scope| {
        let record = |state: &DeviceState| (0..EACH).for_each(|n| state.record_wait(n * MS));
        let recorders: Vec<_> = card
            .iter()
            .map(|state| scope.spawn(move || record(state)))
            .collect();
        let mut sums = vec![0; card.len()];
        while recorders.iter().any(|thread| !thread.is_finished()) {
            for (sum, state) in sums.iter_mut().zip(&card) {
                *sum += read(state);
            }
        }
        sums
    });
    let read_back = sums.iter().zip(&card).map(|(sum, state)| sum + read(state));
    assert_eq!(read_back.collect::<Vec<_>>(), [4 * EACH, EACH, EACH, EACH]);
}
