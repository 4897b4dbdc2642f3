//! What the files consist of, from the command line: lines with keys in the words of `sort`, or
//! records of a fixed size.

use std::rc::Rc;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_extmem::{Format, LineOrder, RecordKey, RecordLayout, TextKey};

use crate::serve::bytes;

/// What the files consist of.
#[derive(Debug, Args)]
#[command(next_help_heading = "Records and their order")]
pub struct FormatArguments {
    /// The files are records of so many bytes (K, M) rather than lines.
    #[arg(long, value_name = "SIZE")]
    record: Option<String>,
    /// What is compared. Of lines, FIELD, or FIELD.BYTE, with the options b, n and r behind it,
    /// and behind a comma where the key ends, as with sort(1), more than once if need be; without
    /// it the whole line, byte by byte as in the C locale. Of records, once, OFFSET:LENGTH and
    /// behind further colons how to read it: bytes (b, which is the default), an unsigned or
    /// signed number (u, i) of up to 8 bytes, or one in floating point (f) of 4 or 8; the least
    /// byte first or last (le, be; default: as on this machine); the greatest key first (r).
    /// Without it the whole record.
    #[arg(short, long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// The greatest first.
    #[arg(short, long)]
    reverse: bool,
    /// Compare lines, or keys without options of their own, as decimal numbers.
    #[arg(short, long, conflicts_with = "record")]
    numeric_sort: bool,
    /// Leave blanks in front of lines or keys out.
    #[arg(short = 'b', long, conflicts_with = "record")]
    ignore_leading_blanks: bool,
    /// Fields end with this byte; without it, they begin with blanks.
    #[arg(short = 't', long, value_name = "BYTE", conflicts_with = "record")]
    field_separator: Option<String>,
    /// Lines with equal keys keep their order; without it they are then compared as a whole.
    /// Records always keep it.
    #[arg(short, long)]
    stable: bool,
    /// Lines end with a zero byte rather than a newline.
    #[arg(short, long, conflicts_with = "record")]
    zero_terminated: bool,
}

impl FormatArguments {
    /// Where only the first of equal keys is kept, they must keep their order.
    pub fn understand(&self, is_unique: bool) -> Result<Format> {
        match &self.record {
            Some(size) => self.records(size),
            None => self.lines(self.stable || is_unique),
        }
    }

    fn records(&self, size: &str) -> Result<Format> {
        let size = usize::try_from(bytes(size).context("--record")?)?;
        let mut key: RecordKey = match self.keys.as_slice() {
            [] => format!("0:{size}").parse()?,
            [key] => key.parse()?,
            [_, second, ..] => {
                bail!(
                    "--key {second}: records have one key; put it together from bytes side by side"
                )
            }
        };
        key.is_reverse ^= self.reverse;
        Ok(Format::Records(RecordLayout::new(size, key)?))
    }

    fn lines(&self, is_stable: bool) -> Result<Format> {
        let keys = self.keys.iter().map(|key| key.parse::<TextKey>());
        let keys = keys.collect::<Result<Vec<_>, _>>().map_err(|error| {
            let is_binary = self.keys.iter().any(|key| key.contains(':'));
            let error = anyhow::Error::new(error);
            match is_binary {
                true => error.context("keys of this form are of records; give --record SIZE"),
                false => error,
            }
        })?;
        let mut options = String::new();
        for (is_given, letter) in
            [(self.ignore_leading_blanks, 'b'), (self.numeric_sort, 'n'), (self.reverse, 'r')]
        {
            if is_given {
                options.push(letter);
            }
        }
        let mut order = LineOrder::new(&keys, &options)?;
        order.separator = match self.field_separator.as_ref().map(|text| text.as_bytes()) {
            None => None,
            Some([byte]) => Some(*byte),
            Some(br"\0") => Some(0),
            Some(br"\t") => Some(b'\t'),
            Some(_) => bail!("--field-separator is one byte"),
        };
        order.is_stable = is_stable;
        if self.zero_terminated {
            order.terminator = 0;
        }
        Ok(Format::Lines(Rc::new(order)))
    }
}
