//! Rules of the project that no compiler checks; ARCHITECTURE.md and CONTRIBUTING.md give the
//! reasons.

mod border;
mod crates;
mod layers;
mod licences;
mod manifests;
mod modules;
mod pages;
mod promises;
mod purity;

mod syntax;
mod unfinished;
mod unsafe_code;
mod walks;
mod workspace;
