//! Parses the file format from the command line: lines with keys as in sort(1), or records of a
//! fixed size.

use std::rc::Rc;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_extmem::{Format, LineOrder, RecordKey, RecordLayout, TextKey};

use crate::serve::bytes;

/// The format of the files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Records and their order")]
pub(super) struct FormatArguments {
    /// Treat the files as records of this many bytes (K, M) instead of lines.
    #[arg(long, value_name = "SIZE")]
    record: Option<String>,
    /// The sort key. For lines: FIELD or FIELD.BYTE, followed by the options b, n and r, and after
    /// a comma the end of the key, as with sort(1); may be given several times. Without it, whole
    /// lines are compared byte by byte, as in the C locale. For records: OFFSET:LENGTH, once,
    /// followed by colons and how to read the key: bytes (b, the default), an unsigned or signed
    /// number (u, i) of up to 8 bytes, or a floating point number (f) of 4 or 8 bytes; little or
    /// big endian (le, be; default: as on this machine); descending order (r). Without it, whole
    /// records are compared.
    #[arg(short, long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Sort in descending order.
    #[arg(short, long)]
    reverse: bool,
    /// Compare lines, or keys without options of their own, as decimal numbers.
    #[arg(short, long, conflicts_with = "record")]
    numeric_sort: bool,
    /// Ignore leading blanks in lines or keys.
    #[arg(short = 'b', long, conflicts_with = "record")]
    ignore_leading_blanks: bool,
    /// Fields are separated by this byte. Without it, blanks begin a new field.
    #[arg(short = 't', long, value_name = "BYTE", conflicts_with = "record")]
    field_separator: Option<String>,
    /// Keep the order of lines with equal keys. Without it, such lines are compared as a whole. The
    /// order of records with equal keys is always kept.
    #[arg(short, long)]
    stable: bool,
    /// Lines end with a zero byte instead of a newline.
    #[arg(short, long, conflicts_with = "record")]
    zero_terminated: bool,
}

impl FormatArguments {
    /// Parses the arguments into a format. If `is_unique` is set, the sort of lines is stable, so
    /// that the first line of each key can be kept.
    pub(super) fn understand(&self, is_unique: bool) -> Result<Format> {
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
                bail!("--key {second}: records have only one key, a range of adjacent bytes")
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
                true => error.context("keys of this form are for records; give --record SIZE"),
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
            Some(_) => bail!("--field-separator must be one byte"),
        };
        order.is_stable = is_stable;
        if self.zero_terminated {
            order.terminator = 0;
        }
        Ok(Format::Lines(Rc::new(order)))
    }
}
