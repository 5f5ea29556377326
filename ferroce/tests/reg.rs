//! `ferroce reg`, `adp apply`, `show` and `emit`, `dev reset`: registers of a device, in words.

use serde_json::Value;

use crate::common::{self, Place, bad, good, has};

const VECTORS: &str = include_str!("../../crates/adp/tests/vectors/adp.json");

fn fast() -> String {
    format!(
        "{}/../profiles/fast-recovery.toml",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// The bytes of ROCE_ACCL, as mlxreg reads a register that it does not know.
fn raw(place: &Place) -> String {
    let args = "mlxreg -d a --reg_id 0x402c --reg_len 0x80 -g";
    let text = place.good(args);
    let dwords = text.lines().filter_map(|line| line.split_once(" | 0x"));
    dwords.map(|(_, dword)| dword).collect()
}

/// The PCI addresses that commands for cards use.
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
    has(&note, ["the histogram of av0 had other bins"]);
    has(&hist, ["read 3 adaptive"]);
    let error = place.bad(2, "dev reset 1a:00.1");
    has(&error, ["av0 is a VF of a"]);
    place.good("dev reset 1a:00.0");
    let show = place.good("adp show -d a");
    assert!(show.starts_with("# a: the firmware's own"), "{show}");
}

#[test]
fn a_profile_is_applied_shown_and_removed() {
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
}

/// The tool accepts the emitted commands, and they have the effect of `apply`.
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
}

#[test]
fn showing_what_a_card_would_get_needs_no_card() {
    // No machine has a PCI function there.
    let card = "ffff:1f:1f.7";
    let set = format!(
        "reg set ADP_RETX_HISTOGRAM_CONFIG -d {card} --dry-run bin_width_mode=BIN_DOUBLE \
         time_unit=TIME_MSEC count_enable=1 bin_num=5 bin0_width=50 bin1_width=100"
    );
    let (code, text, remark) = common::run(&set);
    assert_eq!(code, 0, "{remark}");
    has(
        &remark,
        ["is shown as 0, since ffff:1f:1f.7 cannot be read"],
    );
    let write = &text[text.rfind("ioctl").unwrap()..];
    has(
        write,
        [
            "\n0000: 08050000 00000000 0000c01d 00000000\n",
            "\n0010: 8d000000 05000000 00320064 00000000\n",
        ],
    );

    // For a profile, it is the register of a device to which it was applied.
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
