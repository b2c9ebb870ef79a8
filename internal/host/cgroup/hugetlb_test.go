package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const twoMiB = 2 << 20

// hugeChild is the environment variable that makes the test's binary the process of a cgroup that maps huge pages.
const hugeChild = "MONOPOD_TEST_MAP_HUGE"

// mapHuge waits for a line, maps huge pages, says what went wrong, and gives the exit code.
func mapHuge(pages int) int {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return 3
	}
	if _, err := unix.Mmap(-1, 0, pages*twoMiB, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// hugePages gives the host n free pages of 2 MiB until the test ends, if its memory is not too fragmented for that.
func hugePages(t *testing.T, n int) bool {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	was := read(t, file)
	free := func() int {
		v, err := strconv.Atoi(read(t, "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	have, err := strconv.Atoi(was)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(have+n)), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, []byte(was), 0); err != nil {
			t.Error(err)
		}
	})
	return free() >= n
}

// TestHugepages: pages are limited in whichever hierarchy the host has the controller, and the kernel holds processes to it.
func TestHugepages(t *testing.T) {
	h, root := detect(t)
	if !slices.Contains(h.HugepageSizes(), "2MB") {
		err := h.Set(root, Resources{Hugepages: map[string]uint64{"2MB": twoMiB}})
		if _, cerr := h.Create(root); cerr != nil || !errdefs.IsFailedPrecondition(err) && !errdefs.IsNotFound(err) {
			t.Errorf("%v, %v", cerr, err)
		}
		return
	}
	path := root + "/pod/container"
	for _, p := range []string{root + "/pod", path} {
		if _, err := h.Create(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Set(root+"/pod", Resources{Hugepages: map[string]uint64{"2MB": 4 * twoMiB}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(path, Resources{Hugepages: map[string]uint64{"2MB": twoMiB}}); err != nil {
		t.Fatal(err)
	}
	dir, suffix := h.dirOf("hugetlb", path), ".limit_in_bytes"
	if h.Mode() == V2 || h.SplitHugetlb() {
		suffix = ".max"
	}
	for _, file := range []string{"hugetlb.2MB", "hugetlb.2MB.rsvd"} {
		if got := read(t, dir, file+suffix); got != strconv.Itoa(twoMiB) {
			t.Errorf("%s is %s", file, got)
		}
	}
	if got := read(t, h.dirOf("hugetlb", root+"/pod"), "hugetlb.2MB"+suffix); got != strconv.Itoa(4*twoMiB) {
		t.Errorf("the pod's limit is %s", got)
	}
	if s, err := h.Stats(path, Full); err != nil || len(s.Hugepages) == 0 || s.Hugepages[0].Usage != 0 {
		t.Errorf("stats: %+v, %v", s.Hugepages, err)
	}
	// A size that is not there takes nothing with it.
	if err := h.Set(path, Resources{Hugepages: map[string]uint64{"2MB": 3 * twoMiB, "3MB": 1}}); err == nil || read(t, dir, "hugetlb.2MB"+suffix) != strconv.Itoa(twoMiB) {
		t.Errorf("%v, and the limit is %s", err, read(t, dir, "hugetlb.2MB"+suffix))
	}
	if !hugePages(t, 2) {
		t.Log("this host cannot spare 2 huge pages: the limits are not tried")
		return
	}
	for pages, want := range map[int]string{1: "", 2: "cannot allocate memory"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{hugeChild + "=" + strconv.Itoa(pages)}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		join(t, h, path, cmd.Process.Pid)
		if _, err := stdin.Write([]byte("\n")); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); strings.TrimSpace(out.String()) != want || (err == nil) != (want == "") {
			t.Errorf("%d pages: %q, %v; want %q", pages, out.String(), err, want)
		}
	}
	if err := h.RemoveTree(root); err != nil || exists(filepath.Dir(dir)) {
		t.Error(err)
	}
}
