package volumes

import (
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
)

// hostPath checks, or makes, what a hostPath volume's type demands.
func hostPath(src *v1.HostPathVolumeSource) error {
	kind := v1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	switch kind {
	case v1.HostPathUnset:
		return nil
	case v1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(src.Path, 0o755); err != nil {
			return fmt.Errorf("hostPath %s, type %s: %w", src.Path, kind, err)
		}
	case v1.HostPathFileOrCreate:
		f, err := os.OpenFile(src.Path, os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("hostPath %s, type %s: %w", src.Path, kind, err)
		}
		f.Close()
	}
	info, err := os.Stat(src.Path)
	if err != nil {
		return fmt.Errorf("hostPath %s, type %s: %w", src.Path, kind, err)
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
		return fmt.Errorf("hostPath %s is not a %s: it has mode %s", src.Path, kind, info.Mode())
	}
	return nil
}
