//! Makes dafs.toml(5), with every key of the configuration, from the types that parse it.
//!
//! Invariant: all descriptions of keys come from the schema of the types. A test fails if a key has
//! no description.

use clap_mangen::roff::{Roff, bold, italic, roman};
use schemars::Schema;
use serde_json::{Map, Value};

use super::references;
use crate::serve::Arguments;

/// The file name of the page.
pub(super) const NAME: &str = "dafs.toml.5";

/// The example configuration that the package installs. A test parses it.
const EXAMPLE: &str = include_str!("../../../../dist/dafs.toml");

/// Returns the text of the page.
pub(super) fn page() -> String {
    let schema = schemars::schema_for!(Arguments);
    let mut roff = Roff::default();
    let source = concat!("dafs ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["DAFS.TOML", "5", "", source, "DAFS"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("dafs.toml - configuration of a DAFS server")]);
    introduction(&mut roff);
    roff.control("SH", ["KEYS"]);
    keys(&mut roff, schema.as_value(), &schema);
    tables(&mut roff, &schema);
    roff.control("SH", ["EXAMPLE"]);
    roff.text([roman("The file as the package installs it:")]);
    roff.control("PP", []);
    roff.control("nf", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["SEE ALSO"]);
    let others = ["dafs", "dafs-serve", "dafs-passwd"].map(|name| (name.to_owned(), "1"));
    roff.text(references(&others));
    roff.render()
}

fn introduction(roff: &mut Roff) {
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([
        bold("dafs serve --config "),
        italic("FILE"),
        roman(
            " reads a TOML file. Its keys are the flags of the command without the dashes in \
            front; flags take precedence over the file. If the file contains a key that is not \
            listed here, the server does not start.",
        ),
    ]);
    roff.control("PP", []);
    roff.text([
        roman("As a service the server reads "),
        italic("/etc/dafs/dafs.toml"),
        roman(". It reads it when it starts: after a change, "),
        bold("systemctl restart dafs"),
        roman(". Clients reconnect automatically and keep their opens and locks."),
    ]);
}

/// Writes a section for each type of table, named after the places where such tables may occur.
fn tables(roff: &mut Roff, schema: &Schema) {
    let definitions = schema.get("$defs").and_then(Value::as_object);
    for (name, definition) in definitions.into_iter().flatten() {
        if properties(definition).is_none() {
            continue;
        }
        let mut places = places_of(name, "", schema.as_value());
        for (owner, other) in definitions.into_iter().flatten() {
            for outer in places_of(owner, "", schema.as_value()) {
                places.extend(places_of(name, outer.trim_matches(['[', ']']), other));
            }
        }
        roff.control("SH", [places.join(", ").as_str()]);
        describe(roff, definition);
        keys(roff, definition, schema);
    }
}

/// Returns the headings under which tables of a type may occur, such as `[[connect]]` and
/// `[kerberos]`.
fn places_of(definition: &str, within: &str, table: &Value) -> Vec<String> {
    let reference = format!("#/$defs/{definition}");
    let path = |key: &str| match within {
        "" => key.to_owned(),
        _ => format!("{within}.{key}"),
    };
    let of_key = |(key, schema): (&String, &Value)| match refers_to(schema)? {
        (found, true) if found == reference => Some(format!("[[{}]]", path(key))),
        (found, false) if found == reference => Some(format!("[{}]", path(key))),
        _ => None,
    };
    properties(table).into_iter().flatten().filter_map(of_key).collect()
}

/// Returns the name of the definition that a key's schema refers to, and true if the key's value is
/// a list of such tables.
fn refers_to(schema: &Value) -> Option<(&str, bool)> {
    if let Some(items) = schema.get("items") {
        return Some((items.get("$ref")?.as_str()?, true));
    }
    let direct = schema.get("$ref").or_else(|| {
        let choices = schema.get("anyOf")?.as_array()?;
        choices.iter().find_map(|choice| choice.get("$ref"))
    })?;
    Some((direct.as_str()?, false))
}

fn properties(table: &Value) -> Option<&Map<String, Value>> {
    table.get("properties")?.as_object()
}

/// Writes the keys of a table, each with its type and its description.
fn keys(roff: &mut Roff, table: &Value, whole: &Schema) {
    for (key, schema) in properties(table).into_iter().flatten() {
        roff.control("TP", []);
        roff.text([bold(key.as_str()), roman(" = "), italic(kind(key, schema, whole))]);
        describe(roff, schema);
    }
}

fn describe(roff: &mut Roff, schema: &Value) {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    for (index, paragraph) in text.split("\n\n").enumerate() {
        if index > 0 {
            roff.control("IP", []);
        }
        // Text between backticks is set in bold without changes.
        let paragraph = paragraph.replace('\n', " ");
        let parts = paragraph.split('`').enumerate();
        let inlines: Vec<_> = parts
            .map(|(index, part)| if index % 2 == 0 { roman(part) } else { bold(part) })
            .collect();
        roff.text(inlines);
    }
}

/// Describes the type of a value.
fn kind(key: &str, schema: &Value, whole: &Schema) -> String {
    if let Some((reference, is_list)) = refers_to(schema) {
        let definition = whole.as_value().pointer(reference.trim_start_matches('#'));
        return match (definition.and_then(choices), is_list) {
            (Some(choices), _) => choices,
            (None, true) => format!("tables, [[{key}]]"),
            (None, false) => format!("table, [{key}]"),
        };
    }
    let of = schema.get("type");
    let named = of.and_then(Value::as_str).or_else(|| of?.as_array()?.first()?.as_str());
    let words = match named {
        Some("boolean") => "true or false",
        Some("integer") => "number",
        Some("array") => "list of texts",
        Some("object") => "table of texts",
        _ => "text",
    };
    match schema.get("default") {
        Some(Value::Bool(true)) => format!("{words} (default true)"),
        _ => words.to_owned(),
    }
}

/// Returns the texts that a value may be, if only a few are allowed.
fn choices(definition: &Value) -> Option<String> {
    let texts = |values: &Vec<Value>, key: Option<&str>| -> Option<Vec<String>> {
        let text = |value: &Value| match key {
            Some(key) => Some(value.get(key)?.to_string()),
            None => Some(value.to_string()),
        };
        values.iter().map(text).collect()
    };
    let named = definition.get("oneOf").and_then(Value::as_array);
    let plain = definition.get("enum").and_then(Value::as_array);
    let found = named
        .and_then(|values| texts(values, Some("const")))
        .or_else(|| plain.and_then(|values| texts(values, None)))?;
    Some(found.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(table: &Value, of: &str) {
        for (key, schema) in properties(table).into_iter().flatten() {
            let text = schema.get("description").and_then(Value::as_str);
            assert!(text.is_some_and(|text| !text.is_empty()), "{of}: {key} is not described");
        }
    }

    #[test]
    fn every_key_is_described_and_in_the_page() {
        let schema = schemars::schema_for!(Arguments);
        check(schema.as_value(), "the configuration");
        for (name, definition) in schema.get("$defs").and_then(Value::as_object).unwrap() {
            check(definition, name);
        }
        let page = page();
        for key in properties(schema.as_value()).unwrap().keys() {
            let entry = format!(".TP\n\\fB{}\\fR = ", key.replace('-', "\\-"));
            assert!(page.contains(&entry), "{key} is not in the page");
        }
        for table in ["[[connect]], [[trusted]], [[export.clients]]", "[[export]]", "[kerberos]"] {
            let quoted = format!(".SH \"{table}\"\n");
            let plain = format!(".SH {table}\n");
            assert!(page.contains(&quoted) || page.contains(&plain), "no section {table}:\n{page}");
        }
        assert!(page.contains("= \\fI\"stable\" or \"memory\"\\fR"), "{page}");
    }

    /// The commented-out lines of the example must be valid, too.
    #[test]
    fn the_example_is_a_configuration_with_and_without_its_comments() {
        let plain: Arguments = toml::from_str(EXAMPLE).unwrap();
        assert_eq!(plain.directories, [std::path::Path::new("/srv/dafs")]);
        assert!(plain.tcp.unwrap().ip().is_loopback() && plain.no_anonymous);
        let uncommented: Vec<&str> = EXAMPLE
            .lines()
            .map(|line| {
                line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line)
            })
            .collect();
        let all: Arguments = toml::from_str(&uncommented.join("\n")).unwrap();
        assert!(all.password_file.is_some() && all.tls_only && all.cache.is_some());
    }
}
