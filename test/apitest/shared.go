package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/apiserver/etcd"
)

// Etcd runs an etcd until the test ends, and returns its URL.
func Etcd(t testing.TB) string {
	t.Helper()
	dir := shortDir(t)
	server, err := etcd.Start(t.Context(), etcd.Config{DataDir: filepath.Join(dir, "d"), SocketDir: filepath.Join(dir, "s"), Tick: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return "unix://" + filepath.Join(dir, "s", "etcd.sock")
}

// StartShared starts so many API servers that share an etcd.
func StartShared(t testing.TB, n int) (all []*API) {
	t.Helper()
	url := Etcd(t)
	var first string
	for range n {
		dir := shortDir(t)
		if first == "" {
			first = dir
		} else {
			CopyKeys(t, filepath.Join(first, "d"), filepath.Join(dir, "d"))
		}
		all = append(all, start(t, dir, etcd.RemoteConfig{Servers: []string{url}}))
	}
	return all
}

// CopyKeys gives an API server, by its data directory, the authority and the keys of another one, as those who share an etcd have them.
func CopyKeys(t testing.TB, from, to string) {
	t.Helper()
	from, to = filepath.Join(from, "pki"), filepath.Join(to, "pki")
	files, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	for _, f := range files {
		if name := f.Name(); name != "ca.crt" && name != "ca.key" && name != "encryption.yaml" && !strings.HasPrefix(name, "sa-") {
			continue
		}
		raw, rerr := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = rerr
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), raw, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
