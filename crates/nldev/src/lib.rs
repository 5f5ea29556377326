//! RDMA netlink: answers in place of the kernel about Ferroce's devices.
//!
//! Programs such as iproute2's `rdma` and UCX query the kernel through `NETLINK_RDMA` sockets, with
//! messages whose numbers are those of Linux's `rdma/rdma_netlink.h`. [`answer`] takes such a
//! request and returns what the kernel would have sent. The caller transports requests and answers.
//!
//! | module | purpose |
//! |---|---|
//! | `message` | messages and attributes as bytes |
//! | `abi` | the numbers |
//! | `device` | devices, ports, the system |
//! | `resource` | programs' objects on a device |
//! | `stat` | counters |
//!
//! Queries are answered; requests that would change something are refused with `EOPNOTSUPP`.
#![forbid(unsafe_code)]

mod abi;
mod device;
mod message;
mod resource;
mod stat;

use abi::{Command, attr};
use ferroce_registry::{DeviceSpec, Registry};
use message::{Message, Request};

/// The datagrams that answer one, each as long as the tools of old have room for. `port_id` is the
/// number of the socket that asks.
#[must_use]
pub fn answer(registry: &Registry, datagram: &[u8], port_id: u32) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let mut rest = datagram;
    while let Some((request, after)) = Request::parse(rest) {
        rest = after;
        let mut reply = Reply {
            request,
            port_id,
            datagrams: Vec::new(),
        };
        let outcome = reply.fill(registry);
        reply.end(outcome);
        answers.append(&mut reply.datagrams);
    }
    answers
}

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Errno(i32);

impl Errno {
    const NOENT: Self = Self(2);
    const IO: Self = Self(5);
    const INVAL: Self = Self(22);
    const OPNOTSUPP: Self = Self(95);
}

/// A question and the answer so far.
struct Reply<'a> {
    request: Request<'a>,
    port_id: u32,
    datagrams: Vec<Vec<u8>>,
}

impl Reply<'_> {
    fn fill(&mut self, registry: &Registry) -> Result<(), Errno> {
        let command = self.request.command().ok_or(Errno::INVAL)?;
        let devices = registry.devices().map_err(|_| Errno::IO)?;
        match command {
            Command::Get => device::devices(self, &devices),
            Command::PortGet => device::ports(self, registry, &devices),
            Command::SysGet => {
                device::system(self);
                Ok(())
            }
            Command::ResGet => resource::summary(self, registry, &devices),
            Command::Res(kind) => resource::objects(self, registry, &devices, kind),
            Command::StatGet => stat::counters(self, registry, &devices),
            Command::Other => Err(Errno::OPNOTSUPP),
        }
    }

    /// A message of the answer.
    fn message(&self) -> Message {
        let multi = if self.request.is_dump() {
            message::MULTI
        } else {
            0
        };
        Message::new(self.request.kind, multi, self.request.seq, self.port_id)
    }

    fn send(&mut self, message: Message) {
        self.datagrams.push(message.finish());
    }

    /// The end of a list, or an acknowledgement or error.
    fn end(&mut self, outcome: Result<(), Errno>) {
        let (seq, port_id) = (self.request.seq, self.port_id);
        let last = match outcome {
            Ok(()) if self.request.is_dump() => Message::done(seq, port_id),
            Ok(()) if !self.request.wants_ack() => return,
            outcome => {
                let errno = outcome.err().map_or(0, |errno| errno.0);
                Message::error(errno, self.request.header, seq, port_id)
            }
        };
        self.send(last);
    }

    /// The device that the question is about, with its place among all.
    fn device<'d>(&self, devices: &'d [DeviceSpec]) -> Result<(u32, &'d DeviceSpec), Errno> {
        let index = self.request.u32(attr::DEV_INDEX).ok_or(Errno::INVAL)?;
        let found = usize::try_from(index).ok().and_then(|at| devices.get(at));
        Ok((index, found.ok_or(Errno::INVAL)?))
    }

    /// The ports of a device that the question is about: the one of its number, or all.
    fn ports(&self, spec: &DeviceSpec) -> Result<Vec<DeviceSpec>, Errno> {
        let wanted = self.request.u32(attr::PORT_INDEX);
        let is_wanted = |port: &DeviceSpec| wanted.is_none_or(|it| it == port_index(port));
        let ports: Vec<_> = spec.ports_of_card().filter(is_wanted).collect();
        match ports.is_empty() {
            true => Err(Errno::INVAL),
            false => Ok(ports),
        }
    }
}

/// The number of a port, from 1.
fn port_index(port: &DeviceSpec) -> u32 {
    port.link_number().into()
}

/// Index and name of a device, with which everything about it begins.
fn put_device(message: &mut Message, index: u32, spec: &DeviceSpec) {
    message.u32(attr::DEV_INDEX, index);
    message.text(attr::DEV_NAME, &spec.name);
}

#[cfg(test)]
mod tests {
    use ferroce_device::{Time, carrier::Schedule};

    use super::*;
    use crate::message::tests::{Heard, request};

    /// A registry of its own with these devices.
    fn registry(names: &[&str]) -> (tempfile::TempDir, Registry) {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(directory.path(), private).unwrap();
        let registry = Registry::at(directory.path()).unwrap();
        for (name, last) in names.iter().zip(2..) {
            let spec = DeviceSpec::new(name, [127, 0, 0, last].into());
            registry.add(&spec).unwrap();
        }
        (directory, registry)
    }

    const DUMP: u16 = 0x300;
    const ACK: u16 = 4;

    fn ask(registry: &Registry, command: u16, flags: u16, attributes: &[(u16, u32)]) -> Vec<Heard> {
        let asked = request(5 << 10 | command, flags | 1, 77, attributes);
        let datagrams = answer(registry, &asked, 4711);
        let heard: Vec<_> = datagrams.iter().map(|it| Heard::parse(it)).collect();
        assert!(heard.iter().all(|it| (it.seq, it.port_id) == (77, 4711)));
        assert!(datagrams.iter().all(|it| it.len() <= message::ROOM));
        heard
    }

    fn names(heard: &[Heard]) -> Vec<String> {
        heard
            .iter()
            .filter_map(|it| it.text(attr::DEV_NAME))
            .collect()
    }

    #[test]
    fn devices_and_ports_are_listed_and_found_by_index() {
        let (_directory, registry) = registry(&["a", "b"]);
        let all = ask(&registry, 1, DUMP, &[]);
        assert_eq!(names(&all), ["a", "b", "fr0"]);
        assert_eq!(all.last().unwrap().kind, message::DONE);
        assert_eq!(all[1].u32(attr::DEV_INDEX), Some(1));
        assert_eq!(all[1].text(attr::FW_VERSION).as_deref(), Some("28.48.1000"));

        let one = ask(&registry, 1, ACK, &[(attr::DEV_INDEX, 1)]);
        assert_eq!(names(&one), ["b"]);
        assert_eq!(one[1].error(), Some(0));
        // UCX asks without wanting an acknowledgement.
        assert_eq!(ask(&registry, 1, 0, &[(attr::DEV_INDEX, 2)]).len(), 1);

        let port = [(attr::DEV_INDEX, 0), (attr::PORT_INDEX, 1)];
        let one = ask(&registry, 5, ACK, &port);
        assert_eq!(one[0].u8(attr::PORT_STATE), Some(4));
        assert_eq!(one[0].text(attr::NDEV_NAME).as_deref(), Some("lo"));
        let down = Schedule::down_from(Time::ZERO);
        registry.observe("a").unwrap().set_schedule(down).unwrap();
        let one = ask(&registry, 5, ACK, &port);
        assert_eq!(one[0].u8(attr::PORT_STATE), Some(1));
        assert_eq!(one[0].u8(attr::PORT_PHYS_STATE), Some(3));
    }

    #[test]
    fn missing_devices_and_writes_are_refused() {
        let (_directory, registry) = registry(&["a"]);
        for (command, attributes, errno) in [
            (1, &[][..], 22),
            (1, &[(attr::DEV_INDEX, 2)], 22),
            (5, &[(attr::DEV_INDEX, 0)], 22),
            (5, &[(attr::DEV_INDEX, 0), (attr::PORT_INDEX, 2)], 22),
            (2, &[(attr::DEV_INDEX, 0)], 95), // SET
            (3, &[], 95),                     // NEWLINK
            (1000, &[], 22),
            (10, &[(attr::DEV_INDEX, 0), (attr::RES_LQPN, 9)], 2),
        ] {
            let heard = ask(&registry, command, 0, attributes);
            assert_eq!(heard.len(), 1, "{command} {attributes:?}");
            assert_eq!(heard[0].error(), Some(errno), "{command} {attributes:?}");
        }
        // Another client of RDMA netlink.
        let asked = request(4 << 10, 1, 1, &[]);
        let heard = Heard::parse(&answer(&registry, &asked, 0)[0]);
        assert_eq!(heard.error(), Some(22));
    }

    #[test]
    fn counters_and_resources_are_those_of_the_device() {
        let (_directory, registry) = registry(&["a"]);
        let port = [(attr::DEV_INDEX, 0), (attr::PORT_INDEX, 1)];
        let heard = ask(&registry, 17, ACK, &port);
        let names: Vec<_> = heard
            .iter()
            .flat_map(|it| it.nested(attr::STAT_HWCOUNTERS))
            .flat_map(|table| table.nested(attr::STAT_HWCOUNTER_ENTRY))
            .filter_map(|entry| entry.text(attr::STAT_HWCOUNTER_ENTRY_NAME))
            .collect();
        let expected: Vec<_> = ferroce_device::Counter::TABLE
            .iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names, expected);

        let heard = ask(&registry, 9, ACK, &[(attr::DEV_INDEX, 0)]);
        let table = &heard[0].nested(attr::RES_SUMMARY)[0];
        let kinds: Vec<_> = table
            .nested(attr::RES_SUMMARY_ENTRY)
            .iter()
            .filter_map(|entry| entry.text(attr::RES_SUMMARY_ENTRY_NAME))
            .collect();
        assert_eq!(kinds, ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"]);
        let heard = ask(&registry, 10, DUMP, &[(attr::DEV_INDEX, 0)]);
        assert_eq!(heard.last().unwrap().kind, message::DONE);
    }

    #[test]
    fn bytes_that_are_no_request_are_not_answered() {
        let (_directory, registry) = registry(&[]);
        for bytes in [&[][..], &[0; 15], &[0; 16], &[16, 0, 0, 0], &[0xff; 64]] {
            assert!(answer(&registry, bytes, 0).is_empty(), "{bytes:?}");
        }
        // Attributes that lie about their lengths end the list.
        let mut asked = request(5 << 10 | 1, 1, 7, &[(attr::DEV_INDEX, 0)]);
        let at = asked.len() - 8;
        asked[at] = 200;
        let heard = Heard::parse(&answer(&registry, &asked, 0)[0]);
        assert_eq!(heard.error(), Some(22));
    }
}
