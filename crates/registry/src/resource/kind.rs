//! The kinds of objects and their keys, which are those of iproute2's `rdma` if it has them.

use serde_json::Value;

use super::Query;

/// A kind of objects.
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What to ask processes for; `None` for the processes themselves.
    pub query: Option<Query>,
    /// Whether its objects belong to the device's port.
    pub is_on_port: bool,
    /// Keys that tables have, in their order; each object's process follows.
    keys: &'static str,
    /// Further keys, behind these, in tables with details.
    details: &'static str,
}

/// What is known of a key before any object is there.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in tables and filters.
    pub name: &'static str,
    /// Whether only tables with details have it.
    pub is_detail: bool,
    /// What its values are.
    pub form: Form,
}

/// What values of a key are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A number.
    Number,
    /// A number that is shown in hexadecimal digits.
    Hex,
    /// An address, a name or a state.
    Text,
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "qp",
        query: Some(Query::Qp),
        is_on_port: true,
        keys: "lqpn rqpn type state rq-psn sq-psn path-mig-state pdn peer timeout wait-ns range \
               retries-left in-flight",
        details: "path-window path-used path-rtt-ns total-ns exponent retry-cnt rnr-retry send-queue \
                  recv-queue send-cqn recv-cqn srqn",
    },
    Kind {
        name: "mr",
        query: Some(Query::Mr),
        is_on_port: false,
        keys: "mrn rkey lkey mrlen pdn",
        details: "iova",
    },
    Kind {
        name: "cq",
        query: Some(Query::Cq),
        is_on_port: false,
        keys: "cqn cqe users",
        details: "waiting",
    },
    Kind {
        name: "pd",
        query: Some(Query::Pd),
        is_on_port: false,
        keys: "pdn users",
        details: "",
    },
    Kind {
        name: "srq",
        query: Some(Query::Srq),
        is_on_port: false,
        keys: "srqn pdn users",
        details: "max-wr waiting",
    },
    Kind {
        name: "cm_id",
        query: Some(Query::CmId),
        is_on_port: true,
        keys: "cm-idn lqpn rqpn state ps src-addr src-port dst-addr service-port",
        details: "cm-state service-id",
    },
    Kind {
        name: "ctx",
        query: None,
        is_on_port: false,
        keys: "ctxn",
        details: "",
    },
];

impl Kind {
    /// Its keys, in the order of tables.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let always = self.keys.split(' ').map(|name| Key::new(name, false));
        let details = self.details.split_terminator(' ');
        let details = details.map(|name| Key::new(name, true));
        let process = ["pid", "comm"].map(|name| Key::new(name, false));
        always.chain(details).chain(process)
    }
}

impl Key {
    fn new(name: &'static str, is_detail: bool) -> Self {
        let form = match name {
            "rkey" | "lkey" | "iova" | "service-id" => Form::Hex,
            "type" | "state" | "path-mig-state" | "peer" | "ps" | "src-addr" | "dst-addr"
            | "cm-state" | "comm" => Form::Text,
            _ => Form::Number,
        };
        Self {
            name,
            is_detail,
            form,
        }
    }

    /// Its value in a row as JSON, whose names have their units; `None` if it is absent there.
    pub fn value<'a>(&self, row: &'a Value) -> Option<&'a Value> {
        let value = match self.name {
            "mrlen" => &row["length_bytes"],
            "path-window" => &row["path_window_bytes"],
            "path-used" => &row["path_used_bytes"],
            name => &row[name.replace('-', "_")],
        };
        (!value.is_null()).then_some(value)
    }

    /// The value as tables show it.
    pub fn shown(&self, value: &Value) -> Value {
        match (self.form, value.as_u64()) {
            (Form::Hex, Some(number)) => format!("{number:#x}").into(),
            _ => value.clone(),
        }
    }
}
