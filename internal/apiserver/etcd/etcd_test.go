package etcd_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/apiserver/etcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(t *testing.T) etcd.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp-etcd-") // short: the socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return etcd.Config{DataDir: filepath.Join(dir, "data"), SocketDir: filepath.Join(dir, "run"), Tick: 10 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))}
}

func start(t *testing.T, cfg etcd.Config) *etcd.Server {
	t.Helper()
	begin := time.Now()
	s, err := etcd.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd answers after %v", time.Since(begin))
	t.Cleanup(s.Close)
	return s
}

func TestDataSurvivesARestart(t *testing.T) {
	cfg := config(t)
	s := start(t, cfg)
	if _, err := s.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }()
	s.Close()
	if err := <-ended; err != nil {
		t.Errorf("Wait after Close: %v", err)
	}
	s = start(t, cfg)
	got, err := s.Client().Get(t.Context(), "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
		t.Errorf("after a restart k is %v (%v)", got, err)
	}
}

// resident is how much of etcd's file is in memory, in kB.
func resident(t *testing.T, cfg etcd.Config) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, mapping, found := strings.Cut(string(raw), " "+filepath.Join(cfg.DataDir, "member", "snap", "db")+"\n")
	_, rest, ok := strings.Cut(mapping, "\nRss:")
	var kilobytes int
	if n, _ := fmt.Sscan(rest, &kilobytes); !found || !ok || n != 1 {
		t.Fatalf("etcd's file is not mapped, or its Rss not told: %v, %v", found, ok)
	}
	return kilobytes
}

// etcd maps its file of 16 MiB or more so that all of it is resident; only what is used should be.
func TestMemoryIsReleased(t *testing.T) {
	cfg := config(t)
	start(t, cfg).Close()
	start(t, cfg)
	if got := resident(t, cfg); got > 4096 {
		t.Errorf("%d kB of etcd's file are resident, want less than 4096", got)
	}
}

// Nor stays what a burst of writes and reads has touched.
func TestMemoryIsReleasedAfterABurst(t *testing.T) {
	cfg := config(t)
	c := start(t, cfg).Client()
	for i := range 100 {
		if err := create(t.Context(), c, fmt.Sprint("/registry/configmaps/default/", i), value(200<<10)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if _, err := c.Get(t.Context(), fmt.Sprint("/registry/configmaps/default/", i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := resident(t, cfg); got < 8<<10 {
		t.Errorf("%d kB of etcd's file are resident when 20 MB have been written and read: this test is not about what it says", got)
	}
	for end := time.Now().Add(deadline); resident(t, cfg) > 4096; {
		if time.Now().After(end) {
			t.Fatalf("%d kB of etcd's file are still resident", resident(t, cfg))
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the kernel tells nobody
	}
	if got, err := c.Get(t.Context(), "/registry/configmaps/default/7"); err != nil || len(got.Kvs) != 1 || len(got.Kvs[0].Value) != 200<<10 {
		t.Errorf("what was written is not read: %v", err)
	}
}

func TestOnlyAPrivateSocketIsServed(t *testing.T) {
	cfg := config(t)
	start(t, cfg)
	if info, err := os.Stat(cfg.SocketDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket directory: %v, %v; want mode 0700", info, err)
	}
	// Listening sockets of this process, by the inodes of its descriptors (proc_pid_net(5)).
	mine := map[string]bool{}
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "socket:[") {
			mine[strings.Trim(strings.TrimPrefix(target, "socket:"), "[]")] = true
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(table)
		if err != nil {
			continue // no IPv6 on this host
		}
		for _, line := range strings.Split(string(raw), "\n")[1:] {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && mine[f[9]] {
				t.Errorf("the process listens on TCP: %s", line)
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*etcd.Config)
		want   string
	}{
		"a tick of nothing": {func(c *etcd.Config) { c.Tick = time.Microsecond }, "use 1ms to 5s"},
		"a long path":       {func(c *etcd.Config) { c.SocketDir = filepath.Join(c.SocketDir, strings.Repeat("x", 120)) }, "shorter run directory"},
		"a file for a directory": {func(c *etcd.Config) {
			c.DataDir += "-file"
			if err := os.WriteFile(c.DataDir, nil, 0o600); err != nil {
				panic(err)
			}
		}, "etcd's directory"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			tc.change(&cfg)
			if _, err := etcd.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestDataHasOneUser(t *testing.T) {
	cfg := config(t)
	s := start(t, cfg)
	second := config(t)
	second.DataDir = cfg.DataDir
	if _, err := etcd.Start(t.Context(), second); err == nil || !strings.Contains(err.Error(), "used by another process") {
		t.Errorf("a second etcd on the data: error %v, want one that says who has it", err)
	}
	if _, err := s.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Errorf("the first one was disturbed: %v", err)
	}
}

func TestStartStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := config(t)
	cfg.Tick = time.Second
	if s, err := etcd.Start(ctx, cfg); err == nil {
		s.Close()
		t.Error("Start with a context that has ended succeeded")
	}
}

func BenchmarkPut(b *testing.B) {
	dir, err := os.MkdirTemp("", "mp-etcd-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := etcd.Start(b.Context(), etcd.Config{DataDir: dir + "/d", SocketDir: dir + "/r", Tick: 10 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Client().Put(b.Context(), fmt.Sprint("k", i), "v"); err != nil {
			b.Fatal(err)
		}
	}
}

// etcd's loop over watches that are behind runs as rarely as is set here, by a name that etcd does not promise.
func TestIdleLoopIsSlow(t *testing.T) {
	c := start(t, config(t)).Client()
	first, err := c.Put(t.Context(), "k", "v")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "k", "w"); err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	for range 2 { // the first one ends when the loop runs, and the second waits for its next time
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if r := <-c.Watch(ctx, "k", clientv3.WithRev(first.Header.Revision)); r.Err() != nil || len(r.Events) != 2 {
			t.Errorf("%v, %v", r.Events, r.Err())
		}
		cancel()
		took = time.Since(begin)
	}
	if took < 500*time.Millisecond {
		t.Errorf("a watch of the past got its first event after %v: the loop runs as often as etcd has it", took)
	}
}
