//! A fingerprint as text.

use super::report::{
    Bits, Fingerprint, Group, Layout, Match, Order, Promotion, Split, Subnormal, SumRounding,
};
use core::fmt::{Display, Formatter, Result};

impl Display for Fingerprint {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut line = |name: &str, value: &dyn Display| writeln!(f, "{name:<17} {value}");
        line("operands", &self.operands)?;
        let asked =
            format!("{} probes in {} products, k up to {}", self.probes, self.products, self.k);
        line("asked", &asked)?;
        if !self.adds {
            line("sums", &"wrong where no accumulation rounds; nothing else can be told")?;
            return write!(f, "{:<17} no model", "matches");
        }
        line("order", &self.order)?;
        line("group", &self.group)?;
        line("fraction bits", &self.fraction_bits)?;
        line("accumulator bits", &self.accumulator_bits)?;
        line("rounding", &self.rounding)?;
        line("promotion", &self.promotion)?;
        line("split", &self.split)?;
        let subnormals = self.subnormals;
        let of = |name: &str, what: Subnormal| format!("{name} {}", what.name());
        line(
            "subnormals",
            &[of("results", subnormals.results), of("A", subnormals.a), of("B", subnormals.b)]
                .join(", "),
        )?;
        let reproduced = match self.reproduced {
            None => "make no model that could be replayed",
            Some(true) => "give every answer when replayed",
            Some(false) => "do NOT give every answer when replayed",
        };
        line("these parameters", &reproduced)?;
        let names: Vec<String> = self.matches.iter().map(Match::to_string).collect();
        let names = if names.is_empty() { "no model".to_owned() } else { names.join(", ") };
        write!(f, "{:<17} {names}", "matches")
    }
}

impl Display for Order {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::InOrder => "in order of k",
            Self::Pairwise => "pairwise, level by level",
            Self::Exact => "none: the exact sum, rounded once",
        })
    }
}

impl Display for Bits {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::None => f.write_str("none: no common alignment"),
            Self::AtLeast(bits) => write!(f, "at least {bits}"),
            Self::Exactly(bits) => write!(f, "{bits}"),
        }
    }
}

impl Display for Group {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Single => f.write_str("products one at a time"),
            Self::AtLeast(length) => write!(f, "at least {length} products in one sum"),
            Self::Fused { length, layout, exact } => {
                write!(f, "{length} products, {layout}")?;
                match exact {
                    Some(exact) => write!(f, ", every {exact} of them summed exactly first"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Display for Layout {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Contiguous => f.write_str("contiguous"),
            Self::Interleaved { period, run } => {
                write!(f, "interleaved: {run} neighbours of every {period}")
            }
        }
    }
}

impl Display for SumRounding {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::NotSeen => "not seen: alignment leaves nothing to round",
            Self::TowardZero => "toward zero",
            Self::NearestEven => "to nearest, ties to even",
            Self::NearestAway => "to nearest, ties away from zero",
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl Display for Promotion {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::None => f.write_str("none"),
            Self::Every { interval, accumulator_bits, rounding } => {
                write!(
                    f,
                    "every {interval} k, to an accumulator of {accumulator_bits} bits, {rounding}"
                )
            }
        }
    }
}

impl Display for Split {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::None => f.write_str("none"),
            Self::Parts(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
                write!(f, "{} parts: {}", lengths.len(), lengths.join(" + "))
            }
        }
    }
}

impl Subnormal {
    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotSeen => "not seen",
            Self::Kept => "kept",
            Self::Flushed => "flushed",
        }
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { model, split, tile } = self;
        match (split, tile) {
            (1, _) => f.write_str(model),
            (_, None) => write!(f, "{model} (split in {split})"),
            (_, Some(tile)) => write!(f, "{model} (split in {split}, whole tiles of {tile} k)"),
        }
    }
}
