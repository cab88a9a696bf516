//! Which buffers live on the device and how large they are; and an emulated limit on their sum.
//!
//! A CPU "device" has no memory limit of its own worth testing against. With `MODELFARM_PJRT_HBM_BYTES` set, an allocation
//! beyond it fails as it would on an accelerator. On a real accelerator the variable does nothing.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Mutex;

use crate::abi::{Buffer, BufferDeleteArgs, BufferDestroyArgs, BufferIsDeletedArgs, BufferOnDeviceSizeArgs, Error, ErrorCode};
use crate::errors::{self, lock};
use crate::{client, interposer, statistics};

/// The emulated device memory, in bytes.
pub const LIMIT_VARIABLE: &str = "MODELFARM_PJRT_HBM_BYTES";

#[derive(Default)]
struct Live {
    sizes: Option<HashMap<usize, u64>>,
    bytes: u64,
    peak: u64,
    limit: Option<u64>,
}

static LIVE: Mutex<Live> = Mutex::new(Live { sizes: None, bytes: 0, peak: 0, limit: None });

/// Device memory at one moment, in bytes.
pub struct Snapshot {
    /// Bytes of all live buffers.
    pub live: u64,
    /// The most that were alive at once.
    pub peak: u64,
    /// The emulated limit.
    pub limit: Option<u64>,
}

/// Reads the limit from the environment.
pub fn read_limit() -> Result<(), String> {
    let limit = match std::env::var(LIMIT_VARIABLE) {
        Err(_) => None,
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(text.parse::<u64>().ok().filter(|limit| *limit > 0).ok_or_else(|| {
            format!(
                "{LIMIT_VARIABLE} is '{text}', expected a whole number of bytes above 0, such as 17179869184. \
                 Correct it, or leave it unset for no limit"
            )
        })?),
    };
    lock(&LIVE).limit = limit;
    Ok(())
}

/// Device memory now.
pub fn snapshot() -> Snapshot {
    let live = lock(&LIVE);
    Snapshot { live: live.bytes, peak: live.peak, limit: live.limit.filter(|_| client::on_cpu()) }
}

/// Lets the peak start again from what is alive.
pub fn reset_peak() {
    let mut live = lock(&LIVE);
    live.peak = live.bytes;
}

/// Refuses an allocation of `bytes` that would go beyond the emulated limit.
pub fn check(bytes: u64) -> Result<(), *mut Error> {
    let Snapshot { live, limit: Some(limit), .. } = snapshot() else { return Ok(()) };
    if live.saturating_add(bytes) <= limit {
        return Ok(());
    }
    let message = format!(
        "Out of memory while trying to allocate {bytes} bytes: {live} bytes are in use and the emulated HBM limit is \
         {limit} bytes ({LIMIT_VARIABLE})"
    );
    statistics::record_execute_failure(ErrorCode::ResourceExhausted as c_int, &message);
    Err(errors::raise(ErrorCode::ResourceExhausted, message))
}

/// Notes a new buffer of a known size.
pub fn add(buffer: *mut Buffer, bytes: u64) {
    if buffer.is_null() {
        return;
    }
    let mut live = lock(&LIVE);
    let old = live.sizes.get_or_insert_default().insert(buffer as usize, bytes).unwrap_or(0);
    live.bytes = live.bytes.saturating_sub(old).saturating_add(bytes);
    live.peak = live.peak.max(live.bytes);
}

/// Notes a new buffer, asking the plugin for its size and using `expected` where it cannot tell.
///
/// # Safety
/// `buffer` must be null or a live buffer of the plugin.
pub unsafe fn add_measured(buffer: *mut Buffer, expected: u64) {
    if !buffer.is_null() {
        // SAFETY: passed on.
        add(buffer, unsafe { size_on_device(buffer) }.unwrap_or(expected));
    }
}

/// How many bytes a buffer takes on its device, padding and tiles included.
///
/// # Safety
/// `buffer` must be a live buffer of the plugin.
pub unsafe fn size_on_device(buffer: *mut Buffer) -> Option<u64> {
    let mut args = BufferOnDeviceSizeArgs {
        struct_size: size_of::<BufferOnDeviceSizeArgs>(),
        extension_start: std::ptr::null_mut(),
        buffer,
        size_in_bytes: 0,
    };
    // SAFETY: a whole struct with a live buffer.
    client::succeeded(unsafe { interposer::call(&raw mut args) }).then_some(args.size_in_bytes as u64)
}

/// Notes that a buffer's device memory is gone.
pub fn remove(buffer: *mut Buffer) {
    let mut live = lock(&LIVE);
    if let Some(bytes) = live.sizes.as_mut().and_then(|sizes| sizes.remove(&(buffer as usize))) {
        live.bytes = live.bytes.saturating_sub(bytes);
    }
}

/// Notes that a program took a buffer's memory over for an output, if it did.
///
/// # Safety
/// `buffer` must be null or a live buffer of the plugin.
pub unsafe fn remove_if_donated(buffer: *mut Buffer) {
    if buffer.is_null() {
        return;
    }
    let mut args = BufferIsDeletedArgs {
        struct_size: size_of::<BufferIsDeletedArgs>(),
        extension_start: std::ptr::null_mut(),
        buffer,
        is_deleted: false,
    };
    // SAFETY: a whole struct with a live buffer.
    if client::succeeded(unsafe { interposer::call(&raw mut args) }) && args.is_deleted {
        remove(buffer);
    }
}

/// Replaces `PJRT_Buffer_Destroy`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn buffer_destroy(args: *mut BufferDestroyArgs) -> *mut Error {
    errors::guarded("PJRT_Buffer_Destroy", || {
        // SAFETY: valid by the contract of the interface. Removed before the call: the address may be used again at once.
        remove(unsafe { (*args).buffer });
        // SAFETY: passed on unchanged.
        unsafe { interposer::call(args) }
    })
}

/// Replaces `PJRT_Buffer_Delete`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn buffer_delete(args: *mut BufferDeleteArgs) -> *mut Error {
    errors::guarded("PJRT_Buffer_Delete", || {
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        if error.is_null() {
            // SAFETY: valid by the contract of the interface.
            remove(unsafe { (*args).buffer });
        }
        error
    })
}
