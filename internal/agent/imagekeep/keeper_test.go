package imagekeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/imagegc"
	"monopod.dev/monopod/test/crifake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// always is a policy by which there is never enough room: everything goes that may.
var always = imagegc.Policy{High: 0, Low: 0}

// never is a policy by which there is always room.
var never = imagegc.Policy{High: 100, Low: 99}

type bench struct {
	*testing.T
	rt     *crifake.Runtime
	cfg    Config
	events *record.FakeRecorder
}

func newBench(t *testing.T, policy imagegc.Policy, images ...string) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mpi") // a unix socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rt := crifake.Start(t, filepath.Join(dir, "cri.sock"))
	client, err := cri.Dial(cri.Config{Socket: rt.Socket, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for _, img := range images {
		rt.HaveImage(img)
	}
	events := record.NewFakeRecorder(100)
	return &bench{T: t, rt: rt, events: events, cfg: Config{
		Runtime: client, Policy: policy, Period: time.Hour, File: filepath.Join(dir, "state", "images.json"),
		Node: &v1.ObjectReference{Kind: "Node", Name: "n"}, Events: events, Log: slog.New(slog.DiscardHandler),
	}}
}

// left are the images that the runtime has.
func (b *bench) left() string {
	b.Helper()
	resp, err := b.cfg.Runtime.Images.ListImages(b.Context(), &criv1.ListImagesRequest{})
	if err != nil {
		b.Fatal(err)
	}
	var ids []string
	for _, img := range resp.Images {
		ids = append(ids, img.Id)
	}
	return strings.Join(ids, " ")
}

// told are the events so far.
func (b *bench) told() (all []string) {
	for {
		select {
		case e := <-b.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// TestQuiet: while there is room and nothing changes, a look is one call.
func TestQuiet(t *testing.T) {
	b := newBench(t, never, "a")
	k := New(b.cfg)
	look := func(want int64) {
		t.Helper()
		before := b.rt.Queries.Load()
		if err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if calls := b.rt.Queries.Load() - before; calls != want {
			t.Errorf("%d calls, want %d", calls, want)
		}
	}
	look(2) // it sees the images for the first time
	look(1)
	b.rt.HaveImage("b")
	look(2)
	look(1)
}

func TestUsedImagesStay(t *testing.T) {
	b := newBench(t, always, "free", "own", "volume", "volume-by-name", "held", "held-by-name")
	sandbox, err := b.cfg.Runtime.RunPodSandbox(t.Context(), &criv1.RunPodSandboxRequest{Config: &criv1.PodSandboxConfig{Metadata: &criv1.PodSandboxMetadata{Name: "p"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Runtime.CreateContainer(t.Context(), &criv1.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: &criv1.PodSandboxConfig{},
		Config: &criv1.ContainerConfig{Metadata: &criv1.ContainerMetadata{Name: "c"}, Image: &criv1.ImageSpec{Image: "own"}, Mounts: []*criv1.Mount{
			{Image: &criv1.ImageSpec{ImageRef: "volume"}}, {Image: &criv1.ImageSpec{Image: "docker.io/volume-by-name"}}}},
	}); err != nil {
		t.Fatal(err)
	}
	k := New(b.cfg)
	byName, err := k.Hold(t.Context(), "held-by-name")
	if err != nil {
		t.Fatal(err)
	}
	byID, err := k.Hold(t.Context(), "another-name")
	if err != nil || !byID.Is(t.Context(), "held") {
		t.Fatal(err)
	}
	err = k.look(t.Context())
	var few *tooFew
	if !errors.As(err, &few) {
		t.Errorf("a file system that is never empty enough: %v", err)
	}
	if got := b.left(); got != "held held-by-name own volume volume-by-name" {
		t.Errorf("left: %s", got)
	}
	byName.Release()
	byID.Release()
	byID.Release() // harmless
	if err := k.look(t.Context()); !errors.As(err, &few) {
		t.Error(err)
	}
	if got := b.left(); got != "own volume volume-by-name" {
		t.Errorf("left, when nobody holds them: %s", got)
	}
	if len(k.held) != 0 || len(k.removing) != 0 {
		t.Errorf("kept: %v, %v", k.held, k.removing)
	}
}

// TestRemovalAndUse: who comes during a removal waits for it, and a removal leaves what was used since the containers were listed.
func TestRemovalAndUse(t *testing.T) {
	b := newBench(t, never)
	k := New(b.cfg)
	keys := names(&criv1.Image{Id: "id", RepoTags: []string{"docker.io/library/a:latest"}})
	end, ok := k.reserve(keys, time.Now())
	if !ok {
		t.Fatal("a free image is not to be had")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Hold(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a hold that is not waited for: %v", err)
	}
	other, err := k.Hold(t.Context(), "other-name")
	if err != nil {
		t.Fatal(err)
	}
	if other.Is(ctx, "id") {
		t.Error("an image is taken that is being removed")
	}
	got := make(chan *Hold)
	go func() {
		h, err := k.Hold(context.Background(), "a")
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	end()
	h := <-got
	if !h.Is(t.Context(), "id") {
		t.Error("a free image is not to be had")
	}
	if _, ok := k.reserve(keys, time.Now()); ok {
		t.Error("a held image may go")
	}
	h.Release()
	other.Release()
	if _, ok := k.reserve(keys, time.Now().Add(-time.Hour)); ok {
		t.Error("an image may go that was used after the containers were listed")
	}
	if _, ok := k.reserve(keys, time.Now()); !ok {
		t.Error("a free image is not to be had")
	}
}

func TestAgedImagesGo(t *testing.T) {
	b := newBench(t, imagegc.Policy{High: 100, Low: 99, MaxAge: time.Hour}, "old", "young")
	k := New(b.cfg)
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, when := range k.times {
		when.FirstSeen = when.FirstSeen.Add(-2 * time.Hour)
	}
	k.Used("docker.io/library/young:latest") // by a name
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.left(); got != "young" {
		t.Errorf("left: %s", got)
	}
	if len(k.times) != 1 && len(k.times) != 2 {
		t.Errorf("remembered: %v", k.times)
	}
}

func TestFile(t *testing.T) {
	b := newBench(t, never, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	k := New(b.cfg)
	k.Used("b")
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if raw, err := os.ReadFile(b.cfg.File); err == nil && strings.Contains(string(raw), `"a":{`) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the file was not written: %s, %v", raw, err)
		}
	}
	k.Used("a")
	cancel()
	<-done

	again := New(b.cfg)
	if len(again.times) != 2 || again.times["a"].LastUsed.Before(again.times["b"].LastUsed) || again.times["b"].LastUsed.IsZero() {
		t.Errorf("after a restart: %+v", again.times)
	}
	// What is gone is forgotten.
	if _, err := b.cfg.Runtime.Images.RemoveImage(t.Context(), &criv1.RemoveImageRequest{Image: &criv1.ImageSpec{Image: "b"}}); err != nil {
		t.Fatal(err)
	}
	if err := again.look(t.Context()); err != nil || again.times["b"] != nil || again.times["a"] == nil {
		t.Errorf("after a removal: %+v, %v", again.times, err)
	}
	for _, content := range []string{"", "nonsense", `{"version":2}`, `{"version":1,"images":{"a":null}}`} {
		if err := os.WriteFile(b.cfg.File, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if k := New(b.cfg); len(k.times) != 0 {
			t.Errorf("of the file %q: %v", content, k.times)
		}
	}
}

func TestEvents(t *testing.T) {
	b := newBench(t, always, "a")
	k := New(b.cfg)
	b.rt.Fail("RemoveImage", fmt.Errorf("stuck"))
	k.tell(t.Context(), k.look(t.Context()))
	if got := strings.Join(b.told(), "\n"); !strings.HasPrefix(got, "Warning FreeDiskSpaceFailed Failed to garbage collect required amount of images. Attempted to free ") ||
		strings.Contains(got, "ImageGCFailed") {
		t.Errorf("after the first failure: %s", got)
	}
	k.tell(t.Context(), k.look(t.Context()))
	if got := strings.Join(b.told(), "\n"); !strings.Contains(got, "Warning ImageGCFailed ") || !strings.Contains(got, "stuck") {
		t.Errorf("after the second: %s", got)
	}
	k.tell(t.Context(), nil)
	k.tell(t.Context(), errNoCapacity)
	if got := b.told(); len(got) != 1 || got[0] != "Warning InvalidDiskCapacity invalid capacity 0 on image filesystem" {
		t.Errorf("after a look that went well, and one at a file system without a size: %q", got)
	}
}
