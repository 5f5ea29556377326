//! The port: its attributes, GIDs and partition keys.

use std::ffi::c_int;

use ferroce_abi::border;
use ferroce_abi::pointer::{check, put};
use ferroce_device::Mtu;
use ferroce_device::port_attr::{self, Gid, PKEYS};
use ferroce_os::Interface;
use ferroce_registry::{GidTable, LaneSpeed, PortSpeed};
use ferroce_runtime::Device;

use crate::abi::{
    IBV_GID_TYPE_ROCE_V2, PORT_ATTR_COMPAT_LEN, ibv_context, ibv_gid, ibv_gid_entry, ibv_port_attr,
};
use crate::context::{self, Context};
use crate::convert::{address_at, port_of};
use crate::error::{Error, number, status};

/// An entry of the GID table of a port; `None` if it is empty.
fn gid_at(own: &Context, port: u8, index: impl Into<i64>) -> Result<Option<Gid>, Error> {
    let index = index.into();
    match u32::try_from(index) {
        Ok(known) if known < GidTable::LEN => Ok(own.adapter.device.gids(port).get(known)),
        _ => Err(Error::invalid("gid_index", index, "0 to gid_tbl_len - 1")),
    }
}

/// The port's attributes (ibv_query_port(3)), for programs that know only the first fields.
#[border(status)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { query_port(context, port, attr, PORT_ATTR_COMPAT_LEN) }
}

/// The same, as far as `length` reaches.
#[border(status)]
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        let device = &own.adapter.device;
        let port = port_of(device, port.into())?;
        check("port_attr", attr)?;
        let (mtu, is_up) = device.with(|hca| {
            let is_up = hca.port_is_up(device.now(), port);
            (hca.config().port_mtu, is_up)
        });
        let known = port_attr(mtu, own.adapter.listed.spec.speed, is_up);
        // SAFETY: not null, and `length` bytes may be written to; those beyond our structure are zeroed.
        unsafe {
            attr.cast::<u8>().write_bytes(0, length);
            attr.cast::<u8>().copy_from_nonoverlapping(
                (&raw const known).cast(),
                length.min(size_of::<ibv_port_attr>()),
            );
        }
        Ok(())
    });
    status("ibv_query_port", result)
}

fn port_attr(mtu: Mtu, speed: PortSpeed, is_up: bool) -> ibv_port_attr {
    let (lanes, lane) = speed.lanes();
    ibv_port_attr {
        state: port_attr::state(is_up).value.into(),
        max_mtu: port_attr::MTU_MAX as c_int,
        active_mtu: mtu as c_int,
        gid_tbl_len: GidTable::LEN as c_int,
        port_cap_flags: port_attr::CAPABILITIES,
        max_msg_sz: port_attr::MESSAGE_BYTES_MAX,
        pkey_tbl_len: PKEYS.len() as u16,
        lid: port_attr::LID,
        sm_lid: port_attr::LID,
        max_vl_num: 1,
        active_width: match lanes {
            1 => 1,
            2 => 16,
            _ => 2,
        },
        active_speed: match lane {
            LaneSpeed::Qdr => 4,
            LaneSpeed::Edr => 32,
            LaneSpeed::Hdr => 64,
            LaneSpeed::Ndr => 128,
        },
        phys_state: port_attr::physical_state(is_up).value,
        link_layer: port_attr::LINK_LAYER.value,
        ..ibv_port_attr::default()
    }
}

/// The port's speed in units of 100 Mb/s (ibv_query_port_speed(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        port_of(&own.adapter.device, port)?;
        if speed.is_null() {
            return Err(Error::Null("port_speed"));
        }
        let known = u64::from(own.adapter.listed.spec.speed.gbps()) * 10;
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("port_speed", speed, known) }.map_err(Error::from)
    });
    status("ibv_query_port_speed", result)
}

/// An entry of the GID table (ibv_query_gid(3)); zero if it is empty.
#[border(number)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        let port = port_of(&own.adapter.device, port.into())?;
        let known =
            gid_at(&own, port, index)?.map_or_else(ibv_gid::default, |gid| ibv_gid { raw: gid.0 });
        check("gid", gid)?;
        // SAFETY: not null, and a variable that may be written to.
        unsafe { gid.write_unaligned(known) };
        Ok(0)
    });
    number("ibv_query_gid", result)
}

/// The type of an entry in the numbers of `ibv_gid_type_sysfs`: 0 is IB or RoCE v1 and what
/// kernels say of empty entries, 1 is RoCE v2.
#[border(number)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    kind: *mut c_int,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        let port = port_of(&own.adapter.device, port.into())?;
        let known = gid_at(&own, port, index)?.is_some();
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("type", kind, known.into())? };
        Ok(0)
    });
    number("ibv_query_gid_type", result)
}

fn gid_entry(device: &Device, port: u8, (index, gid): (u32, Gid)) -> ibv_gid_entry {
    let interface = Interface::of(address_at(device, port));
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.0 },
        gid_index: index,
        port_num: port.into(),
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: interface.map_or(0, |interface| interface.index),
    }
}

/// Writes an entry, as far as `size` reaches.
///
/// # Safety
/// `to` has room for `size` bytes.
unsafe fn write_entry(to: *mut u8, entry: &ibv_gid_entry, size: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        to.write_bytes(0, size);
        to.copy_from_nonoverlapping(
            std::ptr::from_ref(entry).cast(),
            size.min(size_of::<ibv_gid_entry>()),
        );
    }
}

fn check_flags(flags: u32) -> Result<(), Error> {
    if flags == 0 {
        return Ok(());
    }
    Err(Error::Unsupported("a flag of the GID query"))
}

/// An entry of the GID table with its type; `ENODATA` if it is empty (ibv_query_gid_ex(3)).
#[border(status)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        let device = &own.adapter.device;
        let port = port_of(device, port)?;
        check_flags(flags)?;
        let Some(gid) = gid_at(&own, port, index)? else {
            return Err(std::io::Error::from_raw_os_error(libc::ENODATA).into());
        };
        let known = gid_entry(device, port, (index, gid));
        check("entry", entry)?;
        // SAFETY: not null, and `entry_size` bytes may be written to.
        unsafe { write_entry(entry.cast(), &known, entry_size) };
        Ok(())
    });
    status("ibv_query_gid_ex", result)
}

/// All entries of the GID tables of all ports that are not empty (ibv_query_gid_table(3)).
#[border(number)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let result = context::find(context).and_then(|own| {
        check_flags(flags)?;
        let device = &own.adapter.device;
        let of_port = |port| {
            let used: Vec<_> = device.gids(port).used().collect();
            used.into_iter()
                .map(move |entry| gid_entry(device, port, entry))
        };
        let all: Vec<_> = (1..=device.ports()).flat_map(of_port).collect();
        let used = all.len();
        if max_entries < used {
            let allowed = "as many as the tables have, gid_tbl_len for each port at most";
            return Err(Error::invalid("max_entries", max_entries, allowed));
        }
        for (place, known) in all.iter().enumerate() {
            let to = check("entries", entries)?
                .cast::<u8>()
                .wrapping_add(place * entry_size);
            // SAFETY: not null, and an array of `max_entries` of `entry_size` bytes each that may be
            // written to.
            unsafe { write_entry(to, known, entry_size) };
        }
        Ok(used as isize)
    });
    match result {
        Ok(count) => count,
        // Unlike most calls this one returns the negative error number.
        Err(error) => -(status("ibv_query_gid_table", Err(error)) as isize),
    }
}

/// An entry of the partition key table in network order (ibv_query_pkey(3)).
#[border(number)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        port_of(&own.adapter.device, port.into())?;
        let known = usize::try_from(index).ok().and_then(|at| PKEYS.get(at));
        let known = known.ok_or_else(|| Error::invalid("index", index, "0"))?;
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("pkey", pkey, known.to_be())? };
        Ok(0)
    });
    number("ibv_query_pkey", result)
}

/// The index of a partition key in network order (ibv_get_pkey_index(3)).
#[border(number)]
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        port_of(&own.adapter.device, port.into())?;
        let pkey = u16::from_be(pkey);
        let index = PKEYS.iter().position(|known| *known == pkey);
        let index = index.ok_or_else(|| Error::invalid("pkey", pkey, "0xffff"))?;
        Ok(index as c_int)
    });
    number("ibv_get_pkey_index", result)
}
