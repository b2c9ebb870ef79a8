package volumes

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/volumes/held"
	"monopod.dev/monopod/internal/agent/volumes/kinds"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/smallfs"
)

// someObjects are one ConfigMap and one Secret, both "x".
type someObjects struct {
	data   map[string]string
	secret map[string][]byte
	// key is that of the pod's certificate; refused: there is none.
	key     string
	refused error
}

func (o *someObjects) Get(_ context.Context, n objects.Name) (runtime.Object, error) {
	switch {
	case n.Kind == objects.Secret:
		return &v1.Secret{Data: o.secret}, nil
	case n.Name != "x":
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, n.Name)
	}
	return &v1.ConfigMap{Data: o.data, BinaryData: map[string][]byte{"bin": {0, 1}}}, nil
}

func (o *someObjects) Token(context.Context, *v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return "a token", nil
}

func manager(t *testing.T, o *someObjects) *Manager {
	t.Helper()
	return managerIn(t, filepath.Join(t.TempDir(), "pods"), o)
}

// managerIn is a manager whose directory of all pods is this one.
func managerIn(t *testing.T, dir string, o *someObjects) *Manager {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	m := New(Config{Dir: dir, Kinds: kinds.Config{Objects: o, Tokens: o, Trust: o, Certificates: o, HostIPs: []string{"1.2.3.4"}, Allocatable: func() v1.ResourceList { return nil }}})
	t.Cleanup(func() {
		if err := m.Remove(context.Background(), "u"); err != nil {
			t.Error(err)
		}
		if uids, err := m.UIDs(); err != nil || len(uids) > 0 {
			t.Errorf("left: %v, %v", uids, err)
		}
	})
	return m
}

// setUp makes all volumes of a pod, one after the other.
func setUp(ctx context.Context, m *Manager, pod *v1.Pod) error {
	errs := []error{m.MakePodDir(pod.UID)}
	for _, v := range pod.Spec.Volumes {
		errs = append(errs, m.Setup(ctx, pod, v.Name))
	}
	return errors.Join(errs...)
}

// update brings those up to date that follow something.
func update(ctx context.Context, m *Manager, pod *v1.Pod) error {
	var errs []error
	for _, name := range m.Following(pod) {
		errs = append(errs, m.Update(ctx, pod, name))
	}
	return errors.Join(errs...)
}

func podWith(sources ...v1.VolumeSource) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"l": "1"}}}
	c := v1.Container{Name: "a", TerminationMessagePath: "/dev/termination-log"}
	for i, s := range sources {
		name := string(rune('a' + i))
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: s})
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	p.Spec.Containers = []v1.Container{c}
	return p
}

func configMap(name string, items ...v1.KeyToPath) v1.VolumeSource {
	return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Items: items}}
}

// treeOf is the content of a directory as its users see it: "path mode content".
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			for _, l := range strings.Split(treeOf(t, path), " ") {
				lines = append(lines, e.Name()+"/"+l)
			}
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, e.Name()+"["+info.Mode().String()[1:]+"]="+string(data))
	}
	return strings.Join(lines, " ")
}

func TestWrittenVolumes(t *testing.T) {
	mode := int32(0o400)
	o := &someObjects{data: map[string]string{"one": "1", "two": "2"}, secret: map[string][]byte{"s": []byte("secret")}}
	m := manager(t, o)
	pod := podWith(
		configMap("x"),
		configMap("x", v1.KeyToPath{Key: "one", Path: "sub/dir/uno", Mode: &mode}),
		v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x", DefaultMode: &mode}},
		v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
		v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "x"}, Items: []v1.KeyToPath{{Key: "two", Path: "two"}}}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}},
	)
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": "bin[rw-r--r--]=\x00\x01 one[rw-r--r--]=1 two[rw-r--r--]=2",
		"b": "sub/dir/uno[r--------]=1",
		"c": "s[r--------]=secret",
		"d": `labels[rw-r--r--]=l="1"`,
		"e": "token[rw-r--r--]=a token two[rw-r--r--]=2",
	} {
		if got := treeOf(t, m.volumeDir("u", name)); got != want {
			t.Errorf("volume %s: %q, want %q", name, got, want)
		}
	}
	for name, secret := range map[string]bool{"a": false, "c": true, "e": true} {
		if is, err := kinds.IsTmpfs(m.volumeDir("u", name)); err != nil || is != secret {
			t.Errorf("volume %s on a tmpfs: %v, %v", name, is, err)
		}
	}
	o.data = map[string]string{"two": "22", "three": "3"}
	pod.Spec.Volumes = pod.Spec.Volumes[:1]
	for range 2 {
		if err := update(t.Context(), m, pod); err != nil {
			t.Fatal(err)
		}
		if got := treeOf(t, m.volumeDir("u", "a")); got != "bin[rw-r--r--]=\x00\x01 three[rw-r--r--]=3 two[rw-r--r--]=22" {
			t.Errorf("after the change: %q", got)
		}
	}
	entries, err := os.ReadDir(m.volumeDir("u", "a"))
	if err != nil || len(entries) != 5 {
		t.Errorf("the old version is left: %v, %v", entries, err)
	}
}

// TestWhoReadsTokens: a token is for the user of all containers, or the group of the volumes, and nobody else.
func TestWhoReadsTokens(t *testing.T) {
	one, two, group := int64(1001), int64(1002), int64(1003)
	for name, tc := range map[string]struct {
		change     func(s *v1.PodSpec)
		mode       os.FileMode
		owner, gid uint32
	}{
		"nobody is named": {func(*v1.PodSpec) {}, 0o644, 0, 0},
		"the pod's user":  {func(s *v1.PodSpec) { s.SecurityContext = &v1.PodSecurityContext{RunAsUser: &one} }, 0o600, 1001, 0},
		"two users": {func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{RunAsUser: &one}
			s.InitContainers = []v1.Container{{Name: "i", SecurityContext: &v1.SecurityContext{RunAsUser: &two}}}
		}, 0o644, 0, 0},
		"a group":            {func(s *v1.PodSpec) { s.SecurityContext = &v1.PodSecurityContext{FSGroup: &group} }, 0o640, 0, 1003},
		"a user and a group": {func(s *v1.PodSpec) { s.SecurityContext = &v1.PodSecurityContext{RunAsUser: &one, FSGroup: &group} }, 0o640, 1001, 1003},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager(t, &someObjects{})
			pod := podWith(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "dir/token"}}}}})
			tc.change(&pod.Spec)
			for range 2 {
				if err := setUp(t.Context(), m, pod); err != nil {
					t.Fatal(err)
				}
			}
			var stat unix.Stat_t
			if err := unix.Stat(filepath.Join(m.volumeDir("u", "a"), "dir", "token"), &stat); err != nil {
				t.Fatal(err)
			}
			if os.FileMode(stat.Mode&0o777) != tc.mode || stat.Uid != tc.owner || stat.Gid != tc.gid {
				t.Errorf("mode %o, user %d, group %d; want %o, %d, %d", stat.Mode&0o777, stat.Uid, stat.Gid, tc.mode, tc.owner, tc.gid)
			}
		})
	}
}

// TestUIDIsNoPath: an orphan's UID comes from a label that any client of the runtime may have written.
func TestUIDIsNoPath(t *testing.T) {
	m := manager(t, &someObjects{})
	other := filepath.Join(filepath.Dir(m.cfg.Dir), "other/volumes/v")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"", ".", "..", "../other", "u/../../other", "/etc", "a/b", "a\x00"} {
		pod := podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
		pod.UID = uid
		_, err := m.MessageFile(uid, "c", 0)
		for what, err := range map[string]error{"Setup": setUp(t.Context(), m, pod), "MessageFile": err, "Release": m.Release(t.Context(), uid), "Remove": m.Remove(t.Context(), uid)} {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s of %q: %v", what, uid, err)
			}
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

func TestErrorsAndOptions(t *testing.T) {
	yes := true
	m := manager(t, &someObjects{data: map[string]string{}})
	for _, c := range []struct {
		source v1.VolumeSource
		want   string
	}{
		{configMap("y"), `configmaps "y" not found`},
		{configMap("x", v1.KeyToPath{Key: "k", Path: "p"}), `ConfigMap ns/x has no key "k"`},
		{v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "y"}, Optional: &yes}}, ""},
		{v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}, "not supported"},
	} {
		err := setUp(t.Context(), m, podWith(c.source))
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.source, err, c.want)
		}
	}
}

// TestImageVolume: nothing is made on the host for it, and the runtime is told which image to mount.
func TestImageVolume(t *testing.T) {
	m := manager(t, &someObjects{})
	pod := podWith(v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r.example/model:1"}})
	if err := errors.Join(setUp(t.Context(), m, pod), update(t.Context(), m, pod)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(m.volumeDir("u", "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a directory for it: %v", err)
	}
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "a", MountPath: "/m", SubPath: "x/y"}}}
	in := MountInput{Pod: pod, Container: c, Images: map[string]*cri.Image{"a": {Id: "sha256:1"}}}
	mounts, err := m.Mounts(in)
	if err != nil {
		t.Fatal(err)
	}
	got := mounts[0]
	if got.Image.GetImage() != "sha256:1" || got.Image.GetUserSpecifiedImage() != "r.example/model:1" || got.ImageSubPath != "x/y" ||
		got.ContainerPath != "/m" || got.HostPath != "" || !got.Readonly {
		t.Errorf("mount %v", got)
	}
	in.Images = nil
	if _, err := m.Mounts(in); err == nil || !strings.Contains(err.Error(), `"r.example/model:1"`) {
		t.Errorf("without its image: %v", err)
	}
}

func TestEmptyDir(t *testing.T) {
	m := manager(t, &someObjects{})
	gid, size := int64(1234), resource.MustParse("1Mi")
	pod := podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}},
		v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &size}})
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	// A second set-up changes nothing.
	for range 2 {
		if err := setUp(t.Context(), m, pod); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]uint32{"a": 0o2777, "b": 0o3777} { // in memory as a tmpfs is made, by a kubelet too
		var st unix.Stat_t
		if err := unix.Stat(m.volumeDir("u", name), &st); err != nil || st.Gid != 1234 || st.Mode&0o7777 != mode {
			t.Errorf("volume %s: gid %d, mode %o, %v", name, st.Gid, st.Mode, err)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(m.volumeDir("u", "b"), &fs); err != nil || int64(fs.Blocks)*fs.Bsize != 1<<20 {
		t.Errorf("the tmpfs has %d bytes, %v", int64(fs.Blocks)*fs.Bsize, err)
	}
	if err := os.WriteFile(filepath.Join(m.volumeDir("u", "a"), "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.volumeDir("u", "a"), "kept")); err != nil {
		t.Error("what the pod wrote is gone:", err)
	}
}

// TestEmptyDirHoldsItsSize: where the file system of all pods has quotas, a pod that writes too much gets an error, its neighbours notice nothing, and nothing of it is left. One without a size
// is a plain directory.
func TestEmptyDirHoldsItsSize(t *testing.T) {
	for _, kind := range smallfs.QuotaKinds {
		t.Run(kind, func(t *testing.T) {
			at := smallfs.WithQuotas(t, kind)
			m := managerIn(t, filepath.Join(at, "pods"), &someObjects{})
			size := resource.MustParse("8Mi")
			pod := podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
			for range 2 { // the second as by an agent that was started anew
				if err := setUp(t.Context(), m, pod); err != nil {
					t.Fatal(err)
				}
			}
			write := func(volume string) (err error) {
				smallfs.Unprivileged(t, func() {
					err = os.WriteFile(filepath.Join(m.volumeDir("u", volume), "f"), bytes.Repeat([]byte("data"), 4<<20), 0o666)
				})
				return err
			}
			if err := write("a"); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
				t.Errorf("16 MiB in 8 MiB: %v", err)
			}
			if err := write("b"); err != nil {
				t.Errorf("16 MiB where there is no limit: %v", err)
			}
			if _, is := held.Used(m.podDir("u"), "b", m.volumeDir("u", "b")); is {
				t.Error("a volume without a size is held to one")
			}
			if err := m.Release(t.Context(), "u"); err != nil {
				t.Fatal(err)
			}
			for _, gone := range []string{"volumes", "quotas", "kinds"} {
				if _, err := os.Lstat(filepath.Join(m.podDir("u"), gone)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s of a pod that has ended: %v", gone, err)
				}
			}
			// What was released is removed in the background, by the manager's Run; here by hand.
			if err := tree.Remove(t.Context(), filepath.Join(at, "pods", tree.BinName)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRemoveStopsAtMounts: what is mounted below a pod's directory is not deleted with it.
func TestRemoveStopsAtMounts(t *testing.T) {
	m := manager(t, &someObjects{})
	if err := setUp(t.Context(), m, podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})); err != nil {
		t.Fatal(err)
	}
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(m.volumeDir("u", "a"), "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(precious, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := m.Remove(t.Context(), "u")
	if err == nil || !strings.Contains(err.Error(), inside) {
		t.Errorf("error %v", err)
	}
	if err := unix.Unmount(inside, 0); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(precious, "data")); err != nil {
		t.Error(err)
	}
}

// TestLongPaths: a volume whose paths are longer on the host than any path may be is given back as every other, at once, and removed.
func TestLongPaths(t *testing.T) {
	m := manager(t, &someObjects{})
	if err := setUp(t.Context(), m, podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(m.volumeDir("u", "a"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 250)
	for range 20 { // 5,020 bytes
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	if err := m.Remove(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if uids, err := m.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left: %v, %v", uids, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	bin := filepath.Join(m.cfg.Dir, ".removing")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left, err := os.ReadDir(bin)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("still there:", left)
		}
	}
	cancel()
	<-ended
}

func TestMounts(t *testing.T) {
	m := manager(t, &someObjects{data: map[string]string{}})
	pod := podWith(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}, configMap("x"))
	pod.Spec.HostAliases = []v1.HostAlias{{IP: "9.9.9.9", Hostnames: []string{"nine", "ix"}}}
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	mounts, err := m.Mounts(MountInput{Pod: pod, Container: &pod.Spec.Containers[0], Attempt: 2, PodIPs: []string{"10.0.0.7"}, Hostname: "p"})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, mt := range mounts {
		s := mt.ContainerPath + "=" + strings.TrimPrefix(mt.HostPath, m.cfg.Dir)
		if mt.Readonly {
			s += " ro"
		}
		said = append(said, s)
	}
	want := "/a=/u/volumes/a; /b=/srv; /c=/u/volumes/c ro; /etc/hosts=/u/etc-hosts; /dev/termination-log=/u/containers/a/2"
	if got := strings.Join(said, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	hosts, err := os.ReadFile(filepath.Join(m.podDir("u"), "etc-hosts"))
	if err != nil || !strings.Contains(string(hosts), "10.0.0.7\tp\n\n# Entries added by HostAliases.\n9.9.9.9\tnine\tix\n") {
		t.Errorf("hosts %q, %v", hosts, err)
	}
	pod.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc/hosts"
	if mounts, err = m.Mounts(MountInput{Pod: pod, Container: &pod.Spec.Containers[0]}); err != nil || len(mounts) != 4 {
		t.Errorf("a mount of the pod's own is doubled: %v, %v", mounts, err)
	}
	pod.Spec.Containers[0].TerminationMessagePath = "out/message"
	mounts, err = m.Mounts(MountInput{Pod: pod, Container: &pod.Spec.Containers[0]})
	if err != nil || mounts[len(mounts)-1].ContainerPath != "/out/message" {
		t.Errorf("a relative path of the message: %v, %v", mounts, err)
	}
}

// torn is a kind that holds something of the host, and keeps count of it.
type torn struct {
	kinds.Kind
	down []kinds.Left
	fail error
}

func (*torn) Facts() kinds.Facts { return kinds.Facts{Holds: true} }

func (*torn) Setup(context.Context, *kinds.Volume) error { return nil }

func (k *torn) Teardown(_ context.Context, l *kinds.Left) error {
	k.down = append(k.down, *l)
	return k.fail
}

// TestTeardown: a volume is taken down as its kind does it, also by an agent that was started anew and knows no more of the pod than its UID; what holds nothing
// is not asked for, and what an agent has made that kept no record goes as well.
func TestTeardown(t *testing.T) {
	m := manager(t, &someObjects{})
	kind := &torn{fail: errors.New("it is busy")}
	m.kinds[pods.ClaimVolume] = kind
	pod := podWith(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}},
		v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}})
	for range 2 {
		if err := setUp(t.Context(), m, pod); err != nil {
			t.Fatal(err)
		}
	}
	if made, err := names(m.kindsDir("u")); err != nil || !slices.Equal(made, []string{"a", "c"}) {
		t.Errorf("on record are %q, %v", made, err)
	}
	later := New(m.cfg)
	later.kinds[pods.ClaimVolume] = kind
	if err := later.Release(t.Context(), "u"); err == nil || !strings.Contains(err.Error(), "it is busy") {
		t.Errorf("released with %v", err)
	}
	kind.fail = nil
	if err := os.RemoveAll(filepath.Join(m.kindsDir("u"), "c")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := later.Release(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
	}
	want := kinds.Left{PodUID: "u", Name: "a", Dir: m.volumeDir("u", "a")}
	if !slices.Equal(kind.down, []kinds.Left{want, want}) {
		t.Errorf("torn down: %+v", kind.down)
	}
	if left, err := names(m.podDir("u")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestVolumesSideBySide: volumes of a pod are made at the same time, and one that fails keeps no other from being there.
func TestVolumesSideBySide(t *testing.T) {
	m := manager(t, &someObjects{data: map[string]string{"k": "v"}})
	pod := podWith(configMap("x"), configMap("none"), v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, configMap("x"))
	errs := make([]error, len(pod.Spec.Volumes))
	var wg sync.WaitGroup
	for i, v := range pod.Spec.Volumes {
		wg.Go(func() { errs[i] = m.Setup(t.Context(), pod, v.Name) })
	}
	wg.Wait()
	want := `MountVolume.SetUp failed for volume "b" : configmaps "none" not found`
	if errs[0] != nil || errs[2] != nil || errs[3] != nil || errs[1] == nil || errs[1].Error() != want {
		t.Errorf("%v", errs)
	}
	for _, there := range []string{"a/k", "c", "d/k"} {
		if _, err := os.Stat(filepath.Join(m.podDir("u"), "volumes", there)); err != nil {
			t.Error(err)
		}
	}
	if err := m.Setup(t.Context(), pod, "z"); err == nil || !strings.Contains(err.Error(), "no volume of this name") {
		t.Errorf("a volume that there is not: %v", err)
	}
}
