package plugin

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/answer"
)

func answerWith(c *v1beta1.ContainerAllocateResponse) *v1beta1.AllocateResponse {
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{c}}
}

func TestAnswerIsTakenWhole(t *testing.T) {
	got, err := answerOf(answerWith(&v1beta1.ContainerAllocateResponse{
		Envs:        map[string]string{"A": "1", "B": ""},
		Annotations: map[string]string{"vendor.com/x": "y"},
		Mounts: []*v1beta1.Mount{{HostPath: "/lib/v", ContainerPath: "/v", ReadOnly: true}, {HostPath: "/lib/w", ContainerPath: "/w"},
			{HostPath: "/lib/w", ContainerPath: "/w"}},
		Devices:    []*v1beta1.DeviceSpec{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "mwr"}, {HostPath: "/dev/c", ContainerPath: "/dev/c", Permissions: "r"}},
		CdiDevices: []*v1beta1.CDIDevice{{Name: "v.com/c=1"}, {Name: "v.com/c=0"}, {Name: "v.com/c=1"}},
	}))
	want := answer.Answer{
		Envs:        map[string]string{"A": "1", "B": ""},
		Annotations: map[string]string{"vendor.com/x": "y"},
		Mounts:      []answer.Mount{{HostPath: "/lib/v", ContainerPath: "/v", ReadOnly: true}, {HostPath: "/lib/w", ContainerPath: "/w"}},
		Nodes:       []answer.Node{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rwm"}, {HostPath: "/dev/c", ContainerPath: "/dev/c", Permissions: "r"}},
		CDIDevices:  []string{"v.com/c=1", "v.com/c=0"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("answer %+v, %v, want %+v", got, err, want)
	}
}

func TestBadAnswerNamesTheField(t *testing.T) {
	mount := func(host, container string) *v1beta1.AllocateResponse {
		return answerWith(&v1beta1.ContainerAllocateResponse{Mounts: []*v1beta1.Mount{{HostPath: "/a", ContainerPath: "/a"}, {HostPath: host, ContainerPath: container}}})
	}
	node := func(host, container, permissions string) *v1beta1.AllocateResponse {
		return answerWith(&v1beta1.ContainerAllocateResponse{Devices: []*v1beta1.DeviceSpec{
			{HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "r"}, {HostPath: host, ContainerPath: container, Permissions: permissions}}})
	}
	env := func(k, v string) *v1beta1.AllocateResponse {
		return answerWith(&v1beta1.ContainerAllocateResponse{Envs: map[string]string{k: v}})
	}
	cdi := func(name string) *v1beta1.AllocateResponse {
		return answerWith(&v1beta1.ContainerAllocateResponse{CdiDevices: []*v1beta1.CDIDevice{{Name: name}}})
	}
	annotated := func(list string) *v1beta1.AllocateResponse {
		return answerWith(&v1beta1.ContainerAllocateResponse{Annotations: map[string]string{"cdi.k8s.io/x": list}})
	}
	for name, c := range map[string]struct {
		resp *v1beta1.AllocateResponse
		want string
	}{
		"no response":             {&v1beta1.AllocateResponse{}, "container_responses has 0 entries"},
		"two responses":           {&v1beta1.AllocateResponse{ContainerResponses: make([]*v1beta1.ContainerAllocateResponse, 2)}, "container_responses has 2 entries"},
		"env without a name":      {env("", "x"), `envs: "" is not the name`},
		"env with =":              {env("A=B", "x"), `envs: "A=B" is not the name`},
		"env with a zero byte":    {env("A", "x\x00"), `envs: the value of "A" has a zero byte`},
		"annotation without key":  {answerWith(&v1beta1.ContainerAllocateResponse{Annotations: map[string]string{"": "x"}}), "annotations: a key is empty"},
		"relative mount":          {mount("/b", "b"), `mounts[1]: container_path "b" must be an absolute path`},
		"mount of nothing":        {mount("", "/b"), `mounts[1]: host_path "" must be an absolute path`},
		"mount over the root":     {mount("/b", "/x/.."), `mounts[1]: container_path "/x/.." is the container's root`},
		"two mounts at one place": {mount("/b", "/a/"), `mounts[1]: container_path "/a/" is that of mounts[0], which is not the same: a mount of "/a" (rw)`},
		"relative device":         {node("/dev/b", "dev/b", "r"), `devices[1]: container_path "dev/b" must be an absolute path`},
		"device of nothing":       {node("", "/dev/b", "r"), `devices[1]: host_path ""`},
		"device with a zero byte": {node("/dev/\x00", "/dev/b", "r"), `devices[1]: host_path "/dev/\x00"`},
		"no permissions":          {node("/dev/b", "/dev/b", ""), `devices[1]: permissions "" must be one or more of the letters r, w and m`},
		"other permissions":       {node("/dev/b", "/dev/b", "rx"), `devices[1]: permissions "rx"`},
		"two nodes at one place":  {node("/dev/b", "/dev/a", "r"), `devices[1]: container_path "/dev/a" is that of devices[0], which is not the same: the device node "/dev/a" (r)`},
		"two nodes, not cleaned":  {node("/dev/b", "/dev//a/", "r"), `devices[1]: container_path "/dev//a/" is that of devices[0]`},
		"other permissions there": {node("/dev/a", "/dev/a", "rw"), `devices[1]: container_path "/dev/a" is that of devices[0]`},
		"a node over a mount": {answerWith(&v1beta1.ContainerAllocateResponse{Mounts: []*v1beta1.Mount{{HostPath: "/lib", ContainerPath: "/dev/x/"}},
			Devices: []*v1beta1.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "rw"}}}),
			`devices[0]: container_path "/dev/x" is that of mounts[0], which is not the same: a mount of "/lib" (rw)`},
		"CDI name":                  {cdi("gpu0"), `cdi_devices[0].name is not a CDI name: "gpu0": a device's name looks like vendor.com/class=device`},
		"CDI name of nothing":       {cdi(""), `cdi_devices[0].name is not a CDI name: ""`},
		"CDI kind that is too long": {cdi("v.com/" + strings.Repeat("n", 64) + "=0"), "has 64 characters, 63 are allowed"},
		"CDI vendor, no DNS name":   {cdi("v_v.com/c=0"), `cdi_devices[0].name is not a CDI name: "v_v.com/c=0"`},
		"annotated, no CDI name":    {annotated("nvidia0"), `annotations: the value of "cdi.k8s.io/x" is not a list of CDI names: "nvidia0"`},
		"annotated, empty":          {annotated(""), `annotations: the value of "cdi.k8s.io/x" is not a list of CDI names: ""`},
		"annotated, a second one":   {annotated("v.com/c=0,v.com/c=1,"), `annotations: the value of "cdi.k8s.io/x" is not a list of CDI names: ""`},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := answerOf(c.resp); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("answer %+v, error %v, want one with %s", got, err, c.want)
			}
		})
	}
}

// What the CDI specification allows, and the runtime injects, may be in an answer, whatever the CDI library says of it.
func TestAnswerMayHaveEveryCDIName(t *testing.T) {
	names := []string{"vendor.com/3d=x", "3dfx.com/gpu=0", "v.com/" + strings.Repeat("n", 63) + "=1:0"}
	r := &v1beta1.ContainerAllocateResponse{Annotations: map[string]string{"cdi.k8s.io/x": strings.Join(names, ", "), "example.com/cdi.k8s.io": "nvidia0"}}
	for _, name := range names {
		r.CdiDevices = append(r.CdiDevices, &v1beta1.CDIDevice{Name: name})
	}
	if got, err := answerOf(answerWith(r)); err != nil || !slices.Equal(got.CDIDevices, names) || len(got.Annotations) != 2 {
		t.Errorf("answer %+v, %v", got, err)
	}
}

// What an answer says twice is given once. A mount of the very node that is there is nothing else.
func TestAnswerMaySayTheSameTwice(t *testing.T) {
	got, err := answerOf(answerWith(&v1beta1.ContainerAllocateResponse{
		Mounts: []*v1beta1.Mount{{HostPath: "/lib/v", ContainerPath: "/v"}, {HostPath: "/lib/v/", ContainerPath: "/v/"}, {HostPath: "/dev/a", ContainerPath: "/dev/a"}},
		Devices: []*v1beta1.DeviceSpec{{HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "rw"}, {HostPath: "/dev/a", ContainerPath: "/dev/./a", Permissions: "wr"},
			{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rw"}},
	}))
	want := answer.Answer{
		Mounts: []answer.Mount{{HostPath: "/lib/v", ContainerPath: "/v"}, {HostPath: "/dev/a", ContainerPath: "/dev/a"}},
		Nodes:  []answer.Node{{HostPath: "/dev/a", ContainerPath: "/dev/a", Permissions: "rw"}, {HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rw"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("answer %+v, %v, want %+v", got, err, want)
	}
}

// What is wrong with a preference is told, with its plugin: whoever wonders why it is not followed finds it in the log.
func TestAPreferenceThatIsIgnoredIsLogged(t *testing.T) {
	var said syncBuffer
	var reply atomic.Pointer[func(context.Context) (*v1beta1.PreferredAllocationResponse, error)]
	n := start(t, func(s *Source) {
		s.pace.prefer = 500 * time.Millisecond
		s.log = slog.New(slog.NewTextHandler(&said, nil))
	})
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(4, 0), Preferred: true, Hooks: emulator.Hooks{
		Prefer: func(ctx context.Context, _ *v1beta1.ContainerPreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
			return (*reply.Load())(ctx)
		}}})
	n.awaitHealthy(resource, 4)
	ids := func(ids ...string) func(context.Context) (*v1beta1.PreferredAllocationResponse, error) {
		return func(context.Context) (*v1beta1.PreferredAllocationResponse, error) {
			return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, nil
		}
	}
	for name, c := range map[string]struct {
		reply func(context.Context) (*v1beta1.PreferredAllocationResponse, error)
		want  string
	}{
		"lacks one that it must have": {ids("dev-0", "dev-2"), `problem="it lacks device \"dev-1\", which it had to have"`},
		"one that is not available":   {ids("dev-1", "dev-3"), `problem="device \"dev-3\" was not offered, or is named twice"`},
		"one twice":                   {ids("dev-1", "dev-1"), `problem="device \"dev-1\" was not offered, or is named twice"`},
		"too few":                     {ids("dev-1"), `problem="it has 1 devices where 2 were asked for"`},
		"too many":                    {ids("dev-0", "dev-1", "dev-2"), `problem="it has 3 devices where 2 were asked for"`},
		"nothing": {func(context.Context) (*v1beta1.PreferredAllocationResponse, error) {
			return &v1beta1.PreferredAllocationResponse{}, nil
		}, `problem="container_responses has 0 entries for a request with 1 container"`},
		"an error": {func(context.Context) (*v1beta1.PreferredAllocationResponse, error) {
			return nil, errors.New("no idea")
		}, `error="no idea"`},
		"no answer in time": {func(ctx context.Context) (*v1beta1.PreferredAllocationResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "deadline exceeded"},
	} {
		reply.Store(&c.reply)
		said.take()
		if got := n.Prefer(t.Context(), resource, []string{"dev-0", "dev-1", "dev-2"}, []string{"dev-1"}, 2); got != nil {
			t.Errorf("%s: preference %v", name, got)
		}
		line := said.take()
		for _, want := range []string{"level=WARN", `msg="device plugin's preference is ignored"`, "resource=" + resource, p.Socket(), c.want} {
			if !strings.Contains(line, want) {
				t.Errorf("%s: %q does not say %s", name, line, want)
			}
		}
	}
	good := ids("dev-1", "dev-2")
	reply.Store(&good)
	if got := n.Prefer(t.Context(), resource, []string{"dev-0", "dev-1", "dev-2"}, []string{"dev-1"}, 2); !slices.Equal(got, []string{"dev-1", "dev-2"}) || strings.Contains(said.take(), "preference") {
		t.Errorf("preference %v", got)
	}
}

// syncBuffer is a log that several write to.
type syncBuffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take returns what was written since the last time.
func (b *syncBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

func FuzzAnswer(f *testing.F) {
	for _, c := range []*v1beta1.ContainerAllocateResponse{
		{}, {Envs: map[string]string{"A": "B"}, Mounts: []*v1beta1.Mount{{HostPath: "/a", ContainerPath: "/b"}}},
		{Devices: []*v1beta1.DeviceSpec{{HostPath: "/a", ContainerPath: "/b", Permissions: "rw"}}, CdiDevices: []*v1beta1.CDIDevice{{Name: "a.b/c=d"}}},
	} {
		raw, err := proto.Marshal(answerWith(c))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var resp v1beta1.AllocateResponse
		if proto.Unmarshal(raw, &resp) != nil {
			return
		}
		a, err := answerOf(&resp)
		if err != nil {
			return
		}
		mounts, nodes := map[string]string{}, map[string]string{} // by where they are, what of the host
		for _, m := range a.Mounts {
			at := filepath.Clean(m.ContainerPath)
			if !filepath.IsAbs(m.HostPath) || !filepath.IsAbs(m.ContainerPath) || mounts[at] != "" {
				t.Errorf("mount %+v", m)
			}
			mounts[at] = filepath.Clean(m.HostPath)
		}
		for _, n := range a.Nodes {
			at := filepath.Clean(n.ContainerPath)
			if !filepath.IsAbs(n.HostPath) || !filepath.IsAbs(n.ContainerPath) || nodes[at] != "" || n.Permissions == "" || !strings.Contains("rwm rm wm", n.Permissions) {
				t.Errorf("node %+v", n)
			}
			nodes[at] = filepath.Clean(n.HostPath)
			if m := mounts[at]; m != "" && m != nodes[at] {
				t.Errorf("node %+v and a mount of %q", n, m)
			}
		}
		for _, name := range a.CDIDevices {
			if _, _, err := cdispec.ParseName(name); err != nil {
				t.Error(err)
			}
		}
		for key, name := range cdispec.Annotated(a.Annotations) {
			if _, _, err := cdispec.ParseName(name); err != nil {
				t.Errorf("annotation %q: %v", key, err)
			}
		}
	})
}
