//! The notation for file contents in the tables.
//!
//! `abc` is three bytes, `x*70000` is 70,000 times x, `+` separates parts, `~` is a zero byte, and
//! `-` alone means no bytes.

/// Converts a text to the bytes that it denotes.
pub(crate) fn from_text(text: &str) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    if text == "-" {
        return Some(data);
    }
    for part in text.split('+') {
        let byte = |byte: u8| if byte == b'~' { 0 } else { byte };
        match part.split_once('*') {
            Some((one, count)) => {
                let [one] = one.as_bytes() else { return None };
                data.extend(std::iter::repeat_n(byte(*one), count.parse().ok()?));
            }
            None => data.extend(part.bytes().map(byte)),
        }
    }
    Some(data)
}

/// Converts bytes to a text. Runs of eight and more equal bytes are abbreviated.
pub(crate) fn to_text(data: &[u8]) -> String {
    if data.is_empty() {
        return "-".into();
    }
    let mut parts: Vec<String> = Vec::new();
    let mut is_plain = false;
    for run in data.chunk_by(|one, other| one == other) {
        let byte = match run[0] {
            0 => '~',
            byte if byte.is_ascii_graphic() => char::from(byte),
            _ => '?',
        };
        if run.len() >= 8 {
            parts.push(format!("{byte}*{}", run.len()));
            is_plain = false;
            continue;
        }
        if !is_plain {
            parts.push(String::new());
        }
        is_plain = true;
        parts.last_mut().expect("just pushed").extend(std::iter::repeat_n(byte, run.len()));
    }
    parts.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["-", "abc", "x*70000", "~*4096+abc+y*8", "a~b"] {
            assert_eq!(to_text(&from_text(text).unwrap()), text);
        }
        assert!(from_text("xy*3").is_none());
    }
}
