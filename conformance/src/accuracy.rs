//! How accurate a backend's products are: reported, never judged by.

use mx_reference::gemm::Gemm as Product;
use mx_reference::{Format, Number, Overflow, Rounding};
use mx_vectors::answer::product;
use mx_vectors::op::{Gemm, Test};
use mx_vectors::{Call, Float, Op, Tensors};
use serde::{Deserialize, Serialize};

/// Errors of products on the data of level G3, against the exact sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accuracy {
    /// Finite outputs that were looked at.
    pub outputs: u64,
    /// How many of them are the exact sum, correctly rounded.
    pub correctly_rounded: u64,
    /// The largest error in units of the last place of the output; 0.5 is what rounding alone may cost.
    pub max_ulps: f64,
    /// The sum of signed errors in the same units: its mean is the bias.
    pub sum_ulps: f64,
    /// The sum of squares of the exact values.
    pub signal: f64,
    /// The sum of squares of the errors.
    pub noise: f64,
}

impl Accuracy {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        self.outputs += other.outputs;
        self.correctly_rounded += other.correctly_rounded;
        self.max_ulps = self.max_ulps.max(other.max_ulps);
        self.sum_ulps += other.sum_ulps;
        self.signal += other.signal;
        self.noise += other.noise;
    }

    /// The share of outputs that are correctly rounded.
    pub fn share(&self) -> f64 {
        self.correctly_rounded as f64 / self.outputs.max(1) as f64
    }

    /// The mean signed error in units of the last place.
    pub fn bias(&self) -> f64 {
        self.sum_ulps / self.outputs.max(1) as f64
    }

    /// The signal-to-quantisation-noise ratio in decibels; infinite without noise.
    pub fn sqnr(&self) -> f64 {
        10.0 * (self.signal / self.noise).log10()
    }

    /// The errors of one answer, if the call is a product on the data of level G3. `expected` are the exact sums, correctly
    /// rounded.
    pub fn of(call: &Call, expected: &Tensors, got: &Tensors) -> Option<Self> {
        let Op::Gemm(g @ Gemm { test: Test::Bounded, .. }) = &call.op else { return None };
        let product = product(g, &call.inputs).ok()?;
        let (right, came) = (&expected["output"].data, &got["output"].data);
        let rounded: Vec<u32> = (0..right.len()).map(|i| right.get(i)).collect();
        let rests = rests(g, &product, &rounded)?;
        let format = g.output.format();
        let mut accuracy = Self::default();
        for (i, (&bits, rest)) in rounded.iter().zip(rests).enumerate() {
            let (near, have) = (value(format, bits), value(format, came.get(i)));
            if !near.is_finite() || !have.is_finite() || !rest.is_finite() {
                continue;
            }
            let error = (have - near) - rest;
            let ulps = error / ulp(format, bits);
            accuracy.outputs += 1;
            accuracy.correctly_rounded += u64::from(bits == came.get(i));
            accuracy.max_ulps = accuracy.max_ulps.max(ulps.abs());
            accuracy.sum_ulps += ulps;
            accuracy.signal += (near + rest) * (near + rest);
            accuracy.noise += error * error;
        }
        Some(accuracy)
    }
}

/// What rounding took off each exact sum: the product again, less its rounded self, exactly.
fn rests(g: &Gemm, exact: &Product<'_>, rounded: &[u32]) -> Option<Vec<f64>> {
    let (f32, format) = (Float::F32.format(), g.output.format());
    let less: Vec<u32> = rounded
        .iter()
        .map(|&bits| {
            let x = format.decode(bits);
            let negated = Number { negative: !x.negative, ..x };
            f32.encode(negated, Rounding::NearestEven, Overflow::Propagate)
        })
        .collect();
    let [a, b] = exact.operands().map(|&operand| operand);
    let rest = Product::new(exact.shape(), a, b, Some(&less), exact.tensor_scales()).ok()?;
    Some(mx_native::gemm(&rest, f32).into_iter().map(|bits| f32::from_bits(bits).into()).collect())
}

fn value(format: &Format, bits: u32) -> f64 {
    let f32 = Float::F32.format();
    let wide = f32.encode(format.decode(bits), Rounding::NearestEven, Overflow::Propagate);
    f32::from_bits(wide).into()
}

/// The distance from a number to the next of larger magnitude, as a double.
fn ulp(format: &Format, bits: u32) -> f64 {
    let magnitude = bits & !format.sign_bit();
    let below = magnitude - u32::from(magnitude == format.max_code());
    value(format, below + 1) - value(format, below)
}
