//! Kills of the server at every moment of one request.

use dafs_dat::sim::FaultPlan;
use dafs_types::Stability;

use super::member::Asks;
use crate::crash::StormPlan;
use crate::crash::cells::CellRange;
use crate::crash::requests::{File, MemberRequest};
use crate::crash::world::World;
use crate::operation::{Name, NameOperation};

/// Returns a world without random faults, whose NFS member has a session.
fn calm(seed: u64) -> World {
    let plan = StormPlan {
        reactors: 1 + seed as usize % 2,
        members: 1,
        nfs_members: 1,
        faults_of_10000: 0,
        lease_ns: 3_000_000_000,
        faults: FaultPlan::default(),
        ..StormPlan::new(seed)
    };
    let mut world = World::new(plan, None, false).unwrap();
    world.until("a session", |world| world.nfs_members[0].is_idle()).unwrap();
    world
}

fn send(world: &mut World, asks: Vec<MemberRequest>) {
    world.send_nfs(0, Asks::Work(asks.into_iter().map(|ask| (0, ask)).collect()));
}

fn create(index: u8) -> MemberRequest {
    let operation = NameOperation::Create { name: Name { directory: 0, index }, guarded: true };
    MemberRequest::Names { operation, is_file: true }
}

/// Sends a request and kills the server after some turns. Returns the world after the reply, and
/// true if the reply came only after the kill.
fn killed_after(turns: u64, asks: Vec<MemberRequest>) -> (World, bool) {
    let mut world = calm(turns);
    send(&mut world, asks);
    for _ in 0..turns {
        world.turn().unwrap();
    }
    let is_waiting = !world.nfs_members[0].is_idle();
    world.crash(turns.is_multiple_of(3));
    world.until("the reply", |world| world.nfs_members[0].is_idle()).unwrap();
    (world, is_waiting)
}

/// Creates the files that were not created because the server was in its grace period.
fn create_the_rest(world: &mut World) {
    for index in 0..2 {
        for _ in 0..TRIES {
            if world.judge.made.len() > usize::from(index) {
                break;
            }
            // If the request had been executed, the checker would not accept the answer that the
            // name exists.
            send(world, vec![create(index)]);
            world.until("the reply", |world| world.nfs_members[0].is_idle()).unwrap();
        }
    }
}

#[test]
fn a_file_is_created_once_whenever_the_server_is_killed() {
    let (mut repeats, mut executed) = (0, 0);
    for turns in (0..120).step_by(3) {
        let (mut world, is_waiting) = killed_after(turns, vec![create(0), create(1)]);
        repeats += u64::from(is_waiting);
        executed += u64::from(is_waiting && !world.judge.made.is_empty());
        create_the_rest(&mut world);
        assert_eq!(world.judge.made.len(), 2, "killed after {turns} turns");
        world.finish().unwrap();
    }
    assert!(repeats > 5, "{repeats} requests were sent again");
    assert!(executed > 0, "no reply says what the killed server has executed");
}

#[test]
fn a_stable_write_is_not_lost_whenever_the_server_is_killed() {
    for turns in (0..120).step_by(6) {
        let run = CellRange { file: File::Data, first: 3, count: 2 };
        let stability = Stability::FileSync;
        let write = MemberRequest::Write { id: 0, run, stability, is_direct: false };
        let (mut world, _) = killed_after(turns, vec![write]);
        // The end reads the cells through the server and from the disk.
        world.finish().unwrap();
    }
}

/// The number of times that a request is sent again while the server is in its grace period.
const TRIES: usize = 1_000;
