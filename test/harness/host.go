package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// Place is what one test instance of Monopod may use of the host. Whatever is found there after the instance has ended was
// left behind.
type Place struct {
	// Dirs: no mount, no process with one of them in its arguments, no pinned namespace, no unix socket.
	Dirs []string
	// CgroupRoot: no such cgroup in any hierarchy.
	CgroupRoot string
	// Bridge: no such link, no nftables table of that name.
	Bridge string
}

// CheckHost fails the test, after all other clean-ups that are registered later, when something of the place is left,
// or when the host has a link, an nftables table or a network namespace that it did not have at the time of the call.
func CheckHost(t testing.TB, p Place) {
	t.Helper()
	before := inventory(t)
	t.Cleanup(func() {
		var left []string
		for thing := range inventory(t) {
			if !before[thing] && (exclusive() || p.Bridge != "" && strings.Contains(thing, p.Bridge)) {
				left = append(left, thing)
			}
		}
		tell(t, append(left, Leftovers(t, p)...))
	})
}

// CheckPlace is CheckHost for what makes no links, tables or network namespaces, and may run beside tests that do.
func CheckPlace(t testing.TB, p Place) {
	t.Helper()
	t.Cleanup(func() { tell(t, Leftovers(t, p)) })
}

func tell(t testing.TB, left []string) {
	sort.Strings(left)
	for _, l := range left {
		t.Errorf("left behind on the host: %s", l)
	}
}

// exclusive says that nobody else changes this host's links and tables while the tests run. CI says so; on a machine
// that several people test on at once only things of one's own place are counted.
func exclusive() bool { return os.Getenv("CI") == "true" }

// inventory lists what a node makes outside of its own directories and cgroups.
func inventory(t testing.TB) map[string]bool {
	t.Helper()
	things := map[string]bool{}
	links, err := netlink.LinkList()
	for errors.Is(err, netlink.ErrDumpInterrupted) { // a link came or went meanwhile: the kernel says to ask again
		links, err = netlink.LinkList()
	}
	if err != nil {
		t.Fatalf("list links: %v", err)
	}
	for _, l := range links {
		things["link "+l.Attrs().Name] = true
	}
	// The other links' go with them.
	own, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := own.Addrs()
	if err != nil {
		t.Fatalf("list addresses of lo: %v", err)
	}
	for _, a := range addresses {
		things["address "+a.String()+" of lo"] = true
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatalf("nftables: %v", err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Fatalf("list nftables tables: %v", err)
	}
	for _, tab := range tables {
		things[fmt.Sprintf("nftables table %s (family %d)", tab.Name, tab.Family)] = true
	}
	for _, m := range mounts(t) {
		if m.fsType == "nsfs" {
			things["pinned namespace "+m.root+" at "+m.point] = true
		}
	}
	return things
}

// Leftovers lists what is on the host of a place now.
func Leftovers(t testing.TB, p Place) []string {
	t.Helper()
	var left []string
	for _, m := range mounts(t) {
		if under(m.point, p.Dirs) {
			left = append(left, "mount "+m.point)
		}
	}
	left = append(left, processes(p)...)
	left = append(left, cgroups(p.CgroupRoot)...)
	return left
}

func under(path string, dirs []string) bool {
	for _, d := range dirs {
		if d != "" && (path == d || strings.HasPrefix(path, d+"/")) {
			return true
		}
	}
	return false
}

type mountPoint struct{ root, point, fsType string }

// mounts reads /proc/self/mountinfo (proc_pid_mountinfo(5)).
func mounts(t testing.TB) []mountPoint {
	t.Helper()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []mountPoint
	for sc := bufio.NewScanner(f); sc.Scan(); {
		left, right, _ := strings.Cut(sc.Text(), " - ")
		fields := strings.Fields(left)
		if len(fields) < 5 {
			continue
		}
		fsType, _, _ := strings.Cut(right, " ")
		all = append(all, mountPoint{root: fields[3], point: fields[4], fsType: fsType})
	}
	return all
}

// processes lists the processes that belong to the place by their cgroup or by their arguments.
func processes(p Place) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if d == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		args, err := os.ReadFile(d + "/cmdline")
		if err != nil {
			continue // it has ended meanwhile
		}
		cmdline := strings.TrimRight(strings.ReplaceAll(string(args), "\x00", " "), " ")
		groups, _ := os.ReadFile(d + "/cgroup")
		mine := p.CgroupRoot != "" && (strings.Contains(string(groups), ":"+p.CgroupRoot+"/") || strings.Contains(string(groups), ":"+p.CgroupRoot+"\n"))
		for _, dir := range p.Dirs {
			mine = mine || dir != "" && strings.Contains(cmdline, dir+"/")
		}
		if mine && !orphanedZombie(d) {
			left = append(left, fmt.Sprintf("process %s %q", filepath.Base(d), cmdline))
		}
	}
	return left
}

// orphanedZombie says that a process has ended and that the first process of the host, whose child it became, has not looked
// yet: nobody else can make it go.
func orphanedZombie(dir string) bool {
	raw, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return true // it has gone meanwhile
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return strings.HasPrefix(rest, "Z 1 ")
}

// cgroups lists the hierarchies, v1 and v2, in which the root exists.
func cgroups(root string) []string {
	if root == "" {
		return nil
	}
	var left []string
	candidates, _ := filepath.Glob("/sys/fs/cgroup/*" + root)
	for _, dir := range append(candidates, "/sys/fs/cgroup"+root) {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				left = append(left, "cgroup "+path)
			}
			return nil
		})
	}
	return left
}
