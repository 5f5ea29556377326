//! `doca_log.h`.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ferroce_abi::border;
use ferroce_doca::log::{Level, Line};
use ferroce_doca::{Code, Refusal, pointer};

/// Where lines go, and which.
struct Log {
    /// Names of the program's parts.
    sources: Vec<String>,
    /// Whether the program's lines go to the standard streams.
    is_standard: bool,
    program_limit: Level,
    /// Where the libraries' lines go; the pointers that programs have are places in this list, from
    /// 1. Backends stay to the end.
    sdk: Vec<Backend>,
    sdk_limit: Level,
}

struct Backend {
    file: *mut libc::FILE,
    limit: Level,
}

// SAFETY: streams of the C library lock themselves, and the program keeps them open.
unsafe impl Send for Backend {}

static LOG: Mutex<Log> = Mutex::new(Log {
    sources: Vec::new(),
    is_standard: false,
    program_limit: Level::Info,
    sdk: Vec::new(),
    sdk_limit: Level::Warning,
});

fn lock() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a call, and a line about a refusal.
pub(crate) fn answer(call: &str, result: Result<(), Refusal>) -> Code {
    let Err(refusal) = result else {
        return Code::Success;
    };
    tell(Level::Error, call, &refusal.to_string());
    refusal.code()
}

/// Writes a line of the libraries.
fn tell(level: Level, call: &str, text: &str) {
    let log = lock();
    for backend in log.sdk.iter().filter(|backend| level <= backend.limit) {
        let line = line(level, "ferroce", 0, call, text);
        // SAFETY: the program keeps the stream open.
        unsafe { write(backend.file, line) };
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Writes a line by the C library, so that it comes behind what the program has printed, and as a
/// whole. One that cannot be written is dropped.
///
/// # Safety
///
/// `file` is an open stream.
unsafe fn write(file: *mut libc::FILE, line: String) {
    let line = line + "\n";
    // SAFETY: bytes of a string, and the rest is the caller's word.
    unsafe {
        libc::fwrite(line.as_ptr().cast(), 1, line.len(), file);
        libc::fflush(file);
    }
}

/// Writes a line of the library that calls; `call` is the function that refused something.
#[unsafe(no_mangle)]
#[border(nothing)]
pub unsafe extern "C" fn ferroce_doca_tell(level: u32, call: *const c_char, text: *const c_char) {
    // SAFETY: C strings of our own libraries.
    let texts = unsafe { (pointer::text("call", call), pointer::text("text", text)) };
    if let (Ok(level), (Ok(call), Ok(text))) = (Level::of(level), texts) {
        tell(level, call, text);
    }
}

fn line(level: Level, file: &str, number: i32, function: &str, text: &str) -> String {
    let line = Line {
        time: time_of_day(),
        // SAFETY: it only asks.
        thread: u64::try_from(unsafe { libc::gettid() }).unwrap_or(0),
        level,
        file,
        line: number,
        function,
        text,
    };
    line.to_string()
}

/// Hours, minutes and seconds where the program runs, and microseconds.
fn time_of_day() -> [u32; 4] {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = libc::time_t::try_from(now.as_secs()).unwrap_or(0);
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: the seconds are ours, there is room for the answer, and zeroed it is one, too.
    let parts = unsafe {
        libc::localtime_r(&seconds, parts.as_mut_ptr());
        parts.assume_init()
    };
    let part = |value: c_int| u32::try_from(value).unwrap_or(0);
    [
        part(parts.tm_hour),
        part(parts.tm_min),
        part(parts.tm_sec),
        now.subsec_micros(),
    ]
}

/// Sends the program's lines to the standard streams.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_log_backend_create_standard() -> Code {
    lock().is_standard = true;
    Code::Success
}

/// Sends the libraries' lines to a stream.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_log_backend_create_with_file_sdk(
    fptr: *mut libc::FILE,
    backend: *mut usize,
) -> Code {
    let create = || {
        pointer::check("fptr", fptr)?;
        pointer::check("backend", backend)?;
        let mut log = lock();
        let limit = log.sdk_limit;
        log.sdk.push(Backend { file: fptr, limit });
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { pointer::put("backend", backend, log.sdk.len()) }
    };
    answer("doca_log_backend_create_with_file_sdk", create())
}

/// Limits what a stream gets of the libraries' lines.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_log_backend_set_sdk_level(backend: usize, level: u32) -> Code {
    let set = || {
        let limit = Level::of(level)?;
        let mut log = lock();
        let place = backend.checked_sub(1);
        let found = place.and_then(|place| log.sdk.get_mut(place));
        found.ok_or_else(|| Refusal::null("backend"))?.limit = limit;
        Ok(())
    };
    answer("doca_log_backend_set_sdk_level", set())
}

/// Limits the program's lines.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_log_level_set_global_lower_limit(level: u32) -> Code {
    let set = Level::of(level).map(|level| lock().program_limit = level);
    answer("doca_log_level_set_global_lower_limit", set)
}

/// Limits the libraries' lines.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_log_level_set_global_sdk_limit(level: u32) -> Code {
    let set = Level::of(level).map(|level| {
        let mut log = lock();
        log.sdk_limit = level;
        log.sdk.iter_mut().for_each(|backend| backend.limit = level);
    });
    answer("doca_log_level_set_global_sdk_limit", set)
}

/// A number for a part of the program.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_log_register_source(
    source_name: *const c_char,
    source: *mut c_int,
) -> Code {
    let register = || {
        // SAFETY: null or a C string that stays as it is during the call.
        let name = unsafe { pointer::text("source_name", source_name) }?;
        pointer::check("source", source)?;
        let mut log = lock();
        let known = log.sources.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            log.sources.push(name.to_owned());
            log.sources.len() - 1
        });
        let full = |_| Refusal::new(Code::Full, "there are too many sources");
        let number = c_int::try_from(index).map_err(full)?;
        // SAFETY: as above.
        unsafe { pointer::put("source", source, number) }
    };
    answer("doca_log_register_source", register())
}

unsafe extern "C" {
    /// In `format.c`.
    fn ferroce_doca_log_format(
        level: u32,
        source: c_int,
        fname: *const c_char,
        line: c_int,
        func: *const c_char,
        format: *const c_char,
        ...
    ) -> u32;
}

/// Writes a line of the program. All arguments, however many, stay where they are.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn doca_log() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("jmp {format}", format = sym ferroce_doca_log_format);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("b {format}", format = sym ferroce_doca_log_format);
}

/// Writes a line of the program whose text is complete.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn ferroce_doca_log_text(
    level: u32,
    source: c_int,
    fname: *const c_char,
    number: c_int,
    func: *const c_char,
    text: *const c_char,
) -> Code {
    let log = || {
        pointer::check("format", text)?;
        let level = Level::of(level)?;
        {
            let log = lock();
            let is_known = usize::try_from(source).is_ok_and(|it| it < log.sources.len());
            if !is_known {
                let allowed = "a number of doca_log_register_source()";
                return Err(Refusal::value("source", source, allowed));
            }
            if !log.is_standard || level > log.program_limit || level == Level::Disable {
                return Ok(());
            }
        }
        // SAFETY: C strings of the program, or null.
        let [file, function, text] = unsafe { [lossy(fname), lossy(func), lossy(text)] };
        let line = line(level, &file, number, &function, &text);
        // SAFETY: the standard streams, which the C library has opened.
        unsafe {
            match level >= Level::Info {
                true => write(stdout, line),
                false => write(stderr, line),
            }
        }
        Ok(())
    };
    answer("doca_log", log())
}

/// A text for people.
///
/// # Safety
///
/// Null or a C string.
unsafe fn lossy(text: *const c_char) -> String {
    if text.is_null() {
        return "?".to_owned();
    }
    // SAFETY: not null, and the rest is the caller's word.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
