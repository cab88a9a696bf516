//! Which packages differ between two environments.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::statement::built;
use crate::store::{StoreError, Transaction};

/// A package in two environments. A version is none where the package is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PackageChange {
    /// The package.
    pub package: String,
    /// Its version before.
    pub from: Option<String>,
    /// Its version after.
    pub to: Option<String>,
}

/// A pair of environments, either of which may be unknown.
pub(crate) type Pair = (Option<String>, Option<String>);

type Packages = BTreeMap<String, String>;

/// What changed in each pair; nothing where either is unknown.
pub(crate) async fn package_changes(
    transaction: &mut Transaction,
    pairs: &[Pair],
) -> Result<Vec<Vec<PackageChange>>, StoreError> {
    let ids: BTreeSet<&String> = pairs.iter().flat_map(|(from, to)| from.iter().chain(to)).collect();
    let mut packages: HashMap<String, Packages> = HashMap::new();
    if !ids.is_empty() {
        let query = built("SELECT environment_id, packages FROM environments WHERE 1 = 1").and_in("environment_id", ids);
        for row in transaction.all(query).await? {
            packages.insert(row.text("environment_id")?, row.json("packages")?);
        }
    }
    let mut known: HashMap<&Pair, Vec<PackageChange>> = HashMap::new();
    Ok(pairs
        .iter()
        .map(|pair| {
            let between = || match (&pair.0, &pair.1) {
                (Some(from), Some(to)) if from != to => {
                    packages.get(from).zip(packages.get(to)).map(|(from, to)| differences(from, to)).unwrap_or_default()
                }
                _ => Vec::new(),
            };
            known.entry(pair).or_insert_with(between).clone()
        })
        .collect())
}

/// The packages that differ, by name.
pub fn differences(from: &Packages, to: &Packages) -> Vec<PackageChange> {
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    names
        .into_iter()
        .filter(|name| from.get(*name) != to.get(*name))
        .map(|name| PackageChange { package: name.clone(), from: from.get(name).cloned(), to: to.get(name).cloned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_removed_and_changed_packages_are_told() {
        let packages = |text: &str| -> Packages {
            text.split(' ').filter_map(|one| one.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
        };
        let found = differences(&packages("a=1 b=1 c=1"), &packages("a=1 b=2 d=1"));
        let told: Vec<(&str, Option<&str>, Option<&str>)> =
            found.iter().map(|one| (one.package.as_str(), one.from.as_deref(), one.to.as_deref())).collect();
        assert_eq!(told, [("b", Some("1"), Some("2")), ("c", Some("1"), None), ("d", None, Some("1"))]);
    }
}
