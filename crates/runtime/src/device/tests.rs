//! Devices of one host that no thread drives but that of a test.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process;

use ferroce_device::{AccessFlags, Buffer, Completion, Memory, QpAttr, SendOp, SendWr, WcStatus};
use ferroce_os::Waiter;
use ferroce_registry::{DeviceSpec, LinkSetting, Registry};
use ferroce_testing::direct::End;
use ferroce_wire::{Psn, Qpn};
use tempfile::TempDir;

use crate::attach::AttachOptions;
use crate::connect::Endpoint;
use crate::device::Device;
use crate::links::Engine;

/// A device with a queue pair, and what its helper would wait by if it had one.
pub(crate) struct Side {
    pub(crate) device: Device,
    pub(crate) waiter: Waiter,
    end: End,
    qpn: Qpn,
}

/// Two whose queue pairs are connected, over rings, and their directory. Each test has a number.
pub(crate) fn pair(test: u8) -> (Side, Side, TempDir) {
    let private = Permissions::from_mode(0o700);
    let place = tempfile::Builder::new().permissions(private).tempdir();
    let place = place.unwrap();
    let registry = Registry::at(place.path()).unwrap();
    let one = Side::attach(&registry, "a", 2 * test);
    let other = Side::attach(&registry, "b", 2 * test + 1);
    one.connect(&other);
    other.connect(&one);
    (one, other, place)
}

impl Side {
    fn attach(registry: &Registry, name: &str, host: u8) -> Self {
        let address = [127, 79, process::id() as u8, host].into();
        let spec = DeviceSpec {
            link: LinkSetting::Shm,
            ..DeviceSpec::new(name, address)
        };
        registry.add(&spec).unwrap();
        let attached = Device::attach_unserved(registry, name, AttachOptions::default());
        let (device, waiter) = attached.unwrap();
        let (end, qpn) = device.with(|hca| {
            let mut end = End::new(hca, 128, Memory::Buffer(Buffer::zeroed(64)));
            end.init.cap.max_send_wr = 128;
            (end, hca.create_qp(&end.init).unwrap())
        });
        Self {
            device,
            waiter,
            end,
            qpn,
        }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.device.address().ip(),
            qpn: self.qpn,
            psn: Psn::new(1),
        }
    }

    fn connect(&self, to: &Self) {
        let attr = QpAttr {
            access: AccessFlags::all(),
            ..QpAttr::default()
        };
        let connected = self.device.connect(self.endpoint(), to.endpoint(), &attr);
        connected.unwrap();
    }

    /// What a thread does that has the device.
    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&mut Engine) -> R) -> R {
        f(&mut self.device.shared.lock())
    }

    /// Posts this many WRITEs of 8 bytes at once.
    pub(crate) fn writes(&self, to: &Self, count: u64) {
        let op = SendOp::Write {
            va: to.end.memory.va,
            rkey: to.end.memory.key.rkey(),
            imm: None,
        };
        let sge = self.end.sge(8);
        let requests = (0..count).map(|id| SendWr::new(id, op, sge));
        self.device.post_send(self.qpn, requests).unwrap();
    }

    /// Polls here and there until as many are through.
    pub(crate) fn succeed(&self, to: &Self, count: usize) {
        let mut completions = Vec::new();
        while completions.len() < count {
            to.device.progress();
            self.device
                .poll(self.end.cq(), 16, &mut completions)
                .unwrap();
        }
        let is_success = |completion: &Completion| completion.status == WcStatus::Success;
        assert!(completions.len() == count && completions.iter().all(is_success));
    }
}
