//! The speed of a port.

use ferroce_device::Rate;
use serde::{Deserialize, Serialize};

/// Speeds of Ethernet that adapters have. Congestion control starts from it; nothing else keeps to
/// it, because packets leave as fast as the sockets take them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PortSpeed {
    /// 10 Gb/s.
    #[serde(rename = "10G")]
    G10,
    /// 25 Gb/s.
    #[serde(rename = "25G")]
    G25,
    /// 40 Gb/s.
    #[serde(rename = "40G")]
    G40,
    /// 50 Gb/s.
    #[serde(rename = "50G")]
    G50,
    /// 100 Gb/s.
    #[default]
    #[serde(rename = "100G")]
    G100,
    /// 200 Gb/s.
    #[serde(rename = "200G")]
    G200,
    /// 400 Gb/s.
    #[serde(rename = "400G")]
    G400,
}

/// What one lane of a link carries: the names are InfiniBand's, by which verbs know Ethernet, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneSpeed {
    /// 10 Gb/s.
    Qdr,
    /// 25 Gb/s.
    Edr,
    /// 50 Gb/s.
    Hdr,
    /// 100 Gb/s.
    Ndr,
}

impl PortSpeed {
    /// Gb/s.
    pub const fn gbps(self) -> u32 {
        let (lanes, speed) = self.lanes();
        let lane = match speed {
            LaneSpeed::Qdr => 10,
            LaneSpeed::Edr => 25,
            LaneSpeed::Hdr => 50,
            LaneSpeed::Ndr => 100,
        };
        lanes as u32 * lane
    }

    /// The same as a rate.
    pub const fn rate(self) -> Rate {
        Rate::from_mbps(1_000 * self.gbps())
    }

    /// How many lanes carry it, and what each of them does.
    pub const fn lanes(self) -> (u8, LaneSpeed) {
        match self {
            Self::G10 => (1, LaneSpeed::Qdr),
            Self::G25 => (1, LaneSpeed::Edr),
            Self::G40 => (4, LaneSpeed::Qdr),
            Self::G50 => (2, LaneSpeed::Edr),
            Self::G100 => (4, LaneSpeed::Edr),
            Self::G200 => (4, LaneSpeed::Hdr),
            Self::G400 => (4, LaneSpeed::Ndr),
        }
    }
}

impl LaneSpeed {
    /// Its name in sysfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qdr => "QDR",
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_speed_is_what_its_lanes_carry_together() {
        for gbps in [10, 25, 40, 50, 100, 200, 400] {
            let toml = format!("speed = '{gbps}G'");
            let table: toml::Table = toml.parse().unwrap();
            let speed: PortSpeed = table["speed"].clone().try_into().unwrap();
            assert_eq!(speed.gbps(), gbps);
            assert_eq!(speed.rate().bps(), u64::from(gbps) * 1_000_000_000);
        }
        assert_eq!(PortSpeed::default(), PortSpeed::G100);
    }
}
