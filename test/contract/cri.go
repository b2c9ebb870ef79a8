// Package contract has suites of tests that every implementation of an interface passes: what its users may rely on, whoever serves it.
package contract

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// Runtime is a CRI runtime and how a test has its containers end.
type Runtime struct {
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient
	// Image is an image that is there.
	Image string
	// Sandbox is the configuration of an ordinary sandbox.
	Sandbox func(name string) *cri.PodSandboxConfig
	// Container is the configuration of a container that runs until Exit, or until SIGTERM, which it ends by with code 143. A deaf one ignores SIGTERM.
	Container func(name string, deaf bool) *cri.ContainerConfig
	// Exit ends a running container with a code.
	Exit func(t *testing.T, id string, code int32)
	// Hears returns when a running container would end by SIGTERM.
	Hears func(t *testing.T, id string)
}

// RunRuntime runs the suite of what our agent relies on in a CRI runtime; the rules are those of the comments of CRI's api.proto. It leaves no sandbox.
func RunRuntime(t *testing.T, r Runtime) {
	for _, c := range []struct {
		rule string
		test func(*runtimeTest)
	}{
		{"a sandbox is ready, and told as it was asked for", (*runtimeTest).sandboxes},
		{"a sandbox's metadata are of one sandbox", (*runtimeTest).oneSandbox},
		{"a container is created, running, exited", (*runtimeTest).states},
		{"a container's metadata are of one container of its sandbox", (*runtimeTest).oneContainer},
		{"a container starts once", (*runtimeTest).startsOnce},
		{"a stop is SIGTERM, and SIGKILL after the time", (*runtimeTest).stops},
		{"stops and removals may be repeated", (*runtimeTest).repeated},
		{"what does not exist is not found", (*runtimeTest).absent},
		{"a stopped sandbox has no running container, and takes no new one", (*runtimeTest).stoppedSandbox},
		{"a removed sandbox's containers are removed", (*runtimeTest).removedSandbox},
		{"events tell of each object in the order of its life", (*runtimeTest).events},
		{"an image that is not there is no error", (*runtimeTest).images},
	} {
		t.Run(c.rule, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute*harness.SlowFactor())
			defer cancel()
			rt := &runtimeTest{T: t, Runtime: r, ctx: ctx}
			defer rt.removeAll()
			c.test(rt)
		})
	}
}

// runtimeTest is one test of the suite.
type runtimeTest struct {
	*testing.T
	Runtime
	ctx  context.Context
	made []string // sandboxes
}

func (r *runtimeTest) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *runtimeTest) removeAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute*harness.SlowFactor())
	defer cancel()
	for _, id := range r.made {
		if _, err := r.Runtime.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			r.Errorf("remove sandbox %s: %v", id, err)
		}
	}
}

func (r *runtimeTest) rt() cri.RuntimeServiceClient { return r.Runtime.Runtime }

// run runs a sandbox of a name, labelled by it.
func (r *runtimeTest) run(name string) (string, *cri.PodSandboxConfig) {
	r.Helper()
	cfg := r.Sandbox(name)
	cfg.Labels = map[string]string{"contract": name}
	cfg.Annotations = map[string]string{"contract.example/note": "of " + name}
	resp, err := r.rt().RunPodSandbox(r.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	r.check(err)
	r.made = append(r.made, resp.PodSandboxId)
	return resp.PodSandboxId, cfg
}

func (r *runtimeTest) request(sandbox string, cfg *cri.PodSandboxConfig, name string, deaf bool) *cri.CreateContainerRequest {
	c := r.Container(name, deaf)
	c.Labels = map[string]string{"contract": name}
	return &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: c, SandboxConfig: cfg}
}

func (r *runtimeTest) create(sandbox string, cfg *cri.PodSandboxConfig, name string, deaf bool) string {
	r.Helper()
	resp, err := r.rt().CreateContainer(r.ctx, r.request(sandbox, cfg, name, deaf))
	r.check(err)
	return resp.ContainerId
}

func (r *runtimeTest) start(id string) error {
	_, err := r.rt().StartContainer(r.ctx, &cri.StartContainerRequest{ContainerId: id})
	return err
}

// launch returns a container that runs, and ends by SIGTERM.
func (r *runtimeTest) launch(sandbox string, cfg *cri.PodSandboxConfig, name string) string {
	r.Helper()
	id := r.create(sandbox, cfg, name, false)
	r.check(r.start(id))
	r.Hears(r.T, id)
	return id
}

func (r *runtimeTest) stop(id string, seconds int64) error {
	_, err := r.rt().StopContainer(r.ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

func (r *runtimeTest) status(id string) *cri.ContainerStatus {
	r.Helper()
	resp, err := r.rt().ContainerStatus(r.ctx, &cri.ContainerStatusRequest{ContainerId: id})
	r.check(err)
	return resp.Status
}

func (r *runtimeTest) wantState(id string, want cri.ContainerState) *cri.ContainerStatus {
	r.Helper()
	s := r.status(id)
	if s.State != want {
		r.Fatalf("container %s is %v, want %v", id, s.State, want)
	}
	return s
}

func (r *runtimeTest) ended(id string) *cri.ContainerStatus {
	r.Helper()
	var s *cri.ContainerStatus
	harness.Eventually(r.T, "the end of "+id, func() (bool, string) {
		s = r.status(id)
		return s.State == cri.ContainerState_CONTAINER_EXITED, s.State.String()
	})
	return s
}

func (r *runtimeTest) sandboxIDs(f *cri.PodSandboxFilter) []string {
	r.Helper()
	resp, err := r.rt().ListPodSandbox(r.ctx, &cri.ListPodSandboxRequest{Filter: f})
	r.check(err)
	var ids []string
	for _, s := range resp.Items {
		ids = append(ids, s.Id)
	}
	slices.Sort(ids)
	return ids
}

func (r *runtimeTest) containerIDs(name string) []string {
	r.Helper()
	resp, err := r.rt().ListContainers(r.ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: map[string]string{"contract": name}}})
	r.check(err)
	var ids []string
	for _, c := range resp.Containers {
		ids = append(ids, c.Id)
	}
	slices.Sort(ids)
	return ids
}

func (r *runtimeTest) wantIDs(what string, got []string, want ...string) {
	r.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (r *runtimeTest) wantCode(what string, err error, want ...codes.Code) {
	r.Helper()
	if !slices.Contains(want, status.Code(err)) {
		r.Errorf("%s: %v, want %v", what, err, want)
	}
}

func ofState(s cri.PodSandboxState) *cri.PodSandboxStateValue {
	return &cri.PodSandboxStateValue{State: s}
}

func (r *runtimeTest) sandboxes() {
	begin := time.Now().UnixNano()
	id, cfg := r.run("told")
	resp, err := r.rt().PodSandboxStatus(r.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	r.check(err)
	s := resp.Status
	if s.Id != id || s.State != cri.PodSandboxState_SANDBOX_READY || s.CreatedAt < begin || s.CreatedAt > time.Now().UnixNano() || s.Network.GetIp() == "" {
		r.Errorf("status %v", s)
	}
	if s.Metadata.String() != cfg.Metadata.String() || s.Labels["contract"] != "told" || s.Annotations["contract.example/note"] != "of told" {
		r.Errorf("the status has the metadata %v, labels %v, annotations %v", s.Metadata, s.Labels, s.Annotations)
	}
	label := map[string]string{"contract": "told"}
	r.wantIDs("by label", r.sandboxIDs(&cri.PodSandboxFilter{LabelSelector: label}), id)
	r.wantIDs("by label and state", r.sandboxIDs(&cri.PodSandboxFilter{LabelSelector: label, State: ofState(cri.PodSandboxState_SANDBOX_READY)}), id)
	r.wantIDs("by another state", r.sandboxIDs(&cri.PodSandboxFilter{LabelSelector: label, State: ofState(cri.PodSandboxState_SANDBOX_NOTREADY)}))
	r.wantIDs("by another label", r.sandboxIDs(&cri.PodSandboxFilter{LabelSelector: map[string]string{"contract": "other"}}))
}

// oneSandbox: a client that did not hear the answer calls again, and either gets the same sandbox or learns that it is there.
func (r *runtimeTest) oneSandbox() {
	id, cfg := r.run("once")
	resp, err := r.rt().RunPodSandbox(r.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	if err == nil && resp.PodSandboxId != id {
		r.made = append(r.made, resp.PodSandboxId)
		r.Errorf("the same metadata made %s beside %s", resp.PodSandboxId, id)
	}
	r.wantCode("the same metadata again", err, codes.OK, codes.AlreadyExists)
	r.wantIDs("by label", r.sandboxIDs(&cri.PodSandboxFilter{LabelSelector: cfg.Labels}), id)
	again := r.Sandbox("once")
	again.Metadata.Attempt++
	again.Labels = cfg.Labels
	resp, err = r.rt().RunPodSandbox(r.ctx, &cri.RunPodSandboxRequest{Config: again})
	r.check(err)
	r.made = append(r.made, resp.PodSandboxId)
	r.wantIDs("with another attempt", r.sandboxIDs(&cri.PodSandboxFilter{LabelSelector: cfg.Labels}), id, resp.PodSandboxId)
}

func (r *runtimeTest) states() {
	sandbox, cfg := r.run("states")
	id := r.create(sandbox, cfg, "states", false)
	s := r.wantState(id, cri.ContainerState_CONTAINER_CREATED)
	if s.CreatedAt == 0 || s.StartedAt != 0 || s.FinishedAt != 0 || s.Metadata.Name != "states" || s.Labels["contract"] != "states" {
		r.Errorf("created: %v", s)
	}
	r.check(r.start(id))
	s = r.wantState(id, cri.ContainerState_CONTAINER_RUNNING)
	if s.StartedAt < s.CreatedAt || s.FinishedAt != 0 {
		r.Errorf("running: %v", s)
	}
	r.wantIDs("by label", r.containerIDs("states"), id)
	r.Exit(r.T, id, 3)
	s = r.ended(id)
	if s.ExitCode != 3 || s.FinishedAt < s.StartedAt {
		r.Errorf("exited with 3: %v", s)
	}
	resp, err := r.rt().ListContainers(r.ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: map[string]string{"contract": "states"}}})
	r.check(err)
	if len(resp.Containers) != 1 || resp.Containers[0].PodSandboxId != sandbox || resp.Containers[0].State != cri.ContainerState_CONTAINER_EXITED {
		r.Errorf("list %v", resp.Containers)
	}
}

func (r *runtimeTest) oneContainer() {
	sandbox, cfg := r.run("one")
	id := r.create(sandbox, cfg, "one", false)
	resp, err := r.rt().CreateContainer(r.ctx, r.request(sandbox, cfg, "one", false))
	if err == nil && resp.ContainerId != id {
		r.Errorf("the same metadata made %s beside %s", resp.ContainerId, id)
	}
	r.wantCode("the same metadata again", err, codes.OK, codes.AlreadyExists)
	r.wantIDs("by label", r.containerIDs("one"), id)
	next := r.request(sandbox, cfg, "one", false)
	next.Config.Metadata.Attempt++
	resp, err = r.rt().CreateContainer(r.ctx, next)
	r.check(err)
	r.wantIDs("with another attempt", r.containerIDs("one"), id, resp.ContainerId)
}

func (r *runtimeTest) startsOnce() {
	sandbox, cfg := r.run("start")
	id := r.launch(sandbox, cfg, "start")
	before := r.status(id)
	// A client that did not hear the answer calls again: some say that it is done, some that it was.
	r.wantCode("start again", r.start(id), codes.OK, codes.FailedPrecondition, codes.Unknown)
	if s := r.wantState(id, cri.ContainerState_CONTAINER_RUNNING); s.StartedAt != before.StartedAt {
		r.Errorf("a running container was started again: at %d, before at %d", s.StartedAt, before.StartedAt)
	}
	r.Exit(r.T, id, 0)
	r.ended(id)
	if err := r.start(id); err == nil {
		r.Error("a container that has ended was started")
	}
	r.wantState(id, cri.ContainerState_CONTAINER_EXITED)
}

func (r *runtimeTest) stops() {
	sandbox, cfg := r.run("stops")
	id := r.launch(sandbox, cfg, "hears")
	begin := time.Now()
	r.check(r.stop(id, 60))
	if s := r.wantState(id, cri.ContainerState_CONTAINER_EXITED); s.ExitCode != 143 {
		r.Errorf("ended by SIGTERM: code %d after %v, want 143", s.ExitCode, time.Since(begin))
	}
	deaf := r.create(sandbox, cfg, "deaf", true)
	r.check(r.start(deaf))
	r.Hears(r.T, deaf)
	begin = time.Now()
	r.check(r.stop(deaf, 1))
	if s := r.wantState(deaf, cri.ContainerState_CONTAINER_EXITED); s.ExitCode != 137 || time.Since(begin) < time.Second {
		r.Errorf("killed: code %d after %v, want 137 after 1s", s.ExitCode, time.Since(begin))
	}
	now := r.launch(sandbox, cfg, "now")
	r.check(r.stop(now, 0))
	if s := r.wantState(now, cri.ContainerState_CONTAINER_EXITED); s.ExitCode != 137 {
		r.Errorf("killed at once: code %d, want 137", s.ExitCode)
	}
}

func (r *runtimeTest) repeated() {
	sandbox, cfg := r.run("again")
	never := r.create(sandbox, cfg, "never", false)
	id := r.launch(sandbox, cfg, "again")
	for range 2 {
		r.check(r.stop(never, 1))
		r.check(r.stop(id, 60))
	}
	finished := r.status(id).FinishedAt
	running := r.launch(sandbox, cfg, "running")
	for range 2 {
		for _, c := range []string{never, id, running} {
			_, err := r.rt().RemoveContainer(r.ctx, &cri.RemoveContainerRequest{ContainerId: c})
			r.check(err)
			_, err = r.rt().ContainerStatus(r.ctx, &cri.ContainerStatusRequest{ContainerId: c})
			r.wantCode("status of a removed container", err, codes.NotFound)
		}
	}
	if finished == 0 {
		r.Error("a stopped container has no time of its end")
	}
	for range 2 {
		_, err := r.rt().StopPodSandbox(r.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
		r.check(err)
	}
	for range 2 {
		_, err := r.rt().RemovePodSandbox(r.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
		r.check(err)
		_, err = r.rt().PodSandboxStatus(r.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
		r.wantCode("status of a removed sandbox", err, codes.NotFound)
	}
}

func (r *runtimeTest) absent() {
	_, err := r.rt().PodSandboxStatus(r.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: "none"})
	r.wantCode("PodSandboxStatus", err, codes.NotFound)
	_, err = r.rt().ContainerStatus(r.ctx, &cri.ContainerStatusRequest{ContainerId: "none"})
	r.wantCode("ContainerStatus", err, codes.NotFound)
	r.wantCode("StartContainer", r.start("none"), codes.NotFound)
	_, err = r.rt().CreateContainer(r.ctx, r.request("none", r.Sandbox("none"), "none", false))
	r.wantCode("CreateContainer", err, codes.NotFound)
	_, err = r.rt().RemoveContainer(r.ctx, &cri.RemoveContainerRequest{ContainerId: "none"})
	r.wantCode("RemoveContainer", err, codes.OK)
	_, err = r.rt().StopPodSandbox(r.ctx, &cri.StopPodSandboxRequest{PodSandboxId: "none"})
	r.wantCode("StopPodSandbox", err, codes.OK)
	_, err = r.rt().RemovePodSandbox(r.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: "none"})
	r.wantCode("RemovePodSandbox", err, codes.OK)
}

func (r *runtimeTest) stoppedSandbox() {
	sandbox, cfg := r.run("stopped")
	id := r.launch(sandbox, cfg, "stopped")
	_, err := r.rt().StopPodSandbox(r.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
	r.check(err)
	if s := r.wantState(id, cri.ContainerState_CONTAINER_EXITED); s.ExitCode != 137 {
		r.Errorf("ended with its sandbox: code %d, want 137", s.ExitCode)
	}
	resp, err := r.rt().PodSandboxStatus(r.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
	r.check(err)
	if resp.Status.State != cri.PodSandboxState_SANDBOX_NOTREADY {
		r.Errorf("a stopped sandbox is %v", resp.Status.State)
	}
	if _, err := r.rt().CreateContainer(r.ctx, r.request(sandbox, cfg, "late", false)); err == nil {
		r.Error("a stopped sandbox took a container")
	}
}

func (r *runtimeTest) removedSandbox() {
	sandbox, cfg := r.run("removed")
	running, created := r.launch(sandbox, cfg, "removed"), r.create(sandbox, cfg, "never", false)
	_, err := r.rt().RemovePodSandbox(r.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	r.check(err)
	for _, id := range []string{running, created} {
		_, err := r.rt().ContainerStatus(r.ctx, &cri.ContainerStatusRequest{ContainerId: id})
		r.wantCode("status of a container of a removed sandbox", err, codes.NotFound)
	}
	r.wantIDs("containers", r.containerIDs("removed"))
}

func (r *runtimeTest) events() {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	stream, err := r.rt().GetContainerEvents(ctx, &cri.GetEventsRequest{})
	r.check(err)
	_, err = stream.Header()
	r.check(err)
	sandbox, cfg := r.run("events")
	id := r.launch(sandbox, cfg, "events")
	r.check(r.stop(id, 60))
	_, err = r.rt().RemoveContainer(r.ctx, &cri.RemoveContainerRequest{ContainerId: id})
	r.check(err)
	_, err = r.rt().StopPodSandbox(r.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
	r.check(err)
	var got []string
	want := fmt.Sprint([]string{"started sandbox", "created container", "started container", "stopped container", "deleted container", "stopped sandbox"})
	names := map[string]string{sandbox: "sandbox", id: "container"}
	kinds := map[cri.ContainerEventType]string{cri.ContainerEventType_CONTAINER_CREATED_EVENT: "created", cri.ContainerEventType_CONTAINER_STARTED_EVENT: "started",
		cri.ContainerEventType_CONTAINER_STOPPED_EVENT: "stopped", cri.ContainerEventType_CONTAINER_DELETED_EVENT: "deleted"}
	for {
		e, err := stream.Recv()
		if err != nil {
			r.Fatalf("%v; told so far: %q, want %s", err, got, want)
		}
		name := names[e.ContainerId]
		if name == "" || name == "sandbox" && e.ContainerEventType == cri.ContainerEventType_CONTAINER_CREATED_EVENT {
			continue // of another test; a sandbox is created and started in one call, and some tell of both
		}
		if e.PodSandboxStatus.GetId() != sandbox {
			r.Errorf("the event %v has the status of another sandbox", e)
		}
		got = append(got, kinds[e.ContainerEventType]+" "+name)
		if got[len(got)-1] == "stopped sandbox" {
			break
		}
	}
	if fmt.Sprint(got) != want {
		r.Errorf("told %q, want %s", got, want)
	}
}

func (r *runtimeTest) images() {
	resp, err := r.Images.ImageStatus(r.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "localhost/none:latest"}})
	r.check(err)
	if resp.Image != nil {
		r.Errorf("an image that is not there: %v", resp.Image)
	}
	resp, err = r.Images.ImageStatus(r.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: r.Image}})
	r.check(err)
	if resp.Image.GetId() == "" || !slices.Contains(resp.Image.GetRepoTags(), r.Image) {
		r.Errorf("image %s: %v", r.Image, resp.Image)
	}
}
