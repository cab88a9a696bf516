//! Running programs: counts, the outputs' memory, and the emulated limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crate::abi::{
    CompiledMemoryStatsArgs, Error, Executable, ExecutableDestroyArgs, ExecutableNumOutputsArgs,
    ExecutableOutputDimensionsArgs, ExecutableOutputElementTypesArgs, LoadedExecutable, LoadedExecutableDestroyArgs,
    LoadedExecutableExecuteArgs, LoadedExecutableGetExecutableArgs, dense_bytes, slice,
};
use crate::client::succeeded;
use crate::errors::{self, lock};
use crate::{counters, device_memory, interposer, statistics};

/// What one loaded executable makes, asked once.
struct Outputs {
    count: usize,
    /// Bytes of new memory that a run needs for its outputs: their dense sizes without what reuses an argument's memory.
    new_bytes: u64,
    /// Bytes of each output on the device, measured on the first run: shapes are static.
    measured: OnceLock<Vec<u64>>,
}

static OUTPUTS: Mutex<Option<HashMap<usize, Arc<Outputs>>>> = Mutex::new(None);

/// Replaces `PJRT_LoadedExecutable_Execute`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn execute(args: *mut LoadedExecutableExecuteArgs) -> *mut Error {
    errors::guarded("PJRT_LoadedExecutable_Execute", || {
        // SAFETY: valid by the contract of the interface.
        let run = unsafe { &*args };
        // SAFETY: a live executable of the plugin.
        let outputs = unsafe { outputs_of(run.executable) };
        if let Some(outputs) = &outputs
            && let Err(error) = device_memory::check(outputs.new_bytes.saturating_mul(run.num_devices as u64))
        {
            counters::EXECUTE_FAILURES.add(1);
            return error;
        }
        let start = Instant::now();
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        counters::EXECUTIONS.add(1);
        counters::EXECUTE_NS.add_time(start.elapsed());
        if !error.is_null() {
            counters::EXECUTE_FAILURES.add(1);
            let (code, message) = errors::describe(error);
            statistics::record_execute_failure(code, &message);
            return error;
        }
        if let Some(outputs) = outputs {
            // SAFETY: the call has succeeded, so both lists are as long as the interface says and hold live buffers.
            unsafe { note_buffers(&*args, &outputs) };
        }
        error
    })
}

/// # Safety
/// `run` must be the arguments of a run that has just succeeded, and `outputs` must belong to its executable.
unsafe fn note_buffers(run: &LoadedExecutableExecuteArgs, outputs: &Outputs) {
    // SAFETY: for each device a list of arguments and one of outputs, all live.
    unsafe {
        for arguments in slice(run.argument_lists, run.num_devices) {
            for argument in slice(*arguments, run.num_args) {
                device_memory::remove_if_donated(*argument);
            }
        }
        for made in slice(run.output_lists, run.num_devices) {
            let made = slice(made.cast_const(), outputs.count);
            let sizes = outputs.measured.get_or_init(|| {
                made.iter()
                    .map(|buffer| if buffer.is_null() { 0 } else { device_memory::size_on_device(*buffer).unwrap_or(0) })
                    .collect()
            });
            for (buffer, bytes) in made.iter().zip(sizes) {
                device_memory::add(*buffer, *bytes);
            }
        }
    }
}

/// Replaces `PJRT_LoadedExecutable_Destroy`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn loaded_executable_destroy(args: *mut LoadedExecutableDestroyArgs) -> *mut Error {
    errors::guarded("PJRT_LoadedExecutable_Destroy", || {
        // SAFETY: valid by the contract of the interface.
        let executable = unsafe { (*args).executable };
        // Forgotten before the call: the address may be used again at once.
        if let Some(known) = lock(&OUTPUTS).as_mut() {
            known.remove(&(executable as usize));
        }
        // SAFETY: passed on unchanged.
        unsafe { interposer::call(args) }
    })
}

/// # Safety
/// `executable` must be a live executable of the plugin.
unsafe fn outputs_of(executable: *mut LoadedExecutable) -> Option<Arc<Outputs>> {
    if let Some(known) = lock(&OUTPUTS).as_ref().and_then(|known| known.get(&(executable as usize))) {
        return Some(Arc::clone(known));
    }
    // Asked without holding the lock: the plugin may take its time.
    // SAFETY: passed on.
    let outputs = Arc::new(unsafe { ask_outputs(executable) }?);
    lock(&OUTPUTS).get_or_insert_default().insert(executable as usize, Arc::clone(&outputs));
    Some(outputs)
}

/// # Safety
/// As for [`outputs_of`].
unsafe fn ask_outputs(loaded_executable: *mut LoadedExecutable) -> Option<Outputs> {
    let mut get = LoadedExecutableGetExecutableArgs {
        struct_size: size_of::<LoadedExecutableGetExecutableArgs>(),
        extension_start: std::ptr::null_mut(),
        loaded_executable,
        executable: std::ptr::null_mut(),
    };
    // SAFETY: whole structs with live objects; the executable is ours until it is destroyed below.
    unsafe {
        if !succeeded(interposer::call(&raw mut get)) || get.executable.is_null() {
            return None;
        }
        let executable = get.executable;
        let mut number = ExecutableNumOutputsArgs {
            struct_size: size_of::<ExecutableNumOutputsArgs>(),
            extension_start: std::ptr::null_mut(),
            executable,
            num_outputs: 0,
        };
        let outputs = succeeded(interposer::call(&raw mut number)).then(|| Outputs {
            count: number.num_outputs,
            new_bytes: output_bytes(executable).saturating_sub(reused_bytes(executable)),
            measured: OnceLock::new(),
        });
        let mut destroy = ExecutableDestroyArgs {
            struct_size: size_of::<ExecutableDestroyArgs>(),
            extension_start: std::ptr::null_mut(),
            executable,
        };
        succeeded(interposer::call(&raw mut destroy));
        outputs
    }
}

/// The dense size of all outputs; 0 where the plugin cannot tell.
///
/// # Safety
/// `executable` must be a live executable of the plugin.
unsafe fn output_bytes(executable: *mut Executable) -> u64 {
    let mut types = ExecutableOutputElementTypesArgs {
        struct_size: size_of::<ExecutableOutputElementTypesArgs>(),
        extension_start: std::ptr::null_mut(),
        executable,
        output_types: std::ptr::null(),
        num_output_types: 0,
    };
    let mut dimensions = ExecutableOutputDimensionsArgs {
        struct_size: size_of::<ExecutableOutputDimensionsArgs>(),
        extension_start: std::ptr::null_mut(),
        executable,
        num_outputs: 0,
        dims: std::ptr::null(),
        dim_sizes: std::ptr::null(),
    };
    // SAFETY: whole structs with a live executable, which owns the lists that come back.
    unsafe {
        if !succeeded(interposer::call(&raw mut types)) || !succeeded(interposer::call(&raw mut dimensions)) {
            return 0;
        }
        let types = slice(types.output_types, types.num_output_types);
        let ranks = slice(dimensions.dim_sizes, dimensions.num_outputs);
        let mut rest = slice(dimensions.dims, ranks.iter().sum());
        let mut total = 0_u64;
        for (element_type, rank) in types.iter().zip(ranks) {
            let (own, others) = rest.split_at(*rank);
            rest = others;
            total = total.saturating_add(dense_bytes(*element_type, own).unwrap_or(0));
        }
        total
    }
}

/// How much of the outputs reuses the memory of donated arguments; 0 where the plugin cannot tell.
///
/// # Safety
/// `executable` must be a live executable of the plugin.
unsafe fn reused_bytes(executable: *mut Executable) -> u64 {
    let mut args = CompiledMemoryStatsArgs {
        struct_size: size_of::<CompiledMemoryStatsArgs>(),
        extension_start: std::ptr::null_mut(),
        executable,
        generated_code_size: 0,
        argument_size: 0,
        output_size: 0,
        alias_size: 0,
        temp_size: 0,
        host_generated_code_size: 0,
        host_argument_size: 0,
        host_output_size: 0,
        host_alias_size: 0,
        host_temp_size: 0,
        peak_memory: 0,
        total_size: 0,
    };
    // SAFETY: a whole struct with a live executable.
    if succeeded(unsafe { interposer::call(&raw mut args) }) { u64::try_from(args.alias_size).unwrap_or(0) } else { 0 }
}
