//! The exchange of tokens between ranks, quantised on the way.

use super::cast::Named;
use super::config::TrainingConfig;
use super::error::TrainingError;
use super::product::Output;
use crate::matrix::Matrix;
use crate::quantize::{Axis, BlockShape, Quantized, dequantize};

/// What one rank receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Rows from each sender, in order of rank: the split sizes of the way back.
    pub splits: Vec<usize>,
    /// The codes and scales that arrive: the rows of the first sender, then of the second, and so on.
    pub quantized: Quantized,
    /// The same, dequantised.
    pub values: Output,
}

/// A quantised all-to-all over simulated ranks: rank s casts its rows, all of one width and type, along the last dimension, sends
/// the next `splits[s][d]` of them with their scales to each rank d in turn, and every receiver dequantises to the output type of the
/// configuration, each product of element and scale rounded once to nearest even. Ranks in simulation are entries of the slices; the
/// backward pass is the same function over the gradients with [`Received::splits`].
///
/// Source: torchao `moe_training/kernels/mxfp8/comms.py`. There the receiver's type is that of the tensors, bf16 in training, and the
/// mode FLOOR; `ep/a2a_dispatch.py` has RCEIL and hands on codes and scales.
///
/// # Errors
/// [`TrainingError::Mismatch`] unless there are ranks × ranks split sizes and all rows have the same width, and
/// [`TrainingError::Splits`] if a rank's do not add up to its rows; [`TrainingError::MixedTypes`], [`TrainingError::Config`], and
/// [`TrainingError::Shape`] if the width is no multiple of 32.
///
/// ```
/// use half::bf16;
/// use mx_reference::MatrixView;
/// use mx_reference::training::{Recipe, all_to_all};
/// let tokens: Vec<bf16> = (0..3 * 32).map(|i| bf16::from_f32((i / 32) as f32)).collect();
/// let rank = MatrixView::contiguous(&tokens, 3, 32)?.into();
/// let received = all_to_all(&Recipe::Mxfp8Rceil.config(), &[rank, rank], &[vec![1, 2], vec![3, 0]])?;
/// assert_eq!((received[0].values.rows, received[1].values.rows), (4, 2));
/// assert_eq!(received[1].values.bits[32], bf16::from_f32(2.0).to_bits().into());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn all_to_all(
    config: &TrainingConfig,
    ranks: &[Matrix<'_>],
    splits: &[Vec<usize>],
) -> Result<Vec<Received>, TrainingError> {
    config.check()?;
    let ranks: Vec<_> = ranks.iter().map(|&tensor| Named { name: "tokens", tensor }).collect();
    check_splits(&ranks, splits)?;
    let Some(first) = ranks.first() else { return Ok(Vec::new()) };
    let width = first.tensor.shape().1;
    let mut sent = Vec::with_capacity(ranks.len());
    for rank in &ranks {
        rank.like(first)?;
        rank.fits(None, Some(width))?;
        sent.push(rank.cast(config, Axis::Row)?);
    }
    (0..ranks.len()).map(|receiver| receive(config, width, &sent, splits, receiver)).collect()
}

fn check_splits(ranks: &[Named<'_>], splits: &[Vec<usize>]) -> Result<(), TrainingError> {
    let count = |side, got| {
        let expected = ranks.len();
        let error = TrainingError::Mismatch { tensor: "splits", side, expected, got };
        if expected == got { Ok(()) } else { Err(error) }
    };
    count("rows", splits.len())?;
    for (rank, (tokens, splits)) in ranks.iter().zip(splits).enumerate() {
        count("columns", splits.len())?;
        let expected = tokens.tensor.shape().0;
        let got = splits.iter().fold(0usize, |sum, &split| sum.saturating_add(split));
        if got != expected {
            return Err(TrainingError::Splits { rank, expected, got });
        }
    }
    Ok(())
}

fn receive(
    config: &TrainingConfig,
    cols: usize,
    sent: &[Quantized],
    splits: &[Vec<usize>],
    receiver: usize,
) -> Result<Received, TrainingError> {
    let scale_cols = cols / BlockShape::MX.cols();
    let (mut elements, mut scales, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (tokens, splits) in sent.iter().zip(splits) {
        let first: usize = splits[..receiver].iter().sum();
        let rows = first..first + splits[receiver];
        elements.extend_from_slice(&tokens.elements[rows.start * cols..rows.end * cols]);
        scales.extend_from_slice(&tokens.scales[rows.start * scale_cols..rows.end * scale_cols]);
        counts.push(rows.len());
    }
    let rows = counts.iter().sum();
    let (format, shape) = (config.output.format(), BlockShape::MX);
    let bits = dequantize(config.element, (rows, cols), shape, &elements, &scales, format)
        .map_err(TrainingError::of("received"))?;
    let quantized = Quantized { rows, cols, elements, scale_rows: rows, scale_cols, scales };
    Ok(Received { splits: counts, quantized, values: Output { rows, cols, format, bits } })
}
