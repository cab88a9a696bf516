//! Why files could not be judged.

use std::fmt;
use std::path::PathBuf;

/// Which of the files that are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What the model is called with.
    Inputs,
    /// The CPU's outputs in float64.
    Reference,
    /// The same once more.
    Repeat,
    /// The CPU's outputs at the case's dtype and precision.
    Yardstick,
    /// The target's outputs.
    Outputs,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Inputs => "inputs",
            Role::Reference => "reference",
            Role::Repeat => "repeat",
            Role::Yardstick => "yardstick",
            Role::Outputs => "outputs",
        })
    }
}

/// A file that cannot be judged: it says nothing about the numbers, and it never passes. Fits "failed to judge: ...".
#[derive(Debug, thiserror::Error)]
#[error("read the {role} file `{}`: {problem}", .path.display())]
pub struct JudgeError {
    /// Which file: what is wrong with `outputs` is the doing of the child that ran on the target.
    pub role: Role,
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The system refused, or the file ended early.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A folder, a symbolic link, a pipe or a device.
    #[error("expected a regular file, found {0}")]
    NotRegular(&'static str),
    /// Larger than is ever read.
    #[error("it has {found} bytes; at most {limit} are read")]
    TooLarge {
        /// Bytes of the file or of its header.
        found: u64,
        /// The bound.
        limit: u64,
    },
    /// Not safetensors.
    #[error("expected safetensors: {0}")]
    Malformed(String),
    /// More leaves than any model has.
    #[error("it has {found} leaves; at most {limit} are read")]
    TooManyLeaves {
        /// Leaves in the header.
        found: usize,
        /// The bound.
        limit: usize,
    },
    /// A dtype that the judge does not compare.
    #[error("leaf `{leaf}` has dtype {dtype}, which is not compared")]
    UnsupportedDtype {
        /// The leaf.
        leaf: String,
        /// Its dtype, in safetensors' words.
        dtype: String,
    },
}
