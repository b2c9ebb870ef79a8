package sandbox

import (
	"fmt"
	"math/rand/v2"

	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/ocispec"
)

// label gives a new sandbox its labels, with a level that no other sandbox has, be it half made or stopped. The level is the sandbox's as
// long as its record is there; release is called once that has been stored, or will never be. So what is known of levels is
// in the records, after a restart, too.
func (m *Manager) label(rec *Record) (release func(), err error) {
	host := m.cfg.Host
	if host.SELinux == nil {
		return func() {}, nil
	}
	level, err := m.reserveLevel(rec.ID)
	if err != nil {
		return nil, err
	}
	release = func() {
		m.levelsMu.Lock()
		defer m.levelsMu.Unlock()
		delete(m.levels, level)
	}
	rec.SELinux = ocispec.PodLabels(rec.Config(), host, level)
	for _, l := range []string{rec.SELinux.Process, rec.SELinux.Mount} {
		if l == "" {
			continue
		}
		if err := selinux.Known(l); err != nil {
			release()
			return nil, fmt.Errorf("linux.security_context.selinux_options: %w", err)
		}
	}
	return release, nil
}

func (m *Manager) reserveLevel(id string) (level string, err error) {
	m.levelsMu.Lock()
	defer m.levelsMu.Unlock()
	m.recs.Read(func() {
		level, err = m.cfg.Host.SELinux.NewLevel(func(l string) bool {
			_, reserved := m.levels[l]
			return reserved || m.known.levels.Len(l) > 0
		}, rand.IntN)
	})
	if err == nil && level != "" {
		m.levels[level] = id
	}
	return level, err
}
