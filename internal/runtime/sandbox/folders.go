package sandbox

import (
	"path/filepath"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/ids"
)

// Folders is where the files of sandboxes are: Root holds a folder a sandbox, for this boot.
type Folders struct{ Root string }

// Dir is a sandbox's folder.
func (f Folders) Dir(id ids.SandboxID) string { return filepath.Join(f.Root, string(id)) }

// namespaces is the folder of the sandbox's pinned namespaces.
func (f Folders) namespaces(id ids.SandboxID) string { return filepath.Join(f.Dir(id), "ns") }

// Namespace is the path of one of the sandbox's namespaces, or empty where it is the node's.
func (f Folders) Namespace(rec *Record, kind ns.Kind) string {
	switch {
	case kind == ns.User && !rec.HasUserNamespace(), kind == ns.IPC && rec.HostIPC(),
		(kind == ns.Network || kind == ns.UTS) && rec.HostNetwork():
		return ""
	}
	return ns.Path(f.namespaces(rec.ID), kind)
}

// Files are the paths of what every container of a sandbox sees of it.
type Files struct{ ResolvConf, Hosts, Hostname, Shm string }

// Files returns the paths of a sandbox's files.
func (f Folders) Files(rec *Record) Files {
	dir := f.Dir(rec.ID)
	if rec.OneTmpfs {
		dir = f.tmpfs(rec)
	}
	files := Files{ResolvConf: filepath.Join(dir, "resolv.conf"), Hosts: filepath.Join(dir, "hosts"),
		Hostname: filepath.Join(dir, "hostname"), Shm: filepath.Join(dir, "shm")}
	if rec.HostIPC() {
		files.Shm = "/dev/shm"
	}
	return files
}

// tmpfs is where the sandbox's tmpfs is mounted.
func (f Folders) tmpfs(rec *Record) string { return filepath.Join(f.Dir(rec.ID), "tmpfs") }
