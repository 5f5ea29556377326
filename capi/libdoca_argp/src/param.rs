//! Parameters until they are registered.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use ferroce_abi::border;
use ferroce_doca::argp::{self, Kind, Param};
use ferroce_doca::pointer::text;
use ferroce_doca::{Code, Handles, Refusal};

use crate::session::{Callback, with};
use crate::tell::{answer, tell};

/// A parameter that the program still describes.
#[derive(Default)]
pub(crate) struct Draft(Mutex<Description>);

#[derive(Clone, Default)]
struct Description {
    param: Param,
    callback: Option<Callback>,
    /// What could not be set; the parameter cannot be registered then.
    refused: Option<Refusal>,
}

pub(crate) static PARAMS: Handles<Draft> = Handles::new("param");

/// A parameter without properties.
#[unsafe(no_mangle)]
#[border(code)]
pub unsafe extern "C" fn doca_argp_param_create(param: *mut usize) -> Code {
    let create = || {
        if param.is_null() {
            return Err(Refusal::null("param"));
        }
        with(|_| Ok(()))?;
        // SAFETY: not null, and a variable that may be written to.
        unsafe { param.write(PARAMS.insert(Draft::default())) };
        Ok(())
    };
    answer("doca_argp_param_create", create())
}

/// Sets a property of a parameter.
fn set(call: &str, param: usize, set: impl FnOnce(&mut Description) -> Result<(), Refusal>) {
    let done = PARAMS.get(param).and_then(|draft| {
        let mut description = draft.0.lock().unwrap_or_else(PoisonError::into_inner);
        let done = set(&mut description);
        if let Err(refusal) = &done {
            description.refused = Some(refusal.clone());
        }
        done
    });
    if let Err(refusal) = done {
        tell(call, &refusal);
    }
}

/// Sets the name behind one dash.
#[unsafe(no_mangle)]
#[border(nothing)]
pub unsafe extern "C" fn doca_argp_param_set_short_name(param: usize, name: *const c_char) {
    set("doca_argp_param_set_short_name", param, |it| {
        // SAFETY: null or a C string that stays as it is during the call.
        it.param.short = Some(unsafe { text("short_name", name) }?.to_owned());
        Ok(())
    });
}

/// Sets the name behind two dashes.
#[unsafe(no_mangle)]
#[border(nothing)]
pub unsafe extern "C" fn doca_argp_param_set_long_name(param: usize, name: *const c_char) {
    set("doca_argp_param_set_long_name", param, |it| {
        // SAFETY: null or a C string that stays as it is during the call.
        it.param.long = Some(unsafe { text("long_name", name) }?.to_owned());
        Ok(())
    });
}

/// Sets what the help says.
#[unsafe(no_mangle)]
#[border(nothing)]
pub unsafe extern "C" fn doca_argp_param_set_description(param: usize, description: *const c_char) {
    set("doca_argp_param_set_description", param, |it| {
        // SAFETY: null or a C string that stays as it is during the call.
        it.param.description = unsafe { text("description", description) }?.to_owned();
        Ok(())
    });
}

/// Sets what is called with the value.
#[unsafe(no_mangle)]
#[border(nothing)]
pub extern "C" fn doca_argp_param_set_callback(param: usize, callback: Option<Callback>) {
    set("doca_argp_param_set_callback", param, |it| {
        it.callback = Some(callback.ok_or_else(|| Refusal::null("callback"))?);
        Ok(())
    });
}

/// Sets what the value is.
#[unsafe(no_mangle)]
#[border(nothing)]
pub extern "C" fn doca_argp_param_set_type(param: usize, kind: u32) {
    set("doca_argp_param_set_type", param, |it| {
        let allowed = "1 (STRING), 2 (INT), 3 (BOOLEAN) or 6 (DOUBLE)";
        let known = Kind::of(kind).ok_or_else(|| Refusal::value("type", kind, allowed))?;
        it.param.kind = Some(known);
        Ok(())
    });
}

/// Takes a parameter over.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_argp_register_param(input_param: usize) -> Code {
    let register = || {
        with(|session| match session.has_started {
            false => Ok(()),
            true => Err(Refusal::state(
                "it has started",
                "register parameters before",
            )),
        })?;
        let draft = PARAMS.remove(input_param, |_| Ok(()))?;
        let description = draft
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(refusal) = description.refused {
            return Err(refusal);
        }
        let callback = description
            .callback
            .ok_or_else(|| Refusal::null("callback"))?;
        with(|session| {
            argp::check(&description.param, &session.params)?;
            session.params.push(description.param);
            session.callbacks.push(callback);
            Ok(())
        })
    };
    answer("doca_argp_register_param", register())
}

/// Sets what is called for the version.
#[unsafe(no_mangle)]
#[border(code)]
pub extern "C" fn doca_argp_register_version_callback(callback: Option<Callback>) -> Code {
    let register = || {
        let callback = callback.ok_or_else(|| Refusal::null("callback"))?;
        with(|session| {
            session.version = Some(callback);
            Ok(())
        })
    };
    answer("doca_argp_register_version_callback", register())
}
