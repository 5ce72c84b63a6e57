//! The algorithm that a backend has for a product of one shape: what it says of it before it is judged, and how records keep that.

use mx_vectors::op::Split;
use mx_vectors::{Call, Op};
use serde::{Deserialize, Serialize};

/// What a backend says beforehand of how it computes a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// How K is split.
    pub split: Split,
    /// The algorithm in the library's own words.
    pub name: Option<String>,
}

impl Default for Algorithm {
    fn default() -> Self {
        Split::NONE.into()
    }
}

impl From<Split> for Algorithm {
    fn from(split: Split) -> Self {
        Self { split, name: None }
    }
}

impl Algorithm {
    /// The same with no more parts than K has tiles: others would be empty, and only widen bounds.
    #[must_use]
    pub fn within(self, k: usize) -> Self {
        let Split { parts, tile } = self.split;
        let tiles = u32::try_from(k).unwrap_or(u32::MAX).div_ceil(tile.max(1)).max(1);
        let split = match parts.clamp(1, tiles) {
            1 => Split::NONE,
            parts => Split { parts, tile: tile.max(1) },
        };
        Self { split, ..self }
    }
}

/// Which algorithm a backend had for which shape of a cell's products.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlgorithmRecord {
    /// M, N and K: rows of A, rows of B, columns of both.
    pub shape: [usize; 3],
    /// Parts of a split K; 1 is none.
    pub parts: u32,
    /// The k of a tile, which parts are whole numbers of.
    pub tile: u32,
    /// The algorithm in the library's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl AlgorithmRecord {
    /// Of a call, if there is anything to say.
    pub fn of(call: &Call, algorithm: Algorithm) -> Option<Self> {
        let shape = shape(call)?;
        let Algorithm { split, name } = algorithm.within(shape[2]);
        (split != Split::NONE || name.is_some()).then_some(Self {
            shape,
            parts: split.parts,
            tile: split.tile,
            name,
        })
    }

    /// The same without words, where K is split: what the right answers of a declared model depend on.
    pub fn split(&self) -> Option<Self> {
        (self.parts > 1).then_some(Self { name: None, ..self.clone() })
    }

    /// The algorithm of a call, given every shape whose K is split.
    pub fn find(splits: &[Self], call: &Call) -> Algorithm {
        let shape = shape(call);
        let found = splits.iter().find(|split| Some(split.shape) == shape);
        found.map_or(Split::NONE, |s| Split { parts: s.parts, tile: s.tile }).into()
    }
}

/// M, N and K of a product.
pub fn shape(call: &Call) -> Option<[usize; 3]> {
    let side = |name: &str| match call.inputs.get(name)?.shape[..] {
        [rows, k] => Some((rows, k)),
        _ => None,
    };
    match (&call.op, side("a_elements"), side("b_elements")) {
        (Op::Gemm(_), Some((m, k)), Some((n, _))) => Some([m, n, k]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case((3, 128), 8192, (3, 128))]
    #[case((0, 128), 8192, (1, 128))]
    #[case((7, 64), 64, (1, 128))]
    #[case((7, 64), 65, (2, 64))]
    #[case((u32::MAX, 512), 4096, (8, 512))]
    #[case((3, 0), 4096, (3, 1))]
    #[case((2, 128), 0, (1, 128))]
    fn no_more_parts_than_tiles(
        #[case] (parts, tile): (u32, u32),
        #[case] k: usize,
        #[case] taken: (u32, u32),
    ) {
        let split = Algorithm::from(Split { parts, tile }).within(k).split;
        assert_eq!((split.parts, split.tile), taken);
    }
}
