package sandbox

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/records"
)

// TestFilesOfOlderVersions: a sandbox that runs while monopod is replaced has its files where the older version has put them.
func TestFilesOfOlderVersions(t *testing.T) {
	f := Folders{Root: "/run/x"}
	of := func(one bool, ipc cri.NamespaceMode) Files {
		cfg := &cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Ipc: ipc}}}}
		return f.Files(&Record{ID: "i", OneTmpfs: one, Stored: records.Proto[*cri.PodSandboxConfig]{Message: cfg}})
	}
	for _, c := range []struct{ got, want Files }{
		{of(false, cri.NamespaceMode_POD), Files{"/run/x/i/resolv.conf", "/run/x/i/hosts", "/run/x/i/hostname", "/run/x/i/shm"}},
		{of(false, cri.NamespaceMode_NODE), Files{"/run/x/i/resolv.conf", "/run/x/i/hosts", "/run/x/i/hostname", "/dev/shm"}},
		{of(true, cri.NamespaceMode_POD), Files{"/run/x/i/tmpfs/resolv.conf", "/run/x/i/tmpfs/hosts", "/run/x/i/tmpfs/hostname", "/run/x/i/tmpfs/shm"}},
		{of(true, cri.NamespaceMode_NODE), Files{"/run/x/i/tmpfs/resolv.conf", "/run/x/i/tmpfs/hosts", "/run/x/i/tmpfs/hostname", "/dev/shm"}},
	} {
		if c.got != c.want {
			t.Errorf("files %+v, want %+v", c.got, c.want)
		}
	}
}
