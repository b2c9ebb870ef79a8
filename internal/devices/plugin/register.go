package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxResources bounds what plugins can register: many times more than a machine has kinds of devices.
const maxResources = 1024

// registration is the kubelet's service.
type registration struct {
	v1beta1.UnimplementedRegistrationServer
	*runner
}

// Register takes a plugin, which is talked to after the answer: the API says that it may serve only then.
func (r registration) Register(ctx context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	err := errors.Join(checkVersions(req.GetVersion()), checkResource(req.GetResourceName()), checkEndpoint(r.cfg.Dir, req.GetEndpoint()))
	if err == nil {
		err = r.enroll(ctx, offer{resource: req.GetResourceName(), socket: filepath.Join(r.cfg.Dir, req.GetEndpoint()), options: req.GetOptions()})
	}
	if err != nil {
		r.refusal(req.GetResourceName(), req.GetEndpoint(), err)
		return nil, errgrpc.ToGRPC(err)
	}
	return &v1beta1.Empty{}, nil
}

// refusal tells the operator, who does not see what the plugin is answered.
func (r *runner) refusal(resource, endpoint string, err error) {
	r.log.Warn("device plugin is refused", "resource", brief(resource), "endpoint", brief(endpoint), "error", err)
}

// offer is what registers.
type offer struct {
	resource, socket string
	options          *v1beta1.DevicePluginOptions // as the registration tells them
	from             string                       // what it ends with; empty: nothing
}

// enroll makes the plugin at a socket that of a resource, unless another has it that is active: its stream is open, and it answers.
// The same socket registers again whenever it wants.
//
// Errors: errdefs.ErrAlreadyExists, ErrResourceExhausted, ErrUnavailable.
func (r *runner) enroll(ctx context.Context, o offer) error {
	for range 8 {
		rival, err := r.installUnless(o)
		if rival == nil {
			return err
		}
		active := r.answers(ctx, rival.line)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: the registration was given up: %w", o.resource, errdefs.ErrUnavailable)
		}
		if active {
			return fmt.Errorf("the resource %q is that of the plugin at %s, which is active: stop that one, or register another name: %w",
				o.resource, rival.session.socket, errdefs.ErrAlreadyExists)
		}
		r.dismiss(rival.session, fmt.Errorf("it did not answer within %s when the plugin at %s registered in its place", r.pace.active, o.socket))
	}
	return fmt.Errorf("the plugins of %q change too fast: register again: %w", o.resource, errdefs.ErrUnavailable)
}

// contender is a session with an open stream.
type contender struct {
	session *session
	line    *line
}

// installUnless installs a registration if no other socket has an open stream for the resource.
func (r *runner) installUnless(o offer) (*contender, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, fmt.Errorf("this node stops: %w", errdefs.ErrUnavailable)
	}
	p := r.plugins[o.resource]
	if p == nil && len(r.plugins) >= maxResources {
		return nil, fmt.Errorf("plugins have registered %d resources, which is the most: stop those that are not needed: %w", maxResources, errdefs.ErrResourceExhausted)
	}
	if p != nil {
		for _, s := range []*session{p.live, p.next} {
			if s != nil && s.line != nil && s.socket != o.socket {
				return &contender{s, s.line}, nil
			}
		}
	}
	r.install(o)
	return nil, nil
}

func (r *runner) answers(ctx context.Context, l *line) bool {
	ctx, cancel := context.WithTimeout(ctx, r.pace.active)
	defer cancel()
	_, err := optionsOf(ctx, l.plugin, nil)
	return err == nil
}
