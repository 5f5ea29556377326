//! Changes to devices: those of `ferroce adp apply`, `impair` and `link set`.

use std::path::Path;

use ferroce_designer::{Refusal, command, flag, object};
use ferroce_device::{Direction, Method};
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_registry::{Observer, Registry};
use serde_json::{Map, Value};

use super::reply::Reply;
use super::site::{failed, refused};
use crate::adp;
use crate::device::{impair, link};
use crate::output::Failure;
use crate::registers::{Observed, Registers as _};

/// What is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// `{"device": NAME, "text": PROFILE, "force": false}`
    Profile,
    /// `{"device": NAME, "direction": "egress", "impairment": "loss=1%"}`, where nothing clears it.
    Impairment,
    /// `{"device": NAME, "state": "down for 300ms"}`
    Link,
}

/// Why something was not changed.
enum Why {
    Refused(Refusal),
    Failed(Failure),
}

impl From<Refusal> for Why {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for Why {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Change {
    pub(super) fn make(self, registry: &Registry, body: &str) -> Result<(), Reply> {
        let made = match self {
            Self::Profile => profile(registry, body),
            Self::Impairment => impairment(registry, body),
            Self::Link => state(registry, body),
        };
        made.map_err(|why| match why {
            Why::Refused(refusal) => refused(&refusal),
            Why::Failed(failure) => failed(&failure),
        })
    }
}

fn profile(registry: &Registry, body: &str) -> Result<(), Why> {
    let body = object(body, &["device", "text", "force"])?;
    let (text, force) = (word(&body, "text")?, flag(&body, "force")?);
    let observer = device(registry, &body)?;
    let place = Path::new("profile");
    let imported = adp::parse(place, text).map_err(|it| Failure::Input(it.lines))?;
    let document = &imported.document;
    let profile = adp::profile_of(place, document)?;
    if !force && let Some(lines) = adp::deadly(place, document) {
        let refused = "error: jobs would die of this profile, and it was not written; change it, or \
                       write it all the same (force)\n";
        return Err(Failure::Input(lines + refused).into());
    }
    let mut payload = command::payload(&profile);
    let written = Observed(&observer).access(ROCE_ACCL.id(), Method::Write, &mut payload);
    written.map_err(Failure::from)?;
    observer.call_attention();
    Ok(())
}

fn impairment(registry: &Registry, body: &str) -> Result<(), Why> {
    let body = object(body, &["device", "direction", "impairment"])?;
    let directions: &[_] = match word(&body, "direction")? {
        "egress" => &[Direction::Egress],
        "ingress" => &[Direction::Ingress],
        "both" => &[Direction::Egress, Direction::Ingress],
        other => {
            let (allowed, next) = ("egress, ingress or both", "write egress for what it sends");
            return Err(Refusal::of("direction", &other.into(), allowed, next).into());
        }
    };
    let impairment = impair::read(word(&body, "impairment")?)?;
    Ok(impair::set(
        &device(registry, &body)?,
        directions,
        &impairment,
    )?)
}

fn state(registry: &Registry, body: &str) -> Result<(), Why> {
    let body = object(body, &["device", "state"])?;
    let state = word(&body, "state")?;
    let words: Vec<_> = state.split_whitespace().collect();
    match words.as_slice() {
        ["up" | "down"] | ["down", "for", _] => Ok(link::set(&device(registry, &body)?, &words)?),
        _ => {
            let (allowed, next) = (
                "up, down or down for TIME",
                "write for example down for 300ms",
            );
            Err(Refusal::of("state", &state.into(), allowed, next).into())
        }
    }
}

fn device(registry: &Registry, body: &Map<String, Value>) -> Result<Observer, Why> {
    let observer = registry.observe(word(body, "device")?);
    Ok(observer.map_err(Failure::input)?)
}

fn word<'a>(body: &'a Map<String, Value>, key: &str) -> Result<&'a str, Refusal> {
    let value = body.get(key).unwrap_or(&Value::Null);
    let next = format!("give {key} as text");
    value
        .as_str()
        .ok_or_else(|| Refusal::of(key, value, "text", &next))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const ALL: [Change; 3] = [Change::Profile, Change::Impairment, Change::Link];

    /// Values that are close to what is meant, and any others.
    fn value() -> impl Strategy<Value = Value> {
        let words = prop::sample::select(vec![
            "a",
            "up",
            "down",
            "down for 1s",
            "egress",
            "both",
            "loss=1%",
            "down=1s@1s",
            "=",
            ",",
            "",
            "time_base = 4",
            "0x",
            "mlxreg --set \"\"",
        ]);
        prop_oneof![
            4 => words.prop_map(Value::from),
            1 => any::<String>().prop_map(Value::from),
            1 => any::<i64>().prop_map(Value::from),
            1 => any::<bool>().prop_map(Value::from),
            1 => Just(json!({"a": [null]})),
        ]
    }

    #[test]
    fn any_body_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(&directory.path().join("devices")).unwrap();
        let spec = ferroce_registry::DeviceSpec::new("a", "127.30.68.1".parse().unwrap());
        registry.add(&spec).unwrap();
        let keys = [
            "device",
            "text",
            "force",
            "direction",
            "impairment",
            "state",
            "b",
        ];
        let fields = prop::collection::hash_map(prop::sample::select(keys.to_vec()), value(), 0..5);
        proptest!(|(fields in fields, cut in 0..40_usize, text: String)| {
            let whole = json!(fields).to_string();
            let cut: String = whole.chars().take(cut).collect();
            for change in ALL {
                for body in [&whole, &cut, &text] {
                    if let Err(reply) = change.make(&registry, body) {
                        prop_assert_eq!(reply.status, 400, "{}", body);
                    }
                }
            }
        });
    }
}
