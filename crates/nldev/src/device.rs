//! Devices, ports, and the system.

use ferroce_device::{limits, port_attr};
use ferroce_os::Interface;
use ferroce_registry::{DeviceSpec, Registry};
use nix::net::if_::if_nameindex;

use crate::abi::attr;
use crate::message::Message;
use crate::{Errno, Reply, port_index, put_device};

/// A channel adapter, as node types go.
const CHANNEL_ADAPTER: u8 = 1;

/// The device that was asked for, or the list of all.
pub(crate) fn devices(reply: &mut Reply<'_>, devices: &[DeviceSpec]) -> Result<(), Errno> {
    if !reply.request.is_dump() {
        let (index, spec) = reply.device(devices)?;
        let message = device(reply, index, spec);
        reply.send(message);
        return Ok(());
    }
    for (index, spec) in (0..).zip(devices) {
        let message = device(reply, index, spec);
        reply.send(message);
    }
    Ok(())
}

fn device(reply: &Reply<'_>, index: u32, spec: &DeviceSpec) -> Message {
    let mut message = reply.message();
    put_device(&mut message, index, spec);
    message.u32(attr::PORT_INDEX, spec.ports().into()); // the last one
    message.u64(attr::CAP_FLAGS, limits::DEVICE_CAP_FLAGS.into());
    if !spec.fw_ver.is_empty() {
        message.text(attr::FW_VERSION, &spec.fw_ver);
    }
    message.u64(attr::NODE_GUID, spec.guid());
    message.u64(attr::SYS_IMAGE_GUID, spec.guid());
    message.u8(attr::DEV_NODE_TYPE, CHANNEL_ADAPTER);
    message.text(attr::DEV_PROTOCOL, "roce");
    message
}

/// The port that was asked for, or the list of a device's.
pub(crate) fn ports(
    reply: &mut Reply<'_>,
    registry: &Registry,
    devices: &[DeviceSpec],
) -> Result<(), Errno> {
    let (index, spec) = reply.device(devices)?;
    if !reply.request.is_dump() && reply.request.u32(attr::PORT_INDEX).is_none() {
        return Err(Errno::INVAL);
    }
    for port in reply.ports(spec)? {
        let observer = registry.observe_device(port.clone());
        let is_up = observer.map_err(|_| Errno::IO)?.port().is_up;
        let mut message = reply.message();
        put_device(&mut message, index, spec);
        message.u32(attr::PORT_INDEX, port_index(&port));
        message.u8(attr::PORT_STATE, port_attr::state(is_up).value);
        message.u8(
            attr::PORT_PHYS_STATE,
            port_attr::physical_state(is_up).value,
        );
        if let Some((index, name)) = interface(&port) {
            message.u32(attr::NDEV_INDEX, index);
            message.text(attr::NDEV_NAME, &name);
        }
        reply.send(message);
    }
    Ok(())
}

/// Number and name of the network interface of a device.
fn interface(spec: &DeviceSpec) -> Option<(u32, String)> {
    let index = Interface::of(spec.address)?.index;
    let all = if_nameindex().ok()?;
    let found = all.iter().find(|it| it.index() == index)?;
    Some((index, found.name().to_str().ok()?.to_owned()))
}

/// How the system sees devices: those of a network namespace are its own, and what is registered
/// stays a parent's after a fork.
pub(crate) fn system(reply: &mut Reply<'_>) {
    const EXCLUSIVE: u8 = 0;
    let mut message = reply.message();
    message.u8(attr::SYS_NETNS_MODE, EXCLUSIVE);
    message.u8(attr::SYS_COPY_ON_FORK, 1);
    reply.send(message);
}
