//! The server ends when it is told to, and finishes what it began.

use std::time::{Duration, Instant};

use modelfarm_reports::server::{ServeError, ServerOptions, serve};
use modelfarm_reports::store::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::get;
use crate::databases::{open, sqlite};
use crate::served::{on_loopback, on_sqlite};

#[tokio::test]
async fn a_server_that_ends_lets_nobody_wait() {
    let served = on_sqlite().await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut followed = TcpStream::connect(served.address).await.unwrap();
    followed.write_all(b"GET /api/v1/runs/latest/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut begun = [0; 12];
    idle.read_exact(&mut begun).await.unwrap();
    followed.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    let began = Instant::now();
    served.server.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(4), "it took {:?}", began.elapsed());
    let mut rest = Vec::new();
    followed.read_to_end(&mut rest).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).ends_with("0\r\n\r\n"), "the stream ends as streams do");
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(TcpStream::connect(served.address).await.is_err(), "nobody listens");
}

#[tokio::test]
async fn an_address_in_use_is_told() {
    let database = sqlite();
    open(&database).await.close().await;
    let store = || async { Store::open_read_only(&database.url).await.unwrap() };
    let server = serve(store().await, &on_loopback()).await.unwrap();
    let taken = ServerOptions { listen: server.address(), ..on_loopback() };
    let error = serve(store().await, &taken).await.unwrap_err();
    assert!(matches!(error, ServeError::Listen { .. }) && error.to_string().contains("--listen"), "{error}");
    // One that is dropped does not answer any more.
    let address = server.address();
    assert_eq!(get(address, "/healthz").await.status, 200);
    drop(server);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(TcpStream::connect(address).await.is_err());
}
