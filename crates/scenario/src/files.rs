//! The files that a scenario refers to.

/// Reads a file that a scenario refers to. Returns its bytes, or why it cannot be read. A name that ends in a
/// slash is a directory, whose bytes are the names of its files, one a line.
pub type Resolver<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// Reads a file of text.
pub(crate) fn resolve_text(resolve: &mut Resolver<'_>, name: &str) -> Result<String, String> {
    String::from_utf8(resolve(name)?).map_err(|_| "it is not text in UTF-8".into())
}
