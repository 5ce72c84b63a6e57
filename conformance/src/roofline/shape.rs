//! Shapes of linear layers.

use serde::Serialize;

/// A linear layer: M tokens of K features in, N out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Rows of the input.
    pub m: u32,
    /// Columns of the input.
    pub k: u32,
    /// Columns of the output.
    pub n: u32,
}

/// A text that is no shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// More or fewer than three dimensions.
    #[error(
        "`{text}` has {got} dimension(s); expected three, M,K,N or MxKxN, such as 4096,4096,14336"
    )]
    Count {
        /// The text.
        text: String,
        /// How many.
        got: usize,
    },
    /// A dimension that is none.
    #[error(
        "{name} of `{text}` is `{got}`; expected a whole number from 1 to {}, as in 4096,4096,14336",
        Shape::MAX
    )]
    Dimension {
        /// The text.
        text: String,
        /// Which dimension.
        name: char,
        /// What it is.
        got: String,
    },
}

impl Shape {
    /// The largest dimension that [`Shape::parse`] takes.
    pub const MAX: u32 = 1 << 24;

    /// Squares from 1024 to 16384.
    pub const SQUARES: [Self; 5] = [
        Self::square(1 << 10),
        Self::square(1 << 11),
        Self::square(1 << 12),
        Self::square(1 << 13),
        Self::square(1 << 14),
    ];

    /// All three dimensions the same.
    pub const fn square(size: u32) -> Self {
        Self { m: size, k: size, n: size }
    }

    /// The shape of `M,K,N` or `MxKxN`.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn parse(text: &str) -> Result<Self, ShapeError> {
        let separator = if text.contains(',') { ',' } else { 'x' };
        let parts: Vec<_> = text.split(separator).map(str::trim).collect();
        let &[m, k, n] = &parts[..] else {
            return Err(ShapeError::Count { text: text.to_owned(), got: parts.len() });
        };
        let dimension = |name, digits: &str| {
            // A sign would parse.
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let size = digits.parse().ok().filter(|size| plain && (1..=Self::MAX).contains(size));
            size.ok_or_else(|| ShapeError::Dimension {
                text: text.to_owned(),
                name,
                got: digits.to_owned(),
            })
        };
        Ok(Self { m: dimension('M', m)?, k: dimension('K', k)?, n: dimension('N', n)? })
    }
}
