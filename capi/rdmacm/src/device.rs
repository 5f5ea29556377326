//! The open devices. They stay open as long as the process lives, as rdma_get_devices(3) promises.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ptr::null_mut;
use std::sync::Mutex;

use ferroce_abi::border;
use ferroce_device::Hca;
use ferroce_fault::Target;
use ferroce_ibverbs::abi::{
    ibv_context, ibv_device, ibv_device_attr, ibv_pd, ibv_port_attr, ibv_xrcd,
};
use ferroce_ibverbs::error::{Error, pointer, tell};
use ferroce_ibverbs::{
    Opened, ibv_alloc_pd, ibv_free_device_list, ibv_get_device_list, ibv_get_device_name,
    ibv_open_device, ibv_query_device, ibv_query_port,
};
use ferroce_registry::{DeviceSpec, Registry, ServiceClaim, ServiceError, ServiceScope};
use ferroce_wire::cm::PortSpace;

use crate::abi::RDMA_CM_EVENT_DEVICE_REMOVAL;
use crate::id::{self, Incoming};
use crate::process::{PerProcess, lock};
use crate::verbs;

/// A port of a device that this process has open.
pub(crate) struct Device {
    pub(crate) context: *mut ibv_context,
    opened: Opened,
    /// Its number, from 1.
    pub(crate) port: u8,
    /// The device's second port, of the first if there is one.
    second: Option<&'static Self>,
    /// Protection domain of queue pairs whose program has none, once there is one.
    domain: Mutex<*mut ibv_pd>,
    /// XRC domain of identifiers whose program has none, once there is one.
    xrc_domain: Mutex<*mut ibv_xrcd>,
    /// Limits of READs and atomics: taken, and outstanding.
    pub(crate) max_responder_resources: u8,
    pub(crate) max_initiator_depth: u8,
}

// SAFETY: the pointers are handles that any thread may use.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens a device, and returns its first port.
    fn open(pointer: *mut ibv_device) -> Result<&'static Self, Error> {
        // SAFETY: a device of the list.
        let context = unsafe { ibv_open_device(pointer) };
        if context.is_null() {
            return Err(Error::reported());
        }
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut limits: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: a live context and a local variable.
        unsafe { ibv_query_device(context, &raw mut limits) };
        let code = |value: c_int| u8::try_from(value).unwrap_or(u8::MAX);
        let opened = Opened::of(context)?;
        let at_port = |port, second| -> &'static Self {
            Box::leak(Box::new(Self {
                context,
                opened: opened.clone(),
                port,
                second,
                domain: Mutex::new(null_mut()),
                xrc_domain: Mutex::new(null_mut()),
                max_responder_resources: code(limits.max_qp_rd_atom),
                max_initiator_depth: code(limits.max_qp_init_rd_atom),
            }))
        };
        let has_second = opened.device().ports() == 2;
        let device = at_port(1, has_second.then(|| at_port(2, None)));
        device
            .opened
            .set_cm_sink(Box::new(move |event| id::route(device, event)));
        device
            .opened
            .set_removal_sink(Box::new(move || device.tell_removal()));
        Ok(device)
    }

    /// The port of this number, of the first one.
    pub(crate) fn at_port(&'static self, port: u8) -> &'static Self {
        match self.second {
            Some(second) if port == 2 => second,
            _ => self,
        }
    }

    /// Tells the identifiers that are bound to the device that it is gone, as the kernel does. Their
    /// state may be locked by a thread that waits for the device.
    fn tell_removal(&self) {
        for id in id::all() {
            // SAFETY: a live object, whose field only this library writes.
            if unsafe { (*id.abi()).verbs } == self.context {
                id.push(Incoming::Done {
                    event: RDMA_CM_EVENT_DEVICE_REMOVAL,
                    status: 0,
                });
            }
        }
    }

    /// Lets fault rules act on a call.
    pub(crate) fn meet(&self, target: Target) -> Result<(), Error> {
        self.opened.meet(target)
    }

    /// What tells its device from others.
    pub(crate) fn key(&self) -> usize {
        self.context as usize
    }

    /// Runs `f` on the device with the time it is. The last message of a process must not be lost
    /// with it, and children of Python's multiprocessing end by `_exit`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Hca, ferroce_device::Time) -> R) -> R {
        let device = self.opened.device();
        device.with_pass_on(|hca| f(hca, device.now()))
    }

    /// Has packets come to this process; to be called before there is anything that they could be
    /// for.
    pub(crate) fn join(&self) -> Result<(), Error> {
        Ok(self.opened.device().join()?)
    }

    /// Has requests for published ports come straight to this process.
    pub(crate) fn expect_requests(&self) {
        self.opened.device().expect_requests();
    }

    pub(crate) fn spec(&self) -> &DeviceSpec {
        self.opened.device().spec()
    }

    /// Has requests for a port come to this process.
    pub(crate) fn claim_service(
        &self,
        space: PortSpace,
        port: u16,
        scope: ServiceScope,
    ) -> Result<ServiceClaim, ServiceError> {
        self.opened.device().claim_service(space, port, scope)
    }

    /// The index of the GID that it sends from.
    pub(crate) fn gid_index(&self) -> u8 {
        self.opened.gid_index(self.port)
    }

    pub(crate) fn address(&self) -> IpAddr {
        let address = self.opened.device().address_at(self.port);
        address.unwrap_or_else(|| self.spec().address)
    }

    /// The protection domain of queue pairs whose program has none.
    pub(crate) fn domain(&self) -> Result<*mut ibv_pd, Error> {
        let mut domain = lock(&self.domain);
        if domain.is_null() {
            // SAFETY: a live context.
            *domain = unsafe { ibv_alloc_pd(self.context) };
        }
        if domain.is_null() {
            return Err(Error::reported());
        }
        Ok(*domain)
    }

    /// The XRC domain of identifiers whose program has none.
    pub(crate) fn xrc_domain(&self) -> Result<*mut ibv_xrcd, Error> {
        let mut domain = lock(&self.xrc_domain);
        if domain.is_null() {
            *domain = verbs::open_xrcd(self.context);
        }
        if domain.is_null() {
            return Err(Error::reported());
        }
        Ok(*domain)
    }

    /// The port's MTU as `ibv_mtu`.
    pub(crate) fn mtu(&self) -> u8 {
        let mut port = ibv_port_attr::default();
        // SAFETY: a live context and a local variable.
        unsafe { ibv_query_port(self.context, self.port, &raw mut port) };
        u8::try_from(port.active_mtu).unwrap_or(1)
    }

    /// The program goes to sleep, and the device is no longer driven by it.
    pub(crate) fn rest(&self) {
        self.opened.device().rest();
    }
}

static DEVICES: PerProcess<Mutex<Vec<&'static Device>>> = PerProcess::new();

/// The devices that this process has open.
pub(crate) fn open_devices() -> Vec<&'static Device> {
    lock(DEVICES.get()).clone()
}

/// Every port there is: the device, and the port's number and address.
fn ports(specs: &[DeviceSpec]) -> impl Iterator<Item = (&DeviceSpec, u8, IpAddr)> {
    specs.iter().flat_map(|spec| {
        (1..=spec.ports()).filter_map(move |port| Some((spec, port, spec.address_at(port)?)))
    })
}

/// Opens the devices of the ports that `wanted` picks by number and address.
fn open(wanted: impl Fn(u8, IpAddr) -> bool) -> Result<Vec<&'static Device>, Error> {
    let specs = Registry::open()?.devices()?;
    let mut known = lock(DEVICES.get());
    let mut found = Vec::new();
    for (spec, port, _) in ports(&specs).filter(|(_, port, address)| wanted(*port, *address)) {
        let same = |device: &&&'static Device| device.spec() == spec;
        let device = match known.iter().find(same) {
            Some(device) => *device,
            None => {
                let device = open_by_name(&spec.name)?;
                known.push(device);
                device
            }
        };
        found.push(device.at_port(port));
    }
    Ok(found)
}

fn open_by_name(name: &str) -> Result<&'static Device, Error> {
    // SAFETY: a null pointer asks for no count.
    let list = unsafe { ibv_get_device_list(null_mut()) };
    if list.is_null() {
        return Err(Error::reported());
    }
    let mut next = list;
    let result = loop {
        // SAFETY: the list ends with a null pointer.
        let device = unsafe { *next };
        if device.is_null() {
            break Err(no_device(format!("the device {name} has just gone")));
        }
        // SAFETY: a device of the list has a name.
        let its = unsafe { std::ffi::CStr::from_ptr(ibv_get_device_name(device)) };
        if its.to_bytes() == name.as_bytes() {
            break Device::open(device);
        }
        next = next.wrapping_add(1);
    };
    // SAFETY: it came from `ibv_get_device_list`.
    unsafe { ibv_free_device_list(list) };
    result
}

fn no_device(what: impl Into<String>) -> Error {
    Error::refused(libc::ENODEV, what)
}

/// What an address of this host stands for.
pub(crate) enum Local {
    /// A device's own address.
    Device(&'static Device),
    /// Zero, or an address of the loopback interface that no device has: whichever device there is, as
    /// for Linux (`cma_any_addr`).
    Any,
}

impl Local {
    pub(crate) fn of(address: IpAddr) -> Result<Self, Error> {
        if let Some(device) = open(|_, its| its == address)?.first() {
            return Ok(Self::Device(device));
        }
        if address.is_unspecified() || address.is_loopback() {
            return Ok(Self::Any);
        }
        // Programs that look for devices try each address of the host.
        Err(Error::Probed {
            errno: libc::ENODEV,
            what: format!(
                "no device has the address {address}; `ferroce dev show` lists those there are"
            ),
        })
    }
}

/// Whether an address stands for any device of this host.
pub(crate) fn is_any(address: IpAddr) -> bool {
    matches!(Local::of(address), Ok(Local::Any))
}

/// The devices that listen on a wildcard address, with all their ports: those of its family, and for
/// IPv6 all, unless it is to be IPv6 only. There may be none.
pub(crate) fn covered(wildcard: IpAddr, only: bool) -> Result<Vec<&'static Device>, Error> {
    let is_covered =
        |address: IpAddr| (wildcard.is_ipv6() && !only) || address.is_ipv4() == wildcard.is_ipv4();
    open(|port, address| port == 1 && is_covered(address))
}

/// All devices.
pub(crate) fn all() -> Result<Vec<&'static Device>, Error> {
    open(|port, _| port == 1)
}

/// The device by which this host reaches itself: the first of the address's family, or the first.
pub(crate) fn of_this_host(address: IpAddr) -> Result<&'static Device, Error> {
    let specs = Registry::open()?.devices()?;
    let alike = |spec: &&DeviceSpec| spec.address.is_ipv4() == address.is_ipv4();
    let spec = specs.iter().find(alike).or_else(|| specs.first());
    let spec = spec.ok_or_else(|| no_device("there is no device"))?;
    at(spec.address)
}

/// The device at an address of this host.
fn at(address: IpAddr) -> Result<&'static Device, Error> {
    match Local::of(address)? {
        Local::Device(device) => Ok(device),
        Local::Any => Err(no_device(format!("the device at {address} has just gone"))),
    }
}

/// The device from which a peer is reached: whose address the kernel would use, or the peer's own,
/// or any on the loopback interface.
pub(crate) fn towards(peer: IpAddr) -> Result<&'static Device, Error> {
    let specs = Registry::open()?.devices()?;
    let source = match source_for(peer) {
        Ok(source) => source,
        // Where no route leads to groups, any device may send to them.
        Err(_) if peer.is_multicast() => {
            let alike = |spec: &&DeviceSpec| spec.address.is_ipv4() == peer.is_ipv4();
            specs.iter().find(alike).map_or(peer, |spec| spec.address)
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::ENETUNREACH);
            return Err(Error::refused(errno, format!("no way to {peer}: {error}")));
        }
    };
    let find = |wanted: &dyn Fn(IpAddr) -> bool| {
        let mut addresses = ports(&specs).map(|(.., address)| address);
        addresses.find(|address| wanted(*address))
    };
    let found = find(&|address| address == source)
        .or_else(|| find(&|address| address == peer))
        .or_else(|| find(&|address| same_loopback(address, peer)));
    let found = found.ok_or_else(|| {
        no_device(format!(
            "no device has the address {source}, from which {peer} is reached; `ferroce dev show` \
             lists those there are"
        ))
    })?;
    at(found)
}

fn same_loopback(one: IpAddr, other: IpAddr) -> bool {
    one.is_loopback() && other.is_loopback() && one.is_ipv4() == other.is_ipv4()
}

/// The address that the kernel would write to a peer from.
fn source_for(peer: IpAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr = match peer {
        IpAddr::V4(_) => ([0; 4], 0).into(),
        IpAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    // Sends nothing.
    socket.connect((peer, ferroce_wire::ROCE_V2_PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// The devices there are, opened, ended by a null pointer (rdma_get_devices(3)).
#[border(pointer)]
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let result = all().and_then(|devices| {
        // SAFETY: `calloc` takes any sizes.
        let list: *mut *mut ibv_context =
            unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_context>()) }.cast();
        if list.is_null() {
            return Err(std::io::Error::from_raw_os_error(libc::ENOMEM).into());
        }
        for (index, device) in devices.iter().enumerate() {
            // SAFETY: the array has room for them and the null pointer at its end.
            unsafe { *list.add(index) = device.context };
        }
        if !num_devices.is_null() {
            // SAFETY: not null, and a variable that may be written to.
            unsafe { *num_devices = c_int::try_from(devices.len()).unwrap_or(c_int::MAX) };
        }
        Ok(list)
    });
    pointer("rdma_get_devices", result)
}

/// Frees a list of [`rdma_get_devices`].
#[border(nothing)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: it came from `calloc`; null is allowed.
    unsafe { libc::free(list.cast()) }
}

/// Says why there will be an event with an error, and returns its status.
pub(crate) fn status_of(call: &str, error: &Error) -> c_int {
    -tell(call, error)
}
