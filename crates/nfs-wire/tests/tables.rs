//! The tables of all programs are consistent.

use std::collections::BTreeSet;

use dafs_nfs_wire::xdr::{Layout, Shape};
use dafs_nfs_wire::{PROGRAMS, nfs3, table::Effect};

#[test]
fn every_procedure_is_listed_once() {
    let mut programs = BTreeSet::new();
    for program in PROGRAMS {
        assert!(programs.insert((program.number, program.version)), "{} twice", program.name);
        let numbers: Vec<u32> = program.rows.iter().map(|row| row.number).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next), "{}: {numbers:?}", program.name);
        let names: BTreeSet<&str> = program.rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), numbers.len(), "{}", program.name);
        assert_eq!((numbers[0], program.rows[0].name), (0, "NULL"));
    }
}

#[test]
fn every_procedure_of_version_3_is_there() {
    let numbers: Vec<u32> =
        nfs3::Procedure::ALL.iter().map(|procedure| procedure.number()).collect();
    assert_eq!(numbers, (0..=21).collect::<Vec<u32>>());
    assert_eq!(nfs3::Procedure::from_number(22), None);
    let once: Vec<&str> = nfs3::Procedure::ALL
        .iter()
        .filter(|procedure| procedure.effect() == Effect::Once)
        .map(|procedure| procedure.name())
        .collect();
    let expected =
        ["SETATTR", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK"];
    assert_eq!(once, expected);
}

/// Collects the named types that a type is made of.
fn names_in(shape: &'static Shape, found: &mut BTreeSet<String>) {
    if shape.name().is_none_or(|_| found.insert(Layout(shape).to_string())) {
        shape.parts().into_iter().for_each(|part| names_in(part, found));
    }
}

#[test]
fn every_type_describes_itself() {
    let mut found = BTreeSet::new();
    for row in PROGRAMS.iter().flat_map(|program| program.rows) {
        names_in(row.arguments.shape, &mut found);
        names_in(row.results.shape, &mut found);
    }
    let expected = "WriteArgs: file up to 64 bytes, offset u64, count u32, stable Stability, \
                    data data";
    assert!(found.contains(expected), "{found:#?}");
    assert!(found.contains(
        "SetTime: SetTimeHow, then 0 DontChange void, 1 ToServerTime void, 2 ToClientTime Time"
    ));
}
