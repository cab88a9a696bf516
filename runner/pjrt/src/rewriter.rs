//! Asking the rewriter, a process of its own, to make a program fit for XLA:CPU.
//!
//! It is reached through a Unix socket that several processes share, or started by a command and spoken to through pipes. A
//! connection belongs to one process: after a fork the child makes its own. If the rewriter dies on a program, that compile
//! fails and the next one connects again.
//!
//! A request is `MFR1`, the length of the program as a little-endian u64, and the program. The answer is `MFR1`, one status
//! byte (0: a program follows, 1: a reason why not follows), the length likewise, and that.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use crate::errors::lock;

/// Names the Unix socket of a rewriter that runs already.
pub const SOCKET_VARIABLE: &str = "MODELFARM_PJRT_REWRITER";
/// A shell command that starts a rewriter which speaks on its standard input and output.
pub const COMMAND_VARIABLE: &str = "MODELFARM_PJRT_REWRITER_COMMAND";

const MAGIC: [u8; 4] = *b"MFR1";
/// Far beyond any real program; a longer answer means that the other side is confused.
const MAX_ANSWER_BYTES: u64 = 1 << 30;
/// The largest programs seen take under a second; a hang must not outlive the farm's patience.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why a program could not be rewritten.
#[derive(Debug)]
pub enum Problem {
    /// There is no rewriter.
    NotConfigured,
    /// It does not answer, or could not be started.
    Unreachable(String),
    /// It died or talked nonsense in the middle of a request.
    Lost(String),
    /// It read the program and says why it cannot rewrite it.
    Refused(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotConfigured => write!(
                formatter,
                "no rewriter is configured. Set {SOCKET_VARIABLE} to the socket of a running modelfarm_rewriter, or \
                 {COMMAND_VARIABLE} to a command that starts one"
            ),
            Self::Unreachable(reason) => write!(formatter, "the rewriter cannot be reached: {reason}"),
            Self::Lost(reason) => write!(formatter, "the rewriter was lost while it worked on this program: {reason}"),
            Self::Refused(reason) => write!(formatter, "the rewriter refused the program: {reason}"),
        }
    }
}

enum Channel {
    Socket(UnixStream),
    Process { child: Child, input: ChildStdin, output: ChildStdout },
}

struct Connection {
    process: u32,
    channel: Channel,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Self::Process { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

static CONNECTION: Mutex<Option<Connection>> = Mutex::new(None);

/// Returns the program with its composites replaced by calls of their decompositions.
pub fn rewrite(program: &[u8]) -> Result<Vec<u8>, Problem> {
    let process = std::process::id();
    let mut slot = lock(&CONNECTION);
    if slot.as_ref().is_some_and(|connection| connection.process != process) {
        // A parent's connection: it stays the parent's, and a process behind it is not ours to end.
        std::mem::forget(slot.take());
    }
    // A connection from before may have died since, and says nothing about this program: one more try with a new one.
    if let Some(mut connection) = slot.take()
        && let Ok(answer) = connection.channel.ask(program)
    {
        *slot = Some(connection);
        return answer.map_err(Problem::Refused);
    }
    let mut connection = Connection { process, channel: connect()? };
    match connection.channel.ask(program) {
        Ok(answer) => {
            *slot = Some(connection);
            answer.map_err(Problem::Refused)
        }
        Err(error) => Err(Problem::Lost(connection.channel.epitaph(&error))),
    }
}

fn connect() -> Result<Channel, Problem> {
    if let Some(socket) = std::env::var_os(SOCKET_VARIABLE).filter(|value| !value.is_empty()) {
        let unreachable =
            |error| Problem::Unreachable(format!("socket '{}' (from {SOCKET_VARIABLE}): {error}", socket.to_string_lossy()));
        let stream = UnixStream::connect(&socket).map_err(unreachable)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(unreachable)?;
        return Ok(Channel::Socket(stream));
    }
    let Some(command) = std::env::var_os(COMMAND_VARIABLE).filter(|value| !value.is_empty()) else {
        return Err(Problem::NotConfigured);
    };
    let unreachable = |reason: String| {
        Problem::Unreachable(format!("command '{}' (from {COMMAND_VARIABLE}): {reason}", command.to_string_lossy()))
    };
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(&command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| unreachable(error.to_string()))?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => Ok(Channel::Process { child, input, output }),
        _ => Err(unreachable("its pipes are missing".to_owned())),
    }
}

impl Channel {
    fn ask(&mut self, program: &[u8]) -> std::io::Result<Result<Vec<u8>, String>> {
        match self {
            Self::Socket(stream) => {
                let mut reader = stream.try_clone()?;
                exchange(stream, &mut reader, program)
            }
            Self::Process { input, output, .. } => exchange(input, output, program),
        }
    }

    /// How the other side ended, as far as it can be known.
    fn epitaph(&mut self, error: &std::io::Error) -> String {
        let what = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "it closed the connection, so it probably crashed".to_owned(),
            std::io::ErrorKind::WouldBlock => format!("no answer within {} s", PATIENCE.as_secs()),
            _ => error.to_string(),
        };
        match self {
            Self::Socket(_) => what,
            Self::Process { child, .. } => {
                let _ = child.kill();
                match child.wait() {
                    Ok(status) => format!("{what} ({status})"),
                    Err(_) => what,
                }
            }
        }
    }
}

fn exchange(writer: &mut impl Write, reader: &mut impl Read, program: &[u8]) -> std::io::Result<Result<Vec<u8>, String>> {
    let mut head = Vec::with_capacity(12);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&(program.len() as u64).to_le_bytes());
    writer.write_all(&head)?;
    writer.write_all(program)?;
    writer.flush()?;

    let mut answer = [0_u8; 13];
    reader.read_exact(&mut answer)?;
    let (magic, rest) = answer.split_at(4);
    let mut length = [0; 8];
    length.copy_from_slice(&rest[1..]);
    let length = u64::from_le_bytes(length);
    if magic != MAGIC || rest[0] > 1 || length > MAX_ANSWER_BYTES {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "its answer is not in the rewriter's protocol"));
    }
    let mut bytes = Vec::new();
    let read = reader.take(length).read_to_end(&mut bytes)?;
    if read as u64 != length {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(if rest[0] == 0 { Ok(bytes) } else { Err(String::from_utf8_lossy(&bytes).into_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u8, length: u64, body: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &[status], &length.to_le_bytes(), body].concat()
    }

    #[test]
    fn a_request_is_framed_and_both_kinds_of_answer_are_read() {
        let mut sent = Vec::new();
        let read = exchange(&mut sent, &mut answer(0, 3, b"new").as_slice(), b"old!").expect("an answer");
        assert_eq!(read, Ok(b"new".to_vec()));
        assert_eq!(sent, [&b"MFR1"[..], &4_u64.to_le_bytes(), b"old!"].concat());
        let refused = exchange(&mut Vec::new(), &mut answer(1, 2, b"no").as_slice(), b"x").expect("an answer");
        assert_eq!(refused, Err("no".to_owned()));
    }

    #[test]
    fn nonsense_and_early_ends_are_errors_and_allocate_nothing_large() {
        for bad in [answer(0, 9, b"short"), answer(7, 0, b""), answer(0, u64::MAX, b""), b"HTTP/1.1 400 Bad".to_vec(), vec![]] {
            assert!(exchange(&mut Vec::new(), &mut bad.as_slice(), b"x").is_err());
        }
    }
}
