//! Which things go, and why: from what is there, a policy and the time, without looking at anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::footprint::Footprint;
use super::item::{Item, Kind, Stays};
use super::policy::Policy;

/// What goes and what stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Those that go, in the order in which they go: what needs another goes before it.
    pub go: Vec<Item>,
    /// Those that stay.
    pub stay: Vec<Item>,
}

/// Decides for each item. One stays that always does, was used within its kind's age, or is needed by one that stays.
pub fn plan(items: Vec<Item>, policy: &Policy, now: i64) -> Plan {
    let by_path: BTreeMap<PathBuf, usize> = items.iter().enumerate().map(|(index, item)| (item.path.clone(), index)).collect();
    let stays_by_itself = |item: &Item| match item.stays {
        Stays::Always(_) => true,
        Stays::WhileUsed => item.last_used > now.saturating_sub(policy.age(item.kind).ms()),
        Stays::NoLonger => false,
    };
    let mut open: Vec<usize> = (0..items.len()).filter(|index| stays_by_itself(&items[*index])).collect();
    let mut staying: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(index) = open.pop() {
        for needed in items[index].needs.iter().filter_map(|path| by_path.get(path)) {
            if staying.insert(*needed) {
                open.push(*needed);
            }
        }
    }
    let mut plan = Plan::default();
    for (index, item) in items.into_iter().enumerate() {
        match staying.contains(&index) {
            true => plan.stay.push(item),
            false => plan.go.push(item),
        }
    }
    // A snapshot without its contents would be a broken one; contents without a snapshot are none's.
    plan.go.sort_by(|one, other| (one.needs.is_empty(), &one.path).cmp(&(other.needs.is_empty(), &other.path)));
    plan
}

/// The things of one kind that go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Which kind.
    pub kind: Kind,
    /// How many of them.
    pub count: u64,
    /// How much space is free once all of the plan is gone. A file that two kinds share is counted for the first of them.
    pub bytes: u64,
    /// When the oldest of them was last used, UTC milliseconds since 1970.
    pub oldest: i64,
}

impl Plan {
    /// What goes, by kind.
    pub fn shares(&self) -> Vec<Share> {
        let mut shares = Vec::new();
        let (mut so_far, mut before) = (Footprint::default(), 0);
        for kind in Kind::ALL {
            let of_kind: Vec<&Item> = self.go.iter().filter(|item| item.kind == *kind).collect();
            let Some(oldest) = of_kind.iter().map(|item| item.last_used).min() else { continue };
            of_kind.iter().for_each(|item| so_far.join(&item.footprint));
            let bytes = so_far.freed_bytes();
            shares.push(Share { kind: *kind, count: of_kind.len() as u64, bytes: bytes - before, oldest });
            before = bytes;
        }
        shares
    }

    /// Bytes that are free once all of it is gone.
    pub fn freed_bytes(&self) -> u64 {
        self.shares().iter().map(|share| share.bytes).sum()
    }

    /// Whether the thing at a path goes.
    pub fn removes(&self, path: &Path) -> bool {
        self.go.iter().any(|item| item.path == path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::policy::{Age, OlderThan};
    use super::*;

    const NOW: i64 = 2_000_000_000_000;

    fn item(number: usize, kind: Kind, days: i64) -> Item {
        Item {
            kind,
            path: format!("{number}").into(),
            beside: Vec::new(),
            footprint: Footprint::of_own(1 << number.min(40)),
            last_used: NOW - Age::days(days).ms(),
            needs: Vec::new(),
            stays: Stays::WhileUsed,
        }
    }

    #[test]
    fn what_a_young_snapshot_needs_stays_and_what_an_old_one_needs_goes_after_it() {
        let young = Item { needs: vec!["2".into(), "3".into()], ..item(0, Kind::HubSnapshot, 1) };
        let old = Item { needs: vec!["3".into(), "4".into()], ..item(1, Kind::HubSnapshot, 99) };
        let contents = [2, 3, 4, 5].map(|number| item(number, Kind::HubContent, if number == 5 { 1 } else { 99 }));
        let plan = plan([&[young, old][..], &contents].concat(), &Policy::default(), NOW);
        let paths = |items: &[Item]| items.iter().map(|item| item.path.display().to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!((paths(&plan.go), paths(&plan.stay)), ("1 4".to_owned(), "0 2 3 5".to_owned()));
        assert_eq!(plan.freed_bytes(), (1 << 1) + (1 << 4));
    }

    #[test]
    fn what_is_kept_stays_at_any_age_and_a_clock_that_went_back_removes_nothing() {
        let kept = Item { stays: Stays::Always("in use".into()), ..item(0, Kind::Environment, 9999) };
        let of_tomorrow = item(1, Kind::Reference, -1);
        let nothing: OlderThan = "0d".parse().unwrap();
        assert!(plan(vec![kept, of_tomorrow], &Policy::new(&[nothing]), NOW).go.is_empty());
    }

    #[test]
    fn what_was_about_to_be_removed_goes_at_any_age() {
        let left = Item { stays: Stays::NoLonger, ..item(0, Kind::Leftover, 0) };
        assert_eq!(plan(vec![left], &Policy::default(), NOW).go.len(), 1);
    }

    fn any_item(count: usize) -> impl Strategy<Value = (usize, i64, bool, Vec<usize>)> {
        (0..Kind::ALL.len(), 0i64..200, prop::bool::weighted(0.1), prop::collection::vec(0..count.max(1), 0..3))
    }

    fn any_items() -> impl Strategy<Value = Vec<Item>> {
        (0usize..30).prop_flat_map(|count| prop::collection::vec(any_item(count), count)).prop_map(|drawn| {
            let made = drawn.into_iter().enumerate().map(|(number, (kind, days, is_kept, needs))| Item {
                needs: needs.iter().map(|needed| format!("{needed}").into()).collect(),
                stays: if is_kept { Stays::Always("in use".to_owned()) } else { Stays::WhileUsed },
                ..item(number, Kind::ALL[kind], days)
            });
            made.collect()
        })
    }

    proptest! {
        #[test]
        fn whatever_is_there(items in any_items(), days in 0i64..200) {
            let policy = Policy::new(&[OlderThan { kind: None, age: Age::days(days) }]);
            let planned = plan(items.clone(), &policy, NOW);
            prop_assert_eq!(planned.go.len() + planned.stay.len(), items.len());
            for item in &planned.go {
                prop_assert!(item.stays == Stays::WhileUsed && NOW - item.last_used >= Age::days(days).ms());
            }
            // Nothing that stays lacks what it needs, and nothing stays without a reason.
            for item in &planned.stay {
                prop_assert!(!item.needs.iter().any(|needed| planned.removes(needed)));
                let is_needed = planned.stay.iter().any(|other| other.needs.contains(&item.path));
                prop_assert!(item.stays != Stays::WhileUsed || NOW - item.last_used < Age::days(days).ms() || is_needed);
            }
            // A second look, with what went gone, finds nothing.
            prop_assert!(plan(planned.stay.clone(), &policy, NOW).go.is_empty());
            prop_assert_eq!(planned.shares().iter().map(|share| share.count).sum::<u64>(), planned.go.len() as u64);
            // A longer age removes no more.
            let longer = Policy::new(&[OlderThan { kind: None, age: Age::days(days + 1) }]);
            for item in &plan(items, &longer, NOW).go {
                prop_assert!(planned.removes(&item.path));
            }
        }
    }
}
