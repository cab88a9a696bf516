//! What a run tells of declared expectations: which to narrow, which to take away, and which to add.
//!
//! It is a merge and never a replacement: a case that the run did not ask keeps its declaration, whatever became of others of the
//! same entry. So a shard that did not run loses nothing, and an entry goes only where a complete run asked and saw pass all that
//! it covers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::case::Case;
use crate::expectation::{Declared, Expectation, Expectations, Verdict, verdict};
use crate::fault::Fault;
use crate::known_case::{KnownCase, Seen};
use crate::outcome::{Outcome, Standing};
use crate::selector::Selector;
use crate::selector_cover::{cover, place};

/// What a run saw of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// What, and whose problem it is.
    pub seen: Seen,
    /// The beginning of its masked message, on one line and harmless to show.
    pub signature: Option<String>,
}

/// What a run saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSeen {
    /// Its id.
    pub run_id: String,
    /// Whether every planned case of all shards is final.
    pub is_complete: bool,
    /// Its final cases.
    pub cases: BTreeMap<Case, Observed>,
}

/// Which undeclared outcomes are worth an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// Those that say that the target failed.
    Failures,
    /// Those that say nothing of the target, too.
    Inconclusive,
}

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    Stays,
    /// The first stands in its place, the others behind it; there is at least one.
    Becomes(Vec<Expectation>),
    /// It is taken away.
    Goes,
}

/// What an entry cannot be changed to, and a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// All its cases passed, in a run that is not complete.
    NotComplete {
        /// The entry's line.
        line: usize,
    },
    /// Some of its cases ended otherwise, and selectors cannot tell them from others of its cases.
    Inseparable {
        /// The entry's line.
        line: usize,
        /// How many.
        cases: usize,
    },
    /// It asks for architectures or tags, and some planned model has not been looked up yet.
    UnknownRepositories {
        /// The entry's line.
        line: usize,
    },
    /// Failures without an entry, since selectors cannot tell them from cases that end otherwise.
    NotDeclared {
        /// One of them.
        example: Box<Case>,
        /// How many.
        cases: usize,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remark::NotComplete { line } => write!(
                f,
                "the entry of line {line} stays, though all its cases passed: the run is not complete, and only a complete one \
                 takes an entry away"
            ),
            Remark::Inseparable { line, cases } => write!(
                f,
                "the entry of line {line} keeps {cases} of its cases that did not end as it declares: no key of a selector tells \
                 them from its others"
            ),
            Remark::UnknownRepositories { line } => write!(
                f,
                "the entry of line {line} stays as it is: it selects by architecture or tag, and the run is to ask models that no \
                 shard has looked up yet"
            ),
            Remark::NotDeclared { example, cases } => write!(
                f,
                "{cases} undeclared as before, such as case {}: no key of a selector tells them from cases of the same model that \
                 end otherwise",
                example.id()
            ),
        }
    }
}

/// What a run proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// For each entry of the file, in its order.
    pub fates: Vec<Fate>,
    /// New entries, for the end of the file.
    pub additions: Vec<Expectation>,
    /// What could not be proposed.
    pub remarks: Vec<Remark>,
}

impl Proposal {
    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.additions.is_empty() && self.fates.iter().all(|fate| *fate == Fate::Stays)
    }
}

/// An outcome and whose problem it is: what an entry declares.
type Kind = (Outcome, Option<Fault>);

fn kind(seen: Seen) -> Kind {
    (seen.outcome, seen.fault)
}

fn allows(expectation: &Expectation, kind: Kind) -> bool {
    expectation.outcome == kind.0 && (expectation.fault.is_none() || expectation.fault == kind.1)
}

/// What a run proposes. `known` are all cases that somebody has heard of, those that the run was to ask among them.
pub fn propose(expectations: &Expectations, known: &[KnownCase], run: &RunSeen, worth: Worth) -> Proposal {
    let mut proposal = Proposal { fates: Vec::new(), additions: Vec::new(), remarks: Vec::new() };
    let mut open: BTreeMap<&Case, &KnownCase> = known.iter().map(|known| (&known.case, known)).collect();
    let mut declared_as: BTreeMap<&Case, Expectation> = BTreeMap::new();
    for declared in expectations.entries() {
        let select = &declared.expectation.select;
        let taken: Vec<&KnownCase> = open.values().copied().filter(|known| known.may_match(select)).collect();
        let Review { fate, keeps, declares } = review(declared, &taken, run, worth, &mut proposal.remarks);
        for known in keeps {
            open.remove(&known.case);
            declared_as.insert(&known.case, declares.clone());
        }
        proposal.fates.push(fate);
    }
    proposal.additions = additions(known, &open, &declared_as, run, worth, &mut proposal.remarks);
    proposal
}

/// What becomes of an entry, which cases it still counts for, and what it then declares of them.
struct Review<'a> {
    fate: Fate,
    keeps: Vec<&'a KnownCase>,
    declares: Expectation,
}

/// Looks at an entry. `taken` are the cases that it counts for.
fn review<'a>(
    declared: &Declared,
    taken: &[&'a KnownCase],
    run: &RunSeen,
    worth: Worth,
    remarks: &mut Vec<Remark>,
) -> Review<'a> {
    let (line, entry) = (declared.line, &declared.expectation);
    let stays = || Review { fate: Fate::Stays, keeps: taken.to_vec(), declares: entry.clone() };
    let mut as_declared: Vec<&KnownCase> = Vec::new();
    let mut otherwise: BTreeMap<Kind, Vec<&KnownCase>> = BTreeMap::new();
    let mut passed = 0;
    for known in taken {
        let Some(observed) = run.cases.get(&known.case) else {
            as_declared.push(known);
            continue;
        };
        match (verdict(observed.seen.outcome, observed.seen.fault, Some(entry)), worth) {
            (Verdict::UnexpectedPass, _) => passed += 1,
            (Verdict::UnexpectedFail, _) | (Verdict::UnexpectedInconclusive, Worth::Inconclusive) => {
                otherwise.entry(kind(observed.seen)).or_default().push(known);
            }
            // What says nothing of the target says nothing against the entry.
            (Verdict::UnexpectedInconclusive, Worth::Failures)
            | (Verdict::ExpectedPass | Verdict::ExpectedFail | Verdict::ExpectedInconclusive, _) => as_declared.push(known),
        }
    }
    if passed == 0 && otherwise.is_empty() {
        return stays();
    }
    if entry.select.asks_for_repository() && taken.iter().any(|known| known.repository.is_none()) {
        remarks.push(Remark::UnknownRepositories { line });
        return stays();
    }
    let most_frequent = otherwise.into_iter().max_by_key(|(kind, cases)| (cases.len(), std::cmp::Reverse(*kind)));
    let (wanted, declares) = match most_frequent {
        _ if !as_declared.is_empty() => (as_declared, entry.clone()),
        Some((kind, cases)) => {
            let declares = declared_anew(entry, kind, &cases, run);
            (cases, declares)
        }
        None if run.is_complete => return Review { fate: Fate::Goes, keeps: Vec::new(), declares: entry.clone() },
        None => {
            remarks.push(Remark::NotComplete { line });
            return stays();
        }
    };
    let are_wanted: BTreeSet<&Case> = wanted.iter().map(|known| &known.case).collect();
    let (wanted, unwanted): (Vec<&Case>, Vec<&Case>) =
        taken.iter().map(|known| &known.case).partition(|case| are_wanted.contains(case));
    let selectors = cover(&entry.select, &wanted, &unwanted);
    let is_kept = |case: &Case| selectors.iter().any(|select| select.matches_case(case));
    let inseparable = unwanted.iter().filter(|case| is_kept(case)).count();
    if inseparable > 0 {
        remarks.push(Remark::Inseparable { line, cases: inseparable });
    }
    let keeps = taken.iter().copied().filter(|known| is_kept(&known.case)).collect();
    let becomes: Vec<Expectation> = selectors.into_iter().map(|select| Expectation { select, ..declares.clone() }).collect();
    let fate = if becomes == [entry.clone()] { Fate::Stays } else { Fate::Becomes(becomes) };
    Review { fate, keeps, declares }
}

/// An entry of which nothing is as declared any more says what there is now; who looks after it and where stays.
fn declared_anew(entry: &Expectation, (outcome, fault): Kind, cases: &[&KnownCase], run: &RunSeen) -> Expectation {
    let seen = seen_in(cases.iter().map(|known| &known.case), run);
    let reason = format!("{} (was declared as {}; now: {seen})", entry.reason, entry.outcome);
    Expectation { outcome, fault, reason, ..entry.clone() }
}

/// What a run saw of some cases, in words: the first masked message among them.
fn seen_in<'a>(cases: impl Iterator<Item = &'a Case>, run: &RunSeen) -> String {
    let signatures = cases.filter_map(|case| run.cases.get(case)?.signature.as_deref());
    let signature = signatures.map(str::trim).find(|signature| !signature.is_empty());
    format!("{}; seen in run {}, to be explained", signature.unwrap_or("no message"), run.run_id)
}

/// Entries for what failed undeclared: one for each model, target, outcome and fault, over its modes; more where that would
/// cover a case that ends otherwise.
fn additions(
    known: &[KnownCase],
    open: &BTreeMap<&Case, &KnownCase>,
    declared_as: &BTreeMap<&Case, Expectation>,
    run: &RunSeen,
    worth: Worth,
    remarks: &mut Vec<Remark>,
) -> Vec<Expectation> {
    let mut groups: BTreeMap<(&str, &str, Kind), Vec<&Case>> = BTreeMap::new();
    for case in open.keys().copied() {
        let Some(observed) = run.cases.get(case) else { continue };
        let is_worth = match observed.seen.outcome.standing() {
            Standing::Pass => false,
            Standing::Fail => true,
            Standing::Inconclusive => worth == Worth::Inconclusive,
        };
        if is_worth {
            groups.entry((case.model.as_str(), case.target.as_str(), kind(observed.seen))).or_default().push(case);
        }
    }
    let mut of_model: BTreeMap<(&str, &str), Vec<&KnownCase>> = BTreeMap::new();
    for known in known {
        of_model.entry((known.case.model.as_str(), known.case.target.as_str())).or_default().push(known);
    }
    let mut additions = Vec::new();
    for ((model, target, kind), group) in groups {
        let is_in_group: BTreeSet<&Case> = group.iter().copied().collect();
        // What is declared or was last seen to end in the same way may be covered too; of all else the entry must keep off.
        let ends_alike = |known: &KnownCase| match declared_as.get(&known.case) {
            Some(expectation) => allows(expectation, kind),
            None => {
                let observed = run.cases.get(&known.case).map(|observed| observed.seen);
                observed.or(known.newest).is_some_and(|seen| self::kind(seen) == kind)
            }
        };
        let others = of_model.get(&(model, target)).into_iter().flatten();
        let unwanted: Vec<&Case> =
            others.filter(|known| !is_in_group.contains(&known.case) && !ends_alike(known)).map(|known| &known.case).collect();
        let occupied: BTreeSet<_> = unwanted.iter().map(|case| place(case)).collect();
        let (inseparable, wanted): (Vec<&Case>, Vec<&Case>) =
            group.into_iter().partition(|case| occupied.contains(&place(case)));
        if let Some(example) = inseparable.first() {
            remarks.push(Remark::NotDeclared { example: Box::new((*example).clone()), cases: inseparable.len() });
        }
        let from = Selector { model: vec![model.to_owned()], target: vec![target.to_owned()], ..Selector::default() };
        for select in cover(&from, &wanted, &unwanted) {
            let reason = seen_in(wanted.iter().copied().filter(|case| select.matches_case(case)), run);
            let (outcome, fault) = kind;
            additions.push(Expectation { select, outcome, fault, reason, issue: None, owner: None, expires: None });
        }
    }
    additions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation_check::{Problem, check};
    use crate::expectation_text::{entry_text, rewrite};
    use crate::known_case::{Known, Repository};
    use crate::target::Targets;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    const MODES: [&str; 3] = ["strict-eager", "defer-and-fuse", "compiled"];

    fn case(model: &str, mode: &str, rest: &str) -> Case {
        format!("v1/{model}/C/transformers/real/forward/default/{rest}/eager/tpu-emulated/{mode}").parse().unwrap()
    }

    fn known(case: Case, newest: Option<Seen>) -> KnownCase {
        let architecture = format!("arch-{}", &case.model.name()[..1]);
        let repository = Some(Repository { architecture, tags: vec!["toy".into()] });
        KnownCase { case, repository, newest, in_complete_run: newest }
    }

    fn seen(outcome: Outcome) -> Seen {
        let fault = (outcome.standing() != Standing::Pass).then_some(Fault::Backend);
        Seen { outcome, fault }
    }

    /// Cases that a run asked, by model and mode, in single precision.
    fn run(cases: &[(&str, &str, Outcome)], is_complete: bool) -> RunSeen {
        let cases = cases.iter().map(|(model, mode, outcome)| {
            let signature = (outcome.standing() != Standing::Pass).then(|| format!("{outcome}: <n> of <n>"));
            (case(model, mode, "float32/highest"), Observed { seen: seen(*outcome), signature })
        });
        RunSeen { run_id: "0192".into(), is_complete, cases: cases.collect() }
    }

    /// What a run proposes for a file, as the new file and the remarks. What it asked is all that is known, and `others`.
    fn proposed(text: &str, run: &RunSeen, others: &[KnownCase]) -> (String, Vec<String>) {
        let mut cases: Vec<KnownCase> = run.cases.iter().map(|(case, seen)| known(case.clone(), Some(seen.seen))).collect();
        cases.extend_from_slice(others);
        let expectations = Expectations::parse("e.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let proposal = propose(&expectations, &cases, run, Worth::Failures);
        let new = rewrite("e.toml", text, &proposal.fates, &proposal.additions).unwrap();
        let again = propose(&Expectations::parse("e.toml", &new).unwrap(), &cases, run, Worth::Failures);
        assert!(again.is_empty(), "a second update proposes {again:?} for\n{new}");
        assert_eq!(proposal.is_empty(), new == text);
        (new, proposal.remarks.iter().map(ToString::to_string).collect())
    }

    fn entry(select: &str, outcome: &str) -> String {
        format!("[[expect]]\nselect = {{ {select} }}\noutcome = \"{outcome}\"\nreason = \"known\"\n")
    }

    fn new_entry(select: &str, outcome: &str) -> String {
        format!(
            "[[expect]]\nselect = {{ {select} }}\noutcome = \"{outcome}\"\nfault = \"backend\"\nreason = \"{outcome}: <n> of <n>; \
             seen in run 0192, to be explained\"\n"
        )
    }

    fn in_all_modes(model: &str, outcome: Outcome) -> Vec<(&str, &'static str, Outcome)> {
        MODES.iter().map(|mode| (model, *mode, outcome)).collect()
    }

    #[test]
    fn a_failure_in_every_mode_needs_no_mode() {
        let run_of_all = run(&in_all_modes("m/a", Outcome::Crash), true);
        let (text, remarks) = proposed("", &run_of_all, &[]);
        assert_eq!(text, new_entry("model = \"m/a\", target = \"tpu-emulated\"", "crash"));
        assert_eq!(remarks, [""; 0]);
        // A mode that was planned and not asked may end in another way.
        let half = run(&in_all_modes("m/a", Outcome::Crash)[..2], false);
        let planned = known(case("m/a", "compiled", "float32/highest"), None);
        let (text, _) = proposed("", &half, &[planned]);
        let modes = "mode = [\"strict-eager\", \"defer-and-fuse\"]";
        assert_eq!(text, new_entry(&format!("model = \"m/a\", target = \"tpu-emulated\", {modes}"), "crash"));
    }

    #[test]
    fn failures_of_several_kinds_are_several_entries() {
        let run = run(
            &[
                ("m/a", "strict-eager", Outcome::Crash),
                ("m/a", "defer-and-fuse", Outcome::Timeout),
                ("m/a", "compiled", Outcome::Crash),
                ("m/b", "compiled", Outcome::Crash),
                ("m/c", "compiled", Outcome::LoadError),
            ],
            true,
        );
        let (text, _) = proposed("# Ours.\n", &run, &[]);
        let [crash, timeout] = [["strict-eager", "compiled"].as_slice(), &["defer-and-fuse"]].map(|modes| match modes {
            [one] => format!("model = \"m/a\", target = \"tpu-emulated\", mode = {one:?}"),
            many => format!("model = \"m/a\", target = \"tpu-emulated\", mode = {many:?}"),
        });
        let all = [
            new_entry(&crash, "crash"),
            new_entry(&timeout, "timeout"),
            new_entry("model = \"m/b\", target = \"tpu-emulated\"", "crash"),
        ];
        assert_eq!(text, format!("# Ours.\n\n{}", all.join("\n")));
    }

    #[test]
    fn an_entry_keeps_off_what_passes_elsewhere() {
        let run = run(&in_all_modes("m/a", Outcome::Crash), true);
        let elsewhere = known(case("m/a", "compiled", "bfloat16/highest"), Some(seen(Outcome::Pass)));
        let (text, _) = proposed("", &run, std::slice::from_ref(&elsewhere));
        assert_eq!(text, new_entry("model = \"m/a\", target = \"tpu-emulated\", dtype = \"float32\"", "crash"));
        // What fails alike elsewhere may be covered too.
        let alike = KnownCase { newest: Some(seen(Outcome::Crash)), ..elsewhere };
        let (text, _) = proposed("", &run, &[alike]);
        assert_eq!(text, new_entry("model = \"m/a\", target = \"tpu-emulated\"", "crash"));
        // And what no selector can tell apart is left to people.
        let other_precision = known(case("m/a", "compiled", "float32/medium"), Some(seen(Outcome::Pass)));
        let (text, remarks) = proposed("", &run, &[other_precision]);
        let modes = "mode = [\"strict-eager\", \"defer-and-fuse\"]";
        assert_eq!(text, new_entry(&format!("model = \"m/a\", target = \"tpu-emulated\", {modes}"), "crash"));
        assert!(remarks.len() == 1 && remarks[0].starts_with("1 undeclared as before"), "{remarks:?}");
    }

    #[test]
    fn what_passes_is_taken_out_of_its_entry() {
        let mut cases = in_all_modes("m/a", Outcome::Pass);
        cases.extend(in_all_modes("m/b", Outcome::Crash));
        let run_of_both = run(&cases, true);
        let list = "model = [\n  \"m/a\", # in May\n  \"m/b\", # always\n], target = \"tpu-emulated\"";
        let (text, _) = proposed(&entry(list, "crash"), &run_of_both, &[]);
        assert_eq!(text, entry(&list.replace("  \"m/a\", # in May\n", ""), "crash"));
        let (text, _) = proposed(&entry("architecture = \"arch-*\"", "crash"), &run_of_both, &[]);
        assert_eq!(text, entry("architecture = \"arch-*\", model = \"m/b\"", "crash"));

        cases[1].2 = Outcome::Crash;
        let (text, _) = proposed(&entry("model = \"m/a\"", "crash"), &run(&cases[..3], true), &[]);
        assert_eq!(text, entry("model = \"m/a\", mode = \"defer-and-fuse\"", "crash"));
    }

    #[test]
    fn an_entry_goes_only_where_all_of_it_was_asked_and_passed() {
        let both = format!("{}\n{}", entry("model = \"m/a\"", "crash"), entry("model = \"m/b\"", "crash"));
        let whole = run(&in_all_modes("m/a", Outcome::Pass), true);
        let of_b = known(case("m/b", "compiled", "float32/highest"), None);
        let (text, remarks) = proposed(&both, &whole, std::slice::from_ref(&of_b));
        assert_eq!((text, remarks.len()), (entry("model = \"m/b\"", "crash"), 0));

        let half = RunSeen { is_complete: false, ..whole.clone() };
        let (text, remarks) = proposed(&both, &half, std::slice::from_ref(&of_b));
        assert_eq!(text, both);
        assert!(
            remarks.len() == 1 && remarks[0].contains("line 1 stays") && remarks[0].contains("not complete"),
            "{remarks:?}"
        );

        // One of its cases was not asked: that one stays declared.
        let other = known(case("m/a", "compiled", "bfloat16/highest"), Some(seen(Outcome::Crash)));
        let (text, _) = proposed(&both, &whole, &[of_b, other]);
        assert_eq!(text, both.replace("\"m/a\" }", "\"m/a\", dtype = \"bfloat16\" }"));
    }

    #[test]
    fn models_that_no_shard_has_looked_up_keep_their_entry() {
        let half = run(&in_all_modes("m/a", Outcome::Pass), false);
        let unknown = KnownCase { repository: None, ..known(case("m/z", "compiled", "float32/highest"), None) };
        let text = entry("architecture = \"arch-*\"", "crash");
        let (new, remarks) = proposed(&text, &half, &[unknown]);
        assert_eq!(new, text);
        assert!(remarks.len() == 1 && remarks[0].contains("no shard has looked up"), "{remarks:?}");
    }

    #[test]
    fn what_fails_in_another_way_is_declared_anew() {
        let text = entry("model = \"m/a\"", "crash").replace("known", "known (ann)");
        let (new, _) = proposed(&text, &run(&in_all_modes("m/a", Outcome::Timeout), true), &[]);
        let reason = "known (ann) (was declared as crash; now: timeout: <n> of <n>; seen in run 0192, to be explained)";
        let expected = text.replace("\"crash\"", "\"timeout\"").replace("known (ann)", reason);
        assert_eq!(new, format!("{expected}fault = \"backend\"\n"));

        let mut cases = in_all_modes("m/a", Outcome::Crash);
        cases[0].2 = Outcome::Timeout;
        let (new, _) = proposed(&text, &run(&cases, true), &[]);
        let narrowed = text.replace("\"m/a\" }", "\"m/a\", mode = [\"defer-and-fuse\", \"compiled\"] }");
        let select = "model = \"m/a\", target = \"tpu-emulated\", mode = \"strict-eager\"";
        assert_eq!(new, format!("{narrowed}\n{}", new_entry(select, "timeout")));
    }

    #[test]
    fn what_an_entry_hid_is_looked_at_too() {
        let both =
            format!("{}\n{}", entry("model = \"m/a\", mode = \"compiled\"", "crash"), entry("model = \"m/a\"", "timeout"));
        let cases = [("m/a", "compiled", Outcome::Pass), ("m/a", "strict-eager", Outcome::Timeout)];
        let (text, _) = proposed(&both, &run(&cases, true), &[]);
        assert_eq!(text, entry("model = \"m/a\", mode = \"strict-eager\"", "timeout"));
    }

    #[test]
    fn what_says_nothing_of_the_target_is_declared_only_where_that_is_asked_for() {
        let cases = run(&[("m/a", "compiled", Outcome::LoadError)], true);
        let known: Vec<KnownCase> = cases.cases.iter().map(|(case, seen)| known(case.clone(), Some(seen.seen))).collect();
        let none = Expectations::default();
        assert!(propose(&none, &known, &cases, Worth::Failures).is_empty());
        let additions = propose(&none, &known, &cases, Worth::Inconclusive).additions;
        assert!(additions.len() == 1 && additions[0].outcome == Outcome::LoadError, "{additions:?}");
    }

    const OUTCOMES: [Outcome; 5] = [Outcome::Pass, Outcome::Pass, Outcome::Crash, Outcome::Timeout, Outcome::LoadError];

    fn any_entry() -> impl Strategy<Value = Expectation> {
        let models =
            prop_oneof![Just(Vec::new()), Just(vec!["m/*"]), subsequence(vec!["m/a", "m/b", "m/c", "m/never"], 1..=4),];
        let more = (select(vec!["", "arch-*", "arch-a"]), subsequence(crate::axes::Mode::ALL, 0..=3));
        let declares = (select(OUTCOMES.to_vec()), prop::option::of(select(vec![Fault::Backend, Fault::Model])));
        (models, more, prop::option::of(select(crate::axes::Dtype::ALL)), declares).prop_map(
            |(model, (architecture, mode), dtype, (outcome, fault))| Expectation {
                select: Selector {
                    model: model.into_iter().map(str::to_owned).collect(),
                    architecture: [architecture].into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect(),
                    // An entry that selects by nothing is refused by the reader.
                    target: vec!["tpu-emulated".into()],
                    mode,
                    dtype: dtype.into_iter().collect(),
                    ..Selector::default()
                },
                outcome,
                fault,
                reason: "known".into(),
                issue: None,
                owner: None,
                expires: None,
            },
        )
    }

    fn any_known() -> impl Strategy<Value = (KnownCase, Option<Outcome>)> {
        let axes = (select(vec!["m/a", "m/b", "m/c"]), select(MODES.to_vec()));
        let rest = select(vec!["float32/highest", "float32/medium", "bfloat16/highest"]);
        let outcomes = (prop::option::of(select(OUTCOMES.to_vec())), prop::option::of(select(OUTCOMES.to_vec())));
        (axes, rest, outcomes, any::<bool>()).prop_map(|((model, mode), rest, (asked, before), is_looked_up)| {
            let mut known = known(case(model, mode, rest), asked.or(before).map(seen));
            if !is_looked_up && known.newest.is_none() {
                known.repository = None;
            }
            (known, asked)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
        #[test]
        fn an_update_is_a_merge_and_a_second_one_proposes_nothing(
            entries in prop::collection::vec(any_entry(), 0..6),
            cases in prop::collection::vec(any_known(), 1..24),
            is_complete in any::<bool>(),
            worth in select(vec![Worth::Failures, Worth::Inconclusive]),
        ) {
            let cases: BTreeMap<Case, (KnownCase, Option<Outcome>)> =
                cases.into_iter().map(|(known, asked)| (known.case.clone(), (known, asked))).collect();
            let known: Vec<KnownCase> = cases.values().map(|(known, _)| known.clone()).collect();
            let asked = cases.iter().filter_map(|(case, (_, asked))| {
                Some((case.clone(), Observed { seen: seen((*asked)?), signature: None }))
            });
            let run = RunSeen { run_id: "0192".into(), is_complete, cases: asked.collect() };
            let before = entries.iter().map(entry_text).collect::<Vec<_>>().join("\n");
            let read = |text: &str| Expectations::parse("e.toml", text).unwrap();
            let proposal = propose(&read(&before), &known, &run, worth);
            let after = rewrite("e.toml", &before, &proposal.fates, &proposal.additions).unwrap();
            let again = propose(&read(&after), &known, &run, worth);
            prop_assert!(again.is_empty(), "{again:?}\n{before}---\n{after}");

            if !is_complete {
                prop_assert!(!proposal.fates.contains(&Fate::Goes), "a half-run takes no entry away");
            }
            let (before, after) = (read(&before), read(&after));
            let declared = |expectations: &Expectations, known: &KnownCase| {
                let first = expectations.entries().iter().find(|declared| known.may_match(&declared.expectation.select));
                first.map(|declared| declared.expectation.clone())
            };
            for known in &known {
                let (old, new) = (declared(&before, known), declared(&after, known));
                let kinds = |one: &Option<Expectation>| one.as_ref().map(|one| (one.outcome, one.fault));
                match run.cases.get(&known.case) {
                    None if old.is_some() => prop_assert_eq!(kinds(&old), kinds(&new), "what was not asked loses nothing"),
                    None => prop_assert!(new.is_none() || kinds(&new) == known.newest.map(kind), "nothing is known of it"),
                    Some(observed) => {
                        let verdict_under = |one: &Option<Expectation>| verdict(observed.seen.outcome, observed.seen.fault, one.as_ref());
                        if !verdict_under(&old).is_unexpected() {
                            prop_assert!(!verdict_under(&new).is_unexpected(), "what was as declared stays so: {}", known.case);
                        }
                        let open = match verdict_under(&new) {
                            Verdict::UnexpectedInconclusive => worth == Worth::Inconclusive,
                            verdict => verdict.is_unexpected(),
                        };
                        prop_assert!(!open || !proposal.remarks.is_empty(), "{} is left without a word", known.case);
                    }
                }
            }
            // What is added neither contradicts what was there nor stands behind it.
            let first_added = after.entries().len() - proposal.additions.len();
            let from_line = after.entries().get(first_added).map_or(usize::MAX, |declared| declared.line);
            let findings = check(&after, &Known::of(known), &Targets::built_in(), "2027-01-01".parse().unwrap());
            let bad = |problem: &Problem| matches!(problem, Problem::Shadowed { .. } | Problem::Contradicted { .. } | Problem::Stale);
            let found: Vec<_> = findings.iter().filter(|finding| finding.line >= from_line && bad(&finding.problem)).collect();
            prop_assert!(found.is_empty(), "{found:?}");
        }
    }
}
