//! An HTTP client that sends whatever it is told to, right or wrong, and reads what comes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The value of a field of each row.
    pub fn column(&self, field: &str) -> Vec<Value> {
        self.json().as_array().unwrap().iter().map(|row| row[field].clone()).collect()
    }
}

/// Asks for a path.
pub async fn get(address: SocketAddr, path: &str) -> Answer {
    get_with(address, path, &[]).await
}

/// Asks with more headers.
pub async fn get_with(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    send(address, "GET", path, headers).await
}

/// Sends a request without a body.
pub async fn send(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    raw(address, format!("{request}\r\n").as_bytes()).await
}

/// Sends bytes, and reads until the server closes.
pub async fn raw(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    read.expect("the server neither answers nor closes").unwrap();
    parse(&answer)
}

fn parse(answer: &[u8]) -> Answer {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    if let Some(length) = headers.get("content-length").filter(|_| !body.is_empty()) {
        assert_eq!(body.len().to_string(), *length, "{head}");
    }
    Answer { status, headers, body: body.to_owned() }
}
