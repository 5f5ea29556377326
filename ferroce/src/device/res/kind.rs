//! The kinds of objects and their keys, which are those of iproute2's `rdma` if it has them.

use ferroce_registry::{Process, Query, Resource};
use serde_json::{Map, Value, json};

use super::filter::Filter;
use crate::output::Failure;

/// An object: its keys and values.
pub(super) type Object = Map<String, Value>;

/// What is known of a key before any object is there.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Whether it is shown without `-d`.
    pub(super) always: bool,
    pub(super) form: Form,
}

/// What values of a key are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Number,
    /// A number that is shown in hexadecimal digits.
    Hex,
    /// An address, a name or a state.
    Text,
}

const fn key(name: &'static str, form: Form) -> Key {
    Key {
        name,
        always: true,
        form,
    }
}

const fn number(name: &'static str) -> Key {
    key(name, Form::Number)
}

const fn hex(name: &'static str) -> Key {
    key(name, Form::Hex)
}

const fn text(name: &'static str) -> Key {
    key(name, Form::Text)
}

const fn detail(key: Key) -> Key {
    Key {
        always: false,
        ..key
    }
}

impl Key {
    /// The value as it is shown.
    pub(super) fn shown(&self, value: &Value) -> Value {
        match (self.form, value.as_u64()) {
            (Form::Hex, Some(number)) => format!("{number:#x}").into(),
            _ => value.clone(),
        }
    }
}

/// A kind of objects.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// What to ask processes for; `None` for the processes themselves.
    pub(super) query: Option<Query>,
    /// Whether it belongs to a port, not to the device.
    pub(super) is_on_port: bool,
    /// In the order in which they are shown.
    pub(super) keys: &'static [Key],
}

/// All kinds.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "qp",
        query: Some(Query::Qp),
        is_on_port: true,
        keys: &[
            number("lqpn"),
            number("rqpn"),
            text("type"),
            text("state"),
            number("rq-psn"),
            number("sq-psn"),
            text("path-mig-state"),
            number("pdn"),
            text("peer"),
            number("timeout"),
            number("wait-ns"),
            number("range"),
            number("retries-left"),
            number("in-flight"),
            detail(number("path-window")),
            detail(number("path-used")),
            detail(number("path-rtt-ns")),
            detail(number("total-ns")),
            detail(number("exponent")),
            detail(number("retry-cnt")),
            detail(number("rnr-retry")),
            detail(number("send-queue")),
            detail(number("recv-queue")),
            detail(number("send-cqn")),
            detail(number("recv-cqn")),
            detail(number("srqn")),
            number("pid"),
            text("comm"),
        ],
    },
    Kind {
        name: "mr",
        query: Some(Query::Mr),
        is_on_port: false,
        keys: &[
            number("mrn"),
            hex("rkey"),
            hex("lkey"),
            number("mrlen"),
            number("pdn"),
            detail(hex("iova")),
            number("pid"),
            text("comm"),
        ],
    },
    Kind {
        name: "cq",
        query: Some(Query::Cq),
        is_on_port: false,
        keys: &[
            number("cqn"),
            number("cqe"),
            number("users"),
            detail(number("waiting")),
            number("pid"),
            text("comm"),
        ],
    },
    Kind {
        name: "pd",
        query: Some(Query::Pd),
        is_on_port: false,
        keys: &[number("pdn"), number("users"), number("pid"), text("comm")],
    },
    Kind {
        name: "srq",
        query: Some(Query::Srq),
        is_on_port: false,
        keys: &[
            number("srqn"),
            number("pdn"),
            number("users"),
            detail(number("max-wr")),
            detail(number("waiting")),
            number("pid"),
            text("comm"),
        ],
    },
    Kind {
        name: "cm_id",
        query: Some(Query::CmId),
        is_on_port: true,
        keys: &[
            number("cm-idn"),
            number("lqpn"),
            number("rqpn"),
            text("state"),
            text("ps"),
            text("src-addr"),
            number("src-port"),
            text("dst-addr"),
            number("service-port"),
            detail(text("cm-state")),
            detail(hex("service-id")),
            number("pid"),
            text("comm"),
        ],
    },
    Kind {
        name: "ctx",
        query: None,
        is_on_port: false,
        keys: &[number("ctxn"), number("pid"), text("comm")],
    },
];

impl Kind {
    /// The kind that a word is the name of, or the beginning of its name; `None` if there is none.
    pub(super) fn named(word: &str) -> Result<Option<&'static Self>, Failure> {
        let begins: Vec<_> = KINDS
            .iter()
            .filter(|kind| kind.name.starts_with(word))
            .collect();
        match begins.as_slice() {
            [] => Ok(None),
            [kind] => Ok(Some(kind)),
            several => {
                let names: Vec<_> = several.iter().map(|kind| kind.name).collect();
                Err(Failure::input(format_args!(
                    "{word:?} may be {}; write more of it",
                    names.join(" or ")
                )))
            }
        }
    }

    /// The filter for a key of this kind.
    pub(super) fn filter<'a>(&self, key: &'a str, values: &'a str) -> Result<Filter<'a>, Failure> {
        let Some(found) = self.keys.iter().find(|known| known.name == key) else {
            let names: Vec<_> = self.keys.iter().map(|key| key.name).collect();
            return Err(Failure::input(format_args!(
                "{key:?} is not a key of {}; write dev, or {}",
                self.name,
                names.join(", ")
            )));
        };
        Filter::parse(found, values)
    }
}

/// The keys and values of what a process told of.
pub(super) fn object(resource: &Resource) -> Object {
    let value = match resource {
        Resource::Qp(row) => json!(row),
        Resource::Mr(row) => json!(row),
        Resource::Cq(row) => json!(row),
        Resource::Pd(row) => json!(row),
        Resource::Srq(row) => json!(row),
        Resource::CmId(row) => json!(row),
        Resource::Count(row) => json!(row),
        Resource::Flow(row) => json!(row),
        Resource::Peer(row) => json!(row),
    };
    let Value::Object(mut object) = value else {
        return Object::new();
    };
    // A listener has a port of its own; a connection does not say whose port it uses.
    if object.get("state").is_some_and(|state| state == "LISTEN")
        && let Some(port) = object.remove("service-port")
    {
        object.insert("src-port".to_owned(), port);
    }
    object
}

/// An opening of a device, numbered by its slot.
pub(super) fn context(process: &Process) -> Object {
    let keys = [
        ("ctxn", process.slot.into()),
        ("pid", process.pid.into()),
        ("comm", process.comm.as_str().into()),
    ];
    let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value));
    keys.collect()
}
