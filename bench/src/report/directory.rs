//! Directory of a report's files.

use crate::error::ReproduceError;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Directory with files that a report may replace. Other files in it are not touched.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Creates the directory if it does not exist.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub fn create(path: &Path) -> Result<Self, ReproduceError> {
        fs::create_dir_all(path).map_err(|source| failure("create directory", path, source))?;
        Ok(Directory(path.to_owned()))
    }

    /// Writes or replaces one file and returns its path.
    ///
    /// # Errors
    /// [`ReproduceError::File`].
    pub fn write(
        &self,
        name: &str,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PathBuf, ReproduceError> {
        let path = self.0.join(name);
        let written = File::create(&path).and_then(|file| {
            let mut file = BufWriter::with_capacity(1 << 16, file);
            content(&mut file)?;
            file.flush()
        });
        written.map(|()| path.clone()).map_err(|source| failure("write", &path, source))
    }
}

fn failure(operation: &'static str, path: &Path, source: io::Error) -> ReproduceError {
    ReproduceError::File { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_its_own_files_and_leaves_others() {
        let path = std::env::temp_dir().join(format!("flowgauge-report-{}", std::process::id()));
        let directory = Directory::create(&path.join("new")).unwrap();
        fs::write(path.join("new/other"), "stays").unwrap();
        for text in ["a longer one", "short"] {
            let written = directory.write("file", |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(written).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(path.join("new/other")).unwrap(), "stays");
        let error = Directory::create(&path.join("new/other")).unwrap_err().to_string();
        assert!(error.starts_with("cannot create directory ") && !error.contains('\n'), "{error}");
        fs::remove_dir_all(path).unwrap();
    }
}
