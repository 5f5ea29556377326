//! An answer.

use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Serialize;
use serde_json::json;

const JSON: &str = "application/json";
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

/// What a client is answered.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// The media type.
    pub(super) kind: &'static str,
    /// The methods that would have been right, if that was wrong.
    pub(super) allow: Option<&'static str>,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn new(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            kind,
            allow: None,
            body: body.into(),
        }
    }

    /// A line for people who ask by hand.
    pub(super) fn plain(status: StatusCode, line: &str) -> Self {
        Self::new(status, PLAIN, format!("{line}\n"))
    }

    pub(super) fn ok(kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, kind, body)
    }

    /// Facts, or something that was done.
    pub(super) fn json(facts: &impl Serialize) -> Self {
        match serde_json::to_vec(facts) {
            Ok(body) => Self::ok(JSON, body),
            Err(error) => Self::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    /// The same, if it is JSON already.
    pub(super) fn of_json(text: impl Into<Bytes>) -> Self {
        Self::ok(JSON, text)
    }

    /// Why something was not done, for a program to show.
    pub(super) fn error(status: StatusCode, text: &str) -> Self {
        Self::refusal(status, json!({"text": text}))
    }

    /// The same with what else there is to say of it.
    pub(super) fn refusal(status: StatusCode, error: serde_json::Value) -> Self {
        Self::new(status, JSON, json!({"error": error}).to_string())
    }
}
