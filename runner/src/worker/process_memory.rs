//! The resident memory of a job's processes, by sampling `/proc`.
//!
//! Address-space limits do not work with these libraries, and control groups are not writable everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// How long it may take until a new process is seen: to find them all of `/proc` is read, which four times a second costs two jobs some
/// 3 % of a core.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The processes of a job: the group led by one, and all its descendants.
#[derive(Debug)]
pub struct JobProcesses {
    leader: i32,
    members: Vec<i32>,
    looked: Option<Instant>,
}

impl JobProcesses {
    /// The job that this process leads.
    pub fn led_by(leader: i32) -> Self {
        Self { leader, members: Vec::new(), looked: None }
    }

    /// The bytes that they hold in memory now.
    pub fn resident_bytes(&mut self) -> u64 {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            self.members = members(self.leader, &processes());
            self.looked = Some(Instant::now());
        }
        self.members.iter().filter_map(|&pid| parse_statm(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?)).sum()
    }
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
}

/// The process group led by `leader`, and all its descendants.
fn members(leader: i32, processes: &[Process]) -> Vec<i32> {
    let mut members: BTreeSet<i32> = processes.iter().filter(|p| p.group == leader || p.pid == leader).map(|p| p.pid).collect();
    loop {
        let before = members.len();
        let children: Vec<i32> = processes.iter().filter(|p| members.contains(&p.parent)).map(|p| p.pid).collect();
        members.extend(children);
        if members.len() == before {
            return members.into_iter().collect();
        }
    }
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
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    Some(Process { pid, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// The resident bytes of a line of `/proc/PID/statm`.
fn parse_statm(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_found() {
        let own = std::process::id() as i32;
        assert!(JobProcesses::led_by(own).resident_bytes() > 1024 * 1024);
        assert_eq!(host_pid(own, own), Some(own));
    }

    #[test]
    fn a_command_with_parentheses_is_read() {
        let stat = "7 (a) b) c) S 3 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 10 1000 4 0";
        assert_eq!(parse_stat(7, stat), Some(Process { pid: 7, parent: 3, group: 5 }));
        assert_eq!(parse_statm("1000 4 2 1 0 9 0\n"), Some(4 * rustix::param::page_size() as u64));
        assert_eq!((parse_stat(7, "7 (a"), parse_statm("")), (None, None));
    }

    #[test]
    fn a_job_is_its_group_and_all_that_came_of_it() {
        let process = |pid, parent, group| Process { pid, parent, group };
        let all = [process(1, 0, 1), process(5, 1, 5), process(6, 5, 5), process(7, 6, 7), process(8, 1, 5), process(9, 1, 9)];
        // 7 left the group and has a parent in it; 8 lost its parent and is in the group; 9 has nothing to do with it.
        assert_eq!(members(5, &all), [5, 6, 7, 8]);
        assert!(members(4, &all).is_empty());
    }

    #[test]
    fn a_process_that_came_later_is_seen() {
        let own = std::process::id() as i32;
        let mut job = JobProcesses::led_by(own);
        job.resident_bytes();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::thread::sleep(LOOK_EVERY);
        job.resident_bytes();
        assert!(job.members.contains(&(child.id() as i32)), "{:?}", job.members);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
