//! Hosts: a device, and what it needs to communicate.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{IpAddr, Ipv4Addr};

use ferroce_device::{
    AccessFlags, Attr, CqId, Hca, HcaConfig, Memory, MrInfo, Outgoing, Path, PdId, QpAttr, QpCap,
    QpInit, QpModify, QpType, Qpn, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge, Sges, SrqId,
    VerbsError,
};
use ferroce_transport::Qp;
use ferroce_wire::Psn;

use crate::workload::TRANSFER_BYTES_MAX;

/// Completions that one host may have waiting.
const CQ_ENTRIES: u32 = 1 << 16;
/// Receives that a host has posted, and those that it has if receivers keep what comes after a loss.
const RECEIVES: u32 = 8;
const RECEIVES_MAX: u32 = 1_024;

/// Returns the address with a [number](crate::Topology::address), that of a host with one port, starting
/// at 10.0.0.1.
pub fn address(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0001 + number).into()
}

/// The number of an address.
#[inline]
pub(crate) fn number_of(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => address.to_bits().checked_sub(0x0a00_0001),
        IpAddr::V6(_) => None,
    }
}

/// A host: a device, and what it needs to communicate.
#[derive(Debug)]
pub struct Host {
    /// The device.
    pub hca: Hca,
    /// Its number among all hosts.
    pub(crate) number: u32,
    /// The completion queue of all its queue pairs.
    pub cq: CqId,
    pd: PdId,
    memory: MrInfo,
    /// What its receivers take their receives from.
    srq: SrqId,
    /// Receives that are posted there.
    receives: u32,
    /// The UDP source port of what goes to a queue pair at another address.
    ports: HashMap<u64, u16, BuildHasherDefault<Mixer>>,
    /// Nothing leaves it and nothing is heard.
    pub(crate) is_silent: bool,
}

impl Host {
    pub(crate) fn new(number: u32, hca: Hca) -> Result<Self, VerbsError> {
        let mut hca = hca;
        let pd = hca.alloc_pd()?;
        let cq = hca.create_cq(CQ_ENTRIES)?;
        let memory = Memory::Phantom {
            addr: 1 << 32,
            len: TRANSFER_BYTES_MAX.into(),
        };
        let memory = hca.reg_mr(pd, memory, AccessFlags::all())?;
        let srq = hca.create_srq(pd, RECEIVES_MAX, 1)?;
        Ok(Self {
            hca,
            number,
            cq,
            pd,
            memory,
            srq,
            receives: 0,
            ports: HashMap::default(),
            is_silent: false,
        })
    }

    /// Creates an RC queue pair in RESET.
    pub fn create_qp(&mut self, depth: u32) -> Result<Qpn, VerbsError> {
        let init = QpInit {
            cap: QpCap {
                max_send_wr: depth,
                max_recv_wr: depth,
                ..QpCap::default()
            },
            ..QpInit::new(QpType::Rc, self.pd, self.cq)
        };
        self.hca.create_qp(&init)
    }

    /// Creates an RC queue pair in RESET that takes its receives from those of the host.
    pub(crate) fn create_receiver(&mut self) -> Result<Qpn, VerbsError> {
        let init = QpInit {
            srq: Some(self.srq),
            ..QpInit::new(QpType::Rc, self.pd, self.cq)
        };
        self.hca.create_qp(&init)
    }

    /// Posts receives for a receiver, so that there are always some. A packet that fills a gap can complete many
    /// messages at the same moment.
    pub(crate) fn provide_receives(&mut self, receiver: Qpn) -> Result<(), VerbsError> {
        let keeps = self.hca.qp(receiver).is_some_and(Qp::repeats_selectively);
        let wanted = if keeps { RECEIVES_MAX } else { RECEIVES };
        while self.receives < wanted {
            self.receives += 1;
            self.provide_receive()?;
        }
        Ok(())
    }

    /// Posts a receive in place of one that was used.
    pub(crate) fn provide_receive(&mut self) -> Result<(), VerbsError> {
        self.hca.post_srq_recv(self.srq, Self::receive(0))
    }

    /// Connects a queue pair to one of another host, and brings it to RTS. The path leads to that
    /// host's [`address`].
    pub fn connect(
        &mut self,
        qpn: Qpn,
        peer_qpn: Qpn,
        path: Path,
        attr: QpAttr,
    ) -> Result<(), VerbsError> {
        let attr = QpAttr {
            access: AccessFlags::all(),
            dest_qpn: peer_qpn,
            port: path.port,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            ..attr
        };
        for change in [
            QpModify::init(attr),
            QpModify::rtr(attr),
            QpModify::rts(attr),
        ] {
            let path = change.mask.contains(Attr::AV).then_some(path);
            self.hca.modify_qp(qpn, &change, path)?;
        }
        if let Some(peer) = number_of(path.dest) {
            let port = crate::route::udp_source_port(qpn, peer_qpn);
            self.ports.insert(key(peer, peer_qpn), port);
        }
        Ok(())
    }

    /// The UDP source port of a packet to this address.
    #[inline]
    pub(crate) fn source_port(&self, dest: u32, packet: &Outgoing) -> u16 {
        let port = self.ports.get(&key(dest, packet.headers.dest_qp));
        let port = port.copied().unwrap_or(0xc000);
        crate::route::port_with_entropy(port, packet.entropy)
    }

    /// Returns a WRITE with immediate data, which the receiver notices, of `bytes` into memory of a
    /// host. The immediate data is the lower half of `wr_id`.
    pub fn write(&self, to: &MrInfo, bytes: u32, wr_id: u64) -> SendWr {
        SendWr {
            wr_id,
            op: SendOp::Write {
                va: to.va,
                rkey: to.key.rkey(),
                imm: Some(wr_id as u32),
            },
            flags: SendFlags::SIGNALED,
            sges: Sges::from_iter([Sge {
                addr: self.memory.va,
                length: bytes,
                lkey: self.memory.key.lkey(),
            }]),
            inline: None,
            to: SendTo::Peer,
        }
    }

    /// Returns its registered memory, which reads as zeros and stores nothing.
    pub fn memory(&self) -> &MrInfo {
        &self.memory
    }

    /// Returns a receive that takes no bytes.
    pub fn receive(wr_id: u64) -> RecvWr {
        RecvWr {
            wr_id,
            sges: Sges::new(),
        }
    }
}

/// Returns the configuration of a device that is a card on a port of a fabric.
pub fn card(seed: u64) -> HcaConfig {
    HcaConfig {
        seed,
        // No receive buffer of a socket is to be spared.
        window_bytes: 4 << 20,
        trace_timers: true,
        ..HcaConfig::default()
    }
}

fn key(address: u32, qpn: Qpn) -> u64 {
    u64::from(address) << 32 | u64::from(u32::from(qpn))
}

/// Mixes one number: no outsider chooses keys.
#[derive(Default, Debug)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
