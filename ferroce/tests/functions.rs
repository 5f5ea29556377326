//! Virtual functions on the command line.

mod common;

use std::fs;
use std::path::Path;

use common::{Place, Words};
use serde_json::{Value, json};

fn json_of(place: &Place, args: impl Words) -> Value {
    serde_json::from_str(&place.good(args)).unwrap()
}

/// A card `a` with two VFs.
fn card(address: &str) -> Place {
    let place = Place::with("a", address);
    assert_eq!(place.good("dev set a vfs 2"), "");
    place
}

#[test]
fn a_card_is_added_with_its_vfs() {
    let place = Place::with("z", "127.30.64.9");
    let add = "dev add a 127.30.64.1 --vfs 2";
    place.good(format!("{add} pci 1a:00.0"));
    let shown = json_of(&place, "-j dev");
    let rows = &shown["devices"];
    let part = |row: usize, keys: &str| -> Vec<Value> {
        keys.split(' ').map(|key| rows[row][key].clone()).collect()
    };
    assert_eq!(
        part(0, "device vfs parent"),
        [json!("a"), json!(2), Value::Null]
    );
    let of_vf = "device address parent vhca_id pci vendor_part_id";
    let expected = [
        json!("av1"),
        json!("127.30.64.3"),
        json!("a"),
        json!(2),
        json!("0000:1a:00.2"),
        json!(0x101e),
    ];
    assert_eq!(part(2, of_vf), expected);
    let line = place.good("dev show av0");
    assert!(line.starts_with("1: av0: "), "{line}");
    assert!(line.ends_with(" parent a vhca_id 1\n"), "{line}");
    place.good("dev set a vf_address 127.30.64.100");
    let moved = json_of(&place, "-j dev show av1");
    assert_eq!(moved["devices"][0]["address"], "127.30.64.101");
    let clash = ["dev", "set", "a", "vf_address", "127.30.64.8"];
    let error = place.bad(2, clash);
    assert!(
        error.contains("av1 cannot have the address 127.30.64.9: the device z"),
        "{error}"
    );
    let removed = json_of(&place, "dev del a -j");
    assert_eq!(removed["removed"], json!(["a", "av0", "av1"]));
    let left = json_of(&place, "-j dev");
    assert_eq!(left["devices"].as_array().unwrap().len(), 2);
}

#[test]
fn registers_know_the_function_that_they_are_reached_by() {
    let place = card("127.30.65.1");
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../profiles/backoff.toml");
    let error = place.bad(2, format!("adp apply {profile} -d av0"));
    assert!(
        error.contains("av0: ") && error.contains("its PF a"),
        "{error}"
    );
    place.good(format!("adp apply {profile} -d a"));
    assert!(
        place
            .good("adp show -d av1")
            .starts_with("# av1: a profile")
    );
    // mlxreg reads and writes the whole register.
    let set = "mlxreg -d av1 --yes --reg_name ROCE_ACCL --set";
    place.good(format!("{set} min_ack_timeout_limit_disabled=1"));
    let (code, _, error) = place.run(format!("{set} roce_adp_retrans_en=0"));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("its PF a"), "{error}");
    let floors = ["a", "av0", "av1"].map(|name| {
        let get = json_of(&place, format!("reg get ROCE_ACCL -d {name} -j"));
        (
            get["fields"]["min_ack_timeout_limit_disabled"].clone(),
            get["fields"]["roce_adp_retrans_en"].clone(),
        )
    });
    let of = |floor: u8| (json!(floor), json!(1));
    assert_eq!(floors, [of(0), of(0), of(1)]);
    let hist = |name: &str, vhca_id: &str| {
        let args = format!("stat hist set {name} -t 0 -vid {vhca_id}");
        place.run(&args)
    };
    assert_eq!(hist("a", "2").0, 0);
    assert!(hist("a", "3").2.contains("vhca_id is 3; allowed: 0 to 2"));
    assert!(hist("av0", "0").2.contains("vhca_id is 0; allowed: 1"));
}

#[test]
fn vfs_are_where_tools_look_for_them() {
    let place = card("127.30.66.1");
    let sys = place.path().join("sys");
    place.good(format!("sysfs {}", sys.to_str().unwrap()));
    let pf = sys.join("class/infiniband/a/device");
    let read = |name: &str| fs::read_to_string(pf.join(name)).unwrap();
    assert_eq!(read("sriov_numvfs"), "2\n");
    let vf = sys.join("class/infiniband/av1/device");
    let pci = |at: &Path| {
        fs::canonicalize(at)
            .unwrap()
            .file_name()
            .unwrap()
            .to_owned()
    };
    assert_eq!(pci(&vf.join("physfn")), pci(&pf));
    assert_eq!(pci(&pf.join("virtfn1")), pci(&vf));
    assert_eq!(fs::read_to_string(vf.join("device")).unwrap(), "0x101e\n");
    assert!(!vf.join("sriov_numvfs").exists());
}
