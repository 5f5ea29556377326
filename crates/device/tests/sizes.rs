//! How much memory queue pairs and devices take, as the system sees it. Alone in its process, so
//! that nothing else allocates meanwhile.
#![cfg(target_os = "linux")]

use ferroce_device::{
    AccessFlags, Attr, Hca, HcaConfig, Memory, Path, QpAttr, QpCap, QpInit, QpModify, QpState,
    QpType,
};

/// Bytes of memory that the process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split_whitespace().nth(1).unwrap();
    4096 * pages.parse::<usize>().unwrap()
}

#[test]
fn a_million_queue_pairs_and_thousands_of_devices_fit_in_memory() {
    const DEVICES: usize = 2_000;
    const QPS: usize = 60_000;
    // Whatever is allocated once.
    drop(Hca::new(HcaConfig::default()));

    let mut devices = Vec::with_capacity(DEVICES);
    let before = resident();
    for seed in 0..DEVICES as u64 {
        let mut hca = Hca::new(HcaConfig {
            seed,
            ..HcaConfig::default()
        });
        // At rest, with the objects that any program makes.
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(1 << 16).unwrap();
        let memory = Memory::Phantom { addr: 0, len: 8 };
        hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
        let init = init(pd, cq);
        hca.create_qp(&init).unwrap();
        devices.push(hca);
    }
    let device = (resident() - before) / DEVICES;

    let mut hca = Hca::new(HcaConfig::default());
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(1).unwrap();
    let init = init(pd, cq);
    let path = Path {
        dest: [10, 0, 0, 2].into(),
        traffic_class: 0,
        sl: 0,
        port: 1,
    };
    let before = resident();
    for _ in 0..QPS {
        let qpn = hca.create_qp(&init).unwrap();
        let attr = QpAttr {
            timeout: 14,
            retry_cnt: 7,
            ..QpAttr::default()
        };
        for change in [
            QpModify::init(attr),
            QpModify::rtr(attr),
            QpModify::rts(attr),
        ] {
            let path = change.mask.contains(Attr::AV).then_some(path);
            hca.modify_qp(qpn, &change, path).unwrap();
        }
        assert_eq!(hca.query_qp(qpn).unwrap().0, QpState::Rts);
    }
    let qp = (resident() - before) / QPS;
    println!("a device with a queue pair: {device} bytes; a queue pair: {qp} bytes");
    assert!(device <= 8192, "a device takes {device} bytes");
    assert!(qp <= 1024, "a queue pair takes {qp} bytes");
}

fn init(pd: ferroce_device::PdId, cq: ferroce_device::CqId) -> QpInit {
    QpInit {
        qp_type: QpType::Rc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap: QpCap::default(),
        signal_all: false,
    }
}
