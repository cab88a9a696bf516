//! Which names a request may call this server by.
//!
//! A page of a stranger can make its own name mean 127.0.0.1, and then read what a server on loopback answers: DNS rebinding. The
//! browser tells the name in the `Host` header, where a page cannot change it.

use std::net::SocketAddr;

use axum::http::request::Parts;
use axum::http::{StatusCode, header};

use super::ServerOptions;
use super::refusal::Refusal;

/// The names that are answered; every name where other machines may ask and none was given.
#[derive(Debug, Clone)]
pub(super) struct HostCheck(Option<Vec<String>>);

impl HostCheck {
    pub(super) fn new(options: &ServerOptions, address: SocketAddr) -> Self {
        if options.is_public() && options.allowed_hosts.is_empty() {
            return Self(None);
        }
        let own =
            ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned(), name_of(&address.to_string()).to_owned()];
        let given = options.allowed_hosts.iter().map(|name| name.to_ascii_lowercase());
        Self(Some(own.into_iter().chain(given).collect()))
    }

    /// Refuses a request that calls the server by another name.
    pub(super) fn check(&self, request: &Parts) -> Result<(), Refusal> {
        let Some(names) = &self.0 else { return Ok(()) };
        let mut hosts = request.headers.get_all(header::HOST).iter();
        let called = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default(),
            _ => "",
        };
        let in_target = request.uri.authority().map(|authority| authority.as_str());
        let is_ours = |called: &str| names.iter().any(|name| name.eq_ignore_ascii_case(name_of(called)));
        if is_ours(called) && in_target.is_none_or(is_ours) {
            return Ok(());
        }
        let called: String = called.chars().take(80).collect();
        let expected = format!("expected one of: {}", names.join(", "));
        let text =
            format!("the host `{called}` is not answered; {expected}; --allow-host adds one, such as that of a proxy in front");
        Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, text))
    }
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_and_the_root_are_no_part_of_a_name() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("localhost:8080", "localhost"),
            ("localhost.:8080", "localhost"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("localhost:8080@evil", "localhost:8080@evil"),
            ("localhost:", "localhost"),
            ("", ""),
        ] {
            assert_eq!(name_of(host), name, "{host}");
        }
    }
}
