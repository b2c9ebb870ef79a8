//go:build cgo

package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// keptProfiles bounds how many seccomp profiles are kept: a node has the default one in a handful of variants, and those of its users.
const keptProfiles = 32

// profiles translates seccomp profiles, each once. A profile is most of a container's specification, to read it takes longer than to read
// all the rest, and nearly all containers have the same one. What get returns is shared, and not to be changed.
type profiles struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]*configs.Seccomp
}

// get returns the profile of its text in the specification; nil of none.
func (p *profiles) get(raw json.RawMessage) (*configs.Seccomp, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	key := sha256.Sum256(raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.kept[key]; ok {
		return c, nil
	}
	var profile specs.LinuxSeccomp
	if err := json.Unmarshal(raw, &profile); err != nil {
		return nil, fmt.Errorf("%w: seccomp profile: %w", errdefs.ErrInvalidArgument, err)
	}
	c, err := specconv.SetupSeccomp(&profile)
	if err != nil {
		return nil, fmt.Errorf("%w: seccomp profile: %w", errdefs.ErrInvalidArgument, err)
	}
	if p.kept == nil {
		p.kept = map[[sha256.Size]byte]*configs.Seccomp{}
	}
	for other := range p.kept {
		if len(p.kept) < keptProfiles {
			break
		}
		delete(p.kept, other)
	}
	p.kept[key] = c
	return c, nil
}

// Spec is a specification whose seccomp profile has not been read.
type Spec struct {
	specs.Spec
	Linux *struct {
		specs.Linux
		Seccomp json.RawMessage `json:"seccomp,omitempty"`
	} `json:"linux,omitempty"`
}

// Whole is the specification with its profile.
func Whole(spec *specs.Spec, seccomp json.RawMessage) Spec {
	b := Spec{Spec: *spec}
	b.Linux = &struct {
		specs.Linux
		Seccomp json.RawMessage `json:"seccomp,omitempty"`
	}{*spec.Linux, seccomp}
	return b
}

// take returns the specification without the profile, and the profile.
func (b *Spec) take() (*specs.Spec, json.RawMessage) {
	if b.Linux == nil {
		return &b.Spec, nil
	}
	b.Spec.Linux = &b.Linux.Linux
	return &b.Spec, b.Linux.Seccomp
}
