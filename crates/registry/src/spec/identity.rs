//! The card that a device presents itself as.

use ferroce_device::Identity;

use super::DeviceSpec;

impl DeviceSpec {
    /// What register tools see of the card. Parts of `fw_ver` that are no numbers are 0 there, and
    /// `board_id` is cut after 16 bytes.
    pub(crate) fn identity(&self) -> Identity {
        let card = self.pf();
        let mut parts = card.fw_ver.split('.').map(|part| part.parse().unwrap_or(0));
        let mut psid = [0; 16];
        let len = card.board_id.len().min(psid.len());
        psid[..len].copy_from_slice(&card.board_id.as_bytes()[..len]);
        Identity {
            device_id: card.vendor_part_id as u16,
            hw_revision: card.hw_ver as u16,
            firmware: [(); 3].map(|()| parts.next().unwrap_or(0)),
            psid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_show_the_usual_device_by_themselves() {
        let spec = DeviceSpec::default_device();
        assert_eq!(spec.identity(), Identity::default());
    }

    #[test]
    fn texts_that_are_no_versions_do_no_harm() {
        let mut spec = DeviceSpec::default_device();
        spec.fw_ver = "40.x".to_owned();
        spec.board_id = "a board with a very long name".to_owned();
        spec.vendor_part_id = 0x1023;
        let identity = spec.identity();
        assert_eq!(identity.firmware, [40, 0, 0]);
        assert_eq!(&identity.psid, b"a board with a v");
        assert_eq!(identity.device_id, 0x1023);
    }
}
