//! The part of the PJRT C interface that this library reads or writes, declared by hand.
//!
//! PJRT's structs only ever grow at the end, and each starts with its own size, so a declaration may stop after the last
//! field that is used here. What a caller or a plugin has beyond that is never touched. Offsets hold for versions 0.60 to
//! 0.117 of the interface.

use std::ffi::{c_char, c_int, c_void};

/// Defines opaque types that are only ever seen behind a pointer.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $($(#[$doc])* #[repr(C)] pub struct $name { _private: [u8; 0] })+
    };
}

opaque! {
    /// An error object; null means success.
    Error,
    /// A connection to a platform.
    Client,
    /// One device of a client.
    Device,
    /// One memory space of a device.
    Memory,
    /// A compiled program.
    Executable,
    /// A compiled program that is ready to run.
    LoadedExecutable,
    /// An array in device memory.
    Buffer,
    /// A completion that can be waited for.
    Event,
}

/// Error codes, with the numbers of absl's status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorCode {
    /// The caller's input is wrong.
    InvalidArgument = 3,
    /// A resource, here device memory, is used up.
    ResourceExhausted = 8,
    /// The operation is not possible in the present state.
    FailedPrecondition = 9,
    /// The operation does not exist here.
    Unimplemented = 12,
    /// Something is broken.
    Internal = 13,
    /// Something that should answer does not.
    Unavailable = 14,
}

/// Declares structs: size, extension chain, then their own fields.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),+ $(,)? })+) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs)]
            #[repr(C)]
            pub struct $name {
                pub struct_size: usize,
                pub extension_start: *mut c_void,
                $(pub $field: $kind,)+
            }
        )+
    };
}

structs! {
    /// A program's bytes and their format.
    Program { code: *mut c_char, code_size: usize, format: *const c_char, format_size: usize }
    /// A named option. `value` is a union of 8 bytes that is only ever copied here.
    NamedValue { name: *const c_char, name_size: usize, kind: c_int, value: u64, value_size: usize }
}

/// The arguments of one entry of the function table, so that an entry can only be called with its own.
pub trait Arguments: Sized {
    /// The entry that takes these arguments.
    const ENTRY: Entry;
    /// What it returns: an error, or nothing.
    type Output;
}

/// A function of the table that takes `A`.
pub type Function<A> = unsafe extern "C" fn(*mut A) -> <A as Arguments>::Output;

/// Declares argument structs and ties each to its entry and what that returns (an error, unless it says otherwise).
macro_rules! arguments {
    (@output) => { *mut Error };
    (@output nothing) => { () };
    ($($(#[$doc:meta])* $name:ident: $entry:ident $($nothing:ident)? { $($field:ident: $kind:ty),+ $(,)? })+) => {
        structs! { $($(#[$doc])* $name { $($field: $kind),+ })+ }
        $(impl Arguments for $name {
            const ENTRY: Entry = Entry::$entry;
            type Output = arguments!(@output $($nothing)?);
        })+
    };
}

arguments! {
    /// Frees an error.
    ErrorDestroyArgs: ErrorDestroy nothing { error: *mut Error }
    /// Reads an error's message, which lives as long as the error.
    ErrorMessageArgs: ErrorMessage nothing { error: *const Error, message: *const c_char, message_size: usize }
    /// Reads an error's code.
    ErrorGetCodeArgs: ErrorGetCode { error: *const Error, code: c_int }
    /// Walks over an error's attached payloads.
    ErrorForEachPayloadArgs: ErrorForEachPayload { error: *const Error, visitor: *const c_void, user_arg: *mut c_void }
    /// Creates a client. Options are an array of [`NamedValue`].
    ClientCreateArgs: ClientCreate {
        create_options: *const NamedValue,
        num_options: usize,
        kv_get_callback: *const c_void,
        kv_get_user_arg: *mut c_void,
        kv_put_callback: *const c_void,
        kv_put_user_arg: *mut c_void,
        client: *mut Client,
    }
    /// Reads a client's platform name, which lives as long as the client.
    ClientPlatformNameArgs: ClientPlatformName { client: *mut Client, platform_name: *const c_char, platform_name_size: usize }
    /// Lists a client's addressable devices.
    ClientAddressableDevicesArgs: ClientAddressableDevices { client: *mut Client, devices: *const *mut Device, num_devices: usize }
    /// Compiles a program and loads it.
    ClientCompileArgs: ClientCompile {
        client: *mut Client,
        program: *const Program,
        compile_options: *const c_char,
        compile_options_size: usize,
        executable: *mut LoadedExecutable,
    }
    /// Compiles a program for a topology, with or without a client.
    CompileArgs: Compile {
        topology: *const c_void,
        program: *const Program,
        compile_options: *const c_char,
        compile_options_size: usize,
        client: *mut Client,
        executable: *mut Executable,
    }
    /// Copies an array from host memory to a device.
    BufferFromHostBufferArgs: BufferFromHostBuffer {
        client: *mut Client,
        data: *const c_void,
        element_type: c_int,
        dims: *const i64,
        num_dims: usize,
        byte_strides: *const i64,
        num_byte_strides: usize,
        host_buffer_semantics: c_int,
        device: *mut Device,
        memory: *mut Memory,
        device_layout: *mut c_void,
        done_with_host_buffer: *mut Event,
        buffer: *mut Buffer,
    }
    /// Makes an array on a device without content.
    CreateUninitializedBufferArgs: CreateUninitializedBuffer {
        client: *mut Client,
        dims: *const i64,
        num_dims: usize,
        element_type: c_int,
        layout: *mut c_void,
        device: *mut Device,
        memory: *mut Memory,
        buffer: *mut Buffer,
    }
    /// Finds the default memory of a device.
    DeviceDefaultMemoryArgs: DeviceDefaultMemory { device: *mut Device, memory: *mut Memory }
    /// Reads a memory's kind, which lives as long as the memory.
    MemoryKindArgs: MemoryKind { memory: *mut Memory, kind: *const c_char, kind_size: usize }
    /// Frees an executable.
    ExecutableDestroyArgs: ExecutableDestroy { executable: *mut Executable }
    /// Counts an executable's outputs.
    ExecutableNumOutputsArgs: ExecutableNumOutputs { executable: *mut Executable, num_outputs: usize }
    /// Lists the memory kind of each output.
    ExecutableOutputMemoryKindsArgs: ExecutableOutputMemoryKinds {
        executable: *mut Executable,
        num_outputs: usize,
        memory_kinds: *const *const c_char,
        memory_kind_sizes: *const usize,
    }
    /// Lists the element type of each output.
    ExecutableOutputElementTypesArgs: ExecutableOutputElementTypes {
        executable: *mut Executable,
        output_types: *const c_int,
        num_output_types: usize,
    }
    /// Lists the dimensions of all outputs, one after the other.
    ExecutableOutputDimensionsArgs: ExecutableOutputDimensions {
        executable: *mut Executable,
        num_outputs: usize,
        dims: *const i64,
        dim_sizes: *const usize,
    }
    /// What a compiled program needs of memory, in bytes.
    CompiledMemoryStatsArgs: ExecutableCompiledMemoryStats {
        executable: *mut Executable,
        generated_code_size: i64,
        argument_size: i64,
        output_size: i64,
        alias_size: i64,
        temp_size: i64,
        host_generated_code_size: i64,
        host_argument_size: i64,
        host_output_size: i64,
        host_alias_size: i64,
        host_temp_size: i64,
        peak_memory: i64,
        total_size: i64,
    }
    /// Frees a loaded executable.
    LoadedExecutableDestroyArgs: LoadedExecutableDestroy { executable: *mut LoadedExecutable }
    /// Finds the executable of a loaded executable; the caller frees it.
    LoadedExecutableGetExecutableArgs: LoadedExecutableGetExecutable { loaded_executable: *mut LoadedExecutable, executable: *mut Executable }
    /// Runs a program. Both lists are indexed by device, then by argument or output.
    LoadedExecutableExecuteArgs: LoadedExecutableExecute {
        executable: *mut LoadedExecutable,
        options: *mut c_void,
        argument_lists: *const *const *mut Buffer,
        num_devices: usize,
        num_args: usize,
        output_lists: *const *mut *mut Buffer,
        device_complete_events: *mut *mut Event,
        execute_device: *mut Device,
    }
    /// Serialises an executable. What comes back lives until `deleter` is called with `serialized_executable`.
    ExecutableSerializeArgs: ExecutableSerialize {
        executable: *const Executable,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_executable: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    /// Loads a serialised executable. A caller with an older header ends before the last two fields.
    ExecutableDeserializeAndLoadArgs: ExecutableDeserializeAndLoad {
        client: *mut Client,
        serialized_executable: *const c_char,
        serialized_executable_size: usize,
        loaded_executable: *mut LoadedExecutable,
        overridden_options: *const c_char,
        overridden_options_size: usize,
    }
    /// Frees a buffer.
    BufferDestroyArgs: BufferDestroy { buffer: *mut Buffer }
    /// Releases a buffer's device memory and leaves the object.
    BufferDeleteArgs: BufferDelete { buffer: *mut Buffer }
    /// Reads how many bytes a buffer takes on its device.
    BufferOnDeviceSizeArgs: BufferOnDeviceSize { buffer: *mut Buffer, size_in_bytes: usize }
    /// Tells whether a buffer's device memory is gone.
    BufferIsDeletedArgs: BufferIsDeleted { buffer: *mut Buffer, is_deleted: bool }
    /// Copies a buffer to another device.
    BufferCopyToDeviceArgs: BufferCopyToDevice { buffer: *mut Buffer, destination: *mut Device, copy: *mut Buffer }
    /// Copies a buffer to another memory.
    BufferCopyToMemoryArgs: BufferCopyToMemory { buffer: *mut Buffer, destination: *mut Memory, copy: *mut Buffer }
    /// Copies a buffer to host memory; with a null destination it only asks for the size.
    BufferToHostBufferArgs: BufferToHostBuffer {
        source: *mut Buffer,
        host_layout: *mut c_void,
        destination: *mut c_void,
        destination_size: usize,
        event: *mut Event,
    }
    /// Takes a finished buffer out of an asynchronous transfer.
    RetrieveBufferArgs: RetrieveBuffer { transfer_manager: *mut c_void, buffer_index: c_int, buffer: *mut Buffer }
}

/// Bytes before the first function pointer of the table: its size, its extensions, and the version struct.
pub const TABLE_HEADER_BYTES: usize = 40;

/// An entry of the function table: its position, counted from the first function pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(usize)]
pub enum Entry {
    ErrorDestroy = 0,
    ErrorMessage = 1,
    ErrorGetCode = 2,
    PluginInitialize = 3,
    ClientCreate = 10,
    ClientPlatformName = 12,
    ClientAddressableDevices = 16,
    ClientCompile = 20,
    BufferFromHostBuffer = 22,
    DeviceDefaultMemory = 33,
    MemoryKind = 36,
    ExecutableDestroy = 40,
    ExecutableNumOutputs = 44,
    ExecutableOutputMemoryKinds = 47,
    ExecutableSerialize = 49,
    LoadedExecutableDestroy = 50,
    LoadedExecutableGetExecutable = 51,
    LoadedExecutableExecute = 55,
    ExecutableDeserializeAndLoad = 56,
    BufferDestroy = 58,
    BufferOnDeviceSize = 64,
    BufferDelete = 67,
    BufferIsDeleted = 68,
    BufferCopyToDevice = 69,
    BufferToHostBuffer = 70,
    Compile = 89,
    ExecutableOutputElementTypes = 90,
    ExecutableOutputDimensions = 91,
    BufferCopyToMemory = 92,
    ExecutableCompiledMemoryStats = 96,
    RetrieveBuffer = 104,
    CreateUninitializedBuffer = 112,
    ErrorForEachPayload = 132,
}

/// Bits of one element of each buffer type, by its number; 0 where it has no fixed size (invalid, token).
const ELEMENT_BITS: [u64; 32] =
    [0, 8, 8, 16, 32, 64, 8, 16, 32, 64, 16, 32, 64, 16, 64, 128, 8, 8, 8, 8, 8, 4, 4, 0, 2, 2, 8, 8, 8, 4, 1, 1];

/// Bytes of a dense array; `None` for a type that this version does not know. Saturates instead of overflowing.
pub fn dense_bytes(element_type: c_int, dims: &[i64]) -> Option<u64> {
    let bits = *ELEMENT_BITS.get(usize::try_from(element_type).ok()?)?;
    let elements = dims.iter().fold(1_u64, |product, dim| product.saturating_mul(u64::try_from(*dim).unwrap_or(0)));
    // Sub-byte elements are counted as packed.
    Some(elements.saturating_mul(bits).div_ceil(8))
}

/// A C array as a slice; empty where the pointer is null.
///
/// # Safety
/// `pointer` must be null or point at `length` values that stay alive and unchanged for `'a`.
pub unsafe fn slice<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    if pointer.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: not null, and the caller promises length and lifetime.
    unsafe { std::slice::from_raw_parts(pointer, length) }
}

/// A C string with a length as owned text; what is not UTF-8 is replaced.
///
/// # Safety
/// As for [`slice`].
pub unsafe fn text(pointer: *const c_char, length: usize) -> String {
    // SAFETY: passed on from the caller.
    String::from_utf8_lossy(unsafe { slice(pointer.cast::<u8>(), length) }).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn structs_have_the_layout_of_the_public_header() {
        assert_eq!(size_of::<NamedValue>(), 56);
        assert_eq!(size_of::<Program>(), 48);
        assert_eq!(size_of::<ClientCompileArgs>(), 56);
        assert_eq!(size_of::<CompileArgs>(), 64);
        assert_eq!(size_of::<CompiledMemoryStatsArgs>(), 120);
        assert_eq!(size_of::<CreateUninitializedBufferArgs>(), 80);
        assert_eq!(size_of::<BufferFromHostBufferArgs>(), 120);
        assert_eq!(size_of::<LoadedExecutableExecuteArgs>(), 80);
        assert_eq!(size_of::<ExecutableOutputMemoryKindsArgs>(), 48);
        assert_eq!(offset_of!(ClientCreateArgs, client), 64);
        assert_eq!(offset_of!(BufferIsDeletedArgs, is_deleted), 24);
        assert_eq!(offset_of!(RetrieveBufferArgs, buffer), 32);
    }

    #[test]
    fn dense_bytes_saturates_and_refuses_unknown_types() {
        assert_eq!(dense_bytes(11, &[2, 3]), Some(24));
        assert_eq!(dense_bytes(13, &[]), Some(2));
        assert_eq!(dense_bytes(21, &[3]), Some(2));
        assert_eq!(dense_bytes(11, &[0, 5]), Some(0));
        assert_eq!(dense_bytes(11, &[i64::MAX, i64::MAX]), Some(u64::MAX / 8 + 1));
        assert_eq!(dense_bytes(99, &[1]), None);
        assert_eq!(dense_bytes(-1, &[1]), None);
    }
}
