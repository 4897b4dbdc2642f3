//! Tests the package scripts in a separate mount namespace, so that nothing on this host is
//! changed.

use std::path::PathBuf;
use std::process::Command;

/// Runs a purge where `mounts` are mount points. Returns its exit status with the remaining files,
/// and its output. Returns `None` where namespaces are not permitted.
fn purge(mounts: &str, first: &str) -> Option<(String, String)> {
    let postrm = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../dist/debian/dafs.postrm");
    let script = "mount -t tmpfs t /etc && mount -t tmpfs t /var/lib || exit 9
        mkdir -p /etc/dafs /var/lib/dafs/journals
        for m in $1; do mkdir -p \"$m\" && mount -t tmpfs t \"$m\" || exit 9; done
        mkdir -p /var/lib/dafs/journals
        touch /etc/dafs/dafs.toml /etc/dafs/passwd /var/lib/dafs/handle.key
        touch /var/lib/dafs/journals/1 /var/lib/dafs/theirs
        eval \"$3\"
        sh \"$2\" purge; echo $?
        find /etc/dafs /var/lib/dafs -type f 2>/dev/null";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-c", script, "sh", mounts]);
    let output = shell.arg(postrm).arg(first).output().ok()?;
    if !output.status.success() && output.stdout.is_empty() {
        return None;
    }
    let text = |bytes| String::from_utf8_lossy(bytes).trim().replace('\n', " ");
    Some((text(&output.stdout), text(&output.stderr)))
}

#[test]
fn a_purge_takes_what_is_the_packages_and_never_fails() {
    if purge("", "").is_none() {
        dafs_tests::skip("no mount namespace can be made here");
        return;
    }
    for (mounts, first) in [
        ("", ""),
        ("", "sh \"$2\" purge"),
        ("", "rm -r /etc/dafs /var/lib/dafs; mkdir /var/lib/dafs; touch /var/lib/dafs/theirs"),
        ("/etc/dafs", ""),
        ("/var/lib/dafs", ""),
        ("/var/lib/dafs/journals", "sh \"$2\" purge"),
        ("/etc/dafs /var/lib/dafs /var/lib/dafs/journals", ""),
    ] {
        let (left, said) = purge(mounts, first).unwrap();
        assert_eq!(left, "0 /var/lib/dafs/theirs", "{mounts:?} {first:?}: {said}");
        assert_eq!(
            said.contains("mount point"),
            ["/etc/dafs", "/journals"].iter().any(|name| mounts.contains(name)),
            "{mounts}: {said}"
        );
    }
    // Files on a file system mounted beneath do not belong to the package. They stay and are
    // reported.
    let (left, said) = purge("/etc/dafs/below", "touch /etc/dafs/below/file").unwrap();
    assert_eq!(left, "0 /etc/dafs/below/file /var/lib/dafs/theirs", "{said}");
    assert!(said.contains("not all of /etc/dafs"), "{said}");
}
