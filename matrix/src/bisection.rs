//! Which step of a row from good to bad is the first bad one, in as few probes as a halving needs.

/// What a probe came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// It works.
    Good,
    /// It does not.
    Bad,
    /// It cannot be told, as where packages of this step do not go together.
    Untestable,
}

/// A row of steps of which the first is good and the last is bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bisection {
    probes: Vec<Option<Probe>>,
}

impl Bisection {
    /// A row of `steps` changes: step 0 is good, with none of them made, and step `steps` is bad, with all.
    ///
    /// None where nothing changes from one end to the other.
    pub fn new(steps: usize) -> Option<Self> {
        let mut probes = vec![None; steps.checked_add(1).filter(|_| steps > 0)?];
        probes[0] = Some(Probe::Good);
        probes[steps] = Some(Probe::Bad);
        Some(Self { probes })
    }

    /// The step to probe next: of those between the last good and the first bad one, the unknown one nearest to their middle. None
    /// where nothing is left to learn.
    pub fn next(&self) -> Option<usize> {
        let (good, bad) = self.between();
        let middle = good + (bad - good) / 2;
        let unknown = (good + 1..bad).filter(|step| self.probes[*step].is_none());
        unknown.min_by_key(|step| (step.abs_diff(middle), *step))
    }

    /// Tells what a probe came to. An end stays what it is.
    pub fn tell(&mut self, step: usize, probe: Probe) {
        if step > 0 && step + 1 < self.probes.len() {
            self.probes[step] = Some(probe);
        }
    }

    /// The last good step and the first bad one after it. Steps between them, if any, could not be tested.
    pub fn between(&self) -> (usize, usize) {
        let bad_after = |good: usize| (good + 1..self.probes.len()).find(|step| self.probes[*step] == Some(Probe::Bad));
        let is_good = |step: &usize| self.probes[*step] == Some(Probe::Good);
        // Of a row that turns bad more than once the first turn counts.
        let first_bad = bad_after(0).unwrap_or(self.probes.len() - 1);
        let last_good = (0..first_bad).rfind(is_good).unwrap_or(0);
        (last_good, first_bad)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(steps: usize, first_bad: usize, untestable: &[usize]) -> ((usize, usize), usize) {
        let mut bisection = Bisection::new(steps).unwrap();
        let mut probes = 0;
        while let Some(step) = bisection.next() {
            probes += 1;
            bisection.tell(
                step,
                match step {
                    _ if untestable.contains(&step) => Probe::Untestable,
                    _ if step < first_bad => Probe::Good,
                    _ => Probe::Bad,
                },
            );
        }
        (bisection.between(), probes)
    }

    #[test]
    fn one_change_needs_no_probe_and_no_change_has_no_search() {
        assert_eq!(search(1, 1, &[]), ((0, 1), 0));
        assert_eq!(Bisection::new(0), None);
    }

    #[test]
    fn what_cannot_be_tested_leaves_a_range() {
        assert_eq!(search(4, 3, &[2, 3]).0, (1, 4));
        assert_eq!(search(4, 2, &[3]).0, (1, 2));
    }

    proptest! {
        #[test]
        fn the_first_bad_step_is_found_by_halving(steps in 1usize..200, place in any::<prop::sample::Index>()) {
            let first_bad = place.index(steps) + 1;
            let (between, probes) = search(steps, first_bad, &[]);
            prop_assert_eq!(between, (first_bad - 1, first_bad));
            prop_assert!(probes as u32 <= steps.next_power_of_two().trailing_zeros());
        }

        #[test]
        fn whatever_cannot_be_tested_the_turn_lies_between(
            steps in 1usize..40,
            place in any::<prop::sample::Index>(),
            untestable in proptest::collection::vec(1usize..40, 0..20),
        ) {
            let first_bad = place.index(steps) + 1;
            let ((good, bad), _) = search(steps, first_bad, &untestable);
            prop_assert!(good < first_bad && first_bad <= bad);
            prop_assert!((good + 1..bad).all(|step| untestable.contains(&step)));
        }
    }
}
