package runtime_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/test/images"
)

// same fails the test unless a message is the one that is wanted, field by field.
func same(t *testing.T, what string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, prototext.Format(got), prototext.Format(want))
	}
}

// TestFieldsOfSandbox: what is told of a sandbox is what it was made with, to the letter, and what it has become.
func TestFieldsOfSandbox(t *testing.T) {
	n := newNode(t)
	begin := time.Now().UnixNano()
	cfg := n.sandboxConfig("fields")
	cfg.Metadata.Attempt = 3
	cfg.Labels = map[string]string{"io.kubernetes.pod.name": "fields", "empty": ""}
	cfg.Annotations = map[string]string{"": "nameless", "a/b": "one\ntwo\x00\x7f ä", "c": ""}
	run, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: "native"})
	n.check(err)
	id := run.GetPodSandboxId()
	resp, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	n.check(err)
	got := resp.GetStatus()
	if got.GetCreatedAt() < begin || got.GetCreatedAt() > time.Now().UnixNano() || resp.GetTimestamp() < got.GetCreatedAt() {
		t.Errorf("made at %d, told at %d; the test began at %d", got.GetCreatedAt(), resp.GetTimestamp(), begin)
	}
	if got.GetNetwork().GetIp() == "" || len(resp.GetInfo()) != 0 {
		t.Errorf("network %v, info %v of one who did not ask for it", got.GetNetwork(), resp.GetInfo())
	}
	want := &cri.PodSandboxStatus{Id: id, Metadata: cfg.Metadata, State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: got.GetCreatedAt(), Network: got.GetNetwork(),
		Linux:  &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: cfg.Linux.SecurityContext.NamespaceOptions}},
		Labels: cfg.Labels, Annotations: cfg.Annotations, RuntimeHandler: "native"}
	same(t, "status", got, want)
	list, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
	n.check(err)
	item := &cri.PodSandbox{Id: id, Metadata: cfg.Metadata, State: want.State, CreatedAt: want.CreatedAt, Labels: cfg.Labels, Annotations: cfg.Annotations, RuntimeHandler: "native"}
	same(t, "list", list, &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{item}})

	verbose, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	n.check(err)
	wantJSON(t, verbose.GetInfo())
	container := n.launch(id, shell("c", sleeper))
	resp, err = n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	n.check(err)
	if all := resp.GetContainersStatuses(); len(all) != 1 || all[0].GetId() != container || all[0].GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("containers_statuses %v", all)
	}
	later := n.launch(id, shell("d", sleeper))
	asked := time.Now().UnixNano()
	resp, err = n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	n.check(err)
	if all := resp.GetContainersStatuses(); len(all) != 2 || all[0].GetId() != later || all[1].GetId() != container || resp.GetTimestamp() < asked {
		t.Errorf("containers_statuses, the newest first, at %d (asked at %d): %v", resp.GetTimestamp(), asked, all)
	}
	_, err = n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	n.check(err)
	want.State, want.Network = cri.PodSandboxState_SANDBOX_NOTREADY, &cri.PodSandboxNetworkStatus{}
	same(t, "status after the stop", n.sandboxStatus(id), want)
	if st := n.status(container); st.GetState() != cri.ContainerState_CONTAINER_EXITED {
		t.Errorf("a container runs on in a stopped sandbox: %v", st)
	}
}

// wantJSON: verbose information is in JSON.
func wantJSON(t *testing.T, info map[string]string) {
	t.Helper()
	if len(info) == 0 {
		t.Error("no info, though verbose is set")
	}
	for key, text := range info {
		if !json.Valid([]byte(text)) {
			t.Errorf("info[%q] is no JSON: %s", key, text)
		}
	}
}

// TestFieldsOfContainer: what is told of a container is what it was made with, to the letter, and what it has become.
func TestFieldsOfContainer(t *testing.T) {
	n := newNode(t)
	sb := n.run("fields")
	img, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: busybox}})
	n.check(err)
	begin := time.Now().UnixNano()
	cfg := shell("c", sleeper)
	cfg.Metadata.Attempt = 2
	cfg.Image = &cri.ImageSpec{Image: busybox, UserSpecifiedImage: "busybox", Annotations: map[string]string{"k": "v"}, RuntimeHandler: "native", ImageRef: "someone's"}
	cfg.Labels = map[string]string{"io.kubernetes.container.name": "c"}
	cfg.Annotations = map[string]string{"": "nameless", "a/b": "one\ntwo\x00\x7f ä"}
	cfg.Mounts = []*cri.Mount{{HostPath: n.dir, ContainerPath: "/m", Readonly: true}}
	cfg.Linux.Resources = &cri.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20}
	cfg.Linux.SecurityContext.RunAsUser, cfg.Linux.SecurityContext.SupplementalGroups = &cri.Int64Value{Value: 1000}, []int64{77}
	// The sandbox's configuration is passed again for reference only: the one that the sandbox was made with counts.
	made, err := n.rt.CreateContainer(n.ctx, &cri.CreateContainerRequest{PodSandboxId: sb, Config: cfg,
		SandboxConfig: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "other"}, LogDirectory: "/no/such", Hostname: "other"}})
	n.check(err)
	id := made.GetContainerId()
	resp, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id})
	n.check(err)
	got := resp.GetStatus()
	if got.GetCreatedAt() < begin || got.GetCreatedAt() > time.Now().UnixNano() || len(resp.GetInfo()) != 0 {
		t.Errorf("made at %d, the test began at %d; info %v", got.GetCreatedAt(), begin, resp.GetInfo())
	}
	limits := proto.Clone(cfg.Linux.Resources).(*cri.LinuxContainerResources)
	limits.MemorySwapLimitInBytes = got.GetResources().GetLinux().GetMemorySwapLimitInBytes()
	if swap := limits.MemorySwapLimitInBytes; swap != 0 && swap != limits.MemoryLimitInBytes { // 0 where the kernel does not count it
		t.Errorf("the swap limit is %d", swap)
	}
	want := &cri.ContainerStatus{Id: id, Metadata: cfg.Metadata, State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: got.GetCreatedAt(),
		Image: cfg.Image, ImageRef: img.GetImage().GetRepoDigests()[0], ImageId: img.GetImage().GetId(), Labels: cfg.Labels, Annotations: cfg.Annotations,
		Mounts: cfg.Mounts, LogPath: filepath.Join(n.dir, "logs/fields/c/0.log"), Resources: &cri.ContainerResources{Linux: limits},
		User:       &cri.ContainerUser{Linux: &cri.LinuxContainerUser{Uid: 1000, Gid: 1000, SupplementalGroups: []int64{1000, 29, 77}}},
		StopSignal: cri.Signal_SIGNAL_SIGTERM}
	same(t, "created", got, want)
	listed := &cri.Container{Id: id, PodSandboxId: sb, Metadata: cfg.Metadata, Image: cfg.Image, ImageRef: want.ImageRef, ImageId: want.ImageId, CreatedAt: want.CreatedAt,
		Labels: cfg.Labels, Annotations: cfg.Annotations}
	for _, state := range []cri.ContainerState{cri.ContainerState_CONTAINER_CREATED, cri.ContainerState_CONTAINER_RUNNING, cri.ContainerState_CONTAINER_EXITED} {
		switch state {
		case cri.ContainerState_CONTAINER_RUNNING:
			n.check(n.tryStart(id))
			want.StartedAt = n.status(id).GetStartedAt()
			if want.StartedAt < want.CreatedAt {
				t.Errorf("started at %d, made at %d", want.StartedAt, want.CreatedAt)
			}
		case cri.ContainerState_CONTAINER_EXITED:
			n.check(n.tryStop(id, 0))
			want.FinishedAt, want.ExitCode, want.Reason = n.status(id).GetFinishedAt(), 137, "Error"
			if want.FinishedAt < want.StartedAt {
				t.Errorf("finished at %d, started at %d", want.FinishedAt, want.StartedAt)
			}
		}
		want.State, listed.State = state, state
		same(t, state.String(), n.status(id), want)
		list, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{})
		n.check(err)
		same(t, "list", list, &cri.ListContainersResponse{Containers: []*cri.Container{listed}})
	}
	verbose, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	n.check(err)
	wantJSON(t, verbose.GetInfo())
}

// TestFieldsOfProcess: a container's program gets the arguments, variables, directory and stdin that it is to have.
func TestFieldsOfProcess(t *testing.T) {
	n := newNode(t)
	sb := n.run("process")
	for name, c := range map[string]struct {
		change func(*cri.ContainerConfig)
		want   string
	}{
		"command and args": {func(c *cri.ContainerConfig) { c.Command, c.Args = []string{"echo", "a b"}, []string{"", "$HOME", "c"} }, "a b  $HOME c"},
		"args alone": {func(c *cri.ContainerConfig) {
			c.Command, c.Args = nil, []string{"sh", "-c", "echo the image has no entrypoint"}
		}, "the image has no entrypoint"},
		"working_dir": {func(c *cri.ContainerConfig) { c.WorkingDir, c.Command = "/var/www", []string{"pwd"} }, "/var/www"},
		"envs": {func(c *cri.ContainerConfig) {
			c.Envs = []*cri.KeyValue{{Key: "A", Value: []byte("first")}, {Key: "A", Value: []byte("last wins")}, {Key: "B_", Value: []byte("x=y ä")}}
			c.Command = []string{"sh", "-c", `echo "$A|$B_|$PATH"`}
		}, "last wins|x=y ä|/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		"no stdin": {func(c *cri.ContainerConfig) { c.Command = []string{"sh", "-c", "cat; echo end"} }, "end"},
		"tty": {func(c *cri.ContainerConfig) {
			c.Tty, c.Command = true, []string{"sh", "-c", "tty; test -t 0 -a -t 1 -a -t 2 && echo all"}
		}, "/dev/pts/0\r\nall"},
		"no tty": {func(c *cri.ContainerConfig) { c.Command = []string{"tty"} }, "not a tty"},
	} {
		cfg := shell("c", "")
		c.change(cfg)
		if got := n.output(sb, cfg); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestHandlersAreKnown: a runtime handler that is not there is refused wherever it is named.
func TestHandlersAreKnown(t *testing.T) {
	n := sharedNode(t)
	_, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig("x"), RuntimeHandler: "kata"})
	wantCode(t, err, codes.InvalidArgument, "runtime_handler", "kata", "native")
	sb := n.run("x")
	cfg := shell("c", sleeper)
	cfg.Image.RuntimeHandler = "kata"
	_, err = n.tryCreate(sb, cfg)
	wantCode(t, err, codes.InvalidArgument, "runtime_handler", "kata", "native")
	for _, handler := range []string{"kata", "native "} {
		spec := &cri.ImageSpec{Image: busybox, RuntimeHandler: handler}
		_, err = n.img.PullImage(n.ctx, &cri.PullImageRequest{Image: spec})
		wantCode(t, err, codes.InvalidArgument, "runtime_handler", handler)
		_, err = n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: spec})
		wantCode(t, err, codes.InvalidArgument, "runtime_handler", handler)
		_, err = n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: spec})
		wantCode(t, err, codes.InvalidArgument, "runtime_handler", handler)
		_, err = n.img.ListImages(n.ctx, &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: spec}})
		wantCode(t, err, codes.InvalidArgument, "runtime_handler", handler)
	}
	names := map[string]bool{}
	st, err := n.rt.Status(n.ctx, &cri.StatusRequest{})
	n.check(err)
	for _, h := range st.GetRuntimeHandlers() {
		if names[h.GetName()] || h.GetFeatures() == nil {
			t.Errorf("handler %v", h)
		}
		names[h.GetName()] = true
	}
	if !names[""] || !names["native"] || len(st.GetInfo()) != 0 {
		t.Errorf("status %v", st)
	}
	cfg.Image.RuntimeHandler = ""
	n.create(sb, cfg)
}

// TestFieldsOfImage: what is told of an image is what the image is.
func TestFieldsOfImage(t *testing.T) {
	n := newNode(t)
	resp, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: busybox}})
	n.check(err)
	img := resp.GetImage()
	if len(resp.GetInfo()) != 0 || !strings.HasPrefix(img.GetId(), "sha256:") || len(img.GetId()) != 71 || img.GetSize() < 1<<20 {
		t.Errorf("%v, info %v", img, resp.GetInfo())
	}
	// The archive is an OCI layout, whose manifest is the one that a registry would have.
	if d := img.GetRepoDigests(); len(d) != 1 || !strings.HasPrefix(d[0], "docker.io/library/busybox@sha256:") {
		t.Errorf("digests %v", d)
	}
	same(t, "status", img, &cri.Image{Id: img.GetId(), RepoTags: []string{busybox}, RepoDigests: img.GetRepoDigests(), Size: img.GetSize(),
		Spec: &cri.ImageSpec{Image: img.GetId()}})
	for _, ref := range []string{"", "busybox", busybox, img.GetId(), img.GetId()[7:20]} {
		list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: ref}}})
		n.check(err)
		same(t, "list by "+ref, list, &cri.ListImagesResponse{Images: []*cri.Image{img}})
	}
	verbose, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: busybox}, Verbose: true})
	n.check(err)
	wantJSON(t, verbose.GetInfo())
	if !strings.Contains(verbose.GetInfo()["info"], "PATH=") {
		t.Errorf("info %v does not tell the image's configuration", verbose.GetInfo())
	}
	fs, err := n.img.ImageFsInfo(n.ctx, &cri.ImageFsInfoRequest{})
	n.check(err)
	for _, u := range fs.GetImageFilesystems() {
		if st, err := os.Stat(u.GetFsId().GetMountpoint()); err != nil || !st.IsDir() || u.GetTimestamp() == 0 || u.GetUsedBytes().GetValue() < 1<<20 || u.GetInodesUsed().GetValue() < 10 {
			t.Errorf("file system %v: %v", u, err)
		}
	}
	if len(fs.GetImageFilesystems()) != 1 || len(fs.GetContainerFilesystems()) != 1 {
		t.Errorf("file systems %v", fs)
	}
	for range 2 {
		_, err = n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: "busybox"}})
		n.check(err)
	}
	if list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{}); err != nil || len(list.GetImages()) != 0 {
		t.Errorf("one name was removed, and all others are to go with it: %v, %v", list, err)
	}
}

// TestImageUser: an image's user is told as a number or as a name, never as both.
func TestImageUser(t *testing.T) {
	n := prepareNode(t)
	n.start()
	built, err := images.Busybox("docker.io/library/user:1")
	n.check(err)
	for user, want := range map[string]*cri.Image{
		"1000:7": {Uid: &cri.Int64Value{Value: 1000}}, "0": {Uid: &cri.Int64Value{}}, "app:audio": {Username: "app"}, "": {},
	} {
		built.Config.User = user
		archive := filepath.Join(n.dir, "user.tar")
		n.check(images.WriteArchive(archive, built))
		f, err := os.Open(archive)
		n.check(err)
		_, err = n.images.Load(n.ctx, image.LoadRequest{Archive: f})
		f.Close()
		n.check(err)
		resp, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: built.Name}})
		n.check(err)
		got := resp.GetImage()
		if got.GetUsername() != want.GetUsername() || !proto.Equal(got.GetUid(), want.GetUid()) || got.GetPinned() {
			t.Errorf("%q: %v", user, got)
		}
	}
}

// TestPullsWithAuth: what a client knows of a registry goes there, and nowhere else.
func TestPullsWithAuth(t *testing.T) {
	n := prepareNode(t)
	n.start()
	var mu sync.Mutex
	var sent []string
	var front *httptest.Server
	front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if a := r.Header.Get("Authorization"); a != "" {
			sent = append(sent, a)
		}
		if token := r.PostFormValue("refresh_token"); token != "" {
			sent = append(sent, "refresh "+token)
		}
		scheme := "Basic"
		if strings.Contains(r.URL.Path, "/bearer/") {
			scheme = "Bearer"
		}
		w.Header().Set("WWW-Authenticate", scheme+` realm="`+front.URL+`/token",service="test"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer front.Close()
	addr := strings.TrimPrefix(front.URL, "http://")
	for name, c := range map[string]struct {
		repo string
		auth *cri.AuthConfig
		want string
	}{
		"nothing":        {"basic/a", nil, ""},
		"password":       {"basic/a", &cri.AuthConfig{Username: "u", Password: "p"}, "Basic dTpw"},
		"auth":           {"basic/a", &cri.AuthConfig{Auth: "dTpw"}, "Basic dTpw"},
		"of the server":  {"basic/a", &cri.AuthConfig{Username: "u", Password: "p", ServerAddress: addr}, "Basic dTpw"},
		"of another one": {"basic/a", &cri.AuthConfig{Username: "u", Password: "p", ServerAddress: "registry.example"}, ""},
		"registry_token": {"bearer/a", &cri.AuthConfig{RegistryToken: "tok"}, "Bearer tok"},
		"identity_token": {"bearer/a", &cri.AuthConfig{IdentityToken: "idt"}, "refresh idt"},
	} {
		_, err := n.img.PullImage(n.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: addr + "/" + c.repo + ":1"}, Auth: c.auth})
		if err == nil {
			t.Errorf("%s: pulled from a registry that lets in nobody", name)
		}
		mu.Lock()
		if c.want == "" && len(sent) > 0 || c.want != "" && !slices.Contains(sent, c.want) {
			t.Errorf("%s: %q was sent, want %q; the pull ended with %v", name, sent, c.want, err)
		}
		sent = nil
		mu.Unlock()
	}
}

// TestConditions: a bridge that is lost is made again; a node that cannot have one, because its name is somebody else's, is told to
// have no network, with the reason, and what does not need one goes on.
func TestConditions(t *testing.T) {
	n := newNode(t)
	network := func() *cri.RuntimeCondition {
		st, err := n.rt.Status(n.ctx, &cri.StatusRequest{})
		n.check(err)
		if c := st.GetStatus().GetConditions()[0]; c.GetType() != "RuntimeReady" || !c.GetStatus() {
			t.Errorf("condition %v", c)
		}
		if !st.GetFeatures().GetSupplementalGroupsPolicy() {
			t.Errorf("features %v", st.GetFeatures())
		}
		return st.GetStatus().GetConditions()[1]
	}
	same(t, "condition", network(), &cri.RuntimeCondition{Type: "NetworkReady", Status: true})
	sb := n.run("up")
	link, err := netlink.LinkByName(n.bridgeName)
	n.check(err)
	n.check(netlink.LinkDel(link))
	if c := network(); !c.GetStatus() {
		t.Errorf("the bridge is not made again: %v", c)
	}
	stranger := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: n.bridgeName}, PeerName: n.bridgeName + "p"}
	n.eventually("a stranger to have the bridge's name", func() bool {
		if link, err := netlink.LinkByName(n.bridgeName); err == nil {
			n.check(netlink.LinkDel(link))
		}
		err := netlink.LinkAdd(stranger)
		if errors.Is(err, unix.EEXIST) {
			return false // the node was faster: it looks after its bridge by itself
		}
		n.check(err)
		return true
	})
	defer netlink.LinkDel(stranger)
	c := network()
	if c.GetStatus() || c.GetType() != "NetworkReady" || c.GetReason() != "NetworkNotReady" || !strings.Contains(c.GetMessage(), n.bridgeName) {
		t.Errorf("without its bridge: %v", c)
	}
	if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_READY || st.GetNetwork().GetIp() == "" {
		t.Errorf("a sandbox without the bridge: %v", st)
	}
	host := n.sandboxConfig("host")
	host.Linux.SecurityContext.NamespaceOptions.Network, host.Hostname = cri.NamespaceMode_NODE, ""
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: host})
	n.check(err)
	n.launch(resp.GetPodSandboxId(), shell("c", sleeper))
	n.removeSandbox(sb)
	rc, err := n.rt.RuntimeConfig(n.ctx, &cri.RuntimeConfigRequest{})
	n.check(err)
	if rc.GetLinux().GetCgroupDriver() != cri.CgroupDriver_CGROUPFS {
		t.Errorf("runtime config %v", rc)
	}
}
