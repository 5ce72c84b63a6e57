//! `mxcert explain`.

use super::args::ExplainArgs;
use super::certify::print;
use super::usage;
use mx_conformance::explain::explain;
use mx_conformance::verdict::Exit;
use mx_reference::Profile;
use mx_vectors::{Float, LANES};

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let words: Vec<&str> = args
        .block
        .iter()
        .flat_map(|text| text.split([',', ' ', '\n']))
        .filter(|word| !word.is_empty())
        .collect();
    let digits = |word: &str| word.trim_start_matches("0x").trim_start_matches("0X").len();
    let float = match args.dtype {
        Some(float) => float,
        None if words.iter().all(|word| digits(word) == 4) => Float::Bf16,
        None if words.iter().all(|word| digits(word) == 8) => Float::F32,
        None => {
            return Err(usage(
                "say what the bits are with --dtype f32|bf16|f16, or write all digits: 8 for f32, 4 for bf16",
            ));
        }
    };
    let mut bits = Vec::new();
    for word in words {
        let plain = word.trim_start_matches("0x").trim_start_matches("0X");
        match u32::from_str_radix(plain, 16) {
            Ok(value) if u64::from(value) < float.format().codes() => bits.push(value),
            _ => {
                let width = float.format().bits / 4;
                let name = float.name();
                return Err(usage(format!(
                    "`{word}` are no {name} bits: up to {width} hexadecimal digits"
                )));
            }
        }
    }
    if bits.is_empty() || bits.len() > 128 {
        return Err(usage("a block holds 1 to 128 elements"));
    }
    let lanes = bits.len().next_power_of_two().max(LANES);
    bits.resize(lanes, 0);
    let (element, mode) = args.profile;
    let profile = Profile { element, mode, convention: args.convention };
    print(&explain(profile, float, &bits))?;
    Ok(Exit::Conformant)
}
