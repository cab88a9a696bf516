//! The statistics as one JSON object: what the counters say, device memory, and the failures worth telling.

use std::ffi::c_int;
use std::sync::Mutex;

use crate::errors::lock;
use crate::json::{Object, array};
use crate::{client, counters, device_memory, interposer};

/// Grows when a key changes its meaning.
const FORMAT: u32 = 1;
/// The first failures are mostly the cause and the last ones what the framework reported, so both ends are kept.
const FIRST_KEPT: usize = 4;
const KEPT: usize = 16;
const MAX_MESSAGE_BYTES: usize = 4096;

/// A program that could not be compiled.
#[derive(Clone)]
pub struct CompileFailure {
    /// PJRT's error code.
    pub code: c_int,
    /// The whole message; it is cut when recorded.
    pub message: String,
    /// Bytes of the program.
    pub program_bytes: usize,
    /// Custom call targets named in the program.
    pub custom_calls: Vec<String>,
    /// Composites named in the program.
    pub composites: Vec<String>,
    /// Whether the rewriter had worked on it.
    pub rewritten: bool,
}

#[derive(Clone)]
struct ExecuteFailure {
    code: c_int,
    message: String,
}

static COMPILE_FAILURES: Mutex<Vec<CompileFailure>> = Mutex::new(Vec::new());
static EXECUTE_FAILURES: Mutex<Vec<ExecuteFailure>> = Mutex::new(Vec::new());

/// Keeps a compile failure for the statistics.
pub fn record_compile_failure(mut failure: CompileFailure) {
    failure.message = bounded(failure.message);
    keep(&mut lock(&COMPILE_FAILURES), failure);
}

/// Keeps a failure to start a program, or to allocate, for the statistics.
pub fn record_execute_failure(code: c_int, message: &str) {
    keep(&mut lock(&EXECUTE_FAILURES), ExecuteFailure { code, message: bounded(message.to_owned()) });
}

fn keep<T>(list: &mut Vec<T>, item: T) {
    if list.len() == KEPT {
        list.remove(FIRST_KEPT);
    }
    list.push(item);
}

fn bounded(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let end = (0..=MAX_MESSAGE_BYTES).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push_str(" [cut]");
    }
    message
}

/// Starts all statistics again.
pub fn reset() {
    counters::reset();
    device_memory::reset_peak();
    lock(&COMPILE_FAILURES).clear();
    lock(&EXECUTE_FAILURES).clear();
}

/// The statistics as JSON.
pub fn json() -> String {
    let started = interposer::started();
    let (major, minor) = started.map_or((0, 0), interposer::Interposer::version);
    let memory = device_memory::snapshot();
    Object::new()
        .number("format", FORMAT)
        .text("plugin", started.map_or("", interposer::Interposer::plugin))
        .text("platform", &client::platform())
        .text("pjrt_version", &format!("{major}.{minor}"))
        .number("compile_count", counters::COMPILES.get())
        .number("compile_failed_count", counters::COMPILE_FAILURES.get())
        .milliseconds("compile_ms", counters::COMPILE_NS.get())
        .number("compile_program_bytes", counters::COMPILE_BYTES.get())
        .number("compile_cached_count", counters::CACHE_HITS.get())
        .milliseconds("compile_cache_load_ms", counters::CACHE_LOAD_NS.get())
        .number("compile_kept_count", counters::CACHE_STORES.get())
        .number("compile_cache_refused_count", counters::CACHE_REFUSED.get())
        .number("rewrite_count", counters::REWRITES.get())
        .number("rewrite_failed_count", counters::REWRITE_FAILURES.get())
        .milliseconds("rewrite_ms", counters::REWRITE_NS.get())
        .number("deserialize_count", counters::DESERIALIZATIONS.get())
        .milliseconds("deserialize_ms", counters::DESERIALIZE_NS.get())
        .number("execute_count", counters::EXECUTIONS.get())
        .number("execute_failed_count", counters::EXECUTE_FAILURES.get())
        .milliseconds("execute_call_ms", counters::EXECUTE_NS.get())
        .number("host_to_device_count", counters::HOST_TO_DEVICE.get())
        .number("host_to_device_bytes", counters::HOST_TO_DEVICE_BYTES.get())
        .number("device_to_host_count", counters::DEVICE_TO_HOST.get())
        .number("device_to_host_bytes", counters::DEVICE_TO_HOST_BYTES.get())
        .number("device_live_bytes", memory.live)
        .number("device_peak_bytes", memory.peak)
        .raw("device_limit_bytes", &memory.limit.map_or("null".to_owned(), |limit| limit.to_string()))
        .texts("dropped_create_options", &client::dropped_options())
        .raw("compile_failures", &array(lock(&COMPILE_FAILURES).iter().map(compile_failure)))
        .raw("execute_failures", &array(lock(&EXECUTE_FAILURES).iter().map(execute_failure)))
        .finish()
}

fn compile_failure(failure: &CompileFailure) -> String {
    Object::new()
        .number("code", failure.code)
        .text("message", &failure.message)
        .number("program_bytes", failure.program_bytes)
        .texts("custom_calls", &failure.custom_calls)
        .texts("composites", &failure.composites)
        .raw("rewritten", if failure.rewritten { "true" } else { "false" })
        .finish()
}

fn execute_failure(failure: &ExecuteFailure) -> String {
    Object::new().number("code", failure.code).text("message", &failure.message).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_many_failures_are_kept() {
        let mut list = Vec::new();
        for number in 0..100 {
            keep(&mut list, number);
        }
        assert_eq!(list.len(), KEPT);
        assert_eq!(list[..FIRST_KEPT], [0, 1, 2, 3]);
        assert_eq!(list[KEPT - 1], 99);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let message = bounded("é".repeat(MAX_MESSAGE_BYTES));
        assert!(message.ends_with(" [cut]") && message.len() <= MAX_MESSAGE_BYTES + 6);
    }
}
