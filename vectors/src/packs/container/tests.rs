use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn sample() -> Tensors {
    Tensors::from([
        (
            "input".to_owned(),
            Tensor { shape: vec![2, 1], data: Data::U32(vec![0x7f80_0001, 0x8000_0000]) },
        ),
        ("half".to_owned(), Tensor { shape: vec![3], data: Data::U16(vec![0xffc1, 0, 1]) }),
        ("codes".to_owned(), Tensor::u8([3, 1], vec![1, 2, 3])),
        ("none".to_owned(), Tensor::u8([0, 32], vec![])),
    ])
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// A file of this header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    write(&path, &sample(), Some("{}")).unwrap();
    let loaded = read(&path).unwrap();
    assert_eq!(loaded.tensors, sample());
    assert_eq!(loaded.metadata.as_deref(), Some("{}"));
    assert_eq!(fs::read(&path).unwrap(), to_bytes(&sample(), Some("{}")).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_ne!(mode & 0o044, 0, "others may read it, as far as the umask lets them");
    }
}

#[test]
#[expect(clippy::disallowed_types, reason = "a parameter of the crate under comparison")]
fn bytes_are_those_of_the_safetensors_crate() {
    let views: BTreeMap<_, _> = sample()
        .into_iter()
        .map(|(name, tensor)| {
            let of = TensorRef::from(&tensor);
            (name, (of.dtype, of.shape.to_vec(), of.bytes.to_vec()))
        })
        .collect();
    let views = views.iter().map(|(name, (dtype, shape, bytes))| {
        (name, safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let metadata = std::collections::HashMap::from([(METADATA_KEY.to_owned(), "{}".to_owned())]);
    let theirs = safetensors::serialize(views, Some(metadata)).unwrap();
    let ours = to_bytes(&sample(), Some("{}")).unwrap();
    assert_eq!(ours, theirs);
    assert!(8 < ours.len() && u64::from_le_bytes(ours[..8].try_into().unwrap()).is_multiple_of(8));
}

#[test]
fn typed_tensors_are_raw_bits_and_keep_their_type() {
    let header = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]},"c":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[6,8]},"d":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},"__metadata__":{"format":"pt"}}"#;
    let (_folder, path) = written(&file(header, 16));
    let mut file = open(&path).unwrap();
    assert_eq!(file.dtype("b"), Some(Dtype::BF16));
    assert_eq!(file.metadata(), None);
    assert_eq!(file.load("a").unwrap().data, Data::U32(vec![0]));
    assert_eq!(file.load("b").unwrap().data, Data::U16(vec![0]));
    assert_eq!(file.load("c").unwrap().data, Data::U8(vec![0; 2]));
    assert!(matches!(file.load("d").unwrap_err().problem, Problem::Type { dtype: Dtype::F64, .. }));
    let missing = file.load("e").unwrap_err();
    assert!(missing.to_string().ends_with("tensor `e` is missing; the file has: a, b, c, d"));
}

#[rstest]
#[case::empty(vec![], "has 0 bytes")]
#[case::cut_in_length(vec![1; 7], "has 7 bytes")]
#[case::huge_header(u64::MAX.to_le_bytes().to_vec(), "announce a header of 18446744073709551615 bytes, 0 follow")]
#[case::cut_in_header(file("{}", 0)[..9].to_vec(), "announce a header of 2 bytes, 1 follow")]
#[case::no_json(file("nonsense", 0), "not that of a safetensors file")]
#[case::not_utf8(b"\x04\0\0\0\0\0\0\0{\"\xff\"".to_vec(), "not that of a safetensors file")]
#[case::deep(file(&"[".repeat(100_000), 0), "not that of a safetensors file")]
#[case::gap(
    file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#, 2),
    "`a` starts at byte 1 of the data, expected 0"
)]
#[case::overlap(
    file(r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#, 3),
    "`b` starts at byte 1 of the data, expected 2"
)]
#[case::reversed(
    file(r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}}"#, 2),
    "`b`: U8 [2] needs 2 bytes, got 0"
)]
#[case::wrong_length(
    file(r#"{"a":{"dtype":"U16","shape":[2,3],"data_offsets":[0,10]}}"#, 10),
    "`a`: U16 [2, 3] needs 12 bytes, got 10"
)]
#[case::shape_overflow(
    file(r#"{"a":{"dtype":"U32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#, 0),
    "needs no whole number of bytes, got 0"
)]
#[case::half_a_byte(
    file(r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#, 1),
    "needs no whole number of bytes"
)]
#[case::offset_overflow(
    file(r#"{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]},"b":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}}"#, 1),
    "needs no whole number of bytes, got 18446744073709551615"
)]
#[case::cut_in_data(
    file(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, 3),
    "describes 4 bytes of data, the file has 3"
)]
#[case::enormous(
    file(r#"{"a":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}}"#, 3),
    "describes 1099511627776 bytes of data, the file has 3"
)]
#[case::twice(
    file(r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#, 0),
    "tensor `a` comes twice"
)]
#[case::unknown_type(
    file(r#"{"a":{"dtype":"U7","shape":[0],"data_offsets":[0,0]}}"#, 0),
    "unknown variant `U7`"
)]
#[case::negative(
    file(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}"#, 0),
    "invalid value: integer `-1`"
)]
fn hostile_files_say_what_is_wrong(#[case] bytes: Vec<u8>, #[case] message: &str) {
    let (_folder, path) = written(&bytes);
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn a_header_beyond_the_limit_is_not_read() {
    let (_folder, path) = written(&200_000_000u64.to_le_bytes());
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
    assert!(matches!(open(&path).unwrap_err().problem, Problem::HeaderLimit { got: 200_000_000 }));
}

#[test]
fn tensors_that_do_not_fill_their_shape_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    fs::write(&path, "old").unwrap();
    let short = Tensors::from([("a".to_owned(), Tensor::u8([2, 2], vec![0; 3]))]);
    let error = write(&path, &short, None).unwrap_err().to_string();
    assert!(error.ends_with("`a`: U8 [2, 2] needs 4 bytes, got 3"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let reserved = Tensors::from([("__metadata__".to_owned(), Tensor::u8([0], vec![]))]);
    assert!(matches!(to_bytes(&reserved, None), Err(Problem::Reserved)));
    assert!(write("/nowhere/at/all.safetensors", &sample(), None).is_err());
}

/// Reads a file of these bytes; whatever is accepted must be whole.
fn survives(bytes: &[u8]) {
    let (_folder, path) = written(bytes);
    if let Ok(loaded) = read(&path) {
        for tensor in loaded.tensors.values() {
            assert_eq!(tensor.shape.iter().product::<usize>(), tensor.data.len());
        }
    }
}

proptest! {
    #[test]
    fn flipped_bits_never_panic(flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4)) {
        let mut bytes = to_bytes(&sample(), Some("{}")).unwrap();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for (at, bit) in flips {
            bytes[at.index(header)] ^= 1 << bit;
        }
        survives(&bytes);
    }

    #[test]
    fn cut_files_are_refused(at in any::<prop::sample::Index>()) {
        let bytes = to_bytes(&sample(), Some("{}")).unwrap();
        let (_folder, path) = written(&bytes[..at.index(bytes.len())]);
        prop_assert!(read(&path).is_err());
    }

    #[test]
    fn arbitrary_offsets_and_shapes_never_panic(
        shape in proptest::collection::vec(any::<u64>(), 0..4),
        offsets in (any::<u64>(), any::<u64>()),
        data in 0usize..64,
    ) {
        let header = format!(r#"{{"a":{{"dtype":"U16","shape":{shape:?},"data_offsets":[{},{}]}}}}"#, offsets.0, offsets.1);
        survives(&file(&header, data));
    }
}

#[test]
fn every_single_bit_of_the_header_may_flip() {
    let bytes = to_bytes(&sample(), Some("{}")).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for bit in 0..header * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        survives(&bytes);
    }
}
