package plugin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Memory remembers over restarts of the node which resources are plugins'. A plugin may take its time to register again; without a memory its
// resource would be nobody's until then, or that of a CDI spec of the same name, which gives devices without what the plugin has to say.
type Memory interface {
	// Plugins are the resources that were remembered last.
	Plugins() ([]string, error)
	// Remember replaces them, on disk before it returns.
	Remember(resources []string) error
}

// recall awaits the plugins that there were when the node ended. What cannot be read is no reason not to start.
func (s *Source) recall() {
	if s.cfg.Memory == nil {
		return
	}
	names, err := s.cfg.Memory.Plugins()
	if err != nil {
		s.log.Warn("it is not known which resources were device plugins' before this start", "error", err)
		return
	}
	s.remembered = slices.Sorted(slices.Values(names))
	for _, name := range names {
		s.awaited[name] = true
	}
}

// remember keeps the resources of a snapshot for the next start, before the snapshot is published. A disk that cannot keep them stops nothing.
func (s *Source) remember(resources []string) {
	if s.cfg.Memory == nil || slices.Equal(resources, s.remembered) {
		return
	}
	if err := s.cfg.Memory.Remember(resources); err != nil {
		s.log.Warn("which resources are device plugins' will not be known after a restart of the node, until they register again", "error", err)
		return
	}
	s.remembered = resources
}

// giveUp is the end of the wait for plugins that have not come back.
func (s *Source) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.awaited) == 0 {
		return
	}
	s.log.Warn("device plugins have not registered again since the node was started; their resources are forgotten until they do",
		"resources", slices.Sorted(maps.Keys(s.awaited)))
	_, late := s.stillAwaited()
	for i := range late {
		late[i].Message += "; its devices were forgotten at " + time.Now().Format(time.RFC3339)
	}
	s.lose(late...)
	clear(s.awaited)
	s.touch()
}

// stillAwaited are the awaited resources, sorted, with a problem of each. s.mu is held.
func (s *Source) stillAwaited() (resources []string, problems []inventory.Problem) {
	for _, name := range slices.Sorted(maps.Keys(s.awaited)) {
		resources = append(resources, name)
		problems = append(problems, inventory.Problem{Resource: name, Paths: []string{s.cfg.Dir}, Message: fmt.Sprintf(
			"the plugin of %s has not told its devices again since the node was started at %s", name, s.started.Format(time.RFC3339))})
	}
	return resources, problems
}
