package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"monopod.dev/monopod/internal/apiserver/etcd"
)

const deadline = 2 * time.Minute

func value(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Int32())
	}
	return string(b)
}

// create, update and remove do what the API server does.
func create(ctx context.Context, c *clientv3.Client, key, value string) error {
	_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Commit()
	return err
}

func update(ctx context.Context, c *clientv3.Client, key, value string) error {
	got, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).Then(clientv3.OpPut(key, value)).Commit()
	return err
}

func remove(ctx context.Context, c *clientv3.Client, key string) error {
	got, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
	return err
}

// Objects may be made and deleted for ever: what they leave counts against nobody.
func TestObjectsComeAndGo(t *testing.T) {
	cfg := config(t)
	cfg.Quota = etcd.MinQuota
	c := start(t, cfg).Client()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for i := range 100 {
		key := fmt.Sprint("/registry/configmaps/default/", i)
		if err := create(ctx, c, key, value(1<<20)); err != nil {
			t.Fatalf("object %d: %v", i, err)
		}
		if err := remove(ctx, c, key); err != nil {
			t.Fatalf("delete object %d: %v", i, err)
		}
	}
	if got, err := c.Get(ctx, "compact_rev_key"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the API server is not told that revisions are gone: %v, %v", got, err)
	}
}

// fill makes objects /k0, /k1 and so on, and returns how many the store has taken, and why no more.
func fill(ctx context.Context, t *testing.T, c *clientv3.Client) (n int, err error) {
	t.Helper()
	for n = 0; n <= 1000; n++ {
		if err = create(ctx, c, fmt.Sprint("/k", n), value(300<<10)); err != nil {
			return n, err
		}
	}
	t.Fatal("the quota is not held")
	return n, nil
}

// Of a store that is full of objects everybody can delete, whatever update that takes, and then it takes objects again.
func TestAFullStore(t *testing.T) {
	cfg := config(t)
	cfg.Quota = etcd.MinQuota
	c := start(t, cfg).Client()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	n, err := fill(ctx, t, c)
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "16.0 MiB") || !strings.Contains(err.Error(), "--etcd-quota") || n < 40 {
		t.Fatalf("after %d objects: %v", n, err)
	}
	for i := range 80 { // more than the quota, all together
		if err := update(ctx, c, fmt.Sprint("/k", i%n), value(300<<10)); err != nil {
			t.Fatalf("update %d of an object that does not grow: %v", i, err)
		}
	}
	// What was dropped is counted late, so that a store may have called itself full with some room left. That is soon taken: the quota holds, or the loop ends.
	refused := func(what string, write func(i int) error) (err error) {
		for i := range n {
			if err = write(i); err != nil {
				break
			}
		}
		if !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %v", what, err)
		}
		return err
	}
	// The last ones grow, and the first are removed below.
	err = refused("updates that grow", func(i int) error { return update(ctx, c, fmt.Sprint("/k", n-1-i), value(600<<10)) })
	if err != nil && !strings.Contains(err.Error(), "updates that make an object larger") {
		t.Errorf("an update that grows: %v", err)
	}
	// What is smaller than those before may fit into what they left.
	_ = refused("objects", func(i int) error { return create(ctx, c, fmt.Sprint("/another", i), value(600<<10)) })
	for i := range 3 {
		if err := remove(ctx, c, fmt.Sprint("/k", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(ctx, c, "/new", value(300<<10)); err != nil {
		t.Errorf("after deletions: %v", err)
	}
}

// What was dropped is not free while somebody reads the store as it was before, such as for a snapshot: an update that fits afterwards waits for it.
func TestUpdatesOfAFullStoreWaitForReaders(t *testing.T) {
	cfg := config(t)
	cfg.Quota = etcd.MinQuota
	c := start(t, cfg).Client()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	n, _ := fill(ctx, t, c)
	snapshot, err := c.Snapshot(ctx) // it holds what it reads as long as nobody takes it
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(1200*time.Millisecond, func() {
		_, _ = io.Copy(io.Discard, snapshot)
		snapshot.Close()
	})
	for i := range 20 {
		if err := update(ctx, c, fmt.Sprint("/k", i%n), value(300<<10)); err != nil {
			t.Fatalf("update %d of an object that does not grow: %v", i, err)
		}
	}
}

// dial opens a client on the socket, as the operator's tools do.
func dial(t *testing.T, cfg etcd.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(cfg.SocketDir, "etcd.sock")},
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The quota holds for who comes through the socket, too.
func TestTheSocketHasTheQuota(t *testing.T) {
	cfg := config(t)
	cfg.Quota = etcd.MinQuota
	start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	tool := dial(t, cfg)
	for i := range 60 {
		if _, err := tool.Put(ctx, "/same", value(1<<20)); err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = create(ctx, tool, fmt.Sprint("/k", i), value(1<<20))
	}
	if err == nil || !strings.Contains(err.Error(), "--etcd-quota") {
		t.Errorf("objects beyond the quota: %v", err)
	}
	if alarms, err := tool.AlarmList(ctx); err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms %v, %v", alarms, err)
	}
}

// The alarm NOSPACE, with which etcd refuses all puts until somebody clears it, does not last, nor over a restart: a store of an older
// version may have it.
func TestTheAlarmIsCleared(t *testing.T) {
	cfg := config(t)
	s := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := create(ctx, s.Client(), "/gone", "v"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.RaiseAlarm(ctx); err != nil {
			t.Fatal(err)
		}
		if err := update(ctx, s.Client(), "/gone", "w"); err != nil {
			t.Errorf("update under the alarm: %v", err)
		}
		if alarms, err := s.Client().AlarmList(ctx); err != nil || hasAlarm(alarms) {
			t.Errorf("alarms %v, %v", alarms, err)
		}
	}
	if err := s.RaiseAlarm(ctx); err != nil {
		t.Fatal(err)
	}
	if err := remove(ctx, s.Client(), "/gone"); err != nil {
		t.Errorf("delete under the alarm: %v", err)
	}
	if err := s.RaiseAlarm(ctx); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = start(t, cfg)
	for { // nobody writes: the keeper sees it by itself
		alarms, err := s.Client().AlarmList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !hasAlarm(alarms) {
			break
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // polled
	}
}

func hasAlarm(r *clientv3.AlarmResponse) bool {
	for _, a := range r.Alarms {
		if a.GetAlarm() == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// A file that is mostly free is written anew while the store is used.
func TestTheFileShrinks(t *testing.T) {
	cfg := config(t)
	s := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	c := s.Client()
	if err := create(ctx, c, "/kept", "v"); err != nil {
		t.Fatal(err)
	}
	var rev int64
	for i := range 100 {
		resp, err := c.Put(ctx, "/k", value(1<<20))
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
		rev = resp.Header.Revision
	}
	if _, err := c.Compact(ctx, rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cfg.DataDir, "member", "snap", "db")
	for i := 0; ; i++ {
		if _, err := c.Put(ctx, "/other", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() < 32<<20 {
			break
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // polled
	}
	got, err := c.Get(ctx, "/kept")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
		t.Errorf("%v, %v", got, err)
	}
}

// killedEnv is set in the process that TestKilledWhileItDefragments kills.
const killedEnv = "MONOPOD_TEST_ETCD_DIR"

// A process that is killed at any moment of a compaction or a defragmentation leaves a store that opens and has all that was told to be
// written.
func TestKilledWhileItDefragments(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		churn(t, dir)
		return
	}
	cfg := config(t)
	dir := filepath.Dir(cfg.DataDir)
	last := -1
	for round := range 8 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWhileItDefragments$")
		cmd.Env = append(os.Environ(), killedEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		killed := make(chan struct{})
		for lines.Scan() {
			var n int
			if _, err := fmt.Sscanf(lines.Text(), "wrote %d", &n); err == nil {
				last = max(last, n)
				select {
				case <-killed:
				default:
					close(killed)
					time.AfterFunc(time.Duration(20+rand.IntN(200))*time.Millisecond, func() { cmd.Process.Kill() })
				}
			}
		}
		cmd.Wait() // it was killed
		if last < 0 {
			t.Fatal("the process wrote nothing")
		}
		s, err := etcd.Start(t.Context(), cfg)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got, err := s.Client().Get(t.Context(), "/n")
		var n int
		if err == nil && len(got.Kvs) == 1 {
			fmt.Sscan(string(got.Kvs[0].Value), &n)
		}
		if err != nil || n < last {
			t.Errorf("round %d: %d is written, %d was acknowledged (%v)", round, n, last, err)
		}
		s.Close()
		if left, _ := filepath.Glob(filepath.Join(cfg.DataDir, "member", "snap", "db.tmp*")); len(left) > 0 {
			t.Errorf("round %d: %v are left", round, left)
		}
	}
}

// churn writes, compacts and defragments until it is killed.
func churn(t *testing.T, dir string) {
	s, err := etcd.Start(t.Context(), etcd.Config{DataDir: filepath.Join(dir, "data"), SocketDir: filepath.Join(dir, "run"), Tick: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if got, err := s.Client().Get(t.Context(), "/n"); err == nil && len(got.Kvs) == 1 {
		fmt.Sscan(string(got.Kvs[0].Value), &n)
	}
	go func() {
		for t.Context().Err() == nil {
			if err := s.Defragment(); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		n++
		if _, err := s.Client().Put(t.Context(), "/fill", value(100<<10)); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client().Put(t.Context(), "/n", fmt.Sprint(n))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("wrote", n)
		if n%10 == 0 {
			if _, err := s.Client().Compact(t.Context(), resp.Header.Revision); err != nil {
				t.Fatal(err)
			}
		}
	}
}
