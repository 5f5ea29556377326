//! Virtual functions on the command line.

use std::fs;
use std::path::Path;

use crate::common::Place;

/// A card `a` with two VFs.
fn card(address: &str) -> Place {
    let place = Place::with("a", address);
    assert_eq!(place.good("dev set a vfs 2"), "");
    place
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
