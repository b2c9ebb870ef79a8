package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A volume below another one that the container has read-only has its place made there, of its own kind, and keeps it when the other is written anew.
func TestNestedVolumes(t *testing.T) {
	o := &someObjects{data: map[string]string{"one": "1", "two": "2"}, secret: map[string][]byte{"key": []byte("k")}}
	m := manager(t, o)
	empty := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	pod := podWith(configMap("x"), empty, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x"}}, empty, configMap("x"), v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "b", MountPath: "/app/tls/deep/cache"}, {Name: "a", MountPath: "/app"}, {Name: "c", MountPath: "/app/tls/"},
		{Name: "e", MountPath: "/app/extra.conf", SubPath: "two"}, {Name: "e", MountPath: "/app/one", SubPath: "one"},
		{Name: "d", MountPath: "/ro", ReadOnly: true}, {Name: "c", MountPath: "/ro/in/it"}, {Name: "b", MountPath: "/rw"}, {Name: "c", MountPath: "/rw/below"},
		{Name: "f", MountPath: "/host", ReadOnly: true}, {Name: "c", MountPath: "/host/below"},
	}
	c.TerminationMessagePath = "/app/message"
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.ReleaseMounts("u", "a") })
	for range 2 {
		if _, err := m.Mounts(MountInput{Pod: pod, Container: c}); err != nil {
			t.Fatal(err)
		}
	}
	kinds := func() {
		t.Helper()
		for path, directory := range map[string]bool{"a/tls": true, "a/extra.conf": false, "a/message": false, "a/one": false, "c/deep/cache": true, "d/in/it": true} {
			if info, err := os.Stat(filepath.Join(m.podDir("u"), "volumes", path)); err != nil || info.IsDir() != directory {
				t.Errorf("%s: %v, want one that is a directory: %v", path, err, directory)
			}
		}
	}
	kinds()
	// A container makes those itself where it may write, and in the host's directories nobody makes any.
	for _, path := range []string{m.volumeDir("u", "b") + "/below", pod.Spec.Volumes[5].HostPath.Path + "/below"} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(m.volumeDir("u", "a"), "one")); err != nil || to != "..data/one" {
		t.Errorf("the file that is mounted on: %q, %v", to, err)
	}
	o.data = map[string]string{"one": "new"}
	if err := update(context.Background(), m, pod); err != nil {
		t.Fatal(err)
	}
	kinds()
	a := m.volumeDir("u", "a")
	if data, err := os.ReadFile(filepath.Join(a, "one")); err != nil || string(data) != "new" {
		t.Errorf("after an update: %q, %v", data, err)
	}
	if _, err := os.Lstat(filepath.Join(a, "two")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key that is gone: %v", err)
	}
}

func TestRemoveMessages(t *testing.T) {
	m := manager(t, &someObjects{})
	for attempt := range uint32(12) {
		if _, err := m.MessageFile("u", "a", attempt); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(m.RemoveMessages("u", "a", 10), m.RemoveMessages("u", "none", 10)); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(m.MessagePath("u", "a", 0)[:len(m.MessagePath("u", "a", 0))-1] + "*"); err != nil || len(left) != 2 {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := m.RemoveMessages("..", "a", 1); err == nil {
		t.Error("a UID that is no name of a directory was taken")
	}
}
