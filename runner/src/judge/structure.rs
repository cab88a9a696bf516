//! Whether the files hold the same leaves, with the same shapes and dtypes.

use super::statistics::{Files, SameLeaf, shown};
use super::tensors::Leaf;

/// Problems that a message names one by one.
const NAMED: usize = 3;

/// What stands in the way of comparing leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unlike {
    /// Reference and yardstick do not fit together: nothing can be said about the target.
    Reference(String),
    /// The outputs do not fit the yardstick.
    Outputs(String),
}

/// The leaves that all three files share, which must be all leaves, sorted by name.
pub(crate) fn same_leaves(files: &Files) -> Result<Vec<SameLeaf>, Unlike> {
    let (reference, yardstick, outputs) = (files.reference.leaves(), files.yardstick.leaves(), files.outputs.leaves());
    let mut problems = Vec::new();
    for (name, leaf) in yardstick {
        match reference.get(name) {
            None => problems.push(format!("leaf `{}` of the yardstick is not in the reference", shown(name))),
            Some(found) if found.shape != leaf.shape => problems.push(format!(
                "leaf `{}` has shape {:?} in the yardstick and {:?} in the reference",
                shown(name),
                leaf.shape,
                found.shape
            )),
            Some(found) if found.is_floating() != leaf.is_floating() => problems.push(format!(
                "leaf `{}` has dtype {} in the yardstick and {} in the reference",
                shown(name),
                leaf.dtype,
                found.dtype
            )),
            Some(_) => {}
        }
    }
    for name in reference.keys().filter(|name| !yardstick.contains_key(*name)) {
        problems.push(format!("leaf `{}` of the reference is not in the yardstick", shown(name)));
    }
    if !problems.is_empty() {
        return Err(Unlike::Reference(summary(&problems)));
    }

    for (name, leaf) in yardstick {
        match outputs.get(name) {
            None => problems.push(format!("leaf `{}` is missing", shown(name))),
            Some(found) if found.shape != leaf.shape => {
                problems.push(format!("leaf `{}` has shape {:?}, expected {:?}", shown(name), found.shape, leaf.shape));
            }
            Some(found) if found.dtype != leaf.dtype => {
                problems.push(format!("leaf `{}` has dtype {}, expected {}", shown(name), found.dtype, leaf.dtype));
            }
            Some(_) => {}
        }
    }
    for name in outputs.keys().filter(|name| !yardstick.contains_key(*name)) {
        problems.push(format!("leaf `{}` is not in the reference", shown(name)));
    }
    if !problems.is_empty() {
        return Err(Unlike::Outputs(summary(&problems)));
    }

    Ok(yardstick
        .iter()
        .filter_map(|(name, yardstick)| {
            Some(SameLeaf {
                name: name.clone(),
                reference: reference.get(name)?.clone(),
                yardstick: yardstick.clone(),
                outputs: outputs.get(name)?.clone(),
            })
        })
        .collect())
}

fn summary(problems: &[String]) -> String {
    let named = problems.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match problems.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// The leaves of a reference and its repetition (in the place of the outputs), which must be the same; the reference fits its
/// yardstick already.
pub(crate) fn repeated_leaves(files: &Files) -> Result<Vec<SameLeaf>, String> {
    let (reference, repeat) = (files.reference.leaves(), files.outputs.leaves());
    let description = |leaf: Option<&Leaf>| leaf.map(|leaf| (leaf.dtype, leaf.shape.clone()));
    let differing =
        reference.keys().chain(repeat.keys()).find(|name| description(reference.get(*name)) != description(repeat.get(*name)));
    if let Some(name) = differing {
        return Err(format!("leaf `{}` has not the same shape and dtype in two reference runs", shown(name)));
    }
    let leaves = files.yardstick.leaves().iter().filter_map(|(name, yardstick)| {
        let (reference, outputs) = (reference.get(name)?.clone(), repeat.get(name)?.clone());
        Some(SameLeaf { name: name.clone(), reference, yardstick: yardstick.clone(), outputs })
    });
    Ok(leaves.collect())
}
