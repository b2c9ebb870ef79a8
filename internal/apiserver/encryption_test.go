package apiserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/apiserver/etcd"
)

// withStore does something with the store of a server that has ended.
func withStore(t *testing.T, cfg apiserver.Config, do func(*clientv3.Client)) {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Config{
		DataDir: filepath.Join(cfg.DataDir, "etcd"), SocketDir: filepath.Join(cfg.RunDir, "etcd"), Tick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	do(server.Client())
}

// stored is what the store has under a key.
func stored(t *testing.T, cfg apiserver.Config, key string) (value []byte) {
	t.Helper()
	withStore(t, cfg, func(c *clientv3.Client) {
		found, err := c.Get(t.Context(), key)
		if err != nil || len(found.Kvs) != 1 {
			t.Fatalf("%s in the store: %v, %v", key, found, err)
		}
		value = found.Kvs[0].Value
	})
	return value
}

// put writes into the store.
func put(t *testing.T, cfg apiserver.Config, values map[string][]byte) {
	t.Helper()
	withStore(t, cfg, func(c *clientv3.Client) {
		for key, value := range values {
			if _, err := c.Put(t.Context(), key, string(value)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// logged is closed when a message has been logged.
type logged struct {
	slog.Handler
	message string
	done    chan struct{}
}

func (*logged) Enabled(context.Context, slog.Level) bool { return true }

func (l *logged) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == l.message {
		close(l.done)
	}
	return l.Handler.Handle(ctx, r)
}

const encrypted = "all objects are encrypted with the first provider"

// runUntilEncrypted runs a server until all is stored as configured, and something has been done with it.
func runUntilEncrypted(t *testing.T, cfg apiserver.Config, do func(*instance)) {
	t.Helper()
	l := &logged{Handler: slog.DiscardHandler, message: encrypted, done: make(chan struct{})}
	cfg.Log = slog.New(l)
	i := start(t, cfg)
	defer i.end(t)
	select {
	case <-l.done:
	case <-time.After(time.Minute):
		t.Fatal("not everything is stored as configured")
	}
	do(i)
}

const secretKey = "/registry/secrets/default/s"

func TestSecretsAreUnreadableInTheStore(t *testing.T) {
	cfg := newConfig(t)
	runUntilEncrypted(t, cfg, func(i *instance) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"password": []byte("opensesame")}}
		if _, err := i.admin(t).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if raw := stored(t, cfg, secretKey); bytes.Contains(raw, []byte("opensesame")) || !bytes.HasPrefix(raw, []byte("k8s:enc:secretbox:v1:key1:")) {
		t.Errorf("in the store: %q", raw)
	}
	info, err := os.Stat(filepath.Join(cfg.DataDir, "pki", "encryption.yaml"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v, want mode 0600", info, err)
	}
	i := start(t, cfg)
	defer i.end(t)
	if s, err := i.admin(t).CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err != nil || string(s.Data["password"]) != "opensesame" {
		t.Errorf("after a restart: %v, %v", s, err)
	}
}

// TestKeysAreRotated: what was stored in the open, and then with an older key, is stored with the first key of the configuration.
func TestKeysAreRotated(t *testing.T) {
	cfg := newConfig(t)
	cfg.EncryptionConfigFile = filepath.Join(t.TempDir(), "encryption.yaml")
	key := func(name string, b byte) string {
		return fmt.Sprintf("  - secretbox: {keys: [{name: %s, secret: %s}]}\n", name, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)))
	}
	configure := func(providers ...string) {
		text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" + strings.Join(providers, "")
		if err := os.WriteFile(cfg.EncryptionConfigFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const open = "  - identity: {}\n"
	configure(open)
	runUntilEncrypted(t, cfg, func(i *instance) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"password": []byte("opensesame")}}
		if _, err := i.admin(t).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if raw := stored(t, cfg, secretKey); !bytes.Contains(raw, []byte("opensesame")) {
		t.Fatalf("with identity first, in the store: %q", raw)
	}
	for _, step := range []struct {
		providers []string
		prefix    string
	}{
		{[]string{key("one", 1), open}, "k8s:enc:secretbox:v1:one:"},
		{[]string{key("two", 2), key("one", 1)}, "k8s:enc:secretbox:v1:two:"},
		{[]string{key("two", 2)}, "k8s:enc:secretbox:v1:two:"},
	} {
		configure(step.providers...)
		runUntilEncrypted(t, cfg, func(i *instance) {
			if s, err := i.admin(t).CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err != nil || string(s.Data["password"]) != "opensesame" {
				t.Errorf("read: %v, %v", s, err)
			}
		})
		if raw := stored(t, cfg, secretKey); !bytes.HasPrefix(raw, []byte(step.prefix)) {
			t.Errorf("in the store: %.60q, want %q", raw, step.prefix)
		}
	}
}

// TestObjectsOfYesterdayAreEncryptedAnew: what today's API would refuse is encrypted with the first key like all else, and as it is.
func TestObjectsOfYesterdayAreEncryptedAnew(t *testing.T) {
	cfg := newConfig(t)
	cfg.EncryptionConfigFile = filepath.Join(t.TempDir(), "encryption.yaml")
	write := func(providers string) {
		text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" + providers
		if err := os.WriteFile(cfg.EncryptionConfigFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("  - identity: {}\n")
	runUntilEncrypted(t, cfg, func(*instance) {})
	// A secret of the type TLS without a key, twice.
	invalid := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "1"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"b": nil}}
	encoded, err := runtime.Encode(protobuf(t), invalid)
	if err != nil {
		t.Fatal(err)
	}
	put(t, cfg, map[string][]byte{"/registry/secrets/default/a": encoded, secretKey: encoded})
	write("  - secretbox: {keys: [{name: one, secret: " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)) + "}]}\n  - identity: {}\n")
	runUntilEncrypted(t, cfg, func(i *instance) {
		if s, err := i.admin(t).CoreV1().Secrets("default").Get(t.Context(), "a", metav1.GetOptions{}); err != nil || s.UID != "1" || s.Type != corev1.SecretTypeTLS {
			t.Errorf("read: %v, %v", s, err)
		}
	})
	for _, key := range []string{"/registry/secrets/default/a", secretKey} {
		if raw := stored(t, cfg, key); !bytes.HasPrefix(raw, []byte("k8s:enc:secretbox:v1:one:")) {
			t.Errorf("%s in the store: %.60q", key, raw)
		}
	}
}

func protobuf(t *testing.T) runtime.Encoder {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("there is no protobuf")
	}
	return scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
}

func TestBadEncryptionConfigurationIsNamed(t *testing.T) {
	cfg := newConfig(t)
	cfg.EncryptionConfigFile = filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(cfg.EncryptionConfigFile, []byte("kind: Pod\napiVersion: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := apiserver.New(t.Context(), cfg)
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), cfg.EncryptionConfigFile) || !strings.Contains(err.Error(), "EncryptionConfiguration") {
		t.Errorf("error %v, want one that names the file and what it must be", err)
	}
}
