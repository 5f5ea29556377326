//! The contents of each path.

use std::net::IpAddr;
use std::time::Instant;

use ferroce_designer::{Refusal, page};
use ferroce_device::Counter;
use ferroce_registry::Registry;
use hyper::header::{ACCEPT, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::change::Change;
use super::gate::Gate;
use super::history::History;
use super::live::Live;
use super::reply::{PLAIN, Reply};
use super::{metrics, plain};
use crate::output::Failure;

/// The media type of OpenMetrics 1.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// That of the format before it.
const PLAIN_METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("page/index.html");
/// The page's files: path, media type and text.
const FILES: [(&str, &str, &str); 6] = [
    ("/style.css", CSS, page::STYLE_CSS),
    ("/plot.js", JS, page::PLOT_JS),
    ("/designer.js", JS, page::DESIGNER_JS),
    ("/devices.js", JS, include_str!("page/devices.js")),
    ("/device.js", JS, include_str!("page/device.js")),
    ("/server.js", JS, include_str!("page/server.js")),
];

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// In the older format or not.
    Metrics {
        is_plain: bool,
    },
    /// The page itself.
    Page,
    /// Media type and text of what it consists of.
    File(&'static str, &'static str),
    /// What the server is and allows.
    About,
    /// The devices as they are now.
    Devices,
    /// Their counters in the last minutes.
    History,
    /// A question to the designer.
    Design(&'static str),
    Change(Change),
}

impl Route {
    pub(super) fn takes_body(self) -> bool {
        matches!(self, Self::Design("design") | Self::Change(_))
    }

    /// The route at a path, and whether it belongs to the page rather than to Prometheus.
    fn at(path: &str, headers: &HeaderMap) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics {
                is_plain: wants_plain(headers),
            },
            "/" => Self::Page,
            "/api/about" => Self::About,
            "/api/devices" => Self::Devices,
            "/api/history" => Self::History,
            "/api/catalogue" => Self::Design("catalogue"),
            "/api/design" => Self::Design("design"),
            "/api/profile" => Self::Change(Change::Profile),
            "/api/impairment" => Self::Change(Change::Impairment),
            "/api/link" => Self::Change(Change::Link),
            _ => {
                let (_, kind, text) = FILES.iter().find(|(at, ..)| *at == path)?;
                Self::File(kind, text)
            }
        })
    }

    fn methods(self) -> &'static str {
        match self.takes_body() {
            true => "POST",
            false => "GET, HEAD",
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self.takes_body() {
            true => *method == Method::POST,
            false => matches!(*method, Method::GET | Method::HEAD),
        }
    }
}

/// The server's knowledge.
#[derive(Debug)]
pub(super) struct Site {
    registry: Registry,
    gate: Gate,
    asked: metrics::Asked,
    live: Live,
    history: History,
    /// From here on times are counted.
    begun: Instant,
}

impl Site {
    pub(super) fn new(registry: Registry, gate: Gate) -> Self {
        Self {
            registry,
            gate,
            asked: metrics::Asked::default(),
            live: Live::default(),
            history: History::default(),
            begun: Instant::now(),
        }
    }

    /// Reads the counters that the page draws over time; to be called every [`super::history::EVERY`].
    pub(super) fn read_counters(&mut self) {
        self.history.read(&self.registry, self.begun);
    }

    /// What a request is for, if it may have that.
    pub(super) fn route(&self, head: &Parts, peer: IpAddr) -> Result<Route, Reply> {
        let path = head.uri.path();
        let Some(route) = Route::at(path, &head.headers) else {
            let line = "there is no such page; metrics are at /metrics, the page is at /";
            return Err(Reply::plain(StatusCode::NOT_FOUND, line));
        };
        if !route.takes(&head.method) {
            let methods = route.methods();
            let line = format!("{path} takes only {methods}");
            return Err(Reply {
                allow: Some(methods),
                ..Reply::plain(StatusCode::METHOD_NOT_ALLOWED, &line)
            });
        }
        match route {
            Route::Metrics { .. } => self.gate.scraper(&head.headers, peer)?,
            _ => self.gate.visitor(&head.headers, peer)?,
        }
        if path.starts_with("/api/") {
            Gate::own_page(&head.headers)?;
        }
        if route.takes_body() {
            Gate::json(&head.headers)?;
        }
        if matches!(route, Route::Change(_)) {
            self.gate.changes(&head.headers)?;
        }
        Ok(route)
    }

    pub(super) fn answer(&mut self, route: Route, body: &str) -> Reply {
        match route {
            Route::Metrics { is_plain } => self.metrics(is_plain),
            Route::Page => Reply::ok(HTML, PAGE.replace(page::PLACE, page::DESIGNER_HTML)),
            Route::File(kind, text) => Reply::ok(kind, text),
            Route::About => Reply::json(&self.about()),
            Route::Devices => match self.live.look(&self.registry, self.begun) {
                Ok(text) => Reply::of_json(text),
                Err(failure) => failed(&failure),
            },
            Route::History => Reply::json(&self.history.json()),
            Route::Design(question) => match ferroce_designer::answer(question, body) {
                Some(Ok(text)) => Reply::of_json(text),
                Some(Err(refusal)) => refused(&refusal),
                None => Reply::error(StatusCode::NOT_FOUND, "unknown request"),
            },
            Route::Change(change) => match change.make(&self.registry, body) {
                Ok(()) => {
                    self.live.forget();
                    Reply::json(&json!({}))
                }
                Err(reply) => reply,
            },
        }
    }

    fn metrics(&mut self, is_plain: bool) -> Reply {
        match metrics::text(&self.registry, &mut self.asked) {
            Ok(text) if is_plain => Reply::ok(PLAIN_METRICS, plain::text(&text)),
            Ok(text) => Reply::ok(OPEN_METRICS, text),
            Err(error) => {
                let text = format!("{error}\n");
                Reply::new(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, text)
            }
        }
    }

    fn about(&self) -> Value {
        let counters = Counter::TABLE.iter();
        let counters = counters.map(|it| (it.name.to_owned(), Value::from(it.help)));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "allow_changes": self.gate.token.is_some(),
            "counters": counters.collect::<serde_json::Map<_, _>>(),
        })
    }
}

pub(super) fn refused(refusal: &Refusal) -> Reply {
    let Refusal {
        field,
        value,
        allowed,
        next,
    } = refusal;
    let text = refusal.to_string();
    Reply::refusal(
        StatusCode::BAD_REQUEST,
        json!({"text": text, "field": field, "value": value, "allowed": allowed, "next": next}),
    )
}

/// What a command of the same kind would have said.
pub(super) fn failed(failure: &Failure) -> Reply {
    let status = match failure {
        Failure::Input(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let lines = failure.to_string();
    let lines = lines.lines().map(|line| line.trim_start_matches("error: "));
    Reply::error(status, &lines.collect::<Vec<_>>().join("\n"))
}

/// Whether the client takes the older text format, and not OpenMetrics.
fn wants_plain(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    let has = |values: &str, kind: &str| {
        let mut kinds = values
            .split(',')
            .map(|it| it.split(';').next().unwrap_or(it).trim());
        kinds.any(|it| it.eq_ignore_ascii_case(kind))
    };
    let (mut plain, mut open) = (false, false);
    for values in accepted.by_ref() {
        plain |= has(values, "text/plain");
        open |= has(values, "application/openmetrics-text");
    }
    plain && !open
}
