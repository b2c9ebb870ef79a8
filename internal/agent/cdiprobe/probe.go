// Package cdiprobe finds out whether a container runtime honours ContainerConfig.CDIDevices, and annotations that ask for CDI devices.
//
// Runtimes that do not know the field (containerd before 1.7.2, CRI-O before 1.28), or have it switched off, ignore it in silence: a pod would
// start without its devices. So do others with the annotations. CRI has no way to ask, so it is tried with a device that cannot exist.
//
// It guarantees that an answer holds for the runtime that is connected now, and for the way in which a container asks, that nothing is taken for an answer that may be about something
// else, and that what it has created is removed. Where that fails, or the agent is killed meanwhile, a container is left that was not started and
// has the pod's name, labels and attempt: the pod's worker removes those (plan.Created) before it starts a container, and with the pod.
package cdiprobe

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/cri"
)

// ownRuntime is the name of the project's own runtime. Its field is not probed: it has honoured that since its first version, which its own tests
// hold it to, and the first pod with a device would wait for three containers that nobody needs. Its annotations can be switched off.
const ownRuntime = "monopod"

// devicePrefix begins the name of a device that cannot exist: nobody else may write specs of this vendor, and the rest is random.
const devicePrefix = "monopod.dev/probe=does-not-exist-"

// Runtime is what is asked.
type Runtime interface {
	// Identify asks the runtime who it is, Generation tells it with the number of the connection.
	Identify(context.Context) (cri.Identity, error)
	Generation() cri.Generation
	CreateContainer(context.Context, *criv1.CreateContainerRequest, ...grpc.CallOption) (*criv1.CreateContainerResponse, error)
	RemoveContainer(context.Context, *criv1.RemoveContainerRequest, ...grpc.CallOption) (*criv1.RemoveContainerResponse, error)
}

var _ Runtime = (*cri.Client)(nil)

// Config says who is asked.
type Config struct {
	Runtime Runtime
	Log     *slog.Logger
	// ProbeOwn has the project's own runtime probed like any other.
	ProbeOwn bool
}

// Verdict is an answer about a container, and for whom it holds.
type Verdict struct {
	// Answer is Honours, or Ignores when the container would be started without a device.
	Answer     Answer
	Generation cri.Generation
	// Device is one that it would be started without; Annotated: nothing but an annotation asks for it.
	Device    string
	Annotated bool
}

// finding is what is known of one way of asking, and for whom it holds.
type finding struct {
	answer     Answer
	generation cri.Generation
}

// Prober asks once for each generation of the runtime and each way of asking for devices. It is safe for concurrent use.
type Prober struct {
	cfg Config
	// turn is taken by whoever is asking the runtime; the others wait for his answer.
	turn chan struct{}

	mu    sync.Mutex // guards what follows
	known [ways]finding
}

// New makes a Prober; nothing is asked before Ask.
func New(cfg Config) *Prober { return &Prober{cfg: cfg, turn: make(chan struct{}, 1)} }

// Ask says whether the runtime honours the CDI devices of a container: Honours or Ignores. A device that it asks for in two ways has to be honoured in
// one. req is how a container that has some is about to be created; nothing may have its name and attempt yet, and nobody else may use them until Ask
// returns. An error means that it is not known now, in the runtime's words.
func (p *Prober) Ask(ctx context.Context, req *criv1.CreateContainerRequest) (Verdict, error) {
	names := asked(req.Config)
	missing := slices.Concat(names...)
	v := Verdict{Answer: Honours}
	for w, of := range names {
		if !slices.ContainsFunc(missing, func(name string) bool { return slices.Contains(of, name) }) {
			continue
		}
		f, err := p.find(ctx, req, way(w))
		if err != nil {
			return Verdict{}, err
		}
		if v.Generation != (cri.Generation{}) && f.generation != v.Generation {
			return Verdict{}, restarted(f.generation)
		}
		v.Generation = f.generation
		if f.answer == Honours {
			missing = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(of, name) })
		}
	}
	if len(missing) > 0 {
		v.Answer, v.Device, v.Annotated = Ignores, missing[0], !slices.Contains(names[byField], missing[0])
	}
	return v, nil
}

func restarted(now cri.Generation) error {
	return fmt.Errorf("the container runtime %s was restarted while it was asked", now.Name)
}

// find says what is known of one way of asking, after it was tried if need be.
func (p *Prober) find(ctx context.Context, req *criv1.CreateContainerRequest, w way) (finding, error) {
	if f, ok := p.remembered(w); ok {
		return f, nil
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return finding{}, ctx.Err()
	}
	defer func() { <-p.turn }()
	// The name and the version have to be those of who is connected now.
	if _, err := p.cfg.Runtime.Identify(ctx); err != nil {
		return finding{}, err
	}
	if f, ok := p.remembered(w); ok {
		return f, nil // somebody has asked meanwhile
	}
	f := finding{Honours, p.cfg.Runtime.Generation()}
	if f.generation.Name != ownRuntime || w != byField || p.cfg.ProbeOwn {
		var err error
		if f.answer, err = p.probe(ctx, req, w); err != nil {
			return finding{}, err
		}
	}
	if now := p.cfg.Runtime.Generation(); now != f.generation {
		return finding{}, restarted(now)
	}
	p.remember(w, f)
	return f, nil
}

func (p *Prober) remembered(w way) (f finding, ok bool) {
	now := p.cfg.Runtime.Generation()
	p.mu.Lock()
	defer p.mu.Unlock()
	f = p.known[w]
	return f, f.answer != Unknown && f.generation == now
}

func (p *Prober) remember(w way, f finding) {
	p.mu.Lock()
	p.known[w] = f
	p.mu.Unlock()
	if f.answer == Ignores {
		p.cfg.Log.Warn("the container runtime ignores CDI devices; containers that have some are not started", "runtime", f.generation.Name,
			"version", f.generation.Version, "annotations", w == byAnnotation)
	}
}

// probe tries what next says.
func (p *Prober) probe(ctx context.Context, req *criv1.CreateContainerRequest, w way) (Answer, error) {
	device := devicePrefix + strings.ToLower(rand.Text())
	var seen []outcome
	var refused error
	for {
		what, answer := next(seen)
		var devices []string
		switch {
		case what == done && answer == Unknown:
			return Unknown, fmt.Errorf("a container for trying it out was not created: %s", status.Convert(refused).Message())
		case what == done:
			return answer, nil
		case what == probe:
			devices = append(devices, device)
		}
		id, err := p.create(ctx, req, w, devices)
		seen = append(seen, outcome{created: err == nil, code: status.Code(err)})
		if err != nil {
			refused = err
		} else if err := p.remove(ctx, id); err != nil && what == control {
			// Its name is still taken, so the next refusal would be for that.
			return Unknown, err
		}
	}
}

func (p *Prober) create(ctx context.Context, req *criv1.CreateContainerRequest, w way, devices []string) (id string, err error) {
	req = proto.CloneOf(req)
	askFor(req.Config, w, devices...)
	created, err := p.cfg.Runtime.CreateContainer(ctx, req)
	return created.GetContainerId(), err
}

// remove removes what was created, also when nobody waits for the answer any more.
func (p *Prober) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cri.ChangeTimeout)
	defer cancel()
	if _, err := p.cfg.Runtime.RemoveContainer(ctx, &criv1.RemoveContainerRequest{ContainerId: id}); err != nil {
		p.cfg.Log.Warn("a container that was created to try the runtime out was not removed; its pod's worker removes it", "container", id, "error", err)
		return fmt.Errorf("container %s, created to try the runtime out, was not removed: %s", id, status.Convert(err).Message())
	}
	return nil
}
