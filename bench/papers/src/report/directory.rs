//! Directory of a report's files.

use crate::error::ReproduceError;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes or replaces one file of a directory, which is created if it does not exist, and returns
/// its path. Other files in the directory are not touched.
///
/// # Errors
/// [`ReproduceError::File`].
pub fn write_file(directory: &Path, name: &str, text: &str) -> Result<PathBuf, ReproduceError> {
    let failure = |operation, path: &Path, source| ReproduceError::File {
        operation,
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(directory)
        .map_err(|source| failure("create directory", directory, source))?;
    let path = directory.join(name);
    fs::write(&path, text).map_err(|source| failure("write", &path, source))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_its_own_files_and_leaves_others() {
        let path = std::env::temp_dir().join(format!("flowgauge-report-{}", std::process::id()));
        let directory = path.join("new");
        write_file(&directory, "other", "stays").unwrap();
        for text in ["a longer one", "short"] {
            let written = write_file(&directory, "file", text).unwrap();
            assert_eq!(fs::read_to_string(written).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(directory.join("other")).unwrap(), "stays");
        let error = write_file(&directory.join("other"), "file", "").unwrap_err().to_string();
        assert!(error.starts_with("cannot create directory ") && !error.contains('\n'), "{error}");
        fs::remove_dir_all(path).unwrap();
    }
}
