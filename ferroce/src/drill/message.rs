//! Messages of libraries, in the forms that these print.

/// Whether a library calls a message a warning or an error.
pub(super) fn is_warning(text: &str) -> bool {
    text.contains(" WARN ")
}

/// A message without the place where it was printed.
pub(super) fn plain(text: &str) -> &str {
    let after = |mark: &str| text.split_once(mark).map(|(_, text)| text);
    let said = after(" NCCL WARN ").or_else(|| after(" NCCL INFO "));
    said.unwrap_or(text).trim()
}
