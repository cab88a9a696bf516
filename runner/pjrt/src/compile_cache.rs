//! Executables of XLA:CPU, kept by the content of their programs.
//!
//! What is under test is the framework, not the emulator's code generator, which takes a third of all time on small models and
//! does the same every night. Tracing, lowering and every call of the framework happen as ever: only the plugin's own
//! compilation is replaced by loading what it made of the same bytes before. Errors are never kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use crate::abi::{
    Client, ExecutableDeserializeAndLoadArgs, ExecutableDestroyArgs, ExecutableSerializeArgs, LoadedExecutable,
    LoadedExecutableGetExecutableArgs, slice,
};
use crate::client::succeeded;
use crate::{compile_options, counters, interposer};

/// The environment variable that names the folder. Who sets it keeps apart what the key does not hold: the plugin's file,
/// its flags, and the kind of CPU.
pub const CACHE_VARIABLE: &str = "MODELFARM_PJRT_COMPILE_CACHE";

// A file is the magic, the SHA-256 of what follows, the nanoseconds that the compilation took (little-endian u64), and the
// executable.
const MAGIC: &[u8; 8] = b"MFXLA001";
const DIGEST_BYTES: usize = 32;

/// Where the executable of one program is kept.
pub struct Place(PathBuf);

/// The place of a program, if there is a cache.
pub fn place(code: &[u8], options: &[u8]) -> Option<Place> {
    let folder = std::env::var_os(CACHE_VARIABLE).filter(|folder| !folder.is_empty())?;
    let mut hash = Sha256::new();
    let options = compile_options::canonical(options);
    hash.update((options.len() as u64).to_le_bytes());
    hash.update(options);
    hash.update(code);
    let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Place(Path::new(&folder).join(name)))
}

impl Place {
    /// The program's executable from the cache, and how long its compilation took; `None` where it is not there or the plugin
    /// does not take it back.
    ///
    /// # Safety
    /// `client` must be a live client of the plugin.
    pub unsafe fn load(&self, client: *mut Client) -> Option<(*mut LoadedExecutable, Duration)> {
        let file = fs::read(&self.0).ok()?;
        let start = Instant::now();
        let (compiled_in, executable) = unpacked(&file)?;
        let mut args = ExecutableDeserializeAndLoadArgs {
            struct_size: size_of::<ExecutableDeserializeAndLoadArgs>(),
            extension_start: std::ptr::null_mut(),
            client,
            serialized_executable: executable.as_ptr().cast(),
            serialized_executable_size: executable.len(),
            loaded_executable: std::ptr::null_mut(),
            overridden_options: std::ptr::null(),
            overridden_options_size: 0,
        };
        // SAFETY: a whole struct with a live client; the bytes are as the plugin wrote them and outlive the call.
        let loaded = succeeded(unsafe { interposer::call(&raw mut args) }) && !args.loaded_executable.is_null();
        if !loaded {
            counters::CACHE_REFUSED.add(1);
            return None;
        }
        counters::CACHE_HITS.add(1);
        self.mark_used();
        counters::CACHE_LOAD_NS.add_time(start.elapsed());
        Some((args.loaded_executable, compiled_in))
    }

    /// Says that the program was used today, for who removes what was not. Where the folder may only be read nothing is kept.
    fn mark_used(&self) {
        let _ = fs::File::open(&self.0).and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Keeps an executable that the plugin has just made. A cache that cannot be written is no error of the program's.
    ///
    /// # Safety
    /// `loaded` must be a live executable of the plugin.
    pub unsafe fn keep(&self, loaded: *mut LoadedExecutable, compiled_in: Duration) {
        // SAFETY: passed on.
        let Some(bytes) = (unsafe { serialized(loaded) }) else { return };
        if self.write(&packed(&bytes, compiled_in)).is_ok() {
            counters::CACHE_STORES.add(1);
        }
    }

    /// Whole or not at all: another process may read at any time, and this one may be killed at any time.
    fn write(&self, file: &[u8]) -> std::io::Result<()> {
        let partial = self.0.with_extension(format!("{}.partial", std::process::id()));
        let written = fs::write(&partial, file);
        let kept = written.and_then(|()| fs::rename(&partial, &self.0));
        if kept.is_err() {
            let _ = fs::remove_file(&partial);
        }
        kept
    }
}

fn packed(executable: &[u8], compiled_in: Duration) -> Vec<u8> {
    let nanoseconds = u64::try_from(compiled_in.as_nanos()).unwrap_or(u64::MAX);
    let content = [&nanoseconds.to_le_bytes(), executable].concat();
    [&MAGIC[..], &Sha256::digest(&content), &content].concat()
}

/// What is in a file of the cache, if the file is whole.
fn unpacked(file: &[u8]) -> Option<(Duration, &[u8])> {
    let (digest, content) = file.strip_prefix(MAGIC)?.split_at_checked(DIGEST_BYTES)?;
    if Sha256::digest(content)[..] != *digest {
        return None;
    }
    let (nanoseconds, executable) = content.split_first_chunk()?;
    Some((Duration::from_nanos(u64::from_le_bytes(*nanoseconds)), executable))
}

/// # Safety
/// `loaded` must be a live executable of the plugin.
unsafe fn serialized(loaded: *mut LoadedExecutable) -> Option<Vec<u8>> {
    let mut get = LoadedExecutableGetExecutableArgs {
        struct_size: size_of::<LoadedExecutableGetExecutableArgs>(),
        extension_start: std::ptr::null_mut(),
        loaded_executable: loaded,
        executable: std::ptr::null_mut(),
    };
    // SAFETY: whole structs with live objects; what the plugin hands over is given back below.
    unsafe {
        if !succeeded(interposer::call(&raw mut get)) || get.executable.is_null() {
            return None;
        }
        let mut serialize = ExecutableSerializeArgs {
            struct_size: size_of::<ExecutableSerializeArgs>(),
            extension_start: std::ptr::null_mut(),
            executable: get.executable,
            serialized_bytes: std::ptr::null(),
            serialized_bytes_size: 0,
            serialized_executable: std::ptr::null_mut(),
            deleter: None,
        };
        let bytes = succeeded(interposer::call(&raw mut serialize))
            .then(|| slice(serialize.serialized_bytes.cast::<u8>(), serialize.serialized_bytes_size).to_vec());
        if let (Some(deleter), false) = (serialize.deleter, serialize.serialized_executable.is_null()) {
            deleter(serialize.serialized_executable);
        }
        let mut destroy = ExecutableDestroyArgs {
            struct_size: size_of::<ExecutableDestroyArgs>(),
            extension_start: std::ptr::null_mut(),
            executable: get.executable,
        };
        succeeded(interposer::call(&raw mut destroy));
        bytes.filter(|bytes| !bytes.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_whole_or_not_at_all() {
        let file = packed(b"executable", Duration::from_millis(7));
        assert_eq!(unpacked(&file), Some((Duration::from_millis(7), &b"executable"[..])));
        for length in 0..file.len() {
            assert_eq!(unpacked(&file[..length]), None, "cut at {length}");
        }
        for position in 0..file.len() {
            let mut other = file.clone();
            other[position] ^= 1;
            assert_eq!(unpacked(&other), None, "changed at {position}");
        }
    }
}
