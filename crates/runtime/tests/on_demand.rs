//! Regions of memory that the program unmaps.

use std::ptr;

use ferroce_device::{
    AccessFlags, CqId, Hca, HcaConfig, Memory, MrInfo, QpAttr, QpInit, QpType, RegFlags, SendOp,
    SendWr, Sge, Time, WcStatus,
};
use ferroce_runtime::own_memory;
use ferroce_testing::direct::connected;
use ferroce_wire::Qpn;

const PAGE: usize = 4096;

struct World {
    hca: Hca,
    qpn: Qpn,
    cq: CqId,
    region: MrInfo,
}

/// A device with a queue pair that may send, and the whole address space as a region.
fn world() -> World {
    let mut hca = Hca::new(HcaConfig::default());
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(8).unwrap();
    let flags = RegFlags::from_bits(1 | 1 << 6).unwrap();
    assert!(flags.is_implicit(0, u64::MAX).unwrap());
    // SAFETY: nothing is written through this region.
    let memory = unsafe { Memory::checked(0, u64::MAX, own_memory().unwrap()) };
    let region = hca.reg_mr(pd, memory, flags.access).unwrap();
    let init = QpInit::new(QpType::Rc, pd, cq);
    let qpn = connected(&mut hca, &init, [127, 12, 0, 2], QpAttr::default());
    World {
        hca,
        qpn,
        cq,
        region,
    }
}

fn page() -> *mut libc::c_void {
    // SAFETY: the kernel chooses the place of a new mapping, which is not memory in use.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    page
}

#[test]
fn sending_unmapped_memory_is_a_protection_error() {
    let World {
        mut hca,
        qpn,
        region,
        ..
    } = world();
    assert_eq!(region.access, AccessFlags::LOCAL_WRITE);
    let page = page();
    // SAFETY: the page is ours, and a byte needs no alignment.
    unsafe { page.cast::<u8>().write(0x5a) };
    let sge = Sge {
        addr: page as u64,
        length: 100,
        lkey: region.key.lkey(),
    };
    let send = SendOp::Send { imm: None };
    hca.post_send(qpn, SendWr::new(1, send, sge)).unwrap();
    let packet = hca.poll_transmit(Time::ZERO).expect("it is mapped");
    let mut payload = [1; 100];
    assert!(hca.gather(&packet, &mut payload));
    assert_eq!(payload[..2], [0x5a, 0]);

    // SAFETY: nothing uses the page except the device, which checks.
    assert_eq!(unsafe { libc::munmap(page, PAGE) }, 0);
    assert!(!hca.gather(&packet, &mut payload));

    let World {
        mut hca,
        qpn,
        cq,
        region,
    } = world();
    let sge = Sge {
        lkey: region.key.lkey(),
        ..sge
    };
    hca.post_send(qpn, SendWr::new(3, send, sge)).unwrap();
    assert!(hca.poll_transmit(Time::ZERO).is_none());
    let done = hca.poll_completion(cq).unwrap().expect("it fails at once");
    assert_eq!((done.wr_id, done.status), (3, WcStatus::LocProtErr));
}
