package executor_test

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
)

// Huge pages are limited in whichever hierarchy has the controller, however the container is started.
func TestHugepages(t *testing.T) {
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	dir, file := host.Paths("/")["hugetlb"], "hugetlb.2MB.limit_in_bytes"
	if dir == "" {
		dir, file = host.Paths("/")[""], "hugetlb.2MB.max"
	}
	with := func(s *specs.Spec) {
		limited(s)
		s.Linux.Resources.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 * mib}}
	}
	for _, way := range []string{"spawned", "libcontainer", "runc"} {
		t.Run(way, func(t *testing.T) {
			if way == "libcontainer" {
				t.Setenv("MONOPOD_ONLY_LIBCONTAINER", "1")
			}
			n := newNode(t)
			req := n.bundle("a", with, "sleep", "1000")
			if way == "runc" {
				req = n.oci("a", with, "sleep", "1000")
			}
			if !slices.Contains(host.HugepageSizes(), "2MB") {
				if _, err := n.c.Create(n.ctx(), req); err == nil {
					t.Error("limits without the controller are none, and the container was made")
				}
				return
			}
			n.start(req)
			limits := func() string {
				at := filepath.Join(dir, n.cgroup, "a")
				return strings.TrimSpace(readFile(filepath.Join(at, file))) + " " + strings.TrimSpace(readFile(filepath.Join(at, strings.Replace(file, "2MB", "2MB.rsvd", 1))))
			}
			want := func(mb int) {
				t.Helper()
				if bytes := strconv.Itoa(mb * mib); limits() != bytes+" "+bytes {
					t.Errorf("limits %q, want %s", limits(), bytes)
				}
			}
			want(4)
			n.killWorker()
			n.update("a", specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 6 * mib}}})
			want(6)
			n.update("a", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(int64(96 * mib))}})
			want(6)
			// All or nothing: the memory's limit is refused after that of the pages.
			err := n.c.Update(n.ctx(), protocol.UpdateRequest{ID: "a", Resources: &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4000"},
				HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 8 * mib}}}})
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("a processor that is not there: %v, want InvalidArgument", err)
			}
			want(6)
		})
	}
}
