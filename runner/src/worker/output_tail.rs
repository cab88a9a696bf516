//! The bounded end of what a process wrote.

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a process's output is kept.
pub const KEPT_BYTES: usize = 64 * 1024;

/// Reads until end of file and keeps the last [`KEPT_BYTES`] bytes, as text.
///
/// Reading never stops early: a process must not block on a full pipe because nobody cares for what it says.
pub async fn read_tail(mut from: impl AsyncRead + Unpin) -> String {
    let mut tail: Vec<u8> = Vec::new();
    let mut dropped = 0usize;
    let mut buffer = vec![0u8; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        tail.extend_from_slice(&buffer[..count]);
        if tail.len() > 2 * KEPT_BYTES {
            let excess = tail.len() - KEPT_BYTES;
            tail.drain(..excess);
            dropped += excess;
        }
    }
    if tail.len() > KEPT_BYTES {
        let excess = tail.len() - KEPT_BYTES;
        tail.drain(..excess);
        dropped += excess;
    }
    let text = String::from_utf8_lossy(&tail);
    if dropped > 0 { format!("[{dropped} bytes before this are not kept]\n{text}") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_is_kept_and_the_rest_counted() {
        let mut written = vec![b'a'; 500_000];
        written.extend_from_slice(b"the end");
        let kept = read_tail(&written[..]).await;
        assert!(kept.ends_with("the end") && kept.len() < KEPT_BYTES + 100);
        assert!(kept.starts_with(&format!("[{} bytes", written.len() - KEPT_BYTES)));
        assert_eq!(read_tail(&b"short"[..]).await, "short");
    }
}
