//! The card that a device presents itself as.

use std::sync::Arc;

use ferroce_device::{Card, Firmware, Identity};

use super::{DeviceSpec, Vf, default};

impl DeviceSpec {
    /// The card that the device presents itself as; `None` if `vendor_part_id` and `fw_ver` are
    /// those of no card that is known.
    pub fn card(&self) -> Option<Card> {
        self.identity().card()
    }

    /// The device as this card. Its other settings stay.
    #[must_use]
    pub fn as_card(self, card: Card) -> Self {
        if let Some(Vf { index, pf }) = &self.vf {
            let pf = Self::clone(pf).as_card(card);
            return Self {
                vendor_id: pf.vendor_id,
                vendor_part_id: pf.vf_part_id(),
                hw_ver: pf.hw_ver,
                fw_ver: pf.fw_ver.clone(),
                vf: Some(Vf {
                    index: *index,
                    pf: Arc::new(pf),
                }),
                ..self
            };
        }
        let Identity {
            device_id,
            hw_revision,
            firmware,
            ..
        } = card.into();
        Self {
            vendor_id: default::vendor_id(),
            vendor_part_id: device_id.into(),
            hw_ver: hw_revision.into(),
            fw_ver: firmware.to_string(),
            ..self
        }
    }

    /// What register tools see of the card. Parts of `fw_ver` that are no numbers are 0 there, and
    /// `board_id` is cut after 16 bytes.
    pub(crate) fn identity(&self) -> Identity {
        let card = self.pf();
        let mut parts = card.fw_ver.split('.').map(|part| part.parse().unwrap_or(0));
        let mut part = || parts.next().unwrap_or(0);
        let mut psid = [0; 16];
        let len = card.board_id.len().min(psid.len());
        psid[..len].copy_from_slice(&card.board_id.as_bytes()[..len]);
        Identity {
            device_id: card.vendor_part_id as u16,
            hw_revision: card.hw_ver as u16,
            firmware: Firmware {
                major: part(),
                minor: part(),
                sub_minor: part(),
            },
            psid,
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_device::Model;

    use super::*;

    #[test]
    fn registers_show_the_usual_device_by_themselves() {
        let spec = DeviceSpec::default_device();
        assert_eq!(spec.identity(), Identity::default());
        assert_eq!(spec.card(), Some(Card::default()));
        assert_eq!(spec.clone().as_card(Card::default()), spec);
    }

    #[test]
    fn a_device_is_the_card_it_was_made_as_with_its_vfs() {
        let mut pf = DeviceSpec::default_device();
        pf.vfs = 2;
        (pf.vendor_id, pf.hw_ver) = (0x1234, 7);
        for model in Model::ALL {
            let card = Card::from(model);
            let [pf, vfs @ ..] = &pf.clone().as_card(card).functions()[..] else {
                unreachable!("there is a PF")
            };
            assert_eq!((pf.card(), pf.hw_ver), (Some(card), 0));
            assert_eq!(
                (pf.vendor_id, pf.vendor_part_id),
                (0x02c9, model.device_id().into())
            );
            for vf in vfs {
                assert_eq!((vf.card(), &vf.fw_ver), (Some(card), &pf.fw_ver));
                assert_eq!(vf.clone().as_card(card), *vf);
                assert_ne!(vf.vendor_part_id, pf.vendor_part_id);
            }
        }
    }

    #[test]
    fn texts_that_are_no_versions_do_no_harm() {
        let mut spec = DeviceSpec::default_device();
        spec.fw_ver = "40.x".to_owned();
        spec.board_id = "a board with a very long name".to_owned();
        spec.vendor_part_id = 0x1023;
        let identity = spec.identity();
        assert_eq!(identity.firmware.to_string(), "40.0.0000");
        assert_eq!(&identity.psid, b"a board with a v");
        assert_eq!(identity.device_id, 0x1023);
    }
}
