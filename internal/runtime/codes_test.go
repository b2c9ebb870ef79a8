package runtime_test

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// served are the RPCs that are there (docs/CRI.md).
var served = strings.Fields(`Version Status RuntimeConfig RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox CreateContainer
	StartContainer StopContainer RemoveContainer ContainerStatus ListContainers ReopenContainerLog ExecSync Exec Attach GetContainerEvents PortForward UpdateContainerResources UpdatePodSandboxResources
	ListImages ImageStatus PullImage RemoveImage ImageFsInfo
	StreamPodSandboxes StreamContainers StreamImages
	ContainerStats ListContainerStats StreamContainerStats PodSandboxStats ListPodSandboxStats StreamPodSandboxStats
	ListMetricDescriptors ListPodSandboxMetrics StreamPodSandboxMetrics UpdateRuntimeConfig`)

// TestEveryRPC calls each RPC of CRI with an empty request: one that is there answers, or refuses it; one that is not is
// Unimplemented by name.
func TestEveryRPC(t *testing.T) {
	n := prepareNode(t)
	n.start()
	here := map[string]bool{}
	for _, name := range served {
		here[name] = true
	}
	call := func(service, name string, stream bool) {
		method := "/" + service + "/" + name
		var err error
		if stream {
			var s grpc.ClientStream
			s, err = n.conn.NewStream(n.ctx, &grpc.StreamDesc{StreamName: name, ServerStreams: true}, method)
			n.check(err)
			n.check(s.SendMsg(&emptypb.Empty{}))
			n.check(s.CloseSend())
			if here[name] { // it goes on for ever
				_, err = s.Header()
			} else {
				err = s.RecvMsg(&emptypb.Empty{})
			}
		} else {
			err = n.conn.Invoke(n.ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
		}
		switch code := status.Code(err); {
		case here[name] && code != codes.OK && code != codes.InvalidArgument:
			t.Errorf("%s with an empty request: %v", name, err)
		case !here[name]:
			wantCode(t, err, codes.Unimplemented, name)
		}
		delete(here, name)
	}
	for _, svc := range []grpc.ServiceDesc{cri.RuntimeService_ServiceDesc, cri.ImageService_ServiceDesc} {
		for _, m := range svc.Methods {
			call(svc.ServiceName, m.MethodName, false)
		}
		for _, m := range svc.Streams {
			call(svc.ServiceName, m.StreamName, true)
		}
	}
	if len(here) > 0 {
		t.Errorf("CRI has no %v", here)
	}

	version, err := n.rt.Version(n.ctx, &cri.VersionRequest{})
	if err != nil || version.GetRuntimeName() != "monopod" || version.GetRuntimeApiVersion() != "v1" || version.GetRuntimeVersion() != "0.1.0" {
		t.Errorf("version %v, %v", version, err)
	}
	st, err := n.rt.Status(n.ctx, &cri.StatusRequest{Verbose: true})
	if err != nil || len(st.GetStatus().GetConditions()) != 2 || !strings.Contains(st.GetInfo()["host"], "cgroupMode") {
		t.Errorf("status %v, %v", st, err)
	}
	for _, c := range st.GetStatus().GetConditions() {
		if !c.GetStatus() {
			t.Errorf("condition %v", c)
		}
	}
}

// TestRefusals: what cannot be honoured is refused by name, and nothing is left of it.
func TestRefusals(t *testing.T) {
	n := sharedNode(t)
	for name, c := range map[string]struct {
		change  func(*cri.PodSandboxConfig)
		handler string
		code    codes.Code
		words   []string
	}{
		"no uid":  {func(c *cri.PodSandboxConfig) { c.Metadata.Uid = "" }, "", codes.InvalidArgument, []string{"uid"}},
		"handler": {func(*cri.PodSandboxConfig) {}, "kata", codes.InvalidArgument, []string{"kata", "native"}},
		"sysctl":  {func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"kernel.panic": "1"} }, "", codes.InvalidArgument, []string{"kernel.panic"}},
		"unknown": {func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net.no.such": "1"} }, "", codes.InvalidArgument, []string{"net.no.such"}},
		"no interface": {func(c *cri.PodSandboxConfig) {
			c.Linux.Sysctls = map[string]string{"net.ipv4.conf.eth7.rp_filter": "1"}
		}, "", codes.InvalidArgument, []string{"net.ipv4.conf.eth7.rp_filter", "no such interface"}},
		"host sysctl": {hostNetSysctl, "", codes.InvalidArgument, []string{"net.ipv4.ip_forward", "host"}},
		"dns server":  {func(c *cri.PodSandboxConfig) { c.DnsConfig = &cri.DNSConfig{Servers: []string{"dns.example"}} }, "", codes.InvalidArgument, []string{"dns.example"}},
		"dns search": {func(c *cri.PodSandboxConfig) {
			c.DnsConfig = &cri.DNSConfig{Searches: []string{"a\nnameserver 1.2.3.4"}}
		}, "", codes.InvalidArgument, []string{"searches"}},
		"host port": {func(c *cri.PodSandboxConfig) {
			c.PortMappings = []*cri.PortMapping{{ContainerPort: 80, HostPort: 65536}}
		}, "", codes.InvalidArgument, []string{"host_port", "65536"}},
		"host address": {func(c *cri.PodSandboxConfig) {
			c.PortMappings = []*cri.PortMapping{{ContainerPort: 80, HostPort: 80, HostIp: "here"}}
		}, "", codes.InvalidArgument, []string{"host_ip", "here"}},
		"protocol": {func(c *cri.PodSandboxConfig) {
			c.PortMappings = []*cri.PortMapping{{Protocol: 9, ContainerPort: 80, HostPort: 80}}
		}, "", codes.InvalidArgument, []string{"protocol", "9"}},
		"log directory": {func(c *cri.PodSandboxConfig) { c.LogDirectory = "logs" }, "", codes.InvalidArgument, []string{"log_directory", "logs"}},
		"user namespace": {func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD}
		}, "", codes.InvalidArgument, []string{"userns_options.uids"}},
	} {
		t.Run("sandbox "+name, func(t *testing.T) {
			cfg := n.sandboxConfig("refused")
			c.change(cfg)
			_, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: c.handler})
			wantCode(t, err, c.code, c.words...)
		})
	}
	sb := n.run("refusals")
	for name, c := range map[string]struct {
		change func(*cri.ContainerConfig)
		code   codes.Code
		words  []string
	}{
		"no name":  {func(c *cri.ContainerConfig) { c.Metadata.Name = "" }, codes.InvalidArgument, []string{"metadata.name"}},
		"no image": {func(c *cri.ContainerConfig) { c.Image = nil }, codes.InvalidArgument, []string{"image"}},
		"image":    {func(c *cri.ContainerConfig) { c.Image.Image = "docker.io/library/nothing:1" }, codes.NotFound, []string{"nothing:1"}},
		"mount": {func(c *cri.ContainerConfig) { c.Mounts = []*cri.Mount{{HostPath: "/no/such", ContainerPath: "/m"}} }, codes.InvalidArgument,
			[]string{"/no/such", "/m"}},
		"image mount": {func(c *cri.ContainerConfig) {
			c.Mounts = []*cri.Mount{{Image: &cri.ImageSpec{Image: "docker.io/library/nothing:1"}, ContainerPath: "/m"}}
		}, codes.NotFound, []string{"/m", "nothing:1"}},
		"device": {func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/etc/passwd", ContainerPath: "/dev/x", Permissions: "rw"}}
		},
			codes.InvalidArgument, []string{"/etc/passwd"}},
		"privileged": {func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true }, codes.InvalidArgument, []string{"privileged"}},
		"seccomp file": {func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "/no/profile.json"}
		}, codes.InvalidArgument, []string{"/no/profile.json"}},
		"user": {func(c *cri.ContainerConfig) { c.Linux.SecurityContext.RunAsUsername = "nobody-here" }, codes.InvalidArgument, []string{"nobody-here"}},
		"capability": {func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: []string{"FLY"}}
		}, codes.InvalidArgument, []string{"FLY"}},
		"stop signal": {func(c *cri.ContainerConfig) { c.StopSignal = 4711 }, codes.InvalidArgument, []string{"stop signal"}},
		"cdi name":    {func(c *cri.ContainerConfig) { c.CDIDevices = []*cri.CDIDevice{{Name: "gpu0"}} }, codes.InvalidArgument, []string{"gpu0"}},
	} {
		t.Run("container "+name, func(t *testing.T) {
			cfg := shell("refused", sleeper)
			c.change(cfg)
			_, err := n.tryCreate(sb, cfg)
			wantCode(t, err, c.code, c.words...)
		})
	}
	_, err := n.tryCreate(strings.Repeat("0", 64), shell("x", sleeper))
	wantCode(t, err, codes.NotFound, "sandbox")
	if list, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{}); err != nil || len(list.GetContainers()) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	for _, dir := range []string{"data/containers", "run/containers"} {
		if left := n.leftIn(dir); len(left) != 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	if left, err := filepath.Glob(filepath.Join(n.dir, "run/sandboxes/*")); err != nil || len(left) != 1 {
		t.Errorf("folders of sandboxes: %v, %v", left, err)
	}
}

func hostNetSysctl(c *cri.PodSandboxConfig) {
	c.Linux.SecurityContext.NamespaceOptions.Network, c.Hostname = cri.NamespaceMode_NODE, ""
	c.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
}
