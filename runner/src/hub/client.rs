//! The connection to a Hub: where it is, which token it gets, and how long anything may take.

use super::error::HubError;
use super::retry::chain;
use hf_hub::HFClient;
use reqwest::{NoProxy, Proxy, Url};
use std::time::Duration;

/// Where the Hub is and how to ask it.
#[derive(Debug, Clone, Default)]
pub struct HubOptions {
    /// Base URL; absent: `HF_ENDPOINT`, else the public Hub.
    pub endpoint: Option<String>,
    /// What the Hub is told about who asks.
    pub token: Token,
    /// Bounds of listings and of calls; a download brings its own.
    pub limits: DownloadLimits,
}

/// Which token the Hub gets. It goes to the endpoint's own host and to no other.
#[derive(Clone, Default)]
pub enum Token {
    /// `HF_TOKEN`, else the file that the Hub's own tools keep.
    #[default]
    Environment,
    /// None, whatever the environment says: for fixtures.
    Nobody,
    /// This one.
    Given(String),
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Environment => "Environment",
            Self::Nobody => "Nobody",
            Self::Given(_) => "Given(…)",
        })
    }
}

/// Bounds of a download. Every wait has an end, and every size a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadLimits {
    /// Sum over the files of one model, in bytes.
    pub max_bytes: u64,
    /// Files that one model's tree may have; more are not even read.
    pub max_files: usize,
    /// For an answer to begin.
    pub call: Duration,
    /// Between two pieces of a body.
    pub idle: Duration,
    /// For a whole model or listing, waits included.
    pub total: Duration,
    /// Tries in a row that bring nothing.
    pub tries: u32,
    /// Files of one model that come at the same time.
    pub at_once: usize,
}

impl Default for DownloadLimits {
    fn default() -> Self {
        Self {
            max_bytes: 50 << 30,
            max_files: 10_000,
            call: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            total: Duration::from_secs(2 * 60 * 60),
            tries: 5,
            at_once: 4,
        }
    }
}

/// A Hub that can be asked. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HubClient {
    /// For the API, whose lists go on where a `Link` header says: reaches the endpoint's own host only, because hf-hub sends
    /// the token along.
    pub(super) api: HFClient,
    /// For files, which the Hub redirects to a CDN: the HTTP client drops the token on the way to another host.
    pub(super) files: HFClient,
    pub(super) limits: DownloadLimits,
}

/// A token that no header can carry, so hf-hub sends none; it has no other way to ignore the environment's.
const UNSENDABLE_TOKEN: &str = "\n";
/// Nothing ever listens on port 0: a proxy there is a refusal.
const NOWHERE: &str = "http://127.0.0.1:0";
const PUBLIC_HUB: &str = "https://huggingface.co";
const AGENT: &str = concat!("modelfarm/", env!("CARGO_PKG_VERSION"));

impl HubClient {
    /// Prepares the client; asks nothing yet.
    ///
    /// # Errors
    ///
    /// An endpoint that is no address of a web server.
    pub fn new(options: HubOptions) -> Result<Self, HubError> {
        let endpoint = options.endpoint.clone().or_else(|| std::env::var("HF_ENDPOINT").ok());
        let endpoint = endpoint.unwrap_or_else(|| PUBLIC_HUB.to_owned());
        let home = Url::parse(&endpoint).map_err(settings)?;
        if !matches!(home.scheme(), "http" | "https") || home.host_str().is_none() {
            return Err(HubError::Settings { detail: format!("the endpoint `{endpoint}` is not an http or https address") });
        }
        let http = || {
            let timeouts = reqwest::Client::builder().connect_timeout(options.limits.call.min(Duration::from_secs(15)));
            timeouts.read_timeout(options.limits.idle).user_agent(AGENT)
        };
        let builder = || builder(&endpoint, &options.token);
        let files = http().build().map_err(settings)?;
        let origin = home.origin();
        let elsewhere = Proxy::custom(move |url| (url.origin() != origin).then_some(NOWHERE));
        let mut at_home = http().proxy(elsewhere);
        for proxy in environment_proxies()? {
            at_home = at_home.proxy(proxy);
        }
        let at_home = at_home.build().map_err(settings)?;
        Ok(Self {
            api: builder().client(at_home).build().map_err(settings)?,
            files: builder().client(files).build().map_err(settings)?,
            limits: options.limits,
        })
    }

    /// Base URL of the Hub, without a slash at its end.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.api.endpoint()
    }
}

fn builder(endpoint: &str, token: &Token) -> hf_hub::HFClientBuilder {
    let builder = HFClient::builder().endpoint(endpoint).cache_enabled(false).retry_max_attempts(0).user_agent(AGENT);
    match token {
        Token::Environment => builder,
        Token::Nobody => builder.token(UNSENDABLE_TOKEN),
        Token::Given(token) => builder.token(token),
    }
}

/// What the HTTP client would take from the environment itself, had it no proxy of ours.
fn environment_proxies() -> Result<Vec<Proxy>, HubError> {
    let variable = |name: &str| {
        let value = std::env::var(name).or_else(|_| std::env::var(name.to_ascii_lowercase()));
        value.ok().filter(|value| !value.is_empty())
    };
    let mut proxies = Vec::new();
    for (name, make) in [
        ("HTTP_PROXY", (|url: String| Proxy::http(url)) as fn(String) -> reqwest::Result<Proxy>),
        ("HTTPS_PROXY", |url| Proxy::https(url)),
        ("ALL_PROXY", |url| Proxy::all(url)),
    ] {
        if let Some(url) = variable(name) {
            let proxy = make(url).map_err(|error| HubError::Settings { detail: format!("{name}: {error}") })?;
            proxies.push(proxy.no_proxy(NoProxy::from_env()));
        }
    }
    Ok(proxies)
}

fn settings(error: impl std::error::Error) -> HubError {
    HubError::Settings { detail: chain(&error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_must_be_a_web_address() {
        for endpoint in ["", "nowhere", "file:///etc", "ftp://host"] {
            let options = HubOptions { endpoint: Some(endpoint.into()), ..HubOptions::default() };
            let error = HubClient::new(options).unwrap_err().to_string();
            assert!(error.contains("HF_ENDPOINT"), "{endpoint}: {error}");
        }
    }

    #[test]
    fn no_debug_output_holds_the_token() {
        let token = Token::Given("hf_secret".into());
        let options = HubOptions { endpoint: Some("http://localhost:1/".into()), token, ..HubOptions::default() };
        assert!(!format!("{options:?}").contains("hf_secret"));
        let client = HubClient::new(options).unwrap();
        assert!(!format!("{client:?}").contains("hf_secret"));
        assert_eq!(client.endpoint(), "http://localhost:1");
    }
}
