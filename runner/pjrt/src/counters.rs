//! What is counted. Plain atomics: an operation costs about a microsecond, and so must its count cost nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows, until it is reset.
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to the number.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds a time, in nanoseconds.
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Starts again from zero.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $($(#[$doc])* pub static $name: Counter = Counter::new();)+

        /// Sets every counter to zero.
        pub fn reset() {
            $($name.reset();)+
        }
    };
}

counters! {
    /// Programs that the plugin was asked to compile.
    COMPILES,
    /// Of these, the ones that failed.
    COMPILE_FAILURES,
    /// Nanoseconds that the plugin compiled; for an executable from the cache, those that it took when it was made.
    COMPILE_NS,
    /// Bytes of the programs that the plugin was asked to compile.
    COMPILE_BYTES,
    /// Of these, the ones whose executable came from the cache of this library.
    CACHE_HITS,
    /// Nanoseconds that loading these took.
    CACHE_LOAD_NS,
    /// Executables put into the cache.
    CACHE_STORES,
    /// Executables of the cache that the plugin did not take back.
    CACHE_REFUSED,
    /// Programs that were rewritten before the plugin saw them.
    REWRITES,
    /// Programs that should have been rewritten and could not be.
    REWRITE_FAILURES,
    /// Nanoseconds spent waiting for the rewriter.
    REWRITE_NS,
    /// Executables that were loaded from a cache instead of compiled.
    DESERIALIZATIONS,
    /// Nanoseconds that these took.
    DESERIALIZE_NS,
    /// Programs started.
    EXECUTIONS,
    /// Of these, the ones that the plugin refused to start.
    EXECUTE_FAILURES,
    /// Nanoseconds until the start calls returned; a device may work on after that.
    EXECUTE_NS,
    /// Copies from host to device.
    HOST_TO_DEVICE,
    /// Bytes of these.
    HOST_TO_DEVICE_BYTES,
    /// Copies from device to host, without those that only ask for a size.
    DEVICE_TO_HOST,
    /// Bytes of these.
    DEVICE_TO_HOST_BYTES,
}
