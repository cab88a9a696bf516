//! A tiny PJRT plugin for the tests: a real function table in front of which this library stands, with one kind of everything.
//!
//! It refuses the create option `premapped_buffer_size`, cannot tell memory kinds, and notes what reaches it.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::abi::*;
use crate::errors::lock;
use crate::interposer::{self, Interposer};
use crate::table::Table;

/// Entries of the fake table; the last one is newer than anything that this library knows.
pub const ENTRIES: usize = 150;
/// The address in that entry.
pub const UNKNOWN: usize = 0xabcd_ef01;
/// Bytes of every buffer: four floats.
pub const BUFFER_BYTES: u64 = 16;

/// Programs that reached the plugin.
pub static COMPILED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// The options of the last compilation.
pub static COMPILE_OPTIONS: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// How often the plugin created a client.
pub static CREATE_CALLS: AtomicUsize = AtomicUsize::new(0);
/// Names of the options of the client that was created last.
pub static OPTIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Whether the platform is a CPU.
pub static IS_CPU: AtomicBool = AtomicBool::new(true);
/// Whether the plugin tells nonsense about its outputs' dimensions.
pub static LIES: AtomicBool = AtomicBool::new(false);
/// Whether arguments are consumed by a run.
pub static DONATES: AtomicBool = AtomicBool::new(false);
/// Whether the plugin refuses the executables that it serialised.
pub static FORGETS: AtomicBool = AtomicBool::new(false);
/// Serialised executables that nobody has freed.
pub static SERIALIZATIONS_ALIVE: AtomicUsize = AtomicUsize::new(0);
/// Errors of the plugin that nobody has freed.
pub static ERRORS_ALIVE: AtomicUsize = AtomicUsize::new(0);

const SERIALIZED: &[u8; 10] = b"executable";
static NEXT_BUFFER: AtomicUsize = AtomicUsize::new(0x1_0000);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct FakeError {
    code: c_int,
    message: String,
}

fn fail(code: c_int, message: &str) -> *mut Error {
    ERRORS_ALIVE.fetch_add(1, Ordering::SeqCst);
    Box::into_raw(Box::new(FakeError { code, message: message.to_owned() })).cast()
}

/// Starts the interposer in front of this plugin, resets everything and keeps other tests out for as long as the guard lives.
pub fn start() -> (MutexGuard<'static, ()>, &'static Interposer) {
    let guard = lock(&ONE_AT_A_TIME);
    let interposer = interposer::start_with(|| in_front_of(ENTRIES));
    lock(&COMPILED).clear();
    lock(&OPTIONS).clear();
    CREATE_CALLS.store(0, Ordering::SeqCst);
    IS_CPU.store(true, Ordering::SeqCst);
    LIES.store(false, Ordering::SeqCst);
    DONATES.store(false, Ordering::SeqCst);
    FORGETS.store(false, Ordering::SeqCst);
    crate::statistics::reset();
    crate::xla_options::read().expect("no options are set");
    (guard, interposer)
}

/// An interposer in front of the first `entries` entries of this plugin's table.
pub fn in_front_of(entries: usize) -> Interposer {
    let words = words(entries);
    // SAFETY: the words are a whole table by its own size.
    let (real, exposed) = unsafe { (Table::copy(words.as_ptr()), Table::copy(words.as_ptr())) };
    Interposer::in_front_of(real.expect("a table"), exposed.expect("a table"), "fake".to_owned())
}

fn words(entries: usize) -> Vec<usize> {
    let mut words = vec![0_usize; 5 + entries];
    words[0] = words.len() * 8;
    words[2] = 24;
    words[4] = 99 << 32;
    let mut set = |entry: Entry, address: *const ()| {
        if (entry as usize) < entries {
            words[5 + entry as usize] = address as usize;
        }
    };
    set(Entry::ErrorDestroy, error_destroy as *const ());
    set(Entry::ErrorMessage, error_message as *const ());
    set(Entry::ErrorGetCode, error_get_code as *const ());
    set(Entry::ClientCreate, client_create as *const ());
    set(Entry::ClientPlatformName, platform_name as *const ());
    set(Entry::ClientAddressableDevices, addressable_devices as *const ());
    set(Entry::DeviceDefaultMemory, default_memory as *const ());
    set(Entry::MemoryKind, memory_kind as *const ());
    set(Entry::ClientCompile, client_compile as *const ());
    set(Entry::BufferFromHostBuffer, buffer_from_host as *const ());
    set(Entry::BufferToHostBuffer, buffer_to_host as *const ());
    set(Entry::BufferOnDeviceSize, on_device_size as *const ());
    set(Entry::BufferIsDeleted, is_deleted as *const ());
    set(Entry::BufferDestroy, buffer_destroy as *const ());
    set(Entry::ExecutableNumOutputs, num_outputs as *const ());
    set(Entry::ExecutableOutputMemoryKinds, output_memory_kinds as *const ());
    set(Entry::ExecutableOutputElementTypes, output_types as *const ());
    set(Entry::ExecutableOutputDimensions, output_dimensions as *const ());
    set(Entry::ExecutableSerialize, serialize as *const ());
    set(Entry::ExecutableDeserializeAndLoad, deserialize_and_load as *const ());
    set(Entry::ExecutableDestroy, executable_destroy as *const ());
    set(Entry::LoadedExecutableGetExecutable, get_executable as *const ());
    set(Entry::LoadedExecutableExecute, execute as *const ());
    if entries == ENTRIES {
        words[5 + ENTRIES - 1] = UNKNOWN;
    }
    words
}

/// Declares functions of the plugin that get their arguments by reference.
macro_rules! plugin_functions {
    ($(fn $name:ident($args:ident: $kind:ty) $body:block)+) => {
        $(unsafe extern "C" fn $name(args: *mut $kind) -> *mut Error {
            // SAFETY: the tests and the interposer pass whole structs.
            let $args = unsafe { &mut *args };
            $body
        })+
    };
}

const FINE: *mut Error = std::ptr::null_mut();

unsafe extern "C" fn delete_serialized(serialized: *mut std::ffi::c_void) {
    SERIALIZATIONS_ALIVE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: made by `serialize`, which hands it out once.
    drop(unsafe { Box::from_raw(serialized.cast::<[u8; 10]>()) });
}

unsafe extern "C" fn error_destroy(args: *mut ErrorDestroyArgs) {
    ERRORS_ALIVE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: only errors of this plugin come here, which `fail` made.
    drop(unsafe { Box::from_raw((*args).error.cast::<FakeError>()) });
}

unsafe extern "C" fn error_message(args: *mut ErrorMessageArgs) {
    // SAFETY: as above.
    unsafe {
        let error = &*(*args).error.cast::<FakeError>();
        (*args).message = error.message.as_ptr().cast::<c_char>();
        (*args).message_size = error.message.len();
    }
}

plugin_functions! {
    fn error_get_code(args: ErrorGetCodeArgs) {
        // SAFETY: only errors of this plugin come here, which `fail` made.
        args.code = unsafe { &*args.error.cast::<FakeError>() }.code;
        FINE
    }

    fn client_create(args: ClientCreateArgs) {
        CREATE_CALLS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: an array of whole options.
        let options: Vec<String> = unsafe { slice(args.create_options, args.num_options) }
            .iter()
            // SAFETY: each with a name of its length.
            .map(|option| unsafe { text(option.name, option.name_size) })
            .collect();
        if options.iter().any(|name| name == "premapped_buffer_size") {
            return fail(3, "Unexpected option name passed to PJRT_Client_Create: premapped_buffer_size");
        }
        *lock(&OPTIONS) = options;
        args.client = 0x100 as *mut Client;
        FINE
    }

    fn platform_name(args: ClientPlatformNameArgs) {
        let name = if IS_CPU.load(Ordering::SeqCst) { "cpu" } else { "tpu" };
        args.platform_name = name.as_ptr().cast();
        args.platform_name_size = name.len();
        FINE
    }

    fn addressable_devices(args: ClientAddressableDevicesArgs) {
        static DEVICES: [usize; 1] = [0x200];
        args.devices = DEVICES.as_ptr().cast();
        args.num_devices = 1;
        FINE
    }

    fn default_memory(args: DeviceDefaultMemoryArgs) {
        args.memory = 0x300 as *mut Memory;
        FINE
    }

    fn memory_kind(args: MemoryKindArgs) {
        let kind = "fake_memory";
        args.kind = kind.as_ptr().cast();
        args.kind_size = kind.len();
        FINE
    }

    fn client_compile(args: ClientCompileArgs) {
        // SAFETY: a whole program, and its options.
        let (code, options) = unsafe {
            let program = &*args.program;
            let options = slice(args.compile_options.cast::<u8>(), args.compile_options_size);
            (slice(program.code.cast::<u8>(), program.code_size), options)
        };
        lock(&COMPILED).push(code.to_vec());
        *lock(&COMPILE_OPTIONS) = options.to_vec();
        if code.starts_with(b"refused") {
            return fail(12, "no implementation for custom call");
        }
        args.executable = 0x400 as *mut LoadedExecutable;
        FINE
    }

    fn serialize(args: ExecutableSerializeArgs) {
        let bytes = Box::new(*SERIALIZED);
        SERIALIZATIONS_ALIVE.fetch_add(1, Ordering::SeqCst);
        args.serialized_bytes_size = bytes.len();
        args.serialized_bytes = Box::into_raw(bytes).cast();
        args.serialized_executable = args.serialized_bytes.cast_mut().cast();
        args.deleter = Some(delete_serialized);
        FINE
    }

    fn deserialize_and_load(args: ExecutableDeserializeAndLoadArgs) {
        // SAFETY: as many bytes as the caller says.
        let given = unsafe { slice(args.serialized_executable.cast::<u8>(), args.serialized_executable_size) };
        if given != SERIALIZED || FORGETS.load(Ordering::SeqCst) {
            return fail(13, "function not found");
        }
        args.loaded_executable = 0x400 as *mut LoadedExecutable;
        FINE
    }

    fn buffer_from_host(args: BufferFromHostBufferArgs) {
        args.buffer = NEXT_BUFFER.fetch_add(16, Ordering::SeqCst) as *mut Buffer;
        FINE
    }

    fn buffer_to_host(args: BufferToHostBufferArgs) {
        if args.destination.is_null() {
            args.destination_size = BUFFER_BYTES as usize;
        }
        FINE
    }

    fn on_device_size(args: BufferOnDeviceSizeArgs) {
        args.size_in_bytes = BUFFER_BYTES as usize;
        FINE
    }

    fn is_deleted(args: BufferIsDeletedArgs) {
        args.is_deleted = DONATES.load(Ordering::SeqCst);
        FINE
    }

    fn buffer_destroy(_args: BufferDestroyArgs) { FINE }

    fn num_outputs(args: ExecutableNumOutputsArgs) {
        args.num_outputs = 2;
        FINE
    }

    fn output_memory_kinds(_args: ExecutableOutputMemoryKindsArgs) { fail(12, "GetOutputMemoryKinds is not supported") }

    fn output_types(args: ExecutableOutputElementTypesArgs) {
        static TYPES: [c_int; 2] = [11, 11];
        args.output_types = TYPES.as_ptr();
        args.num_output_types = 2;
        FINE
    }

    fn output_dimensions(args: ExecutableOutputDimensionsArgs) {
        static DIMS: [i64; 2] = [4, 4];
        static RANKS: [usize; 2] = [1, 1];
        static IMPOSSIBLE: [usize; 2] = [usize::MAX, 2];
        args.num_outputs = 2;
        args.dims = DIMS.as_ptr();
        args.dim_sizes = if LIES.load(Ordering::SeqCst) { IMPOSSIBLE.as_ptr() } else { RANKS.as_ptr() };
        FINE
    }

    fn executable_destroy(_args: ExecutableDestroyArgs) { FINE }

    fn get_executable(args: LoadedExecutableGetExecutableArgs) {
        args.executable = 0x500 as *mut Executable;
        FINE
    }

    fn execute(args: LoadedExecutableExecuteArgs) {
        // SAFETY: the test passes one device with room for two outputs.
        unsafe {
            let outputs = *args.output_lists;
            for index in 0..2 {
                *outputs.add(index) = NEXT_BUFFER.fetch_add(16, Ordering::SeqCst) as *mut Buffer;
            }
        }
        FINE
    }
}
