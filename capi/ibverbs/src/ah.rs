//! Address handles.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_abi::border;
use ferroce_abi::pointer::{put, read};
use ferroce_device::{
    DctAddress, Object, Path, PdId, SendTo, UdAddress, VerbsError, WcFlags, limits,
};

use crate::abi::{ibv_ah, ibv_ah_attr, ibv_context, ibv_global_route, ibv_grh, ibv_pd, ibv_wc};
use crate::arena::Arena;
use crate::context::{self, ContextRef};
use crate::convert::{self, address_of, gid_of};
use crate::error::{Error, number, pointer, status};
use crate::pd::{self, Pd};

struct Ah {
    context: ContextRef,
    pd: PdId,
    /// The domain's count of its address handles.
    handles: Arc<AtomicU32>,
    path: Path,
}

impl Ah {
    fn new(domain: &Pd, path: Path) -> Result<Self, Error> {
        let context = Arc::clone(&domain.context);
        let (object, max) = (Object::Ah, limits::MAX_AH);
        let more = |ahs: u32| (ahs < max).then_some(ahs + 1);
        let ahs = &context.adapter.ahs;
        ahs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map_err(|_| VerbsError::TooMany { object, max })?;
        domain.handles.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            context,
            pd: domain.id,
            handles: Arc::clone(&domain.handles),
            path,
        })
    }

    fn is_of(&self, context: &ContextRef, pd: PdId) -> bool {
        Arc::ptr_eq(&self.context.adapter, &context.adapter) && self.pd == pd
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        self.context.adapter.ahs.fetch_sub(1, Ordering::Relaxed);
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

static AHS: Arena<ibv_ah, Ah> = Arena::new("address handle");

/// Makes an address handle (ibv_create_ah(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: null or a structure of the program, valid during the call.
    let made = unsafe { read("attr", attr) }.map_err(Error::from);
    pointer("ibv_create_ah", made.and_then(|attr| create(pd, attr)))
}

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Error> {
    let domain = pd::find(pd)?.own();
    let path = convert::path(attr, &domain.context.adapter.device)?;
    let own = Ah::new(domain, path)?;
    // SAFETY: an object whose memory is never freed.
    let context = unsafe { (*pd).context };
    let abi = ibv_ah {
        context,
        pd,
        handle: 0,
    };
    Ok(AHS.insert(abi, own))
}

/// Destroys an address handle; requests on send queues do without it (ibv_create_ah(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    let gone = AHS.remove(ah).ok_or(Error::Handle("address handle"));
    status("ibv_destroy_ah", gone.map(drop))
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for ah in AHS.all() {
        if Arc::ptr_eq(&ah.own().context, context) {
            AHS.remove(ah.abi());
        }
    }
}

/// Where a datagram goes.
pub(crate) fn datagram(
    from: Sender<'_>,
    ah: *const ibv_ah,
    qpn: u32,
    qkey: u32,
) -> Result<SendTo, Error> {
    Ok(SendTo::Datagram(UdAddress {
        path: from.path(ah)?,
        qpn: convert::qpn("remote_qpn", qpn)?,
        qkey,
    }))
}

/// Where a request goes to a target of the dynamically connected transport.
pub(crate) fn target(
    from: Sender<'_>,
    ah: *const ibv_ah,
    dctn: u32,
    key: u64,
) -> Result<SendTo, Error> {
    Ok(SendTo::Dct(DctAddress {
        path: from.path(ah)?,
        qpn: convert::qpn("remote_dctn", dctn)?,
        key,
    }))
}

/// The context and protection domain of a queue pair whose requests have address handles.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) context: &'a ContextRef,
    pub(crate) pd: Option<PdId>,
}

impl Sender<'_> {
    /// The path of an address handle, which must belong to both as well (IBA vol 1, 10.2.3).
    fn path(self, ah: *const ibv_ah) -> Result<Path, Error> {
        let own = AHS.get(ah)?.own();
        match self.pd.is_some_and(|pd| own.is_of(self.context, pd)) {
            true => Ok(own.path),
            false => Err(Error::OtherDomainsHandle),
        }
    }
}

/// The address of the sender of a received datagram (ibv_init_ah_from_wc(3)).
#[border(number)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: null or structures of the program, valid during the call.
    let answered = unsafe {
        answer(context, port, wc, grh).and_then(|answer| Ok(put("ah_attr", attr, answer)?))
    };
    number("ibv_init_ah_from_wc", answered.map(|()| 0))
}

/// An address handle for the sender of a received datagram (ibv_create_ah_from_wc(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let made = pd::find(pd).and_then(|object| {
        // SAFETY: a live object; null or structures of the program, valid during the call.
        let attr = unsafe { answer((*object.abi()).context, port, wc, grh)? };
        create(pd, &attr)
    });
    pointer("ibv_create_ah_from_wc", made)
}

/// # Safety
/// `wc` is null or points to a completion, and `grh` to the first 40 bytes received if it says so.
unsafe fn answer(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
) -> Result<ibv_ah_attr, Error> {
    let own = context::find(context)?;
    let device = &own.adapter.device;
    let port = convert::port_of(device, port.into())?;
    // SAFETY: as the caller promises.
    let wc = unsafe { read("wc", wc)? };
    if wc.wc_flags & WcFlags::GRH.bits() == 0 {
        let allowed = "IBV_WC_GRH: only datagrams tell who sent them";
        return Err(Error::invalid("wc_flags", wc.wc_flags, allowed));
    }
    if grh.is_null() {
        return Err(Error::Null("grh"));
    }
    // SAFETY: as the caller promises; the buffer may lie anywhere.
    let header = unsafe { Header::read(grh) };
    let here = convert::address_at(device, port);
    if header.dest != here && !header.dest.is_multicast() {
        let allowed = "the address of the device";
        return Err(Error::invalid("the receiver in the GRH", 0_u8, allowed));
    }
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid_of(header.source),
            flow_label: header.flow_label,
            sgid_index: convert::own_gid_index(device, port),
            hop_limit: 0xff,
            traffic_class: header.traffic_class,
        },
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: 1,
        port_num: port,
    })
}

/// What the GRH of a datagram says: an IPv6 header, or an IPv4 header in its last 20 bytes.
struct Header {
    source: IpAddr,
    dest: IpAddr,
    traffic_class: u8,
    flow_label: u32,
}

impl Header {
    /// # Safety
    /// `grh` points to 40 bytes.
    unsafe fn read(grh: *const ibv_grh) -> Self {
        // SAFETY: as the caller promises.
        let (bytes, grh) = unsafe { (*grh.cast::<[u8; 40]>(), grh.read_unaligned()) };
        let v4 = &bytes[20..];
        if v4[0] == 0x45 && bytes[0] >> 4 != 6 {
            let address = |at: usize| Ipv4Addr::new(v4[at], v4[at + 1], v4[at + 2], v4[at + 3]);
            return Self {
                source: address(12).into(),
                dest: address(16).into(),
                traffic_class: v4[1],
                flow_label: 0,
            };
        }
        let first = u32::from_be(grh.version_tclass_flow);
        Self {
            source: address_of(grh.sgid),
            dest: address_of(grh.dgid),
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
        }
    }
}

/// An Ethernet address for an address handle. Frames are the operating system's matter here, which
/// sends them where the IP address leads; programs get one that belongs to that IP address alone
/// (ibv_resolve_eth_l2_from_gid(3)).
#[border(number)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut u8,
    vlan: *mut u16,
) -> c_int {
    let resolved = context::find(context).and_then(|own| {
        // SAFETY: null or a structure of the program, valid during the call.
        let attr = unsafe { read("attr", attr)? };
        let path = convert::path(attr, &own.adapter.device)?;
        let address = mac_of(path.dest);
        // SAFETY: null, or six bytes of the program and two that may be written to.
        unsafe {
            put("eth_mac", mac.cast::<[u8; 6]>(), address)?;
            if !vlan.is_null() {
                vlan.write(NO_VLAN);
            }
        }
        Ok(0)
    });
    number("ibv_resolve_eth_l2_from_gid", resolved)
}

/// The group's Ethernet address, or one of those that are administered locally.
fn mac_of(address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V4(host) => {
            let [a, b, c, d] = host.octets();
            [0x02, 0x00, a, b, c, d]
        }
        IpAddr::V6(v6) => {
            let [.., v, w, x, y, z] = v6.octets();
            if v6.is_multicast() {
                [0x33, 0x33, w, x, y, z]
            } else {
                [0x02, v, w, x, y, z]
            }
        }
    }
}

/// What programs get where there is no VLAN.
const NO_VLAN: u16 = 0xffff;
