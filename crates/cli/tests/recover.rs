//! `dafs recover-test`: a few rounds of what it does hundreds of.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_server_that_is_killed_again_and_again_does_everything_once() {
    let place = tempfile::tempdir().unwrap();
    let rounds = std::env::var("DAFS_RECOVER_ROUNDS").unwrap_or_else(|_| "25".into());
    let ran = Command::new(env!("CARGO_BIN_EXE_dafs"))
        .args(["recover-test", "--json", "--rounds", &rounds])
        .arg(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    eprintln!("{told:#}");
    assert_eq!(told["kills"].as_u64().unwrap().to_string(), rounds, "{told:#}");
    assert!(told["opens_taken_back"].as_u64().unwrap() > 0, "{told:#}");
    for (kind, count) in told["by_kind"].as_object().unwrap() {
        assert!(count.as_u64().unwrap() > 0, "{kind}: {told:#}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "it leaves nothing");
}
