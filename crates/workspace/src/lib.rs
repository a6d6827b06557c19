//! The workspace: what of the host directory the sandbox works on, and how its changes get to the host.
//!
//! [`select`] decides what is copied, [`transfer`] copies it, [`scan`] finds what changed, [`history`] and
//! `restore` restore earlier states, [`changes`] is what the user reviews, [`diff`] shows it and [`apply`] writes it.
//! [`Workspace`] holds them together for one session.

pub mod added;
pub mod apply;
mod attributes;
pub mod bare_repository;
pub mod base;
mod build_files;
pub mod changes;
pub mod commit;
pub mod diff;
pub mod entries;
mod fetch;
mod file_system;
mod formats;
mod git_blob;
pub mod git_config;
mod git_directory;
pub mod git_files;
pub mod git_patch;
pub mod git_settings;
pub mod history;
pub mod home;
pub mod host_changes;
pub mod host_dir;
mod host_watch;
pub mod ignored;
mod ignored_index;
mod inner_commits;
pub mod manifest;
mod merge;
pub mod mode;
pub mod notices;
pub mod outer_repository;
pub mod parts;
mod pending;
mod programs;
mod reconcile;
mod references;
pub mod renames;
mod repository;
pub mod resolution;
mod restore;
mod restored_git;
pub mod retention;
pub mod reviewed;
pub mod risks;
pub mod saved_tree;
pub mod scan;
mod scripts;
pub mod secrets;
pub mod select;
pub mod selection;
mod session;
mod shown;
pub mod store;
mod surroundings;
pub mod symlinks;
pub mod tracked;
pub mod transfer;
pub mod tree_path;
mod userinfo;
mod walk;
mod withheld;

pub use added::AddedDirectory;
pub use changes::ChangeSet;
pub use history::Checkpoint;
pub use inner_commits::InnerCommits;
pub use mode::Mode;
pub use session::{Applied, Merge, Options, Outside, Refreshed, Restored, Workspace, validate};
pub use shown::SinceShown;
pub use transfer::CopyReport;
