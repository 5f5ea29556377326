//! iSCSI over RDMA: tgt's disk, and libiscsi as the initiator.

use ferroce_interop::lab::{Lab, Ready, free_port, until};
use ferroce_testing::has;

const INITIATOR: &str = "iqn.2026-11.example:initiator";
const TARGET: &str = "iqn.2026-11.example:disk";

/// A SCSI disk is written and read; the initiator compares the bytes.
#[test]
fn a_disk_of_tgt_for_libiscsi() {
    let mut lab = Lab::new("iser");
    let socket = lab.path().join("state/tgt");
    lab.set("TGT_IPC_SOCKET", socket.to_str().unwrap());
    let (tcp, rdma) = (free_port(), free_port());
    let portal = format!("portal={}:{tcp}", lab.address());
    let port = format!("port={rdma}");
    let tgtd = lab.run(["/usr/sbin/tgtd", "-f", "--iscsi", &portal, "--iser", &port]);
    let tgtd = Ready::Cm(rdma).wait(&lab, tgtd);
    let admin = |args: &[&str]| {
        let command = ["/usr/sbin/tgtadm", "--lld", "iser", "--tid", "1", "--op"];
        lab.beside([&command[..], args].concat()).finish()
    };
    let new = ["new", "--mode", "target", "-T", TARGET];
    until("tgtd to take commands", || {
        admin(&new).status.success().then_some(())
    });
    let disk = lab.path().join("state/disk");
    let disk = disk.to_str().unwrap();
    lab.beside(["truncate", "-s", "16M", disk]).success();
    for args in [
        &["new", "--mode", "logicalunit", "--lun", "1", "-b", disk][..],
        &["bind", "--mode", "target", "-I", "ALL"],
        // tgt before 1.0.95 wants this as well for iSER.
        &["bind", "--mode", "target", "-Q", INITIATOR],
    ] {
        let finished = admin(args);
        assert!(finished.status.success(), "{finished}");
    }
    let url = format!("iser://{}:{rdma}/{TARGET}/1", lab.address());
    let inquiry = lab.run(["iscsi-inq", "-i", INITIATOR, &url]).success();
    has(&inquiry, ["Product:VIRTUAL-DISK"]);
    // libiscsi 1.19 reads fields of its connection that it never wrote; glibc writes zeros there.
    // It may also crash after it has disconnected, so its output counts.
    lab.set("MALLOC_PERTURB_", "255");
    let common = ["iscsi-test-cu", "-i", INITIATOR, "--dataloss", "-t"];
    for (suite, test) in [("SCSI.OrWrite", "Verify"), ("SCSI.Read16", "Simple")] {
        let args = [&common[..], &[suite, &url]].concat();
        let finished = lab.run(&args).finish();
        let passed = format!("Test: {test} ...passed");
        assert!(finished.stdout.contains(&passed), "{finished}");
        assert!(!finished.stdout.contains("FAIL"), "{finished}");
    }
    tgtd.kill();
}
