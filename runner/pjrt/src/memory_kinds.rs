//! The memory kind of each output, for plugins that cannot tell: the device's default kind.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::Mutex;

use crate::abi::{Error, ErrorCode, ExecutableNumOutputsArgs, ExecutableOutputMemoryKindsArgs};
use crate::errors::{self, lock};
use crate::interposer;

/// Used where the plugin does not even name its default memory.
const FALLBACK_KIND: &str = "device";

/// The default memory kind of the last client's first device. It is never freed: tables point into it.
static DEFAULT_KIND: Mutex<Option<&'static str>> = Mutex::new(None);

/// One table of kinds for each (kind, number of outputs). They must outlive every executable, so they stay for ever; there
/// are as many as there are different numbers of outputs, which is few.
static TABLES: Mutex<Option<HashMap<(&'static str, usize), KindTable>>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct KindTable {
    kinds: &'static [usize],
    sizes: &'static [usize],
}

/// Remembers the default memory kind of the device in use.
pub fn remember_default(kind: String) {
    let mut default = lock(&DEFAULT_KIND);
    if *default != Some(kind.as_str()) {
        *default = Some(Box::leak(kind.into_boxed_str()));
    }
}

fn table(outputs: usize) -> KindTable {
    let kind = lock(&DEFAULT_KIND).unwrap_or(FALLBACK_KIND);
    *lock(&TABLES).get_or_insert_default().entry((kind, outputs)).or_insert_with(|| KindTable {
        kinds: Box::leak(vec![kind.as_ptr() as usize; outputs].into_boxed_slice()),
        sizes: Box::leak(vec![kind.len(); outputs].into_boxed_slice()),
    })
}

/// Replaces `PJRT_Executable_OutputMemoryKinds`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn output_memory_kinds(args: *mut ExecutableOutputMemoryKindsArgs) -> *mut Error {
    errors::guarded("PJRT_Executable_OutputMemoryKinds", || {
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        if error.is_null() || errors::describe(error).0 != ErrorCode::Unimplemented as c_int {
            return error;
        }
        // SAFETY: valid by the contract of the interface.
        let args = unsafe { &mut *args };
        let mut outputs = ExecutableNumOutputsArgs {
            struct_size: size_of::<ExecutableNumOutputsArgs>(),
            extension_start: std::ptr::null_mut(),
            executable: args.executable,
            num_outputs: 0,
        };
        errors::discard(error);
        // SAFETY: a whole struct with the caller's live executable.
        let error = unsafe { interposer::call(&raw mut outputs) };
        if error.is_null() {
            let table = table(outputs.num_outputs);
            args.num_outputs = outputs.num_outputs;
            args.memory_kinds = table.kinds.as_ptr().cast::<*const c_char>();
            args.memory_kind_sizes = table.sizes.as_ptr();
        }
        error
    })
}
