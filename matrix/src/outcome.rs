//! What was observed, and where.

crate::words! {
    /// What an attempt ended in.
    pub enum Outcome ("outcome") {
        /// The target did what the reference did.
        Pass => "pass",
        /// Outputs are farther from the reference than the yardstick allows.
        Mismatch => "mismatch",
        /// NaN or infinities where the reference has none, or the other way round.
        NonFinite => "non_finite",
        /// Leaves, shapes or dtypes differ from the reference's.
        ShapeMismatch => "shape_mismatch",
        /// The backend has no implementation of an operator.
        UnsupportedOp => "unsupported_op",
        /// A program or graph could not be compiled, or `compiled` ran none.
        CompileError => "compile_error",
        /// An exception on the device.
        RuntimeError => "runtime_error",
        /// The process died by a signal.
        Crash => "crash",
        /// The device's memory did not suffice.
        DeviceOom => "device_oom",
        /// The deadline passed.
        Timeout => "timeout",
        /// Something ran on the CPU instead of the device.
        CpuFallback => "cpu_fallback",
        /// The model fails on the CPU too.
        ReferenceError => "reference_error",
        /// Two reference runs differ.
        Nondeterministic => "nondeterministic",
        /// A discrete choice flipped within the reference's own noise.
        InconclusiveTie => "inconclusive_tie",
        /// The model could not be loaded.
        LoadError => "load_error",
        /// A package that the model needs is not in the environment.
        MissingDependency => "missing_dependency",
        /// Policy: remote code, pickle, size, names.
        Refused => "refused",
        /// The repository asks for a permission that the farm has not.
        Gated => "gated",
        /// The Hub has no such repository or revision.
        NotFound => "not_found",
        /// The files did not arrive whole.
        DownloadError => "download_error",
        /// The host's memory limit was passed.
        HostOom => "host_oom",
        /// The farm itself failed.
        InfraError => "infra_error",
        /// Not run.
        Skipped => "skipped",
    }
}

/// What an outcome means for the pass rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Counts as passed.
    Pass,
    /// Counts as failed: the target was reached and did not do its work.
    Fail,
    /// Says nothing about the target: outside the pass rate, always in the headline.
    Inconclusive,
}

impl Outcome {
    /// What this outcome means for the pass rate.
    pub fn standing(self) -> Standing {
        use Outcome::*;
        match self {
            Pass => Standing::Pass,
            Mismatch | NonFinite | ShapeMismatch | UnsupportedOp | CompileError | RuntimeError | Crash | DeviceOom
            | Timeout | CpuFallback => Standing::Fail,
            ReferenceError | Nondeterministic | InconclusiveTie | LoadError | MissingDependency | Refused | Gated
            | NotFound | DownloadError | HostOom | InfraError | Skipped => Standing::Inconclusive,
        }
    }
}

crate::words! {
    /// Where an attempt was when it ended.
    pub enum Stage ("stage") {
        /// Finding the repository and its revision.
        Resolve => "resolve",
        /// Fetching its files.
        Download => "download",
        /// Building the model on the CPU.
        Load => "load",
        /// Computing reference and yardstick.
        Reference => "reference",
        /// Moving parameters and inputs to the device.
        Place => "place",
        /// Compiling (and the first call of) the model.
        Compile => "compile",
        /// Running, until the outputs are read back.
        Execute => "execute",
        /// Judging.
        Compare => "compare",
    }
}

impl Stage {
    /// Whether what ends in this stage can be the target's doing.
    pub fn reached_target(self) -> bool {
        self >= Stage::Place
    }
}

crate::words! {
    /// How far a case is checked.
    pub enum Check ("check") {
        /// The model ran and its outputs were judged.
        Execute => "execute",
        /// Its programs were compiled only.
        Compile => "compile",
    }
}
