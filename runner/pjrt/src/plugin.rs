//! Loading the real plugin.

use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::interposer::PLUGIN_VARIABLE;
use crate::table::Table;

/// Two copies of a plugin's table: one to call, one to replace entries in.
pub struct Loaded {
    /// As the plugin made it.
    pub original: Table,
    /// The same again.
    pub copy: Table,
}

/// Loads a plugin and copies its table. The library stays loaded for the life of the process: frameworks keep the table.
pub fn load(path: &Path) -> Result<Loaded, String> {
    let failed = |why: &str, advice: &str| {
        format!("failed to load the PJRT plugin '{}' (from {PLUGIN_VARIABLE}): {why}. {advice}", path.display())
    };
    let reinstall = "Name the file of a PJRT plugin for this machine, or install its package again";
    if !path.is_file() {
        return Err(failed("there is no such file", reinstall));
    }
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| failed("its name holds a NUL", reinstall))?;
    // SAFETY: the string is NUL-terminated. Loading runs the library's constructors: that is what a plugin is for.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(failed(&last_error(), reinstall));
    }
    // SAFETY: a live handle and a NUL-terminated name.
    let symbol = unsafe { libc::dlsym(library, c"GetPjrtApi".as_ptr()) };
    if symbol.is_null() {
        return Err(failed("it has no function GetPjrtApi, so it is not a PJRT plugin", reinstall));
    }
    if std::ptr::eq(symbol, crate::GetPjrtApi as *const std::ffi::c_void) {
        return Err(failed("it is the interposer itself", "Name the plugin that the interposer is to stand in front of"));
    }
    // SAFETY: every PJRT plugin exports this name with this signature.
    let get_api: unsafe extern "C" fn() -> *const usize = unsafe { std::mem::transmute(symbol) };
    let newer = "Use a plugin with PJRT major version 0";
    // SAFETY: the plugin returns null or a table that starts with its own size and lives as long as the library.
    unsafe {
        let table = get_api();
        let original = Table::copy(table).map_err(|problem| failed(&problem.to_string(), newer))?;
        let copy = Table::copy(table).map_err(|problem| failed(&problem.to_string(), newer))?;
        Ok(Loaded { original, copy })
    }
}

/// Tells a person, through standard error, what went wrong: a framework may swallow the error that it gets.
pub fn report(message: &str) {
    let _ = writeln!(std::io::stderr(), "modelfarm's PJRT interposer: {message}");
}

fn last_error() -> String {
    // SAFETY: dlerror returns null or a NUL-terminated string that lives until the next call on this thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the system gives no reason".to_owned();
    }
    // SAFETY: not null, see above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_loaded_is_named_with_reason_and_advice() {
        let folder = std::env::temp_dir().join(format!("modelfarm-pjrt-plugin-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        let text = folder.join("text.so");
        std::fs::write(&text, "not a library").expect("a file");
        for (path, reason) in [(folder.join("absent.so"), "there is no such file"), (text, "file too short")] {
            let message = load(&path).err().expect("a failure");
            assert!(message.contains(&path.display().to_string()), "{message}");
            assert!(message.contains(reason), "{message}");
            assert!(message.contains(PLUGIN_VARIABLE) && message.contains("Name the file"), "{message}");
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
