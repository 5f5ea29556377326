//! A device with its memory, and the objects that its script has made.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_admission::{Bounds, Shares};
use ferroce_device::{
    AccessFlags, Buffer, Completion, Hca, HcaConfig, HostProfile, Memory, MrInfo, PdId,
    Personality, QpState, QpType, Qpn, Rate, Secret, Settings, Sge, Time, TimerExpiry, WcStatus,
    XrcdId,
};

use ferroce_transport::Qp;

use super::border::Border;
use super::cm::Program;
use super::faults::{OPTIONS, half_handshakes, write_field};
use super::outages::Links;
use super::queues::Completions;
use crate::model::{QueuePair, Region, SharedQueue};
use crate::network::{Flight, Weather, address};
use crate::pattern;
use crate::script::{Script, Step};
use crate::windows::Window;

/// Where sources are in the address space of their device.
const SOURCE_VA: u64 = 1 << 32;
/// Where the landing ground is.
const LANDING_VA: u64 = 1 << 33;
/// Bytes between two places of a landing ground, which must not change.
const GUARD: usize = 24;
/// Bytes of the place at the end of a landing ground, for receives of which only the completion counts.
const RESCUE: usize = pattern::MESSAGE_MAX;
/// Completions that the usual completion queue holds.
const LARGE: u32 = 1 << 20;
/// What a landing ground holds where nothing has landed.
pub(crate) const UNTOUCHED: u8 = 0xa5;

/// Completions with errors, as counters count them.
#[derive(Default)]
pub(crate) struct Errors {
    pub(crate) sends: u64,
    pub(crate) flushed_sends: u64,
    pub(crate) receives: u64,
    pub(crate) flushed_receives: u64,
    pub(crate) retries: u64,
    pub(crate) rnr_retries: u64,
}

impl Errors {
    pub(crate) fn count(&mut self, is_receive: bool, wc: &Completion) {
        let status = wc.status;
        // The oldest request of a queue pair that was moved to ERR was not flushed behind another.
        let flushed =
            u64::from(status == WcStatus::WrFlushErr && wc.vendor_err == status.vendor_err());
        match (is_receive, status) {
            (_, WcStatus::Success) => {}
            (true, _) => {
                self.receives += 1;
                self.flushed_receives += flushed;
            }
            (false, _) => {
                self.sends += 1;
                self.flushed_sends += flushed;
                self.retries += u64::from(status == WcStatus::RetryExcErr);
                self.rnr_retries += u64::from(status == WcStatus::RnrRetryExcErr);
            }
        }
    }
}

/// A host.
pub(crate) struct Host {
    pub(crate) hca: Hca,
    pub(crate) number: usize,
    pub(crate) address: IpAddr,
    pub(crate) links: Links,
    /// Its timers are coarse, as those of cards.
    pub(crate) coarse: bool,
    /// What it sends again slows it down.
    pub(crate) restarts_slowly: bool,
    pub(crate) is_card: bool,
    /// It repeats what is missing and no more, or has done so.
    pub(crate) selective: bool,
    /// Its own link may lose packets.
    pub(crate) loses: bool,
    /// Completions may have gone with their queue pair before they were polled.
    pub(crate) forgets: bool,
    /// The number of its device among all that there have been.
    pub(crate) incarnation: u64,
    /// When it started.
    pub(crate) began: Time,
    /// Shared receive queues, by their numbers in the script.
    pub(crate) srqs: HashMap<u64, SharedQueue>,
    /// Timers that have expired.
    pub(crate) expiries: Vec<TimerExpiry>,
    /// The histogram was not reset.
    pub(crate) histogram_kept: bool,
    pub(crate) pds: [PdId; 2],
    /// Completion queues, by their numbers in the script; 0 is that of all others.
    pub(crate) cqs: HashMap<u64, Completions>,
    /// Its program polls none of them before, and has not since it became idle.
    pub(crate) idle_until: Option<Time>,
    /// XRC domains.
    pub(crate) xrcds: [XrcdId; 2],
    /// What messages are sent from, for each protection domain.
    pub(crate) sources: [MrInfo; 2],
    /// Where receives and responses go, for each protection domain.
    pub(crate) landings: [MrInfo; 2],
    pub(crate) landing: Buffer,
    landing_used: usize,
    /// What its program knows of connections.
    pub(crate) program: Program,
    /// Rules at its verbs.
    pub(crate) border: Border,
    /// Its process does not run.
    pub(crate) stopped: bool,
    /// What has arrived meanwhile.
    pub(crate) backlog: Vec<Flight>,
    pub(crate) weather: Weather,
    /// The deadline that an event stands for.
    pub(crate) deadline: Option<Time>,
    /// Packets and bytes that left the device.
    pub(crate) sent: (u64, u64),
    /// Packets given to the device.
    pub(crate) taken: u64,
    pub(crate) errors: Errors,
    pub(crate) qps: Vec<QueuePair>,
    /// Places in `qps`, by the numbers in the script.
    pub(crate) ids: HashMap<u64, usize>,
    /// Places in `qps`, by the device's numbers.
    pub(crate) qpns: HashMap<Qpn, usize>,
    /// Places among all memory windows, by the numbers in the script.
    pub(crate) windows: HashMap<u64, usize>,
    /// Places among all regions, by the numbers in the script.
    pub(crate) regions: HashMap<u64, usize>,
}

/// Bytes that the landing ground of each host needs.
pub(crate) fn landing_bytes(script: &Script) -> Vec<usize> {
    let mut bytes = Vec::new();
    for line in &script.lines {
        let len = match line.step {
            Step::Recv { len, .. } | Step::SrqRecv { len, .. } | Step::Read { len, .. } => {
                clamped(len)
            }
            Step::Add { .. } | Step::Swap { .. } => 8,
            _ => continue,
        };
        if bytes.len() <= line.host {
            bytes.resize(line.host + 1, 0);
        }
        bytes[line.host] += place_bytes(len);
    }
    bytes
}

/// The length of a message that a script asks for.
pub(crate) fn clamped(len: u64) -> usize {
    (len as usize).min(pattern::MESSAGE_MAX)
}

fn place_bytes(len: usize) -> usize {
    len.next_multiple_of(8) + GUARD
}

impl Host {
    /// A host with a device: on sockets, or a card with a port of `mbps` Mb/s.
    ///
    /// `identity` is its number, and that of its device among all that there have been.
    pub(crate) fn new(
        (number, incarnation): (usize, u64),
        seed: u64,
        began: Time,
        [mbps, options, window, links]: [u64; 4],
        landing: usize,
    ) -> Self {
        let mut config = HcaConfig {
            seed: seed ^ incarnation,
            secret: Some(Secret::new(
                u128::from(seed) << 64 | u128::from(incarnation),
            )),
            personality: Personality {
                min_ack_timeout: 4,
                initial_exponent: Some(4),
                quantiser: options & 8 != 0,
                ..Personality::default()
            },
            trace_timers: true,
            ..HcaConfig::default()
        };
        if window > 0 {
            config.window_bytes = window as u32;
        }
        let settings = match options & 16 {
            0 => Arc::new(Settings::new(config.personality)),
            _ => half_handshakes(config.personality),
        };
        if mbps > 0 {
            config.host = HostProfile::card(Rate::from_mbps(mbps as u32)).into();
        }
        let mut hca = Hca::with_settings(config, settings);
        if mbps == 0 {
            hca = hca.with_admission(Box::new(Shares::new(Bounds::default(), None)));
        }
        let (links, mut hca) = Links::of(links, hca);
        for (bit, field, value) in OPTIONS {
            if options & bit != 0 {
                write_field(&mut hca, field, value).expect("the register has this field");
            }
        }
        let pds = [(); 2].map(|()| hca.alloc_pd().expect("a new device has room"));
        let cq = hca.create_cq(LARGE).expect("a new device has room");
        let xrcds = [(); 2].map(|()| hca.alloc_xrcd().expect("a new device has room"));
        let source = Buffer::zeroed(pattern::bytes().len());
        source.write(0, pattern::bytes());
        let ground = Buffer::zeroed(landing + GUARD + RESCUE);
        ground.write(0, &vec![UNTOUCHED; landing + GUARD]);
        let mut register = |buffer: &Buffer, va, access| {
            pds.map(|pd| {
                let memory = Memory::Buffer(buffer.clone());
                hca.reg_mr_iova(pd, memory, va, access)
                    .expect("a new device has room")
            })
        };
        let sources = register(&source, SOURCE_VA, AccessFlags::empty());
        let landings = register(&ground, LANDING_VA, AccessFlags::LOCAL_WRITE);
        Self {
            hca,
            number,
            address: address(number),
            links,
            coarse: options & 8 != 0,
            restarts_slowly: options & 4 != 0,
            selective: options & 3 != 0,
            is_card: mbps > 0,
            loses: false,
            forgets: false,
            incarnation,
            began,
            srqs: HashMap::new(),
            expiries: Vec::new(),
            histogram_kept: true,
            pds,
            cqs: HashMap::from([(0, Completions::new(cq, LARGE))]),
            idle_until: None,
            xrcds,
            sources,
            landings,
            landing: ground,
            landing_used: GUARD,
            program: Program::default(),
            border: Border::default(),
            stopped: false,
            backlog: Vec::new(),
            weather: Weather::default(),
            deadline: None,
            sent: (0, 0),
            taken: 0,
            errors: Errors::default(),
            qps: Vec::new(),
            ids: HashMap::new(),
            qpns: HashMap::new(),
            windows: HashMap::new(),
            regions: HashMap::new(),
        }
    }

    /// The queue pair with a number of the script, if it is there.
    pub(crate) fn qp(&self, id: u64) -> Option<usize> {
        let place = *self.ids.get(&id)?;
        (!self.qps[place].gone).then_some(place)
    }

    fn domain(&self, pd: PdId) -> usize {
        usize::from(pd == self.pds[1])
    }

    /// A part of the sources, for a queue pair of this protection domain.
    pub(crate) fn source(&self, pd: PdId, at: usize, len: usize) -> Sge {
        let source = &self.sources[self.domain(pd)];
        Sge {
            addr: source.va + at as u64,
            length: len as u32,
            lkey: source.key.lkey(),
        }
    }

    /// A new place in the landing ground, and how a queue pair of this protection domain names it.
    pub(crate) fn land(&mut self, pd: PdId, len: usize) -> (usize, Sge) {
        let at = self.landing_used;
        self.landing_used += place_bytes(len);
        let landing = &self.landings[self.domain(pd)];
        let sge = Sge {
            addr: landing.va + at as u64,
            length: len as u32,
            lkey: landing.key.lkey(),
        };
        (at, sge)
    }

    /// What is in a place of the landing ground.
    pub(crate) fn landed(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.landing.read(at, &mut bytes);
        bytes
    }

    /// A queue pair may take one more request of its shared receive queue without completing it; one of XRC, of any.
    pub(crate) fn add_taker(&mut self, qp: usize) {
        let (kind, srq) = (self.qps[qp].kind, self.qps[qp].srq);
        for (id, shared) in &mut self.srqs {
            let takes = Some(*id) == srq || kind == QpType::XrcRecv && shared.xrc.is_some();
            shared.takers += usize::from(takes);
        }
    }

    /// Whether a queue pair is in a state in which receives bring messages.
    pub(crate) fn takes_receives(&self, qp: usize) -> bool {
        let state = self.hca.qp(self.qps[qp].qpn).map(Qp::state);
        matches!(state, Some(QpState::Rtr | QpState::Rts | QpState::Sqd))
    }

    /// Where the landing ground's last place begins.
    pub(crate) fn rescue_at(&self) -> usize {
        self.landing.len() - RESCUE
    }

    /// That place.
    pub(crate) fn rescue(&self, pd: PdId) -> (usize, Sge) {
        let landing = &self.landings[self.domain(pd)];
        let sge = Sge {
            addr: landing.va + self.rescue_at() as u64,
            length: RESCUE as u32,
            lkey: landing.key.lkey(),
        };
        (self.rescue_at(), sge)
    }

    /// Destroys everything but the completion queues. Returns what could not be.
    pub(crate) fn return_objects(
        &mut self,
        regions: &[Region],
        windows: &[Window],
    ) -> Result<(), String> {
        let failed = |error: ferroce_device::VerbsError| error.to_string();
        for qp in self.qps.iter().filter(|qp| !qp.gone) {
            for group in &qp.attached {
                let IpAddr::V4(group) = group else { continue };
                let mgid = group.to_ipv6_mapped().octets();
                self.hca.detach_mcast(qp.qpn, mgid).map_err(failed)?;
            }
            for _ in 0..qp.handles {
                self.hca.destroy_qp(qp.qpn).map_err(failed)?;
            }
        }
        for srq in self.srqs.values() {
            self.hca.destroy_srq(srq.id).map_err(failed)?;
        }
        self.qps.clear();
        self.qpns.clear();
        for window in self.windows.values().map(|place| &windows[*place]) {
            self.hca.dealloc_mw(window.id).map_err(failed)?;
        }
        for region in self.regions.values().map(|place| &regions[*place]) {
            if region.is_registered() {
                self.hca.dereg_mr(region.info.key).map_err(failed)?;
            }
        }
        for info in self.sources.iter().chain(&self.landings) {
            self.hca.dereg_mr(info.key).map_err(failed)?;
        }
        for xrcd in self.xrcds {
            self.hca.dealloc_xrcd(xrcd).map_err(failed)?;
        }
        for pd in self.pds {
            self.hca.dealloc_pd(pd).map_err(failed)?;
        }
        Ok(())
    }
}
