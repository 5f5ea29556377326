//! Prints the designer as one file that needs no server, given the path of its module:
//!
//! ```text
//! rustup target add wasm32-unknown-unknown
//! cargo build --profile page -p ferroce-designer-module --target wasm32-unknown-unknown
//! cargo run -p ferroce-designer --example page -- \
//!     target/wasm32-unknown-unknown/page/ferroce_designer_module.wasm > designer.html
//! ```

use std::error::Error;
use std::io::Write as _;
use std::{env, fs, io};

use ferroce_designer::page;

const PAGE: &str = include_str!("../page/alone.html");
const JS: &str = include_str!("../page/alone.js");

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("name the WebAssembly module")?;
    let module = fs::read(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let scripts = [page::PLOT_JS, page::DESIGNER_JS, JS].concat();
    let page = PAGE
        .replace("/* style */", page::STYLE_CSS)
        .replace("/* scripts */", &scripts)
        .replace("<!-- module -->", &base64(&module))
        .replace(page::PLACE, page::DESIGNER_HTML);
    io::stdout().write_all(page.as_bytes())?;
    Ok(())
}

/// Bytes as text (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |index| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(match digit <= three.len() {
                true => char::from(DIGITS[value as usize]),
                false => '=',
            });
        }
    }
    text
}
