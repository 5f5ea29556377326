//! The HTTP server, and its limits for each client.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::connections::{Connections, Place};
use super::history;
use super::reply::Reply;
use super::site::Site;

/// How long a client may take for the head of a request, and as long again for its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one may keep its connection; the next one is opened when it is needed.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(120);
/// The largest body, in bytes: a table of all fields of a card's register is a fiftieth of it.
const BODY_MAX: usize = 256 << 10;

/// What browsers are told with every answer: it is for this server's own page only, which loads
/// nothing from elsewhere and is not shown in others.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Answers requests until SIGINT or SIGTERM.
pub(super) fn serve(listener: TcpListener, site: Site) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let site = Rc::new(RefCell::new(site));
    LocalSet::new().block_on(&runtime, async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = accept(listener, Rc::clone(&site)) => result,
            never = read_counters(&site) => match never {},
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

type Shared = Rc<RefCell<Site>>;

/// Keeps what the devices count, whether a page is open or not.
async fn read_counters(site: &Shared) -> Infallible {
    let mut turn = interval(history::EVERY);
    // After a time in which this program did not run, nothing is to be made up for.
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        site.borrow_mut().read_counters();
    }
}

async fn accept(listener: tokio::net::TcpListener, site: Shared) -> io::Result<()> {
    let connections = Connections::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // The client is gone already, or descriptors are short: both pass.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let site = Rc::clone(&site);
        connections.admit(|place| {
            let conversation = async move { converse(stream, peer.ip(), &site, place).await };
            tokio::task::spawn_local(conversation).abort_handle()
        });
    }
}

/// Answers the requests of one connection. What goes wrong with it is the client's business.
async fn converse(stream: TcpStream, peer: IpAddr, site: &Shared, place: Place) {
    let place = RefCell::new(place);
    let place = &place;
    let service = service_fn(|request| async move {
        place.borrow_mut().set_busy(true);
        let reply = match answer(request, peer, site).await {
            Ok(reply) | Err(reply) => reply,
        };
        place.borrow_mut().set_busy(false);
        Ok::<_, Infallible>(response(reply))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    if timeout(CONNECTION_PATIENCE, connection.as_mut())
        .await
        .is_err()
    {
        // One that is just being answered gets the rest of it.
        connection.as_mut().graceful_shutdown();
        let _ = timeout(PATIENCE, connection).await;
    }
}

async fn answer(request: Request<Incoming>, peer: IpAddr, site: &Shared) -> Result<Reply, Reply> {
    let (head, body) = request.into_parts();
    let route = site.borrow().route(&head, peer)?;
    let body = match route.takes_body() {
        true => read(body, &head.headers).await?,
        false => String::new(),
    };
    // Nothing waits while it is borrowed: one thread answers one request after the other.
    Ok(site.borrow_mut().answer(route, &body))
}

async fn read(body: Incoming, headers: &HeaderMap) -> Result<String, Reply> {
    let too_large = || {
        let text =
            format!("the body is larger than {BODY_MAX} bytes; send less, a profile is small");
        Reply::error(StatusCode::PAYLOAD_TOO_LARGE, &text)
    };
    if headers.contains_key(header::CONTENT_LENGTH) && body.size_hint().lower() > BODY_MAX as u64 {
        return Err(too_large());
    }
    let bytes = match timeout(PATIENCE, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(error)) => {
            let text = format!("the body cannot be read: {error}");
            return Err(Reply::error(StatusCode::BAD_REQUEST, &text));
        }
        Err(_) => {
            let text = "the body did not come within 10 s; send it at once";
            return Err(Reply::error(StatusCode::REQUEST_TIMEOUT, text));
        }
    };
    String::from_utf8(bytes.into()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = format!("the body is not text: byte {at} is not UTF-8; send JSON");
        Reply::error(StatusCode::BAD_REQUEST, &text)
    })
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(reply.kind));
    if let Some(methods) = reply.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    response
}
