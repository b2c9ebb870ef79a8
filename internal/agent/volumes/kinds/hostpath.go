package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// makeFile makes an empty file where there is nothing. What is there is not opened: to open a pipe waits for its other end, to open a device acts.
func makeFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|unix.O_NONBLOCK, 0o644) // should a pipe have been made meanwhile
	if err != nil {
		return err
	}
	return f.Close()
}

// hostPath is a path of the host.
type hostPath struct{ ofOthers }

// Setup implements Kind.
func (hostPath) Setup(_ context.Context, v *Volume) error { return checkHostPath(v.Spec.HostPath) }

// Mount implements Kind.
func (hostPath) Mount(v *Volume) (Source, error) { return Source{Path: v.Spec.HostPath.Path}, nil }

// Facts implements Kind.
func (hostPath) Facts() Facts { return Facts{} }

// wordOf is what a kubelet calls what a type demands, in events that people and tests look for.
var wordOf = map[v1.HostPathType]string{
	v1.HostPathDirectory: "directory", v1.HostPathDirectoryOrCreate: "directory", v1.HostPathFile: "file", v1.HostPathFileOrCreate: "file",
	v1.HostPathSocket: "socket", v1.HostPathCharDev: "character device", v1.HostPathBlockDev: "block device",
}

// checkHostPath checks, or makes, what the volume's type demands.
func checkHostPath(src *v1.HostPathVolumeSource) error {
	kind := v1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	switch kind {
	case v1.HostPathUnset:
		// What is not there becomes a directory, as with containerd and CRI-O, which make it themselves: manifests count on it. CRI's words are that a
		// runtime refuses such a path, which ours does.
		if _, err := os.Stat(src.Path); !errors.Is(err, fs.ErrNotExist) {
			return nil // other faults are the runtime's to tell
		}
		if err := os.MkdirAll(src.Path, 0o755); err != nil {
			return fmt.Errorf("hostPath %s: %w", src.Path, err)
		}
		return nil
	case v1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(src.Path, 0o755); err != nil {
			return fmt.Errorf("hostPath %s, type %s: %w", src.Path, kind, err)
		}
	case v1.HostPathFileOrCreate:
		if err := makeFile(src.Path); err != nil {
			return fmt.Errorf("hostPath %s, type %s: %w", src.Path, kind, err)
		}
	}
	info, err := os.Stat(src.Path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %s is not a %s: %w", src.Path, wordOf[kind], err)
	}
	var ok bool
	switch mode := info.Mode(); kind {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok = mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok = mode.IsRegular()
	case v1.HostPathSocket:
		ok = mode&os.ModeSocket != 0
	case v1.HostPathCharDev:
		ok = mode&os.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		ok = mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0
	default:
		return fmt.Errorf("hostPath %s: unknown type %q", src.Path, kind)
	}
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s is not a %s: it has mode %s", src.Path, wordOf[kind], info.Mode())
	}
	return nil
}
