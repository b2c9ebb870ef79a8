package sandbox

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"monopod.dev/monopod/internal/host/selinux"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
)

// levels gives sandboxes levels of SELinux.
type levels struct {
	host    ocispec.Host
	records *Records

	mu sync.Mutex
	// reserved are those which sandboxes have whose records are not stored yet; the sandboxes' ids by level.
	reserved map[string]ids.SandboxID
}

// label gives a new sandbox its labels, with a level that no other sandbox has, be it half made or stopped. The level is the sandbox's as
// long as its record is there; release is called once that has been stored, or will never be. So what is known of levels is
// in the records, after a restart, too.
func (l *levels) label(rec *Record) (release func(), err error) {
	host := l.host
	if host.SELinux == nil {
		return func() {}, nil
	}
	level, err := l.reserve(rec.ID)
	if err != nil {
		return nil, err
	}
	release = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.reserved, level)
	}
	rec.SELinux = ocispec.PodLabels(rec.Config(), host, level)
	for _, label := range []string{rec.SELinux.Process, rec.SELinux.Mount} {
		if label == "" {
			continue
		}
		if err := selinux.Known(label); err != nil {
			release()
			return nil, fmt.Errorf("linux.security_context.selinux_options: %w", err)
		}
	}
	return release, nil
}

func (l *levels) reserve(id ids.SandboxID) (level string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records.Read(func() {
		level, err = l.host.SELinux.NewLevel(func(level string) bool {
			_, reserved := l.reserved[level]
			return reserved || l.records.known.levels.Len(level) > 0
		}, rand.IntN)
	})
	if err == nil && level != "" {
		l.reserved[level] = id
	}
	return level, err
}
