// Package quota holds directories to sizes by the quotas of their file system, and tells what they take: projects of ext4 and xfs, quota groups of btrfs.
//
// It switches nothing on, and remembers nothing. A quota holds programs that write too much, and not those that mean to get around it: the owner of a file may give
// it another project, but in a user namespace; who may write to a subvolume may make another one in it.
package quota

// Kind is how a file system counts what a directory takes.
type Kind string

// The kinds.
const (
	None    Kind = ""
	Project Kind = "project" // ext4, xfs: the directory is a project of its own
	Group   Kind = "qgroup"  // btrfs: the directory is a subvolume with a quota group
)

// Of is what the file system of a directory has that is switched on, so that a new directory in it can be held to a size.
func Of(dir string) Kind {
	switch {
	case hasProjects(dir):
		return Project
	case hasGroups(dir):
		return Group
	}
	return None
}

// Used is what a directory takes, in bytes; and its files, where the file system counts them.
type Used struct{ Bytes, Inodes uint64 }
