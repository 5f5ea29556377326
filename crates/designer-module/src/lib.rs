//! The designer's answers as a WebAssembly module, for a page that needs no server: `cargo run -p
//! ferroce-designer --example page` combines both into one file.
//!
//! Texts are passed byte by byte, so no memory is shared and nothing here is unsafe: the page
//! [`put`]s the name of a question, a zero byte and the question, [`ask`]s, and [`take`]s as many
//! bytes of the answer as `ask` returned.

use std::cell::RefCell;

use serde_json::json;

thread_local! {
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Adds a byte to the question.
#[unsafe(no_mangle)]
pub extern "C" fn put(byte: u32) {
    TEXT.with_borrow_mut(|text| text.extend(u8::try_from(byte)));
}

/// Answers the question, and says how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> usize {
    TEXT.with_borrow_mut(|text| {
        *text = answer(&String::from_utf8_lossy(text)).into_bytes();
        text.len()
    })
}

/// A byte of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn take(at: usize) -> u32 {
    TEXT.with_borrow(|text| text.get(at).copied().unwrap_or(0).into())
}

/// Ready for another question.
#[unsafe(no_mangle)]
pub extern "C" fn clear() {
    TEXT.with_borrow_mut(Vec::clear);
}

/// As the server would answer.
fn answer(text: &str) -> String {
    let (name, question) = text.split_once('\0').unwrap_or((text, ""));
    match ferroce_designer::answer(name, question) {
        Some(Ok(answer)) => answer,
        Some(Err(refusal)) => {
            json!({"error": {"text": refusal.to_string(), "field": refusal.field}}).to_string()
        }
        None => json!({"error": {"text": format!("unknown question {name:?}")}}).to_string(),
    }
}
