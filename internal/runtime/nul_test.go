package runtime_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/test/images"
)

// TestNUL: what the kernel would cut off at a NUL is refused when it is asked for, by whomever: the client, or an image.
func TestNUL(t *testing.T) {
	n := newNode(t)
	sb := n.run("nul")
	for field, change := range map[string]func(*cri.ContainerConfig){
		"command[1]":                              func(c *cri.ContainerConfig) { c.Command[1] = "-c\x00" },
		"args[0]":                                 func(c *cri.ContainerConfig) { c.Args = []string{"\x00"} },
		"envs[0].key":                             func(c *cri.ContainerConfig) { c.Envs = []*cri.KeyValue{{Key: "A\x00B"}} },
		"working_dir":                             func(c *cri.ContainerConfig) { c.WorkingDir = "/tmp\x00/x" },
		"log_path":                                func(c *cri.ContainerConfig) { c.LogPath = "c\x00.log" },
		"mounts[0].host_path":                     func(c *cri.ContainerConfig) { c.Mounts = []*cri.Mount{{HostPath: "/tmp\x00", ContainerPath: "/m"}} },
		"linux.security_context.masked_paths[0]":  func(c *cri.ContainerConfig) { c.Linux.SecurityContext.MaskedPaths = []string{"/proc/keys\x00"} },
		"linux.security_context.run_as_username":  func(c *cri.ContainerConfig) { c.Linux.SecurityContext.RunAsUsername = "app\x00" },
		"linux.security_context.apparmor_profile": func(c *cri.ContainerConfig) { c.Linux.SecurityContext.ApparmorProfile = "localhost/p\x00" },
		"linux.resources.unified[\"memory.high\\x00": func(c *cri.ContainerConfig) {
			c.Linux.Resources = &cri.LinuxContainerResources{Unified: map[string]string{"memory.high\x00": "1"}}
		},
	} {
		cfg := shell("c", "true")
		change(cfg)
		_, err := n.tryCreate(sb, cfg)
		wantCode(t, err, codes.InvalidArgument, field, "NUL")
	}
	pod := n.sandboxConfig("other")
	pod.LogDirectory += "\x00"
	_, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: pod})
	wantCode(t, err, codes.InvalidArgument, "log_directory", "NUL")

	id := n.launch(sb, shell("running", sleeper))
	_, err = n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"echo", "a\x00b"}})
	wantCode(t, err, codes.InvalidArgument, "cmd[1]", "NUL")
	_, err = n.rt.Exec(n.ctx, &cri.ExecRequest{ContainerId: id, Cmd: []string{"echo\x00"}, Stdout: true})
	wantCode(t, err, codes.InvalidArgument, "cmd[0]", "NUL")

	const hostile = "docker.io/library/hostile:latest"
	img, err := images.Busybox(hostile)
	n.check(err)
	img.Config.Cmd = []string{"sh", "-c", "true\x00; false"}
	img.Config.Env = append(img.Config.Env, "A=b\x00LD_PRELOAD=/x")
	path := filepath.Join(n.dir, "hostile.tar")
	n.check(images.WriteArchive(path, img))
	f, err := os.Open(path)
	n.check(err)
	defer f.Close()
	_, err = n.images.Load(n.ctx, image.LoadRequest{Archive: f})
	n.check(err)
	cfg := shell("hostile", "true")
	cfg.Image.Image, cfg.Command = hostile, nil
	_, err = n.tryCreate(sb, cfg)
	wantCode(t, err, codes.InvalidArgument, hostile, "NUL")
}
