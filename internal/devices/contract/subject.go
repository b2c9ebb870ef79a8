package contract

import (
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
)

// subject is one resource that is tried.
type subject struct {
	name, socket string
	watched      bool
	told         *judge.Options // by the registration; nil: nothing was
	options      judge.Options
	devices      []*v1beta1.Device
	first        judge.List  // the list that the plugin told first
	later        judge.Later // those that came on a connection that was there
	ids          []string    // of those that can be granted, in the order of the list
	line         *line
	lost         string // why nothing more can be tried
}

func (s *subject) summary(socket string) Resource {
	return Resource{Name: s.name, Socket: socket, Devices: len(s.devices), Healthy: len(s.ids)}
}

// hindrance says why the calls about devices cannot be tried; empty: they can.
func (s *subject) hindrance() string {
	if s.lost == "" && len(s.ids) == 0 {
		return "no device is healthy"
	}
	return s.lost
}

// take takes a list of devices over.
func (s *subject) take(devices []*v1beta1.Device) {
	s.devices, s.ids = devices, nil
	seen := make(map[string]bool, len(devices))
	for _, d := range devices {
		if id := d.GetID(); id != "" && !seen[id] {
			seen[id] = true
			if d.GetHealth() == v1beta1.Healthy {
				s.ids = append(s.ids, id)
			}
		}
	}
}

var (
	ofTheList     = []string{"list/first", "list/ids", "list/health", "list/topology", "list/size", "list/again"}
	ofAllocations = []string{"allocate/one", "allocate/each", "allocate/several", "allocate/all", "allocate/same", "allocate/containers"}
	ofAnswers     = []string{"answer/responses", "answer/content", "answer/envs", "answer/paths", "answer/permissions", "answer/host-paths", "answer/cdi", "answer/usable"}
	ofPreferences = []string{"prefer/answers", "prefer/fits"}
	ofTheStream   = []string{"list/later", "list/stream"}
)
