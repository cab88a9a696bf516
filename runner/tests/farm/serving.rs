//! The server as a program: it tells where it is, answers, and ends when it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use crate::setup::modelfarm;

/// A server on a free port, with what it wrote until it said where it is.
fn started(state: &Path, listen: &str) -> (Child, BufReader<ChildStderr>, String) {
    let mut child = modelfarm(state).args(["serve", "--listen", listen]).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("http://") {
        assert_ne!(errors.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    (child, errors, said)
}

fn port(said: &str) -> u16 {
    let address = said.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    address.rsplit(':').next().unwrap().parse().unwrap()
}

fn asked(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_answers_until_a_signal_ends_it() {
    let state = tempfile::tempdir().unwrap();
    assert!(modelfarm(state.path()).args(["db", "migrate"]).status().unwrap().success());
    for signal in ["-INT", "-TERM"] {
        let (mut child, _errors, said) = started(state.path(), "127.0.0.1:0");
        assert!(!said.contains("warning"), "{said}");
        let answer = asked(port(&said));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("}"), "{answer}");
        let killed = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn an_address_that_others_reach_is_warned_of() {
    let state = tempfile::tempdir().unwrap();
    assert!(modelfarm(state.path()).args(["db", "migrate"]).status().unwrap().success());
    let (mut child, _errors, said) = started(state.path(), "0.0.0.0:0");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains("warning") && said.contains("no password"), "{said}");
}

#[test]
fn what_cannot_be_served_is_told_and_nothing_is_made() {
    let state = tempfile::tempdir().unwrap();
    let missing = modelfarm(state.path()).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there is none"), "{missing:?}");
    assert!(!state.path().join("farm.db").exists());

    assert!(modelfarm(state.path()).args(["db", "migrate"]).status().unwrap().success());
    let (mut child, _errors, said) = started(state.path(), "127.0.0.1:0");
    let taken = format!("127.0.0.1:{}", port(&said));
    let second = modelfarm(state.path()).args(["serve", "--listen", &taken]).output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("--listen"), "{second:?}");
}
