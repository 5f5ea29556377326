//! Values of the C structures to those of the device, and back.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};

use ferroce_device::{
    Attr, Mtu, Path, QpAttr, QpCap, QpModify, QpState, RegFlags, SendTo, group_of_mgid,
};
use ferroce_runtime::Device;
use ferroce_wire::{Psn, Qpn, Srqn};

use crate::abi::{ibv_ah_attr, ibv_gid, ibv_qp_attr, ibv_qp_cap};
use crate::error::Error;

/// A port of a device.
pub(crate) fn port_of(device: &Device, port: u32) -> Result<u8, Error> {
    match u8::try_from(port) {
        Ok(known) if (1..=device.ports()).contains(&known) => Ok(known),
        _ => Err(Error::invalid(
            "port_num",
            port,
            match device.ports() {
                1 => "1",
                _ => "1 or 2",
            },
        )),
    }
}

/// The GID of an address: an IPv4 address is mapped into IPv6.
pub(crate) fn gid_of(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    ibv_gid { raw }
}

/// The address that a GID stands for.
pub(crate) fn address_of(gid: ibv_gid) -> IpAddr {
    let group = group_of_mgid(gid.raw);
    group.unwrap_or_else(|| Ipv6Addr::from(gid.raw).to_canonical())
}

/// The way that an address vector describes, from a device.
pub(crate) fn path(attr: &ibv_ah_attr, from: &Device) -> Result<Path, Error> {
    let port = port_of(from, attr.port_num.into())?;
    if attr.is_global == 0 {
        return Err(Error::invalid(
            "ah_attr.is_global",
            0_u8,
            "1: RoCE always has a GRH",
        ));
    }
    check_source(attr.grh.sgid_index, from, port)?;
    Ok(Path {
        dest: address_of(attr.grh.dgid),
        traffic_class: attr.grh.traffic_class,
        sl: attr.sl & 7, // as cards shorten it to the PCP
        port,
    })
}

/// Whether a port sends from the GID of an index: it has all of its interface's, and one address.
fn check_source(index: u8, device: &Device, port: u8) -> Result<(), Error> {
    let (table, own) = (device.gids(port), address_at(device, port));
    if table.address(index.into()) == Some(own) {
        return Ok(());
    }
    let of_own = table.used().filter(|(_, gid)| *gid == own.into());
    let of_own: Vec<_> = of_own.map(|(index, _)| index.to_string()).collect();
    let allowed = match of_own.as_slice() {
        [] => format!("that of {own}, which this host does not have at present"),
        some => format!("{}, the index of {own}", some.join(" or ")),
    };
    Err(Error::refused(
        libc::EINVAL,
        format!("invalid ah_attr.grh.sgid_index {index}: must be {allowed}"),
    ))
}

/// The address of a port that is there.
pub(crate) fn address_at(device: &Device, port: u8) -> IpAddr {
    device
        .address_at(port)
        .unwrap_or_else(|| device.spec().address)
}

/// The index of the GID that a port sends from.
pub(crate) fn own_gid_index(device: &Device, port: u8) -> u8 {
    let index = device.gids(port).index_of(address_at(device, port));
    index.and_then(|it| u8::try_from(it).ok()).unwrap_or(0)
}

pub(crate) fn cap(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

pub(crate) fn abi_cap(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

fn state(field: &'static str, value: c_int) -> Result<QpState, Error> {
    u32::try_from(value)
        .ok()
        .and_then(QpState::from_u32)
        .ok_or_else(|| Error::invalid(field, value, "the values of ibv_qp_state"))
}

pub(crate) fn qpn(field: &'static str, value: u32) -> Result<Qpn, Error> {
    if value <= 0x00ff_ffff {
        return Ok(Qpn::new(value));
    }
    Err(Error::invalid(field, value, "24 bits"))
}

/// A shared receive queue of the peer.
pub(crate) fn srq(value: u32) -> Result<SendTo, Error> {
    qpn("remote_srqn", value).map(|number| SendTo::Srq(Srqn::new(number.value())))
}

/// The change that `ibv_modify_qp` asks for. Fields that the mask does not name are not looked at.
pub(crate) fn modify(
    attr: &ibv_qp_attr,
    mask: c_int,
    device: &Device,
) -> Result<(QpModify, Option<Path>), Error> {
    let named = Attr::from_bits(mask as u32).ok_or_else(|| {
        Error::invalid(
            "attr_mask",
            mask as u32,
            "bits of ibv_qp_attr_mask that a RoCE QP has",
        )
    })?;
    let mut to = QpAttr {
        pkey_index: attr.pkey_index,
        port: attr.port_num,
        rq_psn: Psn::new(attr.rq_psn & 0x00ff_ffff),
        sq_psn: Psn::new(attr.sq_psn & 0x00ff_ffff),
        qkey: attr.qkey,
        path_mig_state: u8::try_from(attr.path_mig_state).unwrap_or(u8::MAX),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        sqd_async_notify: attr.en_sqd_async_notify != 0,
        ..QpAttr::default()
    };
    if named.contains(Attr::ACCESS_FLAGS) {
        to.access = RegFlags::of_queue_pair(attr.qp_access_flags)?.access;
    }
    if named.contains(Attr::PATH_MTU) {
        to.path_mtu = mtu(attr.path_mtu).ok_or_else(|| {
            Error::invalid("path_mtu", attr.path_mtu, "1 to 5, the values of ibv_mtu")
        })?;
    }
    if named.contains(Attr::DEST_QPN) {
        to.dest_qpn = qpn("dest_qp_num", attr.dest_qp_num)?;
    }
    let mut change = QpModify {
        mask: named,
        state: QpState::Reset,
        cur_state: QpState::Reset,
        attr: to,
    };
    if named.contains(Attr::STATE) {
        change.state = state("qp_state", attr.qp_state)?;
    }
    if named.contains(Attr::CUR_STATE) {
        change.cur_state = state("cur_qp_state", attr.cur_qp_state)?;
    }
    let way = named
        .contains(Attr::AV)
        .then(|| path(&attr.ah_attr, device));
    Ok((change, way.transpose()?))
}

fn mtu(value: c_int) -> Option<Mtu> {
    Mtu::ALL
        .into_iter()
        .find(|mtu| c_int::from(*mtu as u8) == value)
}

/// What `ibv_query_qp` returns.
pub(crate) fn qp_attr(
    state: QpState,
    attr: &QpAttr,
    ah_attr: ibv_ah_attr,
    cap: &QpCap,
) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: state as c_int,
        cur_qp_state: state as c_int,
        path_mtu: attr.path_mtu as c_int,
        path_mig_state: attr.path_mig_state.into(),
        qkey: attr.qkey,
        rq_psn: attr.rq_psn.value(),
        sq_psn: attr.sq_psn.value(),
        dest_qp_num: attr.dest_qpn.value(),
        qp_access_flags: attr.access.bits(),
        cap: abi_cap(cap),
        ah_attr,
        pkey_index: attr.pkey_index,
        en_sqd_async_notify: attr.sqd_async_notify.into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        ..ibv_qp_attr::default()
    }
}
