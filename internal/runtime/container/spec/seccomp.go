package spec

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/kernel"
	"monopod.dev/monopod/internal/ocispec"
)

// withoutX32 takes the x32 ABI out of a profile. Hardly a kernel has it switched on, nobody builds images for it, and the filter is
// made anew at each start of a container and of each command in it: a third ABI costs about 8 ms every time. Its calls
// are denied, as those of any ABI that a filter does not name.
func withoutX32(profile *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	if profile != nil {
		profile.Architectures = slices.DeleteFunc(profile.Architectures, func(a specs.Arch) bool { return a == specs.ArchX32 })
	}
	return profile
}

// maxSeccompFile bounds a seccomp profile, in bytes.
const maxSeccompFile = 4 << 20

func (m *Maker) loadSeccomp(path string, sc *cri.LinuxContainerSecurityContext) (*specs.LinuxSeccomp, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a named pipe must not hold the creation up
	if err != nil {
		return nil, fmt.Errorf("seccomp profile (localhost_ref): %w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("seccomp profile (localhost_ref) %s is no regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSeccompFile))
	if err != nil {
		return nil, fmt.Errorf("seccomp profile (localhost_ref) %s: %w", path, err)
	}
	caps, _, err := ocispec.Capabilities(sc, m.cfg.Host.Spec.Capabilities)
	if err != nil {
		return nil, err
	}
	runs, err := kernel.Release()
	if err != nil {
		return nil, err
	}
	profile, err := ocispec.LoadSeccomp(raw, ocispec.SeccompFacts{
		Arch: runtime.GOARCH, Kernel: runs, Capabilities: caps.Bounding,
	})
	if err != nil {
		return nil, fmt.Errorf("seccomp profile (localhost_ref) %s: %w", path, err)
	}
	return profile, nil
}
