//! Parses the tables of cases.
//!
//! Invariant: a parsed case is complete. Its loops are expanded, and every call in it exists. A
//! table with an error is refused as a whole.
//!
//! ```text
//! set kinds = file | dir              a list for `for`
//! case changes the mode               a case, up to the next one
//!   needs root                        a required feature
//!   for kind in $kinds                repeat for each
//!   let path = n0/n1                  define {path}
//!   ok make {kind} n0                 the expected result, and a call
//!   =0644 stat n0 mode                the call succeeds with this value
//!   EPERM|EACCES as 1000 chmod n0 0   by another user (UID[:GID[+GROUP...]][/PROCESS])
//!   start as root/2 setlkw f w 0 0    starts a call that may block
//!   ok finish as root/2               waits for its result
//! ```

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use crate::names;
use crate::perform;

/// One case, which starts in an empty directory.
#[derive(Clone, Debug)]
pub struct Case {
    /// The group, the title, and the loop values: `chmod/changes the mode [file]`.
    pub name: String,
    /// The required features: `root`, `xattr` ...
    pub needs: Vec<String>,
    /// The steps, in the order of their execution.
    pub steps: Vec<Step>,
}

/// One call with its expected results.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line in its table.
    pub line: usize,
    /// The results that are accepted.
    pub expected: Vec<Expected>,
    /// The actor that makes the call. Each actor is a process of its own.
    pub actor: String,
    /// The call and its arguments.
    pub words: Vec<String>,
    /// The part of the call that this step executes.
    pub mode: Mode,
}

/// The part of a call that a step executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The whole call.
    Call,
    /// The start of the call. Other steps run before the call ends.
    Start,
    /// The end of a call that was started before.
    Finish,
}

/// An accepted result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Success with any value.
    Success,
    /// Success with this value.
    Value(String),
    /// A failure with this error name.
    Error(String),
}

impl std::fmt::Display for Expected {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Success => out.write_str("success"),
            Expected::Value(value) => write!(out, "{value:?}"),
            Expected::Error(name) => out.write_str(name),
        }
    }
}

/// Parses the table of a group.
pub fn read(group: &str, text: &str) -> Result<Vec<Case>> {
    let mut reader = Reader { group, ..Reader::default() };
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        reader.line(index + 1, line).with_context(|| format!("{group}.txt:{}", index + 1))?;
    }
    reader.end_case().with_context(|| format!("{group}.txt"))?;
    let mut names: Vec<_> = reader.cases.iter().map(|case| &case.name).collect();
    names.sort();
    for pair in names.windows(2) {
        ensure!(pair[0] != pair[1], "{group}.txt: two cases are named {}", pair[0]);
    }
    Ok(reader.cases)
}

#[derive(Default)]
struct Reader<'t> {
    group: &'t str,
    sets: BTreeMap<String, Vec<String>>,
    cases: Vec<Case>,
    open: Option<Draft>,
}

/// A case that is being parsed.
struct Draft {
    name: String,
    needs: Vec<String>,
    loops: Vec<(String, Vec<String>)>,
    lets: Vec<(String, String)>,
    lines: Vec<(usize, String)>,
}

impl Reader<'_> {
    fn line(&mut self, number: usize, line: &str) -> Result<()> {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match first {
            "set" => {
                let (name, values) = rest.split_once('=').context("set NAME = A | B")?;
                let values = self.values(values)?;
                self.sets.insert(name.trim().into(), values);
                return Ok(());
            }
            "case" => {
                self.end_case()?;
                let (name, lines) = (rest.into(), Vec::new());
                let (needs, loops, lets) = (Vec::new(), Vec::new(), Vec::new());
                self.open = Some(Draft { name, needs, loops, lets, lines });
                return Ok(());
            }
            _ => {}
        }
        let values = match first {
            "for" => Some(self.values(rest.split_once(" in ").context("for NAME in A | B")?.1)?),
            _ => None,
        };
        let draft = self.open.as_mut().context("before the first case")?;
        match first {
            "needs" => draft.needs.extend(rest.split_whitespace().map(Into::into)),
            "for" => {
                let name = rest.split_once(" in ").map_or("", |(name, _)| name);
                draft.loops.push((name.into(), values.unwrap_or_default()));
            }
            "let" => {
                let (name, value) = rest.split_once('=').context("let NAME = TEXT")?;
                draft.lets.push((name.trim().into(), value.trim().into()));
            }
            _ => draft.lines.push((number, line.into())),
        }
        Ok(())
    }

    /// Parses alternatives: `A | B | $set`.
    fn values(&self, text: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for value in text.split(" | ").map(str::trim) {
            match value.strip_prefix('$') {
                Some(name) => {
                    found.extend(
                        self.sets.get(name).with_context(|| format!("no set {name}"))?.clone(),
                    );
                }
                None => found.push(value.into()),
            }
        }
        Ok(found)
    }

    fn end_case(&mut self) -> Result<()> {
        let Some(draft) = self.open.take() else { return Ok(()) };
        ensure!(!draft.lines.is_empty(), "the case {} does nothing", draft.name);
        let rounds: usize = draft.loops.iter().map(|(_, values)| values.len()).product();
        for round in 0..rounds {
            let case = draft.written_out(self.group, round);
            self.cases.push(case.with_context(|| format!("in the case {}", draft.name))?);
        }
        Ok(())
    }
}

impl Draft {
    fn written_out(&self, group: &str, mut round: usize) -> Result<Case> {
        let mut name = format!("{group}/{}", self.name);
        let mut stand = Vec::new();
        for (variable, values) in &self.loops {
            let value = &values[round % values.len()];
            round /= values.len();
            stand.push((variable.clone(), value.clone()));
        }
        if !stand.is_empty() {
            let at: Vec<_> = stand.iter().map(|(_, value)| value.as_str()).collect();
            name += &format!(" [{}]", at.join("; "));
        }
        // The values of loops may contain variables, too.
        stand.extend(self.lets.iter().cloned());
        let mut needs = self.needs.clone();
        let mut steps = Vec::new();
        for (line, text) in &self.lines {
            let mut text = text.clone();
            for _ in 0..3 {
                for (variable, value) in &stand {
                    text = text.replace(&format!("{{{variable}}}"), value);
                }
            }
            for part in text.split(';') {
                let step = step(*line, part.trim()).with_context(|| format!("line {line}"))?;
                needs.extend(needed(&step).map(Into::into));
                steps.push(step);
            }
        }
        needs.sort();
        needs.dedup();
        Ok(Case { name, needs, steps })
    }
}

/// Returns the feature that a step needs, if only the superuser can execute it.
fn needed(step: &Step) -> Option<&'static str> {
    let call = step.words.first().map(String::as_str);
    let makes_device = call == Some("make") && ["block", "char"].contains(&&step.words[1][..]);
    let is_somebody = !step.actor.starts_with("root");
    let gives_away = call.is_some_and(|call| call.ends_with("chown"));
    (makes_device || is_somebody || gives_away).then_some("root")
}

fn step(line: usize, text: &str) -> Result<Step> {
    ensure!(!text.contains('{'), "{text}: a variable that there is not");
    let mut words: Vec<String> = text.split_whitespace().map(long_names).collect();
    ensure!(!words.is_empty(), "nothing is expected");
    let first = words.remove(0);
    let mode = match &first[..] {
        "start" => Mode::Start,
        _ if words.first().is_some_and(|word| word == "finish") => Mode::Finish,
        _ => Mode::Call,
    };
    let expected = match mode {
        Mode::Start => Vec::new(),
        _ => first.split('|').map(expected).collect::<Result<_>>()?,
    };
    if mode == Mode::Finish {
        words.remove(0);
    }
    let mut actor = "root".to_string();
    if words.first().is_some_and(|word| word == "as") {
        ensure!(words.len() > 1, "as whom?");
        actor = words.remove(1);
        words.remove(0);
    }
    if mode != Mode::Finish {
        perform::check(&words)?;
    }
    Ok(Step { line, expected, actor, words, mode })
}

fn expected(text: &str) -> Result<Expected> {
    Ok(match text.strip_prefix('=') {
        Some(value) => Expected::Value(long_names(value)),
        None if text == "ok" => Expected::Success,
        None if names::is_error(text) => Expected::Error(text.into()),
        None => bail!("{text} is neither ok, =VALUE nor an error"),
    })
}

/// Expands `@name255` to a name of 255 bytes, and `@path4095/x` to a path of 4095 bytes that leads
/// to x.
fn long_names(word: &str) -> String {
    if let Some(rest) = word.strip_prefix("@path") {
        let (length, name) = rest.split_once('/').unwrap_or((rest, "x"));
        if let Ok(length) = length.parse::<usize>() {
            let fill = length.saturating_sub(name.len());
            return format!("{}{name}", slashes(fill));
        }
    }
    let Some((before, rest)) = word.split_once("@name") else { return word.into() };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let length = rest[..digits].parse().unwrap_or(0);
    format!("{before}{}{}", "n".repeat(length), &rest[digits..])
}

/// Returns a relative path of this length that leads to the current directory.
fn slashes(length: usize) -> String {
    let mut path = "./".repeat(length / 2);
    if length % 2 == 1 {
        path.push('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_written_out() {
        let text = "set s = dir | fifo\ncase a\nfor k in file | $s\nfor m in 1 | 2\nlet n = x\n\
                    ok make {k} {n}\n=000{m} as 5:6+7/2 stat {n} mode ; ENOENT|ok unlink y\n";
        let cases = read("g", text).unwrap();
        assert_eq!(cases.len(), 6);
        assert_eq!(cases[5].name, "g/a [fifo; 2]");
        assert_eq!(cases[5].needs, ["root"]);
        let step = &cases[5].steps[1];
        assert_eq!(step.actor, "5:6+7/2");
        assert_eq!(step.expected, [Expected::Value("0002".into())]);
        assert_eq!(step.words, ["stat", "x", "mode"]);
        let either = [Expected::Error("ENOENT".into()), Expected::Success];
        assert_eq!(cases[5].steps[2].expected, either);
    }

    #[test]
    fn slips_are_refused() {
        for text in [
            "ok mkdir d 0755",
            "case a\n",
            "case a\nok mkdyr d 0755",
            "case a\nok mkdir d",
            "case a\nEWRONG mkdir d 0755",
            "case a\nok mkdir {d} 0755",
            "case a\nok mkdir d 0755\ncase a\nok mkdir d 0755",
        ] {
            assert!(read("g", text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn long_names_are_as_long_as_they_say() {
        assert_eq!(long_names("d/@name255/f").len(), 259);
        for length in [4094, 4095, 4096] {
            assert_eq!(long_names(&format!("@path{length}/n0")).len(), length);
        }
    }
}
