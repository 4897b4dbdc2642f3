//! Makes text from other users and servers safe for a terminal.
//!
//! Invariant: all names, addresses and messages from outside that are shown to people pass through
//! here. The result cannot move the cursor, change colours or text direction, or look like another
//! line. Passwords in URLs are removed.

use std::fmt::Write;

use dafs_client::without_passwords;
use serde_json::Value;

/// Escapes control characters and characters that change the text direction.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_active(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Formats an error with its causes.
pub(crate) fn complaint(error: &anyhow::Error) -> String {
    message(&format!("{error:#}"))
}

/// Formats a message that contains names from outside.
pub(crate) fn message(text: &str) -> String {
    printable(&without_passwords(text))
}

/// Formats JSON with the same values, but safe on a terminal.
pub(crate) fn json(value: &Value) -> String {
    spelled_out(&format!("{value:#}"))
}

/// Formats JSON in one line, safe on a terminal.
pub(crate) fn one_line(value: &Value) -> String {
    spelled_out(&value.to_string())
}

fn spelled_out(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        // Newlines separate lines of the output and are kept; within strings JSON already escapes
        // them.
        if letter != '\n' && is_active(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// True if a terminal interprets the character instead of showing it.
fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_act_on_is_spelled_out() {
        assert_eq!(printable("plain ü name"), "plain ü name");
        let shown = printable("\x1b[2Jgone\n\u{9b}\u{202e}");
        assert_eq!(shown, "\\u{1b}[2Jgone\\n\\u{9b}\\u{202e}");
        let error = anyhow::anyhow!("no \x1b]0;title\x07").context("dafs://ann:secret@box/x\r");
        let shown = complaint(&error);
        assert_eq!(shown, "dafs://ann@box/x\\r: no \\u{1b}]0;title\\u{7}");
    }

    #[test]
    fn json_stays_the_same_to_programs() {
        let value = serde_json::json!({ "file": "a\x1b[1m\u{9b}b\u{202e}\n", "none": null });
        let shown = json(&value);
        assert!(!shown.contains(['\x1b', '\u{9b}', '\u{202e}']), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
