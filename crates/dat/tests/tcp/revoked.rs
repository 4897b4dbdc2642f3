//! Memory for an expected write that a message invalidates before the write arrives.

use std::io::Write;

use dafs_dat::{BreakReason, CompletionStatus, Event, InterfaceConfig};

use crate::peer::{ANSWER, Scene, send};

#[test]
fn a_foretold_write_behind_an_invalidation_is_refused() {
    const LENGTH: usize = 512;
    for invalidates in [false, true] {
        let mut scene = Scene::new(InterfaceConfig::default(), 4096);
        scene.expect(0, LENGTH as u32);
        scene.expect(LENGTH, LENGTH as u32);
        let mut first = send(1, ANSWER);
        if invalidates {
            // The opcode of Send with Invalidate.
            first[3] = 0x44;
            first[4..8].copy_from_slice(&scene.region.stag.0.to_be_bytes());
        }
        // Sent at once, so that one call receives both, by one plan.
        let stream = [
            scene.write(0, &[7; LENGTH], LENGTH),
            first,
            scene.write(LENGTH, &[8; LENGTH], LENGTH),
            send(2, ANSWER),
        ];
        scene.socket.write_all(&stream.concat()).unwrap();
        scene.assert_received(ANSWER.len() as u32);
        if invalidates {
            let flushed = scene.next();
            let is_flushed = matches!(&flushed, Event::Completion(done)
                if done.status == CompletionStatus::Flushed);
            assert!(is_flushed, "{flushed:?}");
            let event = scene.next();
            let is_told = matches!(&event, Event::Broken { reason, .. }
                if matches!(reason, BreakReason::PeerViolation(_)));
            assert!(is_told, "{event:?}");
        } else {
            scene.assert_received(ANSWER.len() as u32);
            assert_eq!(scene.memory.to_vec(0, LENGTH), [7; LENGTH]);
            assert_eq!(scene.memory.to_vec(LENGTH, LENGTH), [8; LENGTH]);
        }
    }
}
