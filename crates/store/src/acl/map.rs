//! Converts between the protocol's access control lists and POSIX lists (`docs/spec/acl.md`).
//!
//! Invariant: an accepted list never gives any user more access than its entries say. Each single
//! subject (the owner, a named user, a group, or all other users) gets exactly the access that the
//! entries say.

use dafs_types::acl::{EVERYONE, GROUP, OWNER};
use dafs_types::permission::{EXECUTE, READ, WRITE};
use dafs_types::{Ace, AceFlags, AceKind, AceRights};

use super::{Lists, PosixAcl};
use crate::error::{Result, StoreError};

/// Converts an object's POSIX lists to protocol entries.
#[must_use]
pub fn to_entries(lists: &Lists, is_directory: bool) -> Vec<Ace> {
    let mut entries = Vec::new();
    write_list(&mut entries, &lists.access, AceFlags::default(), is_directory);
    if let Some(default) = &lists.default {
        write_list(&mut entries, default, AceFlags::INHERITED, is_directory);
    }
    entries
}

/// Appends the entries that express one POSIX list to `into`, in the order in which POSIX checks
/// subjects. If a later entry grants everyone a right that a subject lacks, the subject needs an
/// explicit denial before that entry; so each entry is followed by a denial of what later entries
/// would grant. Rights of several groups add up, so all grants to groups come before the denials to
/// groups.
fn write_list(into: &mut Vec<Ace>, list: &PosixAcl, flags: AceFlags, is_directory: bool) {
    let mut push = |kind, who: &str, is_group: bool, bits: u32| {
        let flags = if is_group { flags.with(AceFlags::IDENTIFIER_GROUP) } else { flags };
        let mut rights = rights_of(bits, is_directory);
        match kind {
            AceKind::Allow => rights = rights.with(ALWAYS),
            AceKind::Deny | AceKind::Audit | AceKind::Alarm if bits == 0 => return,
            AceKind::Deny | AceKind::Audit | AceKind::Alarm => {}
        }
        if kind == AceKind::Allow && who == OWNER {
            rights = rights.with(OWNERS);
        }
        into.push(Ace { kind, flags, rights, who: who.to_owned() });
    };
    let users: Vec<_> = list.users.iter().map(|(id, bits)| (*id, list.masked(*bits))).collect();
    let groups: Vec<_> = list.groups.iter().map(|(id, bits)| (*id, list.masked(*bits))).collect();
    let group = list.masked(list.group);
    let behind_users = groups.iter().fold(group | list.other, |all, (_, bits)| all | bits);
    let behind_owner = users.iter().fold(behind_users, |all, (_, bits)| all | bits);
    push(AceKind::Deny, OWNER, false, behind_owner & !list.owner);
    push(AceKind::Allow, OWNER, false, list.owner);
    for (id, bits) in users {
        let who = id.to_string();
        push(AceKind::Deny, &who, false, behind_users & !bits);
        push(AceKind::Allow, &who, false, bits);
    }
    for kind in [AceKind::Allow, AceKind::Deny] {
        let mine = |bits: u32| if kind == AceKind::Allow { bits } else { list.other & !bits };
        push(kind, GROUP, false, mine(group));
        for (id, bits) in &groups {
            push(kind, &id.to_string(), true, mine(*bits));
        }
    }
    push(AceKind::Allow, EVERYONE, false, list.other);
}

/// Converts protocol entries to POSIX lists, for an object that belongs to `owner`.
///
/// # Errors
/// `Invalid` for an entry that makes no sense; `NotSupported` for a list that POSIX lists cannot
/// express.
pub fn from_entries(entries: &[Ace], is_directory: bool, owner: u32) -> Result<Lists> {
    let (mut access, mut default) = (Vec::new(), Vec::new());
    for entry in entries {
        let rule = read_entry(entry, is_directory)?;
        let inherits = AceFlags::FILE_INHERIT.with(AceFlags::DIRECTORY_INHERIT);
        if !entry.flags.contains(AceFlags::INHERIT_ONLY) {
            access.push(rule);
        }
        if entry.flags.contains(inherits) {
            default.push(rule);
        }
    }
    let default = if default.is_empty() { None } else { Some(compile(&default, None)?) };
    Ok(Lists { access: compile(&access, Some(owner))?, default })
}

/// The subject of an entry: the users to whom the entry applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Owner,
    User(u32),
    Group,
    NamedGroup(u32),
    Everyone,
}

/// An entry of the protocol, converted to a subject and POSIX permission bits.
#[derive(Clone, Copy, Debug)]
struct Rule {
    allows: bool,
    who: Who,
    bits: u32,
}

fn read_entry(entry: &Ace, is_directory: bool) -> Result<Rule> {
    let allows = match entry.kind {
        AceKind::Allow => true,
        AceKind::Deny => false,
        // Refuse entries for audits and alarms, because they would have no effect.
        AceKind::Audit | AceKind::Alarm => return Err(StoreError::NotSupported),
    };
    let (flags, rights) = (entry.flags, entry.rights);
    if flags.0 & !FLAGS_KNOWN != 0 || rights.without(AceRights::ALL) != AceRights::default() {
        return Err(StoreError::Invalid);
    }
    let (for_files, for_directories) =
        (flags.contains(AceFlags::FILE_INHERIT), flags.contains(AceFlags::DIRECTORY_INHERIT));
    let is_inherited = for_files || for_directories;
    if is_inherited && !is_directory || flags.contains(AceFlags::INHERIT_ONLY) && !is_inherited {
        return Err(StoreError::Invalid);
    }
    // A default list applies to both files and directories, and to all levels.
    let is_partial = for_files != for_directories || flags.contains(AceFlags::NO_PROPAGATE);
    if is_partial || flags.0 & (AceFlags::SUCCESS.0 | AceFlags::FAILURE.0) != 0 {
        return Err(StoreError::NotSupported);
    }
    let is_group = flags.contains(AceFlags::IDENTIFIER_GROUP);
    let who = match (entry.who.as_str(), is_group) {
        (OWNER, false) => Who::Owner,
        // Some tools set the group flag for `GROUP@` and some leave it out, so accept both.
        (GROUP, _) => Who::Group,
        (EVERYONE, false) => Who::Everyone,
        (name, is_group) => match (name.parse::<u32>(), is_group) {
            (Ok(u32::MAX) | Err(_), _) => return Err(StoreError::Invalid),
            (Ok(id), false) => Who::User(id),
            (Ok(id), true) => Who::NamedGroup(id),
        },
    };
    let bits = if allows { granted_bits(rights, is_directory)? } else { denied_bits(rights, who)? };
    Ok(Rule { allows, who, bits })
}

/// Returns the POSIX permission bits that a grant of these rights needs. Ignores rights that every
/// user has and rights that no user has.
fn granted_bits(rights: AceRights, is_directory: bool) -> Result<u32> {
    let writes = rights.and(write_rights(is_directory));
    // POSIX has a single bit for the rights to write, to append and (in a directory) to remove.
    if writes != AceRights::default() && writes != write_rights(is_directory) {
        return Err(StoreError::NotSupported);
    }
    Ok(data_bits(rights))
}

/// Returns the POSIX permission bits that a denial of these rights clears. Returns an error if
/// POSIX cannot deny the rights.
fn denied_bits(rights: AceRights, who: Who) -> Result<u32> {
    let bits = data_bits(rights);
    let mut kept = ALWAYS.with(AceRights::DELETE);
    if who == Who::Owner {
        kept = kept.with(OWNERS);
    }
    if bits & READ == 0 {
        kept = kept.with(AceRights::READ_NAMED_ATTRS);
    }
    if bits & WRITE == 0 {
        let writes = write_rights(true).with(AceRights::WRITE_NAMED_ATTRS);
        kept = kept.with(writes);
    }
    if rights.and(kept) != AceRights::default() {
        return Err(StoreError::NotSupported);
    }
    Ok(bits)
}

fn data_bits(rights: AceRights) -> u32 {
    let bit = |wanted: AceRights, bit| if rights.contains(wanted) { bit } else { 0 };
    bit(AceRights::READ_DATA, READ)
        | bit(write_rights(false), WRITE)
        | bit(AceRights::EXECUTE, EXECUTE)
}

/// Converts the rules of one list to a POSIX list. Returns an error if the POSIX list would give a
/// user more access than the rules.
fn compile(rules: &[Rule], owner: Option<u32>) -> Result<PosixAcl> {
    let list = nearest(rules);
    if grants_too_much(&list, rules, owner) { Err(StoreError::NotSupported) } else { Ok(list) }
}

/// Returns the POSIX list that gives each single subject the permission bits that the rules give
/// it.
fn nearest(rules: &[Rule]) -> PosixAcl {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for rule in rules {
        match rule.who {
            Who::User(id) if users.iter().all(|(known, _)| *known != id) => {
                users.push((id, judge(rules, &[rule.who])));
            }
            Who::NamedGroup(id) if groups.iter().all(|(known, _)| *known != id) => {
                groups.push((id, judge(rules, &[rule.who])));
            }
            Who::User(_) | Who::NamedGroup(_) | Who::Owner | Who::Group | Who::Everyone => {}
        }
    }
    users.sort_unstable();
    groups.sort_unstable();
    let mut list = PosixAcl {
        owner: judge(rules, &[Who::Owner]),
        group: judge(rules, &[Who::Group]),
        mask: None,
        other: judge(rules, &[]),
        users,
        groups,
    };
    if !list.users.is_empty() || !list.groups.is_empty() {
        let named = list.users.iter().chain(&list.groups);
        list.mask = Some(named.fold(list.group, |all, (_, bits)| all | bits));
    }
    list
}

/// Returns the permission bits of a user that matches all of these subjects. For each bit, the
/// first rule that mentions it decides.
fn judge(rules: &[Rule], who: &[Who]) -> u32 {
    let (mut granted, mut decided) = (0, 0);
    for rule in rules {
        if rule.who == Who::Everyone || who.contains(&rule.who) {
            if rule.allows {
                granted |= rule.bits & !decided;
            }
            decided |= rule.bits;
        }
    }
    granted
}

/// Returns true if the POSIX list gives a user that matches several subjects more access than the
/// rules. POSIX grants a permission bit if one of the matching entries has the bit, although the
/// rules may first deny the bit to another matching subject. The result must not depend on which
/// user owns the object, so an entry that names the owner is checked in two ways: as the owner's
/// entry, and as the entry of another user.
fn grants_too_much(list: &PosixAcl, rules: &[Rule], owner: Option<u32>) -> bool {
    let users = list.users.iter().map(|(id, bits)| (Who::User(*id), *bits));
    let groups = list.groups.iter().map(|(id, bits)| (Who::NamedGroup(*id), *bits));
    let classes = [(Who::Owner, list.owner), (Who::Group, list.group)];
    let all: Vec<_> = classes.into_iter().chain(users).chain(groups).collect();
    let mentions = |rule: &Rule, who: Who, bit: u32| rule.who == who && rule.bits & bit != 0;
    [READ, WRITE, EXECUTE].into_iter().any(|bit| {
        // The position of the first rule that mentions the bit for the subject, if that rule denies
        // the bit.
        let refusal = |who: Who| {
            let first = rules.iter().position(|rule| mentions(rule, who, bit));
            first.filter(|index| !rules[*index].allows).unwrap_or(usize::MAX)
        };
        let grant = |who: Who| {
            let decides =
                |rule: &Rule| mentions(rule, who, bit) || mentions(rule, Who::Everyone, bit);
            rules.iter().position(decides).unwrap_or(0)
        };
        let is_group = |who: &Who| matches!(who, Who::Group | Who::NamedGroup(_));
        let of_groups = all.iter().filter(|(who, _)| is_group(who)).map(|(who, _)| refusal(*who));
        let of_a_group = of_groups.min().unwrap_or(usize::MAX);
        let exceeds = |(who, bits): &(Who, u32)| bits & bit != 0 && of_a_group < grant(*who);
        // The list may also name the owner as a user, but POSIX only uses the owner's own entry.
        let of_owner = owner.map_or(usize::MAX, |owner| refusal(Who::User(owner)));
        all.iter().any(exceeds) || list.owner & bit != 0 && of_owner < grant(Who::Owner)
    })
}

fn rights_of(bits: u32, is_directory: bool) -> AceRights {
    let mut rights = AceRights::default();
    if bits & READ != 0 {
        rights = rights.with(AceRights::READ_DATA).with(AceRights::READ_NAMED_ATTRS);
    }
    if bits & WRITE != 0 {
        rights = rights.with(write_rights(is_directory)).with(AceRights::WRITE_NAMED_ATTRS);
    }
    if bits & EXECUTE != 0 {
        rights = rights.with(AceRights::EXECUTE);
    }
    rights
}

const fn write_rights(is_directory: bool) -> AceRights {
    let both = AceRights::WRITE_DATA.with(AceRights::APPEND_DATA);
    if is_directory { both.with(AceRights::DELETE_CHILD) } else { both }
}

/// The rights that every user has to an object that the user can reach.
const ALWAYS: AceRights =
    AceRights::READ_ATTRIBUTES.with(AceRights::READ_ACL).with(AceRights::SYNCHRONIZE);
/// The rights that the owner of an object has in addition to those of every user.
const OWNERS: AceRights = AceRights::WRITE_ATTRIBUTES.with(AceRights::WRITE_ACL);
const FLAGS_KNOWN: u32 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    const RW: AceRights = AceRights(0x7);
    const R: AceRights = AceRights(0x1);
    const W: AceRights = AceRights(0x6);

    fn ace(kind: AceKind, who: &str, rights: AceRights) -> Ace {
        let is_group = who.starts_with('g');
        let flags = if is_group { AceFlags::IDENTIFIER_GROUP } else { AceFlags::default() };
        Ace { kind, flags, rights, who: who.trim_start_matches('g').to_owned() }
    }

    fn allow(who: &str, rights: AceRights) -> Ace {
        ace(AceKind::Allow, who, rights)
    }

    fn deny(who: &str, rights: AceRights) -> Ace {
        ace(AceKind::Deny, who, rights)
    }

    fn access(entries: &[Ace]) -> Result<PosixAcl> {
        from_entries(entries, false, 1).map(|lists| lists.access)
    }

    /// Converts lists of one named user and two named groups both ways.
    #[test]
    fn every_posix_list_survives_the_way_there_and_back() {
        // There are very many combinations of six numbers of three bits. A stride without a
        // common factor reaches every pair of values.
        for number in (0..1u32 << 18).step_by(5) {
            let part = |index: u32| number >> (3 * index) & 7;
            let bits = [part(0), part(1), part(2), part(3)];
            let list = PosixAcl {
                owner: part(4),
                users: vec![(1000, bits[0])],
                group: bits[1],
                groups: vec![(50, bits[2]), (60, bits[3])],
                mask: Some(bits.iter().fold(0, |all, bits| all | bits)),
                other: part(5),
            };
            let lists = Lists { access: list.clone(), default: Some(list) };
            let entries = to_entries(&lists, true);
            assert_eq!(from_entries(&entries, true, 1), Ok(lists), "{entries:?}");
        }
        for mode in 0..0o1000 {
            let lists = Lists { access: PosixAcl::of_mode(mode), default: None };
            assert_eq!(from_entries(&to_entries(&lists, false), false, 1), Ok(lists));
        }
    }

    #[test]
    fn a_mask_is_told_by_what_is_left() {
        let mut list = PosixAcl::of_mode(0o640);
        list.users.push((1000, 7));
        list.mask = Some(4);
        let entries = to_entries(&Lists { access: list, default: None }, false);
        let read = access(&entries).unwrap();
        assert_eq!((read.users, read.mask), (vec![(1000, 4)], Some(4)));
    }

    #[test]
    fn grants_add_up_and_what_is_granted_to_all_is_granted_to_each() {
        let mode = to_entries(&Lists { access: PosixAcl::of_mode(0o754), default: None }, false);
        let entries = [&[allow("1000", RW)], &mode[..]].concat();
        let list = access(&entries).unwrap();
        // The right to read is also in everyone's entry; only the group may execute.
        assert_eq!((list.mode(), list.users), (0o774, vec![(1000, 6)]));
    }

    #[test]
    fn refusals_that_posix_cannot_say_are_refused() {
        let everybody = allow("EVERYONE@", RW);
        for (what, entries) in [
            ("a group before the owner", vec![deny("GROUP@", W), allow("OWNER@", RW)]),
            ("a group before a user", vec![deny("g50", R), allow("1000", RW)]),
            ("one group before another", vec![deny("g50", W), allow("g60", RW)]),
            ("the owner by name", vec![deny("1", W), allow("OWNER@", RW)]),
            ("reading attributes", vec![deny("1000", ALWAYS), everybody.clone()]),
            ("the owner's own rights", vec![deny("OWNER@", OWNERS), everybody.clone()]),
            ("half of writing", vec![allow("1000", AceRights::WRITE_DATA)]),
            ("half a refusal of writing", vec![deny("1000", AceRights::APPEND_DATA)]),
            ("audit", vec![ace(AceKind::Audit, "EVERYONE@", R)]),
            ("alarm", vec![ace(AceKind::Alarm, "EVERYONE@", R)]),
        ] {
            assert_eq!(access(&entries), Err(StoreError::NotSupported), "{what}");
        }
        // The same lists without a user that would get too much.
        assert!(access(&[allow("OWNER@", RW), deny("GROUP@", W), everybody.clone()]).is_ok());
        assert!(access(&[deny("1000", RW), everybody]).is_ok());
        assert!(access(&[deny("2", W), allow("OWNER@", RW)]).is_ok());
    }

    /// Tries random rules with all possible subjects. A list is accepted if and only if it gives no
    /// user more access than the rules.
    #[test]
    fn what_is_taken_gives_nobody_more_than_it_says() {
        let (person, group) = ([Who::Owner, Who::User(2)], [Who::Group, Who::NamedGroup(5)]);
        let names = [person[0], person[1], Who::User(1), group[0], group[1], Who::Everyone];
        let mut numbers = dafs_types::Random::new(1);
        let (mut taken, mut refused) = (0, 0);
        for round in 0..20_000 {
            let rules: Vec<_> = (0..=numbers.below(7))
                .map(|_| Rule {
                    allows: numbers.percent(60),
                    who: names[numbers.below(names.len())],
                    bits: numbers.below(8) as u32,
                })
                .collect();
            let list = compile(&rules, Some(1));
            let attempt = nearest(&rules);
            // POSIX gives a subject the rights of its own entry, or those of all its groups'
            // entries together.
            let too_much = (0..32u32).any(|who| {
                let is = |bit: u32| who & (1 << bit) != 0;
                let mut all = Vec::new();
                let groups = [(is(0), group[0]), (is(1), group[1])];
                all.extend(groups.into_iter().filter(|(is, _)| *is).map(|(_, who)| who));
                let named = |list: &[(u32, u32)], id| {
                    list.iter().find(|(known, _)| *known == id).map(|(_, bits)| *bits)
                };
                let of_groups =
                    [is(0).then_some(attempt.group), named(&attempt.groups, 5).filter(|_| is(1))];
                let of_groups = of_groups.into_iter().flatten().reduce(|all, bits| all | bits);
                let given = if is(2) {
                    // The owner is user 1, or another user later.
                    all.push(if is(4) { Who::Owner } else { Who::User(1) });
                    all.push(Who::Owner);
                    attempt.owner
                } else if is(3) {
                    // User 1 after the file belongs to another user.
                    let id = if is(4) { 1 } else { 2 };
                    all.push(Who::User(id));
                    let mine = named(&attempt.users, id);
                    mine.unwrap_or(of_groups.unwrap_or(attempt.other))
                } else {
                    of_groups.unwrap_or(attempt.other)
                };
                given & !judge(&rules, &all) != 0
            });
            assert_eq!(list.is_err(), too_much, "round {round}: {rules:?}");
            if too_much { refused += 1 } else { taken += 1 }
        }
        assert!(taken > 1000 && refused > 1000, "{taken} taken, {refused} refused");
    }

    #[test]
    fn entries_without_a_meaning_are_invalid() {
        let flagged = |flags: u32| Ace { flags: AceFlags(flags), ..allow("1000", RW) };
        for entry in [
            allow("somebody", RW),
            allow("INTERACTIVE@", RW),
            allow("", RW),
            allow("4294967295", RW),
            allow("-1", RW),
            allow("OWNER@", AceRights(0x200)),
            flagged(0x80),
            flagged(AceFlags::INHERITED.0),
            ace(AceKind::Allow, "gEVERYONE@", RW),
        ] {
            assert_eq!(access(std::slice::from_ref(&entry)), Err(StoreError::Invalid), "{entry:?}");
        }
        let in_directory = |flags: u32| from_entries(&[flagged(flags)], true, 1);
        assert_eq!(in_directory(AceFlags::INHERIT_ONLY.0), Err(StoreError::Invalid));
        for partial in [1, 2, 3 | 4, 3 | 0x10] {
            assert_eq!(in_directory(partial), Err(StoreError::NotSupported), "{partial}");
        }
    }
}
