package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLifecycle(t *testing.T) {
	n := newNode(t)
	cfg := n.sandboxConfig("life")
	cfg.Labels, cfg.Annotations = map[string]string{"a": "b"}, map[string]string{"x/y": "z\nä", "empty": ""}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	sb := resp.GetPodSandboxId()
	st := n.sandboxStatus(sb)
	if st.GetState() != cri.PodSandboxState_SANDBOX_READY || st.GetNetwork().GetIp() == "" || st.GetCreatedAt() == 0 {
		t.Errorf("sandbox %v", st)
	}
	if fmt.Sprint(st.GetAnnotations(), st.GetLabels(), st.GetMetadata()) != fmt.Sprint(cfg.GetAnnotations(), cfg.GetLabels(), cfg.GetMetadata()) {
		t.Errorf("annotations, labels and metadata are not verbatim: %v", st)
	}

	c := shell("main", "echo out; echo err >&2; read x; "+sleeper)
	c.Annotations, c.Labels, c.Envs = map[string]string{"k": "v\x7f"}, map[string]string{"l": "1"}, []*cri.KeyValue{{Key: "E", Value: []byte("1 2")}}
	id := n.create(sb, c)
	if cs := n.status(id); cs.GetState() != cri.ContainerState_CONTAINER_CREATED || cs.GetStartedAt() != 0 || cs.GetFinishedAt() != 0 || cs.GetImageRef() == "" ||
		cs.GetAnnotations()["k"] != "v\x7f" || cs.GetLabels()["l"] != "1" || cs.GetMetadata().GetName() != "main" {
		t.Errorf("created: %v", cs)
	}
	n.check(n.tryStart(id))
	n.check(n.tryStart(id)) // a retry whose first answer was lost
	if cs := n.status(id); cs.GetState() != cri.ContainerState_CONTAINER_RUNNING || cs.GetStartedAt() < cs.GetCreatedAt() {
		t.Errorf("running: %v", cs)
	}
	if got := n.exec(id, "sh", "-c", "hostname; echo $E; ip -4 -o addr show eth0; cat /etc/hosts; cat /etc/hostname"); !strings.HasPrefix(got, "life\n1 2\n") ||
		!strings.Contains(got, " "+st.GetNetwork().GetIp()+"/32 ") || !strings.Contains(got, "\n"+st.GetNetwork().GetIp()+"\tlife\n") || !strings.HasSuffix(got, "life") {
		t.Errorf("inside: %q", got)
	}
	n.check(n.tryStop(id, 10))
	cs := n.status(id)
	if cs.GetState() != cri.ContainerState_CONTAINER_EXITED || cs.GetExitCode() != 0 || cs.GetReason() != "Completed" || cs.GetFinishedAt() < cs.GetStartedAt() {
		t.Errorf("exited: %v", cs)
	}
	wantCode(t, n.tryStart(id), codes.FailedPrecondition, id, "EXITED")
	for range 2 {
		n.check(n.tryStop(id, 10))
	}
	for range 2 {
		n.remove(id)
	}
	wantCode(t, func() error {
		_, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id})
		return err
	}(), codes.NotFound, id)
	for range 2 {
		_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb})
		n.check(err)
	}
	if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_NOTREADY || st.GetNetwork().GetIp() != "" {
		t.Errorf("stopped sandbox: %v", st)
	}
	_, err = n.tryCreate(sb, shell("late", sleeper))
	wantCode(t, err, codes.FailedPrecondition, sb)
	for range 2 {
		n.removeSandbox(sb)
	}
}

var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d) (stdout|stderr) F `)

func TestLogs(t *testing.T) {
	n := newNode(t)
	sb := n.run("logs")
	id := n.launch(sb, shell("a", "echo one; echo two >&2; "+sleeper))
	path := n.status(id).GetLogPath()
	if want := filepath.Join(n.dir, "logs", "logs", "a/0.log"); path != want {
		t.Errorf("log path %q, want %q", path, want)
	}
	n.eventually("two lines", func() bool { return len(n.logLines(path)) == 2 })
	for _, line := range n.logLines(path) {
		if !logLine.MatchString(line) {
			t.Errorf("log line %q", line)
		}
	}
	n.check(os.Rename(path, path+".1"))
	_, err := n.rt.ReopenContainerLog(n.ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	n.check(err)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	n.check(n.tryStop(id, 5))
	_, err = n.rt.ReopenContainerLog(n.ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	wantCode(t, err, codes.FailedPrecondition, id)

	t.Run("hostile paths", func(t *testing.T) {
		secret := filepath.Join(n.dir, "secret")
		n.check(os.WriteFile(secret, nil, 0o600))
		logs := filepath.Join(n.dir, "logs", "logs")
		n.check(os.Symlink(secret, filepath.Join(logs, "link")))
		n.check(os.Symlink(n.dir, filepath.Join(logs, "dir")))
		for _, path := range []string{"../up.log", "/abs.log", "x/../../up.log", "link", "dir/up.log", "."} {
			c := shell("h", "echo pwned")
			c.LogPath = path
			_, err := n.tryCreate(sb, c)
			wantCode(t, err, codes.InvalidArgument, "log_path")
		}
		for _, f := range []string{filepath.Join(n.dir, "logs", "up.log"), filepath.Join(n.dir, "up.log")} {
			if _, err := os.Stat(f); err == nil {
				t.Errorf("%s was made", f)
			}
		}
	})
	if out := n.output(sb, &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "b"}, Image: &cri.ImageSpec{Image: busybox},
		Command: []string{"echo"}, Args: []string{"-n", "partial"}, LogPath: "b.log"}); out != "partial" {
		t.Errorf("a line without an end: %q", out)
	}
}

func TestRetriesJoin(t *testing.T) {
	n := newNode(t)
	const tries = 5
	ids := make([]string, tries)
	var wg sync.WaitGroup
	for i := range tries {
		wg.Go(func() {
			resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig("join")})
			if err != nil {
				t.Error(err)
			}
			ids[i] = resp.GetPodSandboxId()
		})
	}
	wg.Wait()
	sb := ids[0]
	containers := make([]string, tries)
	for i := range tries {
		wg.Go(func() {
			id, err := n.tryCreate(sb, shell("join", sleeper))
			if err != nil {
				t.Error(err)
			}
			containers[i] = id
		})
	}
	wg.Wait()
	for i := range tries {
		if ids[i] != sb || containers[i] != containers[0] {
			t.Errorf("attempt %d made another one: %s, %s", i, ids[i], containers[i])
		}
	}
	if id := n.create(sb, shell("join", sleeper)); id != containers[0] {
		t.Errorf("a later retry made %s", id)
	}
	_, err := n.tryCreate(sb, shell("join", "exit 1"))
	wantCode(t, err, codes.AlreadyExists, containers[0], "join_0", sb)
	other := n.sandboxConfig("join")
	other.Hostname = "other"
	_, err = n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: other})
	wantCode(t, err, codes.AlreadyExists, sb)
	next := n.sandboxConfig("join")
	next.Metadata.Attempt = 1
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: next})
	if err != nil || resp.GetPodSandboxId() == sb {
		t.Errorf("another attempt: %v, %v", resp, err)
	}

	// Two configurations under one name at the same time: one of them is refused.
	var refused, made int
	var mu sync.Mutex
	for i := range 4 {
		wg.Go(func() {
			_, err := n.tryCreate(sb, shell("race", fmt.Sprintf("exit %d", i)))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else {
				wantCode(t, err, codes.AlreadyExists)
				refused++
			}
		})
	}
	wg.Wait()
	if made != 1 || refused != 3 {
		t.Errorf("%d made, %d refused", made, refused)
	}
}

func TestListsAndPrefixes(t *testing.T) {
	n := newNode(t)
	cfg := n.sandboxConfig("one")
	cfg.Labels = map[string]string{"app": "x"}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	one, two := resp.GetPodSandboxId(), n.run("two")
	c := shell("c", sleeper)
	c.Labels = map[string]string{"app": "y"}
	running, created := n.launch(one, c), n.create(two, shell("c", sleeper))
	if st := n.status(running[:12]); st.GetId() != running {
		t.Errorf("by prefix: %v", st)
	}
	_, err = n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: ""})
	wantCode(t, err, codes.InvalidArgument, "sandbox")
	for _, id := range []string{strings.Repeat("f", 64), "f0f0f0"} {
		_, err = n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id})
		wantCode(t, err, codes.NotFound, id)
		_, err = n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
		wantCode(t, err, codes.NotFound, id)
	}
	for _, c := range []struct {
		filter *cri.ContainerFilter
		want   string
	}{
		{nil, running + created},
		{&cri.ContainerFilter{LabelSelector: map[string]string{"app": "y"}}, running},
		{&cri.ContainerFilter{PodSandboxId: two}, created},
		{&cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_CREATED}}, created},
		{&cri.ContainerFilter{Id: running, PodSandboxId: two}, ""},
	} {
		resp, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{Filter: c.filter})
		n.check(err)
		got := ""
		for _, item := range resp.GetContainers() {
			got += item.GetId()
		}
		if got != c.want {
			t.Errorf("filter %v: %s, want %s", c.filter, got, c.want)
		}
	}
	list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{"app": "x"}}})
	if err != nil || len(list.GetItems()) != 1 || list.GetItems()[0].GetId() != one {
		t.Errorf("sandboxes by label: %v, %v", list, err)
	}
	verbose, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: running, Verbose: true})
	if err != nil || !strings.Contains(verbose.GetInfo()["info"], one) {
		t.Errorf("verbose status: %v, %v", verbose, err)
	}
	n.removeSandbox(one) // with a running container in it
	if _, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: running}); err == nil {
		t.Error("the container outlived its sandbox")
	}
}
