//! [`Nodes`]: the files and directories of a disk, by number, and the two trees of their names.
//!
//! The trees share the nodes: the first one is that of the names now, which processes see; the
//! other one that of the names on the disk. Paths lead through the first.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::calls::{Error, Meta, Result};
use super::journal::Change;
use super::sectors::Data;

pub(crate) const ROOT: u32 = 0;

/// NAME_MAX of Linux's file systems.
const LONGEST_NAME: usize = 255;

#[derive(Debug)]
pub(crate) enum Node {
    File(Data),
    /// The names now, and those on the disk.
    Dir([BTreeMap<OsString, u32>; 2]),
}

/// The two trees, as indexes: the names now, and those on the disk.
pub(crate) const NOW: usize = 0;
pub(crate) const SYNCED: usize = 1;

#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: BTreeMap<u32, Node>,
    /// Those that have had a name, and have none now.
    pub(crate) unnamed: BTreeSet<u32>,
    /// The number of the next node.
    next: u32,
}

/// Refuses a path with a zero byte: for the system a path is a C string, which ends at the first
/// one.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        Err(Error::InvalidInput)
    } else {
        Ok(())
    }
}

impl Nodes {
    /// Creates the root.
    pub(crate) fn new() -> Nodes {
        Nodes {
            all: BTreeMap::from([(ROOT, Node::Dir(Default::default()))]),
            unnamed: BTreeSet::new(),
            next: ROOT + 1,
        }
    }

    /// Adds a node, which has no name yet. Returns its number.
    pub(crate) fn add(&mut self, node: Node) -> u32 {
        let number = self.next;
        self.next += 1;
        self.all.insert(number, node);
        number
    }

    pub(crate) fn names(&self, dir: u32, when: usize) -> Result<&BTreeMap<OsString, u32>> {
        match self.all.get(&dir) {
            Some(Node::Dir(names)) => Ok(&names[when]),
            _ => Err(Error::NotADirectory),
        }
    }

    fn names_mut(&mut self, dir: u32, when: usize) -> Option<&mut BTreeMap<OsString, u32>> {
        match self.all.get_mut(&dir) {
            Some(Node::Dir(names)) => Some(&mut names[when]),
            _ => None,
        }
    }

    pub(crate) fn is_dir(&self, node: u32) -> bool {
        matches!(self.all.get(&node), Some(Node::Dir(_)))
    }

    pub(crate) fn look_up(&self, dir: u32, name: &OsStr) -> Result<Option<u32>> {
        let found = self.names(dir, NOW)?.get(name).copied();
        if name.len() > LONGEST_NAME {
            Err(Error::NameTooLong)
        } else {
            Ok(found)
        }
    }

    /// Returns the directories along a path, from the root on, and its last name, which is `None`
    /// if the path ends with the root or `..`.
    pub(crate) fn walk<'a>(&self, path: &'a Path) -> Result<(Vec<u32>, Option<&'a OsStr>)> {
        if path.as_os_str().is_empty() {
            return Err(Error::NotFound);
        }
        check_path(path)?;
        let (mut dirs, mut last) = (vec![ROOT], None);
        for component in path.components() {
            if let Some(name) = last.take() {
                let dir = *dirs.last().expect("the root");
                let node = self.look_up(dir, name)?.ok_or(Error::NotFound)?;
                if !self.is_dir(node) {
                    return Err(Error::NotADirectory);
                }
                dirs.push(node);
            }
            match component {
                Component::Normal(name) => last = Some(name),
                Component::ParentDir if dirs.len() > 1 => drop(dirs.pop()),
                Component::ParentDir | Component::CurDir | Component::RootDir => {}
                Component::Prefix(_) => return Err(Error::InvalidInput),
            }
        }
        Ok((dirs, last))
    }

    pub(crate) fn find(&self, path: &Path) -> Result<u32> {
        let (dirs, name) = self.walk(path)?;
        let dir = *dirs.last().expect("the root");
        match name {
            Some(name) => self.look_up(dir, name)?.ok_or(Error::NotFound),
            None => Ok(dir),
        }
    }

    /// Returns the directory and the last name of a path; fails with `or` if there is no last name.
    pub(crate) fn place<'a>(&self, path: &'a Path, or: Error) -> Result<(u32, &'a OsStr)> {
        let (dirs, name) = self.walk(path)?;
        Ok((*dirs.last().expect("the root"), name.ok_or(or)?))
    }

    /// Returns a node's current path by a search, which only reports and `canonicalize` do.
    pub(crate) fn path_of(&self, node: u32) -> PathBuf {
        let mut dirs = vec![(ROOT, PathBuf::from("/"))];
        while let Some((dir, path)) = dirs.pop() {
            if dir == node {
                return path;
            }
            for (name, inner) in self.names(dir, NOW).into_iter().flatten() {
                dirs.push((*inner, path.join(name)));
            }
        }
        "a file that was removed".into()
    }

    /// Applies a change of names to one of the trees.
    pub(crate) fn apply(&mut self, change: &Change, when: usize) {
        let mut gone = [None, None];
        if let Some((dir, name)) = &change.from {
            let names = self.names_mut(*dir, when);
            gone[0] = names.and_then(|names| names.remove(name));
        }
        if let Some((dir, name, node)) = &change.to {
            let names = self.names_mut(*dir, when);
            gone[1] = names.and_then(|names| names.insert(name.clone(), *node));
        }
        if when == NOW {
            self.unnamed.extend(gone.into_iter().flatten());
            if let Some((_, _, node)) = &change.to {
                self.unnamed.remove(node);
            }
        }
    }

    /// Makes the names on the disk those that processes see, at a power failure. Nothing is open
    /// then, so what has no name is not seen any more.
    pub(crate) fn forget_unsynced(&mut self) {
        self.unnamed.clear();
        for node in self.all.values_mut() {
            if let Node::Dir(names) = node {
                names[NOW] = names[SYNCED].clone();
            }
        }
    }

    pub(crate) fn meta_of(&self, node: u32) -> Meta {
        let (len, sectors) = match self.all.get(&node) {
            Some(Node::File(data)) => (data.len(), data.sectors()),
            _ => (0, 0),
        };
        Meta {
            len,
            is_dir: self.is_dir(node),
            number: node,
            links: (!self.unnamed.contains(&node)).into(),
            sectors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_through_directories_and_back() {
        let mut nodes = Nodes::new();
        let mut add = |dir: u32, name: &str, node| {
            let number = nodes.add(node);
            let to = Some((dir, OsString::from(name), number));
            let change = Change {
                number: 1,
                from: None,
                to,
                is_barrier: false,
            };
            nodes.apply(&change, NOW);
            number
        };
        let dir = add(ROOT, "a", Node::Dir(Default::default()));
        let file = add(dir, "b", Node::File(Data::default()));
        let find = |path: &str| nodes.find(path.as_ref());
        let paths = ["/", "/a", "a/b", "/a/../a/./b", "/../a/b"].map(find);
        assert_eq!(paths, [Ok(ROOT), Ok(dir), Ok(file), Ok(file), Ok(file)]);
        assert_eq!(find("/a/c"), Err(Error::NotFound));
        assert_eq!(find("/a/b/c"), Err(Error::NotADirectory));
        assert_eq!(find("/a\0b"), Err(Error::InvalidInput));
        assert_eq!(find(&"x".repeat(256)), Err(Error::NameTooLong));
        assert_eq!(nodes.path_of(file), PathBuf::from("/a/b"));
        nodes.forget_unsynced();
        assert_eq!(nodes.find("/a".as_ref()), Err(Error::NotFound));
    }
}
