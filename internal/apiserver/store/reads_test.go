package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"monopod.dev/monopod/internal/apiserver/etcd"
)

func startEtcd(t *testing.T) *etcd.Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	e, err := etcd.Start(t.Context(), etcd.Config{DataDir: filepath.Join(dir, "data"), SocketDir: filepath.Join(dir, "run"), Tick: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Whoever was told that something is written reads it, at once.
func TestReadsSeeWhatIsAcknowledged(t *testing.T) {
	e := startEtcd(t)
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

// TestReadsSeeWhatIsWatched: whoever a watch has told of a write reads it, too.
func TestReadsSeeWhatIsWatched(t *testing.T) {
	e := startEtcd(t)
	reads := oneMember{&kubernetes.Client{Client: e.Client()}, e.Client().KV}
	watch := e.Client().Watch(t.Context(), "/k/", clientv3.WithPrefix(), clientv3.WithRev(1))
	for n := range 2000 {
		var written sync.WaitGroup
		written.Go(func() {
			if _, err := e.Client().Put(t.Context(), "/k/a", fmt.Sprint(n)); err != nil {
				t.Error(err)
			}
		})
		told := <-watch
		if err := told.Err(); err != nil {
			t.Fatal(err)
		}
		last := told.Events[len(told.Events)-1].Kv
		got, err := reads.Get(t.Context(), string(last.Key), kubernetes.GetOptions{})
		if err != nil || got.KV == nil || string(got.KV.Value) != string(last.Value) || got.Revision < last.ModRevision {
			t.Fatalf("a watch told of %s = %s at revision %d, read is %+v, %v", last.Key, last.Value, last.ModRevision, got, err)
		}
		written.Wait()
	}
}
