//! `ferroce dev cards`: the cards that a device can be.

use ferroce_device::{Card, Feature, Firmware, Model, limits};
use ferroce_registry::DeviceSpec;

use super::format::Format;
use crate::json::device as json;
use crate::output::{Failure, Output, Table};

pub(super) fn show(format: Format, to: &mut Output<'_>) -> Result<(), Failure> {
    if format.json {
        let cards = Model::ALL.into_iter().map(document).collect();
        return to.document(&json::Cards { cards });
    }
    to.text(&table().to_string())
}

/// A column for each card.
fn table() -> Table {
    let header = ["card"].into_iter().chain(Model::ALL.map(Model::name));
    let mut table = Table::new(&header.collect::<Vec<_>>());
    let mut row = |name: &str, value: &dyn Fn(Model) -> String| {
        let cells = [name.to_owned()].into_iter().chain(Model::ALL.map(value));
        table.row(cells.collect());
    };
    row("name", &|model| model.title().to_owned());
    row("vendor_part_id", &|model| model.device_id().to_string());
    row("vf_part_id", &|model| vf_part_id(model).to_string());
    row("hw_dev_id", &|model| format!("{:#x}", model.chip_id()));
    row("ca_ack_delay", &|_| limits::LOCAL_CA_ACK_DELAY.to_string());
    row("oldest firmware", &|model| model.oldest().to_string());
    row("newest firmware", &|model| model.newest().to_string());
    for feature in Feature::ALL {
        row(feature.name(), &|model| match model.since(feature) {
            Some(since) => since.to_string(),
            None => "-".to_owned(),
        });
    }
    table
}

fn document(model: Model) -> json::Card {
    let since = |feature: Feature| {
        let since = model.since(feature).as_ref().map(Firmware::to_string);
        (feature.name(), since)
    };
    json::Card {
        card: model.name(),
        name: model.title(),
        vendor_part_id: model.device_id().into(),
        vf_part_id: vf_part_id(model),
        hw_dev_id: model.chip_id(),
        ca_ack_delay: limits::LOCAL_CA_ACK_DELAY,
        oldest_firmware: model.oldest().to_string(),
        newest_firmware: model.newest().to_string(),
        since: Feature::ALL.into_iter().map(since).collect(),
    }
}

fn vf_part_id(model: Model) -> u32 {
    let device = DeviceSpec::default_device().as_card(Card::from(model));
    device.vf_part_id()
}
