//! Errors that this library hands out itself, next to the plugin's own.
//!
//! A caller cannot tell the two apart, so the functions that take an error look its address up here and pass on what is not
//! ours.

use std::collections::HashSet;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Error, ErrorCode, ErrorDestroyArgs, ErrorForEachPayloadArgs, ErrorGetCodeArgs, ErrorMessageArgs, text};
use crate::interposer;

struct OwnError {
    code: ErrorCode,
    message: String,
}

/// Addresses of the errors of this library that nobody has freed yet.
static ALIVE: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

/// Locks a mutex whose content stays valid even if a holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an error that the caller frees through the table.
pub fn raise(code: ErrorCode, message: impl Into<String>) -> *mut Error {
    let error = Box::into_raw(Box::new(OwnError { code, message: message.into() }));
    lock(&ALIVE).get_or_insert_default().insert(error as usize);
    error.cast()
}

/// Runs the body of a function that C calls: a panic becomes an error and never unwinds into C.
pub fn guarded(function: &str, body: impl FnOnce() -> *mut Error) -> *mut Error {
    // Whatever the panic left behind is behind locks that tolerate it, or in atomics.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no reason given".to_owned());
        raise(ErrorCode::Internal, format!("modelfarm's PJRT interposer panicked in {function}: {reason}"))
    })
}

fn is_own(error: *const Error) -> bool {
    lock(&ALIVE).as_ref().is_some_and(|alive| alive.contains(&(error as usize)))
}

/// What an error says, ours or the plugin's: its code and message. The error stays alive.
pub fn describe(error: *mut Error) -> (c_int, String) {
    let mut code =
        ErrorGetCodeArgs { struct_size: size_of::<ErrorGetCodeArgs>(), extension_start: std::ptr::null_mut(), error, code: 2 };
    let mut message = ErrorMessageArgs {
        struct_size: size_of::<ErrorMessageArgs>(),
        extension_start: std::ptr::null_mut(),
        error,
        message: std::ptr::null(),
        message_size: 0,
    };
    // SAFETY: both structs are whole, and the message lives until the error is destroyed.
    unsafe {
        get_code(&raw mut code);
        error_message(&raw mut message);
        (code.code, text(message.message, message.message_size))
    }
}

/// Frees an error, ours or the plugin's.
pub fn discard(error: *mut Error) {
    let mut args =
        ErrorDestroyArgs { struct_size: size_of::<ErrorDestroyArgs>(), extension_start: std::ptr::null_mut(), error };
    // SAFETY: a whole struct; the caller gives the error up.
    unsafe { destroy(&raw mut args) };
}

/// Replaces `PJRT_Error_Destroy`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn destroy(args: *mut ErrorDestroyArgs) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: valid by the contract of the interface.
        let error = unsafe { (*args).error };
        if error.is_null() {
            return;
        }
        let own = lock(&ALIVE).as_mut().is_some_and(|alive| alive.remove(&(error as usize)));
        if own {
            // SAFETY: it was made by `raise` and has just been taken off the list, so it is freed once.
            drop(unsafe { Box::from_raw(error.cast::<OwnError>()) });
        } else if let Some(real) = interposer::real::<ErrorDestroyArgs>() {
            // SAFETY: the plugin's own function with the plugin's own error.
            unsafe { real(args) };
        }
    }));
}

/// Replaces `PJRT_Error_Message`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn error_message(args: *mut ErrorMessageArgs) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: valid by the contract of the interface.
        let args_ref = unsafe { &mut *args };
        if is_own(args_ref.error) {
            // SAFETY: it is on the list, so it was made by `raise` and not freed.
            let own = unsafe { &*args_ref.error.cast::<OwnError>() };
            args_ref.message = own.message.as_ptr().cast::<c_char>();
            args_ref.message_size = own.message.len();
        } else if let Some(real) = interposer::real::<ErrorMessageArgs>() {
            // SAFETY: the plugin's own function with the plugin's own error.
            unsafe { real(args) };
        }
    }));
}

/// Replaces `PJRT_Error_GetCode`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn get_code(args: *mut ErrorGetCodeArgs) -> *mut Error {
    guarded("PJRT_Error_GetCode", || {
        // SAFETY: valid by the contract of the interface.
        let args_ref = unsafe { &mut *args };
        if is_own(args_ref.error) {
            // SAFETY: it is on the list, so it was made by `raise` and not freed.
            args_ref.code = unsafe { &*args_ref.error.cast::<OwnError>() }.code as c_int;
            return std::ptr::null_mut();
        }
        match interposer::real::<ErrorGetCodeArgs>() {
            // SAFETY: the plugin's own function with the plugin's own error.
            Some(real) => unsafe { real(args) },
            None => std::ptr::null_mut(),
        }
    })
}

/// Replaces `PJRT_Error_ForEachPayload`: our errors have none.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn for_each_payload(args: *mut ErrorForEachPayloadArgs) -> *mut Error {
    guarded("PJRT_Error_ForEachPayload", || {
        // SAFETY: valid by the contract of the interface.
        if is_own(unsafe { (*args).error }) {
            return std::ptr::null_mut();
        }
        match interposer::real::<ErrorForEachPayloadArgs>() {
            // SAFETY: the plugin's own function with the plugin's own error.
            Some(real) => unsafe { real(args) },
            None => std::ptr::null_mut(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_errors_are_recognised_described_and_freed_once() {
        let error = raise(ErrorCode::ResourceExhausted, "emulated limit");
        assert!(is_own(error));
        assert_eq!(describe(error), (8, "emulated limit".to_owned()));
        discard(error);
        assert!(!is_own(error));
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let error = guarded("PJRT_Client_Compile", || panic!("broken {}", 7));
        let (code, message) = describe(error);
        assert_eq!(code, ErrorCode::Internal as c_int);
        assert!(message.contains("PJRT_Client_Compile") && message.contains("broken 7"), "{message}");
        discard(error);
    }
}
