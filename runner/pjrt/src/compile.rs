//! Compiling: programs that XLA:CPU cannot take are rewritten before the plugin sees them, and failures are recorded.

use std::ffi::{c_char, c_int};
use std::time::{Duration, Instant};

use crate::abi::{
    ClientCompileArgs, CompileArgs, Error, ErrorCode, ExecutableDeserializeAndLoadArgs, LoadedExecutable, Program, slice,
};
use crate::statistics::{CompileFailure, record_compile_failure};
use crate::{client, compile_cache, counters, errors, interposer, program_scan, rewriter, xla_options};

/// Replaces `PJRT_Client_Compile`.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn client_compile(args: *mut ClientCompileArgs) -> *mut Error {
    errors::guarded("PJRT_Client_Compile", || {
        // SAFETY: valid by the contract of the interface; the options are put back after the call.
        unsafe {
            let given = ((*args).compile_options, (*args).compile_options_size);
            let on_cpu = client::client_is_cpu((*args).client);
            let options = slice(given.0.cast::<u8>(), given.1);
            let changed = if on_cpu { xla_options::added_to(options) } else { None };
            if let Some(options) = &changed {
                ((*args).compile_options, (*args).compile_options_size) = (options.as_ptr().cast(), options.len());
            }
            let error = load_or_compile(args, on_cpu);
            ((*args).compile_options, (*args).compile_options_size) = given;
            error
        }
    })
}

/// # Safety
/// `args` must be valid.
unsafe fn load_or_compile(args: *mut ClientCompileArgs, on_cpu: bool) -> *mut Error {
    // SAFETY: valid by the caller's promise; the program is put back after the call.
    unsafe {
        let given = (*args).program;
        let cached = if on_cpu { cache_place(&*args) } else { None };
        if let Some(executable) = cached.as_ref().and_then(|place| load(place, &*args)) {
            (*args).executable = executable;
            return std::ptr::null_mut();
        }
        let mut compiled_in = Duration::ZERO;
        let error = compile_program(given, on_cpu, |program| {
            (*args).program = program;
            let start = Instant::now();
            let error = interposer::call(args);
            compiled_in = start.elapsed();
            (*args).program = given;
            error
        });
        if let (Some(place), true) = (cached, error.is_null()) {
            place.keep((*args).executable, compiled_in);
        }
        error
    }
}

/// # Safety
/// `args` must be valid.
unsafe fn cache_place(args: &ClientCompileArgs) -> Option<compile_cache::Place> {
    if args.program.is_null() {
        return None;
    }
    // SAFETY: valid by the caller's promise.
    unsafe {
        let program = &*args.program;
        let options = slice(args.compile_options.cast::<u8>(), args.compile_options_size);
        compile_cache::place(slice(program.code.cast::<u8>(), program.code_size), options)
    }
}

/// The executable from the cache, counted as the compilation that the framework asked for.
///
/// # Safety
/// `args` must be valid.
unsafe fn load(place: &compile_cache::Place, args: &ClientCompileArgs) -> Option<*mut LoadedExecutable> {
    // SAFETY: valid by the caller's promise.
    let ((executable, compiled_in), bytes) = unsafe { (place.load(args.client)?, (*args.program).code_size) };
    counters::COMPILES.add(1);
    counters::COMPILE_BYTES.add(bytes as u64);
    counters::COMPILE_NS.add_time(compiled_in);
    Some(executable)
}

/// Replaces `PJRT_Compile`, which compiles for a topology. Without a client there is no device that could be a CPU.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn compile(args: *mut CompileArgs) -> *mut Error {
    errors::guarded("PJRT_Compile", || {
        // SAFETY: valid by the contract of the interface; the program is put back after the call.
        unsafe {
            let given = (*args).program;
            let on_cpu = client::client_is_cpu((*args).client);
            compile_program(given, on_cpu, |program| {
                (*args).program = program;
                let error = interposer::call(args);
                (*args).program = given;
                error
            })
        }
    })
}

/// Replaces `PJRT_Executable_DeserializeAndLoad`: what comes from a cache is counted, so that it is not missed among the
/// compilations.
///
/// # Safety
/// Called by C with a valid argument struct.
pub unsafe extern "C" fn deserialize_and_load(args: *mut ExecutableDeserializeAndLoadArgs) -> *mut Error {
    errors::guarded("PJRT_Executable_DeserializeAndLoad", || {
        let start = Instant::now();
        // SAFETY: passed on unchanged.
        let error = unsafe { interposer::call(args) };
        counters::DESERIALIZATIONS.add(1);
        counters::DESERIALIZE_NS.add_time(start.elapsed());
        error
    })
}

/// # Safety
/// `program` must be null or valid; `compile` must pass what it is given to the plugin.
unsafe fn compile_program(
    program: *const Program,
    on_cpu: bool,
    compile: impl FnOnce(*const Program) -> *mut Error,
) -> *mut Error {
    if program.is_null() {
        return compile(program);
    }
    // SAFETY: not null, and valid by the caller's promise; code and format live through the call.
    let (given, code, format) = unsafe {
        let given = &*program;
        (given, slice(given.code.cast::<u8>(), given.code_size), slice(given.format.cast::<u8>(), given.format_size))
    };
    counters::COMPILES.add(1);
    counters::COMPILE_BYTES.add(code.len() as u64);
    let wanted = if on_cpu && format == b"mlir" { program_scan::unsupported_composites(code) } else { Vec::new() };
    if wanted.is_empty() {
        return timed(code, false, || compile(program));
    }

    let start = Instant::now();
    let rewritten = rewriter::rewrite(code);
    counters::REWRITE_NS.add_time(start.elapsed());
    match rewritten {
        Ok(mut bytes) => {
            counters::REWRITES.add(1);
            let replacement = Program {
                struct_size: size_of::<Program>(),
                extension_start: given.extension_start,
                code: bytes.as_mut_ptr().cast::<c_char>(),
                code_size: bytes.len(),
                format: given.format,
                format_size: given.format_size,
            };
            timed(code, true, || compile(&raw const replacement))
        }
        Err(problem) => {
            counters::REWRITE_FAILURES.add(1);
            counters::COMPILE_FAILURES.add(1);
            // The plugin must not see the program: one is known to abort the process on it.
            let message = format!(
                "the program holds {}, which XLA:CPU cannot compile, and rewriting it did not work: {problem}",
                wanted.join(" and ")
            );
            record(problem.code() as c_int, &message, code, false);
            errors::raise(problem.code(), message)
        }
    }
}

fn timed(code: &[u8], rewritten: bool, compile: impl FnOnce() -> *mut Error) -> *mut Error {
    let start = Instant::now();
    let error = compile();
    counters::COMPILE_NS.add_time(start.elapsed());
    if !error.is_null() {
        counters::COMPILE_FAILURES.add(1);
        let (error_code, message) = errors::describe(error);
        record(error_code, &message, code, rewritten);
    }
    error
}

fn record(code: c_int, message: &str, program: &[u8], rewritten: bool) {
    let mut custom_calls = program_scan::custom_calls(program);
    if let Some(target) = program_scan::custom_call_in_message(message)
        && !custom_calls.contains(&target)
    {
        custom_calls.push(target);
    }
    record_compile_failure(CompileFailure {
        code,
        message: message.to_owned(),
        program_bytes: program.len(),
        custom_calls,
        composites: program_scan::composites(program),
        rewritten,
    });
}

impl rewriter::Problem {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotConfigured => ErrorCode::FailedPrecondition,
            Self::Unreachable(_) => ErrorCode::Unavailable,
            Self::Lost(_) => ErrorCode::Internal,
            Self::Refused(_) => ErrorCode::InvalidArgument,
        }
    }
}
