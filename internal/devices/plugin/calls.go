package plugin

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/containerd/errdefs"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/source"
)

const preStartTimeout = v1beta1.KubeletPreStartContainerRPCTimeoutInSecs * time.Second

// Check says whether a device can be granted right now: its plugin is there and says that it is healthy, or, inUse, that it is.
func (s *Source) Check(resource, name string, inUse bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[resource]
	if p == nil || p.live == nil {
		return fmt.Errorf("%s: no device plugin has told its devices: %w", resource, fs.ErrNotExist)
	}
	d, ok := find(p.live.devices, name)
	switch {
	case !ok:
		return fmt.Errorf("%s: the plugin at %s has no device %s: %w", resource, p.live.socket, brief(name), fs.ErrNotExist)
	case !inUse && d.Unhealthy != "":
		return fmt.Errorf("%s: device %s of the plugin at %s is unhealthy: %s: %w", resource, brief(name), d.Origin, d.Unhealthy, errdefs.ErrUnavailable)
	}
	return nil
}

// lineOf returns what the plugin of a resource is talked to through.
func (s *Source) lineOf(resource string) (*session, *line, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[resource]
	switch {
	case p == nil || p.live == nil:
		return nil, nil, fmt.Errorf("%s: no device plugin has registered it: start its plugin: %w", resource, errdefs.ErrUnavailable)
	case p.live.line == nil:
		return nil, nil, fmt.Errorf("%s: the plugin at %s has been gone since %s: start it: %w", resource, p.live.socket, p.live.since.Format(time.RFC3339), errdefs.ErrUnavailable)
	}
	return p.live, p.live.line, nil
}

// take waits for the turn of a call.
func (s *session) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: the plugin at %s is still busy with another call: %w", s.resource, s.socket, errdefs.ErrUnavailable)
	}
}

func (s *session) give() { <-s.turn }

// Prefer asks for a plugin's preference, where it has one. An answer that does not fit is ignored.
func (s *Source) Prefer(ctx context.Context, resource string, available, must []string, n int) []string {
	one, line, err := s.lineOf(resource)
	if err != nil || !line.options.GetGetPreferredAllocationAvailable() || n < 1 || n > math.MaxInt32 || len(available) < n {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, s.pace.prefer)
	defer cancel()
	if err := one.take(within); err != nil {
		return nil
	}
	defer one.give()
	resp, err := line.plugin.GetPreferredAllocation(within, &v1beta1.PreferredAllocationRequest{ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(n)},
	}})
	if err = inTime(within, err); err != nil {
		s.log.Warn("device plugin's preference is ignored", "resource", resource, "socket", one.socket, "error", plain(err))
		return nil
	}
	ids, why := preference(resp, available, must, n)
	if why != "" {
		s.log.Warn("device plugin's preference is ignored", "resource", resource, "socket", one.socket, "problem", why)
		return nil
	}
	return ids
}

// preference returns what a plugin prefers, or why that does not fit what it was asked.
func preference(resp *v1beta1.PreferredAllocationResponse, available, must []string, n int) (ids []string, why string) {
	responses := resp.GetContainerResponses()
	if len(responses) != 1 {
		return nil, fmt.Sprintf("container_responses has %d entries for a request with 1 container", len(responses))
	}
	ids = responses[0].GetDeviceIDs()
	if len(ids) != n {
		return nil, fmt.Sprintf("it has %d devices where %d were asked for", len(ids), n)
	}
	offered := make(map[string]bool, len(available))
	for _, id := range available {
		offered[id] = true
	}
	chosen := make(map[string]bool, n)
	for _, id := range ids {
		if !offered[id] || chosen[id] {
			return nil, fmt.Sprintf("device %s was not offered, or is named twice", brief(id))
		}
		chosen[id] = true
	}
	for _, id := range must {
		if !chosen[id] {
			return nil, fmt.Sprintf("it lacks device %s, which it had to have", brief(id))
		}
	}
	return ids, ""
}

// Prepare allocates the devices: one call for the container. The plugin's refusal, and an answer that makes no sense, are final; a plugin that is
// away or does not answer in time may be asked again (errdefs.ErrUnavailable).
func (s *Source) Prepare(ctx context.Context, c source.Container, resource string, names []string) (answer.Answer, error) {
	if len(names) == 0 {
		return answer.Answer{}, fmt.Errorf("%s: container %q of pod %s/%s asks for no device: %w", resource, c.Name, c.PodNamespace, c.PodName, errdefs.ErrInvalidArgument)
	}
	one, line, err := s.lineOf(resource)
	if err != nil {
		return answer.Answer{}, err
	}
	if err := one.take(ctx); err != nil {
		return answer.Answer{}, err
	}
	defer one.give()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AllocateTimeout)
	defer cancel()
	resp, err := line.plugin.Allocate(ctx, &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: names}}})
	switch err = inTime(ctx, err); {
	case isLate(ctx, err, s.cfg.AllocateTimeout):
		return answer.Answer{}, &awayError{fmt.Sprintf("the plugin at %s did not answer Allocate within %s; it is asked again within 30s", one.socket, s.cfg.AllocateTimeout)}
	case err != nil && mayPass(err):
		return answer.Answer{}, fmt.Errorf("the call of Allocate by the plugin at %s: %w", one.socket, plain(err))
	case err != nil:
		return answer.Answer{}, &answer.RefusedError{Resource: resource, Err: fmt.Errorf("the plugin at %s says: %w", one.socket, plain(err))}
	}
	given, err := answerOf(resp)
	if err != nil {
		return answer.Answer{}, &answer.RefusedError{Resource: resource, Err: fmt.Errorf("the plugin at %s gave an answer that cannot be used: %w", one.socket, err)}
	}
	return given, nil
}

// StartRequired says whether BeforeStart has something to do for the containers of a resource, and whether that is known: it is not before the
// plugin has registered.
func (s *Source) StartRequired(resource string) (required, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[resource]
	if p == nil || p.live == nil {
		return false, false
	}
	return p.live.options.GetPreStartRequired(), true
}

// BeforeStart calls the plugin's PreStartContainer, when it has asked for that. For a plugin that is not known, so that nobody can say whether
// it has, the error is errdefs.ErrUnavailable, as it is for one that is gone or does not answer in time; any other is the plugin's own.
func (s *Source) BeforeStart(ctx context.Context, _ source.Container, resource string, names []string) error {
	if required, known := s.StartRequired(resource); known && !required {
		return nil
	}
	one, line, err := s.lineOf(resource)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.pace.start)
	defer cancel()
	_, err = line.plugin.PreStartContainer(ctx, &v1beta1.PreStartContainerRequest{DevicesIds: names})
	switch err = inTime(ctx, err); {
	case isLate(ctx, err, s.pace.start):
		return &awayError{fmt.Sprintf("the plugin at %s did not answer PreStartContainer within %s", one.socket, s.pace.start)}
	case err != nil:
		return fmt.Errorf("%s: PreStartContainer by the plugin at %s: %w", resource, one.socket, plain(err))
	}
	return nil
}
