//! Access control for the page and for changes.
//!
//! A browser runs pages of other sites as well, and they can send requests to every address that it
//! reaches. The page and its API therefore check the headers that browsers send: the name of the
//! server (another site's name may have been pointed to this machine's address), and the page that
//! a request comes from. There is no CORS header that would let another site in.

use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv6Addr};

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::uri::Authority;

use super::reply::Reply;

/// Decides which clients may see and change what.
#[derive(Debug)]
pub(super) struct Gate {
    /// Host names that requests from other machines may use; none if other machines may not
    /// connect.
    pub(super) remote: Option<Vec<String>>,
    /// The token of clients that may make changes; none if no client may.
    pub(super) token: Option<Token>,
}

impl Gate {
    /// Whether the page is shown to a client at this address, under the name it calls.
    pub(super) fn visitor(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Reply> {
        if self.remote.is_none() && !peer.to_canonical().is_loopback() {
            return Err(Reply::error(
                StatusCode::FORBIDDEN,
                "only this machine may open the page; start the server with --remote for others",
            ));
        }
        self.called(headers)
    }

    /// Whether the metrics are shown to a client at this address, under the host name that it uses.
    /// Other machines were given the address to listen on, and may use any name. A browser on this
    /// machine may run the page of a site whose name was pointed here; it always sends the name.
    pub(super) fn scraper(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Reply> {
        match peer.to_canonical().is_loopback() && headers.contains_key(HOST) {
            true => self.called(headers),
            false => Ok(()),
        }
    }

    /// Whether the client calls this server by a name that no other site can have.
    fn called(&self, headers: &HeaderMap) -> Result<(), Reply> {
        let Some(host) = one(headers, &HOST) else {
            return Err(Reply::error(
                StatusCode::BAD_REQUEST,
                "a request needs one Host header; send the name of this server",
            ));
        };
        match host.parse::<Authority>() {
            Ok(host) if self.is_own_name(host.host()) => Ok(()),
            _ => Err(Reply::error(
                StatusCode::FORBIDDEN,
                "this server does not go by that name; call it by its address or as localhost, or \
                 start it with --remote=NAME",
            )),
        }
    }

    /// Addresses cannot be pointed elsewhere, names can.
    fn is_own_name(&self, name: &str) -> bool {
        let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let address = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().ok().map(IpAddr::from),
            None => name.parse::<IpAddr>().ok().filter(IpAddr::is_ipv4),
        };
        let known = self.remote.iter().flatten();
        let mut names = std::iter::once("localhost").chain(known.map(String::as_str));
        match address {
            Some(address) => self.remote.is_some() || address.is_loopback(),
            None => names.any(|it| it.eq_ignore_ascii_case(name)),
        }
    }

    /// Whether a request comes from the page itself, or from a program that is no browser.
    pub(super) fn own_page(headers: &HeaderMap) -> Result<(), Reply> {
        const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
        let is_own = |origin: &str| {
            let from = origin.strip_prefix("http://");
            let from = from.or_else(|| origin.strip_prefix("https://"));
            from.is_some() && from == one(headers, &HOST)
        };
        let is_from_here = match headers.contains_key(ORIGIN) {
            true => one(headers, &ORIGIN).is_some_and(is_own),
            false => true,
        };
        let is_same_site = match headers.contains_key(&SITE) {
            true => matches!(one(headers, &SITE), Some("same-origin" | "none")),
            false => true,
        };
        match is_from_here && is_same_site {
            true => Ok(()),
            false => Err(Reply::error(
                StatusCode::FORBIDDEN,
                "another site's page may not use this server; open the server's own page",
            )),
        }
    }

    /// Whether a body is JSON: what a form of another site can send without asking is not.
    pub(super) fn json(headers: &HeaderMap) -> Result<(), Reply> {
        let kind = one(headers, &CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        match kind.eq_ignore_ascii_case("application/json") {
            true => Ok(()),
            false => Err(Reply::error(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body must be JSON; send it with Content-Type: application/json",
            )),
        }
    }

    /// Whether the client may change something.
    pub(super) fn changes(&self, headers: &HeaderMap) -> Result<(), Reply> {
        let Some(token) = &self.token else {
            return Err(Reply::error(
                StatusCode::FORBIDDEN,
                "this server only shows; start it with --allow-changes to change devices",
            ));
        };
        let given = one(headers, &AUTHORIZATION).and_then(|it| it.strip_prefix("Bearer "));
        match given.is_some_and(|given| token.is(given)) {
            true => Ok(()),
            false => Err(Reply::error(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong; open the page with the link that the server printed \
                 when it started",
            )),
        }
    }
}

/// The value of a header that is there once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    value.to_str().ok().filter(|_| values.next().is_none())
}

/// What a client that may change something knows.
pub(super) struct Token(String);

impl Token {
    /// A token that cannot be guessed.
    pub(super) fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// For the one who started the server.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Takes as long however much of it is right.
    fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let pairs = own.iter().zip(given);
        let differing = pairs.fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
        own.len() == given.len() && differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const HERE: &str = "127.0.0.1";
    const THERE: &str = "192.0.2.7";

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn gate(remote: Option<&[&str]>) -> Gate {
        Gate {
            remote: remote.map(|names| names.iter().map(|&it| it.to_owned()).collect()),
            token: None,
        }
    }

    fn sees(gate: &Gate, host: &str, peer: &str) -> bool {
        let headers = headers(&[(HOST, host)]);
        gate.visitor(&headers, peer.parse().unwrap()).is_ok()
    }

    #[test]
    fn only_this_machine_sees_the_page_unless_asked() {
        let own = gate(None);
        for host in [
            "127.0.0.1:9880",
            "127.1.2.3",
            "localhost",
            "LocalHost:1",
            "[::1]:9880",
        ] {
            assert!(sees(&own, host, HERE), "{host}");
            assert!(sees(&own, host, "::ffff:127.0.0.1"), "{host}");
            assert!(!sees(&own, host, THERE), "{host}");
        }
        let remote = gate(Some(&["nic.example.org"]));
        for host in [
            "192.0.2.1:9880",
            "[2001:db8::1]",
            "nic.example.org:80",
            "localhost",
        ] {
            assert!(sees(&remote, host, THERE), "{host}");
        }
    }

    #[test]
    fn a_name_that_a_stranger_has_pointed_here_is_not_ours() {
        let names = [
            "evil.example.org",
            "evil.example.org:9880",
            "127.0.0.1.example.org",
            "localhost.evil",
            "192.0.2.1",
            "0.0.0.0",
            "[::]",
            "[::ffff:192.0.2.1]",
            "",
            ":9880",
            "::1",
            "2130706433",
            "127.1",
            "[127.0.0.1]",
            "user@localhost:1:2",
            "localhost\u{ff}",
            "localhost,localhost",
        ];
        for host in names {
            assert!(!sees(&gate(None), host, HERE), "{host:?}");
        }
        assert!(!sees(&gate(Some(&["a"])), "b", THERE));
        let twice = headers(&[(HOST, "localhost"), (HOST, "localhost")]);
        let peer = HERE.parse().unwrap();
        assert!(gate(None).visitor(&twice, peer).is_err());
        assert!(gate(None).visitor(&HeaderMap::new(), peer).is_err());
    }

    #[test]
    fn metrics_are_open_to_every_address_except_rebound_names() {
        let scrapes = |gate: &Gate, host: &str, peer: &str| {
            let headers = headers(&[(HOST, host)]);
            gate.scraper(&headers, peer.parse().unwrap()).is_ok()
        };
        for host in ["127.0.0.1:9880", "localhost:9880", "[::1]:9880"] {
            for peer in [HERE, "::1", "::ffff:127.0.0.1"] {
                assert!(scrapes(&gate(None), host, peer), "{host} {peer}");
            }
        }
        for host in ["nic.example.org:9880", "192.0.2.1:9880", ""] {
            assert!(scrapes(&gate(None), host, THERE), "{host}");
        }
        let rebound = "evil.example.org:9880";
        for peer in [HERE, "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(!scrapes(&gate(None), rebound, peer), "{peer}");
            assert!(
                !scrapes(&gate(Some(&["nic.example.org"])), rebound, peer),
                "{peer}"
            );
        }
        assert!(scrapes(
            &gate(Some(&["nic.example.org"])),
            "NIC.example.org",
            HERE
        ));
        let peer = HERE.parse().unwrap();
        // As in HTTP 1.0, which browsers do not use.
        assert!(gate(None).scraper(&HeaderMap::new(), peer).is_ok());
        let twice = headers(&[(HOST, "localhost"), (HOST, "localhost")]);
        assert!(gate(None).scraper(&twice, peer).is_err());
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let site = HeaderName::from_static("sec-fetch-site");
        let from = |origin: &str| {
            let headers = headers(&[(HOST, "localhost:9880"), (ORIGIN, origin)]);
            Gate::own_page(&headers).is_ok()
        };
        assert!(from("http://localhost:9880") && from("https://localhost:9880"));
        for other in [
            "null",
            "",
            "http://localhost",
            "http://localhost:9881",
            "http://evil.example.org",
            "localhost:9880",
            "file://localhost:9880",
            "http://localhost:9880.evil.org",
        ] {
            assert!(!from(other), "{other}");
        }
        let fetched = |value: &str| {
            let headers = headers(&[(HOST, "localhost:9880"), (site.clone(), value)]);
            Gate::own_page(&headers).is_ok()
        };
        assert!(fetched("same-origin") && fetched("none"));
        assert!(!fetched("same-site") && !fetched("cross-site") && !fetched(""));
        assert!(Gate::own_page(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn forms_cannot_send_json() {
        let sends = |kind: &str| Gate::json(&headers(&[(CONTENT_TYPE, kind)])).is_ok();
        assert!(sends("application/json") && sends("Application/JSON; charset=utf-8"));
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "",
        ] {
            assert!(!sends(kind), "{kind}");
        }
        assert!(Gate::json(&HeaderMap::new()).is_err());
    }

    #[test]
    fn changes_need_the_whole_token() {
        let token = Token::random().unwrap();
        let text = token.reveal().to_owned();
        assert_eq!(text.len(), 32);
        assert_ne!(text, Token::random().unwrap().reveal());
        assert_eq!(format!("{token:?}"), "Token(..)");
        let gate = Gate {
            remote: None,
            token: Some(token),
        };
        let changes = |value: &str| gate.changes(&headers(&[(AUTHORIZATION, value)])).is_ok();
        assert!(changes(&format!("Bearer {text}")));
        for wrong in [
            String::new(),
            text.clone(),
            "Bearer ".to_owned(),
            format!("Bearer {}", &text[1..]),
            format!("Bearer {text}0"),
            format!("Bearer {}", text.to_uppercase() + "x"),
            format!("Basic {text}"),
        ] {
            assert!(!changes(&wrong), "{wrong}");
        }
        let read_only = Gate {
            remote: None,
            token: None,
        };
        let headers = headers(&[(AUTHORIZATION, "Bearer ")]);
        assert!(read_only.changes(&headers).is_err());
    }
}
