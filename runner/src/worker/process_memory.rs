//! The resident memory of a job's processes, by sampling `/proc`.
//!
//! Address-space limits do not work with these libraries, and control groups are not writable everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A process as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    resident_bytes: u64,
}

/// Resident bytes of the process group led by `leader` and of all its descendants.
pub fn resident_bytes(leader: i32) -> u64 {
    let processes = processes();
    let mut members: BTreeSet<i32> = processes.iter().filter(|p| p.group == leader || p.pid == leader).map(|p| p.pid).collect();
    loop {
        let before = members.len();
        let children: Vec<i32> = processes.iter().filter(|p| members.contains(&p.parent)).map(|p| p.pid).collect();
        members.extend(children);
        if members.len() == before {
            break;
        }
    }
    processes.iter().filter(|p| members.contains(&p.pid)).map(|p| p.resident_bytes).sum()
}

/// The host's pid of the process that has `inner` as its pid in the innermost pid namespace below `root`.
///
/// `root` is the process that the farm started (the sandbox or the zygote itself).
pub fn host_pid(root: i32, inner: i32) -> Option<i32> {
    let parents: BTreeMap<i32, i32> = processes().into_iter().map(|process| (process.pid, process.parent)).collect();
    let is_below_root = |mut pid: i32| {
        for _ in 0..64 {
            if pid == root {
                return true;
            }
            match parents.get(&pid) {
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().find(|&pid| {
        let namespaced = fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            line.split_whitespace().last()?.parse::<i32>().ok()
        });
        namespaced == Some(inner) && is_below_root(pid)
    })
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// Reads a line of `/proc/PID/stat`; the command in parentheses may itself hold spaces and parentheses.
fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let pages: u64 = fields.get(21)?.parse().ok()?;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        resident_bytes: pages * rustix::param::page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_found() {
        let own = std::process::id() as i32;
        assert!(resident_bytes(own) > 1024 * 1024);
        assert_eq!(host_pid(own, own), Some(own));
    }

    #[test]
    fn a_command_with_parentheses_is_read() {
        let stat = "7 (a) b) c) S 3 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 10 1000 4 0";
        let process = parse_stat(7, stat).unwrap();
        assert_eq!((process.parent, process.group), (3, 5));
        assert_eq!(process.resident_bytes, 4 * rustix::param::page_size() as u64);
    }
}
