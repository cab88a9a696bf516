//! Worker processes, seen from the farm: sandbox, zygote, jobs, and what they may use.

pub mod device_slots;
pub mod job;
pub mod output_tail;
pub mod process_memory;
pub mod protocol;
pub mod sandbox;
pub mod zygote;
