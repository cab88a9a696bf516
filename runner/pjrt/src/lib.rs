//! A PJRT plugin that stands in front of another.
//!
//! It exports `GetPjrtApi`, loads the plugin that `MODELFARM_PJRT_PLUGIN` names, copies its function table and replaces a few
//! entries: programs that XLA:CPU cannot take are rewritten first, what a plugin lacks is filled in, and everything is
//! counted. In front of a real TPU's plugin the rewriting does nothing and the counting stays. See `docs/pjrt.md`.

pub mod abi;
mod client;
mod compile;
mod compile_cache;
mod compile_options;
mod counters;
mod device_memory;
mod errors;
mod execute;
#[cfg(test)]
mod fake_plugin;
mod interposer;
mod json;
mod memory_kinds;
mod plugin;
mod program_scan;
mod rewriter;
mod statistics;
mod table;
#[cfg(test)]
mod through_the_table;
mod transfer;
mod xla_options;

pub use interposer::PLUGIN_VARIABLE;

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The one function that a framework asks a PJRT plugin for: its function table, which lives as long as the process.
///
/// Where the real plugin cannot be loaded, the reason goes to standard error and every entry of the table answers with it.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn GetPjrtApi() -> *const usize {
    catch_unwind(|| interposer::start().table()).unwrap_or(std::ptr::null())
}

/// Writes the statistics as JSON and a NUL into `buffer` and returns the length of the JSON without the NUL.
///
/// If the returned length is not below `length`, nothing but a NUL was written: call again with a larger buffer.
///
/// # Safety
/// `buffer` must be null (only the length is wanted) or have room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn modelfarm_pjrt_statistics_json(buffer: *mut c_char, length: usize) -> usize {
    let json = catch_unwind(AssertUnwindSafe(statistics::json)).unwrap_or_else(|_| "{}".to_owned());
    if buffer.is_null() || length == 0 {
        return json.len();
    }
    let written = if json.len() < length { json.as_bytes() } else { &[] };
    // SAFETY: the caller promises `length` bytes, and `written` is shorter than that by the NUL.
    unsafe {
        std::ptr::copy_nonoverlapping(written.as_ptr(), buffer.cast::<u8>(), written.len());
        buffer.add(written.len()).write(0);
    }
    json.len()
}

/// Sets all counters and recorded errors to zero. Live device bytes stay, and the peak starts again from them.
#[unsafe(no_mangle)]
pub extern "C" fn modelfarm_pjrt_reset_statistics() {
    let _ = catch_unwind(statistics::reset);
}
