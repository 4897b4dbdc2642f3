//! Runs cases and reports their results.
//!
//! Invariant: each case has an empty directory of its own, which is removed afterwards.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::perform::Performer;
use crate::raw;
use crate::script::{Case, Expected, Mode, Step};
use crate::worker::Workers;

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All steps had an expected result.
    Passed,
    /// A step had an unexpected result; the text says where and which.
    Failed(String),
    /// The case cannot run here; the text says why.
    Skipped(String),
}

/// Reads the cases that are known to differ from a file. Each line has the name, two spaces and the
/// reason.
///
/// # Errors
/// If the file cannot be read, or a line contains no two consecutive spaces.
pub fn known(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, why) = line.split_once("  ").with_context(|| format!("{line}: no why"))?;
            Ok((name.trim().into(), why.trim().into()))
        })
        .collect()
}

/// The environment in which cases run.
#[derive(Debug)]
pub struct Suite {
    /// The program to run again as other users.
    program: PathBuf,
    /// The directory in which the directories of cases are made.
    directory: PathBuf,
    /// The missing features, each with the reason why it is missing.
    lacks: BTreeMap<&'static str, String>,
    count: u64,
}

impl Suite {
    /// Finds out which features a directory supports.
    pub fn new(program: &Path, directory: &Path) -> Result<Self> {
        let directory = std::fs::canonicalize(directory)
            .with_context(|| format!("{} is no directory", directory.display()))?;
        let mut suite =
            Self { program: program.into(), directory, lacks: BTreeMap::new(), count: 0 };
        if raw::effective_user() != 0 {
            suite.lacks.insert("root", "only root can do it".into());
        }
        for (need, probe) in PROBES {
            if let Some(why) = suite.probe(probe)? {
                suite.lacks.insert(need, why);
            }
        }
        Ok(suite)
    }

    /// Returns the features that the file system lacks, with the reasons.
    pub fn lacks(&self) -> &BTreeMap<&'static str, String> {
        &self.lacks
    }

    /// Makes calls in a new directory. Returns the error of the first call that fails.
    fn probe(&mut self, calls: &[&str]) -> Result<Option<String>> {
        let place = Place::new(&self.directory, "probe")?;
        let mut performer = Performer::default();
        let at = |word: &str| match word.strip_prefix('%') {
            Some(name) => place.0.join(name).display().to_string(),
            None => word.into(),
        };
        for call in calls {
            let words: Vec<String> = call.split(' ').map(at).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match performer.perform(&words) {
                Ok(_) => {}
                Err(crate::perform::Failure::Errno(errno)) => {
                    let name = crate::names::of_error(errno);
                    return Ok(Some(format!("{} is {name} here", words[0])));
                }
                Err(crate::perform::Failure::Misuse(text)) => return Ok(Some(text)),
            }
        }
        Ok(None)
    }

    /// Runs one case and returns its verdict.
    pub fn run(&mut self, case: &Case) -> Result<Verdict> {
        for need in &case.needs {
            match self.lacks.get(&need[..]) {
                Some(why) => return Ok(Verdict::Skipped(format!("{need}: {why}"))),
                None if need == "root" || PROBES.iter().any(|(known, _)| known == need) => {}
                None => return Ok(Verdict::Failed(format!("nobody knows what {need} is"))),
            }
        }
        self.count += 1;
        let place = Place::new(&self.directory, &format!("case-{}", self.count))?;
        let mut workers = Workers::new(&self.program, &place.0);
        for step in &case.steps {
            if let Some(difference) = run_step(&mut workers, step) {
                return Ok(Verdict::Failed(difference));
            }
        }
        drop(workers);
        let directory = place.0.clone();
        drop(place);
        if directory.exists() {
            return Ok(Verdict::Failed("what it has made cannot be removed".into()));
        }
        Ok(Verdict::Passed)
    }
}

/// The features that may be missing, with the calls that detect them.
const PROBES: &[(&str, &[&str])] = &[
    ("xattr", &["create %f 0644", "setxattr %f user.a b"]),
    ("exchange", &["create %a 0644", "create %b 0644", "renameat2 %a %b exchange"]),
    ("noreplace", &["create %a 0644", "renameat2 %a %b noreplace"]),
    ("fallocate", &["open %f O_CREAT,O_RDWR 0644 :f", "fallocate f grow 0 4096"]),
    ("punch", &["open %f O_CREAT,O_RDWR 0644 :f", "write f x*9000", "fallocate f punch 0 4096"]),
    (
        "zero-range",
        &["open %f O_CREAT,O_RDWR 0644 :f", "write f x*9000", "fallocate f zero 0 4096"],
    ),
    ("tmpfile", &["mkdir %d 0755", "open %d O_TMPFILE,O_RDWR 0600"]),
    ("shared-map", &["open %f O_CREAT,O_RDWR 0644 :f", "write f x*9000", "mmap :m f 9000 shared"]),
    ("terabytes", &["create %f 0644", "truncate %f 8T"]),
    ("device", &["make char %f"]),
];

/// Runs a step. Returns the difference, if there is one.
fn run_step(workers: &mut Workers<'_>, step: &Step) -> Option<String> {
    let words = step.words.join(" ");
    let words = if words.len() > 120 { format!("{}...", &words[..120]) } else { words };
    let said = || {
        let line = step.line;
        match &step.actor[..] {
            "root" => format!("line {line}: {words}"),
            actor => format!("line {line}: as {actor} {words}"),
        }
    };
    if step.mode != Mode::Finish
        && let Err(error) = workers.start(&step.actor, &step.words)
    {
        return Some(format!("{}: {error:#}", said()));
    }
    if step.mode == Mode::Start {
        return None;
    }
    let answer = match workers.finish(&step.actor) {
        Ok(answer) => answer,
        Err(error) => return Some(format!("{}: {error:#}", said())),
    };
    let (kind, value) = answer.split_once(' ').unwrap_or((&answer, ""));
    let is_expected = |expected: &Expected| match expected {
        Expected::Success => kind == "ok",
        Expected::Value(wanted) => kind == "ok" && value == wanted,
        Expected::Error(name) => kind == "error" && value == name,
    };
    if step.expected.iter().any(is_expected) {
        return None;
    }
    let expected: Vec<String> = step.expected.iter().map(ToString::to_string).collect();
    let got = match (kind, value) {
        ("ok", "ok") => "success".into(),
        ("ok", value) => format!("{value:?}"),
        ("error", name) => name.into(),
        _ => answer.clone(),
    };
    Some(format!("{}: expected {}, got {got}", said(), expected.join(" or ")))
}

/// A directory that is removed with its contents.
struct Place(PathBuf);

impl Place {
    fn new(within: &Path, name: &str) -> Result<Self> {
        let path = within.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A user other than root needs permissions to remove protected directories.
        if std::fs::remove_dir_all(&self.0).is_err() {
            open_up(&self.0);
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn open_up(directory: &Path) {
    let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
