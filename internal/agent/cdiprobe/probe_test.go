package cdiprobe

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/test/crifake"
)

// bench is a prober of a fake runtime, and how a container with a device is about to be created in it.
type bench struct {
	*testing.T
	rt     *crifake.Runtime
	client *cri.Client
	prober *Prober
	req    *criv1.CreateContainerRequest
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	dir, err := os.MkdirTemp("/tmp", "mpq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rt := crifake.Start(t, filepath.Join(dir, "cri.sock"))
	log := slog.New(slog.DiscardHandler)
	client, err := cri.Dial(cri.Config{Socket: rt.Socket, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	sandbox := &criv1.PodSandboxConfig{Metadata: &criv1.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "u"}}
	s, err := client.RunPodSandbox(t.Context(), &criv1.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	rt.HaveCDI("example.com/widget=0")
	rt.Calls()
	return &bench{t, rt, client, New(Config{Runtime: client, Log: log}), &criv1.CreateContainerRequest{
		PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox, Config: &criv1.ContainerConfig{
			Metadata: &criv1.ContainerMetadata{Name: "a", Attempt: 3}, Image: &criv1.ImageSpec{Image: "img"},
			CDIDevices: []*criv1.CDIDevice{{Name: "example.com/widget=0"}},
		},
	}}
}

// ask expects an answer, and returns how often something was created for it.
func (b *bench) ask(want Answer) (created int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	v, err := b.prober.Ask(ctx, b.req)
	if err != nil || v.Answer != want {
		b.Errorf("answer %d, %v, want %d", v.Answer, err, want)
	}
	return b.settled()
}

// identified returns when the runtime has said who it is.
func (b *bench) identified() {
	b.Helper()
	for end := time.Now().Add(time.Minute); ; {
		_, err := b.client.Identify(b.Context())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			b.Fatal(err)
		}
	}
}

// settled checks that nothing is left, and returns how often something was to be created.
func (b *bench) settled() (created int) {
	b.Helper()
	if _, left := b.rt.Count(); left != 0 {
		b.Errorf("%d containers are left", left)
	}
	for _, c := range b.rt.Calls() {
		if strings.HasPrefix(c, "CreateContainer") {
			created++
		}
	}
	return created
}

func TestItIsAskedOncePerGeneration(t *testing.T) {
	b := newBench(t)
	if n := b.ask(Honours); n != 3 {
		t.Errorf("%d attempts", n)
	}
	if n := b.ask(Honours); n != 0 {
		t.Errorf("%d attempts for what is known", n)
	}
	if len(b.req.Config.CDIDevices) != 1 || b.req.Config.CDIDevices[0].Name != "example.com/widget=0" {
		t.Errorf("the request was changed: %v", b.req.Config.CDIDevices)
	}
	// It is started with another configuration.
	before := b.client.Generation()
	b.rt.Stop()
	b.rt.IgnoreCDI(true)
	b.rt.Serve(t)
	b.identified() // a call may fail with the old connection
	if after := b.client.Generation(); after.Connection == before.Connection || after.Name != "fake" {
		t.Errorf("it was %+v, it is %+v", before, after)
	}
	if n := b.ask(Ignores); n != 1 {
		t.Errorf("%d attempts", n)
	}
	if n := b.ask(Ignores); n != 0 {
		t.Errorf("%d attempts for what is known", n)
	}
	// It is another one, behind the same connection.
	b.rt.IgnoreCDI(false)
	b.rt.Is("fake", "2.0")
	b.identified()
	if n := b.ask(Honours); n != 3 {
		t.Errorf("%d attempts", n)
	}
}

func TestTheOwnRuntimeIsNotProbed(t *testing.T) {
	b := newBench(t)
	b.rt.Is("monopod", "v0.1.0")
	if n := b.ask(Honours); n != 0 {
		t.Errorf("%d attempts", n)
	}
}

// TestOtherErrorsAreNoAnswer: they are told in the runtime's words, and it is asked again.
func TestOtherErrorsAreNoAnswer(t *testing.T) {
	b := newBench(t)
	for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.NotFound, codes.Unknown, codes.Internal} {
		b.rt.Fail("CreateContainer", status.Error(code, "image img: not found"))
		if v, err := b.prober.Ask(t.Context(), b.req); err == nil || !strings.Contains(err.Error(), "image img: not found") || v.Answer != Unknown {
			t.Errorf("%s: answer %d, %v", code, v.Answer, err)
		}
	}
	b.rt.Fail("CreateContainer", nil)
	b.settled()
	b.ask(Honours)
}

// TestWhatIsNotRemovedIsNoRefusal: the name that is taken by it is not mistaken for an answer.
func TestWhatIsNotRemovedIsNoRefusal(t *testing.T) {
	b := newBench(t)
	b.rt.Fail("RemoveContainer", status.Error(codes.Internal, "busy"))
	for range 2 { // the second time the name is taken from the start
		if v, err := b.prober.Ask(t.Context(), b.req); err == nil || v.Answer != Unknown {
			t.Errorf("answer %d, %v", v.Answer, err)
		}
	}
	b.rt.Fail("RemoveContainer", nil)
	list, err := b.client.ListContainers(t.Context(), &criv1.ListContainersRequest{})
	if err != nil || len(list.Containers) != 1 {
		t.Fatalf("left %v, %v", list, err)
	}
	if err := b.prober.remove(t.Context(), list.Containers[0].Id); err != nil {
		t.Fatal(err)
	}
	b.ask(Honours)
}

func TestManyAskAtOnce(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if v, err := b.prober.Ask(t.Context(), b.req); err != nil || v.Answer != Honours {
				t.Errorf("answer %d, %v", v.Answer, err)
			}
		})
	}
	wg.Wait()
	if n := b.settled(); n != 3 {
		t.Errorf("%d attempts", n)
	}
}

// annotated has the container ask by an annotation, and by CRI's field for those of field.
func (b *bench) annotated(list string, field ...string) {
	b.req.Config.Annotations = map[string]string{"cdi.k8s.io/vendor_class": list, "example.com/other": "x"}
	b.req.Config.CDIDevices = nil
	for _, name := range field {
		b.req.Config.CDIDevices = append(b.req.Config.CDIDevices, &criv1.CDIDevice{Name: name})
	}
}

// TestEachWayIsTriedByItself: what is known of CRI's field says nothing of annotations, nor the other way round.
func TestEachWayIsTriedByItself(t *testing.T) {
	const widget, other = "example.com/widget=0", "example.com/widget=1"
	for name, c := range map[string]struct {
		ignoresField, ignoresAnnotations bool
		field                            []string
		annotation                       string
		created                          int // how often something is created to find it out
		lost                             string
		annotated                        bool // what is lost is asked for by an annotation only
	}{
		"annotation honoured":                        {annotation: widget, created: 3},
		"annotation ignored":                         {ignoresAnnotations: true, annotation: other + "," + widget, created: 1, lost: other, annotated: true},
		"annotation, only the field is":              {ignoresField: true, annotation: widget, created: 3},
		"field, only annotations are":                {ignoresAnnotations: true, field: []string{widget}, created: 3},
		"both, both honoured":                        {field: []string{widget}, annotation: widget, created: 3}, // one of them is enough
		"both, other devices":                        {field: []string{widget}, annotation: other, created: 6},
		"both, field ignored":                        {ignoresField: true, field: []string{widget}, annotation: widget + ", " + other, created: 4},
		"both, annotations ignored":                  {ignoresAnnotations: true, field: []string{widget}, annotation: widget, created: 3},
		"both, another by annotation":                {ignoresAnnotations: true, field: []string{widget}, annotation: widget + "," + other, created: 4, lost: other, annotated: true},
		"both, another by the field":                 {ignoresField: true, field: []string{other, widget}, annotation: widget, created: 4, lost: other},
		"both ignored":                               {ignoresField: true, ignoresAnnotations: true, field: []string{widget}, annotation: widget, created: 2, lost: widget},
		"an annotation that lists nonsense, ignored": {ignoresAnnotations: true, annotation: "nvidia0", created: 1, lost: "nvidia0", annotated: true},
		"an annotation that lists nonsense":          {annotation: "nvidia0", created: 3}, // what is wrong with it the runtime says
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.rt.IgnoreCDI(c.ignoresField)
			b.rt.IgnoreCDIAnnotations(c.ignoresAnnotations)
			b.annotated(c.annotation, c.field...)
			before := proto.CloneOf(b.req)
			want := Verdict{Answer: Honours, Device: c.lost, Annotated: c.annotated}
			if c.lost != "" || c.annotated {
				want.Answer = Ignores
			}
			for i := range 2 {
				v, err := b.prober.Ask(t.Context(), b.req)
				if want.Generation = b.client.Generation(); err != nil || v != want {
					t.Errorf("%+v, %v, want %+v", v, err, want)
				}
				if n := b.settled(); n != c.created*(1-i) {
					t.Errorf("attempt %d: %d containers", i, n)
				}
			}
			if !proto.Equal(b.req, before) {
				t.Errorf("the request was changed: %v", b.req)
			}
		})
	}
}

// TestTheOwnRuntimeIsProbedByAnnotations: they can be switched off there.
func TestTheOwnRuntimeIsProbedByAnnotations(t *testing.T) {
	for ignores, want := range map[bool]Answer{false: Honours, true: Ignores} {
		t.Run(fmt.Sprintf("ignored %t", ignores), func(t *testing.T) {
			b := newBench(t)
			b.rt.Is("monopod", "v0.1.0")
			b.rt.IgnoreCDIAnnotations(ignores)
			b.annotated("example.com/widget=0")
			b.ask(want)
		})
	}
}

// TestRestartedBetweenTheWays: an answer is not made of what two runtimes have said.
func TestRestartedBetweenTheWays(t *testing.T) {
	b := newBench(t)
	b.annotated("example.com/widget=1", "example.com/widget=0")
	b.rt.Creating(func(cfg *criv1.ContainerConfig) {
		if cfg.Annotations[probeAnnotation] == "" {
			return
		}
		b.rt.Creating(nil)
		b.rt.Is("fake", "2.0")
		if _, err := b.client.Identify(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if v, err := b.prober.Ask(t.Context(), b.req); err == nil || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("%+v, %v", v, err)
	}
	b.ask(Honours) // the one that is there now
}

func TestAsks(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  *criv1.ContainerConfig
		want bool
	}{
		"nothing":           {&criv1.ContainerConfig{}, false},
		"field":             {&criv1.ContainerConfig{CDIDevices: []*criv1.CDIDevice{{Name: "v/c=a"}}}, true},
		"annotation":        {&criv1.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/x": "v/c=a"}}, true},
		"empty annotation":  {&criv1.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/x": " ,"}}, false},
		"no CDI device":     {&criv1.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/x": "nvidia0"}}, true},
		"other annotations": {&criv1.ContainerConfig{Annotations: map[string]string{"monopod.dev/devices": "v/c=a", "cdi.k8s.io": "v/c=a"}}, false},
	} {
		if got := Asks(c.cfg); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestHeldSaysWhatHelps(t *testing.T) {
	old := cri.Generation{Name: "containerd", Version: "1.6.20"}
	for _, c := range []struct {
		v     Verdict
		wants []string
	}{
		{Verdict{Device: "example.com/widget=0", Generation: old}, []string{"has CDI devices (example.com/widget=0)", "enable_cdi", "CRI-O 1.28"}},
		{Verdict{Device: "example.com/widget=0", Generation: old, Annotated: true}, []string{"has CDI devices by annotations cdi.k8s.io/... (example.com/widget=0)", "enable_cdi",
			"CRI-O 1.23", "monopod without runtime.ignoreCDIAnnotations", "cdi_devices"}},
	} {
		text := Held("a", c.v)
		for _, want := range append(c.wants, "container a", "containerd 1.6.20") {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %s", text, want)
			}
		}
	}
}
