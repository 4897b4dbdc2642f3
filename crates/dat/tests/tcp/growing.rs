//! A peer whose frames change their size from one reply to the next.

use std::io::Write;

use dafs_dat::InterfaceConfig;

use crate::peer::{ANSWER, Scene, send};

#[test]
fn frames_of_any_size_after_any_other_are_put_where_they_belong() {
    let sizes = [100, 1000, 60, 61, 4000, 20, 3000, 1, 700, 90];
    let mut scene = Scene::new(InterfaceConfig::default(), sizes.len() * ANSWER_BYTES);
    let mut image = vec![0; sizes.len() * ANSWER_BYTES];
    for (answer, size) in sizes.into_iter().enumerate() {
        let offset = answer * ANSWER_BYTES;
        scene.expect(offset, ANSWER_BYTES as u32);
        let bytes: Vec<u8> = (0..ANSWER_BYTES).map(|at| (at * 7 + answer) as u8).collect();
        image[offset..offset + ANSWER_BYTES].copy_from_slice(&bytes);
        let mut stream = scene.write(offset, &bytes, size);
        stream.extend(send(answer as u32 + 1, ANSWER));
        // The whole reply arrives before any of it is read.
        scene.socket.write_all(&stream).unwrap();
        scene.assert_received(ANSWER.len() as u32);
        let is = scene.memory.to_vec(0, image.len());
        let wrong = is.iter().zip(&image).position(|(is, must)| is != must);
        assert_eq!(wrong, None, "frames of {size}");
    }
}

const ANSWER_BYTES: usize = 4096;
