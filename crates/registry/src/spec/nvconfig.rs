//! Parameters of congestion control in a device's file, by the names of mlxconfig.

use std::collections::BTreeMap;

use ferroce_dcqcn::{Param, Params, Target, Vocabulary};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value as it may stand in a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, true or false")]
enum Value {
    Number(u32),
    Flag(bool),
}

pub(super) fn is_default(params: &Params) -> bool {
    *params == Params::default()
}

pub(super) fn serialize<S: Serializer>(params: &Params, serializer: S) -> Result<S::Ok, S::Error> {
    let default = Params::default();
    let changed = Param::ALL.iter().filter_map(|param| {
        let name = param.name_in(Vocabulary::NvConfig)?;
        let value = params.get(*param);
        (value != default.get(*param)).then_some((name, value))
    });
    changed.collect::<BTreeMap<_, _>>().serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
    let mut params = Params::default();
    for (name, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
        let value = match value {
            Value::Number(number) => number,
            Value::Flag(flag) => flag.into(),
        };
        let target = Target::parse(&name).map_err(de::Error::custom)?;
        match target.param.name_in(Vocabulary::NvConfig) {
            Some(known) if known == name => {}
            Some(known) => {
                return Err(de::Error::custom(format_args!(
                    "mlxconfig has no parameter {name}; write {known}"
                )));
            }
            None => {
                return Err(de::Error::custom(format_args!(
                    "mlxconfig has no parameter {name}; write ROCE_CC_PRIO_MASK for both points"
                )));
            }
        }
        let written = params.write(target, &value.to_string());
        written.map_err(de::Error::custom)?;
    }
    Ok(params)
}
