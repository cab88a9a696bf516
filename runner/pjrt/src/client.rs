//! Creating a client: options that the plugin does not know are dropped, and its platform is remembered.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{
    Client, ClientAddressableDevicesArgs, ClientCreateArgs, ClientPlatformNameArgs, DeviceDefaultMemoryArgs, Error, ErrorCode,
    MemoryKindArgs, NamedValue, slice, text,
};
use crate::errors::{self, lock};
use crate::interposer;
use crate::{device_memory, memory_kinds, plugin, xla_options};

/// Whether the platform of the last client is a CPU.
static ON_CPU: AtomicBool = AtomicBool::new(false);
/// The platform of the last client.
static PLATFORM: Mutex<String> = Mutex::new(String::new());
/// Create options that were dropped.
static DROPPED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether the device of the last client is a CPU.
pub fn on_cpu() -> bool {
    ON_CPU.load(Ordering::Relaxed)
}

/// The platform of the last client; empty before there is one.
pub fn platform() -> String {
    lock(&PLATFORM).clone()
}

/// The create options that were dropped.
pub fn dropped_options() -> Vec<String> {
    lock(&DROPPED).clone()
}

/// Replaces `PJRT_Client_Create`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn create(args: *mut ClientCreateArgs) -> *mut Error {
    errors::guarded("PJRT_Client_Create", || {
        if let Err(problem) = device_memory::read_limit().and_then(|()| xla_options::read()) {
            plugin::report(&problem);
            return errors::raise(ErrorCode::InvalidArgument, problem);
        }
        // SAFETY: valid by the contract of the interface.
        let error = unsafe { create_with_known_options(args) };
        if error.is_null() {
            // SAFETY: the call has just succeeded, so the client is there.
            unsafe { remember((*args).client) };
        }
        error
    })
}

/// Creates the client; as long as the plugin refuses an option by name, drops that option and tries again.
///
/// # Safety
/// `args` must be valid.
unsafe fn create_with_known_options(args: *mut ClientCreateArgs) -> *mut Error {
    // SAFETY: valid by the caller's promise; the two fields are put back below.
    let (given, count) = unsafe { ((*args).create_options, (*args).num_options) };
    // An option is as large as the caller's header says, which may be newer than ours.
    // SAFETY: every element starts with its own size.
    let stride = if count == 0 || given.is_null() { 0 } else { unsafe { (*given).struct_size }.next_multiple_of(8) };
    if stride < size_of::<NamedValue>() {
        // SAFETY: passed on unchanged.
        return unsafe { interposer::call(args) };
    }
    let name_of = |option: &[u64]| {
        // SAFETY: a copy of a whole option, at least as large as the struct and aligned like it; the caller keeps the name
        // alive during the call.
        unsafe {
            let option = &*option.as_ptr().cast::<NamedValue>();
            text(option.name, option.name_size)
        }
    };
    // Words, so that the copies are aligned.
    // SAFETY: `count` elements of `stride` bytes each.
    let all = unsafe { slice(given.cast::<u64>(), count * stride / 8) };
    let mut kept: Vec<Vec<u64>> = all.chunks_exact(stride / 8).map(<[u64]>::to_vec).collect();
    loop {
        let options: Vec<u64> = kept.concat();
        // SAFETY: `options` outlives the call, and the caller's own array is put back after it.
        let error = unsafe {
            (*args).create_options = options.as_ptr().cast();
            (*args).num_options = kept.len();
            let error = interposer::call(args);
            (*args).create_options = given;
            (*args).num_options = count;
            error
        };
        if error.is_null() {
            return error;
        }
        let (_, message) = errors::describe(error);
        let refused = kept.iter().position(|option| names(&message, &name_of(option)));
        let Some(position) = refused else { return error };
        errors::discard(error);
        let name = name_of(&kept.remove(position));
        let mut dropped = lock(&DROPPED);
        if !dropped.contains(&name) {
            dropped.push(name);
        }
    }
}

/// Whether a message holds a name as a whole word.
fn names(message: &str, name: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && message.split(|c: char| !of_name(c)).any(|word| word == name)
}

/// # Safety
/// `client` must be a live client of the plugin.
unsafe fn remember(client: *mut Client) {
    // SAFETY: passed on.
    let platform = unsafe { platform_of(client) };
    ON_CPU.store(is_cpu(&platform), Ordering::Relaxed);
    *lock(&PLATFORM) = platform;
    // SAFETY: passed on.
    if let Some(kind) = unsafe { default_memory_kind(client) } {
        memory_kinds::remember_default(kind);
    }
}

/// Whether a client's platform is a CPU; asked anew, so that it holds for each of several clients.
///
/// # Safety
/// `client` must be null or a live client of the plugin.
pub unsafe fn client_is_cpu(client: *mut Client) -> bool {
    // SAFETY: passed on.
    !client.is_null() && is_cpu(&unsafe { platform_of(client) })
}

fn is_cpu(platform: &str) -> bool {
    platform.eq_ignore_ascii_case("cpu") || platform.eq_ignore_ascii_case("host")
}

/// # Safety
/// `client` must be a live client of the plugin.
unsafe fn platform_of(client: *mut Client) -> String {
    let mut args = ClientPlatformNameArgs {
        struct_size: size_of::<ClientPlatformNameArgs>(),
        extension_start: std::ptr::null_mut(),
        client,
        platform_name: std::ptr::null(),
        platform_name_size: 0,
    };
    // SAFETY: a whole struct with a live client; the name lives as long as the client.
    unsafe {
        if !succeeded(interposer::call(&raw mut args)) {
            return String::new();
        }
        text(args.platform_name, args.platform_name_size)
    }
}

/// # Safety
/// `client` must be a live client of the plugin.
unsafe fn default_memory_kind(client: *mut Client) -> Option<String> {
    let mut devices = ClientAddressableDevicesArgs {
        struct_size: size_of::<ClientAddressableDevicesArgs>(),
        extension_start: std::ptr::null_mut(),
        client,
        devices: std::ptr::null(),
        num_devices: 0,
    };
    // SAFETY: whole structs with live objects; what comes back lives as long as the client.
    unsafe {
        if !succeeded(interposer::call(&raw mut devices)) {
            return None;
        }
        let device = *slice(devices.devices, devices.num_devices).first()?;
        let mut memory = DeviceDefaultMemoryArgs {
            struct_size: size_of::<DeviceDefaultMemoryArgs>(),
            extension_start: std::ptr::null_mut(),
            device,
            memory: std::ptr::null_mut(),
        };
        if !succeeded(interposer::call(&raw mut memory)) || memory.memory.is_null() {
            return None;
        }
        let mut kind = MemoryKindArgs {
            struct_size: size_of::<MemoryKindArgs>(),
            extension_start: std::ptr::null_mut(),
            memory: memory.memory,
            kind: std::ptr::null(),
            kind_size: 0,
        };
        if !succeeded(interposer::call(&raw mut kind)) {
            return None;
        }
        Some(text(kind.kind, kind.kind_size))
    }
}

/// Frees an error that nobody will look at; tells whether there was none.
pub fn succeeded(error: *mut Error) -> bool {
    if error.is_null() {
        return true;
    }
    errors::discard(error);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_named_only_as_a_whole_word() {
        assert!(names("Unexpected option name passed: premapped_buffer_size", "premapped_buffer_size"));
        assert!(!names("premapped_buffer_size_2 is unknown", "premapped_buffer_size"));
        assert!(!names("anything", ""));
    }

    #[test]
    fn only_a_cpu_is_a_cpu() {
        assert!(is_cpu("cpu") && is_cpu("Host"));
        assert!(!is_cpu("tpu") && !is_cpu("") && !is_cpu("cpu2"));
    }
}
