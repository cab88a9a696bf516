//! Whether the process that runs a shard still lives.

use super::time::now_ms;

/// A shard that says nothing for so long is dead, wherever it ran.
pub(crate) const SILENCE_MS: i64 = 120_000;

/// This host's name, as attempts and shards record it.
pub fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether a shard's process that has not ended by itself is alive.
pub(crate) fn is_alive(host: &str, pid: i64, heartbeat_at: i64) -> bool {
    if now_ms().saturating_sub(heartbeat_at) > SILENCE_MS {
        return false;
    }
    host != this_host() || process_exists(pid)
}

fn process_exists(pid: i64) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    match rustix::process::test_kill_process(pid) {
        Ok(()) => !is_zombie(pid),
        // It is there and belongs to somebody else.
        Err(error) => error == rustix::io::Errno::PERM,
    }
}

/// A killed process whose parent has not yet noticed still has its number.
fn is_zombie(pid: rustix::process::Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.is_ok_and(|status| status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_is_gone_or_silent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, host) = (i64::from(child.id()), this_host());
        assert!(is_alive(&host, pid, now_ms()));
        assert!(!is_alive(&host, pid, now_ms() - SILENCE_MS - 1000));
        child.kill().unwrap();
        while is_alive(&host, pid, now_ms()) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(!is_alive(&host, pid, now_ms()));
        assert!(is_alive("another-host", pid, now_ms()));
    }
}
