//! Files that are there whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use tempfile::Builder;

/// Writes a file beside its place and moves it there: readers never see half of it, and a failure leaves what was there.
pub(super) fn write<E: From<io::Error>>(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Moving a file there would replace a device, a pipe or a link by it.
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        let what = "there is something that is no regular file; name another output";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what).into());
    }
    let mut builder = Builder::new();
    builder.prefix(".mxcert-");
    // Temporary files are private by default; this one becomes an ordinary file, under the caller's umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file.as_file_mut());
    content(&mut writer)?;
    writer.flush()?;
    drop(writer);
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
