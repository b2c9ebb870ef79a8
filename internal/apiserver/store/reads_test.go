package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"monopod.dev/monopod/internal/apiserver/etcd"
)

// Whoever was told that something is written reads it, at once.
func TestReadsSeeWhatIsAcknowledged(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	e, err := etcd.Start(t.Context(), etcd.Config{DataDir: filepath.Join(dir, "data"), SocketDir: filepath.Join(dir, "run"), Tick: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	client := &kubernetes.Client{Client: e.Client()}
	reads := oneMember{client, e.Client().KV}
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			key := fmt.Sprint("/k/", w)
			for n := range 100 {
				put, err := e.Client().Put(t.Context(), key, fmt.Sprint(n))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := reads.Get(t.Context(), key, kubernetes.GetOptions{})
				if err != nil || got.KV == nil || string(got.KV.Value) != fmt.Sprint(n) || got.Revision < put.Header.Revision {
					t.Errorf("%s: %d was written at revision %d, read is %+v, %v", key, n, put.Header.Revision, got, err)
					return
				}
			}
		})
	}
	writers.Wait()
	old, err := reads.Get(t.Context(), "/k/none", kubernetes.GetOptions{})
	if err != nil || old.KV != nil || old.Revision == 0 {
		t.Errorf("a key that is not there: %+v, %v", old, err)
	}
}
