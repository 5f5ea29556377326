//! Reading the command line.

use std::ffi::{c_char, c_int, c_void};
use std::io::{Write as _, stderr, stdout};
use std::ptr::null_mut;

use ferroce_abi::border;
use ferroce_doca::argp::{self, Param, Request, Value};
use ferroce_doca::log::Level;
use ferroce_doca::pointer::text;
use ferroce_doca::{Code, Refusal, VERSION};

use crate::session::{Callback, Config, with};
use crate::tell::tell;

unsafe extern "C" {
    fn doca_log_level_set_global_lower_limit(level: u32) -> u32;
    fn doca_log_level_set_global_sdk_limit(level: u32) -> u32;
}

/// What the session says, so that it need not be locked while the program is called.
struct Plan {
    program: Option<String>,
    config: Config,
    params: Vec<Param>,
    callbacks: Vec<Callback>,
    version: Option<Callback>,
}

/// Reads the command line and calls back for each parameter.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_argp_start(argc: c_int, argv: *const *const c_char) -> u32 {
    // SAFETY: what `main` got.
    match unsafe { start(argc, argv) } {
        Ok(code) => code,
        Err(refusal) => {
            tell("doca_argp_start", &refusal);
            refusal.code() as u32
        }
    }
}

/// # Safety
///
/// `argv` has `argc` C strings.
unsafe fn start(argc: c_int, argv: *const *const c_char) -> Result<u32, Refusal> {
    // SAFETY: as above.
    let arguments = unsafe { arguments(argc, argv) }?;
    let plan = begin()?;
    let program = plan.program.as_deref().unwrap_or(&arguments[0]);
    match argp::parse(&plan.params, &arguments[1..]) {
        Ok(Request::Help) => end(&argp::usage(program, &plan.params)),
        Ok(Request::Version) => {
            let Some(callback) = plan.version else {
                end(&format!("DOCA SDK Version: {VERSION} (Ferroce)\n"));
            };
            // SAFETY: the program has registered it for this.
            unsafe { callback(null_mut(), plan.config.0) };
            end("")
        }
        Ok(Request::Run(run)) => {
            set_levels(run.level, run.sdk_level);
            for (index, value) in run.values {
                // SAFETY: the program has registered it for a value of this kind.
                let code = unsafe { call(plan.callbacks[index], value, plan.config) };
                if code != Code::Success as u32 {
                    return Ok(code);
                }
            }
            Ok(Code::Success as u32)
        }
        Err(refusal) => {
            let usage = argp::usage(program, &plan.params);
            // For the user; the program gets the code.
            let _ = write!(stderr(), "{program}: {refusal}\n\n{usage}");
            Ok(refusal.code() as u32)
        }
    }
}

/// The command line; its first argument is the program's name.
///
/// # Safety
///
/// `argv` has `argc` C strings.
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Result<Vec<String>, Refusal> {
    let count = usize::try_from(argc).unwrap_or(0);
    if count == 0 {
        return Err(Refusal::value("argc", argc, "1 and more"));
    }
    if argv.is_null() {
        return Err(Refusal::null("argv"));
    }
    // SAFETY: `argv` has `argc` entries, each a C string, which is the caller's word.
    let argument = |index| unsafe { text("an argument", *argv.add(index)) };
    (0..count)
        .map(|index| argument(index).map(str::to_owned))
        .collect()
}

fn begin() -> Result<Plan, Refusal> {
    with(|session| {
        if session.has_started {
            let instead = "call doca_argp_destroy() and doca_argp_init() first";
            return Err(Refusal::state("it has started already", instead));
        }
        session.has_started = true;
        Ok(Plan {
            program: session.program.clone(),
            config: session.config,
            params: session.params.clone(),
            callbacks: session.callbacks.clone(),
            version: session.version,
        })
    })
}

/// Sets what the log contains from the program and from the libraries.
fn set_levels(program: Option<Level>, libraries: Option<Level>) {
    // These levels are right, so the calls do not fail.
    if let Some(level) = program {
        // SAFETY: it takes a number.
        unsafe { doca_log_level_set_global_lower_limit(level as u32) };
    }
    if let Some(level) = libraries {
        // SAFETY: it takes a number.
        unsafe { doca_log_level_set_global_sdk_limit(level as u32) };
    }
}

/// Calls the program with a value.
///
/// # Safety
///
/// `callback` takes a value of this kind.
unsafe fn call(callback: Callback, value: Value, config: Config) -> u32 {
    let with = |value: *mut c_void| {
        // SAFETY: the value outlives the call, and the rest is the caller's word.
        unsafe { callback(value, config.0) }
    };
    match value {
        // It came from a C string or from JSON, where zeros inside end it for C.
        Value::String(text) => {
            let mut bytes: Vec<u8> = text.bytes().take_while(|byte| *byte != 0).collect();
            bytes.push(0);
            // The program may write into it.
            with(bytes.as_mut_ptr().cast())
        }
        Value::Int(mut number) => with((&raw mut number).cast()),
        Value::Boolean(mut is_set) => with((&raw mut is_set).cast()),
        Value::Double(mut number) => with((&raw mut number).cast()),
    }
}

/// Prints and ends the program, as the user asked for nothing else.
fn end(text: &str) -> ! {
    let _ = stdout().write_all(text.as_bytes());
    // SAFETY: ends the process as `exit(3)` does, with what the program has registered for it.
    unsafe { libc::exit(0) }
}
