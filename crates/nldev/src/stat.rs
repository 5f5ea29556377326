//! Counters of a port, under the names of sysfs.

use ferroce_device::Counter;
use ferroce_registry::{DeviceSpec, Registry};

use crate::abi::attr;
use crate::message::Message;
use crate::{Errno, Reply, port_index, put_device};

/// `RDMA_COUNTER_MODE_NONE`: no queue pair has counters of its own.
const MODE_NONE: u32 = 0;

/// The counters of a device, in as many messages as it takes; of queue pairs and regions there are
/// none.
pub(crate) fn counters(
    reply: &mut Reply<'_>,
    registry: &Registry,
    devices: &[DeviceSpec],
) -> Result<(), Errno> {
    if reply.request.is_dump() && reply.request.u32(attr::STAT_RES).is_some() {
        return Ok(());
    }
    let (index, spec) = reply.device(devices)?;
    let ports = reply.ports(spec)?;
    let begin = |reply: &Reply<'_>, port: &DeviceSpec| {
        let mut message = reply.message();
        put_device(&mut message, index, spec);
        message.u32(attr::PORT_INDEX, port_index(port));
        message
    };
    if reply.request.u32(attr::STAT_RES).is_some() {
        if reply.request.u32(attr::STAT_MODE).is_none() {
            return Err(Errno::NOENT);
        }
        let mut message = begin(reply, &ports[0]);
        message.u32(attr::STAT_MODE, MODE_NONE);
        reply.send(message);
        return Ok(());
    }
    for port in &ports {
        let observer = registry.observe_device(port.clone());
        let counters = observer.map_err(|_| Errno::IO)?.counters();
        let mut left = Counter::TABLE.iter().peekable();
        while left.peek().is_some() {
            let mut message = begin(reply, port);
            message.fill(attr::STAT_HWCOUNTERS, &mut left, |message, info| {
                let value = counters[info.counter as usize];
                put_counter(message, info.name, value);
            });
            reply.send(message);
        }
    }
    Ok(())
}

fn put_counter(message: &mut Message, name: &str, value: u64) {
    let entry = message.open(attr::STAT_HWCOUNTER_ENTRY);
    message.text(attr::STAT_HWCOUNTER_ENTRY_NAME, name);
    message.u64(attr::STAT_HWCOUNTER_ENTRY_VALUE, value);
    message.close(entry);
}
