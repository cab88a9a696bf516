//! The two function tables: the plugin's, as it is, and the one handed out, with some entries replaced.

use std::path::Path;
use std::sync::OnceLock;

use crate::abi::{Arguments, Entry, Error, ErrorCode, Function};
use crate::table::Table;
use crate::{client, compile, device_memory, errors, execute, memory_kinds, plugin, transfer};

/// The environment variable that names the plugin's file.
pub const PLUGIN_VARIABLE: &str = "MODELFARM_PJRT_PLUGIN";

/// Entries and version of the table handed out where there is no plugin: enough that every caller finds the error functions.
const REFUSING_ENTRIES: usize = 138;
const REFUSING_MINOR_VERSION: i32 = 115;

/// What stands between a framework and a plugin.
pub struct Interposer {
    real: Option<Table>,
    exposed: Table,
    failure: String,
    plugin: String,
}

static INTERPOSER: OnceLock<Interposer> = OnceLock::new();

impl Interposer {
    /// Puts this library in front of a plugin's table.
    pub fn in_front_of(real: Table, exposed: Table, plugin: String) -> Self {
        let mut exposed = exposed;
        for (entry, address) in replacements() {
            exposed.replace(entry, address);
        }
        Self { real: Some(real), exposed, failure: String::new(), plugin }
    }

    /// Stands in for a plugin that could not be loaded: every call answers with the reason.
    pub fn refusing(failure: String) -> Self {
        let refuse: unsafe extern "C" fn(*mut std::ffi::c_void) -> *mut Error = refuse;
        let mut exposed = Table::filled(REFUSING_ENTRIES, REFUSING_MINOR_VERSION, refuse as *const () as usize);
        for (entry, address) in error_functions() {
            exposed.replace(entry, address);
        }
        Self { real: None, exposed, failure, plugin: String::new() }
    }

    /// The table as C sees it.
    pub fn table(&self) -> *const usize {
        self.exposed.as_ptr()
    }

    /// The plugin's file; empty where there is none.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// The plugin's PJRT version.
    pub fn version(&self) -> (i32, i32) {
        self.real.as_ref().map_or((0, 0), Table::version)
    }
}

/// The interposer of this process; the first call loads the plugin.
pub fn start() -> &'static Interposer {
    INTERPOSER.get_or_init(|| match load() {
        Ok(interposer) => interposer,
        Err(failure) => {
            plugin::report(&failure);
            Interposer::refusing(failure)
        }
    })
}

/// The interposer, if the plugin was loaded.
pub fn started() -> Option<&'static Interposer> {
    INTERPOSER.get()
}

#[cfg(test)]
pub fn start_with(make: impl FnOnce() -> Interposer) -> &'static Interposer {
    INTERPOSER.get_or_init(make)
}

fn load() -> Result<Interposer, String> {
    let file = std::env::var_os(PLUGIN_VARIABLE).ok_or_else(|| {
        format!(
            "no plugin is named: the environment variable {PLUGIN_VARIABLE} is not set. \
             Set it to the file of a PJRT plugin, for example libtpu.so"
        )
    })?;
    let path = Path::new(&file);
    let loaded = plugin::load(path)?;
    Ok(Interposer::in_front_of(loaded.original, loaded.copy, path.display().to_string()))
}

/// The plugin's own function for these arguments, if it has one.
pub fn real<A: Arguments>() -> Option<Function<A>> {
    let address = INTERPOSER.get()?.real.as_ref()?.address(A::ENTRY)?;
    // SAFETY: the address is the non-null entry that the interface gives to exactly these arguments.
    Some(unsafe { std::mem::transmute_copy::<usize, Function<A>>(&address) })
}

/// Calls the plugin's own function; one that it lacks answers UNIMPLEMENTED.
///
/// # Safety
/// `args` must be what the interface asks of a caller of that function.
pub unsafe fn call<A: Arguments<Output = *mut Error>>(args: *mut A) -> *mut Error {
    match real::<A>() {
        // SAFETY: passed on from the caller.
        Some(function) => unsafe { function(args) },
        None => errors::raise(ErrorCode::Unimplemented, format!("the PJRT plugin has no {:?}", A::ENTRY)),
    }
}

unsafe extern "C" fn refuse(_args: *mut std::ffi::c_void) -> *mut Error {
    errors::guarded("an entry of a plugin that is not there", || {
        let failure = INTERPOSER.get().map_or("the plugin is not loaded", |interposer| interposer.failure.as_str());
        errors::raise(ErrorCode::FailedPrecondition, format!("modelfarm's PJRT interposer: {failure}"))
    })
}

/// An entry and the function of this library for it; the types make sure that the two belong together.
fn replacement<A: Arguments>(function: Function<A>) -> (Entry, usize) {
    // SAFETY: a function pointer has the size of a word on every platform that PJRT exists on.
    (A::ENTRY, unsafe { std::mem::transmute_copy::<Function<A>, usize>(&function) })
}

fn error_functions() -> [(Entry, usize); 4] {
    [
        replacement(errors::destroy),
        replacement(errors::error_message),
        replacement(errors::get_code),
        replacement(errors::for_each_payload),
    ]
}

fn replacements() -> impl Iterator<Item = (Entry, usize)> {
    error_functions().into_iter().chain([
        replacement(client::create),
        replacement(compile::client_compile),
        replacement(compile::compile),
        replacement(compile::deserialize_and_load),
        replacement(memory_kinds::output_memory_kinds),
        replacement(execute::execute),
        replacement(execute::loaded_executable_destroy),
        replacement(transfer::buffer_from_host_buffer),
        replacement(transfer::buffer_to_host_buffer),
        replacement(transfer::create_uninitialized_buffer),
        replacement(transfer::copy_to_device),
        replacement(transfer::copy_to_memory),
        replacement(transfer::retrieve_buffer),
        replacement(device_memory::buffer_destroy),
        replacement(device_memory::buffer_delete),
    ])
}
