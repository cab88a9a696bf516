//! Whether bytes on the disk are those that the Hub's tree tells of.

use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::io::Read;
use std::path::Path;

/// What the tree tells of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) size: u64,
    /// The SHA-1 of what Git holds: the file as a blob, or the pointer that stands for it.
    pub(super) git_oid: String,
    /// Whether Git holds a pointer (LFS, and xet over it).
    pub(super) is_pointer: bool,
    /// Of an LFS file, where the Hub tells it. hf-hub 1.0 looks for it under a name that the tree does not use.
    pub(super) sha256: Option<String>,
}

/// The content's SHA-256 where all hashes agree with what was told, else what differs.
///
/// The pointer of an LFS file holds the SHA-256 and the size, so its Git hash vouches for the content too.
pub(super) fn verify(path: &Path, told: &Told) -> std::io::Result<Result<String, &'static str>> {
    let mut file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();
    if size != told.size {
        return Ok(Err("length"));
    }
    let (mut sha256, mut blob) = (Sha256::new(), (!told.is_pointer).then(|| git_blob(size)));
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        sha256.update(&buffer[..read]);
        if let Some(blob) = &mut blob {
            blob.update(&buffer[..read]);
        }
    }
    let sha256 = hex(&sha256.finalize());
    let git = blob.unwrap_or_else(|| {
        let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n");
        let mut blob = git_blob(pointer.len() as u64);
        blob.update(pointer.as_bytes());
        blob
    });
    if told.sha256.as_ref().is_some_and(|told| *told != sha256) {
        return Ok(Err("SHA-256"));
    }
    // With the SHA-256 told there is no need to rely on how the pointer is written.
    if told.sha256.is_none() && hex(&git.finalize()) != told.git_oid {
        return Ok(Err("Git hash"));
    }
    Ok(Ok(sha256))
}

fn git_blob(size: u64) -> Sha1 {
    Sha1::new_with_prefix(format!("blob {size}\0"))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

    fn told(git_oid: &str, is_pointer: bool) -> Told {
        Told { size: 6, git_oid: git_oid.into(), is_pointer, sha256: None }
    }

    #[test]
    fn hashes_are_gits_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hello\n").unwrap();
        let check = |told: &Told| verify(file.path(), told).unwrap();
        // `git hash-object` of the file, and of the pointer that `git lfs pointer` makes of it
        let blob = told("ce013625030ba8dba906f756967f9e9ca394464a", false);
        let pointer = told("fa61e1ef71c9908c0926776a4aa3504b3a27f159", true);
        assert_eq!(check(&blob), Ok(SHA256.to_owned()));
        assert_eq!(check(&pointer), Ok(SHA256.to_owned()));
        assert_eq!(check(&Told { is_pointer: true, ..blob.clone() }), Err("Git hash"));
        assert_eq!(check(&Told { size: 7, ..blob.clone() }), Err("length"));
        assert_eq!(check(&Told { sha256: Some("0".repeat(64)), ..pointer }), Err("SHA-256"));
    }
}
