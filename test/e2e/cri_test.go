package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/test/harness"
)

// TestRuntimeAlone runs the example pod with a bare CRI client against `monopod runtime`: no agent, no API server.
func TestRuntimeAlone(t *testing.T) {
	root := harness.Root(t)
	spec, err := os.ReadFile(filepath.Join(root, "examples/cdi/example.com-widget.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n := harness.StartNode(t, harness.Options{Command: "runtime", CDISpecs: map[string]string{"example.com-widget.yaml": string(spec)}})
	n.LoadImage(filepath.Join(root, "bin/hello.tar"))
	conn, err := grpc.NewClient("unix://"+n.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second*harness.SlowFactor())
	defer cancel()
	r := &bareClient{T: t, ctx: ctx, rt: cri.NewRuntimeServiceClient(conn), logs: filepath.Join(n.Dir, "pods", "hello"), pod: examplePod(t, root)}

	id := r.run()
	containers := map[string]string{}
	for i := range r.pod.Spec.Containers {
		c := &r.pod.Spec.Containers[i]
		containers[c.Name] = r.start(id, c)
	}
	r.check(id, containers)

	// Idempotence and error codes, as CRI words them.
	for range 2 {
		r.must(r.rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}))
	}
	for range 2 {
		r.must(r.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}))
	}
	if _, err := r.rt.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id}); status.Code(err) != codes.NotFound {
		t.Errorf("status of a removed sandbox: %v, want NotFound", err)
	}
	if _, err := r.rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a sandbox without configuration: %v, want InvalidArgument", err)
	}
	if _, err := r.rt.CheckpointContainer(ctx, &cri.CheckpointContainerRequest{}); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "CheckpointContainer") {
		t.Errorf("CheckpointContainer: %v, want Unimplemented by name", err)
	}
}

func examplePod(t *testing.T, root string) *corev1.Pod {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "examples/hello.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var p corev1.Pod
	if err := yaml.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// bareClient speaks CRI as a kubelet does, for one pod.
type bareClient struct {
	*testing.T
	ctx  context.Context
	rt   cri.RuntimeServiceClient
	logs string
	pod  *corev1.Pod
}

func (r *bareClient) must(_ any, err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *bareClient) sandboxConfig() *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: r.pod.Name, Namespace: "default", Uid: "uid-hello"},
		Hostname: r.pod.Name, LogDirectory: r.logs,
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
	}
}

func (r *bareClient) run() string {
	r.Helper()
	resp, err := r.rt.RunPodSandbox(r.ctx, &cri.RunPodSandboxRequest{Config: r.sandboxConfig()})
	if err != nil {
		r.Fatal(err)
	}
	return resp.GetPodSandboxId()
}

func (r *bareClient) start(sandbox string, c *corev1.Container) string {
	r.Helper()
	cfg := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name}, Image: &cri.ImageSpec{Image: c.Image},
		Command: c.Command, Args: c.Args, LogPath: c.Name + ".log",
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
	}
	for _, e := range c.Env {
		cfg.Envs = append(cfg.Envs, &cri.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	if _, ok := c.Resources.Limits["example.com/widget"]; ok {
		cfg.CDIDevices = []*cri.CDIDevice{{Name: "example.com/widget=w1"}}
	}
	created, err := r.rt.CreateContainer(r.ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: cfg, SandboxConfig: r.sandboxConfig()})
	if err != nil {
		r.Fatal(err)
	}
	r.must(r.rt.StartContainer(r.ctx, &cri.StartContainerRequest{ContainerId: created.GetContainerId()}))
	return created.GetContainerId()
}

func (r *bareClient) check(sandbox string, containers map[string]string) {
	r.Helper()
	st, err := r.rt.PodSandboxStatus(r.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil || st.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_READY || st.GetStatus().GetNetwork().GetIp() == "" {
		r.Errorf("sandbox: %v, %v; want ready with an address", st, err)
	}
	for name, id := range containers {
		cs, err := r.rt.ContainerStatus(r.ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil || cs.GetStatus().GetState() != cri.ContainerState_CONTAINER_RUNNING {
			r.Errorf("container %s: %v, %v; want running", name, cs, err)
		}
		out, err := r.rt.ExecSync(r.ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"/hello", "show"}, Timeout: 10})
		if err != nil || out.GetExitCode() != 0 || !strings.Contains(string(out.GetStdout()), "hello") {
			r.Errorf("ExecSync in %s: %v, %v", name, out, err)
		}
	}
	for i := range r.pod.Spec.Containers {
		c := &r.pod.Spec.Containers[i]
		if _, ok := c.Resources.Limits["example.com/widget"]; !ok {
			continue
		}
		harness.Eventually(r.T, "the log shows the device", func() (bool, string) {
			raw, _ := os.ReadFile(filepath.Join(r.logs, c.Name+".log"))
			return strings.Contains(string(raw), "/dev/widget"), string(raw)
		})
	}
}
