package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/certificates"
	"monopod.dev/monopod/internal/agent/volumes/kinds"
)

func (o *someObjects) Anchors(_ context.Context, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return []byte("anchors of " + *p.Name), nil
}

func (o *someObjects) Credentials(_ context.Context, _ *v1.Pod, volume string, index int, p *v1.PodCertificateProjection) (certificates.Credentials, error) {
	if o.refused != nil {
		return certificates.Credentials{}, o.refused
	}
	return certificates.Credentials{Key: []byte("key " + o.key), Chain: fmt.Appendf(nil, "chain of %s/%d by %s", volume, index, p.SignerName)}, nil
}

func projected(mode *int32, user *int64, sources ...v1.VolumeProjection) v1.VolumeSource {
	return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: mode, DefaultUser: user, Sources: sources}}
}

// TestCertificatesInVolumes: keys are in memory, in one file with their certificates or beside them; they change as one, and stay when there are no others.
func TestCertificatesInVolumes(t *testing.T) {
	o := &someObjects{key: "1"}
	m := manager(t, o)
	pod := podWith(projected(nil, nil,
		v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("roots"), Path: "ca/roots.crt"}},
		v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{SignerName: "a.b/c", CredentialBundlePath: "both", KeyPath: "key", CertificateChainPath: "chain"}},
	))
	o.refused = errors.New("credential bundle is not issued yet")
	if err := setUp(t.Context(), m, pod); err == nil || !strings.Contains(err.Error(), `MountVolume.SetUp failed for volume "a" : credential bundle is not issued yet`) {
		t.Fatal(err)
	}
	o.refused = nil
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	dir := m.volumeDir("u", "a")
	if is, err := kinds.IsTmpfs(dir); err != nil || !is {
		t.Errorf("the key is on a disk: %v", err)
	}
	const tail = "chain of a/1 by a.b/c"
	want := func(key string) string {
		return "both[rw-r--r--]=key " + key + tail + " ca/roots.crt[rw-r--r--]=anchors ca/of ca/roots chain[rw-r--r--]=" + tail + " key[rw-r--r--]=key " + key
	}
	if got := treeOf(t, dir); got != want("1") {
		t.Errorf("%s\nwant\n%s", got, want("1"))
	}
	o.key = "2"
	if err := update(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	if got := treeOf(t, dir); got != want("2") {
		t.Errorf("%s\nwant\n%s", got, want("2"))
	}
	o.key, o.refused = "3", errors.New("PodCertificateRequest was permanently denied")
	if err := update(t.Context(), m, pod); err == nil {
		t.Error("that there is no certificate any more is not told")
	}
	if got := treeOf(t, dir); got != want("2") {
		t.Errorf("%s\nwant\n%s", got, want("2"))
	}
}

// TestWhoseFilesAre: a file is its user's, or else its volume's; what was made for the pod nobody else reads then.
func TestWhoseFilesAre(t *testing.T) {
	one, two := int64(1001), int64(1002)
	mode := new(int32(0o444))
	keys := []v1.KeyToPath{{Key: "k", Path: "k"}, {Key: "k", Path: "own", User: &two}}
	name := []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}, {Path: "own", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}, User: &two}}
	x := v1.LocalObjectReference{Name: "x"}
	m := manager(t, &someObjects{data: map[string]string{"k": "v"}, secret: map[string][]byte{"k": []byte("v")}})
	pod := podWith(
		v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: x, Items: keys, DefaultMode: mode, DefaultUser: &one}},
		v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x", DefaultMode: mode, DefaultUser: &one}},
		v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: name, DefaultMode: mode, DefaultUser: &one}},
		projected(mode, &one,
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: x, Items: keys}},
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("roots"), Path: "roots", User: &two}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{SignerName: "a.b/c", KeyPath: "key", User: &two}},
		),
		projected(mode, nil,
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", User: &two}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{SignerName: "a.b/c", KeyPath: "key"}},
		),
	)
	if err := setUp(t.Context(), m, pod); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"a/k": "1001 444", "a/own": "1002 444", "b/k": "1001 444", "c/name": "1001 444", "c/own": "1002 444",
		"d/k": "1001 444", "d/own": "1002 444", "d/token": "1001 600", "d/roots": "1002 600", "d/key": "1002 600", "e/token": "1002 600", "e/key": "0 444",
	} {
		volume, file, _ := strings.Cut(path, "/")
		var stat unix.Stat_t
		if err := unix.Stat(filepath.Join(m.volumeDir("u", volume), file), &stat); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %o", stat.Uid, os.FileMode(stat.Mode&0o777)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
