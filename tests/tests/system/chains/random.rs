//! Tests random chains against a model that executes the members one by one.
//!
//! Two directories are alike. A chain runs in one of them. In the other one, its members are sent
//! as single requests, each waited for, with the handle and the state id that draft 4.1.3.1 and
//! 4.3.2 specify. Both must fail at the same member with the same status, return the same results,
//! and leave equal directories. `DAFS_CHAIN_SEED` runs only one seed.

use std::fmt::Write as _;

use dafs_client::{
    Chain, Client, ObjectType, OpenOptions, Outcome, Session, SessionOptions, Status, block_on,
};
use dafs_types::{
    AccessMask, CacheHint, FileAttributes, FileHandle, Random, RemoveMode, SetAttributes,
    Stability, StateId,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{
    Access, AppendInline, Close, Commit, Create, Empty, GetAttributes, InlineData, Link, Lookup,
    NewObject, OneHandle, Open, OpenCreation, Placement, ReadInline, Remove, Rename,
    SetAttributesInline, Verify, WriteInline,
};
use dafs_wire::{ByteOrder, ChainClass, FileAttributeBlock, Path, Request, Response};

use crate::fixture::{Fixture, Transport, transports};
use crate::rogue::opening;

#[derive(Clone, Debug)]
enum Step {
    /// The next step starts at the top directory again.
    Top,
    Lookup(&'static str),
    Parent,
    MakeDirectory(&'static str),
    Open(&'static str, bool),
    Write(u64, Vec<u8>),
    Append(Vec<u8>),
    Read(u64, u32),
    Look,
    Remove(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str),
    Verify(u64),
    VerifyNot(u64),
    SetMode(u32),
    SetSize(u64),
    Commit,
    Close,
    Access,
    Null,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Step {
    fn random(random: &mut Random) -> Self {
        let name = NAMES[random.below(NAMES.len())];
        let other = NAMES[random.below(NAMES.len())];
        let (offset, length) = (random.below(40) as u64, random.below(60));
        match random.below(26) {
            0..=2 => Self::Lookup(name),
            3 => Self::Parent,
            4 | 5 => Self::MakeDirectory(name),
            6..=8 => Self::Open(name, random.percent(60)),
            9..=11 => Self::Write(offset, random.bytes(length)),
            12 => Self::Append(random.bytes(length)),
            13 | 14 => Self::Read(offset, length as u32),
            15 => Self::Look,
            16 => Self::Remove(name),
            17 => Self::Rename(name, other),
            18 => Self::Link(name),
            19 => Self::Verify(offset),
            20 => Self::VerifyNot(offset),
            21 => Self::SetMode(0o600 | random.below(0o100) as u32),
            22 => Self::SetSize(offset),
            23 => Self::Commit,
            24 => Self::Close,
            _ if random.percent(30) => Self::Top,
            _ if random.percent(50) => Self::Access,
            _ => Self::Null,
        }
    }

    /// True if the step must not follow a fetch.
    fn modifies(&self) -> bool {
        match self {
            Self::MakeDirectory(_)
            | Self::Open(..)
            | Self::Write(..)
            | Self::Append(_)
            | Self::Remove(_)
            | Self::Rename(..)
            | Self::Link(_)
            | Self::SetMode(_)
            | Self::SetSize(_)
            | Self::Commit => true,
            Self::Top
            | Self::Lookup(_)
            | Self::Parent
            | Self::Read(..)
            | Self::Look
            | Self::Verify(_)
            | Self::VerifyNot(_)
            | Self::Close
            | Self::Access
            | Self::Null => false,
        }
    }

    /// Makes a valid random chain.
    fn random_chain(random: &mut Random) -> Vec<Self> {
        let (mut has_fetched, mut is_below) = (false, false);
        let count = 2 + random.below(12);
        let steps = (0..count).map(|_| Self::random(random));
        steps
            .filter(|step| {
                has_fetched |= matches!(step, Self::Read(..) | Self::Look);
                // There is only one directory above the top directory.
                let escapes = matches!(step, Self::Parent) && !is_below;
                is_below = matches!(step, Self::Lookup(_) | Self::MakeDirectory(_));
                !(escapes || has_fetched && step.modifies())
            })
            .collect()
    }

    fn put_into<'s>(&self, chain: Chain<'s>, top: FileHandle, source: FileHandle) -> Chain<'s> {
        match self {
            Self::Top => chain.at(top),
            Self::Lookup(name) => chain.lookup(name),
            Self::Parent => chain.parent(),
            Self::MakeDirectory(name) => chain.create_dir(name, 0o755),
            Self::Open(name, create) => chain.open(name, &OpenOptions::write().create(*create)),
            Self::Write(offset, bytes) => chain.write_inline(*offset, bytes),
            Self::Append(bytes) => chain.append(bytes),
            Self::Read(offset, length) => chain.read_inline(*offset, *length),
            Self::Look => chain.getattr(),
            Self::Remove(name) => chain.remove(name),
            Self::Rename(old, new) => chain.rename(top, old, new),
            Self::Link(name) => chain.link(source, name),
            Self::Verify(size) => chain.verify(&sized(*size)),
            Self::VerifyNot(size) => chain.verify_not(&sized(*size)),
            Self::SetMode(mode) => chain.setattr(&mode_of(*mode)),
            Self::SetSize(size) => chain.setattr(&size_of(*size)),
            Self::Commit => chain.commit(),
            Self::Close => chain.close(),
            Self::Access => chain.access(AccessMask::ALL),
            Self::Null => chain.null(),
        }
    }
}

fn sized(size: u64) -> FileAttributes {
    FileAttributes { size: Some(size), ..FileAttributes::default() }
}

fn mode_of(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn size_of(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..SetAttributes::default() }
}

/// The result of a step as text that is the same in both directories.
type Said = Result<String, Status>;

/// Executes the steps one by one.
struct Model<'s> {
    client: &'s Client,
    session: &'s Session,
    top: FileHandle,
    source: FileHandle,
    file: FileHandle,
    state: StateId,
    owner: u64,
}

impl Model<'_> {
    fn step(&mut self, step: &Step) -> Said {
        let (file, state) = (self.file, self.state);
        let (hint, placement) = (CacheHint::default(), Placement::Packed);
        let mut buffer = [0; 512];
        let order = ByteOrder::NATIVE;
        let set = |wanted: &SetAttributes, buffer: &mut [u8; 512]| {
            FileAttributeBlock::encode_set(order, wanted, buffer).unwrap().bytes().to_vec()
        };
        let bytes = match step {
            Step::MakeDirectory(_) => set(&mode_of(0o755), &mut buffer),
            Step::Open(_, true) => set(&mode_of(0o644), &mut buffer),
            Step::SetMode(mode) => set(&mode_of(*mode), &mut buffer),
            Step::SetSize(size) => set(&size_of(*size), &mut buffer),
            Step::Verify(size) | Step::VerifyNot(size) => {
                let (full, wanted) = (sized(*size), bits::OBJECT_SIZE);
                let block = FileAttributeBlock::encode_file(order, wanted, &full, &mut buffer);
                block.unwrap().bytes().to_vec()
            }
            _ => set(&SetAttributes::default(), &mut buffer),
        };
        let attributes = FileAttributeBlock::parse(order, &bytes).unwrap();
        self.owner += 1;
        let owner = self.owner.to_ne_bytes();
        let names;
        let request = match step {
            Step::Top => {
                (self.file, self.state) = (self.top, StateId::ANONYMOUS);
                return Ok(String::new());
            }
            Step::Lookup(name) => {
                names = [*name];
                Request::Lookup(Lookup { directory: file, path: Path::new(&names) })
            }
            Step::Parent => Request::LookupP(OneHandle { file }),
            Step::MakeDirectory(name) => {
                let object = NewObject::Directory;
                Request::Create(Create { directory: file, name, object, attributes })
            }
            Step::Open(name, create) => {
                names = [*name];
                let creation = if *create {
                    OpenCreation::Unchecked(attributes)
                } else {
                    OpenCreation::NoCreate
                };
                let open = opening(file, Path::new(&names));
                Request::Open(Open { creation, owner: &owner, ..open })
            }
            Step::Write(offset, bytes) => Request::WriteInline(WriteInline {
                file,
                state,
                offset: *offset,
                stability: Stability::Unstable,
                hint,
                placement,
                data: InlineData::Here(bytes),
            }),
            Step::Append(bytes) => Request::AppendInline(AppendInline {
                file,
                state,
                stability: Stability::DataSync,
                hint,
                placement,
                data: InlineData::Here(bytes),
            }),
            Step::Read(offset, length) => {
                let (offset, length) = (*offset, *length);
                Request::ReadInline(ReadInline { file, state, offset, length, hint })
            }
            Step::Look => {
                let wanted = bits::OBJECT_TYPE.with(bits::OBJECT_SIZE).with(bits::MODE);
                Request::GetAttrInline(GetAttributes { file, wanted })
            }
            Step::Remove(name) => {
                Request::Remove(Remove { directory: file, name, mode: RemoveMode::Unchecked })
            }
            Step::Rename(old_name, new_name) => {
                Request::Rename(Rename { source: self.top, target: file, old_name, new_name })
            }
            Step::Link(name) => Request::Link(Link { source: self.source, directory: file, name }),
            Step::Verify(_) => Request::Verify(Verify { file, attributes }),
            Step::VerifyNot(_) => Request::NVerify(Verify { file, attributes }),
            Step::SetMode(_) | Step::SetSize(_) => {
                Request::SetAttrInline(SetAttributesInline { file, state, attributes })
            }
            Step::Commit => Request::Commit(Commit { file, offset: 0, length: 0 }),
            Step::Close => Request::Close(Close { file, state }),
            Step::Access => Request::Access(Access { file, access: AccessMask::ALL }),
            Step::Null => Request::Null(Empty),
        };
        assert_eq!(
            step.modifies() || matches!(step, Step::Close),
            request.procedure().chain_class() == ChainClass::ModifiesFiles
        );
        self.send(&request)
    }

    fn send(&mut self, request: &Request<'_>) -> Said {
        let reply = block_on(self.client, self.session.start(request).unwrap()).unwrap();
        let (status, response) = reply.read().unwrap();
        if status != Status::Ok {
            return Err(status);
        }
        let found = match &response {
            Response::Lookup(found) => Some(found.file),
            Response::LookupP(found) => Some(found.file),
            Response::Create(created) => Some(created.file),
            _ => None,
        };
        if let Some(found) = found {
            (self.file, self.state) = (found, StateId::ANONYMOUS);
            return Ok("found".into());
        }
        Ok(match response {
            Response::Open(opened) => {
                (self.file, self.state) = (opened.file, opened.state);
                "opened".into()
            }
            Response::ReadInline(read) => {
                format!("{:?} {}", read.data.bytes().unwrap(), read.end_of_file)
            }
            Response::WriteInline(written) => format!("moved {}", written.length),
            Response::AppendInline(appended) => format!("at {}", appended.offset),
            Response::Commit(_) => "moved 0".into(),
            Response::Access(result) => format!("{:?}", result.access),
            Response::GetAttrInline(result) => {
                let is = result.attributes.file();
                let (kind, size) = (is.object_type.unwrap(), is.size.unwrap());
                described(kind, size, is.mode.unwrap())
            }
            _ => "done".into(),
        })
    }
}

/// The sizes of directories depend on the file system and are left out.
fn described(kind: ObjectType, size: u64, mode: u32) -> String {
    let size = if kind == ObjectType::Directory { 0 } else { size };
    format!("{kind:?} of {size} bytes, {mode:o}")
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Found(_) => "found".into(),
        Outcome::Opened { .. } => "opened".into(),
        Outcome::Moved(moved) => format!("moved {}", moved.length),
        Outcome::Bytes { bytes, end_of_file } => format!("{bytes:?} {end_of_file}"),
        Outcome::Appended { offset, .. } => format!("at {offset}"),
        Outcome::Metadata(is) => described(is.kind, is.size, is.mode),
        Outcome::Access(access) => format!("{access:?}"),
        _ => "done".into(),
    }
}

/// Describes everything below a directory.
fn tree(session: &Session, path: &str, into: &mut String) {
    let mut entries = session.read_dir(path).unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let (path, is) = (format!("{path}/{}", entry.name.display()), entry.metadata.unwrap());
        let content = if is.kind == ObjectType::Regular {
            let file = session.reader(is.handle, &path);
            let mut bytes = vec![0; 1 << 12];
            let count = file.read_at(&mut bytes, 0).unwrap();
            bytes.truncate(count);
            bytes
        } else {
            Vec::new()
        };
        let inside = path.trim_start_matches('/').split_once('/').unwrap().1;
        let links = if is.kind == ObjectType::Directory { 0 } else { is.link_count };
        let what = described(is.kind, is.size, is.mode);
        writeln!(into, "{inside}: {what}, {links} links, {content:?}").unwrap();
        if is.kind == ObjectType::Directory {
            tree(session, &path, into);
        }
    }
}

fn run_case(client: &Client, session: &Session, seed: u64) {
    let mut random = Random::new(seed);
    let place = |top: &str| {
        let top = format!("/{top}-{seed}");
        session.create_dir(&top, 0o755).unwrap();
        for name in ["a", "b"] {
            session.create_dir(format!("{top}/{name}"), 0o755).unwrap();
        }
        session.create_file(format!("{top}/c"), b"content of c", 0o644).unwrap();
        let handle = |path: &str| session.metadata(path).unwrap().handle;
        (handle(&top), handle(&format!("{top}/c")))
    };
    let ((chained, chained_source), (single, source)) = (place("chained"), place("single"));
    let mut model = Model {
        client,
        session,
        top: single,
        source,
        file: single,
        state: StateId::ANONYMOUS,
        owner: seed << 32,
    };
    for round in 0..CHAINS_PER_CASE {
        let steps = Step::random_chain(&mut random);
        let context = || format!("seed {seed}, round {round}: {steps:?}");
        (model.file, model.state) = (single, StateId::ANONYMOUS);
        let mut chain = session.chain().at(chained);
        let mut expected = Vec::new();
        for step in &steps {
            chain = step.put_into(chain, chained, chained_source);
            if !matches!(expected.last(), Some(Err(_))) {
                let said = model.step(step);
                if !matches!(step, Step::Top) {
                    expected.push(said);
                }
            }
        }
        let got: Vec<Said> = match chain.run() {
            Ok(outcomes) => outcomes.iter().map(|outcome| Ok(said(outcome))).collect(),
            Err(failure) => {
                assert_eq!(failure.member, failure.done.len(), "{}", context());
                let failed = Err(failure.error.status().unwrap_or_else(|| panic!("{failure}")));
                failure.done.iter().map(|outcome| Ok(said(outcome))).chain([failed]).collect()
            }
        };
        assert_eq!(got, expected, "{}", context());
        let mut trees = [String::new(), String::new()];
        tree(session, &format!("/chained-{seed}"), &mut trees[0]);
        tree(session, &format!("/single-{seed}"), &mut trees[1]);
        assert_eq!(trees[0], trees[1], "{}", context());
    }
}

fn run_cases(fixture: &Fixture, transport: Transport, seeds: std::ops::Range<u64>) {
    let options = SessionOptions::default().response_cache(true);
    let (client, session) = fixture.connect_with(transport, &options);
    match std::env::var("DAFS_CHAIN_SEED") {
        Ok(seed) => run_case(&client, &session, seed.parse().unwrap()),
        Err(_) => seeds.for_each(|seed| run_case(&client, &session, seed)),
    }
}

#[test]
fn a_chain_does_what_its_members_do_one_by_one() {
    for transport in transports() {
        run_cases(&Fixture::new(), transport, 0..12);
        run_cases(&Fixture::in_memory(), transport, 100..112);
    }
}

#[test]
fn so_it_does_through_the_journal() {
    for transport in transports() {
        run_cases(&Fixture::with_journal(), transport, 200..203);
    }
}

const CHAINS_PER_CASE: usize = 20;
