//! Confirmations come back, and stay what they are.

use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::store::{Confirmation, Retrial, StoreError};

use crate::databases::{every_kind, open};
use crate::samples::{case, cases, failed, new_run};

fn confirmation(number: usize, confirmed: Option<bool>, at: i64) -> Confirmation {
    let before = Retrial {
        environment_id: "e1".into(),
        revision: Some("c9745ed1".into()),
        outcomes: vec![Outcome::Pass, Outcome::Crash],
    };
    let after = Retrial { environment_id: "e2".into(), revision: None, outcomes: Vec::new() };
    Confirmation { at, ..Confirmation::new(case(number).id(), before, after, confirmed) }
}

#[tokio::test]
async fn the_confirmations_of_a_case_come_back_newest_first() {
    for database in every_kind().await {
        let store = open(&database).await;
        let run = store.begin_run(&new_run(&cases(2))).await.unwrap();
        store.finish_attempt(&run, &failed(&case(0))).await.unwrap();
        let error = store.record_confirmation(&confirmation(1, None, 1)).await.unwrap_err();
        assert!(matches!(error, StoreError::NoSuchCase(_)), "{error}");
        let recorded = [confirmation(0, Some(true), 10), confirmation(0, Some(false), 30), confirmation(0, None, 20)];
        for confirmation in &recorded {
            store.record_confirmation(confirmation).await.unwrap();
        }
        let [first, second, third] = recorded;
        // The same id again is the same confirmation, as it was told first.
        store.record_confirmation(&Confirmation { confirmed: None, ..first.clone() }).await.unwrap();
        assert_eq!(store.confirmations_of(&case(0).id()).await.unwrap(), [second, third, first]);
        assert!(store.confirmations_of(&case(1).id()).await.unwrap().is_empty());
    }
}
