//! One file from the Hub into the store: in pieces, going on where an earlier try stopped, and checked at the end.

use super::client::{DownloadLimits, HubClient};
use super::error::HubError;
use super::retry::{Again, Trouble, trouble, with_tries};
use super::store::FileStore;
use super::verify::{Told, verify};
use futures::StreamExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tokio::io::AsyncWriteExt;

/// A try that brought this much counts as a step forward and not as a failure.
const STEP: u64 = 1 << 20;
/// How often a content is fetched anew when it does not have its hash.
const CONTENT_TRIES: u32 = 2;

/// A file of a repository, whose name has been checked.
#[derive(Debug, Clone)]
pub(super) struct WantedFile {
    pub(super) id: String,
    pub(super) commit: String,
    pub(super) name: String,
    pub(super) told: Told,
}

impl WantedFile {
    fn what(&self) -> String {
        format!("{}/{}", self.id, self.name)
    }
}

/// Brings the content into the store unless it is there, and returns its SHA-256.
pub(super) async fn fetch(
    client: &HubClient,
    file: &WantedFile,
    store: &FileStore,
    limits: &DownloadLimits,
    until: Instant,
) -> Result<String, HubError> {
    if let Some(sha256) = store.known(&file.told) {
        return Ok(sha256);
    }
    let partial = store.partial(&file.told);
    let key = partial.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let _lock = store.lock(key, until).await?;
    if let Some(sha256) = store.known(&file.told) {
        return Ok(sha256);
    }
    let wrong_contents = AtomicU32::new(0);
    let what = file.what();
    let sha256 = with_tries(limits, until, &what, || one_try(client, file, &partial, limits, &wrong_contents)).await?;
    store.adopt(&partial, &file.told, &sha256)?;
    Ok(sha256)
}

async fn one_try(
    client: &HubClient,
    file: &WantedFile,
    partial: &Path,
    limits: &DownloadLimits,
    wrong_contents: &AtomicU32,
) -> Result<String, Trouble> {
    let size = file.told.size;
    let io = |source| Trouble::final_one(HubError::store(partial, source));
    let mut start = partial.metadata().map_or(0, |metadata| metadata.len());
    if start > size {
        std::fs::remove_file(partial).map_err(io)?;
        start = 0;
    }
    if start < size {
        receive(client, file, partial, limits, start).await?;
    } else if size == 0 {
        std::fs::write(partial, b"").map_err(io)?;
    }

    let (path, told) = (partial.to_path_buf(), file.told.clone());
    let checked = tokio::task::spawn_blocking(move || verify(&path, &told)).await;
    match checked.map_err(|error| io(std::io::Error::other(error)))?.map_err(io)? {
        Ok(sha256) => Ok(sha256),
        Err(difference) => {
            std::fs::remove_file(partial).map_err(io)?;
            let detail = format!("what came has not the {difference} that the Hub's tree tells");
            let error = HubError::download(file.what(), detail);
            if wrong_contents.fetch_add(1, Ordering::Relaxed) + 1 < CONTENT_TRIES {
                Err(Trouble::passing(error))
            } else {
                Err(Trouble::final_one(error))
            }
        }
    }
}

/// Adds what comes from `start` on to the partial file.
async fn receive(
    client: &HubClient,
    file: &WantedFile,
    partial: &Path,
    limits: &DownloadLimits,
    start: u64,
) -> Result<(), Trouble> {
    let size = file.told.size;
    let io = |source| Trouble::final_one(HubError::store(partial, source));
    let short = |error: HubError, at: u64| {
        let again = if at - start >= STEP { Again::Progress } else { Again::After(None) };
        Trouble { error, again }
    };
    let (owner, name) = hf_hub::split_id(&file.id);
    let model = client.files.model(owner, name);
    let range = (start > 0).then_some(start..size);
    let call = model.download_file_stream().filename(file.name.as_str()).revision(file.commit.as_str()).maybe_range(range);
    let begun = tokio::time::timeout(limits.call, call.send()).await;
    let begun = begun.map_err(|_| {
        let detail = format!("no answer within {} s", limits.call.as_secs_f64());
        Trouble::passing(HubError::download(file.what(), detail))
    })?;
    let (_, mut stream) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let mut trouble = trouble(client.endpoint(), &file.id, &file.what(), error);
            if start > 0 && trouble.again == Again::Never && matches!(trouble.error, HubError::Download { .. }) {
                // Refused for good, but perhaps only for the range: the next try asks for the whole.
                std::fs::remove_file(partial).map_err(io)?;
                trouble.again = Again::After(None);
            }
            return Err(trouble);
        }
    };
    let mut into = tokio::fs::File::options().create(true).append(true).open(partial).await.map_err(io)?;
    let mut at = start;
    let ended = loop {
        let piece = match tokio::time::timeout(limits.idle, stream.next()).await {
            Err(_) => {
                let detail = format!("nothing came for {} s after {at} of {size} bytes", limits.idle.as_secs_f64());
                break Err(short(HubError::download(file.what(), detail), at));
            }
            Ok(None) => break Ok(()),
            Ok(Some(Err(error))) => {
                let mut trouble = trouble(client.endpoint(), &file.id, &file.what(), error);
                if let HubError::Download { detail, .. } = &mut trouble.error {
                    *detail = format!("{detail} after {at} of {size} bytes");
                }
                break Err(if trouble.again == Again::Never { trouble } else { short(trouble.error, at) });
            }
            Ok(Some(Ok(piece))) => piece,
        };
        let next = at.saturating_add(piece.len() as u64);
        if next > size {
            // A server that ignores ranges sends the whole again. Nothing of the mixture is worth keeping.
            drop(into);
            std::fs::remove_file(partial).map_err(io)?;
            let detail = format!("more came than the {size} bytes that the Hub's tree tells");
            return Err(Trouble::passing(HubError::download(file.what(), detail)));
        }
        into.write_all(&piece).await.map_err(io)?;
        at = next;
    };
    into.flush().await.map_err(io)?;
    ended?;
    if at < size {
        return Err(short(HubError::download(file.what(), format!("the body ended after {at} of {size} bytes")), at));
    }
    Ok(())
}
