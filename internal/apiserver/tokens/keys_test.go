package tokens

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name string, blocks ...*pem.Block) {
	t.Helper()
	var raw []byte
	for _, b := range blocks {
		raw = append(raw, pem.EncodeToMemory(b)...)
	}
	if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

func ensure(t *testing.T, dir string) *Keys {
	t.Helper()
	k, _, err := EnsureKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRotation: the newest private key signs, all of them verify, in whatever form they are.
func TestRotation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, made, err := EnsureKeys(dir)
	if err != nil || made != filepath.Join(dir, "sa-1.key") {
		t.Fatalf("made %q, %v", made, err)
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again, made, err := EnsureKeys(dir); err != nil || made != "" || again.signer != first.signer {
		t.Errorf("the second start made %q, %v", made, err)
	}
	next, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&next.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sa-10.pub", &pem.Block{Type: "PUBLIC KEY", Bytes: public})
	if k := ensure(t, dir); k.signer != first.signer || len(k.public) != 2 {
		t.Errorf("a public key alone signs, or does not verify: %+v", k)
	}
	private, err := x509.MarshalPKCS8PrivateKey(next)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sa-10.key", &pem.Block{Type: "EC PARAMETERS", Bytes: []byte{1}}, &pem.Block{Type: "PRIVATE KEY", Bytes: private})
	k := ensure(t, dir)
	if k.signer == first.signer || len(k.public) != 2 || k.public[0].id != k.signer {
		t.Errorf("the newest key does not sign: %+v", k)
	}
	if info, err := os.Stat(filepath.Join(dir, "sa-10.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if set, err := k.set(); err != nil || strings.Count(string(set), `"kid"`) != 2 {
		t.Errorf("key set %s, %v", set, err)
	}
}

func TestOnlyPublicKeys(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sa-7.pub", &pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if _, made, err := EnsureKeys(dir); err != nil || filepath.Base(made) != "sa-8.key" {
		t.Errorf("made %q, %v", made, err)
	}
}

func TestBadKeys(t *testing.T) {
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalECPrivateKey(large)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file  string
		block *pem.Block
		want  string
	}{
		"another curve": {"sa-1.key", &pem.Block{Type: "EC PRIVATE KEY", Bytes: ec}, "P-384: use P-256"},
		"another kind":  {"sa-1.key", &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}, "use an ECDSA key"},
		"no key":        {"sa-1.key", &pem.Block{Type: "CERTIFICATE"}, "no PEM block EC PRIVATE KEY"},
		"no public key": {"sa-1.pub", &pem.Block{Type: "CERTIFICATE"}, "no PEM block PUBLIC KEY"},
		"no number":     {"sa-old.key", &pem.Block{Type: "EC PRIVATE KEY", Bytes: ec}, "its name must be sa-NUMBER.key"},
	} {
		dir := t.TempDir()
		write(t, dir, tc.file, tc.block)
		if _, _, err := EnsureKeys(dir); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.file) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
