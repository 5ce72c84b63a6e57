//! Strided two-dimensional views.

use crate::error::ShapeError;
use crate::format::{BF16, F16, F32, Format};
use crate::number::Number;

/// An input type: f32, bf16 or f16, taken as raw bits.
pub trait Input: Copy + Send + Sync {
    /// The format of its bits.
    const FORMAT: Format;

    /// The bits.
    fn bits(self) -> u32;

    /// A view of this type as a view of any.
    fn any(view: MatrixView<'_, Self>) -> Matrix<'_>;

    /// The value taken apart.
    #[inline]
    fn number(self) -> Number {
        Self::FORMAT.decode(self.bits())
    }
}

macro_rules! inputs {
    ($($type:ty: $format:ident $variant:ident),*) => {$(
        impl Input for $type {
            const FORMAT: Format = $format;
            #[inline]
            fn bits(self) -> u32 {
                self.to_bits().into()
            }
            fn any(view: MatrixView<'_, Self>) -> Matrix<'_> {
                Matrix::$variant(view)
            }
        }
    )*};
}
inputs!(f32: F32 F32, half::bf16: BF16 Bf16, half::f16: F16 F16);

/// A view of `rows` × `cols` elements: element (r, c) is `data[offset + r × row_stride + c × col_stride]`, strides in elements.
///
/// ```
/// use mx_reference::MatrixView;
/// let data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let x = MatrixView::contiguous(&data, 2, 3)?;
/// assert_eq!(x.transposed().at(2, 1), 6.0);
/// assert_eq!(MatrixView::new(&data, 0, 2, 2, 3, 2)?.at(1, 1), 6.0); // every second column
/// assert!(MatrixView::new(&data, 0, 2, 3, 4, 1).is_err()); // reaches past the end
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MatrixView<'a, T> {
    data: &'a [T],
    offset: usize,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, T: Copy> MatrixView<'a, T> {
    /// A view with explicit strides.
    ///
    /// # Errors
    /// [`ShapeError::View`] if any element lies outside `data`.
    pub fn new(
        data: &'a [T],
        offset: usize,
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Result<Self, ShapeError> {
        if rows > 0 && cols > 0 {
            let last = (rows - 1)
                .checked_mul(row_stride)
                .zip((cols - 1).checked_mul(col_stride))
                .and_then(|(r, c)| r.checked_add(c)?.checked_add(offset))
                .unwrap_or(usize::MAX);
            if last >= data.len() {
                return Err(ShapeError::View { needed: last, available: data.len() });
            }
        }
        Ok(Self { data, offset, rows, cols, row_stride, col_stride })
    }

    /// A row-major view that fills `data` exactly.
    ///
    /// # Errors
    /// [`ShapeError::View`] unless `data` holds exactly `rows × cols` elements.
    pub fn contiguous(data: &'a [T], rows: usize, cols: usize) -> Result<Self, ShapeError> {
        match rows.checked_mul(cols) {
            Some(n) if n == data.len() => Self::new(data, 0, rows, cols, cols, 1),
            n => Err(ShapeError::View { needed: n.unwrap_or(usize::MAX), available: data.len() }),
        }
    }

    /// Number of rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub const fn cols(&self) -> usize {
        self.cols
    }

    /// The same elements with rows and columns exchanged.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// Row `r` as a slice where its elements lie side by side.
    ///
    /// # Panics
    /// If `r` is out of range.
    #[inline]
    pub fn row(&self, r: usize) -> Option<&'a [T]> {
        assert!(r < self.rows, "row {r} of {}", self.rows);
        if self.cols == 0 {
            return Some(&[]);
        }
        let start = self.offset + r * self.row_stride;
        (self.col_stride == 1 || self.cols == 1).then(|| &self.data[start..start + self.cols])
    }

    /// Element (r, c).
    ///
    /// # Panics
    /// If it is out of range.
    #[inline]
    pub fn at(&self, r: usize, c: usize) -> T {
        assert!(r < self.rows && c < self.cols, "({r}, {c}) of {} × {}", self.rows, self.cols);
        self.data[self.offset + r * self.row_stride + c * self.col_stride]
    }
}

/// A view of any of the input types.
#[derive(Clone, Copy, Debug)]
pub enum Matrix<'a> {
    /// Of f32.
    F32(MatrixView<'a, f32>),
    /// Of bf16.
    Bf16(MatrixView<'a, half::bf16>),
    /// Of f16.
    F16(MatrixView<'a, half::f16>),
}

impl Matrix<'_> {
    /// Rows and columns.
    pub const fn shape(&self) -> (usize, usize) {
        match self {
            Self::F32(view) => (view.rows(), view.cols()),
            Self::Bf16(view) => (view.rows(), view.cols()),
            Self::F16(view) => (view.rows(), view.cols()),
        }
    }
}

impl<'a, T: Input> From<MatrixView<'a, T>> for Matrix<'a> {
    fn from(view: MatrixView<'a, T>) -> Self {
        T::any(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_view_without_columns_are_empty() {
        let view = MatrixView::<f32>::new(&[], 0, 3, 0, 5, 1).unwrap();
        assert_eq!(view.row(1), Some(&[][..]));
    }

    #[test]
    fn strides_that_overflow_are_refused() {
        let view = MatrixView::new(&[0.0f32; 4], 0, 3, 2, usize::MAX, 1);
        assert!(matches!(view, Err(ShapeError::View { .. })));
        assert!(MatrixView::contiguous(&[0.0f32; 4], usize::MAX, 2).is_err());
    }
}
