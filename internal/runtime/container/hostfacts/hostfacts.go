// Package hostfacts finds what this host can do for containers: capabilities, security modules with their profiles and labels, user
// namespaces, and the OCI runtimes of other handlers.
package hostfacts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/private"
	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/ocispec"
)

// Facts are what this host can do for containers. They do not change while the process runs.
type Facts struct {
	Hostname string
	Spec     ocispec.Host
	Runtimes map[string]Runtime // the OCI runtimes by handler, but for the native one
}

// Probe looks at the host. dataDir is where the layers of images and of containers lie; it is made when it is missing. The error
// is FailedPrecondition when labels demands what the host has not.
func Probe(ctx context.Context, cg *cgroup.Host, dataDir string, labels SELinuxMode, log *slog.Logger) (Facts, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return Facts{}, err
	}
	caps, err := boundingSet()
	if err != nil {
		return Facts{}, err
	}
	h := Facts{Hostname: hostname, Spec: ocispec.Host{
		Capabilities: caps, CgroupV2: cg.Mode() == cgroup.V2, SwapLimit: cg.HasSwapLimit(), HugepageSizes: cg.HugepageSizes(),
		AppArmor:          isYes("/sys/module/apparmor/parameters/enabled"),
		RecursiveReadOnly: mount.RecursiveReadOnly(),
	}}
	if h.Spec.AppArmor {
		if h.Spec.AppArmorDefault, err = loadDefaultProfile(ctx); err != nil {
			log.Warn("the default AppArmor profile could not be loaded; containers that name no profile go without", "error", err)
		}
	}
	if h.Spec.SELinux, h.Spec.NoSELinux, err = probeSELinux(labels, log); err != nil {
		return Facts{}, err
	}
	h.Spec.SELinuxUnfit = h.Spec.SELinux == nil && labels != SELinuxDisabled && selinux.Enabled()
	if err := private.Dir(dataDir); err != nil {
		return Facts{}, err
	}
	h.Spec.NoUserNamespaces = probeUserNamespaces(dataDir)
	if !slices.Contains(caps, "CAP_SYS_RESOURCE") {
		// Without it a process cannot lower the score that it inherits (proc_pid_oom_score_adj(5)).
		score, err := ownOOMScore()
		if err != nil {
			return Facts{}, err
		}
		h.Spec.MinOOMScoreAdj = &score
	}
	return h, nil
}

// boundingSet lists the capabilities that a child of this process can get at most.
func boundingSet() ([]string, error) {
	var caps []string
	for _, c := range capability.ListKnown() {
		set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			continue // the kernel does not know it
		}
		if err != nil {
			return nil, fmt.Errorf("read the capability bounding set: %w", err)
		}
		if set == 1 {
			caps = append(caps, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return caps, nil
}

func ownOOMScore() (score int, err error) {
	raw, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(raw), &score)
	return score, err
}

func isYes(path string) bool {
	raw, err := os.ReadFile(path)
	return err == nil && len(raw) > 0 && raw[0] == 'Y'
}

// probeUserNamespaces says why pods cannot have user namespaces here; empty: they can. It tries it in the directory that holds the
// layers of images.
func probeUserNamespaces(dir string) string {
	const first = 1 << 16 // what it is does not matter: nothing of it stays
	one := []ns.IDMap{{HostID: first, Length: first}}
	err := ns.WithUser(ns.Mappings{UIDs: one, GIDs: one}, func(userns *os.File) error { return mount.TryIDMapped(dir, userns, first) })
	if err != nil {
		// Whatever it is: it is no reason to serve nobody.
		return strings.TrimSuffix(err.Error(), ": "+errdefs.ErrFailedPrecondition.Error())
	}
	return ""
}
