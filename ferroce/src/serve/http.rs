//! The exporter's end of HTTP.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ferroce_udp::RegistryError;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::plain;

/// The media type of OpenMetrics 1.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// That of the format before it.
const PLAIN_METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const START_PAGE: &str = "<!doctype html><title>Ferroce</title><a href=\"/metrics\">Metrics</a>\n";
/// Connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 32;
/// How long a client may take for the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long one may keep its connection; Prometheus opens the next one when it needs it.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(300);

/// Answers GET /metrics with what `metrics` returns, until SIGINT or SIGTERM.
pub(super) fn serve(
    listener: TcpListener,
    metrics: impl FnMut() -> Result<String, RegistryError> + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let metrics: Metrics = Rc::new(RefCell::new(metrics));
    LocalSet::new().block_on(&runtime, async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = accept(listener, metrics) => result,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

type Metrics = Rc<RefCell<dyn FnMut() -> Result<String, RegistryError>>>;

async fn accept(listener: tokio::net::TcpListener, metrics: Metrics) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return Ok(()); // nobody closes the semaphore
        };
        let Ok((stream, _)) = listener.accept().await else {
            // The client is gone already, or descriptors are short: both pass.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let metrics = Rc::clone(&metrics);
        tokio::task::spawn_local(async move {
            let _place = place;
            let service = service_fn(|request| {
                let response = answer(&request, &metrics);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            // What goes wrong with a connection is the client's business.
            let _ = tokio::time::timeout(CONNECTION_PATIENCE, connection).await;
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = page(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    match request.uri().path() {
        // Nobody else is at it: it is called by one thread and does not wait for another call.
        "/metrics" => match (metrics.borrow_mut())() {
            Ok(text) if wants_plain(request) => {
                page(StatusCode::OK, PLAIN_METRICS, plain::text(&text))
            }
            Ok(text) => page(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => page(
                StatusCode::INTERNAL_SERVER_ERROR,
                PLAIN,
                format!("{error}\n"),
            ),
        },
        "/" => page(StatusCode::OK, HTML, START_PAGE),
        _ => page(StatusCode::NOT_FOUND, PLAIN, "metrics are at /metrics\n"),
    }
}

/// Whether the client takes the older text format, and not OpenMetrics.
fn wants_plain(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get_all(ACCEPT).iter();
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

fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
