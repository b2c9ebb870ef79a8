package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/mount"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// shown is what a mount shows: the content of a file, or the names in a directory.
func shown(t *testing.T, mt *cri.Mount) string {
	t.Helper()
	if content, err := os.ReadFile(mt.HostPath); err == nil {
		return string(content)
	}
	entries, err := os.ReadDir(mt.HostPath)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ") + "/"
}

func TestSubPath(t *testing.T) {
	m := manager(t, &someObjects{data: map[string]string{"key": "of the map"}})
	base := t.TempDir()
	volume, outside := filepath.Join(base, "volume"), filepath.Join(base, "outside")
	write(t, filepath.Join(outside, "secret"), "secret")
	write(t, filepath.Join(volume, "dir", "file"), "content")
	link(t, "dir", filepath.Join(volume, "inside"))
	link(t, filepath.Join(volume, "dir"), filepath.Join(volume, "absolute"))
	link(t, "../volume/dir", filepath.Join(volume, "there-and-back"))
	link(t, outside, filepath.Join(volume, "out"))
	link(t, "../outside", filepath.Join(volume, "up"))
	link(t, "nowhere", filepath.Join(volume, "dangling"))
	link(t, "/proc/self/root", filepath.Join(volume, "magic"))
	if err := unix.Mkfifo(filepath.Join(volume, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: volume}}
	vars := []podspec.EnvVar{{Name: "POD", Value: "dir"}, {Name: "EMPTY"}, {Name: "UP", Value: "../outside"}, {Name: "ROOT", Value: "/etc"}}
	for _, c := range []struct {
		name   string
		source v1.VolumeSource
		sub    string
		expr   string
		want   string
		err    string
	}{
		{name: "a directory", source: host, sub: "dir", want: "file/"},
		{name: "a file", source: host, sub: "dir/file", want: "content"},
		{name: "with slashes", source: host, sub: "./dir//file/", want: "content"},
		{name: "the volume itself", source: host, sub: ".", want: "absolute dangling dir fifo inside magic out there-and-back up/"},
		{name: "a link within", source: host, sub: "inside/file", want: "content"},
		{name: "a link within by its path on the host", source: host, sub: "absolute/file", want: "content"},
		{name: "a link out and back", source: host, sub: "there-and-back", want: "file/"},
		{name: "a link out", source: host, sub: "out/secret", err: "it leads out of the volume"},
		{name: "a link up", source: host, sub: "up/secret", err: "it leads out of the volume"},
		{name: "a link out to nothing", source: host, sub: "out/none", err: "it leads out of the volume"},
		{name: "a magic link", source: host, sub: "magic/etc", err: "it leads out of the volume"},
		{name: "a dangling link", source: host, sub: "dangling", err: "failed to create subPath directory"},
		{name: "below a file", source: host, sub: "dir/file/x", err: "not a directory"},
		{name: "up by itself", source: host, sub: "dir/../../outside", err: "must not contain '..'"},
		{name: "absolute", source: host, sub: "/dir", err: "must not be an absolute path"},
		{name: "what is not there", source: host, sub: "inside/new/deep", want: "/"},
		{name: "of a volume that is not there yet", source: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(base, "none")}}, sub: "x", want: "/"},
		{name: "by a variable", source: host, expr: "$(POD)/file", want: "content"},
		{name: "not a variable", source: host, expr: "$$(POD)", want: "/"},
		{name: "by unknown variables", source: host, expr: "$(POD)/$(NONE)/$(EMPTY)", err: "missing value for EMPTY, NONE"},
		{name: "by a variable that leads up", source: host, expr: "$(UP)", err: "must not contain '..'"},
		{name: "by a variable that leads elsewhere", source: host, expr: "$(ROOT)", err: "must not be an absolute path"},
		{name: "of a config map", source: configMap("x"), sub: "key", want: "of the map"},
		{name: "of an emptyDir", source: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, sub: "a/b", want: "/"},
		{name: "of memory", source: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, sub: "a/b", want: "/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podWith(c.source)
			if err := setUp(t.Context(), m, pod); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Release(t.Context(), "u"); err != nil {
					t.Error(err)
				}
			}()
			vm := &pod.Spec.Containers[0].VolumeMounts[0]
			vm.SubPath, vm.SubPathExpr = c.sub, c.expr
			mounts, err := m.Mounts(MountInput{Pod: pod, Container: &pod.Spec.Containers[0], Env: vars})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret") && !strings.Contains(c.sub, "secret") {
					t.Errorf("error %v, want %q", err, c.err)
				}
				if left, _ := mount.Below(m.podDir("u")); len(left) > 0 && c.source.EmptyDir == nil {
					t.Errorf("mounted after an error: %v", left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(t, mounts[0]); got != c.want || strings.HasPrefix(mounts[0].HostPath, volume) {
				t.Errorf("%s shows %q, want %q", mounts[0].HostPath, got, c.want)
			}
			if err := m.ReleaseMounts("u", "a"); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(mounts[0].HostPath); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", mounts[0].HostPath, err)
			}
		})
	}
	if content, err := os.ReadFile(filepath.Join(volume, "dir", "file")); err != nil || string(content) != "content" {
		t.Errorf("the volume's file: %q, %v", content, err)
	}
}

// What is made has the mode of the volume, so that whoever may write there may write here.
func TestSubPathsMode(t *testing.T) {
	m := manager(t, &someObjects{})
	gid := int64(1234)
	pod := podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "a/b"
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	in := MountInput{Pod: pod, Container: &pod.Spec.Containers[0]}
	for range 2 { // a start that failed is repeated
		if _, err := m.Mounts(in); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"a", "a/b"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(m.volumeDir("u", "a"), dir), &st); err != nil || st.Mode&0o7777 != 0o2777 || st.Gid != 1234 {
			t.Errorf("%s: mode %o, group %d, %v", dir, st.Mode&0o7777, st.Gid, err)
		}
	}
	if err := m.ReleaseMounts("..", "a"); err == nil {
		t.Error("a pod that is no element of a path")
	}
	if err := m.ReleaseMounts("u", "../.."); err == nil {
		t.Error("a container that is no element of a path")
	}
}

// TestSubPathIsExchanged: while parts of a volume are looked up its owner exchanges a directory for a link to the host's.
func TestSubPathIsExchanged(t *testing.T) {
	m := manager(t, &someObjects{})
	base := t.TempDir()
	volume := filepath.Join(base, "volume")
	write(t, filepath.Join(base, "outside", "x", "secret"), "secret")
	write(t, filepath.Join(volume, "dir", "x", "mine"), "mine")
	link(t, filepath.Join(base, "outside"), filepath.Join(volume, "link"))
	pod := podWith(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: volume}})
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "dir/x"
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(volume, "dir"), unix.AT_FDCWD, filepath.Join(volume, "link"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	seen := map[string]int{}
	for range 300 {
		mounts, err := m.Mounts(MountInput{Pod: pod, Container: &pod.Spec.Containers[0]})
		if err != nil {
			seen["refused"]++
			continue
		}
		seen[shown(t, mounts[0])]++
	}
	close(stop)
	<-stopped
	if len(seen) > 2 || seen["mine/"]+seen["refused"] != 300 {
		t.Errorf("seen: %v", seen)
	}
}

func TestRecursiveReadOnly(t *testing.T) {
	yes, no := func() (bool, error) { return true, nil }, func() (bool, error) { return false, nil }
	bidirectional := v1.MountPropagationBidirectional
	for _, c := range []struct {
		name string
		mode v1.RecursiveReadOnlyMode
		vm   v1.VolumeMount
		can  func() (bool, error)
		want bool
		err  string
	}{
		{name: "not asked for", mode: v1.RecursiveReadOnlyDisabled, can: yes},
		{name: "if possible", mode: v1.RecursiveReadOnlyIfPossible, vm: v1.VolumeMount{ReadOnly: true}, can: yes, want: true},
		{name: "if possible, and it is not", mode: v1.RecursiveReadOnlyIfPossible, vm: v1.VolumeMount{ReadOnly: true}, can: no},
		{name: "enabled", mode: v1.RecursiveReadOnlyEnabled, vm: v1.VolumeMount{ReadOnly: true}, can: yes, want: true},
		{name: "enabled, and it cannot be", mode: v1.RecursiveReadOnlyEnabled, vm: v1.VolumeMount{ReadOnly: true}, can: no, err: "not supported by the runtime"},
		{name: "enabled, of a runtime that does not say", mode: v1.RecursiveReadOnlyEnabled, vm: v1.VolumeMount{ReadOnly: true}, err: "not supported by the runtime"},
		{name: "the runtime is away", mode: v1.RecursiveReadOnlyEnabled, vm: v1.VolumeMount{ReadOnly: true}, can: func() (bool, error) { return false, errors.New("away") }, err: "away"},
		{name: "to be written", mode: v1.RecursiveReadOnlyEnabled, can: yes, err: "it is not read-only"},
		{name: "propagated", mode: v1.RecursiveReadOnlyEnabled, vm: v1.VolumeMount{ReadOnly: true, MountPropagation: &bidirectional}, can: yes, err: "not compatible with propagation"},
		{name: "odd", mode: "Odd", vm: v1.VolumeMount{ReadOnly: true}, can: yes, err: `unknown recursive read-only mode "Odd"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.vm.RecursiveReadOnly = &c.mode
			got, err := recursiveReadOnly(&c.vm, c.can)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	m := manager(t, &someObjects{})
	m.cfg.HostsFile = filepath.Join(t.TempDir(), "hosts")
	alias := []v1.HostAlias{{IP: "9.9.9.9", Hostnames: []string{"nine", "ix"}}, {IP: "fd00::9", Hostnames: []string{"nine"}}}
	aliased := "\n# Entries added by HostAliases.\n9.9.9.9\tnine\tix\nfd00::9\tnine\n"
	pod := podWith()
	file := func(in MountInput) string {
		t.Helper()
		in.Pod, in.Container = pod, &pod.Spec.Containers[0]
		mounts, err := m.Mounts(in)
		if err != nil {
			t.Fatal(err)
		}
		if mounts[0].ContainerPath != "/etc/hosts" {
			t.Fatalf("mounts %v", mounts)
		}
		return shown(t, mounts[0])
	}
	ips := []string{"10.0.0.7", "fd00::7"}
	if got := file(MountInput{PodIPs: ips, Hostname: "p"}); !strings.HasSuffix(got, "\n10.0.0.7\tp\nfd00::7\tp\n") {
		t.Errorf("both families: %q", got)
	}
	pod.Spec.HostAliases = alias
	want := "\n10.0.0.7\tp.sub.ns.svc.cluster.local\tp\nfd00::7\tp.sub.ns.svc.cluster.local\tp\n" + aliased
	if got := file(MountInput{PodIPs: ips, Hostname: "p", Domain: "sub.ns.svc.cluster.local"}); !strings.HasSuffix(got, want) {
		t.Errorf("with a domain: %q", got)
	}
	pod.Spec.HostNetwork = true
	for _, node := range []string{"", "127.0.0.1 localhost\n10.1.1.1 node\n"} {
		if node != "" {
			write(t, m.cfg.HostsFile, node)
		}
		if got := file(MountInput{PodIPs: ips, Hostname: "p"}); got != "# Kubernetes-managed hosts file (host network).\n"+node+aliased {
			t.Errorf("the node's %q: %q", node, got)
		}
	}
	pod.Spec.HostAliases = nil
	if got := file(MountInput{}); !strings.HasSuffix(got, "\n10.1.1.1 node\n") {
		t.Errorf("without aliases: %q", got)
	}
}

func TestReadFile(t *testing.T) {
	m := manager(t, &someObjects{})
	pod := podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}})
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	dir, outside := m.volumeDir("u", "a"), filepath.Join(t.TempDir(), "secret")
	write(t, outside, "secret")
	write(t, filepath.Join(dir, "sub", "env"), "A='1'")
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", maxEnvFile+1))
	link(t, "/sub/env", filepath.Join(dir, "link"))
	link(t, outside, filepath.Join(dir, "out"))
	link(t, "../../../../../../.."+outside, filepath.Join(dir, "up"))
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ volume, path, want, err string }{
		{"a", "sub/env", "A='1'", ""}, {"a", "link", "A='1'", ""},
		{"a", "none", "", os.ErrNotExist.Error()}, {"a", "out", "", os.ErrNotExist.Error()}, {"a", "up", "", os.ErrNotExist.Error()},
		{"a", "fifo", "", "no regular file"}, {"a", "sub", "", "no regular file"}, {"a", "large", "", "no regular file of at most"},
		{"b", "x", "", "no emptyDir"}, {"c", "x", "", "no emptyDir"},
	} {
		got, err := m.ReadFile(pod, c.volume, c.path)
		if errors.Is(err, os.ErrNotExist) {
			err = os.ErrNotExist
		}
		if string(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s of %s: %q, %v", c.path, c.volume, got, err)
		}
	}
}

// TestClearSilent: what is mounted for a container and does not answer, such as a part of a silent server's share, is not waited for without an end, and by one thread only.
func TestClearSilent(t *testing.T) {
	dir := t.TempDir()
	began, answer := make(chan struct{}), make(chan error)
	p := places{clearOf: func(string) error {
		began <- struct{}{}
		return <-answer
	}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	for _, want := range []string{" does not answer: context canceled", " has not answered since it was to be unmounted before; it is tried again: context canceled"} {
		if err := p.clear(ctx, dir); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	answer <- nil // to nobody
	go func() {
		<-began
		answer <- nil
	}()
	if err := p.clear(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if err := p.clear(t.Context(), filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}
