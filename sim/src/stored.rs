//! Where the measured cost model is kept, and reading and writing it.
//!
//! The file is `$STEALTIME_COSTS` if that is set, else `stealtime/costs.json` in the user's
//! configuration directory (`$XDG_CONFIG_HOME`, or `.config` in `$HOME`).

use crate::cost::{CostModel, InvalidCosts};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The environment variable that names the file.
pub const VARIABLE: &str = "STEALTIME_COSTS";

/// A stored cost model that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CostsError {
    /// There is no place for it.
    #[error("no place for a cost model: set {VARIABLE}, XDG_CONFIG_HOME or HOME")]
    NoPlace,
    /// The file cannot be read.
    #[error("cannot read the cost model {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no cost model, or not one of this version.
    #[error(
        "{} is not a cost model of this version (an older one may have stored it); store a new one with \
         `stealtime doctor --calibrate`, or remove it",
        path.display()
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The model cannot be used.
    #[error("{} holds a cost model that cannot be used", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why.
        source: InvalidCosts,
    },
    /// The file cannot be written.
    #[error("cannot store the cost model in {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The file in which the cost model is kept, and whether it was named by the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// By [`VARIABLE`]: then it must exist to be read.
    Named(PathBuf),
    /// In the configuration directory: it may not be there.
    Usual(PathBuf),
}

impl Place {
    /// The place for this process.
    ///
    /// # Errors
    /// If the environment names none.
    pub fn of_environment() -> Result<Self, CostsError> {
        Self::found(|name| env::var_os(name)).ok_or(CostsError::NoPlace)
    }

    fn found(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        if let Some(path) = set(VARIABLE) {
            return Some(Self::Named(path.into()));
        }
        // By the XDG base directory specification a relative path there counts as not set.
        let config = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")))?;
        Some(Self::Usual(config.join("stealtime").join("costs.json")))
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::Usual(path) => path,
        }
    }
}

impl CostModel {
    /// The model stored for this machine if there is one, else [`CostModel::bare_hardware`].
    ///
    /// # Errors
    /// If there is a file that may be read but not a usable model in it, or if [`VARIABLE`] names a file that is not
    /// there: a model that was asked for is never replaced by another.
    pub fn stored_or_default() -> Result<Self, CostsError> {
        match Place::of_environment() {
            Ok(place) => Self::at(&place),
            Err(_) => Ok(Self::bare_hardware()),
        }
    }

    /// The same for a given place.
    ///
    /// # Errors
    /// As for [`CostModel::stored_or_default`].
    pub fn at(place: &Place) -> Result<Self, CostsError> {
        Self::or_default(place, Self::load(place.path()))
    }

    /// What came of reading a place, or the built-in model where that is as good as nothing.
    fn or_default(place: &Place, loaded: Result<Self, CostsError>) -> Result<Self, CostsError> {
        match (place, loaded) {
            // Somebody else's configuration directory is as good as none.
            (Place::Usual(_), Err(CostsError::Read { source, .. }))
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                ) =>
            {
                Ok(Self::bare_hardware())
            }
            (_, loaded) => loaded,
        }
    }

    /// Reads a model from a file.
    ///
    /// # Errors
    /// If it cannot be read, is no cost model, or one that cannot be used.
    pub fn load(path: &Path) -> Result<Self, CostsError> {
        let path_buf = || path.to_owned();
        let text = fs::read(path).map_err(|source| CostsError::Read {
            path: path_buf(),
            source,
        })?;
        let model: Self = serde_json::from_slice(&text).map_err(|source| CostsError::Parse {
            path: path_buf(),
            source,
        })?;
        model.check().map_err(|source| CostsError::Invalid {
            path: path_buf(),
            source,
        })?;
        Ok(model)
    }

    /// Writes the model to a file, making its directory. The file is replaced as a whole or not at
    /// all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store(&self, path: &Path) -> Result<(), CostsError> {
        let write = || -> io::Result<()> {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            let mut text = serde_json::to_string_pretty(self)?;
            text.push('\n');
            let mut beside = path.as_os_str().to_owned();
            beside.push(".new");
            fs::write(&beside, text)?;
            fs::rename(&beside, path)
        };
        write().map_err(|source| CostsError::Write {
            path: path.to_owned(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(set: &[(&str, &str)]) -> Option<Place> {
        Place::found(|name| {
            let value = set.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_variable_comes_before_the_configuration_directory_and_that_before_home() {
        let usual = |path: &str| Some(Place::Usual(path.into()));
        let all = [(VARIABLE, "/c"), ("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(found(&all), Some(Place::Named("/c".into())));
        assert_eq!(found(&all[1..]), usual("/x/stealtime/costs.json"));
        assert_eq!(found(&all[2..]), usual("/h/.config/stealtime/costs.json"));
        let relative = [("XDG_CONFIG_HOME", "x"), ("HOME", "/h")];
        assert_eq!(found(&relative), usual("/h/.config/stealtime/costs.json"));
        assert_eq!(found(&[(VARIABLE, "")]), None);
    }

    #[test]
    fn a_stored_model_is_read_back_and_a_missing_one_counts_only_where_none_was_named() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("deep/costs.json");
        assert_eq!(
            CostModel::at(&Place::Usual(path.clone())).expect("the default"),
            CostModel::bare_hardware()
        );
        let missing = CostModel::at(&Place::Named(path.clone()));
        assert!(matches!(missing, Err(CostsError::Read { .. })));
        let model = CostModel {
            name: "measured".into(),
            ..CostModel::free()
        };
        model.store(&path).expect("a fresh directory");
        assert_eq!(CostModel::load(&path).expect("just stored"), model);
    }

    #[test]
    fn a_usual_file_that_may_not_be_read_is_as_good_as_none_and_a_named_one_is_an_error() {
        // Made up, because nothing is unreadable to root.
        let failed = |kind: io::ErrorKind| {
            Err(CostsError::Read {
                path: "/h/costs.json".into(),
                source: kind.into(),
            })
        };
        let (usual, named) = (Place::Usual("/h".into()), Place::Named("/h".into()));
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(
            CostModel::or_default(&usual, failed(denied)).expect("the default"),
            CostModel::bare_hardware()
        );
        assert!(CostModel::or_default(&named, failed(denied)).is_err());
        let broken_disk = failed(io::ErrorKind::InvalidData);
        assert!(CostModel::or_default(&usual, broken_disk).is_err());
    }

    #[test]
    fn a_file_that_is_no_usable_model_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("costs.json");
        fs::write(&path, "{\"name\": 3}").expect("a fresh directory");
        let error = CostModel::at(&Place::Usual(path.clone())).expect_err("no model");
        assert!(matches!(error, CostsError::Parse { .. }));
        assert!(error.to_string().contains("costs.json"), "{error}");
        for field in ["timer_spread_ns", "interference"] {
            let mut older = serde_json::to_value(CostModel::free()).expect("JSON");
            let fields = older.as_object_mut().expect("an object");
            assert!(fields.remove(field).is_some());
            fs::write(&path, older.to_string()).expect("a fresh directory");
            let error = CostModel::load(&path).expect_err("a field is missing");
            assert!(error.to_string().contains("older"), "{error}");
            let why = std::error::Error::source(&error).map(ToString::to_string);
            assert!(why.is_some_and(|why| why.contains(field)));
        }
        let free_ops = CostModel {
            op: stealtime_scheduler::time::Nanos::ZERO,
            ..CostModel::free()
        };
        free_ops.store(&path).expect("a fresh directory");
        assert!(matches!(
            CostModel::load(&path),
            Err(CostsError::Invalid { .. })
        ));
    }
}
