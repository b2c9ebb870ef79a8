package kinds

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/host/mount"
)

// share4 makes the pod's volume a share of a server.
func share4(v *Volume) *Volume {
	v.Spec.VolumeSource = v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/srv/x"}}
	return v
}

// TestNFS: a share is mounted as a whole or not at all, by a pod or by a claim, and a server that is silent is not waited for. In the place of a server's is a file system in memory: not each kernel has the client.
func TestNFS(t *testing.T) {
	w := newWorld(t)
	var asked []string
	answer := make(chan error, 1)
	servers := newNFSServers()
	servers.negotiate = func(source string, options []string) (*mount.Detached, error) {
		asked = append([]string{source}, options...)
		if err := <-answer; err != nil {
			return nil, err
		}
		return mount.Filesystem("tmpfs", source, nil)
	}
	kind := &nfs{servers: servers}
	v := share4(w.pod("u"))
	if got, err := kind.Mount(v); err == nil || !strings.Contains(err.Error(), "volume v, 127.0.0.1:/srv/x, is not mounted") {
		t.Errorf("containers get %+v, %v", got, err)
	}

	// The server is silent.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, want := range []string{"the server does not answer", "the server has not answered to the attempt before"} {
		if _, err := servers.ask(ctx, "addr=127.0.0.1", "127.0.0.1:/srv/x", nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	answer <- nil // it answers after all, to nobody
	for {
		servers.mu.Lock()
		silent := len(servers.silent)
		servers.mu.Unlock()
		if silent == 0 {
			break
		}
	}
	if points, err := mount.Below(w.pods); err != nil || len(points) > 0 {
		t.Errorf("mounted: %v, %v", points, err)
	}

	answer <- errors.New("permission denied")
	if err := kind.Setup(t.Context(), v); err == nil || err.Error() != "mount 127.0.0.1:/srv/x: permission denied" {
		t.Errorf("got %v", err)
	}
	answer <- nil
	if err := errors.Join(kind.Setup(t.Context(), v), kind.Setup(t.Context(), v)); err != nil {
		t.Fatal(err)
	}
	if got, err := kind.Mount(v); err != nil || got != (Source{Path: v.Dir}) {
		t.Errorf("containers get %+v, %v", got, err)
	}
	if want := []string{"127.0.0.1:/srv/x", "addr=127.0.0.1", "clientaddr=127.0.0.1"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	if r, err := claims.Read(filepath.Join(w.pods, "u"), "v"); err != nil || r.Source != claims.NFS || !r.Mounted {
		t.Errorf("on record is %+v, %v", r, err)
	}
	for range 2 {
		if err := kind.Teardown(t.Context(), &Left{Dir: v.Dir}); err != nil {
			t.Fatal(err)
		}
	}
	if points, err := mount.Below(w.pods); err != nil || len(points) > 0 {
		t.Errorf("mounted: %v, %v", points, err)
	}

	// That of a claim, with its options.
	w.kind.servers = servers
	w.volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/srv/y", ReadOnly: true}}
	w.volume.Spec.MountOptions = []string{"nfsvers=4.1", "noexec,hard", "retry=2", "_netdev"}
	c := w.pod("c")
	answer <- nil
	if got := w.setUp(c); got != (Source{Path: c.Dir, ReadOnly: true}) {
		t.Errorf("containers get %+v", got)
	}
	if want := []string{"127.0.0.1:/srv/y", "nfsvers=4.1", "hard", "addr=127.0.0.1", "clientaddr=127.0.0.1"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("written with %v", err)
	}
	w.down(c)
}

// TestNFSOfTheKernel: a kernel that has no client says so, and nothing is left.
func TestNFSOfTheKernel(t *testing.T) {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(known), "\tnfs\n") {
		t.Skip("this kernel has it")
	}
	w := newWorld(t)
	if _, err := nfsNegotiate("127.0.0.1:/", nil); err == nil || !strings.Contains(err.Error(), `this kernel has no file system "nfs"`) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(share4(w.pod("u")).Dir); err == nil {
		t.Error("something is left")
	}
}
