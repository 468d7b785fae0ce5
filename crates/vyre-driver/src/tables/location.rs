//! The location of the user's tables: below `$XDG_CONFIG_HOME` or `$XDG_CACHE_HOME`, otherwise
//! below the home folder.
//!
//! A variable that is empty or holds a relative path counts as unset, as the XDG specification
//! requires; otherwise the tables' location would depend on the current folder.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Once;

/// The user folder that holds a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UserFolder {
    /// For data worth a backup.
    Config,
    /// For data that can be measured again.
    Cache,
}

impl UserFolder {
    fn variable(self) -> &'static str {
        match self {
            UserFolder::Config => "XDG_CONFIG_HOME",
            UserFolder::Cache => "XDG_CACHE_HOME",
        }
    }

    fn below_home(self) -> &'static str {
        match self {
            UserFolder::Config => ".config",
            UserFolder::Cache => ".cache",
        }
    }
}

/// The file `vyre/<relative>` in this user folder. `None`, with one warning per process, if the
/// user has no home folder: what is learnt then stays in memory.
pub(crate) fn user_file(home: UserFolder, relative: &str) -> Option<PathBuf> {
    static WARNED: Once = Once::new();
    let folder = folder_by(home, |variable| std::env::var_os(variable));
    if folder.is_none() {
        WARNED.call_once(|| {
            let wanted = home.variable();
            tracing::warn!("neither {wanted} nor HOME is an absolute path; learnt data is not saved");
        });
    }
    Some(folder?.join("vyre").join(relative))
}

fn folder_by(home: UserFolder, lookup: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |variable: &str| lookup(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(home.variable())
        .or_else(|| Some(absolute("HOME")?.join(home.below_home())))
        .or_else(|| Some(absolute("USERPROFILE").filter(|_| cfg!(windows))?.join(home.below_home())))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expected: Option<&str>) {
        let lookup = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        };
        assert_eq!(folder_by(UserFolder::Config, lookup), expected.map(PathBuf::from), "{variables:?}");
    }

    #[test]
    fn only_absolute_folders_count() {
        check(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")], Some("/x"));
        check(&[("HOME", "/h")], Some("/h/.config"));
        check(&[("XDG_CONFIG_HOME", ""), ("HOME", "/h")], Some("/h/.config"));
        check(&[("XDG_CONFIG_HOME", "x/y"), ("HOME", "/h")], Some("/h/.config"));
        check(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")], Some("/h/.config"));
        check(&[("HOME", "")], None);
        check(&[("HOME", "h"), ("USERPROFILE", "/u")], None);
        check(&[], None);
    }
}
