//! Documents of `ferroce res`: the keys are those of iproute2's `rdma`, in snake case.

use serde::Serialize;

/// Objects of one kind.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Objects<T> {
    /// Each object.
    pub(crate) objects: Vec<T>,
    /// Processes that did not answer, whose objects are missing. If there are any, the command fails.
    pub(crate) silent: Vec<Silent>,
}

/// An object on a device.
#[derive(Debug, Serialize)]
pub(crate) struct On<T> {
    /// The device.
    pub(crate) device: String,
    #[serde(flatten)]
    pub(crate) row: T,
}

/// That of the row, with the device in front.
#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for On<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = T::json_schema(generator);
        let device = serde_json::json!({ "type": "string", "description": "The device." });
        let properties = schema.get_mut("properties");
        if let Some(properties) = properties.and_then(|it| it.as_object_mut()) {
            properties.shift_insert(0, "device".to_owned(), device);
        }
        let required = schema.get_mut("required");
        if let Some(required) = required.and_then(|it| it.as_array_mut()) {
            required.insert(0, "device".into());
        }
        schema
    }
}

/// A process that did not answer.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Silent {
    /// The device.
    pub(crate) device: String,
    /// The process.
    pub(crate) pid: u32,
}

/// How many objects there are on a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counts {
    /// The device.
    pub(crate) device: String,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// Protection domains.
    pub(crate) pd: u64,
    /// Completion queues.
    pub(crate) cq: u64,
    /// Queue pairs.
    pub(crate) qp: u64,
    /// Connections, and services that are listened on.
    pub(crate) cm_id: u64,
    /// Memory regions.
    pub(crate) mr: u64,
    /// Shared receive queues.
    pub(crate) srq: u64,
    /// Openings of the device.
    pub(crate) ctx: u64,
}
