//! The appearance of a device to programs that expect certain hardware.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{DeviceSpec, Vf, default};

/// Hardware that programs know by its names and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Emulation {
    /// A ConnectX card: `mlx5_0`, `mlx5_1`, ...
    Mlx5,
    /// Linux's soft-RoCE: `rxe0`, `rxe1`, ...
    Rxe,
}

impl Emulation {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Mlx5, Self::Rxe];

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5",
            Self::Rxe => "rxe",
        }
    }

    /// What its devices' names begin with, in front of a number.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5_",
            Self::Rxe => "rxe",
        }
    }

    /// The devices as this hardware would show them. Names of its kind stay; the others become the first
    /// ones that are free, in their order.
    #[must_use]
    pub fn apply(self, devices: Vec<DeviceSpec>) -> Vec<DeviceSpec> {
        let taken: HashSet<_> = devices
            .iter()
            .filter(|spec| self.is_name(&spec.name))
            .map(|spec| spec.name.clone())
            .collect();
        let mut free = (0_u32..)
            .map(|number| format!("{}{number}", self.prefix()))
            .filter(|name| !taken.contains(name));
        let mut pfs = HashMap::new();
        let emulate = |spec: DeviceSpec| {
            let name = match taken.contains(&spec.name) {
                true => spec.name.clone(),
                false => free.next().unwrap_or_default(), // there is always one
            };
            let known_as = spec.name.clone();
            let mut emulated = self.emulated(DeviceSpec { name, ..spec });
            match &emulated.vf {
                None => {
                    pfs.insert(known_as, Arc::new(emulated.clone()));
                }
                Some(vf) => {
                    // A VF may be shown without its PF.
                    let pf = pfs.get(&vf.pf.name).unwrap_or(&vf.pf);
                    emulated.vf = Some(Vf {
                        index: vf.index,
                        pf: Arc::clone(pf),
                    });
                    if self == Self::Mlx5 {
                        emulated.vendor_part_id = emulated.vf_part_id();
                    }
                }
            }
            emulated
        };
        devices.into_iter().map(emulate).collect()
    }

    fn is_name(self, name: &str) -> bool {
        let number = name.strip_prefix(self.prefix());
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    }

    fn emulated(self, spec: DeviceSpec) -> DeviceSpec {
        let emulation = Some(self);
        match self {
            // What was set for such a card stays.
            Self::Mlx5 if spec.vendor_id == default::vendor_id() => {
                DeviceSpec { emulation, ..spec }
            }
            Self::Mlx5 => DeviceSpec {
                emulation,
                vendor_id: default::vendor_id(),
                vendor_part_id: default::vendor_part_id(),
                hw_ver: 0,
                fw_ver: default::fw_ver(),
                board_id: default::board_id(),
                ..spec
            },
            Self::Rxe => DeviceSpec {
                emulation,
                vendor_id: 0xff_ffff,
                vendor_part_id: 0,
                hw_ver: 0,
                fw_ver: String::new(),
                board_id: String::new(),
                ..spec
            },
        }
    }
}

impl fmt::Display for Emulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Emulation {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|it| it.name() == name).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, last: u8) -> DeviceSpec {
        DeviceSpec::new(name, [127, 0, 0, last].into())
    }

    fn names(devices: &[DeviceSpec]) -> Vec<&str> {
        devices.iter().map(|spec| spec.name.as_str()).collect()
    }

    #[test]
    fn names_that_fit_stay_and_the_others_fill_the_gaps() {
        let devices = ["fr0", "fr1", "mlx5_1", "mlx5_x"];
        let devices: Vec<_> = devices
            .into_iter()
            .zip(1..)
            .map(|(n, l)| device(n, l))
            .collect();
        let cards = Emulation::Mlx5.apply(devices.clone());
        assert_eq!(names(&cards), ["mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]);
        let soft = Emulation::Rxe.apply(devices.clone());
        assert_eq!(names(&soft), ["rxe0", "rxe1", "rxe2", "rxe3"]);
        for (shown, device) in cards.iter().zip(&devices) {
            assert_eq!((shown.address, shown.speed), (device.address, device.speed));
        }
    }

    #[test]
    fn numbers_are_those_of_the_hardware() {
        let [card] = &Emulation::Mlx5.apply(vec![device("fr0", 1)])[..] else {
            panic!()
        };
        assert_eq!((card.vendor_id, card.vendor_part_id), (0x02c9, 4129));
        let [soft] = &Emulation::Rxe.apply(vec![device("fr0", 1)])[..] else {
            panic!()
        };
        assert_eq!((soft.vendor_id, soft.vendor_part_id), (0xff_ffff, 0));
        assert_eq!((soft.fw_ver.as_str(), soft.board_id.as_str()), ("", ""));
        // A card that is described stays what it is; any other becomes the usual one.
        let mut other = device("fr0", 1);
        (other.vendor_part_id, other.fw_ver) = (4123, "20.1.2".to_owned());
        let shown = Emulation::Mlx5.apply(vec![other.clone()]).remove(0);
        assert_eq!(
            (shown.vendor_part_id, shown.fw_ver.as_str()),
            (4123, "20.1.2")
        );
        other.vendor_id = 0x1234;
        let shown = Emulation::Mlx5.apply(vec![other]).remove(0);
        assert_eq!((shown.vendor_id, shown.vendor_part_id), (0x02c9, 4129));
    }

    #[test]
    fn functions_stay_those_of_their_card() {
        let mut pf = device("fr0", 1);
        pf.vfs = 2;
        let shown = Emulation::Mlx5.apply(pf.functions());
        assert_eq!(names(&shown), ["mlx5_0", "mlx5_1", "mlx5_2"]);
        assert!(shown.iter().all(|it| it.pf().name == "mlx5_0"));
        let alone = Emulation::Mlx5.apply(pf.functions().split_off(1));
        assert_eq!(names(&alone), ["mlx5_0", "mlx5_1"]);
    }
}
