package executor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

// What is looked up in a container: mount points, working directories, programs, homes.

// hostileRoot is a root file system with links on the way.
func hostileRoot(t *testing.T, n *node) (root, outside string) {
	t.Helper()
	root, outside = filepath.Join(n.dir, "base", "root"), filepath.Join(n.dir, "base", "outside")
	for _, dir := range []string{root + "/dir/sub", root + "/bin", root + "/proc", root + "/dev", root + "/tmp", root + "/sys", root + "/etc", outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"up": "../../outside", "abs": outside, "top": "/", "in": "/dir/sub", "loop": "loop", "dangling": "/nowhere/at/all",
		"magic": "/proc/self/root/dir", "chain": "chain2", "chain2": "etc/../etc/../../made", "made": "./etc//made/by/links/.", "below-file": "/file/x",
		"dir/back": "../../../run/x", "etc/resolv.conf": "../run/systemd/resolve/stub-resolv.conf", "nowhere-root": "/none/../.", "long": "l1", "cwd": "/made/cwd/of/image", "etc/device": "../opt/nodes/device"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	// Each of them leads to the next one, and more than a kernel follows.
	for i := 1; i <= 45; i++ {
		if err := os.Symlink(fmt.Sprint("l", i+1), filepath.Join(root, fmt.Sprint("l", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(rootfs, "bin/busybox"), root+"/bin/busybox"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("busybox", root+"/bin/sh"); err != nil {
		t.Fatal(err)
	}
	return root, outside
}

// Nothing that lies in a root leads mounts, or the working directory, out of it.
func TestMountPointsStayInside(t *testing.T) {
	n := newNode(t)
	root, outside := hostileRoot(t, n)
	file := filepath.Join(n.dir, "source")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name string
		file bool
		want string // where it lies in the root; empty: refused
	}{
		{name: "/new/deep/er", want: "new/deep/er"}, {name: "/../../x", want: "x"}, {name: "/in/below", want: "dir/sub/below"}, {name: "/top/t", want: "t"},
		// Links lead to where the root is the container's, and what is missing there is made.
		{name: "/up/u", want: "outside/u"}, {name: "/abs/a", want: "tmp"} /* in its tmpfs */, {name: "/dangling", want: "nowhere/at/all"},
		{name: "/chain", want: "etc/made/by/links"}, {name: "/chain/further", want: "etc/made/by/links/further"}, {name: "/dir/back/up", want: "run/x/up"},
		{name: "/loop/l"}, {name: "/loop"}, {name: "/long"}, {name: "/file/f"}, {name: "/below-file"}, {name: "/file"}, {name: "/top"}, {name: "/"},
		{name: "/some/file", file: true, want: "some/file"}, {name: "/in/file", file: true, want: "dir/sub/file"}, {name: "/file", file: true, want: "file"},
		{name: "/etc/resolv.conf", file: true, want: "run/systemd/resolve/stub-resolv.conf"}, {name: "/up/f", file: true, want: "outside/f"},
		{name: "/nowhere-root", file: true}, {name: "/loop", file: true}, {name: "/below-file", file: true},
	} {
		id := ids.ContainerID(fmt.Sprint("c", i))
		m := specs.Mount{Destination: c.name, Type: "tmpfs", Source: "tmpfs"}
		if c.file {
			m = specs.Mount{Destination: c.name, Type: "bind", Source: file, Options: []string{"bind"}}
		}
		req := n.bundle(id, func(s *specs.Spec) {
			s.Root = &specs.Root{Path: root}
			s.Mounts = append(s.Mounts, m)
		}, "sh", "-c", "exit 0")
		_, err := n.c.Create(n.ctx(), req)
		if (err == nil) != (c.want != "") {
			t.Errorf("a mount at %s: %v, want it at %q", c.name, err, c.want)
			continue
		}
		if err != nil {
			continue
		}
		if _, err := os.Lstat(filepath.Join(root, c.want)); err != nil {
			t.Errorf("a mount at %s: %v", c.name, err)
		}
		if err := n.c.Delete(n.ctx(), id); err != nil {
			t.Error(err)
		}
	}
	for i, c := range []struct{ cwd, fault string }{
		{"/dir/made/here", ""}, {"/in/made", ""}, {"/up/x", ""}, {"/cwd", ""}, {"/loop", "/loop"}, {"/file", "/file"}, {"/proc/self/fd/4", "/proc/self/fd/4"},
		{"/magic", "/magic"}, {"/proc/1/cwd", "/proc/1/cwd"},
	} {
		id := ids.ContainerID(fmt.Sprint("d", i))
		_, err := n.c.Create(n.ctx(), n.bundle(id, func(s *specs.Spec) {
			s.Root = &specs.Root{Path: root}
			s.Process.Cwd = c.cwd
		}, "sh", "-c", "exit 0"))
		if err == nil {
			_, err = n.c.Start(n.ctx(), id)
			n.exit(id)
			n.c.Delete(n.ctx(), id)
		}
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("working directory %s: %v, want an error with %q", c.cwd, err, c.fault)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("made outside: %v (%v)", left, err)
	}
}

// How a program is found, and what is said of one that cannot be executed.
func TestPrograms(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.dir, "programs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"yes": 0o755, "no": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho ran $0\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	n.start(n.bundle("a", func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp/p", Type: "bind", Source: dir, Options: []string{"bind"}})
	}, "sleep", "1000"))
	for i, c := range []struct{ name, out, fault string }{
		{name: "yes", out: "ran /tmp/p/yes"}, {name: "no", fault: `exec: "no": executable file not found in $PATH`},
		{name: "missing", fault: `exec: "missing": executable file not found in $PATH`}, {name: "", fault: "executable file not found in $PATH"},
		{name: "/tmp/p/yes", out: "ran /tmp/p/yes"}, {name: "/tmp/p/no", fault: `exec: "/tmp/p/no": permission denied`},
		{name: "/tmp/p/none", fault: `exec: "/tmp/p/none": no such file or directory`}, {name: "/tmp/p", fault: `exec: "/tmp/p": is a directory`},
		{name: "./yes", out: "ran ./yes"}, {name: "./none", fault: "./none"},
	} {
		out, _, err := n.outputOf(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: ids.ExecID(fmt.Sprint("x", i)), Stdout: true,
			Process: &specs.Process{Args: []string{c.name}, Cwd: "/tmp/p", Env: []string{"PATH=:relative:/none:/tmp/p:"}, Capabilities: &specs.LinuxCapabilities{}}})
		switch {
		case c.fault == "" && (err != nil || strings.TrimSpace(out) != c.out):
			t.Errorf("%q: %q, %v, want %q", c.name, out, err, c.out)
		case c.fault != "" && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%q: %v, want an invalid argument: %s", c.name, err, c.fault)
		}
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
}

// The program is looked up with the rights of its user: what only root finds is passed over, and what only others may execute is not started.
func TestProgramsOfUsers(t *testing.T) {
	for _, way := range []string{"", "1"} {
		t.Setenv("MONOPOD_ONLY_LIBCONTAINER", way)
		n := newNode(t)
		base := filepath.Join(n.dir, "programs")
		for name, f := range map[string]struct {
			dir, file os.FileMode
			uid, gid  int
		}{"closed/tool": {0o700, 0o755, 0, 0}, "open/tool": {0o755, 0o755, 0, 0}, "theirs/script": {0o755, 0o754, 0, 0}, "group/script": {0o755, 0o754, 7, 3000},
			"mine/tool": {0o750, 0o755, 0, 3000}, "nobody/tool": {0o755, 0o644, 0, 0}} {
			path := filepath.Join(base, name)
			if err := errors.Join(os.MkdirAll(base, 0o755), os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\necho $0\n"), f.file), os.Chown(path, f.uid, f.gid),
				os.Chown(filepath.Dir(path), f.uid, f.gid), os.Chmod(filepath.Dir(path), f.dir), os.Chmod(path, f.file)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Mkdir(base+"/dir", 0o755), os.Mkdir(base+"/dir/tool", 0o755), os.Mkdir(base+"/pipe", 0o755), unix.Mkfifo(base+"/pipe/tool", 0o777)); err != nil {
			t.Fatal(err)
		}
		programs := specs.Mount{Destination: "/tmp", Type: "bind", Source: base, Options: []string{"bind"}}
		n.start(n.bundle("a", func(s *specs.Spec) { s.Mounts = append(s.Mounts, programs) }, "sleep", "1000"))
		user, override := specs.User{UID: 1000, GID: 1000}, []string{"CAP_DAC_OVERRIDE"}
		for i, c := range []struct {
			name, path string
			user       specs.User
			caps       specs.LinuxCapabilities
			out, fault string
			first      bool // tried as a container's first process, too
		}{
			{name: "tool", path: "/tmp/closed:/tmp/dir:/tmp/nobody:/tmp/open", user: user, out: "/tmp/open/tool", first: true},
			{name: "tool", path: "/tmp/closed", user: user, fault: `exec: "tool": executable file not found in $PATH`, first: true},
			{name: "tool", path: "/tmp/mine:/tmp/open", user: specs.User{UID: 1000, GID: 3000}, out: "/tmp/mine/tool"},
			{name: "tool", path: "/tmp/mine:/tmp/open", user: specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{5, 3000}}, out: "/tmp/mine/tool"},
			{name: "/tmp/theirs/script", user: user, fault: `exec: "/tmp/theirs/script": permission denied`, first: true},
			{name: "/tmp/closed/tool", user: user, fault: `permission denied`},
			{name: "/tmp/group/script", user: specs.User{UID: 1000, GID: 3000}, out: "/tmp/group/script"},
			{name: "tool", path: "/tmp/closed", user: user, out: "/tmp/closed/tool",
				caps: specs.LinuxCapabilities{Bounding: override, Permitted: override, Effective: override, Inheritable: override, Ambient: override}},
			// Root without the right to pass over rights is a user like others, of group 0.
			{name: "script", path: "/tmp/group:/tmp/theirs", out: "/tmp/theirs/script"},
		} {
			p := &specs.Process{Args: []string{c.name}, Cwd: "/", User: c.user, Env: []string{"PATH=" + c.path}, Capabilities: &c.caps}
			out, _, err := n.outputOf(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: ids.ExecID(fmt.Sprint("x", i)), Stdout: true, Process: p})
			if c.fault == "" && (err != nil || strings.TrimSpace(out) != c.out) || c.fault != "" && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("libcontainer %q: %q in %q: %q, %v, want %q, %q", way, c.name, c.path, out, err, c.out, c.fault)
			}
			if !c.first {
				continue
			}
			first := *p
			id := ids.ContainerID(fmt.Sprint("b", i))
			req := n.bundle(id, func(s *specs.Spec) { s.Mounts, s.Process = append(s.Mounts, programs), &first })
			if _, err := n.c.Create(n.ctx(), req); err != nil {
				t.Fatal(err)
			}
			_, err = n.c.Start(n.ctx(), id)
			exit := n.exit(id)
			if c.fault == "" && (err != nil || exit.Code != 0 || !slices.Equal(texts(readLog(t, req.LogPath)), []string{c.out})) ||
				c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || exit.Code != 128 || exit.Reason != protocol.ReasonStartError) {
				t.Errorf("libcontainer %q: first process %q in %q: %v, %+v, want %q, %q", way, c.name, c.path, err, exit, c.out, c.fault)
			}
		}
		n.kill("a", unix.SIGKILL)
		n.exit("a")
	}
}

// Links that lead to what is not there yet, and one whose target others change meanwhile: all that is made lies where runc makes it, in the root.
func TestMountsBehindDanglingLinks(t *testing.T) {
	made := map[string][]string{}
	for _, way := range []string{"", "1"} {
		t.Setenv("MONOPOD_ONLY_LIBCONTAINER", way)
		n := newNode(t)
		root, outside := hostileRoot(t, n)
		file := filepath.Join(n.dir, "source")
		if err := os.WriteFile(file, []byte("content\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		req := n.bundle("a", func(s *specs.Spec) {
			s.Root = &specs.Root{Path: root}
			for _, at := range []string{"/etc/resolv.conf", "/up/f", "/chain/file"} {
				s.Mounts = append(s.Mounts, specs.Mount{Destination: at, Type: "bind", Source: file, Options: []string{"bind", "ro"}})
			}
			for _, at := range []string{"/dangling", "/dir/back", "/abs/x"} {
				s.Mounts = append(s.Mounts, specs.Mount{Destination: at, Type: "tmpfs", Source: "tmpfs"})
			}
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/etc/device", Type: "c", Major: 1, Minor: 3}}
		}, "sh", "-c", "cat /etc/resolv.conf /up/f /etc/made/by/links/file; echo >/etc/device")
		if exit := n.run(req); exit.Code != 0 {
			t.Errorf("libcontainer %q: %+v", way, exit)
		}
		if got, want := texts(readLog(t, req.LogPath)), []string{"content", "content", "content"}; !slices.Equal(got, want) {
			t.Errorf("libcontainer %q: the container sees %q, want %q", way, got, want)
		}
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				made[way] = append(made[way], d.Type().String()+strings.ReplaceAll(strings.TrimPrefix(path, root), n.dir, "DIR"))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			t.Errorf("made outside: %v (%v)", left, err)
		}
	}
	if d := append(missing(made[""], made["1"]), missing(made["1"], made[""])...); len(d) > 0 {
		t.Errorf("made by one only: %q", d)
	}
}

// Somebody else puts links in the way of a mount while it is made.
func TestMountPointsOfOthers(t *testing.T) {
	n := newNode(t)
	root, outside := hostileRoot(t, n)
	volume := filepath.Join(n.dir, "volume")
	if err := errors.Join(os.Mkdir(volume, 0o755), os.Symlink(outside, volume+"/a"), os.Symlink("../../../../../../../.."+outside, volume+"/b"), os.Symlink("gone", volume+"/c"), os.Mkdir(volume+"/d", 0o755)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		names := []string{"a", "b", "c", "d"}
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			from, to := filepath.Join(volume, names[i%4]), filepath.Join(volume, "way")
			_ = os.Rename(from, to)
			_ = os.RemoveAll(filepath.Join(volume, "gone"))
			_ = os.Rename(to, from)
			_ = os.RemoveAll(filepath.Join(volume, "d/to")) // and nothing that a link leads to
		}
	})
	for i := range 15 {
		id := ids.ContainerID(fmt.Sprint("c", i))
		_, err := n.c.Create(n.ctx(), n.bundle(id, func(s *specs.Spec) {
			s.Root = &specs.Root{Path: root}
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/vol", Type: "bind", Source: volume, Options: []string{"bind"}},
				specs.Mount{Destination: "/vol/way/to/it", Type: "tmpfs", Source: "tmpfs"},
				specs.Mount{Destination: "/vol/way/to/file", Type: "bind", Source: "/etc/passwd", Options: []string{"bind"}})
		}, "true"))
		if err != nil {
			continue // it has lost the race: no matter
		}
		if err := n.c.Delete(n.ctx(), id); err != nil {
			t.Error(err)
		}
	}
	close(done)
	swapper.Wait()
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("made outside: %v (%v)", left, err)
	}
}

// A poststart hook that fails ends the container before its program runs. The start tells which hook it was, and how it has failed, and does not
// blame the program.
func TestPoststartHooksThatFail(t *testing.T) {
	n := newNode(t)
	for name, c := range map[string]struct {
		path, script, fault string
	}{
		"exits":    {"/bin/sh", "echo looking; echo the card is on fire >&2; exit 3", "exit status 3, stdout: looking\n, stderr: the card is on fire"},
		"killed":   {"/bin/sh", "kill -9 $$", "signal: killed"},
		"not-here": {"/no/such", "", "no such file or directory"},
		"talks":    {"/bin/sh", "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3", "exit status 3, stdout: , stderr: xxxxxx"},
	} {
		t.Run(name, func(t *testing.T) {
			id := ids.ContainerID(name)
			ran := filepath.Join(n.dir, name+"-ran")
			req := n.bundle(id, func(s *specs.Spec) {
				s.Hooks = &specs.Hooks{Poststart: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "cat > " + ran}}, {Path: c.path, Args: []string{"sh", "-c", c.script}}}}
			}, "echo", "the program ran")
			if resp, err := n.c.Create(n.ctx(), req); err != nil || resp.PID != 0 {
				t.Fatalf("create: %+v %v", resp, err)
			}
			for range 2 {
				_, err := n.c.Start(n.ctx(), id)
				if want := "error running poststart hook #1 (" + c.path + "): "; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), c.fault) ||
					strings.Contains(err.Error(), "cannot be executed") || len(err.Error()) > 8<<10 {
					t.Errorf("start: %v, want %q with %q", err, want, c.fault)
				}
			}
			if e := n.exit(id); e.Code != 128 || e.Reason != protocol.ReasonStartError || !strings.Contains(e.Message, c.fault) {
				t.Errorf("exit %+v", e)
			}
			if state := readFile(ran); !strings.Contains(state, `"id":"`+name+`"`) || !strings.Contains(state, `"status":"created"`) {
				t.Errorf("the hook before it got the state %q", state)
			}
			if lines := readLog(t, req.LogPath); len(lines) > 0 {
				t.Errorf("log %q", texts(lines))
			}
			if err := n.c.Delete(n.ctx(), id); err != nil {
				t.Error("delete: ", err)
			}
		})
	}
}

// Where a user's home is.
func TestHome(t *testing.T) {
	n := newNode(t)
	etc := filepath.Join(n.dir, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	n.start(n.bundle("a", func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/etc", Type: "bind", Source: etc, Options: []string{"bind"}})
	}, "sleep", "1000"))
	long := strings.Repeat("x", 100<<10)
	for i, c := range []struct{ what, passwd, want string }{
		{"an entry", "root:x:0:0::/root:/bin/sh\nu:x:1000:1000:U:/home/u:/bin/sh\n", "/home/u"},
		{"the first of two", "a:x:1000:1::/first:\nb:x:1000:1::/second:\n", "/first"},
		{"no entry", "root:x:0:0::/root:/bin/sh\n", "/"},
		{"an empty home", "u:x:1000:1000:::/bin/sh\n", "/"},
		{"no newline at its end", "u:x:1000:1000::/home/u", "/home/u"},
		{"short lines", "\n:\nu:x:1000\nu:x:1000:1000\nu:x:1000:1000::/home/u:\n", "/home/u"},
		{"numbers that are none", "a:x:1000x:0::/a:\nb:x:-4294966296:0::/b:\nc:x::0::/c:\nd:x:4294968296:0::/d:\ne:x:1000:0::/e:\n", "/e"},
		{"a long line before it", "a:x:1000:" + long + "::/long:\nu:x:1000:1000::/home/u:\n", "/home/u"},
		{"a long line that hides one", "a:x:5:" + long + "u:x:1000:1000::/hidden:\n", "/"},
		{"many lines before it", strings.Repeat("n:x:7:7::/n:/bin/sh\n", 50000) + "u:x:1000:1000::/home/u:\n", "/home/u"},
		{"nothing but zeros", string(make([]byte, 1<<20)), "/"},
		{"a NUL in it", "u:x:1000:1000::/home/u\x00FOO=1:\n", "/home/u"},
	} {
		if err := os.WriteFile(filepath.Join(etc, "passwd"), []byte(c.passwd), 0o644); err != nil {
			t.Fatal(err)
		}
		out, _, err := n.outputOf(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: ids.ExecID(fmt.Sprint("x", i)), Stdout: true,
			Process: &specs.Process{Args: []string{"sh", "-c", "echo -n $HOME"}, Cwd: "/", User: specs.User{UID: 1000, GID: 1000}, Env: []string{"PATH=/bin"},
				Capabilities: &specs.LinuxCapabilities{}}})
		if err != nil || out != c.want {
			t.Errorf("%s: home %q, %v, want %q", c.what, out, err, c.want)
		}
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
}
