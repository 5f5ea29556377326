//! Cards by generation and firmware, as programs and tools see them (`ferroce run --card`).

use std::collections::BTreeMap;

use ferroce_interop::lab::{Finished, Lab};
use ferroce_testing::has;
use serde_json::Value;

/// Three numbers, ordered as firmware is.
type Version = [u32; 3];

/// A card, and what it has by `ferroce dev cards`.
struct Card {
    name: String,
    part_id: u64,
    firmware: Version,
    /// The first firmware with each feature; none if the card never has it.
    since: BTreeMap<String, Option<Version>>,
}

impl Card {
    fn has(&self, feature: &str) -> bool {
        self.since[feature].is_some_and(|since| self.firmware >= since)
    }

    fn version(&self) -> String {
        let [major, minor, sub_minor] = self.firmware;
        format!("{major}.{minor}.{sub_minor:04}")
    }

    fn option(&self) -> String {
        format!("-q --card {}:{}", self.name, self.version())
    }
}

fn version(text: &Value) -> Version {
    let parts = text.as_str().unwrap().split('.');
    let parts: Vec<u32> = parts.map(|part| part.parse().unwrap()).collect();
    parts.try_into().unwrap()
}

/// Each card with its newest and its oldest firmware, and with the one before each feature.
fn cards(lab: &Lab) -> Vec<Card> {
    let listed: Value = serde_json::from_str(&lab.ferroce("-j dev cards").success()).unwrap();
    let mut cards = Vec::new();
    for card in listed["cards"].as_array().unwrap() {
        let since: BTreeMap<_, _> = card["since"].as_object().unwrap().iter().collect();
        let since = since.into_iter();
        let since: BTreeMap<String, Option<Version>> = since
            .map(|(name, since)| (name.clone(), (!since.is_null()).then(|| version(since))))
            .collect();
        let oldest = version(&card["oldest_firmware"]);
        let mut firmware = vec![oldest, version(&card["newest_firmware"])];
        let later = since.values().flatten().filter(|it| **it > oldest);
        firmware.extend(later.map(|[major, minor, sub_minor]| [*major, *minor, sub_minor - 1]));
        firmware.sort_unstable();
        firmware.dedup();
        cards.extend(firmware.into_iter().map(|firmware| Card {
            name: card["card"].as_str().unwrap().to_owned(),
            part_id: card["vendor_part_id"].as_u64().unwrap(),
            firmware,
            since: since.clone(),
        }));
    }
    assert!(cards.len() > 15);
    cards
}

fn own_program(lab: &Lab) -> String {
    lab.path().join("prefix/bin/ferroce").display().to_string()
}

/// The value of a row that mlxreg or `ibv_devinfo` prints.
fn row<'a>(printed: &'a str, separator: char, name: &str) -> &'a str {
    let rows = printed
        .lines()
        .filter_map(|line| line.split_once(separator));
    let mut found = rows.filter(|(row, _)| row.trim() == name);
    found
        .next()
        .unwrap_or_else(|| panic!("{name}: {printed}"))
        .1
        .trim()
}

/// What mlxreg says of a register, by the device's name and through its node.
fn register(lab: &Lab, card: &Card, name: &str) -> Finished {
    let get = format!("{} mlxreg --reg_name {name} --get -d", own_program(lab));
    let options = card.option();
    let device = lab.run_with(&options, format!("{get} fr0")).finish();
    let node = lab
        .run_with(format!("{options} --fwctl"), format!("{get} fwctl0"))
        .finish();
    assert_eq!(
        device.status.code(),
        node.status.code(),
        "{options}: {node}"
    );
    assert_eq!(device.stdout, node.stdout, "{options}");
    node
}

#[test]
fn tools_find_the_registers_and_select_bits_of_each_firmware() {
    let lab = Lab::new("cards-registers");
    for card in cards(&lab) {
        let case = card.option();
        let accelerations = register(&lab, &card, "ROCE_ACCL");
        assert!(accelerations.status.success(), "{case}: {accelerations}");
        for (field, feature) in [
            ("roce_adp_retrans_field_select", "adaptive"),
            (
                "min_ack_timeout_limit_disabled_field_select",
                "min_ack_timeout",
            ),
            ("ack_dscp_force_field_select", "ack_dscp"),
            ("roce_tx_window_field_select", "tx_window"),
            ("roce_slow_restart_field_select", "slow_restart"),
            ("roce_slow_restart_idle_field_select", "restart_idle"),
            ("cc_burst_size_select", "cc_burst_size"),
            ("ifa2_turn_around_select", "ifa2"),
            ("adp_retx_profile_select", "profiles"),
            ("adp_retx_profile_max_id", "profiles"),
        ] {
            let shown = row(&accelerations.stdout, '|', field);
            let expected = format!("0x{:08x}", u32::from(card.has(feature)));
            assert_eq!(shown, expected, "{case}: {field}");
        }
        let capabilities = register(&lab, &card, "NIC_CAP_REG").stdout;
        let expected = format!("0x{:08x}", u32::from(card.has("histogram")));
        assert_eq!(
            row(&capabilities, '|', "adp_retx_histogram"),
            expected,
            "{case}"
        );
        for name in ["ADP_RETX_HISTOGRAM_CONFIG", "ADP_RETX_HISTOGRAM"] {
            let read = register(&lab, &card, name);
            assert_eq!(
                read.status.success(),
                card.has("histogram"),
                "{case}: {read}"
            );
            if !read.status.success() {
                has(&read.stderr, ["Register not supported"]);
            }
        }
    }
}

#[test]
fn programs_see_the_numbers_of_the_card() {
    let lab = Lab::new("cards-numbers");
    for card in cards(&lab) {
        let (case, fw) = (card.option(), card.version());
        let part_id = card.part_id.to_string();
        let info = lab.run_with(&case, "ibv_devinfo").success();
        assert_eq!(row(&info, ':', "fw_ver"), fw, "{case}");
        assert_eq!(row(&info, ':', "vendor_part_id"), part_id, "{case}");
        let files = "cd /sys/class/infiniband/fr0; cat fw_ver hca_type device/device";
        let files = lab.run_with(&case, ["sh", "-c", files]).success();
        let expected = format!("{fw}\nMT{part_id}\n{:#06x}\n", card.part_id);
        assert_eq!(files, expected, "{case}");
        let links = lab.run_with(&case, "rdma -j -d dev").success();
        let links: Value = serde_json::from_str(&links).unwrap();
        assert_eq!(links[0]["fw"], *fw, "{case}");
    }
    // The device itself stays what it is.
    let info = lab.run("ibv_devinfo").success();
    assert_eq!(row(&info, ':', "fw_ver"), "28.48.1000");
}

/// A program on an older card does not get what other programs have set there.
#[test]
fn an_older_card_takes_no_profile_and_follows_none() {
    let lab = Lab::new("cards-profile");
    let older = "-q --card cx7:28.44.1036";
    let refused = lab
        .run_with(format!("{older} --profile link-flap"), "true")
        .finish();
    assert!(!refused.status.success(), "{refused}");
    has(&refused.stderr, ["adp_retx_profile_select", "28.45.1020"]);
    lab.ferroce("adp apply link-flap fr0").success();
    let policy = |options: &str| {
        let show = format!("{} adp show -j", own_program(&lab));
        let shown: Value = serde_json::from_str(&lab.run_with(options, show).success()).unwrap();
        shown["policy"].clone()
    };
    assert_eq!(policy("-q"), "profile");
    assert_eq!(policy(older), "firmware");
}
