//! Memory in pieces that begin and end anywhere, with gaps that must not be written.

use lnet_region::{Fragment, IoVec, MAX_FRAGMENTS, Region};

use crate::random::Random;

/// The maximum gap between fragments in bytes. It shows a shift by any alignment; larger gaps would
/// only use memory.
const GAP_MAX: usize = 7;

/// A buffer whose shape derives from a seed.
pub(crate) struct Scattered {
    /// The buffer.
    pub(crate) memory: IoVec,
    /// The gaps between its pieces: zeros.
    gaps: IoVec,
}

impl Scattered {
    /// Creates memory that holds `content`, in up to `fragments` fragments.
    pub(crate) fn new(content: &[u8], fragments: usize, seed: u64) -> Result<Scattered, String> {
        let fragments = fragments.clamp(1, MAX_FRAGMENTS).min(content.len().max(1));
        let mut random = Random::new(seed);
        let mut cuts: Vec<usize> = (1..fragments).map(|_| 1 + random.up_to(content.len() - 2)).collect();
        cuts.push(content.len().max(1));
        cuts.sort_unstable();
        cuts.dedup();
        let region = Region::heap(content.len() + (GAP_MAX + 1) * cuts.len() + 1).map_err(text)?;
        let (mut pieces, mut gaps) = (Vec::new(), Vec::new());
        let (mut at, mut done) = (0, 0);
        for cut in cuts {
            let gap = 1 + random.up_to(GAP_MAX - 1);
            gaps.push(Fragment::new(region.clone(), at, gap).map_err(text)?);
            pieces.push(Fragment::new(region.clone(), at + gap, cut - done).map_err(text)?);
            at += gap + cut - done;
            done = cut;
        }
        let memory = IoVec::new(pieces).and_then(|memory| memory.trimmed(content.len())).map_err(text)?;
        memory.write(0..content.len()).map_err(text)?.copy_from(0, content);
        Ok(Scattered { memory, gaps: IoVec::new(gaps).map_err(text)? })
    }

    /// Checks that the memory has exactly this content, and that the gaps were not written.
    pub(crate) fn check(&self, expected: &[u8]) -> Result<(), String> {
        let bytes = |vec: &IoVec| Ok::<_, String>(vec.read(0..vec.len()).map_err(text)?.to_vec());
        let content = bytes(&self.memory)?;
        if let Some(at) = content.iter().zip(expected).position(|(byte, wanted)| byte != wanted) {
            return Err(format!(
                "byte {at} of {} is {:#x}, not {:#x}",
                content.len(),
                content[at],
                expected[at]
            ));
        }
        match bytes(&self.gaps)?.iter().position(|byte| *byte != 0) {
            Some(at) => Err(format!("byte {at} between the fragments was touched")),
            None => Ok(()),
        }
    }
}

fn text(error: lnet_region::RegionError) -> String {
    error.to_string()
}
