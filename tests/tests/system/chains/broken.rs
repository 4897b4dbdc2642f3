//! Tests connections that end within a chain (draft 4.3.4, 5.2.5).

use dafs_types::{FileHandle, SetAttributes, Status, StreamId};
use dafs_wire::messages::{CachedResponse, Create, Lookup, NewObject};
use dafs_wire::{
    ByteOrder, ChainFlags, FileAttributeBlock, HEADER_BYTES, Path, Procedure, Request,
};

use super::{B, Chainer, F, FB, FILE, SAVE, member};
use crate::fixture::{Fixture, over_each, transports};
use crate::rogue::status_of;

const TAKEN: FileHandle = FileHandle([0xee; 64]);

fn nothing(buffer: &mut [u8; 64]) -> FileAttributeBlock<'_> {
    FileAttributeBlock::encode_set(ByteOrder::NATIVE, &SetAttributes::default(), buffer).unwrap()
}

fn directory<'a>(
    directory: FileHandle,
    name: &'a str,
    attributes: FileAttributeBlock<'a>,
) -> Request<'a> {
    Request::Create(Create { directory, name, object: NewObject::Directory, attributes })
}

impl Chainer {
    /// Queries the response cache of a broken session for the requests it sent last.
    fn check(&mut self, old: &Chainer, procedures: &[Procedure]) -> Vec<Status> {
        let about = (0..).zip(procedures).map(|(stream, procedure)| CachedResponse {
            session: old.session,
            stream: StreamId(stream),
            sequence: dafs_types::SequenceNumber(old.sequence),
            procedure: procedure.number(),
        });
        let questions: Vec<_> = about.collect();
        questions
            .into_iter()
            .map(|about| status_of(&self.ask(&Request::CheckResponse(about))))
            .collect()
    }
}

/// Makes nested directories with a chain. Returns the depth of those that were made.
fn nested(fixture: &Fixture, count: usize) -> usize {
    let mut path = fixture.local("");
    (0..count)
        .take_while(|at| {
            path = path.join(format!("n{at}"));
            path.is_dir()
        })
        .count()
}

#[test]
fn what_is_in_the_cache_of_a_broken_chain_is_what_was_done() {
    const COUNT: usize = 12;
    let names: Vec<String> = (0..COUNT).map(|at| format!("n{at}")).collect();
    for transport in transports() {
        for journaled in [false, true] {
            // Where the chain is interrupted depends on timing: any prefix may be executed.
            for answers in [0, 1, 5, COUNT] {
                let fixture = if journaled { Fixture::with_journal() } else { Fixture::new() };
                let mut chainer = Chainer::new(&fixture, transport);
                let root = chainer.root;
                let mut buffer = [0; 64];
                let block = nothing(&mut buffer);
                let members: Vec<_> = (0..COUNT)
                    .map(|at| match at {
                        0 => (F, directory(root, &names[0], block)),
                        last if last == COUNT - 1 => {
                            (B.with(FILE), directory(TAKEN, &names[last], block))
                        }
                        at => (FB.with(FILE), directory(TAKEN, &names[at], block)),
                    })
                    .collect();
                chainer.send(&members);
                chainer.answers(answers);
                let endpoint = chainer.rogue.endpoint;
                chainer.rogue.interface.disconnect(endpoint);
                let mut again = Chainer::new(&fixture, transport);
                let states = again.check(&chainer, &[Procedure::Create; COUNT]);
                let done = states.iter().take_while(|status| **status == Status::Ok).count();
                assert!(done >= answers, "{done} of {answers} that were answered");
                assert!(states[done..].iter().all(|status| *status == Status::NoXidMatch));
                assert_eq!(nested(&fixture, COUNT), done, "the cache and the directory agree");
            }
        }
    }
}

#[test]
fn saved_members_are_kept_and_others_are_not() {
    over_each(|fixture, transport| {
        std::fs::create_dir(fixture.local("d")).unwrap();
        let mut chainer = Chainer::new(fixture, transport);
        let (root, names) = (chainer.root, ["d"]);
        let lookup = Request::Lookup(Lookup { directory: root, path: Path::new(&names) });
        let mut buffer = [0; 64];
        let made = directory(TAKEN, "e", nothing(&mut buffer));
        let answers =
            chainer.succeed(&[(F.with(SAVE), lookup), (FB, lookup), (B.with(FILE), made)]);
        let endpoint = chainer.rogue.endpoint;
        chainer.rogue.interface.disconnect(endpoint);
        let mut again = Chainer::new(fixture, transport);
        let procedures = [Procedure::Lookup, Procedure::Lookup, Procedure::Create];
        let kept = [Status::Ok, Status::NoXidMatch, Status::Ok];
        assert_eq!(again.check(&chainer, &procedures), kept);
        let fetch = Request::FetchResponse(CachedResponse {
            session: chainer.session,
            stream: StreamId(0),
            sequence: dafs_types::SequenceNumber(chainer.sequence),
            procedure: Procedure::Lookup.number(),
        });
        let fetched = again.ask(&fetch);
        assert_eq!(fetched[HEADER_BYTES..], answers[0][HEADER_BYTES..]);
    });
}

#[test]
fn a_chain_that_nobody_continues_leaves_nothing_behind() {
    for transport in transports() {
        let fixture = Fixture::new();
        let open_ends: [&[ChainFlags]; 3] = [&[F], &[F, FB], &[F, FB, FB, FB]];
        for flags in open_ends {
            let mut chainer = Chainer::new(&fixture, transport);
            let bytes: Vec<_> = (0..)
                .zip(flags)
                .map(|(stream, flags)| member(stream, 700, *flags, &super::NULL))
                .collect();
            chainer.send_bytes(&bytes);
            let answers = chainer.answers(flags.len());
            assert!(answers.iter().all(|bytes| status_of(bytes) == Status::Ok));
            let endpoint = chainer.rogue.endpoint;
            chainer.rogue.interface.disconnect(endpoint);
            // When the server replies for the session, it has noticed its end.
            let mut again = Chainer::new(&fixture, transport);
            assert_eq!(again.check(&chainer, &[Procedure::Create]), [Status::NoXidMatch]);
        }
        let (_, stats) = fixture.stop();
        assert_eq!((stats.chains, stats.parked_requests), (0, 0));
    }
}
