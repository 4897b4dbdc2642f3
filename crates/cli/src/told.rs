//! Failures that were told where they happened.

/// Something has failed, and was told: nothing is left to say but the exit status.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("something has failed; see above")]
pub struct Told;

/// Tells what has failed, unless nobody hears what else there is to say. Returns whether something
/// has.
pub fn told(done: anyhow::Result<()>) -> anyhow::Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if crate::is_broken_pipe(&error) => Err(error),
        Err(error) => {
            if !error.is::<Told>() {
                eprintln!("dafs: {}", crate::shown::complaint(&error));
            }
            Ok(true)
        }
    }
}
