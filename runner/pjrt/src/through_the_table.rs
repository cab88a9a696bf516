//! Tests that use the interposer as a framework does: only through the table that it hands out.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use crate::abi::*;
use crate::errors::{self, lock};
use crate::fake_plugin::{self, BUFFER_BYTES, COMPILED, ENTRIES, ERRORS_ALIVE, UNKNOWN};
use crate::interposer::Interposer;
use crate::{counters, device_memory, rewriter, statistics, xla_options};

fn entry(interposer: &Interposer, index: usize) -> usize {
    // SAFETY: the table has as many entries as its first word says.
    unsafe {
        assert!(index < (interposer.table().read() - TABLE_HEADER_BYTES) / 8);
        interposer.table().add(5 + index).read()
    }
}

fn call<A: Arguments<Output = *mut Error>>(interposer: &Interposer, args: &mut A) -> *mut Error {
    let address = entry(interposer, A::ENTRY as usize);
    assert_ne!(address, 0, "{:?}", A::ENTRY);
    // SAFETY: the entry for these arguments.
    unsafe { std::mem::transmute_copy::<usize, Function<A>>(&address)(args) }
}

fn option(name: &'static str) -> NamedValue {
    NamedValue {
        struct_size: size_of::<NamedValue>(),
        extension_start: null_mut(),
        name: name.as_ptr().cast(),
        name_size: name.len(),
        kind: 1,
        value: 1,
        value_size: 1,
    }
}

fn create_client(interposer: &Interposer, options: &[NamedValue]) -> (*mut Error, ClientCreateArgs) {
    let mut args = ClientCreateArgs {
        struct_size: size_of::<ClientCreateArgs>(),
        extension_start: null_mut(),
        create_options: options.as_ptr(),
        num_options: options.len(),
        kv_get_callback: null(),
        kv_get_user_arg: null_mut(),
        kv_put_callback: null(),
        kv_put_user_arg: null_mut(),
        client: null_mut(),
    };
    (call(interposer, &mut args), args)
}

fn compile(interposer: &Interposer, code: &[u8]) -> Result<(), (c_int, String)> {
    let mut code = code.to_vec();
    let program = Program {
        struct_size: size_of::<Program>(),
        extension_start: null_mut(),
        code: code.as_mut_ptr().cast(),
        code_size: code.len(),
        format: c"mlir".as_ptr(),
        format_size: 4,
    };
    let mut args = ClientCompileArgs {
        struct_size: size_of::<ClientCompileArgs>(),
        extension_start: null_mut(),
        client: 0x100 as *mut Client,
        program: &raw const program,
        compile_options: null(),
        compile_options_size: 0,
        executable: null_mut(),
    };
    let error = call(interposer, &mut args);
    assert_eq!(args.program, &raw const program, "the caller's program is put back");
    assert_eq!((args.compile_options, args.compile_options_size), (null(), 0), "and so are its options");
    outcome(error)
}

fn outcome(error: *mut Error) -> Result<(), (c_int, String)> {
    if error.is_null() {
        return Ok(());
    }
    let told = errors::describe(error);
    errors::discard(error);
    Err(told)
}

fn upload(interposer: &Interposer) -> Result<*mut Buffer, (c_int, String)> {
    let dims = [4_i64];
    let mut args = BufferFromHostBufferArgs {
        struct_size: size_of::<BufferFromHostBufferArgs>(),
        extension_start: null_mut(),
        client: 0x100 as *mut Client,
        data: null(),
        element_type: 11,
        dims: dims.as_ptr(),
        num_dims: 1,
        byte_strides: null(),
        num_byte_strides: 0,
        host_buffer_semantics: 0,
        device: null_mut(),
        memory: null_mut(),
        device_layout: null_mut(),
        done_with_host_buffer: null_mut(),
        buffer: null_mut(),
    };
    outcome(call(interposer, &mut args)).map(|()| args.buffer)
}

fn destroy(interposer: &Interposer, buffer: *mut Buffer) {
    let mut args = BufferDestroyArgs { struct_size: size_of::<BufferDestroyArgs>(), extension_start: null_mut(), buffer };
    assert_eq!(outcome(call(interposer, &mut args)), Ok(()));
}

fn run(interposer: &Interposer, executable: usize, argument: *mut Buffer) -> Result<[*mut Buffer; 2], (c_int, String)> {
    let arguments = [argument];
    let argument_lists = [arguments.as_ptr()];
    let mut outputs = [null_mut(); 2];
    let output_lists = [outputs.as_mut_ptr()];
    let mut args = LoadedExecutableExecuteArgs {
        struct_size: size_of::<LoadedExecutableExecuteArgs>(),
        extension_start: null_mut(),
        executable: executable as *mut LoadedExecutable,
        options: null_mut(),
        argument_lists: argument_lists.as_ptr(),
        num_devices: 1,
        num_args: 1,
        output_lists: output_lists.as_ptr(),
        device_complete_events: null_mut(),
        execute_device: null_mut(),
    };
    outcome(call(interposer, &mut args))?;
    Ok(outputs)
}

/// Sets an environment variable for a test and takes it away after it.
struct Variable(&'static str, #[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Variable {
    fn set(name: &'static str, value: &str) -> Self {
        static ENVIRONMENT: Mutex<()> = Mutex::new(());
        let guard = lock(&ENVIRONMENT);
        // SAFETY: all readers in this test program are Rust's, which lock the environment.
        unsafe { std::env::set_var(name, value) };
        Self(name, guard)
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { std::env::remove_var(self.0) };
    }
}

#[test]
fn entries_that_are_not_replaced_are_the_plugins_own() {
    let (_guard, interposer) = fake_plugin::start();
    assert_eq!(entry(interposer, ENTRIES - 1), UNKNOWN);
    assert_eq!(entry(interposer, Entry::PluginInitialize as usize), 0);
    assert_eq!(interposer.version(), (0, 99));
}

#[test]
fn a_shorter_table_stays_as_short() {
    let short = fake_plugin::in_front_of(Entry::ClientCompile as usize + 1);
    // SAFETY: the first word is the size.
    assert_eq!(unsafe { short.table().read() }, TABLE_HEADER_BYTES + 21 * 8);
    let whole = fake_plugin::in_front_of(ENTRIES);
    assert_eq!(entry(&short, Entry::ClientCompile as usize), entry(&whole, Entry::ClientCompile as usize));
}

#[test]
fn create_options_that_the_plugin_does_not_know_are_dropped() {
    let (_guard, interposer) = fake_plugin::start();
    let options = [option("first"), option("premapped_buffer_size"), option("last")];
    let (error, args) = create_client(interposer, &options);
    assert_eq!(outcome(error), Ok(()));
    assert!(!args.client.is_null());
    assert_eq!((args.create_options, args.num_options), (options.as_ptr(), 3), "the caller's array is put back");
    assert_eq!(*lock(&fake_plugin::OPTIONS), ["first", "last"]);
    assert_eq!(fake_plugin::CREATE_CALLS.load(Ordering::SeqCst), 2);
    assert!(statistics::json().contains("\"dropped_create_options\":[\"premapped_buffer_size\"]"));
    assert_eq!(ERRORS_ALIVE.load(Ordering::SeqCst), 0, "the plugin's errors are freed");
}

#[test]
fn memory_kinds_that_the_plugin_cannot_tell_are_the_devices_default() {
    let (_guard, interposer) = fake_plugin::start();
    assert_eq!(outcome(create_client(interposer, &[]).0), Ok(()));
    let mut args = ExecutableOutputMemoryKindsArgs {
        struct_size: size_of::<ExecutableOutputMemoryKindsArgs>(),
        extension_start: null_mut(),
        executable: 0x500 as *mut Executable,
        num_outputs: 0,
        memory_kinds: null(),
        memory_kind_sizes: null(),
    };
    assert_eq!(outcome(call(interposer, &mut args)), Ok(()));
    // SAFETY: both lists have as many elements as the call says.
    let kinds: Vec<String> = unsafe {
        let kinds = slice(args.memory_kinds, args.num_outputs);
        let sizes = slice(args.memory_kind_sizes, args.num_outputs);
        kinds.iter().zip(sizes).map(|(kind, size)| text(*kind, *size)).collect()
    };
    assert_eq!(kinds, ["fake_memory", "fake_memory"]);
}

#[test]
fn counters_follow_what_happens() {
    let (_guard, interposer) = fake_plugin::start();
    assert_eq!(outcome(create_client(interposer, &[]).0), Ok(()));
    let before = device_memory::snapshot().live;
    assert_eq!(compile(interposer, b"program"), Ok(()));
    assert_eq!(compile(interposer, b"refused tpu_custom_call"), Err((12, "no implementation for custom call".into())));
    let argument = upload(interposer).expect("a buffer");
    let outputs = run(interposer, 0x401, argument).expect("outputs");
    assert_eq!(device_memory::snapshot().live - before, 3 * BUFFER_BYTES);
    let mut read = BufferToHostBufferArgs {
        struct_size: size_of::<BufferToHostBufferArgs>(),
        extension_start: null_mut(),
        source: outputs[0],
        host_layout: null_mut(),
        destination: null_mut(),
        destination_size: 0,
        event: null_mut(),
    };
    assert_eq!(outcome(call(interposer, &mut read)), Ok(()));
    let mut room = [0_u8; BUFFER_BYTES as usize];
    read.destination = room.as_mut_ptr().cast();
    assert_eq!(outcome(call(interposer, &mut read)), Ok(()));
    for buffer in [argument, outputs[0], outputs[1]] {
        destroy(interposer, buffer);
    }
    assert_eq!(device_memory::snapshot().live, before);
    let json = statistics::json();
    for expected in [
        "\"compile_count\":2,\"compile_failed_count\":1",
        "\"execute_count\":1,\"execute_failed_count\":0",
        "\"host_to_device_count\":1,\"host_to_device_bytes\":16",
        "\"device_to_host_count\":1,\"device_to_host_bytes\":16",
        "\"custom_calls\":[\"tpu_custom_call\"]",
        "\"platform\":\"cpu\"",
    ] {
        assert!(json.contains(expected), "{expected} is not in {json}");
    }
    statistics::reset();
    assert!(statistics::json().contains("\"compile_count\":0"));
}

#[test]
fn donated_arguments_are_not_alive_any_more() {
    let (_guard, interposer) = fake_plugin::start();
    let before = device_memory::snapshot().live;
    let argument = upload(interposer).expect("a buffer");
    fake_plugin::DONATES.store(true, Ordering::SeqCst);
    let outputs = run(interposer, 0x402, argument).expect("outputs");
    assert_eq!(device_memory::snapshot().live - before, 2 * BUFFER_BYTES);
    for buffer in [argument, outputs[0], outputs[1]] {
        destroy(interposer, buffer);
    }
    assert_eq!(device_memory::snapshot().live, before);
}

#[test]
fn the_emulated_limit_refuses_what_does_not_fit() {
    let (_guard, interposer) = fake_plugin::start();
    let before = device_memory::snapshot().live;
    {
        let _limit = Variable::set(device_memory::LIMIT_VARIABLE, &(before + 40).to_string());
        assert_eq!(outcome(create_client(interposer, &[]).0), Ok(()));
    }
    let argument = upload(interposer).expect("fits");
    let (code, message) = run(interposer, 0x403, argument).expect_err("two outputs do not fit");
    assert_eq!(code, ErrorCode::ResourceExhausted as c_int);
    assert!(message.contains("32 bytes") && message.contains("emulated HBM limit"), "{message}");
    let second = upload(interposer).expect("fits");
    assert_eq!(upload(interposer).expect_err("does not fit").0, ErrorCode::ResourceExhausted as c_int);
    for buffer in [argument, second] {
        destroy(interposer, buffer);
    }
    {
        let _limit = Variable::set(device_memory::LIMIT_VARIABLE, "16G");
        let (code, message) = outcome(create_client(interposer, &[]).0).expect_err("not a number");
        assert_eq!(code, ErrorCode::InvalidArgument as c_int);
        assert!(message.contains("'16G'") && message.contains("expected"), "{message}");
    }
    // On a real accelerator the limit does nothing.
    fake_plugin::IS_CPU.store(false, Ordering::SeqCst);
    let _limit = Variable::set(device_memory::LIMIT_VARIABLE, "1");
    assert_eq!(outcome(create_client(interposer, &[]).0), Ok(()));
    destroy(interposer, upload(interposer).expect("no limit"));
    drop(_limit);
    assert_eq!(outcome(create_client(interposer, &[]).0), Ok(()));
}

#[test]
fn a_panic_inside_a_call_becomes_an_error() {
    let (_guard, interposer) = fake_plugin::start();
    fake_plugin::LIES.store(true, Ordering::SeqCst);
    let argument = upload(interposer).expect("a buffer");
    let (code, message) = run(interposer, 0x404, argument).expect_err("the plugin's dimensions are impossible");
    assert_eq!(code, ErrorCode::Internal as c_int);
    assert!(message.contains("panicked in PJRT_LoadedExecutable_Execute"), "{message}");
    fake_plugin::LIES.store(false, Ordering::SeqCst);
    let outputs = run(interposer, 0x404, argument).expect("nothing is left behind");
    for buffer in [argument, outputs[0], outputs[1]] {
        destroy(interposer, buffer);
    }
}

#[test]
fn a_cpu_plugin_compiles_a_program_once() {
    let (_guard, interposer) = fake_plugin::start();
    let folder = std::env::temp_dir().join(format!("modelfarm-compile-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let _variable = Variable::set("MODELFARM_PJRT_COMPILE_CACHE", folder.to_str().expect("text"));
    let compiled = || lock(&COMPILED).len();

    assert_eq!(compile(interposer, b"one"), Ok(()));
    assert_eq!(compile(interposer, b"one"), Ok(()));
    assert_eq!((compiled(), counters::COMPILES.get(), counters::CACHE_HITS.get(), counters::CACHE_STORES.get()), (1, 2, 1, 1));
    assert_eq!(compile(interposer, b"another"), Ok(()));
    assert_eq!((compiled(), counters::CACHE_HITS.get()), (2, 1), "another program is compiled");
    assert_eq!(fake_plugin::SERIALIZATIONS_ALIVE.load(Ordering::SeqCst), 0);

    for _ in 0..2 {
        assert!(compile(interposer, b"refused").is_err(), "an error is never kept");
    }
    assert_eq!(compiled(), 4);

    fake_plugin::FORGETS.store(true, Ordering::SeqCst);
    assert_eq!(compile(interposer, b"one"), Ok(()), "what the plugin does not take back is compiled");
    assert_eq!((compiled(), counters::CACHE_REFUSED.get()), (5, 1));
    fake_plugin::FORGETS.store(false, Ordering::SeqCst);

    let file = std::fs::read_dir(&folder).expect("the folder").next().expect("a file").expect("a file").path();
    std::fs::write(&file, b"MFXLA001 and nothing sound after it").expect("written");
    for program in [&b"one"[..], b"another"] {
        assert_eq!(compile(interposer, program), Ok(()), "a damaged file costs a compilation");
    }
    assert_eq!(compiled(), 6);

    fake_plugin::IS_CPU.store(false, Ordering::SeqCst);
    assert_eq!(compile(interposer, b"one"), Ok(()));
    assert_eq!(compiled(), 7, "a real device's compiler is always asked");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn options_are_put_over_those_of_a_compilation_on_a_cpu() {
    let (_guard, interposer) = fake_plugin::start();
    let told = || lock(&fake_plugin::COMPILE_OPTIONS).clone();
    assert_eq!(compile(interposer, b"one"), Ok(()));
    assert_eq!(told(), b"");
    {
        let _variable = Variable::set(xla_options::VARIABLE, "a=true");
        xla_options::read().expect("options");
    }
    assert_eq!(compile(interposer, b"one"), Ok(()));
    assert_eq!(told(), b"\x3a\x07\x0a\x01a\x12\x02\x10\x01");
    fake_plugin::IS_CPU.store(false, Ordering::SeqCst);
    assert_eq!(compile(interposer, b"one"), Ok(()));
    assert_eq!(told(), b"", "a real device's compiler is told what the framework told it");

    let _variable = Variable::set(xla_options::VARIABLE, "--a");
    assert!(xla_options::read().expect_err("no option").contains("'--a'"));
}

#[test]
fn without_a_rewriter_an_unsupported_program_never_reaches_a_cpu_plugin() {
    let (_guard, interposer) = fake_plugin::start();
    let (code, message) = compile(interposer, b"ML\xefR chlo.scan").expect_err("no rewriter");
    assert_eq!(code, ErrorCode::FailedPrecondition as c_int);
    assert!(message.contains("chlo.scan") && message.contains(rewriter::SOCKET_VARIABLE), "{message}");
    assert!(lock(&COMPILED).is_empty());
    // The same library in front of a TPU leaves the program alone.
    fake_plugin::IS_CPU.store(false, Ordering::SeqCst);
    assert_eq!(compile(interposer, b"ML\xefR chlo.scan"), Ok(()));
    assert_eq!(*lock(&COMPILED), [b"ML\xefR chlo.scan"]);
}

#[test]
fn a_rewriter_that_dies_costs_one_compilation() {
    let (_guard, interposer) = fake_plugin::start();
    let socket: PathBuf = std::env::temp_dir().join(format!("modelfarm-pjrt-rewriter-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    // The first conversation ends in the middle of a request, the second goes well for two.
    let server = std::thread::spawn(move || {
        let mut head = [0; 12];
        let (mut first, _) = listener.accept().expect("a connection");
        first.read_exact(&mut head).expect("a request");
        drop(first);
        let (mut second, _) = listener.accept().expect("a connection");
        for _ in 0..2 {
            second.read_exact(&mut head).expect("a request");
            let mut length = [0; 8];
            length.copy_from_slice(&head[4..]);
            let mut program = vec![0; u64::from_le_bytes(length) as usize];
            second.read_exact(&mut program).expect("a program");
            program.reverse();
            let length = (program.len() as u64).to_le_bytes();
            second.write_all(&[b"MFR1\0", &length[..], &program].concat()).expect("answered");
        }
    });
    let _socket = Variable::set(rewriter::SOCKET_VARIABLE, socket.to_str().expect("UTF-8"));
    let (code, message) = compile(interposer, b"a chlo.scan").expect_err("the rewriter died");
    assert_eq!(code, ErrorCode::Internal as c_int);
    assert!(message.contains("the rewriter was lost"), "{message}");
    assert_eq!(compile(interposer, b"b chlo.scan"), Ok(()));
    assert_eq!(compile(interposer, b"c chlo.ragged_dot"), Ok(()));
    server.join().expect("the server ended well");
    assert_eq!(*lock(&COMPILED), [b"nacs.olhc b".to_vec(), b"tod_deggar.olhc c".to_vec()]);
    let json = statistics::json();
    assert!(json.contains("\"rewrite_count\":2,\"rewrite_failed_count\":1"), "{json}");
    std::fs::remove_file(&socket).expect("removed");
}

#[test]
fn without_a_plugin_every_entry_answers_with_the_reason() {
    let (_guard, _) = fake_plugin::start();
    let refusing = Interposer::refusing("there is no such file".to_owned());
    let (error, args) = create_client(&refusing, &[]);
    assert!(args.client.is_null());
    let (code, message) = outcome(error).expect_err("no plugin");
    assert_eq!(code, ErrorCode::FailedPrecondition as c_int);
    assert!(message.starts_with("modelfarm's PJRT interposer"), "{message}");
}
