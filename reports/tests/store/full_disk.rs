//! A full disk and a read-only folder: a clear error, and nothing recorded is lost. Both are real, in a mount namespace.

use std::path::Path;
use std::process::Command;

use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::store::{Store, StoreError};

use crate::samples::{case, cases, new_run, passed};

/// Not a test of its own: runs where `MODELFARM_TEST_SMALL_DISK` is a small file system.
#[tokio::test]
#[ignore = "started by the test below"]
async fn on_a_small_disk() {
    let Ok(folder) = std::env::var("MODELFARM_TEST_SMALL_DISK") else { return };
    let folder = Path::new(&folder);
    let url = format!("sqlite://{}", folder.join("farm.db").display());
    let store = Store::create_or_migrate(&url).await.unwrap();
    let run = store.begin_run(&new_run(&cases(5000))).await.unwrap();
    let mut recorded = 0;
    let error = loop {
        match store.finish_attempt(&run, &passed(&case(recorded))).await {
            Ok(_) => recorded += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::DiskFull(_)), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(recorded > 100, "only {recorded} fitted");
    let count = |store: Store| async move { store.results(&ResultFilter::default()).await.unwrap().len() };
    assert_eq!(count(store.clone()).await, recorded);
    store.close().await;

    assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(folder).status().unwrap().success());
    let store = Store::open_read_only(&url).await.unwrap();
    assert_eq!(count(store.clone()).await, recorded);
    store.close().await;
    let error = Store::create_or_migrate(&url).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly(_)), "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    println!("ran on a small disk");
}

#[test]
fn a_full_disk_and_a_read_only_folder_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=8m none \"$MODELFARM_TEST_SMALL_DISK\" && exec \"$0\" --exact \
                  full_disk::on_a_small_disk --ignored --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    let output = command.env("MODELFARM_TEST_SMALL_DISK", folder.path()).output();
    let Ok(output) = output else { return eprintln!("not tested: there is no `unshare` here") };
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if error.contains("unshare failed") || error.contains("mount:") && !out.contains("running 1 test") {
        return eprintln!("not tested: this system gives no mount namespace ({error})");
    }
    assert!(output.status.success() && out.contains("ran on a small disk"), "{out}\n{error}");
}
