//! `ferroce reg`, `adp apply`, `show` and `emit`, `dev reset`: registers of a device, in words.

mod common;

use common::{Place, bad, good, good_json};
use serde_json::{Value, json};

const VECTORS: &str = include_str!("../../crates/adp/tests/vectors/adp.json");

fn fast() -> String {
    format!(
        "{}/../profiles/fast-recovery.toml",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// The bytes of ROCE_ACCL, read as mlxreg reads a register that it does not know.
fn raw(place: &Place) -> String {
    let args = "mlxreg -d a --reg_id 0x402c --reg_len 0x80 -g";
    let text = place.good(args);
    let dwords = text.lines().filter_map(|line| line.split_once(" | 0x"));
    dwords.map(|(_, dword)| dword).collect()
}

#[test]
fn registers_are_listed_and_shown_without_a_device() {
    let list = good_json("reg list -j");
    let registers = list["registers"].as_array().unwrap().iter();
    let ids: Vec<_> = registers.map(|it| &it["register_id"]).collect();
    assert_eq!(ids, [0xc01e, 0xc01d, 0x9028, 0x9020, 0xc00d, 0x402c]);
    assert!(good("reg list").contains("ROCE_ACCL"));
    let text = good("reg explain roce_accl");
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("dec_mode_2 ").contains("0x20  27:26  RW"), "{text}");
    let (_, meaning) = text.split_once(line("dec_mode_2 ")).unwrap();
    assert!(
        meaning.trim_start().starts_with("How the timeout shrinks"),
        "{meaning}"
    );
    let fields = good_json("reg explain 0xc01d -j");
    assert_eq!(fields["fields"][0]["name"], "time_unit_cap");
    assert_eq!(fields["fields"][2]["values"]["TIME_MSEC"], 3);
}

#[test]
fn a_field_is_written_alone() {
    let place = Place::with("a", "127.63.1.1");
    let set = |fields: &str| {
        let args = format!("reg set ROCE_ACCL -d a {fields}");
        assert_eq!(place.good(&args), "");
    };
    let get = || -> Value {
        let args = "reg get ROCE_ACCL -d a -j";
        let mut held: Value = serde_json::from_str(&place.good(args)).unwrap();
        held["fields"].take()
    };
    let before = get();
    assert_eq!(before["roce_adp_retrans_en"], 1);
    assert_eq!(before["adp_retx_base_timeout_min"], 4000);
    set("ack_dscp_force=1 ack_dscp=0x1a");
    let mut expected = before.clone();
    expected["ack_dscp_force"] = json!(1);
    expected["ack_dscp"] = json!(26);
    assert_eq!(get(), expected);
    set("roce_adp_retrans_en=0");
    expected["roce_adp_retrans_en"] = json!(0);
    assert_eq!(get(), expected);
    assert_eq!(place.good("dev reset a"), "");
    assert_eq!(get(), before);
}

#[test]
fn only_a_trigger_that_is_named_resets() {
    let place = Place::with("a", "127.31.1.1");
    let reset = raw(&place);
    place.good("reg set ROCE_ACCL -d a ack_dscp=3");
    let before = raw(&place);
    assert_ne!(before, reset);
    let method = "pci_reset_req_method=Hot_Reset";
    let error = place.bad(2, format!("reg set MFRL -d a {method}"));
    assert!(error.contains("reset_trigger = 0: the only"), "{error}");
    assert_eq!(raw(&place), before);
    let trigger = "reset_trigger=TRIGGER3";
    place.good(format!("reg set MFRL -d a {method} {trigger}"));
    assert_eq!(raw(&place), reset);
}

/// As they are called in commands for cards.
#[test]
fn devices_have_pci_addresses_for_names() {
    let place = Place::with("a", "127.40.63.1");
    place.good("dev set a pci 0000:1a:00.0 vfs 1");
    for (pci, dscp) in [("0000:1a:00.0", "1"), ("1A:00.0", "2")] {
        let dscp = format!("ack_dscp={dscp}");
        place.good(format!("reg set ROCE_ACCL {dscp} -d {pci}"));
        let get = |name| place.good(format!("mlxreg -d {name} --reg_name ROCE_ACCL -g"));
        assert_eq!(get(pci), get("a"));
        let show = place.good("reg get ROCE_ACCL -d a -j");
        let show: Value = serde_json::from_str(&show).unwrap();
        assert_eq!(format!("ack_dscp={}", show["fields"]["ack_dscp"]), dscp);
    }
    place.good(format!("adp apply {} -d 1a:00.0", fast()));
    let show = place.good("adp show -d 1a:00.1");
    assert!(show.starts_with("# av0: a profile"), "{show}");
    let (code, hist, note) = place.run("stat hist set 1a:00.1 -n 3 -t 0");
    assert_eq!(code, 0, "{note}");
    assert!(
        note.contains("the histogram of av0 had other bins"),
        "{note}"
    );
    assert!(hist.contains("read 3 adaptive"), "{hist}");
    let error = place.bad(2, "dev reset 1a:00.1");
    assert!(error.contains("av0 is a VF of a"), "{error}");
    place.good("dev reset 1a:00.0");
    let show = place.good("adp show -d a");
    assert!(show.starts_with("# a: the firmware's own"), "{show}");
}

#[test]
fn values_have_names() {
    let place = Place::with("a", "127.63.1.2");
    let set = "bin_width_mode=BIN_FIXED time_unit=TIME_USEC bin_num=3";
    let args = format!("reg set ADP_RETX_HISTOGRAM_CONFIG -d a {set}");
    assert_eq!(place.good(&args), "");
    let text = place.good("reg get adp_retx_histogram_config -d a");
    for line in [
        "bin_width_mode      0  BIN_FIXED",
        "time_unit           1  TIME_USEC",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let text = place.good("reg get ADP_RETX_HISTOGRAM -d a -j");
    let held: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(held["fields"]["bin_num"], 3);
    assert_eq!(held["histogram_bins"], json!([0, 0, 0]));
    let text = place.good("reg get MGIR -d a");
    assert!(
        text.contains("hw_dev_id                       536  0x218"),
        "{text}"
    );
}

#[test]
fn a_profile_is_applied_shown_and_taken_away() {
    let place = Place::with("a", "127.63.1.4");
    let show = || place.good("adp show -d a");
    assert_eq!(
        show(),
        "# a: the firmware's own timeouts, minimum ACK timeout enforced\n"
    );
    assert_eq!(place.good(format!("adp apply {} -d a", fast())), "");
    let text = show();
    assert!(text.starts_with("# a: a profile, "), "{text}");
    let shown = common::scratch("shown", &text);
    assert_eq!(
        good(format!("adp encode {shown}")),
        good(format!("adp encode {}", fast()))
    );
    let facts: Value = serde_json::from_str(&place.good("adp show -d a -j")).unwrap();
    assert_eq!(facts["profile_id"], 1);
    assert_eq!(facts["profile"]["time_base"], 4);
    place.good("reg set ROCE_ACCL roce_adp_retrans_en=0 -d a");
    let (code, _, remark) = place.run(format!("adp apply {} -d a", fast()));
    assert_eq!(code, 0);
    assert!(
        remark.contains("adaptive retransmission is off on a"),
        "{remark}"
    );
    place.good("dev reset a");
    assert!(show().contains("the firmware's own timeouts"));
}

/// What is emitted for the tools is what the tool takes, and makes what `apply` makes.
#[test]
fn emitted_commands_write_the_profile() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let place = Place::with("a", "127.63.1.5");
    for vector in vectors.as_array().unwrap() {
        let payload = vector["set_payload"].as_str().unwrap();
        let name = vector["name"].as_str().unwrap();
        let file = common::scratch(name, &good(format!("adp decode {payload}")));
        place.good("dev reset a");
        place.good(format!("adp apply {file} -d a"));
        let expected = raw(&place);
        assert_eq!(expected[32..], payload[32..], "{name}");
        for tool in ["mlxreg", "mlxreg-raw", "mstreg", "ferroce"] {
            place.good("dev reset a");
            let emitted = good(format!("adp emit {file} --tool {tool} -d a"));
            // The words of the command, its options without their quotation marks.
            let words: Vec<_> = emitted
                .split_whitespace()
                .map(|w| w.trim_matches('"'))
                .collect();
            let args = match words[0] {
                "ferroce" => words[1..].to_vec(),
                tool => {
                    assert!(["mlxreg", "mstreg"].contains(&tool));
                    [&["mlxreg"], &words[1..]].concat()
                }
            };
            place.good(&args);
            assert_eq!(raw(&place), expected, "{emitted}");
        }
    }
    for (tool, expected) in [
        ("mlxreg", "mlxfwreset -d 3a:00.0 --yes reset\n"),
        ("mlxreg-raw", "mlxfwreset -d 3a:00.0 --yes reset\n"),
        ("mstreg", "mstfwreset -d 3a:00.0 --yes reset\n"),
        ("ferroce", "mstfwreset -d 3a:00.0 --yes reset\n"),
    ] {
        let args = format!("adp emit {} --tool {tool} --undo -d 3a:00.0", fast());
        assert_eq!(good(&args), expected);
    }
    let args = format!("adp emit {} --tool ferroce --undo -d", fast());
    let undo = good(format!("{args} a"));
    assert_eq!(undo, "ferroce adp reset a\n");
}

#[test]
fn what_would_be_sent_to_a_card_needs_no_card() {
    // No machine has a PCI function there.
    let card = "ffff:1f:1f.7";
    let get = format!("reg get ROCE_ACCL -d {card} -i 1 --dry-run");
    let text = good(&get);
    assert!(
        text.contains("scope 1 (DebugReadOnly), in_len 144, out_len 144\n"),
        "{text}"
    );
    assert!(
        text.contains("\n0010: 00000000 10000000 00000000 00000000\n"),
        "{text}"
    );

    let mut set = vec![
        "reg",
        "set",
        "ADP_RETX_HISTOGRAM_CONFIG",
        "-d",
        card,
        "--dry-run",
    ];
    set.extend([
        "bin_width_mode=BIN_DOUBLE",
        "time_unit=TIME_MSEC",
        "count_enable=1",
    ]);
    set.extend(["bin_num=5", "bin0_width=50", "bin1_width=100"]);
    let (code, text, remark) = common::run(&set);
    assert_eq!(code, 0, "{remark}");
    assert!(
        remark.contains("is shown as 0, since ffff:1f:1f.7 cannot be read"),
        "{remark}"
    );
    let write = &text[text.rfind("ioctl").unwrap()..];
    assert!(
        write.contains("\n0000: 08050000 00000000 0000c01d 00000000\n"),
        "{write}"
    );
    assert!(
        write.contains("\n0010: 8d000000 05000000 00320064 00000000\n"),
        "{write}"
    );

    // Of a profile it is what a device has after it was applied there.
    let file = fast();
    let text = good(format!("adp apply {file} -d {card} --dry-run"));
    let lines = text
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(": "));
    let sent: String = lines.map(|(_, dwords)| dwords.replace(' ', "")).collect();
    let place = Place::with("a", "127.65.1.1");
    place.good(format!("adp apply {file} -d a"));
    assert_eq!(sent.len(), 2 * 0x80);
    assert!(sent.starts_with("1000000010000000"), "{sent}");
    assert_eq!(sent[2 * 0x10..], raw(&place)[2 * 0x10..]);

    let error = bad(format!("reg get ROCE_ACCL -d {card}"));
    assert!(
        error.contains("modprobe mlx5_fwctl") || error.contains("available: fwctl"),
        "{error}"
    );
}
