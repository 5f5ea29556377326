//! Places of symbols in the file of a library.

use std::fs::File;
use std::io;
use std::path::Path;

use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, Machine};
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, FileKind, Object, ObjectSymbol, ReadCache};
use thiserror::Error;

/// Where a symbol is, counted from where the library is loaded.
pub type Place = u64;

/// A file is not a library with these symbols.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is not an ELF library of 64 bits.
    #[error("it is not a shared library of 64 bits (ELF)")]
    NotElf,
    /// The library is for another processor.
    #[error(
        "it is built for another processor than this one ({})",
        std::env::consts::ARCH
    )]
    OtherMachine,
    /// The library does not have a symbol.
    #[error("it has no symbol {0}; released libraries have it, others may have been stripped")]
    NoSymbol(String),
}

/// Finds the places of symbols, in the order of their names, in the whole symbol table of a file. It
/// includes local symbols, which the dynamic linker does not see; a library that was stripped has only
/// the others.
///
/// # Errors
///
/// Returns an error if the file is not a library for this processor, or if it lacks one of the symbols.
pub fn find(path: &Path, names: &[&str]) -> Result<Vec<Place>, SymbolError> {
    let data = ReadCache::new(File::open(path)?);
    if !matches!(FileKind::parse(&data), Ok(FileKind::Elf64)) {
        return Err(SymbolError::NotElf);
    }
    let header = FileHeader64::<Endianness>::parse(&data).map_err(|_| SymbolError::NotElf)?;
    let endian = header.endian().map_err(|_| SymbolError::NotElf)?;
    if header.e_machine(endian) != own_machine() {
        return Err(SymbolError::OtherMachine);
    }
    let file = ElfFile64::<Endianness, _>::parse(&data).map_err(|_| SymbolError::NotElf)?;
    let mut places = vec![None; names.len()];
    let symbols = file.symbols().chain(file.dynamic_symbols());
    for symbol in symbols.filter(|symbol| symbol.is_definition()) {
        let name = symbol.name().unwrap_or_default();
        if let Some(at) = names.iter().position(|wanted| *wanted == name) {
            places[at] = Some(symbol.address());
        }
    }
    let place = |(place, name): (Option<Place>, &&str)| {
        place.ok_or_else(|| SymbolError::NoSymbol((*name).to_owned()))
    };
    places.into_iter().zip(names).map(place).collect()
}

fn own_machine() -> Machine {
    match cfg!(target_arch = "aarch64") {
        true => EM_AARCH64,
        false => EM_X86_64,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refusal(content: &[u8]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        find(file.path(), &["main"]).unwrap_err().to_string()
    }

    #[test]
    fn symbols_are_found_in_the_order_of_their_names() {
        let own = std::env::current_exe().unwrap();
        let [main, start] = find(&own, &["main", "_start"]).unwrap()[..] else {
            panic!("two places");
        };
        assert_ne!(main, start);
        let swapped = find(&own, &["_start", "main"]).unwrap();
        assert_eq!(swapped, [start, main]);
    }

    #[test]
    fn a_symbol_that_is_missing_is_named() {
        let own = std::env::current_exe().unwrap();
        let error = find(&own, &["main", "ncclNetIb"]).unwrap_err();
        assert!(error.to_string().contains("it has no symbol ncclNetIb"));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(refusal(b"text").contains("it is not a shared library"));
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(refusal(&own[..100]).contains("it is not a shared library"));
        let mut other = own;
        // The field e_machine of ELF's header: SPARC.
        other[18..20].copy_from_slice(&2_u16.to_le_bytes());
        assert!(refusal(&other).contains("another processor"));
    }
}
