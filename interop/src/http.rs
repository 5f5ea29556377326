//! The part of HTTP needed to query exporters on loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug)]
pub struct Page {
    /// Status line and headers.
    pub head: String,
    /// What follows them.
    pub body: String,
}

/// GET `path` of the server on a port of loopback.
///
/// # Panics
///
/// Panics if there is no server, or it does not answer within a while.
pub fn get(port: u16, path: &str) -> Page {
    send(port, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

/// Asks for a page of this media type.
///
/// # Panics
///
/// As [`get`].
pub fn get_as(port: u16, path: &str, kind: &str) -> Page {
    send(
        port,
        &format!("GET {path} HTTP/1.0\r\nAccept: {kind}\r\n\r\n"),
    )
}

/// Sends a request as it is; the server is to close the connection after the answer, or to say how long
/// that is.
///
/// # Panics
///
/// As [`get`].
pub fn send(port: u16, request: &str) -> Page {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a server");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("not 0");
    stream.write_all(request.as_bytes()).expect("a server");
    let mut bytes = Vec::new();
    let mut more = [0; 1 << 16];
    while !is_whole(&bytes) {
        match stream.read(&mut more) {
            Ok(0) => break,
            Ok(count) => bytes.extend(&more[..count]),
            // This process was stopped, or a debugger came, while it waited.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("no answer: {error}"),
        }
    }
    let text = String::from_utf8(bytes).expect("an answer is UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Page {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Whether all of an answer that says how long it is has come: some servers leave the connection open.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lengths = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        value.trim().parse::<usize>().ok().filter(|_| is_length)
    });
    // The head is ASCII, so it is as long as its text.
    let length = lengths.next();
    length.is_some_and(|length| answer.len() >= head.len() + 4 + length)
}
