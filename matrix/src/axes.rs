//! The axes of a case: how a model is run, apart from which model and where.

crate::words! {
    /// How the backend executes operators.
    pub enum Mode ("mode") {
        /// Each operator is compiled and launched by itself.
        StrictEager => "strict-eager",
        /// Operators are deferred and fused before they are launched.
        DeferAndFuse => "defer-and-fuse",
        /// The whole model goes through `torch.compile`.
        Compiled => "compiled",
        /// Strict eager with blocking launches: the failing line is exact.
        DebugEager => "debug-eager",
    }
}

crate::words! {
    /// What is run.
    pub enum Workload ("workload") {
        /// One forward pass.
        Forward => "forward",
        /// Eight greedy tokens with a static cache.
        Generate => "generate",
        /// Loss, gradients and parameters after one optimiser step.
        TrainStep => "train-step",
    }
}

crate::words! {
    /// The compute dtype of a case.
    pub enum Dtype ("dtype") {
        /// IEEE binary32.
        Float32 => "float32",
        /// bfloat16: 8 bits of significand.
        Bfloat16 => "bfloat16",
        /// IEEE binary16.
        Float16 => "float16",
    }
}

impl Dtype {
    /// The distance from 1 to the next larger number of this dtype.
    pub fn epsilon(self) -> f64 {
        match self {
            Dtype::Float32 => f64::from(f32::EPSILON),
            Dtype::Bfloat16 => 2f64.powi(-7),
            Dtype::Float16 => 2f64.powi(-10),
        }
    }
}

crate::words! {
    /// The matrix multiplication precision, in the words of `torch.set_float32_matmul_precision`.
    pub enum Precision ("precision") {
        /// Full precision of the dtype.
        Highest => "highest",
        /// Three bf16 passes: about 16 bits of significand.
        High => "high",
        /// One bf16 pass with f32 accumulation: what a matrix unit does natively.
        Medium => "medium",
    }
}

crate::words! {
    /// Where a model's weights come from.
    pub enum Weights ("weights") {
        /// The repository's own files.
        Real => "real",
        /// The true configuration, random weights.
        Random => "random",
        /// The true configuration at reduced depth, random weights.
        Shrunk => "shrunk",
    }
}

impl Weights {
    /// Why no worker can run these weights yet, where none can.
    pub fn unsupported(self) -> Option<&'static str> {
        match self {
            Weights::Real | Weights::Random => None,
            Weights::Shrunk => Some("weights `shrunk` are not supported yet"),
        }
    }
}

crate::words! {
    /// The library that loads and drives a model.
    pub enum Harness ("harness") {
        /// Hugging Face transformers.
        Transformers => "transformers",
        /// Hugging Face diffusers.
        Diffusers => "diffusers",
        /// timm.
        Timm => "timm",
        /// sentence-transformers.
        SentenceTransformers => "sentence-transformers",
    }
}
