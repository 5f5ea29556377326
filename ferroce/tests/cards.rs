//! The card that a device is: `dev add --card`, `dev set DEV card` and what refuses them.

use std::fs;

use ferroce_testing::has;
use serde_json::Value;

use crate::common::{Exporter, Place, metric};

fn device(place: &Place, name: &str) -> Value {
    let shown = place.good(format!("dev show {name} -j"));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown["devices"][0].clone()
}

/// Name, part and firmware of the card that a device is.
fn card(place: &Place, name: &str) -> String {
    let device = device(place, name);
    let keys = ["card", "vendor_part_id", "fw_ver"];
    keys.map(|key| device[key].to_string())
        .join(" ")
        .replace('"', "")
}

#[test]
fn a_device_is_the_card_that_it_is_added_as() {
    let place = Place::empty();
    place.good("dev add a 127.66.0.1");
    assert_eq!(card(&place, "a"), "cx7:28.48.1000 4129 28.48.1000");
    place.good("dev add b 127.66.0.2 --card cx8 --vfs 1");
    assert_eq!(card(&place, "b"), "cx8:40.47.2682 4131 40.47.2682");
    place.good("dev add c 127.66.0.4 --card bf3:32.46.1006");
    assert_eq!(card(&place, "c"), "bf3:32.46.1006 41692 32.46.1006");
    // Settings beside a card come after it.
    place.good("dev set a fw_ver 22.44.1036 card cx6dx");
    assert_eq!(card(&place, "a"), "cx6dx:22.44.1036 4125 22.44.1036");
    place.good("dev set a card=cx5");
    assert_eq!(card(&place, "a"), "cx5:16.35.8002 4119 16.35.8002");
    // Numbers of a card that is not in the table.
    place.good("dev set a vendor_part_id 4123 fw_ver 20.43.4100");
    assert_eq!(card(&place, "a"), "null 4123 20.43.4100");
}

#[test]
fn virtual_functions_are_of_the_card_of_their_pf() {
    let place = Place::empty();
    place.good("dev add a 127.66.0.1 --card cx8:40.46.1006 --vfs 1");
    assert_eq!(card(&place, "av0"), "cx8:40.46.1006 4126 40.46.1006");
    let (code, _, error) = place.run("reg get ADP_RETX_HISTOGRAM -d av0");
    assert_ne!(code, 0, "{error}");
    has(&error, ["from firmware 40.47.1000 on"]);
}

#[test]
fn metrics_have_the_numbers_of_the_card() {
    let place = Place::empty();
    place.good("dev add a 127.66.0.1 --card bf3:32.46.1006");
    let page = Exporter::start(&place).page();
    let labels =
        r#"board_id="FRC0000000001",device="a",firmware_version="32.46.1006",hca_type="MT41692""#;
    assert_eq!(
        metric(&page, &format!("node_infiniband_info{{{labels}}}")),
        1.0
    );
}

#[test]
fn a_device_without_a_card_in_its_file_is_what_it_always_was() {
    let place = Place::with("a", "127.66.0.1");
    let file = |name| {
        let file = place.registry().directory().join(format!("{name}.toml"));
        fs::read_to_string(file).unwrap()
    };
    place.good("dev add b 127.66.0.2 --card cx7");
    assert_eq!(file("a").replace("0.1", "0.2"), file("b"));
}

#[test]
fn unknown_cards_and_firmware_are_refused_with_the_known_ones() {
    let place = Place::with("a", "127.66.0.1");
    let before = card(&place, "a");
    for (card, reasons) in [
        (
            "cx77",
            [
                "no card is called \"cx77\"",
                "known: cx5, cx6dx, cx7, cx8, bf3",
                "did you mean cx7?",
            ],
        ),
        (
            "cx7:28.99.1000",
            [
                "cx7 has no firmware \"28.99.1000\"",
                "28.45.1020, 28.47.1000",
                "did you mean cx7:28.48.1000?",
            ],
        ),
        (
            "cx7:40.46.1006",
            [
                "cx7 has no firmware \"40.46.1006\"",
                "known: 28.33.2028",
                "did you mean cx8:40.46.1006?",
            ],
        ),
        (
            "cx5:x",
            [
                "cx5 has no firmware \"x\"",
                "known: 16.30.1284",
                "did you mean cx5:16.35.8002?",
            ],
        ),
    ] {
        for command in [
            format!("dev add b 127.66.0.2 --card {card}"),
            format!("dev set a card {card}"),
            format!("env --card {card}"),
        ] {
            let (code, _, error) = place.run(&command);
            assert_eq!(code, 2, "{command}: {error}");
            has(&error, reasons);
        }
        let mut command = place.command("dev");
        let refused = command.env("FERROCE_CARD", card).output().unwrap();
        let error = String::from_utf8(refused.stderr).unwrap();
        has(&error, ["FERROCE_CARD: "]);
        has(&error, reasons);
    }
    assert_eq!(card(&place, "a"), before);
    let (code, _, error) = place.run("env --card cx5 --as rxe");
    assert_eq!(code, 2, "{error}");
    has(&error, ["soft-RoCE is not a card"]);
}

#[test]
fn a_register_that_the_firmware_lacks_says_which_one_has_it() {
    let place = Place::empty();
    place.good("dev add a 127.66.0.1 --card cx7:28.44.1036");
    for (command, reasons) in [
        (
            "reg get ADP_RETX_HISTOGRAM -d a",
            [
                "ADP_RETX_HISTOGRAM is not supported",
                "from firmware 28.47.1000 on, and this one has 28.44.1036",
            ],
        ),
        (
            "adp apply link-flap a",
            [
                "adp_retx_profile_select = 1",
                "from firmware 28.45.1020 on, and this one has 28.44.1036",
            ],
        ),
    ] {
        let (code, _, error) = place.run(command);
        assert_ne!(code, 0, "{command}");
        has(&error, reasons);
        has(&error, ["`ferroce dev set`"]);
    }
    place.good("dev set a card cx7");
    place.good("reg get ADP_RETX_HISTOGRAM -d a");
    place.good("adp apply link-flap a");
}
