//! Safetensors files of hostile origin, read leaf by leaf.
//!
//! Files are not mapped into memory. A map of a file that another process may truncate ends in SIGBUS, which would end the whole
//! farm, and Rust counts such a map as `unsafe` for that reason; outside `runner/pjrt` there is none. Positioned reads of
//! bounded pieces cost one copy from the page cache, need no memory in proportion to the file, and turn the same attack into an
//! ordinary error.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::decode;
use super::error::{JudgeError, Problem, Role};

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;
/// A leaf takes about 200 bytes of the header, and the largest models have some ten thousand.
const LARGEST_HEADER: u64 = 32 << 20;
/// A sparse file claims terabytes at no cost; reading them has one.
const LARGEST_FILE: u64 = 64 << 30;
/// More leaves than any model has.
const MOST_LEAVES: usize = 200_000;

/// One leaf as the header describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// How its elements are stored.
    pub(crate) dtype: Dtype,
    /// Outermost dimension first.
    pub(crate) shape: Vec<usize>,
    /// Where its bytes begin in the file.
    offset: u64,
    /// Number of elements.
    pub(crate) count: usize,
}

impl Leaf {
    /// Length of the innermost dimension; 1 for a scalar.
    pub(crate) fn last_dimension(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Whether it holds floating numbers, which are judged by distance.
    pub(crate) fn is_floating(&self) -> bool {
        decode::is_floating(self.dtype)
    }
}

/// An open file and what its header says.
#[derive(Debug)]
pub(crate) struct TensorFile {
    role: Role,
    path: PathBuf,
    file: File,
    leaves: BTreeMap<String, Leaf>,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// Opens `path` and checks its header against its size.
    pub(crate) fn open(role: Role, path: &Path) -> Result<Self, JudgeError> {
        let failed = |problem| JudgeError { role, path: path.to_owned(), problem };
        let file = open_regular(path).map_err(failed)?;
        let leaves = read_header(&file).map_err(failed)?;
        Ok(Self { role, path: path.to_owned(), file, leaves, bytes: Vec::new() })
    }

    /// Its leaves by name.
    pub(crate) fn leaves(&self) -> &BTreeMap<String, Leaf> {
        &self.leaves
    }

    /// Reads elements `start..start + count` of a leaf as f64, which holds every supported floating dtype exactly.
    pub(crate) fn read_floats(
        &mut self,
        leaf: &Leaf,
        start: usize,
        count: usize,
        into: &mut Vec<f64>,
    ) -> Result<(), JudgeError> {
        self.read_bytes(leaf, start, count)?;
        decode::floats(leaf.dtype, &self.bytes, into);
        Ok(())
    }

    /// Reads elements `start..start + count` of a leaf of integers or booleans.
    pub(crate) fn read_integers(
        &mut self,
        leaf: &Leaf,
        start: usize,
        count: usize,
        into: &mut Vec<i128>,
    ) -> Result<(), JudgeError> {
        self.read_bytes(leaf, start, count)?;
        decode::integers(leaf.dtype, &self.bytes, into);
        Ok(())
    }

    fn read_bytes(&mut self, leaf: &Leaf, start: usize, count: usize) -> Result<(), JudgeError> {
        let size = leaf.dtype.bitsize() / 8;
        self.bytes.resize(count * size, 0);
        let at = leaf.offset + (start as u64) * (size as u64);
        self.file.read_exact_at(&mut self.bytes, at).map_err(|error| JudgeError {
            role: self.role,
            path: self.path.clone(),
            problem: error.into(),
        })
    }
}

fn open_regular(path: &Path) -> Result<File, Problem> {
    // A link could lead anywhere, and opening a pipe would wait for its writer for ever.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
            match std::fs::symlink_metadata(path) {
                Ok(found) if found.is_symlink() => Problem::NotRegular("a symbolic link"),
                Ok(found) if found.file_type().is_socket() => Problem::NotRegular("a socket"),
                _ => Problem::Io(error),
            }
        })?;
    let kind = file.metadata()?.file_type();
    match () {
        _ if kind.is_file() => Ok(file),
        _ if kind.is_dir() => Err(Problem::NotRegular("a folder")),
        _ if kind.is_fifo() => Err(Problem::NotRegular("a pipe")),
        _ => Err(Problem::NotRegular("a device")),
    }
}

fn read_header(file: &File) -> Result<BTreeMap<String, Leaf>, Problem> {
    let size = file.metadata()?.len();
    if size > LARGEST_FILE {
        return Err(Problem::TooLarge { found: size, limit: LARGEST_FILE });
    }
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact_at(&mut length, 0).map_err(|error| shorter_than("the header's length", error))?;
    let length = u64::from_le_bytes(length);
    if length > LARGEST_HEADER {
        return Err(Problem::TooLarge { found: length, limit: LARGEST_HEADER });
    }
    if LENGTH_BYTES + length > size {
        return Err(Problem::Malformed(format!("its header claims {length} bytes of a file of {size}")));
    }
    let mut header = vec![0; length as usize];
    file.read_exact_at(&mut header, LENGTH_BYTES).map_err(|error| shorter_than("its header", error))?;
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|error| Problem::Malformed(bounded(&error.to_string())))?;
    let data = LENGTH_BYTES + length;
    if metadata.data_len() as u64 != size - data {
        let (claimed, found) = (metadata.data_len(), size - data);
        return Err(Problem::Malformed(format!("its header describes {claimed} bytes of data; the file has {found}")));
    }
    let tensors = metadata.tensors();
    if tensors.len() > MOST_LEAVES {
        return Err(Problem::TooManyLeaves { found: tensors.len(), limit: MOST_LEAVES });
    }
    tensors
        .into_iter()
        .map(|(name, info)| {
            if !decode::is_supported(info.dtype) {
                return Err(Problem::UnsupportedDtype { leaf: bounded(&name), dtype: info.dtype.to_string() });
            }
            // The header's own check has multiplied these without overflow.
            let count = info.shape.iter().product();
            let offset = data + info.data_offsets.0 as u64;
            Ok((name, Leaf { dtype: info.dtype, shape: info.shape.clone(), offset, count }))
        })
        .collect()
}

fn shorter_than(what: &str, error: io::Error) -> Problem {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Problem::Malformed(format!("the file ends before {what}"))
    } else {
        Problem::Io(error)
    }
}

/// The beginning of a text that a model chose, without its control characters.
pub(crate) fn bounded(text: &str) -> String {
    let mut shown: String = text.chars().take(160).flat_map(char::escape_debug).collect();
    if text.chars().nth(160).is_some() {
        shown.push('…');
    }
    shown
}
