//! From `doca_argp_init` to `doca_argp_destroy`.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_abi::border;
use ferroce_doca::argp::Param;
use ferroce_doca::pointer::text;
use ferroce_doca::{Code, Refusal};

use crate::param::PARAMS;
use crate::tell::answer;

/// What a program wants to be called with a value.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> u32;

/// The program's configuration, which callbacks get.
#[derive(Clone, Copy)]
pub(crate) struct Config(pub(crate) *mut c_void);

// SAFETY: the library only passes it on; what threads do with it is the program's matter.
unsafe impl Send for Config {}

/// What a program has registered.
pub(crate) struct Session {
    /// Its name, if it has said one.
    pub(crate) program: Option<String>,
    pub(crate) config: Config,
    pub(crate) params: Vec<Param>,
    /// A callback for each.
    pub(crate) callbacks: Vec<Callback>,
    pub(crate) version: Option<Callback>,
    pub(crate) has_started: bool,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `what` on the session that has begun. It must not call the program.
pub(crate) fn with<T>(what: impl FnOnce(&mut Session) -> Result<T, Refusal>) -> Result<T, Refusal> {
    match &mut *lock() {
        Some(session) => what(session),
        None => Err(Refusal::state(
            "nothing has begun",
            "call doca_argp_init() first",
        )),
    }
}

/// Begins.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_argp_init(
    program_name: *const c_char,
    program_config: *mut c_void,
) -> Code {
    let init = || {
        let program = match program_name.is_null() {
            true => None,
            // SAFETY: null or a C string that stays as it is during the call.
            false => Some(unsafe { text("program_name", program_name) }?.to_owned()),
        };
        let mut session = lock();
        if session.is_some() {
            let instead = "call doca_argp_destroy() first";
            return Err(Refusal::state("it has begun already", instead));
        }
        *session = Some(Session {
            program,
            config: Config(program_config),
            params: Vec::new(),
            callbacks: Vec::new(),
            version: None,
            has_started: false,
        });
        Ok(())
    };
    answer("doca_argp_init", init())
}

/// Ends, and with it all parameters.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_argp_destroy() -> Code {
    let ended = with(|_| Ok(()));
    *lock() = None;
    PARAMS.clear();
    answer("doca_argp_destroy", ended)
}
