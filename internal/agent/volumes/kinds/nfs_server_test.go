package kinds

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/test/nfsserver"
)

// TestNFSOfAServer: the kernel's client and a server of its own. Two pods see each other's files, one that may only read writes nothing, options of a claim's volume are the mount's, a server that
// was away goes on where it was, and what is not there is an error in its words.
func TestNFSOfAServer(t *testing.T) {
	w := newWorld(t)
	shared := filepath.Join(t.TempDir(), "srv")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(errors.Join(os.MkdirAll(filepath.Join(shared, "data"), 0o755), os.WriteFile(filepath.Join(shared, "data", "old"), []byte("of the server"), 0o644)))
	server := nfsserver.Start(t, shared)
	servers := newNFSServers()
	kind := &nfs{servers: servers}
	pod := func(uid string, readOnly bool, path string) *Volume {
		v := w.pod(uid)
		v.Pod.UID = types.UID(uid)
		v.Spec.VolumeSource = v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "localhost", Path: path, ReadOnly: readOnly}}
		return v
	}

	writer, reader := pod("writer", false, "/data"), pod("reader", true, "/data")
	for _, v := range []*Volume{writer, reader, writer} { // the last as by an agent that was started anew
		must(kind.Setup(t.Context(), v))
	}
	if got, err := kind.Mount(reader); err != nil || got != (Source{Path: reader.Dir, ReadOnly: true}) {
		t.Errorf("containers get %+v, %v", got, err)
	}
	if raw, err := os.ReadFile(filepath.Join(reader.Dir, "old")); err != nil || string(raw) != "of the server" {
		t.Errorf("read %q, %v", raw, err)
	}
	must(os.WriteFile(filepath.Join(writer.Dir, "new"), []byte("of a pod"), 0o640))
	for _, dir := range []string{filepath.Join(shared, "data"), reader.Dir} {
		if raw, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(raw) != "of a pod" {
			t.Errorf("in %s: %q, %v", dir, raw, err)
		}
	}
	if err := os.WriteFile(filepath.Join(reader.Dir, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("who may only read writes: %v", err)
	}
	if has := mounted(t, writer.Dir); !strings.Contains(has, "vers=4.2") {
		t.Errorf("it is mounted with %s", has)
	}

	// What the server does not have.
	none := pod("none", false, "/none")
	if err := kind.Setup(t.Context(), none); !errors.Is(err, unix.ENOENT) || !strings.HasPrefix(err.Error(), "mount localhost:/none: ") {
		t.Errorf("a directory that is not there: %v", err)
	}
	if _, err := kind.Mount(none); err == nil {
		t.Error("containers get what was not mounted")
	}

	// That of a claim, with its options.
	w.kind.servers = servers
	w.volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/data"}}
	w.volume.Spec.MountOptions = []string{"nfsvers=4.1", "noexec,hard,rsize=32768", "timeo=50", "retry=2", "_netdev"}
	c := w.pod("c")
	if got := w.setUp(c); got != (Source{Path: c.Dir}) {
		t.Errorf("containers get %+v", got)
	}
	has := mounted(t, c.Dir)
	for _, option := range []string{"vers=4.1", "noexec", "hard", "rsize=32768", "timeo=50"} {
		if !strings.Contains(has, option) {
			t.Errorf("it is mounted with %s, without %s", has, option)
		}
	}

	// The server goes and comes back: who reads and writes waits meanwhile.
	server.Stop()
	done := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(filepath.Join(writer.Dir, "later"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString("after all")
			err = errors.Join(err, f.Sync(), f.Close())
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("written without a server: %v", err)
	case <-time.After(time.Second): // it is not there for as long
		server.Continue()
		select {
		case err := <-done:
			must(err)
		case <-time.After(10 * time.Minute):
			t.Fatal("the client does not come back")
		}
	}
	if raw, err := os.ReadFile(filepath.Join(shared, "data", "later")); err != nil || !bytes.Equal(raw, []byte("after all")) {
		t.Errorf("the server has %q, %v", raw, err)
	}

	w.down(c)
	for _, v := range []*Volume{writer, reader, none} {
		must(kind.Teardown(t.Context(), &Left{PodUID: v.Pod.UID, Name: "v", Dir: v.Dir}))
	}
	if points, err := mount.Below(w.pods); err != nil || len(points) > 0 {
		t.Errorf("mounted: %v, %v", points, err)
	}
}

// mounted is the line of the list of mounts about a directory.
func mounted(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == dir {
			return line
		}
	}
	t.Errorf("%s is not mounted", dir)
	return ""
}
