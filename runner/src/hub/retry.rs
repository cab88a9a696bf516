//! Tries of a request: which failures are worth another, how long to wait for it, and when to stop.
//!
//! hf-hub's own retries are off: they know neither `Retry-After` nor an end in time.

use super::client::DownloadLimits;
use super::error::{HubError, Refusal};
use super::names::shown;
use hf_hub::HFError;
use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// A try that failed.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: HubError,
    pub(super) again: Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Never,
    /// After what `Retry-After` said, or after a wait that grows.
    After(Option<Duration>),
    /// At once, and the try does not count: it brought the work forward.
    Progress,
}

impl Trouble {
    pub(super) fn final_one(error: HubError) -> Self {
        Self { error, again: Again::Never }
    }

    pub(super) fn passing(error: HubError) -> Self {
        Self { error, again: Again::After(None) }
    }
}

/// Tries until it works, the trouble is final, the tries are used up, or the next one would start after `until`.
pub(super) async fn with_tries<T, F>(
    limits: &DownloadLimits,
    until: Instant,
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, HubError>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let started = Instant::now();
    let (mut tries, mut counted) = (0u32, 0u32);
    loop {
        tries = tries.saturating_add(1);
        // A body that never pauses and never ends must end too.
        let trouble = match tokio::time::timeout_at(until.into(), attempt()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(trouble)) => trouble,
            Err(_) => {
                let detail = format!("not done within the {} s that a model may take", limits.total.as_secs_f64());
                Trouble::final_one(HubError::download(what, detail))
            }
        };
        let wait = match trouble.again {
            Again::Never => return Err(trouble.error.after(tries, started.elapsed())),
            Again::Progress => {
                counted = 0;
                FIRST_WAIT
            }
            Again::After(told) => {
                counted = counted.saturating_add(1);
                told.unwrap_or_else(|| growing_wait(counted))
            }
        };
        if counted >= limits.tries || Instant::now() + wait >= until {
            return Err(trouble.error.after(tries, started.elapsed()));
        }
        tracing::debug!(error = %trouble.error, ?wait, tries, "trying again");
        tokio::time::sleep(wait).await;
    }
}

/// Doubles each time, and differs between farms that failed at the same moment.
fn growing_wait(count: u32) -> Duration {
    let base = FIRST_WAIT.saturating_mul(1 << count.saturating_sub(1).min(10)).min(LONGEST_WAIT);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    base / 2 + base.mul_f64(f64::from(now.subsec_micros() % 1000) / 2000.0)
}

/// What hf-hub's error means for the farm. `what` is what was asked for, `id` the model, or empty for a listing.
pub(super) fn trouble(endpoint: &str, id: &str, what: &str, error: HFError) -> Trouble {
    let not_found = |what: &str| Trouble::final_one(HubError::NotFound { what: shown(what), endpoint: endpoint.to_owned() });
    let (context, retry_after) = match error {
        HFError::RateLimited { retry_after, context } => (context, retry_after),
        HFError::Http { context }
        | HFError::AuthRequired { context }
        | HFError::Forbidden { context }
        | HFError::Conflict { context }
        | HFError::RepoNotFound { context: Some(context), .. }
        | HFError::RevisionNotFound { context: Some(context), .. }
        | HFError::EntryNotFound { context: Some(context), .. } => (context, None),
        HFError::RepoNotFound { context: None, .. }
        | HFError::RevisionNotFound { context: None, .. }
        | HFError::EntryNotFound { context: None, .. } => return not_found(what),
        HFError::Request { source, url } => return network_trouble(endpoint, id, what, source, url),
        // A xet transfer has no status; the network is behind most of its failures.
        error @ HFError::Xet { .. } => return Trouble::passing(HubError::download(what, chain(&error))),
        error => return Trouble::final_one(HubError::download(what, chain(&error))),
    };
    let status = context.status.as_u16();
    let mut detail = format!("the Hub answered {status}");
    if let Some(message) = context.server_message.as_deref().filter(|message| !message.is_empty()) {
        detail = format!("{detail}: {message}");
    }
    let gated = || {
        let detail = shown(&detail);
        Trouble::final_one(HubError::Gated { id: shown(id), endpoint: endpoint.to_owned(), detail })
    };
    match (context.error_code.as_deref(), status) {
        (Some("GatedRepo"), _) => gated(),
        (Some("RepoNotFound"), _) => not_found(id),
        (Some("RevisionNotFound"), _) => not_found(what),
        // The tree told of the file a moment ago, so this is a Hub at odds with itself.
        (Some("EntryNotFound"), _) => Trouble::final_one(HubError::download(what, detail)),
        (_, 401 | 403) if !id.is_empty() => gated(),
        (_, 404) => not_found(what),
        (_, 408 | 425 | 429 | 500..) => Trouble { error: HubError::download(what, detail), again: Again::After(retry_after) },
        _ => Trouble::final_one(HubError::download(what, detail)),
    }
}

fn network_trouble(endpoint: &str, id: &str, what: &str, source: reqwest::Error, url: Option<String>) -> Trouble {
    // Addresses of a CDN carry signatures: no message shows them.
    let (connect, redirect) = (source.is_connect(), source.is_redirect());
    let detail = chain(&source.without_url());
    let asked = url.as_deref().and_then(|url| reqwest::Url::parse(url).ok());
    let home = reqwest::Url::parse(endpoint).ok();
    if connect
        && let (Some(asked), Some(home)) = (asked, home)
        && asked.origin() != home.origin()
    {
        if asked.path().starts_with("/api/") {
            let host = shown(asked.host_str().unwrap_or_default());
            return Trouble::final_one(HubError::refused(id, Refusal::ForeignHost { host }));
        }
        let host = asked.host_str().unwrap_or_default();
        return Trouble::passing(HubError::download(what, format!("the Hub's storage {host} cannot be reached: {detail}")));
    }
    if connect {
        return Trouble::passing(HubError::Offline { endpoint: endpoint.to_owned(), detail: shown(&detail) });
    }
    if redirect {
        return Trouble::final_one(HubError::download(what, detail));
    }
    Trouble::passing(HubError::download(what, detail))
}

/// An error with its causes, which hold what matters for errors of the network.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_stay_bounded() {
        for count in 1..40 {
            let wait = growing_wait(count);
            assert!(wait >= FIRST_WAIT / 2 && wait <= LONGEST_WAIT, "{count}: {wait:?}");
        }
        assert!(growing_wait(6) > growing_wait(1));
    }

    #[tokio::test]
    async fn tries_end_by_number_and_by_time() {
        let limits = DownloadLimits { tries: 3, ..DownloadLimits::default() };
        let mut tried = 0;
        let far = Instant::now() + Duration::from_secs(60);
        let result: Result<(), _> = with_tries(&limits, far, "x", || {
            tried += 1;
            async { Err(Trouble::passing(HubError::download("x", "no"))) }
        })
        .await;
        assert!(result.unwrap_err().to_string().contains("3 tries"));
        assert_eq!(tried, 3);

        // A Retry-After beyond the end is not waited for.
        let started = Instant::now();
        let near = started + Duration::from_secs(5);
        let again = Again::After(Some(Duration::from_secs(3600)));
        let result: Result<(), _> =
            with_tries(&limits, near, "x", || async { Err(Trouble { error: HubError::download("x", "busy"), again }) }).await;
        assert!(result.is_err() && started.elapsed() < Duration::from_secs(1));
    }
}
